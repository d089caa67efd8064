"""Actors of the cases, in a module that the nodes can import."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import atomr_native as an

__all__ = ["Asker", "Bare", "Idle", "Keeper", "Summing", "Taking"]


class Idle(an.Actor):
    """Does nothing."""

    def receive(self, message: object) -> object:
        """Return nothing, or die."""
        if message == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return None


class Asker(an.Actor):
    """Asks a child, and says how long that takes."""

    def __init__(self) -> None:
        self.child = self.context.spawn(Idle)

    def receive(self, count: int) -> float:
        """Return microseconds of each of `count` asks."""
        ask, clock = self.child.ask, time.perf_counter_ns
        for _ in range(20):
            ask("ask").result()
        start = clock()
        for _ in range(count):
            ask("ask").result()
        return (clock() - start) / 1e3 / count


class Keeper(an.Actor):
    """Copies an array of another node to its own host device, and waits."""

    def receive(self, work: tuple[Any, int]) -> float:
        """Return microseconds of each of some copies."""
        ref, count = work
        device = self.context.system.device("host")
        start = time.perf_counter_ns()
        for _ in range(count):
            ref.to_device(device).wait()
        return (time.perf_counter_ns() - start) / 1e3 / count


class Taking(an.Actor):
    """Copies arrays of another node to its GPU."""

    def __init__(self, device: str) -> None:
        self.device = self.context.system.device(device)

    def receive(self, ref: Any) -> float:
        """Return the microseconds of a copy, until it is there."""
        start = time.perf_counter_ns()
        ref.to_device(self.device).wait()
        return (time.perf_counter_ns() - start) / 1e3


class Bare:
    """The same by Ray alone: its actor."""

    def noop(self, message: object = None) -> None:
        """Do nothing, or die."""
        if message == "die":
            os.kill(os.getpid(), signal.SIGKILL)

    def get(self, references: list[Any]) -> float:
        """Return microseconds of getting a NumPy array from the object store and copying it."""
        import numpy as np
        import ray  # type: ignore[import-not-found,unused-ignore]

        start = time.perf_counter_ns()
        np.copy(ray.get(references[0]))
        return (time.perf_counter_ns() - start) / 1e3


class Summing(an.Actor):
    """A rank of a communicator over nodes."""

    def __init__(self, comm: Any, device: str) -> None:
        self.comm, self.device = comm, self.context.system.device(device)
        self.array: Any = None

    def receive(self, message: Any) -> Any:
        """Return microseconds of each of some all-reduces in place, of so many elements; or the notes."""
        if message == "notes":
            return self.comm.notes
        count, times = message
        if self.array is None or self.array.size != count:
            self.array = self.device.zeros((count,))
        self.array.wait()
        self.comm.barrier()
        start = time.perf_counter_ns()
        for _ in range(times):
            self.comm.all_reduce(self.array, out=self.array)
        return (time.perf_counter_ns() - start) / 1e3 / times
