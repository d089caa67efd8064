"""Users' Numba kernels: as messages on both kinds of device, and their compilation, which needs no GPU."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from crowds import together

import atomr_native as an

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda.bindings is not installed")

import numba_kernels as kernels

from atomr_native.compile import linker
from atomr_native.compile.numba import api, compiler, simulator
from atomr_native.dtypes import as_dtype
from atomr_native.plans import actor
from atomr_native.plans.spec import OVERWRITE, READ, WRITE

GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)


@pytest.fixture(scope="module", params=["host", GPU])
def device(request: Any) -> Iterator[an.Device]:
    with an.System(max_restarts=50) as system:
        yield system.device(request.param)


def put(device: an.Device, *shape: int, dtype: str = "float32") -> tuple[an.GpuRef, np.ndarray]:
    data = np.random.default_rng(len(shape)).integers(1, 50, shape).astype(dtype)
    return device.put(data), data


def test_a_launch(device: an.Device) -> None:
    y, data = put(device, 1000)
    x = device.empty(1000)
    reply = device.kernel(kernels.scale).forall(1000)(x, y, 2.0)
    assert reply.result(60) is x
    np.testing.assert_array_equal(x.numpy(), data * data * 2)


def test_launches_that_are_remembered(device: an.Device) -> None:
    kernel = device.kernel(kernels.scale, actor="remembered")
    y, data = put(device, 100)
    x, numbers = device.empty(100), (2.0, 3, True, np.float32(0.5), np.uint64(7), np.True_)
    for _ in range(2):
        for number in numbers:
            kernel[1, 128](x, y, number, uses=[y]).result(60)
            np.testing.assert_array_equal(x.numpy(), data * data * np.float32(number))
    kept = kernel.actor.launches
    assert len(kept) == len({call.plan for call in kept.values()}) == len(numbers) - 1  # which has no index
    kernel[(1, 1), [128]](x, y, 2.0, uses=[y]).result(60)  # the same
    assert len(kept) == len(numbers) - 1
    kernel[1, 128](x, y, 2.0).result(60)
    kernel[2, 128](x, y, 2.0, uses=(y,)).result(60)
    kernel.forall(100, 128)(x[:50], y, 2.0, uses=(y,)).result(60)
    assert len(kept) == len(numbers) + 2
    for wrong, text in (((1.0, 128), "grid is 1.0"), ((True, 128), "grid is True"), ((1, 128, 0.0), "shared is 0.0")):
        with pytest.raises(an.InvalidRequest, match=text):
            kernel[wrong]
    with pytest.raises(an.InvalidRequest, match=f"factor is {2**63}; an integer must fit 64 bits"):
        kernel[1, 128](x, y, 2**63)
    with pytest.raises(an.InvalidRequest, match="takes 3 arguments"):
        kernel[1, 128](x, y)


def test_what_is_remembered_of_launches_is_bounded(device: an.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor, "_PLANS", 3)
    kernel = device.kernel(kernels.threads, actor="bounded")
    out = device.empty((5, 4, 4), "int64")
    for _ in range(2):
        for grid in range(1, 6):
            kernel[grid, 4](out).result(60)
    assert {call.plan for call in kernel.actor.launches.values()} <= set(kernel.actor._plans.values())
    monkeypatch.setattr("atomr_native.libraries.kernel.actor._LAUNCHES", 2)
    monkeypatch.setattr("atomr_native.libraries.kernel.actor._CONFIGURATIONS", 2)
    for grid in range(1, 6):
        kernel[grid, 2](out).result(60)
    assert len(kernel.actor.launches) <= 3
    assert len(kernel._configurations) <= 2


def test_launches_are_ordered_with_other_messages(device: an.Device) -> None:
    y, data = put(device, 100, dtype="float64")
    x = device.zeros(100, "float64")
    scale = device.kernel(kernels.scale)
    for _ in range(5):
        scale.forall(100).tell(x, y, 1.0)
        device.elementwise.run("y = x + 1", y=y, x=x)
        data = data * data + 1
        y.fill(3.0)
        data[:] = 3.0
    np.testing.assert_array_equal(x.numpy(), 9.0)
    np.testing.assert_array_equal(y.numpy(), data)


def test_a_plain_function_and_strides(device: an.Device) -> None:
    x, a = put(device, 6, 8)
    y, b = put(device, 8, 6)
    device.kernel(kernels.plain)[(2, 2), (4, 4)](x, y.T).result(60)
    np.testing.assert_array_equal(x.numpy(), a + b.T)
    device.kernel(kernels.plain)[(2, 2), (4, 4)](x[1:, ::2], x[1:, 1::2]).result(60)
    expected = a + b.T
    expected[1:, ::2] += expected[1:, 1::2].copy()
    np.testing.assert_array_equal(x.numpy(), expected)


def test_shared_memory(device: an.Device) -> None:
    a, data = put(device, 2, 8)
    out = device.empty(8)
    device.kernel(kernels.reverse)[1, 8](a, out, 8).result(60)
    np.testing.assert_array_equal(out.numpy(), data[0, ::-1])
    x, data = put(device, 16)
    device.kernel(kernels.dynamic)[1, 16, 64](x, 16).result(60)
    np.testing.assert_array_equal(x.numpy(), data[::-1])


def test_threads_of_a_simulated_block_share_one_array() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(50):
            memory, ready, found = simulator.SharedMemory(64), threading.Barrier(16), []

            def look(_: int, memory: Any = memory, ready: Any = ready, found: list[Any] = found) -> None:
                ready.wait()
                first = memory.array(4, np.float32)
                found.append((id(first), id(memory.array((2, 2), np.int64))))

            together(look, range(16))
            assert len(set(found)) == 1
            assert found[0][0] != found[0][1]
    finally:
        sys.setswitchinterval(before)


def test_threads_know_which_they_are(device: an.Device) -> None:
    out = device.empty((2, 40, 4), "int64")
    device.kernel(kernels.threads)[2, (5, 4, 2)](out).result(60)
    z, y, x = np.indices((2, 4, 5)).reshape(3, 40)
    expected = np.stack([x, y, z, np.arange(40) % 32], axis=1)
    np.testing.assert_array_equal(out.numpy(), np.stack([expected, expected]))


def test_threads_that_meet_run_together(device: an.Device) -> None:
    x = device.put(np.arange(8, dtype=np.float32))
    device.kernel(kernels.ring)[1, 8](x).result(60)
    np.testing.assert_array_equal(x.numpy(), np.roll(np.arange(8), -1) + 1)


def test_cuda_from_the_function_around_a_kernel(device: an.Device) -> None:
    x = device.empty(40, "int64")
    device.kernel(kernels.from_a_function(3)).forall(40, 16)(x).result(60)
    np.testing.assert_array_equal(x.numpy(), 3 * np.arange(40))


@pytest.mark.parametrize("name", ["sine_of_cuda", "sine_of_numba", "sine_of_module", "sine_of_function"])
def test_libdevice_is_for_gpus_only(device: an.Device, name: str) -> None:
    x = device.full(4, 1.0)
    reply = device.kernel(getattr(kernels, name))[1, 4](x)
    if device.name == "host":  # where Numba's stubs would return None, which NumPy stores as NaN
        with pytest.raises(an.LibraryError, match=r"cuda\.libdevice.* is for GPUs only"):
            reply.result(60)
    else:
        reply.result(60)
        np.testing.assert_allclose(x.numpy(), np.sin(np.float32(1)), rtol=1e-6)


def test_cuda_by_its_full_name(device: an.Device) -> None:
    x = device.full(40, 1.0)
    device.kernel(kernels.by_full_name)[2, 32](x).result(60)
    assert (x.numpy() == 3).all()


def test_warps(device: an.Device) -> None:
    x, data = put(device, 64, dtype="int64")
    out = device.zeros((64, 10), "int64")
    device.kernel(kernels.warps)[2, 32](x, out).result(60)
    lane, rows = np.arange(64) % 32, data.reshape(2, 32)
    expected = np.zeros((64, 10), np.int64)
    expected[:, 0] = rows.sum(1).repeat(32)
    expected[:, 1] = np.where(lane == 0, data, np.roll(data, 1))
    expected[:, 2] = np.where(lane > 29, data, np.roll(data, -2))
    expected[:, 3] = rows[:, 3].repeat(32)
    expected[:, 4:7] = 16, 3, 4
    expected[:, 7] = lane
    expected[:, 8] = np.where(lane < 4, 3 - lane, 0)
    expected[:, 9] = lane + 5
    np.testing.assert_array_equal(out.numpy(), expected)


def test_half_precision_and_views_of_another_shape(device: an.Device) -> None:
    data = np.arange(8, dtype=np.float16)
    x, out = device.put(data), device.zeros(8, "float16")
    plan = device.kernel(kernels.half)[1, 8].plan(x, np.float16(0.1), out)
    for number in (0.1, 0.5, 2.0**-24, 1e-9, 65519.9, 1e9, -1.0009765625, 2049.0, 6.1e-5):
        plan.ask(x, out, h=number).result(60)
        with np.errstate(over="ignore", invalid="ignore"):
            twice = data * np.float16(number) + data
            once = (data.astype(float) * float(np.float16(number)) + data.astype(float)).astype(np.float16)
        found = out.numpy()  # a GPU may join the product and the sum in one rounding
        alike = [(found == expected) | (np.isnan(found) & np.isnan(expected)) for expected in (once, twice)]
        assert np.all(alike[0] | alike[1]), (number, found, once, twice)


def test_atomics(device: an.Device) -> None:
    values, data = put(device, 200, dtype="int32")
    bins = device.zeros(64, "int64")
    device.kernel(kernels.histogram).forall(200, 64)(values, bins).result(60)
    np.testing.assert_array_equal(bins.numpy(), np.bincount(data, minlength=64))


def test_scalars(device: an.Device) -> None:
    out = device.empty(6, "float64")
    launch = device.kernel(kernels.scalars)[1, 1]
    launch(
        out, np.int8(-7), np.uint32(2**32 - 1), np.float32(0.1), np.complex64(1 + 2j), True, (3, np.int16(4))
    ).result(60)
    np.testing.assert_array_equal(out.numpy(), [-7, 2**32 - 1, float(np.float32(0.1)), 21, 1, 403])


def test_structs(device: an.Device) -> None:
    data = np.zeros(10, kernels.PARTICLE)
    data["x"], data["v"] = np.arange(10), 2
    ref = device.put(data.view(np.uint8).reshape(10, -1))
    device.kernel(kernels.particles).forall(10, 32)(an.Records(ref, kernels.PARTICLE), 0.5).result(60)
    moved = ref.numpy().view(kernels.PARTICLE)[:, 0]
    np.testing.assert_array_equal(moved["x"], np.arange(10) + 1)


def test_random_states(device: an.Device) -> None:
    from numba.cuda.random import init_xoroshiro128p_states_cpu, xoroshiro128p_dtype

    seeds = np.empty(64, xoroshiro128p_dtype)
    init_xoroshiro128p_states_cpu(seeds, np.uint64(1), 0)
    states = device.put(seeds.view(np.uint8).reshape(64, -1))
    out = device.empty(64)
    device.kernel(kernels.uniform)[2, 32](an.Records(states, xoroshiro128p_dtype), out).result(120)
    found = out.numpy()
    assert ((found >= 0) & (found < 1)).all()
    assert len(np.unique(found)) > 32


def test_plans(device: an.Device) -> None:
    y, data = put(device, 300)
    x = device.empty(300)
    plan = device.kernel(kernels.scale).forall(300).plan(x, y, 2.0)
    plan.tell(x, y)
    plan.ask(x, y, factor=3.0).result(60)
    np.testing.assert_array_equal(x.numpy(), data * data * 3)
    with pytest.raises(an.InvalidRequest, match="float32"):
        plan.tell(x[:10], y)


def test_memory_that_is_reached_indirectly(device: an.Device) -> None:
    """A message that names memory in `uses` is ordered with what writes it."""
    y, _ = put(device, 10)
    x, other = device.empty(10), device.empty(10)
    reply = device.kernel(kernels.scale).forall(10)(x, y, 1.0, uses=[other])
    assert reply.result(60) is not None
    other.free()
    with pytest.raises(an.GpuRefStale):
        device.kernel(kernels.scale).forall(10)(x, y, 1.0, uses=[other])


def test_declared_access(device: an.Device) -> None:
    x = device.empty(4)
    for declared, expected in (
        ({}, (READ | WRITE, READ)),
        ({"writes": ["y"], "overwrites": ["x"]}, (WRITE | OVERWRITE, READ | WRITE)),
        ({"writes": ()}, (READ, READ)),
    ):
        plan = device.kernel(kernels.scale, **declared).forall(4).plan(x, device.empty(4), 1.0)
        assert tuple(operand.access for operand in plan.spec.operands[:2]) == expected


def test_overwriting_lifts_an_error(device: an.Device) -> None:
    x, y = device.empty(10), device.put(np.ones(10, np.float32))
    failed = device.kernel(kernels.scale, overwrites=["x"])
    bad = device.kernel(kernels.over_the_end, debug=True)
    with pytest.raises(an.LibraryError, match="IndexError"):
        bad[1, 10](x, y).result(60)
    with pytest.raises(an.AtomrError):
        x.numpy()
    failed.forall(10)(x, y, 2.0).result(60)
    np.testing.assert_array_equal(x.numpy(), 2.0)


@pytest.mark.parametrize(
    ("kernel", "arguments", "text"),
    [
        (kernels.over_the_end, 2, "index 16 is out of bounds for axis 0 with size 16.*block .0, 0, 0.*y.i . 1."),
        (kernels.over_by_device_function, 1, "index 1..? is out of bounds for axis 0 with size 16.*array.i."),
        (kernels.over_by_atomic, 1, "index -17 is out of bounds.*atomic"),
    ],
)
def test_indices_are_checked(device: an.Device, kernel: Any, arguments: int, text: str) -> None:
    refs = [device.put(np.ones(16)) for _ in range(arguments)]
    reply = device.kernel(kernel, debug=True)[1, 16](*refs)
    with pytest.raises(an.LibraryError) as caught:
        reply.result(60)
    assert caught.value.name == "IndexError"
    if device.name != "host":  # there the simulator says it in its own words
        assert re.search(text, str(caught.value))
    assert device.generation == 1
    x = device.zeros(4)
    assert x.numpy().tolist() == [0.0] * 4


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda d: d.kernel(3), "int; allowed: a function"),
        (lambda d: d.kernel(kernels.square), "square is a device function"),
        (lambda d: d.kernel(lambda x, y=1: None), "has a default"),
        (lambda d: d.kernel(lambda *x: None), "positional ones"),
        (lambda d: d.kernel(kernels.scale, writes=["z"]), "'z'; parameters of scale: x, y, factor"),
        (lambda d: d.kernel(kernels.scale, writes="x"), "sequence of parameter names"),
        (lambda d: d.kernel(kernels.scale, actor="memory"), "'memory'"),
        (lambda d: d.kernel(kernels.scale, max_registers=3), "from 16 to 255"),
        (lambda d: d.kernel(kernels.scale)[3], r"kernel\[grid, block\]"),
        (lambda d: d.kernel(kernels.scale)[0, 1], "from 1 to"),
        (lambda d: d.kernel(kernels.scale)[1, (32, 33)], "1056 threads; at most 1024"),
        (lambda d: d.kernel(kernels.scale)[1, 1, -1], "shared is -1"),
        (lambda d: d.kernel(kernels.scale)[(1, 1, 1, 1), 1], "one to three"),
        (lambda d: d.kernel(kernels.scale).forall(-1), "0 or more"),
        (lambda d: d.kernel(kernels.scale)[1, 1](1), "takes 3 arguments .x, y, factor., got 1"),
        (lambda d: d.kernel(kernels.scale)[1, 1](np.ones(3), 1, 2), "x is a ndarray"),
        (lambda d: d.kernel(kernels.scale)[1, 1](d.empty(3), 2**63, 2), "must fit 64 bits"),
        (lambda d: d.kernel(kernels.scale)[1, 1](d.empty(3), 1, "2"), "factor is a str"),
        (lambda d: d.kernel(kernels.scale)[1, 1](d.empty(3), 1, 2, uses=[3]), r"uses\[0\] is a int"),
        (
            lambda d: d.kernel(kernels.scale)[1, 1](d.empty(3), 1, 2, uses=d.empty(3)),
            "uses is <GpuRef .*; allowed: a list",
        ),
        (lambda d: d.kernel(kernels.scale)[1, 1](d.empty(3), 1, 2, uses=None), "uses is None; allowed: a list"),
        (lambda d: d.kernel(kernels.scale)(d.empty(3), 1, 2), "scale is called without a grid; allowed: kernel.grid"),
        (lambda d: d.kernel(kernels.scale, writes=3), "writes is 3; allowed: a sequence of parameter names"),
        (lambda d: d.kernel(kernels.scale, overwrites=np.array(1)), "overwrites is array.1.; allowed: a sequence"),
        (lambda d: d.kernel(kernels.scale, debug="no"), "debug='no'; allowed: False, True"),
        (lambda d: d.kernel(kernels.scale, fastmath=1), "fastmath=1; allowed: False, True"),
        (lambda d: d.kernel(kernels.scale, stand_ins=["cube"]), "stand_ins is .'cube'.; allowed: a mapping"),
        (lambda d: d.kernel(kernels.scale).forall(np.float32(8)), "0 or more"),
        (lambda d: an.Records(d.empty(3), np.dtype("f4")), "has no fields"),
        (lambda d: an.Records(d.empty((3, 4), "uint8"), "floaty"), "dtype 'floaty' is none of structs"),
        (lambda d: an.Records(d.empty((3, 4), "uint8"), kernels.PARTICLE), "16 bytes"),
    ],
)
def test_bad_input(device: an.Device, wrong: Any, text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=text):
        wrong(device)


def test_float8_is_refused_on_every_device(device: an.Device) -> None:
    with pytest.raises(an.Unsupported, match=r"x is <GpuRef float8_e5m2\[3\] .*ref.view\('uint8'\)"):
        device.kernel(kernels.scale)[1, 1](device.zeros(3, "float8_e5m2"), 1, 2)


def types_of(*names: str) -> tuple[Any, ...]:
    return tuple(
        api.array_type(np.dtype(name[:-2]), name.count("]") + name.count(","), "C")
        if name.endswith("]")
        else api.scalar_type(name)
        for name in names
    )


@pytest.mark.parametrize("capability", [(8, 0), (9, 0), (10, 0)])
@pytest.mark.parametrize("checks", [False, True])
def test_compilation_needs_no_gpu(tools: None, capability: tuple[int, int], checks: bool) -> None:
    types = (*types_of("float32[]", "float32[]"), api.scalar_type("float64"))
    options = compiler.jit_options(kernels.scale)
    made = linker.machine_code(kernels.scale.py_func, types, capability, options, checks=checks)
    cubin = made.code.data
    assert cubin.startswith(b"\x7fELF")
    assert made.entry.encode() in cubin
    assert "scale" in made.entry
    assert [site.rpartition(": ")[2] for site in made.sites] == (["x[i]", "y[i]"] if checks else [])


def test_compile_errors_say_what_numba_says(tools: None) -> None:
    def wrong(x):
        x[0] = no_such_thing  # noqa: F821

    with pytest.raises(an.LibraryError, match="no_such_thing"):
        linker.machine_code(wrong, types_of("float32[]"), (9, 0), compiler.jit_options(wrong))


def test_dtypes_without_arrays_in_numba() -> None:
    with pytest.raises(an.Unsupported, match=r"float8_e4m3fn.*uint8"):
        api.array_type(as_dtype("float8_e4m3fn"), 1, "C")
