"""The restart timeline: a worker dies, and the device answers again."""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

from bench.harness import Bar, Case, Setup, Unavailable, describe
from bench.harness.common import opened

__all__ = ["BARS", "CASES"]

LIMIT_SECONDS = 30.0
STANDBY_SECONDS = 2.0
REST_SECONDS = 1.1
GPU_REST_SECONDS = 1.5
WITHIN_SECONDS = 1.0  # in which another death would meet a back-off
POLL_SECONDS = 0.0005
SIDE = 64


def _poll_until(done: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + LIMIT_SECONDS
    while not done():
        if time.monotonic() > limit:
            raise TimeoutError(f"{what} took more than {LIMIT_SECONDS:g} s")
        time.sleep(POLL_SECONDS)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library's reports of deaths, which are the point here, off the terminal."""
    logger = logging.getLogger("atomr_native")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


#: Makes ready to end a device's worker, and returns what does it.
Strike = Callable[[Any], Callable[[], Any]]


def _kill(dev: Any) -> Callable[[], Any]:
    return partial(os.kill, dev.worker_pid, signal.SIGKILL)


def _gpu_fault() -> Strike:
    """A kernel that writes to address 64, each time as another plan: what has killed two workers is quarantined."""
    from atomr_native.plans.plan import Plan  # type: ignore[import-untyped,unused-ignore]
    from atomr_native.plans.signature import Signature  # type: ignore[import-untyped,unused-ignore]
    from atomr_native.plans.spec import (  # type: ignore[import-untyped,unused-ignore]
        READ,
        WRITE,
        OperandSpec,
        PlanSpec,
    )

    sizes = count(1)

    def strike(dev: Any) -> Callable[[], Any]:
        x = dev.empty((next(sizes),), "float64")
        operand = OperandSpec("x", "float64", x.shape, x.strides, READ | WRITE)
        spec = PlanSpec("test.gpu_fault", (operand,), (), (("how", "illegal address"),))
        plan = Plan.make(dev._state, dev.lane("bench faults").lane, spec, Signature(("x",), ("x",), ())).wait(
            LIMIT_SECONDS
        )
        return partial(plan.ask, x)

    return strike


class Restarts:
    """One device that is made to die again and again, with a durable array that it must keep.

    Parameters
    ----------
    dev
        A device of a System that forgets restarts after `WITHIN_SECONDS`.
    strike
        What ends its worker.
    rest
        Seconds between an answer and the next death: for the standby to come up, and the restart to be forgotten.
    """

    def __init__(self, dev: Any, strike: Strike, rest: float) -> None:
        import numpy as np

        from atomr_native import errors  # type: ignore[import-untyped,unused-ignore]

        self._dev, self._strike, self._rest, self._errors = dev, strike, rest, errors
        self._weights = dev.put(np.ones((SIDE, SIDE), dtype=np.float32), durable=True).wait()
        self._first_answer()
        self._answered = time.monotonic()

    def sample(self) -> dict[str, float]:
        """Let it die once; phases in milliseconds, seen from outside, and the device's own account of them."""
        dev = self._dev
        time.sleep(max(0.0, self._answered + self._rest - time.monotonic()))
        dev.wait_ready(LIMIT_SECONDS)
        end, restarts = self._strike(dev), dev.restarts
        watch = os.pidfd_open(dev.worker_pid)
        try:
            poll = select.poll()
            poll.register(watch, select.POLLIN)
            start = time.perf_counter()
            reply = end()
            if not poll.poll(LIMIT_SECONDS * 1e3):
                raise TimeoutError(f"the worker outlived its end by {LIMIT_SECONDS:g} s")
            dead = time.perf_counter()
        finally:
            os.close(watch)
        _poll_until(lambda: dev.restarts > restarts, "the restart")
        ready = time.perf_counter()
        self._first_answer()
        answer = time.perf_counter()
        self._answered = time.monotonic()
        if reply is not None and not isinstance(reply.exception(), self._errors.DeviceFault):
            raise AssertionError(f"the message that ended the worker was answered by {reply.exception()!r}")
        timeline = dev.restart_timeline()
        known = min(dead, ready - timeline["total"])
        phases = {
            "to known": known - start,
            "known to ready": ready - known,
            "ready to answer": answer - ready,
            "known to answer": answer - known,
            **{f"timeline {key}": value for key, value in timeline.items()},
        }
        return {key: float(seconds) * 1e3 for key, seconds in phases.items()}

    def _first_answer(self) -> None:
        """Ask until an answer comes and is right: the durable array still holds its ones."""
        limit = time.monotonic() + LIMIT_SECONDS
        while True:
            try:
                total = float(self._dev.blas_lt.matmul(self._weights, self._weights).numpy()[0, 0])
            except self._errors.AtomrError as error:
                if time.monotonic() > limit:
                    raise TimeoutError(f"no good answer: {describe(error)}") from error
                time.sleep(POLL_SECONDS)
                continue
            if total != float(SIDE):
                raise AssertionError(f"the durable array came back wrong: {total} for {SIDE}")
            return


def _add(setup: Setup, name: str, standby: str, strike: Callable[[], Strike], rest: float) -> None:
    with setup.attempt(name):
        setup.need()
        if not hasattr(os, "pidfd_open"):
            raise Unavailable("this Python has no os.pidfd_open")
        setup.shared("quiet", _quiet)
        options = {"standby": standby, "max_restarts": 1_000_000, "within": WITHIN_SECONDS, "allow_crash": True}
        _, dev = setup.enter(opened(setup.device, "process", options))  # a System of its own
        setup.add(name, Restarts(dev, strike(), rest).sample)


def on_host(setup: Setup) -> None:
    """Milliseconds from SIGKILL of the worker to its successor's first good answer, with a durable array kept.

    *known*: the worker's pidfd is readable, or the supervisor has noticed, whichever comes first. *ready*: the device
    is open again (polled every 0.5 ms). *answer*: a matmul of the durable array, which is checked. Before a death there
    are 2 s of rest with a standby, in which the next one comes up, and 1.1 s without, so that no restart meets a
    back-off. Rows "timeline ..." are the device's own account. C: fork, map and first answer, once the death is known.
    """
    _add(setup, "atomr warm standby", "warm", lambda: _kill, STANDBY_SECONDS)
    _add(setup, "atomr no standby", "off", lambda: _kill, REST_SECONDS)
    setup.twin("C fork and first answer", "respawn", "--count", setup.count(20), scale=1e-3)


def _first_kernel(setup: Setup) -> Callable[[], float]:
    from bench.harness.gpu import program_command
    from bench.harness.programs import environment

    command, env = setup.enter(program_command(setup, "loops")), environment()

    def sample() -> float:
        start = time.perf_counter()
        done = subprocess.run(
            command, input=b"launch-synchronize 1\n", capture_output=True, timeout=LIMIT_SECONDS, check=False, env=env
        )
        ms = (time.perf_counter() - start) * 1e3
        if done.returncode != 0 or b'"us"' not in done.stdout:
            raise RuntimeError(f"loops ended with {done.returncode}: {done.stderr.decode(errors='replace').strip()}")
        return ms

    return sample


def on_gpu(setup: Setup) -> None:
    """Milliseconds from the death of the worker to its successor's first good answer, with a durable array kept.

    *kill*: SIGKILL. *GPU fault*: a kernel writes to an illegal address, and its message is answered with `DeviceFault`.
    *known*: the worker's pidfd is readable, or the supervisor has noticed, whichever comes first. *ready*: the device
    is open again (polled every 0.5 ms), after it has been proven. *answer*: a matmul of the durable array through
    cuBLASLt, which is opened for it, checked. Each contender has a device of its own, and rests after an answer: 1.5 s
    at least with a standby, in which the next one comes up, and 1.1 s without, so that no restart meets a back-off.
    A hot standby has opened the GPU beforehand, a warm one has loaded the libraries. Rows "timeline ..." are the
    device's own account. C: a new process, its context, one kernel, its end.
    """
    for what, strike in (("kill", lambda: _kill), ("GPU fault", _gpu_fault)):
        _add(setup, f"atomr {what}, warm standby", "warm", strike, GPU_REST_SECONDS)
        _add(setup, f"atomr {what}, hot standby", "hot", strike, GPU_REST_SECONDS)
    _add(setup, "atomr kill, no standby", "off", lambda: _kill, REST_SECONDS)
    with setup.attempt("C process and first kernel", kind="twin"):
        setup.need()
        setup.add("C process and first kernel", _first_kernel(setup))


BARS = (
    Bar("death known to first good answer", "restart", "atomr warm standby: known to answer", 600.0, "ms"),
    *(
        Bar(
            f"death known to first good answer, {standby} standby",
            "gpu_restart",
            f"atomr {what}, {standby} standby: known to answer",
            limit,
            "ms",
            part=what,
        )
        for standby, limit in (("warm", 600.0), ("hot", 150.0))
        for what in ("kill", "GPU fault")
    ),
)
CASES = (
    Case("restart", "Restart timeline", on_host, unit="ms", devices=("host",)),
    Case("gpu_restart", "Restart of a GPU device", on_gpu, unit="ms", rounds=15, devices=("cuda",), share=4.0),
)
