"""What cannot work is refused with a typed error before anything is sent, and breaks nothing."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from actions import Gate, operand

import atomr_native as an
from atomr_native.plan_spec import READ, WRITE

Make = Callable[..., an.System]


@pytest.fixture(scope="module")
def other(nothing_left: None) -> Iterator[an.Device]:
    """Lend a device of another System."""
    with an.System(isolation="thread", standby="off") as system:
        yield system.device("host")


def uses(device: an.Device, x: Any) -> dict[str, Callable[[], object]]:
    """Everything that takes a handle of shape (4, 4), float32."""
    good = device.zeros((4, 4))
    matmul = device.blas_lt.plan(good, good)
    update = device.elementwise.plan("a + b", a=good, b=good)
    return {
        "get": lambda: device.get(x),
        "copy from": lambda: device.copy(x),
        "copy to": lambda: device.copy(good, x),
        "put into": lambda: device.put(np.zeros((4, 4)), out=x),
        "matmul a": lambda: device.blas_lt.matmul(x, good),
        "matmul b": lambda: device.blas_lt.matmul(good, x),
        "matmul out": lambda: device.blas_lt.matmul(good, good, out=x),
        "matmul bias": lambda: device.blas_lt.matmul(good, good, bias=x, epilogue="bias"),
        "matmul request": lambda: device.blas_lt.ask(an.MatmulRequest(a=x, b=good)),
        "matmul plan": lambda: matmul.tell(x, good, out=good),
        "elementwise": lambda: device.elementwise.run("a + b", a=x, b=good),
        "elementwise out": lambda: device.elementwise.run("a + b", a=good, b=good, out=x),
        "elementwise plan": lambda: update.ask(a=x, b=good, out=good),
        "reduce": lambda: device.elementwise.reduce("sum", x),
        "group": lambda: device.durable_group({"x": x}),
        "gather": lambda: an.gather(x) if not isinstance(x, an.GpuRef) or x.device is device else device.get(x),
    }


USES = sorted(uses.__doc__ and ["get", "copy from", "copy to", "put into", "matmul a", "matmul b", "matmul out",
    "matmul bias", "matmul request", "matmul plan", "elementwise", "elementwise out", "elementwise plan", "reduce",
    "group", "gather"])  # fmt: skip


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    "wrong", [3, 2.5, "text", b"bytes", object(), [1, 2], np.zeros((4, 4), "f4"), np.float32(1), an.GpuRef], ids=repr
)
def test_what_is_no_handle(device: an.Device, use: str, wrong: Any) -> None:
    if use.startswith("elementwise") and "out" not in use and "plan" not in use and isinstance(wrong, int | float):
        pytest.skip("a number is an operand there")
    if use.startswith("elementwise") and isinstance(wrong, np.generic) and use == "elementwise":
        pytest.skip("a number is an operand there")
    with pytest.raises(an.InvalidRequest) as caught:
        uses(device, wrong)[use]()
    assert str(caught.value)


@pytest.mark.parametrize("use", USES)
def test_a_freed_handle(device: an.Device, use: str) -> None:
    x = device.zeros((4, 4), durable=use == "group")
    x.free()
    with pytest.raises((an.GpuRefStale, an.InvalidRequest)) as caught:
        uses(device, x)[use]()
    if use not in ("group", "matmul bias"):
        assert isinstance(caught.value, an.GpuRefStale)
        assert caught.value.reason == "freed"


@pytest.mark.parametrize("use", USES)
def test_a_handle_of_another_system(device: an.Device, other: an.Device, use: str) -> None:
    x = other.zeros((4, 4), durable=True)
    with pytest.raises(an.InvalidRequest) as caught:
        uses(device, x)[use]()
    assert "another" in str(caught.value) or use in ("group", "matmul bias") or "overlaps" in str(caught.value)
    assert (x.numpy() == 0).all()


@pytest.mark.parametrize("use", [use for use in USES if use not in ("group", "matmul bias", "gather")])
def test_a_negative_stride(device: an.Device, use: str) -> None:
    base = device.put(np.arange(16, dtype="f4").reshape(4, 4))
    with pytest.raises(an.InvalidRequest, match=r"negative stride|strides|takes float32"):
        uses(device, base[::-1])[use]()


@pytest.mark.parametrize("use", [use for use in USES if use not in ("gather", "get", "copy from", "group", "reduce")])
def test_a_wrong_shape(device: an.Device, use: str) -> None:
    x = device.zeros((5,) if use == "matmul bias" else (3, 5))
    with pytest.raises(an.InvalidRequest):
        uses(device, x)[use]()


def test_bad_input_broke_nothing(device: an.Device) -> None:
    x = device.put(np.arange(16, dtype="f4").reshape(4, 4))
    for use in uses(device, x):
        if use not in ("matmul bias", "group"):
            uses(device, x)[use] if "out" in use or "to" in use or "into" in use else uses(device, x)[use]()
    assert x.numpy()[3, 3] == 15


@pytest.mark.parametrize(
    "members",
    [{}, None, [1], {"x": None}, {"x": np.zeros(3)}],
    ids=repr,
)
def test_wrong_groups(device: an.Device, members: Any) -> None:
    with pytest.raises(an.InvalidRequest):
        device.durable_group(members)


def test_wrong_members(device: an.Device) -> None:
    volatile, durable = device.zeros(4), device.zeros(4, durable=True)
    for members in ({"v": volatile}, {"part": durable[1:]}, {"t": device.zeros((2, 2), durable=True)[::1, :1]}):
        with pytest.raises(an.InvalidRequest, match="durable"):
            device.durable_group(members)
    group = device.durable_group({"x": durable})
    with pytest.raises(an.InvalidRequest, match="one group"):
        device.durable_group({"x": durable})
    with pytest.raises(an.InvalidRequest, match="committed"):
        group.restore()
    with pytest.raises(an.InvalidRequest):
        device.durable_group({f"m{i}": durable for i in range(300)})
    assert group.commit(3).result(30) == 1
    assert (group.sequence, group.tag) == (1, 3)


def test_group_whose_making_failed_holds_nothing(device: an.Device) -> None:
    durable, taken = device.zeros(4, durable=True), device.zeros(4, durable=True)
    group = device.durable_group({"x": taken})
    for _ in range(3):
        with pytest.raises(an.InvalidRequest, match="one group"):
            device.durable_group({"a": durable, "b": taken})
    again = device.durable_group({"a": durable})
    assert again.commit().result(30) == 1
    assert group.commit().result(30) == 1


@pytest.mark.parametrize(
    "data",
    [b"", b"garbage", pickle.dumps(3)[:-1]],
)
def test_broken_pickles(device: an.Device, data: bytes) -> None:
    with pytest.raises((pickle.UnpicklingError, EOFError)):
        pickle.loads(data)


def test_pickles_of_what_does_not_exist(device: an.Device) -> None:
    from atomr_native.gpu_ref import layout_of

    ref = device.zeros((4, 4))
    resolve, arguments = ref.__reduce__()
    token, name, slot, generation, nbytes, epoch, layout, offset = arguments
    for changed in (
        (token, name, slot, generation + 1, nbytes, epoch, layout, offset),
        (token, name, 0, generation, nbytes, epoch, layout, offset),
        (token, name, 2**32 - 1, generation, nbytes, epoch, layout, offset),
    ):
        with pytest.raises(an.GpuRefStale):
            resolve(*changed).numpy()
    for changed in (
        ("no such system", name, slot, generation, nbytes, epoch, layout, offset),
        (token, "tpu", slot, generation, nbytes, epoch, layout, offset),
        (token, name, slot, generation, nbytes, epoch, layout_of((400,), np.dtype("f4")), offset),
        (token, name, slot, generation, nbytes, epoch, layout, 2**40),
    ):
        with pytest.raises(an.InvalidRequest):
            resolve(*changed)
    with pytest.raises((an.InvalidRequest, an.GpuRefStale)):  # a size that is not the owner's
        resolve(token, name, slot, generation, 2**40, epoch, layout_of((2**30,), np.dtype("f4")), 0).numpy()


@pytest.mark.parametrize("timeout", ["soon", object(), [1]])
def test_timeouts_that_are_no_numbers(device: an.Device, timeout: Any) -> None:
    reply = device.lane("a").noop().ask()
    reply.result(30)
    for use in (reply.wait, reply.result, device.put([1]).wait):
        with pytest.raises(TypeError):
            use(timeout)


def test_handles_freed_while_others_send(device: an.Device) -> None:
    lane = device.lane("race")
    stop, errors = threading.Event(), []
    box = [device.zeros(16)]

    def send() -> None:
        while not stop.is_set():
            x = box[0]
            try:
                plan = lane._plan(an.PlanSpec("noop", (operand("x", x, READ | WRITE),)))
                plan.ask(x).result(30)
                x.fill(1)
            except an.GpuRefStale as error:
                errors.append(error.reason)
            except BaseException as error:
                errors.append(repr(error))
                return

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        old, box[0] = box[0], device.zeros(16)
        old.free()
    stop.set()
    for thread in threads:
        thread.join(30)
    assert set(errors) <= {"freed"}
    assert lane.noop().ask().result(30) is None


def test_a_gate_may_be_opened_twice(device: an.Device) -> None:
    with Gate(device.lane("a")) as gate:
        gate.open()
        gate.open()
    gate.reply.result(30)
