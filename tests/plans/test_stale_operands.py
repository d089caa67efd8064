"""Stale handles among the arrays of a message: refused as stale, whatever lies in their slots now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from actions import eventually
from crash import PATIENT, restart

import atomr_native as an
from atomr_native.libraries.elementwise.request import ElementwiseRequest

Make = Callable[..., an.System]

SHAPE = (64,)


def in_its_slot(device: an.Device, old: an.GpuRef) -> an.GpuRef:
    """Free an array; return one that has its slot now, full of ones."""
    slot = old.allocation.slot
    old.free()
    for _ in range(3000):
        found = device.empty(SHAPE, "float64")
        if found.allocation.slot == slot:
            return found.fill(1.0)
    pytest.fail("the slot was never used again")


def uses(device: an.Device, old: an.GpuRef, live: an.GpuRef) -> dict[str, Callable[[], object]]:
    """Return calls that give a stale handle beside a live array."""
    plan = device.elementwise.plan("a + 1", a=live, out=device.empty(SHAPE, "float64"))
    part = device.elementwise.plan("a + b", a=live[1:], b=live[1:], out=device.empty((63,), "float64"))
    return {
        "output": lambda: device.elementwise.run("a + 1", a=live, out=old),
        "input": lambda: device.elementwise.run("a + 1", a=old, out=live),
        "parts": lambda: device.elementwise.run("a + 1", a=live[1:], out=old[:-1]),
        "only": lambda: device.elementwise.run("a + 1", a=old, out=old),
        "own parts": lambda: device.elementwise.run("a + 1", a=old[1:], out=old[:-1]),
        "wrong shape": lambda: device.elementwise.run("a + 1", a=live, out=old[:5]),
        "plan": lambda: plan.tell(live, out=old),
        "plan, own": lambda: part.tell(old[1:], live[1:], out=old[:-1]),
        "reduce": lambda: device.elementwise.reduce("sum", live.reshape(8, 8), 0, out=old[:8]),
        "matmul": lambda: device.blas_lt.matmul(live.reshape(8, 8), live.reshape(8, 8), out=old.reshape(8, 8)),
        "copy": lambda: device.copy(live, old),
        "copy, parts": lambda: device.copy(live[1:], old[:-1]),
        "copy, own": lambda: device.copy(old, old),
        "put": lambda: device.put(np.zeros(SHAPE), out=old),
        "put, wrong shape": lambda: device.put(np.zeros(3), out=old),
        "get, wrong shape": lambda: device.get(old, np.zeros(3)),
        "asarray": lambda: device.asarray(old),
        "empty": lambda: device.copy(old[:0]),
    }


NAMES = (
    "output", "input", "parts", "only", "own parts", "wrong shape", "plan", "plan, own", "reduce", "matmul", "copy",
    "copy, parts", "copy, own", "put", "put, wrong shape", "get, wrong shape", "asarray", "empty",
)  # fmt: skip


def check_refused(device: an.Device, old: an.GpuRef, live: an.GpuRef, reason: str) -> None:
    calls = uses(device, old, live)
    assert tuple(calls) == NAMES
    for name, call in calls.items():
        with pytest.raises(an.GpuRefStale) as caught:
            call()
        assert caught.value.reason == reason, name
    assert (live.numpy() == 1).all()


def test_a_freed_handle_is_stale_beside_what_has_its_slot(device: an.Device) -> None:
    old = device.empty(SHAPE, "float64")
    live = in_its_slot(device, old)
    assert live.allocation.slot == old.allocation.slot
    assert live.allocation.space != old.allocation.space
    check_refused(device, old, live, "freed")


def test_a_structure_that_is_known_refuses_a_stale_handle(device: an.Device) -> None:
    """The template of a call in place does not stand for a call with a stale output of the same layout."""
    run = device.elementwise.run
    w = device.full(SHAPE, 1.0, "float64")
    run("a + 1", a=w, out=w)
    run("a + 1", a=w, out=w[:])
    run("a + 1", a=w, out=device.empty(SHAPE, "float64"))
    assert (w.numpy() == 3).all()
    old = device.empty(SHAPE, "float64")
    live = in_its_slot(device, old)
    with pytest.raises(an.GpuRefStale):
        run("a + 1", a=live, out=old)
    with pytest.raises(an.GpuRefStale):
        run("a + 1", a=old, out=live)
    assert (live.numpy() == 1).all()


def test_views_of_one_stale_array_are_stale(device: an.Device) -> None:
    """The operand that stands for both is the one that a message checks; here neither is good."""
    w = device.full(SHAPE, 1.0, "float64")
    device.elementwise.run("a + 1", a=w, out=w[:])
    view = w[:]
    w.free()
    with pytest.raises(an.GpuRefStale, match="freed"):
        device.elementwise.run("a + 1", a=view, out=w)


def test_a_request_of_stale_parts_is_stale(device: an.Device) -> None:
    old = device.empty(SHAPE, "float64")
    old.free()
    with pytest.raises(an.GpuRefStale, match="freed"):
        ElementwiseRequest(program="a + 1", operands={"a": old[1:]}, out=old[:-1])


def test_imports_that_share_bytes_are_each_checked(make_system: Make) -> None:
    """Two allocations may show the same bytes; a message that names only one of them refuses the other when stale."""
    device = make_system(isolation="thread").device()
    memory = np.zeros(150)
    first, second = device.asarray(memory[:100], copy=False), device.asarray(memory[50:], copy=False)
    x, y = first[50:], second[:50]
    assert x.allocation.slot != y.allocation.slot
    for _ in range(2):
        device.elementwise.run("a + 1", a=x, out=y)
    assert (x.numpy() == 2).all()
    second.free()
    with pytest.raises(an.GpuRefStale, match="freed"):
        device.elementwise.run("a + 1", a=x, out=y)
    assert (x.numpy() == 2).all()


@pytest.mark.host_only
@pytest.mark.parametrize("shape", [SHAPE, (0,)])
def test_exports_of_a_stale_handle(device: an.Device, shape: tuple[int, ...]) -> None:
    old = device.empty(shape)
    old.free()
    for use in (
        lambda: np.from_dlpack(old), lambda: old.__array__(copy=False), lambda: old.lend().__enter__(),
        lambda: old.__dlpack__(), lambda: old.numpy(),
    ):  # fmt: skip
        with pytest.raises(an.GpuRefStale, match="freed"):
            use()


@pytest.mark.host_only
def test_exports_of_memory_that_was_given_back(make_system: Make, placement: Any) -> None:
    """Its segment is not mapped any more: the handle is stale all the same."""
    device = make_system().device()
    old = device.empty((48 << 20,), "uint8")
    address = old.allocation.address
    old.free()
    assert address
    eventually(lambda: (device.trim(), old.allocation.address)[1] == 0)
    for use in (lambda: np.from_dlpack(old), lambda: old.__array__(copy=False), lambda: old.lend().__enter__()):
        with pytest.raises(an.GpuRefStale, match="freed"):
            use()


def test_exports_after_the_end_say_that_the_device_is_closed(make_system: Make, placement: Any) -> None:
    system = make_system()
    ref = system.device().put(np.zeros(3))
    system.close()
    exports: list[Callable[[], object]] = [lambda: ref.__array__(copy=False), ref.__dlpack__, ref.lend().__enter__]
    if ref.device.kind == "cuda":
        exports = [lambda: ref.lend().__enter__()]
    for use in exports:
        with pytest.raises((an.GpuRefStale, an.ActorStopped), match="closed"):
            use()


def test_a_handle_from_before_a_restart_is_stale(make_system: Make, worker_process: Any) -> None:
    device = make_system(**PATIENT).device()
    old = [device.full(SHAPE, 7.0, "float64") for _ in range(4)]
    slots = {ref.allocation.slot: ref for ref in old}
    restart(device)
    live = None
    for _ in range(3000):
        live = device.empty(SHAPE, "float64")
        if live.allocation.slot in slots:
            break
    else:
        pytest.fail("no slot was used again")
    live.fill(1.0)
    check_refused(device, slots[live.allocation.slot], live, "device restarted")


def test_members_of_a_group_are_live(device: an.Device) -> None:
    old = device.empty(SHAPE, durable=True)
    old.free()
    with pytest.raises(an.GpuRefStale, match="freed"):
        device.durable_group({"old": old})
