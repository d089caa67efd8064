"""A CUDA device through the public API: on the fake driver, and on a GPU where there is one."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest
from actions import eventually
from crash import restart

import atomr_native as an
from atomr_native.dtypes import as_dtype
from atomr_native.plans.plan import Plan
from atomr_native.plans.signature import Signature
from atomr_native.plans.spec import READ, WRITE, OperandSpec

#: Largest error relative to the largest element: a few units of the last place of the dtype that D is rounded to.
TOLERANCES = {"float32": 3e-6, "float64": 1e-13, "float16": 2e-3, "bfloat16": 1.5e-2}


@pytest.fixture(scope="module")
def system(cuda_engine: str) -> Iterator[an.System]:
    with an.System(allow_crash=True, within=0.0, watchdog=20.0) as made:  # each death a first one
        yield made


@pytest.fixture(scope="module")
def device(system: an.System) -> an.Device:
    return system.device("cuda:0")


@pytest.fixture(scope="module")
def host(system: an.System) -> an.Device:
    return system.device("host")


def random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return rng.standard_normal(shape).astype(getattr(ml_dtypes, dtype, dtype))


def gpu_fault(device: an.Device, how: str, ref: an.GpuRef) -> an.Reply:
    operand = OperandSpec("x", ref.layout.dtype_name, ref.shape, ref.strides, READ | WRITE)
    spec = an.PlanSpec("test.gpu_fault", (operand,), (), (("how", how),))
    lane = device.lane("faults").lane
    return Plan.make(device._state, lane, spec, Signature(("x",), ("x",), ())).ask(ref)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "float8_e4m3fn", "complex128"])
@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (37, 53), (5, 1, 4099)])
def test_put_and_get(device: an.Device, dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    data = (rng.standard_normal(shape) * 8).astype(as_dtype(dtype))
    ref = device.put(data)
    assert ref.numpy().tobytes() == data.tobytes()
    assert device.copy(ref).numpy().tobytes() == data.tobytes()


def test_views_and_conversions(device: an.Device) -> None:
    data = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    ref = device.put(data)
    np.testing.assert_array_equal(ref[1:, ::2, 3].numpy(), data[1:, ::2, 3])
    np.testing.assert_array_equal(ref.T.numpy(), data.T)
    np.testing.assert_array_equal(device.copy(ref, dtype="int16").numpy(), data.astype(np.int16))
    device.put(np.zeros((3, 4), np.float32), out=ref[:, :, 2])
    data[:, :, 2] = 0
    np.testing.assert_array_equal(ref.numpy(), data)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("extents", [(1, 1, 1), (64, 32, 48), (257, 129, 65), (128, 1024, 256)])
@pytest.mark.parametrize("transposes", [(False, False), (True, False), (False, True), (True, True)])
def test_matmul(device: an.Device, dtype: str, extents: tuple[int, ...], transposes: tuple[bool, bool]) -> None:
    m, n, k = extents
    rng = np.random.default_rng(m + n + k)
    a = random(rng, (k, m) if transposes[0] else (m, k), dtype)
    b = random(rng, (n, k) if transposes[1] else (k, n), dtype)
    wide = [x.astype(np.float64).T if t else x.astype(np.float64) for x, t in zip((a, b), transposes, strict=True)]
    expected = 1.5 * (wide[0] @ wide[1])
    refs = device.put(a), device.put(b)
    out = device.full((m, n), float("nan"), dtype)
    try:
        device.blas_lt.matmul(*refs, alpha=1.5, trans_a=transposes[0], trans_b=transposes[1], out=out)
    except an.Unsupported as error:
        pytest.skip(str(error))
    found = out.numpy().astype(np.float64)
    assert np.abs(found - expected).max() <= TOLERANCES[dtype] * max(np.abs(expected).max(), 1.0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("epilogue", list(an.Epilogue))
def test_epilogues_are_those_of_the_host(device: an.Device, host: an.Device, epilogue: an.Epilogue, dtype: str) -> None:
    rng = np.random.default_rng(7)
    m, n, k = 96, 128, 64
    a, b, bias = random(rng, (m, k), dtype), random(rng, (k, n), dtype), random(rng, (n,), dtype)
    forward = {"drelu": "relu_aux", "drelu_bgrad": "relu_aux", "dgelu": "gelu_aux", "dgelu_bgrad": "gelu_aux"}
    answers = []
    aux = None
    if epilogue in forward:  # both devices get the very same aux
        aux = host.blas_lt.matmul(host.put(a), host.put(b), epilogue=forward[epilogue]).aux.numpy()
    for where in (host, device):
        options = {"bias": where.put(bias)} if "bias" in epilogue else {}
        if aux is not None:
            options["aux"] = where.put(aux)
        try:
            result = where.blas_lt.matmul(where.put(a), where.put(b), epilogue=epilogue, **options)
        except an.Unsupported as error:
            assert where is device
            pytest.skip(str(error))
        answers.append(result if isinstance(result, tuple) else (result,))
    for theirs, ours in zip(*answers, strict=True):
        if theirs is None:
            assert ours is None
            continue
        expected, found = theirs.numpy(), ours.numpy()
        if expected.dtype == np.uint8:  # a mask: equal but for values that are nearly zero
            assert np.unpackbits(expected ^ found).mean() < 1e-3
            continue
        expected, found = expected.astype(np.float64), found.astype(np.float64)
        # Sums over 96 rows of values that differ by one rounding each.
        assert np.abs(found - expected).max() <= 4 * TOLERANCES[dtype] * np.abs(expected).max()


def test_order_across_actors(device: an.Device) -> None:
    """Messages of three actors to one array run in the order in which they were sent."""
    x = device.zeros((1 << 16,), "float64")
    one = device.put(np.ones((1, 1)))
    expected = 0.0
    rng = np.random.default_rng(3)
    for _ in range(400):
        kind = rng.integers(3)
        if kind == 0:
            device.elementwise.run("x = x * 3 + 1", x=x)
            expected = expected * 3 + 1
        elif kind == 1:
            device.blas_lt.matmul(one, x[:1].reshape(1, 1), alpha=0.5, out=(half := device.empty((1, 1), "float64")))
            device.elementwise.run("x = x * 0 + h", x=x, h=half.reshape(1))
            expected *= 0.5
        else:
            x.fill(2.0)
            expected = 2.0
        if not abs(expected) < 1e100:
            x.fill(expected := 1.0)
    assert (x.numpy() == expected).all()


@pytest.mark.parametrize("how", ["illegal address", "misaligned address", "trap"])
def test_a_gpu_fault_is_survived(device: an.Device, how: str) -> None:
    weights = device.put(np.arange(1000.0), durable=True)
    group = device.durable_group({"w": weights}, checksum=True)
    group.commit(3).result(60)
    weights.fill(0.0)
    activations = device.put(np.ones(10))
    generation = device.generation
    reply = gpu_fault(device, how, device.put(np.zeros(4)))
    with pytest.raises(an.DeviceFault) as caught:
        reply.result(60)
    assert caught.value.restarted
    assert any(suspect.operation == "test.gpu_fault" for suspect in caught.value.suspects)
    assert "CUDA_ERROR" in str(caught.value)
    eventually(lambda: device.generation > generation)
    device.wait_ready(60)
    with pytest.raises(an.GpuRefStale):
        activations.numpy()
    group.restore()
    np.testing.assert_array_equal(weights.numpy(), np.arange(1000.0))
    assert (group.sequence, group.tag) == (1, 3)


def test_an_endless_kernel_is_ended_by_the_watchdog(cuda_engine: str) -> None:
    with an.System(allow_crash=True, watchdog=1.0) as system:
        device = system.device("cuda:0")
        kept = device.put(np.arange(5.0), durable=True).wait()
        with pytest.raises(an.DeviceFault):
            gpu_fault(device, "endless", device.put(np.zeros(4))).result(60)
        device.wait_ready(60)
        np.testing.assert_array_equal(kept.numpy(), np.arange(5.0))


def test_kills_while_it_works(device: an.Device) -> None:
    total = device.zeros((100,), "float64", durable=True)
    group = device.durable_group({"t": total})
    group.commit(0).result(60)
    for _ in range(5):
        step = group.tag
        for i in range(step + 1, step + 200):
            device.elementwise.run("t += 1", t=total)
            if i % 20 == 0:
                group.commit(i)
        restart(device)
        group.restore()
        found = total.numpy()
        assert (found == group.tag).all()


def test_out_of_memory_leaves_the_device_usable(device: an.Device) -> None:
    with pytest.raises(an.OutOfMemory):
        device.empty((1 << 44,), "uint8")
    assert device.full((3,), 2.0).numpy().tolist() == [2.0, 2.0, 2.0]
