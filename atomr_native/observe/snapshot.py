"""What is told of a System to other processes: its statistics, and whose they are."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TypedDict

from ..errors import InvalidRequest
from ..statistics import SystemStats
from ..system import System

__all__ = ["VERSION", "Snapshot", "check_system", "snapshot"]

#: Of the form of a snapshot; a reader of another version does not guess.
VERSION = 1
_PATIENCE = 0.5  # seconds that each device's worker has for its word on free memory


class Snapshot(TypedDict):
    """One look at a System.

    Attributes
    ----------
    version : int
        Of this form.
    pid : int
        Of the process whose System it is.
    program : str
        Its name.
    system : str
        Tells the Systems of one process apart.
    time_ns : int
        When (CLOCK_MONOTONIC, nanoseconds): rates are differences of counters by differences of this.
    stats : SystemStats
        As `System.stats` returns them.
    """

    version: int
    pid: int
    program: str
    system: str
    time_ns: int
    stats: SystemStats


def snapshot(system: System) -> Snapshot:
    """Look at a System; waits up to half a second for each device whose worker does not answer.

    Raises
    ------
    InvalidRequest
        If `system` is no System.
    """
    check_system(system)
    tree = system._actors
    # Not `system.stats()`: its lock is held while a device starts, which is when somebody wants to look.
    stats: SystemStats = {
        "devices": {name: device.stats(timeout=_PATIENCE) for name, device in list(system._devices.items())},
        "actors": {} if tree is None else tree.stats(),
        "dead_letters": system.dead_letters.total,
    }
    return {
        "version": VERSION,
        "pid": os.getpid(),
        "program": Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python",
        "system": system.token[:8],
        "time_ns": time.monotonic_ns(),
        "stats": stats,
    }


def check_system(system: object) -> System:
    """Return it, if it is a System."""
    if not isinstance(system, System):
        raise InvalidRequest(f"system={system!r}; it must be a System")
    return system
