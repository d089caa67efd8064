"""Memory available to this process: of the machine, and of its control groups."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path

__all__ = ["cgroup_memory_limit", "default_limit", "host_memory", "processor_name"]

_ROOT = Path("/sys/fs/cgroup")
#: By version of control groups: files of limit and usage, and the part of the usage (in memory.stat) that is
#: reclaimable cache.
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


def host_memory(root: Path = _ROOT, membership: str | None = None, meminfo: str | None = None) -> tuple[int, int]:
    """Return (free, total) bytes of host memory available to this process.

    Parameters
    ----------
    root, membership
        As for `cgroup_memory_limit`.
    meminfo
        The text of ``/proc/meminfo``; read from there by default.
    """
    kib = {}
    for line in (_read("/proc/meminfo") or "" if meminfo is None else meminfo).splitlines():
        name, _, value = line.partition(":")
        if value.endswith("kB"):
            kib[name] = int(value.split()[0])
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    total = kib.get("MemTotal", pages >> 10) << 10
    free = min(kib.get("MemAvailable", total >> 10) << 10, total)
    for folder, version in _groups(root, membership):
        limit_file, usage_file, cache_name = _FILES[version]
        limit, used = _number(folder / limit_file), _number(folder / usage_file)
        if limit is None:
            continue
        total = min(total, limit)
        cache = _field(folder / "memory.stat", cache_name)
        free = min(free, max(limit - max((used or 0) - cache, 0), 0))
    return min(free, total), total


def cgroup_memory_limit(root: Path = _ROOT, membership: str | None = None) -> int | None:
    """Return the smallest memory limit of this process's control groups, in bytes; None if there is none.

    Parameters
    ----------
    root
        Mount point of the control groups.
    membership
        The text of ``/proc/self/cgroup``; read from there by default.
    """
    limits = (_number(folder / _FILES[version][0]) for folder, version in _groups(root, membership))
    return min((limit for limit in limits if limit is not None), default=None)


def processor_name() -> str:
    """Return the CPU's model name."""
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return platform.machine()


def _groups(root: Path, membership: str | None) -> Iterator[tuple[Path, int]]:
    """Yield the folders of the control groups that account for this process's memory, and their version."""
    text = _read("/proc/self/cgroup") if membership is None else membership
    for line in (text or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, version = root, 2
        elif "memory" in controllers.split(","):
            base, version = root / "memory", 1
        else:
            continue
        folder = base / path.lstrip("/")
        for place in (folder, *folder.parents):
            yield place, version
            if place == base:
                break


def _read(path: str | Path) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _number(path: Path) -> int | None:
    """Return the number in a file; None if there is none, or it means "no limit"."""
    text = _read(path)
    return int(text) if text is not None and text.isdigit() and int(text) < 1 << 60 else None


def _field(path: Path, name: str) -> int:
    for line in (_read(path) or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return 0


def default_limit() -> int:
    """Return four fifths of the free memory available to this process, bytes."""
    return host_memory()[0] * 4 // 5
