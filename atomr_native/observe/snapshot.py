"""A System's snapshot for other processes: its statistics, and their origin."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TypedDict

from ..errors import InvalidRequest
from ..runtime.statistics import SystemStats
from ..system import System, state_of

__all__ = ["VERSION", "Snapshot", "check_system", "described", "snapshot"]

#: Version of the snapshot's format; readers refuse other versions.
VERSION = 1
_PATIENCE = 0.5  # seconds that each device's worker has to report free memory


class Snapshot(TypedDict):
    """A snapshot of a System.

    Attributes
    ----------
    version : int
        Version of the format.
    pid : int
        The System's process.
    program : str
        Its name.
    system : str
        Identifies the System within its process.
    time_ns : int
        Time of the snapshot (CLOCK_MONOTONIC, nanoseconds); rates are differences of counters divided by differences of
        this.
    stats : SystemStats
        As from `System.stats`.
    """

    version: int
    pid: int
    program: str
    system: str
    time_ns: int
    stats: SystemStats


def snapshot(system: System) -> Snapshot:
    """Take a snapshot of a System; wait up to half a second for each device whose worker does not answer.

    Raises
    ------
    InvalidRequest
        If `system` is not a System.
    """
    check_system(system)
    tree = state_of(system).tree
    # Not `system.stats()`: its lock is held while a device starts, when observation matters most.
    stats: SystemStats = {
        "devices": {name: device.stats(timeout=_PATIENCE) for name, device in list(state_of(system).devices.items())},
        "actors": {} if tree is None else tree.stats(),
        "dead_letters": system.dead_letters.total,
    }
    return described(system.token[:8], stats)


def described(name: str, stats: SystemStats) -> Snapshot:
    """Return statistics as a snapshot of now."""
    return {
        "version": VERSION,
        "pid": os.getpid(),
        "program": Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python",
        "system": name,
        "time_ns": time.monotonic_ns(),
        "stats": stats,
    }


def check_system(system: object) -> System:
    """Return the argument if it is a System."""
    if not isinstance(system, System):
        raise InvalidRequest(f"system={system!r}; it must be a System")
    return system
