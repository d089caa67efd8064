"""Real crashes on demand, and moments of a restart to do something in."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from actions import eventually

import atomr_native as an
from atomr_native.plans.spec import OVERWRITE, READ, WRITE, OperandSpec, PlanSpec
from atomr_native.runtime import link as _link

#: Many deaths, each a first one: no budget is spent, nobody backs off.
PATIENT: dict[str, Any] = {"within": 0.0}


def operation(
    actor: Any, *refs: an.GpuRef, how: str = "none", access: int = READ | WRITE, **attributes: Any
) -> an.Plan:
    """A plan of ``test.crash`` on `refs`, all of which it uses as `access` says; see ``worker/faults.py``."""
    operands = tuple(
        OperandSpec(f"o{i}", r.layout.dtype_name, r.shape, r.strides, access) for i, r in enumerate(refs)
    )  # fmt: skip
    plan: an.Plan = actor._plan(PlanSpec("test.crash", operands, (), (("how", how), *attributes.items())))
    return plan


def send(actor: Any, *refs: an.GpuRef, **options: Any) -> Any:
    """Send such a message; its reply."""
    return operation(actor, *refs, **options).ask(*refs)


def overwrite(actor: Any, ref: an.GpuRef, value: float) -> Any:
    """Send a message to `actor` that writes all of `ref`; its reply."""
    plan = actor._plan(
        PlanSpec(
            "memory.fill", (OperandSpec("out", ref.layout.dtype_name, ref.shape, ref.strides, WRITE | OVERWRITE),),
            ("float64",),
        ),
    )  # fmt: skip
    return plan.send((ref,), (value,), True)


def occupy(actor: Any, *refs: an.GpuRef, **options: Any) -> Any:
    """Have a lane run a message that only ends with the worker; returns its reply when it has written its part."""
    with tempfile.TemporaryDirectory() as folder:
        begun = Path(folder, "begun")
        reply = send(actor, *refs, **{"how": "sleep", "seconds": 60.0, "begun": str(begun), **options})
        eventually(begun.exists)
    return reply


def kill(device: an.Device, number: int = signal.SIGKILL) -> None:
    """Send a signal to the worker, if there is one."""
    pid = device.worker_pid
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def await_generation(device: an.Device, generation: int, seconds: float = 60.0) -> None:
    """Wait until a device has come up again."""
    eventually(lambda: device.generation >= generation, seconds)
    device.wait_ready(seconds)


def restart(device: an.Device) -> None:
    """Kill the worker and wait for the next one."""
    generation = device.generation
    assert device.worker_pid is not None
    kill(device)
    await_generation(device, generation + 1)


def filled(device: an.Device, value: float, *, durable: bool = True, size: int = 64) -> an.GpuRef:
    """Put an array of one value, and wait for it."""
    return device.put(np.full(size, value), durable=durable).wait()


def stray(device: an.Device, ref: an.GpuRef, value: float) -> None:
    """Write the first half of memory that a message only says to read."""
    send(device.lane("stray"), ref, half=value, access=READ).result(60)


class Moments:
    """Does something at chosen requests to workers: before they are sent, or after they were answered."""

    def __init__(self) -> None:
        self.plans: list[tuple[str, bool, Callable[[_link.Link], object]]] = []
        self.seen: list[str] = []
        self._lock = threading.Lock()

    def at(self, op: str, action: Callable[[_link.Link], object], *, after: bool = False, times: int = 1) -> None:
        """Do `action` at the next `times` requests of that name."""
        self.plans += [(op, after, action)] * times

    def kill_at(self, op: str, *, after: bool = False, times: int = 1) -> None:
        """Kill the worker that gets the request, and go on once it is dead."""

        def end(link: _link.Link) -> None:
            pid = link.worker.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            eventually(lambda: not link.worker.alive())

        self.at(op, end, after=after, times=times)

    def _take(self, op: str, after: bool) -> Callable[[_link.Link], object] | None:
        with self._lock:
            for item in self.plans:
                if item[:2] == (op, after):
                    self.plans.remove(item)
                    return item[2]
        return None

    @contextlib.contextmanager
    def watching(self) -> Iterator[Moments]:
        """Look at all requests of supervisors and allocations from here on."""
        original = _link.Link.ask

        def ask(link: _link.Link, op: str, *arguments: Any, **fields: Any) -> Any:
            self.seen.append(op)
            before = self._take(op, False)
            if before is not None:
                before(link)
            answer = original(link, op, *arguments, **fields)
            later = self._take(op, True)
            if later is not None:
                later(link)
            return answer

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_link.Link, "ask", ask)
            yield self
