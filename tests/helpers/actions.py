"""Messages that wait or fail on demand, for tests: they need ``System(allow_crash=True)``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from atomr_native import GpuRef, Plan, PlanSpec
from atomr_native.plans.spec import OVERWRITE, READ, WRITE, OperandSpec

FULL = WRITE | OVERWRITE


class Gate:
    """A message that occupies a lane until `open` is called; a context manager that opens at its end."""

    def __init__(self, actor: Any) -> None:
        self.flag = actor.device.host_array((1,), "uint8")
        operand = OperandSpec("flag", "uint8", (1,), (1,), READ)
        plan = actor._plan(PlanSpec("test.wait", (operand,)))
        self.reply = plan.ask(actor.device._memory.shared(self.flag))

    def open(self) -> None:
        self.flag[0] = 1

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self.open()


def operand(name: str, ref: GpuRef, access: int) -> OperandSpec:
    return OperandSpec(name, ref.layout.dtype_name, ref.shape, ref.strides, access)


def failing_plan(
    actor: Any, out: GpuRef, *, error: str = "ValueError", text: str = "boom", access: int = FULL, **attributes: Any
) -> Plan:
    """A plan with one operand ``out`` that fails as it is told; see ``worker/faults.py``."""
    given = {"error": error, "text": text, **attributes}
    plan: Plan = actor._plan(PlanSpec("test.fail", (operand("out", out, access),), (), tuple(given.items())))
    return plan


def fail(actor: Any, out: GpuRef, **attributes: Any) -> Any:
    """Send a message that fails to write `out`; its reply."""
    return failing_plan(actor, out, **attributes).ask(out=out)


def poison(actor: Any, out: GpuRef, **attributes: Any) -> GpuRef:
    """Send a message that fails to write `out`, wait for it, and return `out`."""
    reply = fail(actor, out, **attributes)
    assert reply.wait(30)
    assert reply.exception() is not None
    return out


def building_plan(actor: Any, path: object, out: GpuRef) -> Plan:
    """A plan whose build goes on until a file exists; it does nothing."""
    attributes = (("path", str(path)),)
    plan: Plan = actor._plan(PlanSpec("test.wait", (operand("out", out, READ),), (), attributes))
    return plan


def failing_build(actor: Any, out: GpuRef, error: str = "Unsupported", text: str = "no such thing") -> Plan:
    """A plan that cannot be built."""
    return failing_plan(actor, out, error=error, text=text, when="build")


def eventually(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait until a condition holds that another thread or process brings about."""
    end, pause = time.monotonic() + seconds, 0.0005
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(pause)
        pause = min(2 * pause, 0.01)


def bits(array: np.ndarray[Any, Any]) -> bytes:
    """Bytes of an array in row-major order: equality of them is equality bit for bit."""
    return np.ascontiguousarray(array).tobytes()
