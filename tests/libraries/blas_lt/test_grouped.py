"""Products in groups, in each way that a CUDA device has: on the fake driver, on a GPU if there is, and on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matmul_reference import check, random, reference

import atomr_native as an
from atomr_native.errors import Unsupported
from atomr_native.libraries.blas_lt.request import MatmulRequest

ALIKE = ((16, 32, 48),) * 5
UNLIKE = ((16, 8, 32), (48, 24, 16), (48, 24, 16), (5, 8, 7), (64, 16, 128))


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def operands(seed: int, extents: tuple[tuple[int, int, int], ...], dtype: str, trans: bool) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)
    return {
        "a": [random(rng, (m, k), dtype) for m, _, k in extents],
        "b": [random(rng, (n, k) if trans else (k, n), dtype) for _, n, k in extents],
        "c": [random(rng, (m, n), dtype) for m, n, _ in extents],
    }


def scattered(device: an.Device, arrays: list[np.ndarray]) -> list[an.GpuRef]:
    """Put arrays at odd places of one allocation, the last one first."""
    gap = 256 // arrays[0].itemsize
    sizes = [-(-x.size // gap) * gap + gap for x in arrays]
    whole = device.put(np.zeros(sum(sizes), arrays[0].dtype))
    made, at = [], sum(sizes)
    for x, size in zip(arrays, sizes, strict=True):
        at -= size
        view = whole[at : at + x.size].reshape(x.shape)
        device.copy(device.put(x), out=view)
        made.append(view)
    return made


def run(
    device: an.Device, given: dict[str, list[Any]], gpu: bool, *, added: str = "none", **options: Any
) -> tuple[str, ...]:
    """Send a group, compare it with float64, and return the notes of its plan."""
    trans, way = options.pop("trans_b", False), options.pop("way", "auto")
    refs = {name: scattered(device, given[name]) for name in "abc"}
    factors = {"alpha": 0.5, "beta": 0.0 if added == "none" else -1.5}
    lists: dict[str, Any] = {} if added == "none" else {"c": refs["c"]}
    if added == "out":
        lists["out"] = refs["c"]
    more = lists | factors | options | {"trans_b": trans}
    got = device.blas_lt.grouped(refs["a"], refs["b"], way=way, **more)
    for i, out in enumerate(got):
        one = MatmulRequest(
            a=given["a"][i], b=given["b"][i], c=None if added == "none" else given["c"][i], trans_b=trans, **factors,
            **options,
        )  # fmt: skip
        check({"out": out.numpy()}, {"out": reference(one, gpu=gpu)["out"]}, 0)
    return device.blas_lt.grouped_plan(refs["a"], refs["b"], way=way, **more).notes


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("way", ["batched", "grouped", "each"])
def test_every_way(device: an.Device, cuda_engine: str, way: str, trans: bool, dtype: str) -> None:
    given = operands(0, ALIKE if way == "batched" else UNLIKE, dtype, trans)
    for added in ("none", "out", "c"):
        if (way, added) == ("grouped", "c"):
            continue
        notes = run(device, given, cuda_engine == "gpu", way=way, added=added, trans_b=trans)
        words = {"batched": "one call of cuBLASLt", "grouped": "of 4 shapes in one call", "each": "one after the other"}
        assert device.name == "host" or words[way] in notes[0]


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        ("int8", {"out_dtype": "int32"}),
        ("complex64", {}),
        ("float8_e4m3fn", {"out_dtype": "bfloat16", "fast_accum": True}),
        ("bfloat16", {"out_dtype": "float32"}),
        ("float32", {"compute": "tf32"}),
    ],
)
def test_other_types_by_arrays_of_addresses(
    device: an.Device, cuda_engine: str, dtype: str, options: dict[str, Any]
) -> None:
    rng = np.random.default_rng(1)
    a, b = ([random(rng, (32, 64), dtype) for _ in range(3)] for _ in range(2))
    refs = [[device.put(x) for x in arrays] for arrays in (a, b)]
    got = device.blas_lt.grouped(*refs, trans_b=True, **options)
    for x, y, z in zip(a, b, got, strict=True):
        request = MatmulRequest(a=x, b=y, trans_b=True, **options)
        check({"out": z.numpy()}, reference(request, gpu=cuda_engine == "gpu"), 0)


def test_the_first_way_that_can_be_is_taken(cuda: an.Device, cuda_engine: str) -> None:
    gpu = cuda_engine == "gpu"
    alike, unlike = operands(2, ALIKE, "float32", False), operands(2, UNLIKE, "float32", False)
    assert "cuBLASLt" in run(cuda, alike, gpu)[0]
    assert "cublasGemmGroupedBatchedEx" in run(cuda, unlike, gpu)[0]
    (note,) = run(cuda, unlike, gpu, added="c")
    assert note.startswith("5 products one after the other; not batched: member 1 is not like member 0; not grouped: ")
    assert "a c apart from out" in note
    assert "epilogue 'relu'" in run(cuda, alike, gpu, epilogue="relu")[0]
    wide = cuda.put(np.ones((4, 4)))
    assert "one member" in cuda.blas_lt.grouped_plan([wide], [wide]).notes[0]
    empty = cuda.put(np.ones((0, 4), np.float32))
    x = cuda.put(np.ones((4, 4), np.float32))
    plan = cuda.blas_lt.grouped_plan([empty, x], [x, x])
    assert "empty" in plan.notes[0]
    with pytest.raises(Unsupported, match="not like member 0"):
        cuda.blas_lt.grouped_plan([x, x[:2]], [x, x], way="batched").wait()
    z = cuda.put(np.ones((4, 4), np.int8))
    with pytest.raises(Unsupported, match="cublasGemmGroupedBatchedEx takes"):
        cuda.blas_lt.grouped_plan([z, z], [z, z], way="grouped").wait()
    with pytest.raises(an.InvalidRequest, match="way='fast'; allowed: 'auto', 'batched'"):
        cuda.blas_lt.grouped([x], [x], way="fast")


def test_members_that_start_anywhere(device: an.Device) -> None:
    flat = device.put(np.arange(200, dtype=np.float32) / 64)
    a, b = [flat[i : i + 64].reshape(8, 8) for i in (0, 65)], [flat[i : i + 64].reshape(8, 8) for i in (3, 100)]
    for x, y, z in zip(a, b, device.blas_lt.grouped(a, b), strict=True):
        np.testing.assert_allclose(z.numpy(), x.numpy() @ y.numpy(), rtol=1e-4)
    if device.name != "host":
        assert "16 bytes" in device.blas_lt.grouped_plan(a, b).notes[0]
        half = device.put(np.ones(200, np.float16))
        aligned = [half[i : i + 64].reshape(8, 8) for i in (0, 64)]
        plan = device.blas_lt.grouped_plan(aligned, aligned, way="grouped")
        odd, out = half[1:65].reshape(8, 8), [device.empty((8, 8), "float16") for _ in range(2)]
        with pytest.raises(
            Unsupported, match="member 1 starts at an address that is no multiple of 16 bytes"
        ) as caught:
            plan.ask(aligned[0], aligned[0], out[0], odd, aligned[0], out[1]).result(30)
        assert caught.value.rule == "blas_lt.alignment"


def test_as_many_members_as_a_message_holds(device: an.Device) -> None:
    a = [device.put(np.full((8, 8), i + 1, np.float32)) for i in range(80)]
    for way in ("batched", "grouped"):
        got = device.blas_lt.grouped(a, a[::-1], way=way)
        assert [float(x.numpy()[0, 0]) for x in got] == [8 * (i + 1) * (80 - i) for i in range(80)]
    with pytest.raises(an.InvalidRequest, match="at most 240"):
        device.blas_lt.grouped([*a, a[0]], [*a, a[0]])


@pytest.mark.parametrize("way", ["batched", "grouped"])
def test_members_are_operands_like_others(device: an.Device, way: str) -> None:
    x, y = (device.put(np.ones((8, 8), np.float32)) for _ in range(2))
    for _ in range(20):  # each depends on what another actor has just written
        device.elementwise.run("x + 1", x=x, out=x)
        (first, second) = device.blas_lt.grouped([x, y], [y, x], way=way)
        device.copy(first, out=second)
    assert (second.numpy() == 21 * 8).all()
    x.free()
    with pytest.raises(an.GpuRefStale):
        device.blas_lt.grouped([x, y], [y, y], way=way)
