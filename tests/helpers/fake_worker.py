# ruff: noqa: T201
"""Lanes without native code, and a worker process that runs them: ``python -m fake_worker``."""

from __future__ import annotations

import logging
import mmap
import os
import sys
import threading
import time
import warnings
from typing import Any, ClassVar

from atomr_native.builders.context import Built
from atomr_native.plans.spec import PlanSpec


class FakeLanes:
    """Keeps what it is told; memory is real, lanes are not."""

    faulted = False

    def __init__(self, p_fd: int, p_bytes: int, *, parent_pidfd: int, spin_us: int, fault_fd: int) -> None:
        self.p = mmap.mmap(p_fd, p_bytes, prot=mmap.PROT_READ)
        self.parent_pidfd = parent_pidfd
        self.spin_us = spin_us
        self.w_bytes = 4096
        self.w_fd = os.memfd_create("fake-w", os.MFD_CLOEXEC)
        os.ftruncate(self.w_fd, self.w_bytes)
        self.segments: dict[int, int] = {}
        self.plans: dict[int, tuple[Any, ...]] = {}
        self.eventfds: dict[int, int] = {}
        self.calls: list[str] = []
        self.stopped = 0
        self.busy: list[bool] = []

    def create_segment(self, segment: int, nbytes: int, pool: int) -> int:
        fd = os.memfd_create(f"fake-segment-{segment}", os.MFD_CLOEXEC)
        os.ftruncate(fd, nbytes)
        self.segments[segment] = nbytes
        return fd

    def map_segment(self, segment: int, fd: int, nbytes: int, pool: int) -> None:
        if os.fstat(fd).st_size != nbytes:
            raise ValueError("wrong size")
        self.segments[segment] = nbytes

    def unmap_segment(self, segment: int) -> None:
        del self.segments[segment]

    def open_lane(self, lane: int) -> None:
        self.calls.append(f"open_lane {lane}")

    def set_workspace(self, lane: int, segment: int, offset: int, nbytes: int) -> None:
        self.calls.append(f"set_workspace {lane} {segment} {offset} {nbytes}")

    def go(self) -> None:
        self.calls.append("go")

    def add_plan(self, plan: int, run: Any, operands: list[Any], scalars: list[str], operation: str = "") -> None:
        self.plans[plan] = (run, operands, scalars, operation)

    def be_cautious(self, cautious: bool) -> None:
        self.calls.append(f"be_cautious {cautious}")

    def suspect(self, plan: int) -> None:
        self.calls.append(f"suspect {plan}")

    def begin_build(self, suspect: bool) -> int:
        self.calls.append(f"begin_build {suspect}")
        return 7

    def end_build(self, turn: int) -> None:
        self.calls.append(f"end_build {turn}")

    def set_busy(self, busy: bool) -> None:
        self.busy.append(busy)

    def remove_plan(self, plan: int) -> None:
        del self.plans[plan]

    def subscribe(self, index: int, eventfd: int) -> None:
        self.eventfds[index] = eventfd
        os.eventfd_write(eventfd, 7)

    def stats(self) -> dict[str, Any]:
        return {
            "segments": sorted(self.segments),
            "plans": sorted(self.plans),
            "calls": self.calls,
            "spin_us": self.spin_us,
            "watches": self.parent_pidfd >= 0,
            "p": self.p[:4].decode(),
        }

    def abandon(self) -> None:
        self.stop()

    def stop(self) -> None:
        self.stopped += 1
        if self.stopped > 1:
            return
        self.p.close()
        os.close(self.w_fd)
        for fd in self.eventfds.values():
            os.close(fd)
        self.eventfds = {}


class FakeBuilders:
    """Builds what the specification says: slow things, failing things, talkative things."""

    release = threading.Event()
    facts: ClassVar[dict[str, Any]] = {"name": "fake", "total_memory": 1 << 30}

    def memory(self) -> tuple[int, int]:
        return 1 << 29, 1 << 30

    def build(self, spec: PlanSpec, plan: int, workspace: int | None = None, /) -> Any:
        op, given = spec.op, dict(spec.attributes)
        if op == "sleep":
            time.sleep(given["seconds"])
        elif op == "wait":
            self.release.wait(10)
        elif op == "fail":
            raise ValueError("the builder failed")
        elif op == "talk":
            for text in given["texts"]:
                logging.getLogger("some.library").warning(text)
            warnings.warn("a warning of the builder", stacklevel=1)
            print("printed to stdout")
            print("printed to stderr", file=sys.stderr)
            print("x" * given.get("flood", 0), flush=True)
        return Built("noop", 64)

    def self_test(self) -> None:
        pass

    def recover(self, lanes: Any, groups: list[Any]) -> list[Any]:
        return [{"sequence": group["sequence"]} for group in groups]


if __name__ == "__main__":
    from atomr_native.worker.__main__ import main

    if os.environ.get("FAKE_SLOW_START"):
        print("starting slowly", flush=True)
        time.sleep(float(os.environ["FAKE_SLOW_START"]))
    if os.environ.get("FAKE_NO_START"):
        print("cannot start: no such thing", flush=True)
        sys.exit(5)
    if version := os.environ.get("FAKE_VERSION"):
        import atomr_native.worker.loop as loop

        loop.package_version = lambda: version
    main(lanes_factory=FakeLanes, builders=FakeBuilders())
