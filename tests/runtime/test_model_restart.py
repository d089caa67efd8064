"""What a restart leaves of durable memory and groups, against a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
from actions import eventually
from crash import PATIENT, kill, occupy, overwrite, send
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from placements import Placement

import atomr_native as an

SIZE = 32
LANES = ("a", "b", "c")


@pytest.fixture(scope="module")
def device(worker_process: Placement, nothing_left: None) -> Iterator[an.Device]:
    """Lend a device that may die as often as it likes."""
    with worker_process.system(allow_crash=True, standby="warm", **PATIENT) as system:
        yield system.device()


class Model:
    """One durable array: its values, and whether a dead worker was writing it."""

    def __init__(self, ref: an.GpuRef, value: float) -> None:
        self.ref = ref
        self.values = [value] * SIZE
        self.torn = False
        self.group: Group | None = None


class Group:
    """A durable group: what its last commit holds."""

    def __init__(self, made: an.DurableGroup, members: list[Model]) -> None:
        self.made = made
        self.members = members
        self.commits: list[tuple[int, list[list[float]]]] = []
        self.sent = 0
        self.dirty = False

    @property
    def last(self) -> tuple[int, list[list[float]]] | None:
        return self.commits[-1] if self.commits else None

    def go_back(self) -> None:
        assert self.last is not None
        for member, values in zip(self.members, self.last[1], strict=True):
            member.values = list(values)
            member.torn = False
        self.dirty = False


class Restarts(RuleBasedStateMachine):
    """Writes, commits and restores; kills the worker while it is idle, and while it is busy."""

    device: ClassVar[an.Device]

    def __init__(self) -> None:
        super().__init__()
        self.arrays: list[Model] = []
        self.groups: list[Group] = []
        self.volatile: list[tuple[an.GpuRef, float, int]] = []
        self.number = 0.0

    def next(self) -> float:
        self.number += 1.0
        return self.number

    def pick(self, index: int) -> Model:
        return self.arrays[index % len(self.arrays)]

    def wrote(self, model: Model) -> None:
        if model.group is not None:
            model.group.dirty = True

    @rule(durable=st.booleans())
    def put(self, durable: bool) -> None:
        value = self.next()
        ref = self.device.put(np.full(SIZE, value), durable=durable)
        if durable:
            self.arrays.append(Model(ref, value))
        else:
            self.volatile.append((ref, value, self.device.generation))

    @precondition(lambda self: self.arrays)
    @rule(index=st.integers(0, 99), lane=st.sampled_from(LANES))
    def fill(self, index: int, lane: str) -> None:
        model, value = self.pick(index), self.next()
        overwrite(self.device.lane(lane), model.ref, value)
        model.values, model.torn = [value] * SIZE, False
        self.wrote(model)

    @precondition(lambda self: self.arrays)
    @rule(index=st.integers(0, 99), lane=st.sampled_from(LANES))
    def write_half(self, index: int, lane: str) -> None:
        model, value = self.pick(index), self.next()
        if model.torn:
            with pytest.raises(an.GpuRefStale):
                send(self.device.lane(lane), model.ref, half=value)
            return
        send(self.device.lane(lane), model.ref, half=value)
        model.values[: SIZE // 2] = [value] * (SIZE // 2)
        self.wrote(model)

    @precondition(lambda self: self.arrays)
    @rule(index=st.integers(0, 99))
    def look(self, index: int) -> None:
        self.check(self.pick(index))

    @precondition(lambda self: self.arrays)
    @rule(index=st.integers(0, 99))
    def free(self, index: int) -> None:
        model = self.pick(index)
        if model.group is not None:
            self.groups.remove(model.group)
            for member in model.group.members:
                member.group = None
        model.ref.free()
        self.arrays.remove(model)

    @precondition(lambda self: any(not a.group and not a.torn for a in self.arrays))
    @rule(count=st.integers(1, 3), checksum=st.booleans())
    def group(self, count: int, checksum: bool) -> None:
        members = [a for a in self.arrays if a.group is None and not a.torn][:count]
        made = self.device.durable_group({str(i): m.ref for i, m in enumerate(members)}, checksum=checksum)
        group = Group(made, members)
        for member in members:
            member.group = group
        self.groups.append(group)

    @precondition(lambda self: self.groups)
    @rule(index=st.integers(0, 99))
    def commit(self, index: int) -> None:
        group = self.groups[index % len(self.groups)]
        tag = int(self.next())
        if any(m.torn for m in group.members):
            with pytest.raises(an.GpuRefStale):
                group.made.commit(tag)
            return
        group.sent += 1
        group.made.commit(tag)
        group.commits.append((tag, [list(m.values) for m in group.members]))
        group.dirty = False

    @precondition(lambda self: any(g.commits for g in self.groups))
    @rule(index=st.integers(0, 99))
    def restore(self, index: int) -> None:
        groups = [g for g in self.groups if g.commits]
        group = groups[index % len(groups)]
        group.made.restore()
        group.go_back()
        group.dirty = True  # a write like any other

    def drain(self) -> None:
        for name in ("memory", *LANES):
            actor = self.device._memory if name == "memory" else self.device.lane(name)
            lane = actor.lane
            core = self.device._core
            assert core.wait_ticket(lane, core.lane_stats(lane)["sent"], 60)

    @rule()
    def kill_when_idle(self) -> None:
        self.drain()
        self.die()
        self.acknowledge()
        self.check_all()

    @precondition(lambda self: any(not a.torn for a in self.arrays))
    @rule(index=st.integers(0, 99), other=st.integers(0, 99))
    def kill_when_busy(self, index: int, other: int) -> None:
        """One message is running and writes; others are queued."""
        self.drain()
        whole = [a for a in self.arrays if not a.torn]
        model, second = whole[index % len(whole)], whole[other % len(whole)]
        running = occupy(self.device.lane("a"), model.ref, half=-1.0)
        value = self.next()
        queued = send(self.device.lane("a"), second.ref, half=value)
        self.wrote(model)
        self.wrote(second)
        self.die()
        with pytest.raises(an.DeviceFault):
            running.result(60)
        self.acknowledge()
        if not (model.group and model.group.commits):
            model.torn = True
            model.values[: SIZE // 2] = [-1.0] * (SIZE // 2)
        back = second.group is not None and second.group.commits
        reason = "rolled back" if back else "torn" if second is model else ""
        if reason:
            with pytest.raises(an.GpuRefStale) as caught:
                queued.result(60)
            assert caught.value.reason == reason
        else:
            queued.result(60)
            second.values[: SIZE // 2] = [value] * (SIZE // 2)
        self.check_all()

    @precondition(lambda self: any(a.torn for a in self.arrays))
    @rule()
    def accept(self) -> None:
        model = next(a for a in self.arrays if a.torn)
        model.ref.clear_error()
        model.torn = False
        self.wrote(model)

    def acknowledge(self) -> None:
        """Groups that went back are refused until the program says that it knows."""
        for group in self.groups:
            if group.commits and group.dirty:
                with pytest.raises(an.GpuRefStale) as caught:
                    group.members[0].ref.numpy()
                assert caught.value.reason == "rolled back"
                group.made.restore()
                group.go_back()
                group.dirty = True  # a write like any other

    def die(self) -> None:
        generation = self.device.generation
        kill(self.device)
        eventually(lambda: self.device.generation > generation)
        self.device.wait_ready(60)

    def check(self, model: Model) -> None:
        if model.torn:
            with pytest.raises(an.GpuRefStale) as caught:
                model.ref.numpy()
            assert caught.value.reason == "torn"
        else:
            assert model.ref.numpy().tolist() == model.values

    def check_all(self) -> None:
        for model in self.arrays:
            self.check(model)
        for group in self.groups:
            assert group.made.sequence == group.sent
            assert group.made.tag == (group.last[0] if group.last else 0)
        for ref, value, generation in self.volatile:
            if generation == self.device.generation:
                assert (ref.numpy() == value).all()
            else:
                assert not ref.valid
                with pytest.raises(an.GpuRefStale):
                    ref.fill(0)

    def teardown(self) -> None:
        self.drain()
        self.check_all()


def test_restarts(device: an.Device, worker_process: Placement) -> None:
    machine: Any = type("Machine", (Restarts,), {"device": device})
    chosen = settings(max_examples=2 if worker_process.fake else 3, stateful_step_count=20)
    run_state_machine_as_test(machine, settings=chosen)  # type: ignore[no-untyped-call]
    machine.device = None
