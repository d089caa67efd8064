"""What cannot work is refused with a typed error before anything is sent, and breaks nothing."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from actions import Gate, operand

import atomr_native as an
from atomr_native.interop import dlpack
from atomr_native.libraries.elementwise.request import ElementwiseRequest
from atomr_native.plans.spec import READ, WRITE


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
        "matmul plan": lambda: matmul.tell(x, good, out=device.empty((4, 4))),
        "elementwise": lambda: device.elementwise.run("a + b", a=x, b=good),
        "elementwise out": lambda: device.elementwise.run("a + b", a=good, b=good, out=x),
        "elementwise plan": lambda: update.ask(a=x, b=good, out=good),
        "reduce": lambda: device.elementwise.reduce("sum", x),
        "group": lambda: device.durable_group({"x": x}),
        "gather": lambda: an.gather(x) if not isinstance(x, an.GpuRef) or x.device is device else device.get(x),
    }


USES = [
    "copy from", "copy to", "elementwise", "elementwise out", "elementwise plan", "gather", "get", "group", "matmul a",
    "matmul b", "matmul bias", "matmul out", "matmul plan", "matmul request", "put into", "reduce",
]  # fmt: skip
#: Its own name would hold its address, which is another in each process that collects the tests.
OBJECT = pytest.param(object(), id="object()")


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    "wrong", [3, 2.5, "text", b"bytes", OBJECT, [1, 2], np.zeros((4, 4), "f4"), np.float32(1), an.GpuRef], ids=repr
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


@pytest.mark.parametrize(
    "use", [use for use in USES if use not in ("group", "matmul bias", "gather", "get", "copy from", "elementwise")]
)
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
        with pytest.raises(an.InvalidRequest, match=rf"member '{next(iter(members))}' must be a whole durable array"):
            device.durable_group(members)
    with pytest.raises(an.InvalidRequest, match="member 3 is named by a int; allowed: strings"):
        device.durable_group({3: durable})  # type: ignore[dict-item]
    group = device.durable_group({"x": durable})
    with pytest.raises(an.InvalidRequest, match=r"member 'x' is <GpuRef float32\[4\] on .*one group"):
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
    from atomr_native.arrays.layout import layout_of

    ref = device.zeros((4, 4))
    resolve, arguments = ref.__reduce__()
    token, name, slot, generation, nbytes, epoch, layout, offset, *rest = arguments
    for changed in (
        (token, name, slot, generation + 1, nbytes, epoch, layout, offset, *rest),
        (token, name, 0, generation, nbytes, epoch, layout, offset, *rest),
        (token, name, 2**32 - 1, generation, nbytes, epoch, layout, offset, *rest),
    ):
        with pytest.raises(an.GpuRefStale):
            resolve(*changed).numpy()
    for changed in (
        ("no such system", name, slot, generation, nbytes, epoch, layout, offset, *rest),
        (token, "tpu", slot, generation, nbytes, epoch, layout, offset, *rest),
        (token, name, slot, generation, nbytes, epoch, layout_of((400,), np.dtype("f4")), offset, *rest),
        (token, name, slot, generation, nbytes, epoch, layout, 2**40, *rest),
    ):
        with pytest.raises(an.InvalidRequest):
            resolve(*changed)
    with pytest.raises((an.InvalidRequest, an.GpuRefStale)):  # a size that is not the owner's
        resolve(token, name, slot, generation, 2**40, epoch, layout_of((2**30,), np.dtype("f4")), 0, *rest).numpy()


@pytest.mark.parametrize(
    "timeout",
    ["soon", OBJECT, [1], float("nan"), b"1", "1", True, np.True_, -1, -1e-9, -float("inf"), np.float32(-3)],
    ids=repr,
)
def test_timeouts_that_are_no_numbers_of_seconds(device: an.Device, timeout: Any) -> None:
    reply, x = device.lane("a").noop().ask(), device.put([1])
    plan = device.elementwise.plan("x + 1", x=x)
    x.numpy()  # from here on by the short way
    for use in (
        reply.wait, reply.result, x.wait, device.wait_ready, plan.wait,
        lambda t: device.get(x, timeout=t), lambda t: device.get(device.put(np.zeros(1 << 20)), timeout=t),
        lambda t: an.gather(reply, timeout=t), lambda t: device.stats(timeout=t), device.close,
    ):  # fmt: skip
        with pytest.raises(an.InvalidRequest) as caught:
            use(timeout)
        assert f"timeout={timeout!r}; allowed: a number of seconds from 0 on" in str(caught.value)
    reply.wait(0)
    for long in (10, 1e300, float("inf"), np.int8(100)):
        assert reply.result(long) is None
        assert device.get(x, timeout=long).tolist() == [1]


@pytest.mark.parametrize(
    "shape",
    [2.5, "ab", b"ab", bytearray(2), None, {2}, {2: 3}, True, (True, 2), ("2",), np.array(3), (2, None)],
    ids=repr,
)
def test_what_is_no_shape(device: an.Device, shape: Any) -> None:
    for use in (device.empty, device.zeros, device.host_array):
        with pytest.raises(an.InvalidRequest, match="neither an integer nor a sequence of integers") as caught:
            use(shape)
        assert repr(shape) in str(caught.value)


@pytest.mark.parametrize(
    "dtype", [None, 3, "floaty", ">f4", "S4", object, "int4", [("a", "f4")], "V8", "datetime64[D]"], ids=repr
)
def test_what_is_no_dtype(device: an.Device, dtype: Any) -> None:
    for use in (
        lambda: device.empty(3, dtype), lambda: device.zeros((3, 3), dtype), lambda: device.host_array(3, dtype),
        lambda: device.put([1, 2]).view(dtype),
        lambda: device.put([1, 2], dtype) if dtype is not None else device.empty(3, dtype),
    ):  # fmt: skip
        with pytest.raises(an.InvalidRequest, match=r"unknown dtype .*allowed: bool, int8") as caught:
            use()
        assert repr(dtype) in str(caught.value)


@pytest.mark.parametrize(
    ("numbers", "dtype"),
    [(300, "int8"), ([1, 300], "int8"), ((-1,), "uint16"), ([[2**40]], "int32"), (1e10, "int32"), ([np.nan], "int64"),
     ([np.inf], "uint8"), (-1, "uint64"), ([1e30], "uint64")],
)  # fmt: skip
def test_numbers_that_a_type_does_not_hold(device: an.Device, numbers: Any, dtype: str) -> None:
    info = np.iinfo(dtype)
    with pytest.raises(
        an.InvalidRequest, match=f"does not fit {dtype}; allowed: integers from {info.min} to {info.max}"
    ):
        device.put(numbers, dtype)


def test_numbers_that_a_type_holds(device: an.Device) -> None:
    assert device.put([-128, 127], "int8").numpy().tolist() == [-128, 127]
    assert device.put([-128.0, 127.0], "int8").numpy().tolist() == [-128, 127]
    assert device.put([-128.9, 127.9], "int8", casting="unsafe").numpy().tolist() == [-128, 127]  # truncated
    assert device.put([], "int8").shape == (0,)
    assert device.put(2**64 - 1, "uint64").numpy() == 2**64 - 1
    assert device.put(np.array([300]), "int8").numpy().tolist() == [44]  # an array wraps, as in NumPy
    assert device.put([1, 0], "bool").numpy().tolist() == [True, False]
    assert device.put([2, 0], "bool", casting="unsafe").numpy().tolist() == [True, False]


@pytest.mark.parametrize("what", [2**70, [2**70], "text", [[1], [1, 2]], ["a"]], ids=repr)
def test_what_is_no_array(device: an.Device, what: Any) -> None:
    with pytest.raises(an.InvalidRequest) as caught:
        device.put(what)
    assert repr(what) in str(caught.value) or "expected an array, got str" in str(caught.value)


@pytest.mark.parametrize("dtype", ["int8", "float32", "complex64"])
def test_fill_values_beyond_all_bounds(device: an.Device, dtype: str) -> None:
    for value in (10**400, -(10**400)):
        with pytest.raises(an.InvalidRequest, match=dtype):
            device.full(3, value, dtype)


def test_none_is_no_operand(device: an.Device) -> None:
    x = device.zeros(3)
    for use in (
        lambda: device.elementwise.run("x + a", x=x, a=None),
        lambda: device.elementwise.plan("x + a", x=x, a=None),
        lambda: device.elementwise.ask(ElementwiseRequest(program="x + a", operands={"x": x, "a": None})),
        lambda: device.elementwise.plan("x + a", x=x, a=1.0).tell(x=x, a=None, out=x),
    ):
        with pytest.raises(an.InvalidRequest, match="a"):
            use()


def test_handles_are_no_values(device: an.Device) -> None:
    x = device.zeros(3)
    with pytest.raises(an.InvalidRequest, match="3 elements"):
        bool(x)
    one = device.ones((), "int64")  # which int() and float() would wait for, and plans must not
    plan = device.elementwise.plan("x * a", x=x, a=2.0)
    with pytest.raises(an.InvalidRequest, match="scalar 'a' must be a real number"):
        plan.ask(x=x, a=one)
    with pytest.raises(an.InvalidRequest, match="timeout"):
        x.wait(one)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"value in ref\.numpy"):
        0.0 in x  # noqa: B015 - it raises
    for shape in ((-2,), (3, -2), (-1, -1), None, (2.0,), "ab"):
        with pytest.raises(an.InvalidRequest, match="cannot be viewed as"):
            x.reshape(shape)
    with pytest.raises(an.InvalidRequest, match="index 1000"):
        x[10**30]


def test_what_belongs_to_its_process(device: an.Device) -> None:
    lane = device.lane("a")
    group = device.durable_group({"x": device.zeros(3, durable=True)})
    for owned in (device.system, device, lane, lane.noop(), lane.noop().ask(), device.blas_lt, group):
        for use in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=f"a {type(owned).__name__} belongs to the process that made it"):
                use(owned)


def test_scalars_that_would_lose_something(device: an.Device) -> None:
    group = device.durable_group({"x": device.zeros(3, durable=True)})
    for tag in (1.5, 2.0, "1", 2**63, None):
        with pytest.raises(an.InvalidRequest, match="scalar 'tag' must be an integer of 64 bits, not "):
            group.commit(tag)  # type: ignore[arg-type]
    assert group.commit(np.int8(3)).result(30) == 1
    assert group.tag == 3


@pytest.mark.parametrize("option", ["deterministic", "allow_crash", "debug", "observe"])
def test_switches_are_booleans(option: str) -> None:
    with pytest.raises(an.InvalidRequest, match=f"{option}='no'; allowed: False, True"):
        an.System(**{option: "no"})


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


@pytest.mark.parametrize("flag", [1, 0, None, "no", np.array([True, False]), OBJECT], ids=repr)
def test_flags_of_memory_are_booleans(device: an.Device, flag: Any) -> None:
    durable = device.zeros(3, durable=True)
    for name, use in {
        "durable": lambda: device.put([1], durable=flag),
        "blocking": lambda: device.put([1], blocking=flag),
        "checksum": lambda: device.durable_group({"x": durable}, checksum=flag),
    }.items():
        with pytest.raises(an.InvalidRequest, match=f"^{name}=.*; allowed: False, True"):
            use()
    for other in (device.empty, device.zeros, lambda n, durable: device.copy(durable, durable=flag)):
        with pytest.raises(an.InvalidRequest, match=r"durable=.*; allowed: False, True"):
            other(3, durable=durable if other not in (device.empty, device.zeros) else flag)
    assert device.zeros(3, durable=np.True_).durable


def test_an_array_or_number_is_no_dtype(device: an.Device) -> None:
    x, y = device.put([1.0, 2.0]), np.ones(2, np.float32)
    for wrong in (x, np.float32(1), y, ml_dtypes.bfloat16(1)):
        for use in (
            lambda wrong=wrong: device.put(y, wrong), lambda wrong=wrong: device.copy(x, dtype=wrong),
            lambda wrong=wrong: device.zeros(3, wrong), lambda wrong=wrong: x.view(wrong),
            lambda wrong=wrong: device.blas_lt.matmul(device.zeros((2, 2)), device.zeros((2, 2)), out_dtype=wrong),
        ):  # fmt: skip
            with pytest.raises(an.InvalidRequest, match=r"unknown dtype .*allowed: bool, int8"):
                use()
    assert x.numpy().tolist() == [1, 2]
    for good in (np.float32, np.dtype("f4"), "f4", ml_dtypes.bfloat16):
        assert device.zeros(3, good).shape == (3,)


def test_numbers_are_no_memory(device: an.Device) -> None:
    x = device.put(np.ones((16, 16)), "float8_e4m3fn")
    one = np.float32(3)
    for names in (("a_scale",), ("b_scale",), ("d_scale",), ("c",), ("out",), ("bias",)):
        with pytest.raises(an.InvalidRequest, match=rf"{names[0]} is a float32; it must be a GpuRef|does not use it"):
            device.blas_lt.matmul(x, x, trans_b=True, **dict.fromkeys(names, one))
    with pytest.raises(an.InvalidRequest, match="scale is a float32; it must be a GpuRef"):
        device.float8.plan(device.zeros((4, 4)), scale=one)
    for wrong in (3, "text", [1.0], an.GpuRef, one):
        with pytest.raises(an.InvalidRequest, match=r"out is a .*; it must be a GpuRef"):
            device.blas.nrm2(device.zeros(4), out=wrong)
        with pytest.raises(an.InvalidRequest, match="it must be a GpuRef"):
            device.blas_lt.grouped([x, wrong], [x, x], trans_b=True)


def test_choices_may_be_anything(device: an.Device) -> None:
    x, array = device.zeros((4, 4)), np.zeros(3)
    for name, use in {
        "tune": lambda: device.blas_lt.matmul(x, x, tune=array),
        "way": lambda: device.blas_lt.grouped([x], [x], way=array),
        "progress": lambda: device.blas_lt.plan(x, x, progress=array),
        "side": lambda: device.blas.symm(x, x, side=array),
        "scaling": lambda: device.float8.plan(x, scaling=array),
        "amax": lambda: device.float8.delayed(amax=array),
        "approximate": lambda: device.fused.geglu(x, approximate=array),
        "curve": lambda: an.ActivationRequest(x=x, curve=array),
        "reduction": lambda: device.elementwise.reduce(array, x),
        "fault": lambda: device.inject_fault(array),
        "overflow": lambda: an.Mailbox(overflow=array),
        "routing": lambda: device.system.pool(an.Actor, size=1, routing=array),
    }.items():
        with pytest.raises(an.InvalidRequest, match=name) as caught:
            use()
        assert "allowed" in str(caught.value)
    with pytest.raises(an.InvalidRequest, match=r"unknown epilogue <function .*, and CustomEpilogue\(f, operands\)"):
        device.blas_lt.matmul(x, x, epilogue=lambda acc: acc)  # type: ignore[arg-type]
    for tune in (1, 0, 2.5):
        with pytest.raises(an.InvalidRequest, match="tune="):
            device.blas_lt.matmul(x, x, tune=tune)


def test_unknown_options_are_named_with_the_known_ones(device: an.Device) -> None:
    x = device.zeros((4, 4))
    for use in (
        lambda: device.blas_lt.plan(x, x, fast=1), lambda: device.blas_lt.grouped([x], [x], fast=1),
        lambda: device.blas_lt.grouped_plan([x], [x], fast=1), lambda: device.blas.gemm(x, x, fast=1),
        lambda: device.blas.gemv(x, x[0], fast=1), lambda: device.blas.plan("gemm", a=x, b=x, fast=1),
        lambda: device.float8.plan(x, fast=1), lambda: device.float8.outputs(x, fast=1),
    ):  # fmt: skip
        with pytest.raises(an.InvalidRequest, match=r"unknown option 'fast' of .*; allowed: "):
            use()
    for use, meant in (
        (lambda: device.blas_lt.grouped_plan([x], [x], ways="each"), "way"),
        (lambda: device.blas.gemv(x, x[0], tarns=True), "trans"),
        (lambda: device.float8.plan(x, scalling="outer"), "scaling"),
    ):
        with pytest.raises(an.InvalidRequest, match=rf"\(did you mean '{meant}'\?\); allowed: .*{meant}"):
            use()
    with pytest.raises(an.InvalidRequest, match=r"unknown name 'y' .*; allowed: x, out$"):
        device.elementwise.run("x + y", x=x)
    for options in (None, 3, "text", [1, 2], np.zeros((2, 2)), (("a", x),)):
        with pytest.raises(an.InvalidRequest, match="option"):
            an.GroupedRequest(a=[x], b=[x], options=options)


def test_numbers_beyond_all_floats(device: an.Device) -> None:
    x, huge = device.zeros((4, 4)), 10**400
    for use in (
        lambda: device.blas_lt.matmul(x, x, alpha=huge), lambda: device.blas_lt.plan(x, x, alpha=-huge),
        lambda: device.blas_lt.grouped_plan([x], [x], alpha=huge),
        lambda: device.blas.plan("gemm", a=x, b=x, alpha=huge),
        lambda: device.fused.rms_norm(x, x[0], eps=huge), lambda: device.fused.dropout(x, huge, 1),
    ):  # fmt: skip
        with pytest.raises(an.InvalidRequest, match="0000"):
            use()
    for number in (np.array(1.0), np.True_, "1", np.datetime64("2020-01-01"), int):
        with pytest.raises(an.InvalidRequest, match=r"eps=.*real number"):
            device.fused.rms_norm(x, x[0], eps=number)


def test_numpys_integers_are_integers(device: an.Device) -> None:
    x, eight = device.zeros((4, 4)), np.int64(8)
    state = device.float8.delayed(length=eight, margin=np.int8(1))
    assert (state.history.shape, state.margin) == ((8,), 1)
    for use in (
        lambda n: device.float8.delayed(length=n),
        lambda n: an.Mailbox(n),
        lambda n: an.Pipeline((), in_flight=n),
    ):
        with pytest.raises(an.InvalidRequest):
            use(True)
    assert an.Mailbox(eight).capacity == 8
    device.stats(timeout=np.float32(1))
    request = an.DropoutRequest(x=x, p=ml_dtypes.bfloat16(0.5), seed=eight, offset=eight)
    assert [scalar.value for scalar in request.lowered.scalars] == [2**31, 2.0, 8, 8]
    assert device.blas_lt.matmul(x, x, alpha=ml_dtypes.bfloat16(2), compute="tf32").shape == (4, 4)


def test_a_plan_writes_no_memory_that_it_reads(device: an.Device) -> None:
    both, y = device.zeros((8, 4)), device.zeros((4, 4))
    x = both[:4]
    matmul = device.blas_lt.plan(x, x)
    matmul.tell(x, x, out=both[4:])  # apart, in one allocation
    for out in (x, both[1:5], both[2:6]):
        with pytest.raises(an.InvalidRequest, match=r"operand 'out' is written and overlaps 'a'.*memory of its own$"):
            matmul.tell(x, y, out=out)
    with pytest.raises(an.InvalidRequest, match="'out' is written and overlaps 'b'"):
        matmul.ask(x, y, out=y)
    many = device.blas_lt.grouped_plan([y] * 8, [y] * 8)
    outs = [device.empty((4, 4)) for _ in range(8)]
    many.tell(*[one for out in outs for one in (y, y, out)])
    with pytest.raises(an.InvalidRequest, match="'out0' is written and overlaps 'out7'"):
        many.tell(*[one for out in (*outs[:7], outs[0]) for one in (y, y, out)])
    packed = device.zeros((2, 6, 3, 5))
    q, k, v = (packed[:, :, i] for i in range(3))
    sums = device.elementwise.plan("a + 1", a=q, out=k)
    sums.tell(a=q, out=k)  # side by side in each row
    sums.tell(a=k, out=v)
    for _ in range(3):
        device.copy(v, out=q)  # once it is remembered, too
    with pytest.raises(an.InvalidRequest, match="out overlaps src"):
        device.copy(v, out=packed.reshape(2, 6, 15)[:, :, 8:13])
    assert packed.numpy()[1, 4].tolist() == [[2.0] * 5, [1.0] * 5, [2.0] * 5]
    with pytest.raises(an.InvalidRequest, match="'out' is written and overlaps 'a'"):
        sums.tell(a=q, out=packed.reshape(2, 6, 15)[:, :, 2:7])
    total = device.elementwise.plan("a + b", a=x, b=y)
    assert total.ask(a=x, b=y, out=x).result(30) is x  # element by element
    with pytest.raises(an.InvalidRequest, match="or the very view of one that is only read"):
        total.tell(a=x, b=y, out=both[1:5])
    with pytest.raises(an.InvalidRequest, match="'out' is written and overlaps 'x'"):
        device.elementwise.plan_reduce("sum", x).tell(x, out=both[0, 0])


def test_extents_of_nothing_are_numbers_too(device: an.Device) -> None:
    assert device.empty((0, 2**20, 2**20)).shape == (0, 2**20, 2**20)
    for shape in ((0, 2**62, 2**62), (2**70, 0)):
        with pytest.raises(an.InvalidRequest, match="an array has fewer than"):
            device.empty(shape)
    for shape in (np.array(8), device.zeros(()), device.zeros(0), "", True, (True, 16)):
        with pytest.raises(an.InvalidRequest, match="cannot be viewed as"):
            device.zeros((4, 4)).reshape(shape)
        with pytest.raises(an.InvalidRequest, match="neither an integer nor a sequence"):
            device.empty(shape)
    assert device.zeros((4, 4)).reshape(np.int64(16)).shape == (16,)
    for shape, why in (((5,), r"has 16 elements and cannot be viewed as \(5,\), of 5$"), ((-1, -1), "and one -1$")):
        with pytest.raises(an.InvalidRequest, match=why):
            device.zeros((4, 4)).reshape(shape)


@pytest.mark.parametrize("path", [None, 3, b"x", "", ["a"], OBJECT], ids=repr)
def test_what_is_no_path(device: an.Device, path: Any) -> None:
    for use in (device.blas_lt.export_tuning, device.blas_lt.import_tuning):
        with pytest.raises(an.InvalidRequest, match=r"path is .*; allowed: the name of a file"):
            use(path)


@pytest.mark.parametrize("stream", [np.zeros(3), np.array(1), int, "1", 2.5, 0, True], ids=repr)
def test_what_is_no_stream(stream: Any) -> None:
    with pytest.raises(an.InvalidRequest, match="is not a CUDA stream"):
        dlpack.stream_handle(stream)
