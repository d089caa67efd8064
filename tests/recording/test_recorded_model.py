"""Random programs with control flow, recorded and sent one by one, have the same bits, with messages in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from crash import PATIENT, await_generation
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from placements import Placement

import atomr_native as an

PARAMETERS, BOUND, SIZE = 2, 3, 8
_places = st.integers(0, PARAMETERS + BOUND + 1)
_plain = st.one_of(
    st.tuples(st.just("add"), _places, _places, _places),
    st.tuples(st.just("scale"), _places, _places, st.booleans()),
    st.tuples(st.just("fill"), _places, st.booleans()),
    st.tuples(st.just("copy part"), _places, _places),
    st.tuples(st.just("new"), _places),
    st.tuples(st.just("matmul"), _places, _places),
)
_bodies = st.lists(_plain, min_size=1, max_size=3)
_nested = st.one_of(
    st.tuples(st.just("if"), _places, _bodies, st.lists(_plain, max_size=2)),
    st.tuples(st.just("while"), st.integers(0, 3), _bodies),
    st.tuples(st.just("switch"), _places, st.lists(_bodies, min_size=1, max_size=3)),
)
_outer = st.one_of(
    st.tuples(st.just("while"), st.integers(0, 2), st.lists(_plain | _nested, min_size=1, max_size=3)),
    st.tuples(st.just("if"), _places, st.lists(_plain | _nested, min_size=1, max_size=3), _bodies),
)
_steps = _plain | _plain | _nested | _outer
_between = st.one_of(
    st.tuples(st.just("replay"), st.integers(0, PARAMETERS), st.integers(-2, 2)),
    st.tuples(st.just("write"), st.integers(0, BOUND - 1), st.integers(-2, 2)),
    st.tuples(st.just("commit")),
    st.tuples(st.just("read"), st.integers(0, BOUND - 1)),
    st.tuples(st.just("free")),
    st.tuples(st.just("die")),
)


class _Eager:
    """Control flow of messages that are sent one by one, by reading the flags."""

    def if_(self, flag: an.GpuRef, body: Callable[[], None], other: Callable[[], None]) -> None:
        if flag.numpy():
            body()
        else:
            other()

    def while_(self, flag: an.GpuRef, body: Callable[[], None]) -> None:
        while flag.numpy():
            body()

    def switch(self, index: an.GpuRef, bodies: list[Callable[[], None]]) -> None:
        chosen = int(index.numpy())
        if 0 <= chosen < len(bodies):
            bodies[chosen]()


class _Recorded:
    """Control flow of the recording of a device."""

    def __init__(self, recording: an.Recording) -> None:
        self.recording = recording

    def if_(self, flag: an.GpuRef, body: Callable[[], None], other: Callable[[], None]) -> None:
        with self.recording.if_(flag):
            body()
        with self.recording.else_():
            other()

    def while_(self, flag: an.GpuRef, body: Callable[[], None]) -> None:
        with self.recording.while_(flag, limit=5):
            body()

    def switch(self, index: an.GpuRef, bodies: list[Callable[[], None]]) -> None:
        with self.recording.switch(index, len(bodies)) as cases:
            for number, body in enumerate(bodies):
                with cases[number]:
                    body()


def _run(
    device: an.Device,
    program: list[Any],
    arrays: list[an.GpuRef],
    number: Any,
    flow: _Eager | _Recorded,
    outer: tuple[an.GpuRef, ...] = (),
) -> None:
    """Send the messages of a program; places beyond the arrays are those that it, or what it is in, has made."""
    made: list[an.GpuRef] = [*outer]

    def inside(body: list[Any]) -> Callable[[], None]:
        return lambda: _run(device, body, arrays, number, flow, tuple(made))

    def at(place: int) -> an.GpuRef:
        every = [*arrays, *made]
        return every[place % len(every)]

    def clipped(z: an.GpuRef) -> an.GpuRef:  # so that sums are exact in any order
        found: an.GpuRef = device.elementwise.run("out = minimum(maximum(z, -8.0), 8.0)", z=z)
        return found

    for kind, *rest in program:
        if kind == "add":
            x, y, out = map(at, rest)
            device.copy(clipped(x + y), out=out)
        elif kind == "scale":
            x, out, named = at(rest[0]), at(rest[1]), rest[2]
            z = device.elementwise.run("out = x * n - x", x=x, n=number if named else 2.0)
            device.copy(clipped(z), out=out)
        elif kind == "fill":
            at(rest[0]).fill(number if rest[1] else 1.0)
        elif kind == "copy part":
            z = at(rest[0]) + 0.0
            device.copy(z[: SIZE // 2, 2:], out=at(rest[1])[SIZE // 2 :, : SIZE - 2])
        elif kind == "if":
            flow.if_(device.elementwise.run("out = x > 0.0", x=at(rest[0])[0, 1]), inside(rest[1]), inside(rest[2]))
        elif kind == "switch":
            index = device.empty((), dtype="int32")
            device.copy(at(rest[0])[1, 1].astype("int32"), out=index)
            flow.switch(index, [inside(body) for body in rest[1]])
        elif kind == "while":
            _count_down(device, flow, rest[0], inside(rest[1]))
        elif kind == "matmul":
            made.append(clipped(device.blas_lt.matmul(at(rest[0]), at(rest[1]))))
        else:
            made.append(at(rest[0]) * 1.0)


def _count_down(device: an.Device, flow: _Eager | _Recorded, rounds: int, body: Callable[[], None]) -> None:
    left = device.full((), rounds, dtype="int32")
    more = device.elementwise.run("out = n > 0", n=left)

    def one_round() -> None:
        body()
        device.elementwise.run("out = n - 1", n=left, out=left)
        device.elementwise.run("out = n > 0", n=left, out=more)

    flow.while_(more, one_round)


class _Twin:
    """The same arrays twice: for replays, and for messages sent one by one."""

    def __init__(self, device: an.Device) -> None:
        shape = (SIZE, SIZE)
        data = [np.random.default_rng(i).integers(-2, 3, shape).astype("float32") for i in range(BOUND)]
        self.device = device
        self.recorded, self.eager = ([device.put(one, durable=True) for one in data] for _ in range(2))
        self.groups = [device.durable_group({str(i): ref for i, ref in enumerate(side)}) for side in self.sides]
        self.parameters = [device.put(one, durable=True) for one in data[:PARAMETERS]]
        self.commit()

    @property
    def sides(self) -> tuple[list[an.GpuRef], list[an.GpuRef]]:
        return self.recorded, self.eager

    def commit(self) -> None:
        for group in self.groups:
            group.commit()

    def compare(self, which: int) -> None:
        one, other = (side[which].numpy() for side in self.sides)
        np.testing.assert_array_equal(one, other)

    def die(self) -> None:
        """Have all messages done, so that both sides lose nothing, and end the worker."""
        self.commit()
        for which in range(BOUND):
            self.compare(which)
        generation = self.device.generation
        self.device.inject_fault("segfault")
        await_generation(self.device, generation + 1)


@pytest.fixture(scope="module")
def killed(worker_process: Placement) -> Any:
    with worker_process.system(standby="warm", allow_crash=True, max_restarts=10_000, **PATIENT) as system:
        yield system.device()


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=st.lists(_steps, min_size=1, max_size=8), events=st.lists(_between, min_size=2, max_size=10))
def test_random_programs(killed: an.Device, program: list[Any], events: list[Any]) -> None:
    device = killed
    twin = _Twin(device)

    @device.graph
    def step(x: an.GpuRef, y: an.GpuRef, n: float) -> None:
        _run(device, program, [x, y, *twin.recorded], n, _Recorded(device.recording))
        y.fill(n)  # a recorded number must have a use

    plan = step.plan(*twin.parameters, 1.0)
    plan.wait()  # a death while it is built would be held against it
    replies = []
    given_arrays: list[tuple[an.GpuRef, ...]] = []
    deaths = 0
    for event in (*events, ("replay", 0, 1), ("replay", 1, -1)):
        if event[0] == "replay":
            pair = [[device.copy(ref, durable=True) for ref in twin.parameters] for _ in range(2)]
            n = float(event[2])
            if event[1]:
                replies.append(plan.ask(*pair[0], n=n))
            else:
                plan.tell(*pair[0], n=n)
            _run(device, program, [*pair[1], *twin.eager], n, _Eager())
            pair[1][1].fill(n)
            for one, other in zip(*pair, strict=True):
                np.testing.assert_array_equal(one.numpy(), other.numpy())
            given_arrays.append(tuple(pair[0]))
        elif event[0] == "write":
            for side in twin.sides:
                side[event[1]].fill(float(event[2]))
        elif event[0] == "commit":
            twin.commit()
        elif event[0] == "read":
            twin.compare(event[1])
        elif event[0] == "free" and given_arrays:
            gone = given_arrays.pop()
            gone[0].free()
            with pytest.raises(an.GpuRefStale):
                plan.tell(*gone)
        elif event[0] == "die" and not deaths:
            deaths += 1
            twin.die()
    for which in range(BOUND):
        twin.compare(which)
    for reply in replies:
        reply.result(60)
