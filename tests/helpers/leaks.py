"""What this process holds of the kinds of things that a System makes."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections import Counter
from pathlib import Path

import forked_workers
from actions import eventually

from atomr_native._lib.lanes import lane_threads


def descriptors() -> Counter[str]:
    """Open descriptors of the kinds that the library uses."""
    found: Counter[str] = Counter()
    kept = forked_workers.kept_descriptors()
    for name in os.listdir("/proc/self/fd"):
        if int(name) in kept:
            continue
        with contextlib.suppress(OSError):
            link = os.readlink(f"/proc/self/fd/{name}")
            for kind in ("memfd:atomr", "eventfd", "pidfd", "socket", "pipe"):
                if kind in link:
                    found[kind] += 1
    return found


def mappings() -> int:
    """Shared memory of the library that is mapped here."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum("memfd:atomr" in line and line.split()[1].endswith("s") for line in lines)


def children() -> set[int]:
    """Processes started by any thread of this one, zombies too."""
    found: set[int] = set()
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            found.update(map(int, Path(f"/proc/self/task/{task}/children").read_text().split()))
    return found - forked_workers.kept_processes()


def threads() -> set[str]:
    """Names of threads, native ones too, but for lanes: a thread that a library starts there has the lane's name."""
    found = {t.name for t in threading.enumerate() if t.name.startswith("atomr")}
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            name = Path(f"/proc/self/task/{task}/comm").read_text().strip()
            if name.startswith("atomr") and not name.startswith(("atomr-copy", "atomr-lane-")):  # copies live on
                found.add(name)
    return found


class Baseline:
    """What there is now; `check` fails if later there is more."""

    def __init__(self) -> None:
        gc.collect()
        self.descriptors, self.mappings = descriptors(), mappings()
        self.children, self.threads, self.lanes = children(), threads(), lane_threads()

    def extra(self) -> dict[str, object]:
        """What there is more."""
        gc.collect()
        now = {
            "descriptors": dict(descriptors() - self.descriptors),
            "mappings": max(0, mappings() - self.mappings),
            "children": children() - self.children,
            "threads": threads() - self.threads,
            "lanes": max(0, lane_threads() - self.lanes),
        }
        return {name: value for name, value in now.items() if value}

    def check(self) -> None:
        """Wait for what is just ending, then fail if anything is left."""
        with contextlib.suppress(AssertionError):
            eventually(lambda: not self.extra())
        left = self.extra()
        assert not left, f"left behind: {left}"
