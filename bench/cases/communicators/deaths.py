"""From the death of a rank to the first good collective."""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.cases.communicators._ranks import of_system
from bench.harness import Bar, Case, Setup, describe

__all__ = ["BARS", "CASES"]

LIMIT_SECONDS = 40.0
REST_SECONDS = 1.5  # for the standby to come up, and the restart to be forgotten
POLL_SECONDS = 0.0005
ELEMENTS = 1 << 20


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the log from saying that each worker died."""
    logger = logging.getLogger("atomr_native")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


class Deaths:
    """Two ranks, the second of which is killed again and again amid all-reduces."""

    def __init__(self, comm: Any) -> None:
        from atomr_native import errors  # type: ignore[import-untyped,unused-ignore]

        self._comm, self._errors = comm, errors
        self._first_answer()

    def _collective(self) -> float:
        refs = [device.full((ELEMENTS,), 1.0, "float32") for device in self._comm.devices]
        return float(self._comm.all_reduce(refs)[0][:1].numpy()[0])

    def _first_answer(self) -> None:
        limit = time.monotonic() + LIMIT_SECONDS
        while True:
            try:
                total = self._collective()
            except self._errors.AtomrError as error:
                if time.monotonic() > limit:
                    raise TimeoutError(f"no good collective: {describe(error)}") from error
                time.sleep(POLL_SECONDS)
                continue
            if total != self._comm.size:
                raise AssertionError(f"a sum of {self._comm.size} ones is {total}")
            return

    def sample(self) -> dict[str, float]:
        """Let the second rank die in the midst of collectives; phases in milliseconds."""
        time.sleep(REST_SECONDS)
        for device in self._comm.devices:
            device.wait_ready(LIMIT_SECONDS)
        victim = self._comm.devices[1]
        before, restarts = victim.restarts, sum(device.restarts for device in self._comm.devices)
        refs = [device.full((ELEMENTS,), 1.0, "float32") for device in self._comm.devices]
        for _ in range(50):
            self._comm.all_reduce(refs, out=refs, op="max")
        watch = os.pidfd_open(victim.worker_pid)
        try:
            os.kill(victim.worker_pid, signal.SIGKILL)
            poll = select.poll()
            poll.register(watch, select.POLLIN)
            if not poll.poll(LIMIT_SECONDS * 1e3):
                raise TimeoutError(f"the worker outlived its end by {LIMIT_SECONDS:g} s")
        finally:
            os.close(watch)
        known = time.perf_counter()
        while victim.restarts == before:
            if time.perf_counter() - known > LIMIT_SECONDS:
                raise TimeoutError("the device did not come back")
            time.sleep(POLL_SECONDS)
        ready = time.perf_counter()
        self._first_answer()
        answer = time.perf_counter()
        others = sum(device.restarts for device in self._comm.devices) - restarts - 1
        phases = {
            "known to device back": ready - known,
            "device back to collective": answer - ready,
            "known to collective": answer - known,
        }
        return {**{name: 1e3 * seconds for name, seconds in phases.items()}, "other workers restarted": float(others)}


def deaths(setup: Setup) -> None:
    """Milliseconds from the death of a rank's worker, by SIGKILL amid all-reduces, to the first good all-reduce.

    *known*: the worker's pidfd is readable. *device back*: its device has restarted (polled every 0.5 ms).
    *collective*: an all-reduce of 4 MiB of fresh arrays, checked, that is sent again until it succeeds.
    With aborts the other worker ends its part of NCCL; with restarts it ends, too, and both come back. Host devices
    have nothing to abort. "other workers restarted" is a number: an abort that takes more than 5 s ends its worker.
    Before each death there are 1.5 s of rest.
    """
    for how in ("abort", "restart"):
        with setup.attempt(f"atomr {how}"):
            setup.need()
            setup.shared("quiet", _quiet)
            options: dict[str, Any] = {"standby": "warm", "max_restarts": 1_000_000, "within": 1.0}
            made = setup.enter(of_system(setup, **options))
            comm = made.comm.devices[0].system.communicator([d.name for d in made.comm.devices], on_death=how)
            made.comm.close()
            setup.stack.callback(comm.close)
            setup.add(f"atomr {how}", Deaths(comm).sample)


BARS = tuple(
    Bar("death of a rank known to first good collective", "gpu_rank_death", f"atomr {how}: known to collective", limit,
        "ms", part=how)
    for how, limit in (("abort", 3500.0), ("restart", 1200.0))
)  # fmt: skip
CASES = (
    Case("rank_death", "Death of a rank", deaths, unit="ms", rounds=11, devices=("host",), share=2.0),
    Case("gpu_rank_death", "Death of a rank on a GPU", deaths, unit="ms", rounds=9, devices=("cuda",), share=3.0),
)
