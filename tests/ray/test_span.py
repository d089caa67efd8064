"""The plans of one process's ranks, and its end, for which workers wait until all its messages are over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from actions import Gate, eventually

import atomr_native as an
from atomr_native.libraries.collective.attributes import Step
from atomr_native.ray import span as module
from atomr_native.ray.span import Part, Span

pytestmark = pytest.mark.plain


@pytest.fixture
def device(make_system: Any) -> an.Device:
    found: an.Device = make_system().device("host")
    return found


def opened(device: an.Device) -> Span:
    return Span(device.system, ["node0/host"], {0: device}, lambda: None)


def summed(span: Span, x: an.GpuRef) -> Part:
    """Return the message in which the only rank adds up its array."""
    step = Step("all_reduce", "float32", x.size, op="sum")
    return Part(span.plan(0, "all_reduce", step, x, x, scaled=False), (x, x), ())


@pytest.mark.parametrize("runs", [True, False])
def test_workers_forget_it_when_no_message_runs(device: an.Device, monkeypatch: pytest.MonkeyPatch, runs: bool) -> None:
    """Also of a message whose plan has been forgotten; nothing is waited for here."""
    monkeypatch.setattr(module, "_PLANS", 1)
    monkeypatch.setattr(module, "_CLOSE_S", 0.0)
    span = opened(device)
    over: list[bool] = []
    monkeypatch.setattr(span._registry, "forget", lambda *_, **options: over.append(options["over"]))
    x, y = device.put(np.ones(8, "float32")), device.put(np.ones(9, "float32"))
    with Gate(device.elementwise) as gate:
        device.elementwise.run("x + 1", x=x, out=x)
        reply = span.send(span.next_call(), 0, summed(span, x))
        summed(span, y)
        if not runs:
            gate.open()
            reply.result(30)
        span.close()
        eventually(lambda: over)
    assert over == [not runs]
    assert x.numpy().tolist() == [2.0] * 8


def test_the_plan_that_was_not_used_longest_is_forgotten(device: an.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PLANS", 2)
    span = opened(device)
    arrays = [device.put(np.ones(size, "float32")) for size in (1, 2, 3)]
    first, second = (summed(span, x).plan for x in arrays[:2])
    assert summed(span, arrays[0]).plan is first
    summed(span, arrays[2])
    assert summed(span, arrays[0]).plan is first
    assert summed(span, arrays[1]).plan is not second
    span.close()
