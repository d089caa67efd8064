"""Facts about the machine: read, not tested."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .._support.host_memory import cgroup_memory_limit
from .model import Check

__all__ = ["machine_checks", "package_version", "versions"]

_SECCOMP = {"0": "off", "1": "strict", "2": "filter"}
_PTRACE = {"0": "classic", "1": "own children only", "2": "administrators only", "3": "nobody"}


def package_version() -> str:
    """Return the installed version of atomr_native, or a text that none is installed."""
    try:
        return version("atomr-native")
    except PackageNotFoundError:
        return "not installed"


def versions() -> dict[str, str]:
    """Return the versions of package, interpreter and platform."""
    return {
        "atomr_native": package_version(),
        "python": f"{platform.python_implementation()} {platform.python_version()}"
        + ("" if getattr(sys, "_is_gil_enabled", lambda: True)() else " (free-threaded)"),
        "executable": sys.executable,
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}, "
        + (" ".join(platform.libc_ver()).strip() or "unknown libc"),
    }


def _read(path: str | Path) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _nbytes(value: int) -> str:
    return f"{value / (1 << 30):.1f} GiB" if value >= 1 << 30 else f"{value / (1 << 20):.1f} MiB"


def _cores() -> str:
    usable = len(os.sched_getaffinity(0))
    return f"{usable} usable of {os.cpu_count() or usable}"


def _status_field(name: str) -> str | None:
    for line in (_read("/proc/self/status") or "").splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return value.strip()
    return None


def _seccomp() -> str:
    mode = _status_field("Seccomp")
    return "unknown" if mode is None else _SECCOMP.get(mode, f"mode {mode}")


def _ptrace() -> str:
    scope = _read("/proc/sys/kernel/yama/ptrace_scope")
    return "not restricted by Yama" if scope is None else f"{scope}: {_PTRACE.get(scope, 'unknown')}"


def _memlock() -> str:
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return " / ".join("unlimited" if v == resource.RLIM_INFINITY else _nbytes(v) for v in (soft, hard))


def _memory() -> str:
    limit = cgroup_memory_limit()
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return f"{_nbytes(total)} in total, " + ("no cgroup limit" if limit is None else f"cgroup limit {_nbytes(limit)}")


def _mps() -> str:
    pipes = os.environ.get("CUDA_MPS_PIPE_DIRECTORY")
    place = Path(pipes or "/tmp/nvidia-mps")  # noqa: S108  (NVIDIA's default; only looked at)
    if (place / "control").exists():
        return f"a control daemon's pipe is in {place}"
    if pipes:
        return f"CUDA_MPS_PIPE_DIRECTORY is {pipes}, but no control daemon has a pipe there"
    tool = shutil.which("nvidia-cuda-mps-control")
    return f"not running ({tool} is installed)" if tool else "not running"


def _mig() -> str:
    capabilities = Path("/proc/driver/nvidia/capabilities")
    if not capabilities.is_dir():
        return "no NVIDIA kernel driver"
    instances = sorted(capabilities.glob("gpu*/mig/gi*"))
    return f"{len(instances)} GPU instances" if instances else "no GPU instances"


def machine_checks() -> list[Check]:
    """Return the facts: cores, memory, locked memory, seccomp, ptrace, MPS, MIG."""
    return [
        Check("cores", "processor cores", "info", _cores()),
        Check("memory", "memory", "info", _memory()),
        Check("memlock", "locked memory, soft / hard limit", "info", _memlock()),
        Check("seccomp", "seccomp", "info", _seccomp()),
        Check("ptrace", "ptrace", "info", _ptrace()),
        Check("mps", "CUDA MPS", "info", _mps()),
        Check("mig", "MIG", "info", _mig()),
    ]
