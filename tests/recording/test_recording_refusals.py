"""A recording refuses, by typed errors and at once, everything that it cannot hold, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from interrupts import at_each_check

import atomr_native as an


def _refused(
    device: an.Device, match: str, inside: Callable[[an.Recording], object], error: type = an.InvalidRequest
) -> None:
    with pytest.raises(error, match=match), device.record() as recording:
        inside(recording)
    device.full(2, 1.0).wait()  # the thread sends again


def test_waiting_and_reading(device: an.Device) -> None:
    x, plan = device.zeros(4), device.lane("a").noop()
    x.wait()
    reply = plan.ask()
    host = device.host_array((4,))
    for use in (
        x.wait, x.numpy, lambda: device.get(x), lambda: device.get(x, out=host), lambda: float(x[0]), reply.result,
        lambda: device.put(host), lambda: device.get_into(x, host).result(),
        lambda: np.asarray(x), lambda: asyncio.run(_await(x)), lambda: x.clear_error(),
        lambda: x.__dlpack__(), lambda: x.lend(),
    ):  # fmt: skip
        _refused(device, "recording", lambda _, use=use: use())


async def _await(x: an.GpuRef) -> None:
    await x


def test_arrays_of_the_host(device: an.Device) -> None:
    x = device.zeros(4)
    for use in (
        lambda: device.put(np.ones(4)), lambda: device.put(np.ones(4, "float32"), out=x),
        lambda: device.put([1, 2]), lambda: device.put(np.arange(4, dtype="float64"), dtype="float32"),
        lambda: device.put(np.ones(3 << 20, "float32")),
    ):  # fmt: skip
        _refused(device, "from or to the host", lambda _, use=use: use())


def test_commits_and_restores(device: an.Device) -> None:
    x = device.zeros(4, durable=True)
    group = device.durable_group({"x": x})
    group.commit().result(60)
    _refused(device, "a commit inside a recording", lambda _: group.commit())
    _refused(device, "a restore inside a recording", lambda _: group.restore())
    _refused(device, "a durable group inside a recording", lambda _: device.durable_group({"x": x}))


def test_recordings_in_recordings(device: an.Device) -> None:
    a = device.zeros(4)
    _refused(device, "inside a recording of the same thread", lambda _: device.record().__enter__())
    with device.record() as recording:
        recording.operand("x", a).fill(1)
    with pytest.raises(an.InvalidRequest, match="one block"), recording:
        pass
    plan = recording.plan
    plan.tell(x=a)


def test_numbers(device: an.Device) -> None:
    a = device.zeros(4)

    def number(recording: an.Recording) -> Any:
        return recording.scalar("rate", 0.5)

    for use in (
        lambda n: n * 2, lambda n: 1 - n, lambda n: n < 1, float, lambda n: -n, bool, lambda n: f"{n}",
        lambda n: n == 1,        lambda n: np.float32(n), lambda n: np.ones(2) * n,
    ):  # fmt: skip
        _refused(device, "a recorded number, <recorded number 'rate'>", lambda g, use=use: use(number(g)))
    _refused(device, "sent by no message", lambda g: (number(g), a.fill(1)))
    _refused(device, "recorded number of its kind", lambda g: device.zeros(4, "int32").fill(number(g)))
    _refused(device, "name 'rate'", lambda g: (number(g), number(g)))
    for wrong in ("", "a b", "retry", 3):
        _refused(device, "name ", lambda g, wrong=wrong: g.scalar(wrong, 1.0))
    for value in ("1", None, 1j, True):
        _refused(device, "allowed: a float or an int", lambda g, value=value: g.scalar("n", value))
    with device.record() as recording:
        kept = number(recording)
        a.fill(kept)
    with pytest.raises(an.InvalidRequest, match="recorded number 'rate'"):
        a.fill(kept)
    _refused(device, "another recording", lambda _: a.fill(kept))


def test_parameters(device: an.Device) -> None:
    a, b = device.zeros(4), device.zeros(4)
    _refused(device, "allowed: a GpuRef", lambda g: g.operand("x", np.zeros(4)))
    _refused(device, "made inside the recording", lambda g: g.operand("x", device.zeros(4)))
    _refused(device, "name 'x'", lambda g: (g.operand("x", a), g.operand("x", b)))
    _refused(device, "overlaps", lambda g: device.copy(g.operand("x", a), out=g.operand("y", a).fill(1)))
    _refused(device, "overlaps", lambda g: (g.operand("x", a).fill(1), device.copy(a[:2], out=b[:2])))
    a.free()
    _refused(device, "freed", lambda g: g.operand("x", a), an.GpuRefStale)
    _refused(device, "freed", lambda g: device.copy(a, out=b), an.GpuRefStale)
    with device.record() as recording:
        b.fill(2)
    with pytest.raises(an.InvalidRequest, match="over"):
        recording.operand("z", b)


def test_nothing_recorded(device: an.Device) -> None:
    _refused(device, "nothing was recorded", lambda _: None)
    recording = device.record()
    with pytest.raises(an.InvalidRequest, match="not begun"):
        recording.operand("x", device.zeros(4))
    with pytest.raises(an.InvalidRequest, match="once its block has ended"):
        _ = recording.plan


def test_too_many_arrays(device: an.Device) -> None:
    arrays = [device.zeros(1) for _ in range(4097)]
    _refused(device, "0 parameters and 4097 other arrays; allowed: 240 and 4096", lambda _: [a.fill(1) for a in arrays])


def test_replays(device: an.Device) -> None:
    a, b, w = device.zeros(4), device.ones(4), device.ones(4)

    @device.graph
    def add(x: an.GpuRef, out: an.GpuRef, *, n: float) -> None:
        device.elementwise.run("out = x + n * w", x=x, w=w, n=n, out=out)

    plan = add.plan(b, a, n=1.0)
    refused: tuple[tuple[str, Callable[[], object]], ...] = (
        ("this plan takes", lambda: plan.tell(b, out=device.zeros(5), n=1.0)),
        ("is written and overlaps 'bound", lambda: plan.tell(b, out=w)),
        ("is written and overlaps 'x'", lambda: plan.tell(a, out=a)),
        ("operand 'out' is missing; this plan takes x, out", lambda: plan.tell(b)),
        ("3 operands given; this plan takes 2: x, out", lambda: plan.tell(b, a, w)),
        ("allowed: x, out, n", lambda: plan.tell(b, out=a, m=1.0)),
        ("no operand or option of this plan", lambda: plan.tell(b, out=a, **{"bound[0]": w})),
        ("must be a real number", lambda: plan.tell(b, out=a, n="1")),
    )
    for match, send in refused:
        with pytest.raises(an.InvalidRequest, match=match.replace("[", r"\[")):
            send()
    w.free()
    with pytest.raises(an.GpuRefStale, match=r"bound array, operand 'w' of step 0 .*float32\[4\]: .*freed") as caught:
        plan.tell(b, out=a)
    assert caught.value.reason == "freed"
    plan.bind(w, b)
    with pytest.raises(an.InvalidRequest, match="static names 'm'"):
        device.graph(static=("m",))(lambda x: x)
    plan.tell(b, out=a)
    assert a.numpy().tolist() == [2.0] * 4


def test_messages_of_several_devices(device: an.Device) -> None:
    other = device.system.device("host:1")
    far = other.zeros(4)
    _refused(device, "another device", lambda g: g.operand("x", far))
    _refused(device, "another device", lambda g: device.elementwise.run("out = a + b", a=device.zeros(4), b=far))
    _refused(device, "a copy between devices", lambda _: device.copy(far))


def test_exceptions_leave_nothing_behind(device: an.Device) -> None:
    x = device.zeros(1000)
    x.wait()
    gc.collect()
    before = device.stats()["memory"]["pools"]["volatile"]["in_use"]
    recording = device.record()
    made: list[an.GpuRef] = []

    def broken_off() -> None:
        with recording:
            made.append(recording.operand("x", x) + 1)
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        broken_off()
    with pytest.raises(an.InvalidRequest, match="broken off"):
        _ = recording.plan
    with pytest.raises(an.InvalidRequest, match="inside a recording"):
        made[0].numpy()
    made.clear()
    gc.collect()
    assert device.stats()["memory"]["pools"]["volatile"]["in_use"] == before
    assert (x + 1).numpy()[0] == 1


def test_tasks_beside_a_recording_send(device: an.Device) -> None:
    async def elsewhere() -> None:
        device.full(4, 1.0)

    async def main() -> None:
        a = device.zeros(4)
        task = asyncio.create_task(elsewhere())
        with device.record() as recording:
            recording.operand("x", a).fill(1)
            await task
        assert len(recording.plan.steps) == 1

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of generators
def test_a_recording_ends_whatever_interrupts_it(device: an.Device) -> None:
    """Also at the beginning and the end of its block: later messages of the thread are sent, and others recorded."""
    x = device.full(4, 1.0)

    def recorded() -> an.RecordedPlan:
        with device.record() as g:
            x.fill(2.0)
        return g.plan

    plan, interrupts = recorded(), 0
    for _ in at_each_check("atomr_native/recording", recorded):
        interrupts += 1
        x.fill(3.0)
        assert (x.numpy() == 3.0).all()
        recorded().tell()
        assert (x.numpy() == 2.0).all()
    assert interrupts > 10
    plan.tell()
