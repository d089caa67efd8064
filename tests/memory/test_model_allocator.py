"""Allocation against a model: no two allocations share a byte unless order keeps them apart, and the books are true."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
from actions import eventually
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from placements import Placement

import atomr_native as an

LIMIT = 6 << 20
POOLS = {"volatile": 0, "durable": 1}
UNIT = 256


def rounded(nbytes: int) -> int:
    return max(UNIT, -(-nbytes // UNIT) * UNIT)


@pytest.fixture(scope="module")
def small(placement: Placement, nothing_left: None) -> Iterator[an.Device]:
    """Lend a device with little memory."""
    with placement.system(memory_limit=LIMIT, standby="off") as system:
        yield system.device()


def _holds(array: np.ndarray[Any, Any], value: int | None) -> bool:
    return bool((array == value).all())


class Held:
    """One allocation of the model."""

    def __init__(self, ref: an.GpuRef) -> None:
        self.ref: an.GpuRef | None = ref
        a = ref.allocation
        self.span = (a.segment, a.offset, a.offset + rounded(ref.nbytes))
        self.durable = ref.durable
        self.value: int | None = None
        self.leases: list[Any] = []


class Allocator(RuleBasedStateMachine):
    """Allocates, writes, reads, frees and lends."""

    device: ClassVar[an.Device]
    live = Bundle("live")
    lent = Bundle("lent")

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Held] = []
        self.counter = 0
        self.names: set[tuple[int, int]] = set()
        self.before = self.device.stats()["memory"]["pools"]

    @rule(target=live, size=st.one_of(st.integers(0, 2000), st.integers(0, 2 << 20)), durable=st.booleans())
    def allocate(self, size: int, durable: bool) -> Any:
        try:
            ref = self.device.empty(size, "uint8", durable=durable)
        except an.OutOfMemory as error:
            self.check_refusal(error, size)
            return multiple()
        name = (ref.allocation.slot, ref.allocation.generation)
        assert name not in self.names
        self.names.add(name)
        assert ref.allocation.offset % UNIT == 0
        found = Held(ref)
        self.held.append(found)
        return found

    def check_refusal(self, error: an.OutOfMemory, size: int) -> None:
        assert error.requested == size
        assert error.limit == LIMIT
        assert self.held  # else there is room for it

    @rule(held=live)
    def write(self, held: Held) -> None:
        if held.ref is not None:
            self.counter = self.counter % 255 + 1
            held.value = self.counter
            held.ref.fill(held.value)

    @rule(held=live)
    def write_a_part(self, held: Held) -> None:
        if held.ref is not None and held.value is not None and held.ref.size:
            held.ref[held.ref.size // 3 :].fill(held.value)  # the same: what is there must be there still

    @rule(held=live)
    def read(self, held: Held) -> None:
        if held.ref is not None and held.value is not None:
            assert (held.ref.numpy() == held.value).all()

    @rule(held=consumes(live))
    def free(self, held: Held) -> None:
        self.let_go(held)

    def let_go(self, held: Held) -> None:
        if held.ref is None:
            return
        ref, held.ref = held.ref, None
        ref.free()
        ref.free()  # again is nothing
        with pytest.raises(an.GpuRefStale, match="freed"):
            ref.fill(0)
        if not held.leases:
            self.held.remove(held)

    @rule(target=lent, held=live)
    def lend(self, held: Held) -> Any:
        if held.ref is None or held.value is None or held.ref.size == 0 or self.device.name != "host":
            return multiple()  # NumPy shows only memory that is mapped here
        array = np.from_dlpack(held.ref)
        assert (array == held.value).all()
        held.leases.append(array)
        return held

    @rule(held=consumes(lent))
    def give_back(self, held: Held) -> None:
        if not held.leases:
            return
        array = held.leases.pop()
        if held.ref is None:  # freed, and nobody else's while it is lent; the last fill may still be on its way
            eventually(partial(_holds, array, held.value))
        del array
        if held.ref is None and not held.leases:
            self.held.remove(held)

    @rule()
    def trim(self) -> None:
        assert self.device.trim() >= 0

    @invariant()
    def nothing_overlaps(self) -> None:
        spans = sorted(held.span for held in self.held)
        for (segment, _, end), (next_segment, start, _) in itertools.pairwise(spans):
            assert segment != next_segment or end <= start

    @invariant()
    def the_books_are_true(self) -> None:
        memory = self.device.stats()["memory"]
        for name, number in POOLS.items():
            pool, before = memory["pools"][name], self.before[name]
            mine = [held for held in self.held if held.durable == bool(number)]
            assert pool["blocks"] - before["blocks"] == len(mine)
            assert pool["in_use"] - before["in_use"] == sum(held.span[2] - held.span[1] for held in mine)
            assert pool["total"] == pool["in_use"] + pool["free"] + pool["deferred"]
            assert pool["largest"] <= pool["free"]
        assert memory["reserved"] == sum(memory["pools"][name]["total"] for name in POOLS)
        assert memory["reserved"] <= LIMIT

    def teardown(self) -> None:
        for held in list(self.held):
            self.let_go(held)
            held.leases.clear()
        self.held.clear()
        self.nothing_is_held()

    def nothing_is_held(self) -> None:
        for name in POOLS:
            assert self.device.stats()["memory"]["pools"][name]["in_use"] == self.before[name]["in_use"]


def test_allocator(small: an.Device, placement: Placement) -> None:
    machine: Any = type("Machine", (Allocator,), {"device": small})
    chosen = settings(max_examples=6 if placement.fake else 25, stateful_step_count=40)
    run_state_machine_as_test(machine, settings=chosen)  # type: ignore[no-untyped-call]
    assert small.stats()["memory"]["pools"]["durable"]["in_use"] == 0
    machine.device = None


def test_a_loop_reuses_its_memory(small: an.Device) -> None:
    """An eager loop needs no more than a few of its arrays, however far ahead of the device it runs."""
    x = small.put(np.arange(100_000))
    before = small.stats()["memory"]["reserved"]
    for _ in range(300):
        y = small.elementwise.run("a + 1", a=x)
        z = small.elementwise.run("a * 2", a=y)
        del y, z
    assert small.stats()["memory"]["reserved"] <= max(before, LIMIT)
    assert (x.numpy() == np.arange(100_000)).all()
