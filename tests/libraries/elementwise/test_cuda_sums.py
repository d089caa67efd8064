"""Sums that are read by 16 bytes, and masks over columns: as kernels on the processor, and on a GPU if there is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from codegen_engines import Engine, engines, need_nvrtc, poison
from lowered import lowered
from msgspec.structs import replace
from placements import GPU

from atomr_native.builders.cuda.sums import Reduction, build_drelu, build_sum
from atomr_native.builders.cuda.target import KernelProgram, Target
from atomr_native.dtypes import DTYPES
from atomr_native.libraries.elementwise.request import ReduceRequest
from atomr_native.plans.spec import READ, WRITE, OperandSpec, PlanSpec

UNIT = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


@pytest.fixture(scope="module", params=["cpu", *GPU])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engines(request.param, tmp_path_factory) as made:
        yield made


def random(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Numbers in memory that begins at a multiple of 256 bytes."""
    return shifted(np.random.default_rng(seed).standard_normal(shape).astype(DTYPES[dtype]), 0)


def shifted(array: np.ndarray, elements: int) -> np.ndarray:
    """Copy an array to where it begins so many elements after a multiple of 256 bytes."""
    memory = np.empty(array.nbytes + 512, np.uint8)
    start = -memory.ctypes.data % 256 + elements * array.itemsize
    made = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def plain(**arrays: np.ndarray) -> list[OperandSpec]:
    """Operands of a plan's specification."""
    return [OperandSpec(name, x.dtype.name, x.shape, x.strides, READ | WRITE) for name, x in arrays.items()]


def reduction(spec: PlanSpec) -> Reduction:
    """What kernels are made of for a reduction."""
    given = spec.attributes
    return Reduction(*spec.operands, given.reduction, given.axes, given.accumulate)


def total(engine: Engine, x: np.ndarray, axis: Any, op: str = "sum", *, wide: bool = True) -> np.ndarray:
    """Sum on the engine, and compare with float64."""
    spec, fresh = lowered(ReduceRequest(op=op, x=x, axis=axis))
    with engine.building():
        assert (build_sum(reduction(spec), engine.target) is not None) is wide
    out = poison(*fresh)
    engine.run(spec, (x, out))
    numbers = x.astype(np.float64)
    exact, size = getattr(np, op)(numbers, axis), getattr(np, op)(abs(numbers), axis)
    within = 40 * 2.0**-24 * size + UNIT[out.dtype.name] * (abs(exact) + 1e-30) * 1.01
    assert (abs(out.astype(np.float64) - exact) <= within).all()
    return out


ROWS = {
    "one row": ((4096,), None), "rows": ((7, 1024), 1), "a rest": ((3, 5, 1032), -1), "not whole": ((1, 1037), 1),
    "short": ((600, 16), 1), "all": ((6, 40, 32), None), "batch": ((2, 3, 264), 2), "long": ((2, 40000), 1),
}  # fmt: skip
COLUMNS = {
    "columns": ((700, 64), 0), "wide": ((40, 1032), 0), "batch": ((3, 65, 24), 1), "many": ((3000, 8), 0),
    "two batches": ((2, 3, 33, 16), 2), "few": ((3, 8), 0), "outer": ((5, 6, 272), (0, 1)), "middle": ((4, 31, 520), 1),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", [*ROWS, *COLUMNS])
def test_sums(engine: Engine, dtype: str, case: str) -> None:
    shape, axis = (ROWS | COLUMNS)[case]
    x = random(shape, dtype)
    found = total(engine, x, axis)
    # The same order wherever the array is, so the same bits.
    assert total(engine, shifted(x, 1), axis).tobytes() == found.tobytes()
    assert total(engine, x, axis).tobytes() == found.tobytes()
    if dtype == "bfloat16":
        total(engine, x, axis, "mean")


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("dtype", UNIT)
def test_extrema(engine: Engine, dtype: str, op: str) -> None:
    """Of rows and columns, of infinities, and of NaN, which stays; wherever the array is."""
    for shape, axis in ((1, 1037), 1), ((40, 1032), 0), ((5, 6, 272), (0, 1)), ((4, 9, 3, 24), (0, 2)), ((3, 40000), 1):
        x = random(shape, dtype)
        x[..., -1] = {"max": -np.inf, "min": np.inf}[op]  # the result of a column, and what rows begin with
        x.reshape(-1)[[3, 70, -5]] = [np.nan, -np.inf, np.inf]
        x = x if shape[0] > 1 else x[:, 4:] * np.float32(-1).astype(x.dtype)
        for given in (x, shifted(x, 1)):
            spec, fresh = lowered(ReduceRequest(op=op, x=given, axis=axis))
            with engine.building():
                assert build_sum(reduction(spec), engine.target) is not None
            out = poison(*fresh)
            engine.run(spec, (given, out))
            np.testing.assert_array_equal(out.astype(float), getattr(np, op)(given.astype(float), axis))


def test_columns_are_reduced_along_several_axes(engine: Engine) -> None:
    x = random((5, 12, 7, 96), "float32")
    total(engine, x, (0, 2))
    total(engine, x, (0, 2), "mean")
    total(engine, x[:, 1:5, ::2], (0, 2))
    total(engine, x[:, :, :, 1:], (0, 2))


@pytest.mark.parametrize("op", ["sum", "mean", "max"])
def test_rows_are_parts_where_more_axes_are_reduced(engine: Engine, op: str) -> None:
    """Outside of neighbours, also several of them, and rows that are cut, or do not end with a whole group."""
    for shape, axis in (
        ((9, 5, 128), (0, 2)),
        ((7, 3, 4, 70), (0, 2, 3)),
        ((3, 2, 40000), (0, 2)),
        ((2, 3, 4, 64), (0, 3)),
        ((3, 520, 68), (0, 2)),  # by the same threads, one after the other
        ((7, 96, 68), (0, 2)),  # so in parts, of which the last one is shorter
    ):
        total(engine, random(shape, "float32"), axis, op)
    total(engine, random((3, 4, 5, 80), "float32")[..., :66], (0, 2, 3), op)
    total(engine, random((3, 4, 5, 70), "float32")[..., :66], (0, 2, 3), op, wide=False)  # rows begin anywhere
    total(engine, random((5, 7, 96), "bfloat16"), (0, 2), op)
    total(engine, random((9, 5, 60), "float32"), (0, 2), op, wide=False)  # too short for a part


@pytest.mark.parametrize("dtype", UNIT)
def test_sums_of_views(engine: Engine, dtype: str) -> None:
    base = random((70, 3, 128), dtype)
    for x in (base[3:40, 1], base[:, 2, 16:80], base[:, 1].T, base[::2, 0, 8:], base[:, 0, 1:], base[:, 0, 8:21]):
        for axis in (0, 1):
            total(engine, x, axis)
    for x, axis in (
        (base[:, :, ::2], 2),
        (base[:, 0, ::2], 0),
        (random((9, 13), dtype), 0),
        (random((9, 13), dtype), 1),
    ):
        total(engine, x, axis, wide=False)


def drelu(
    engine: Engine, x: np.ndarray, mask: np.ndarray, sums: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray | None] | None:
    """Mask in place on the engine."""
    named = plain(out=x, aux=mask, **({} if sums is None else {"bias_grad": sums}))
    with engine.building():
        built = build_drelu(named[0], named[1], None if sums is None else named[2], engine.target)
    if built is None:
        return None
    assert isinstance(built.run, KernelProgram)
    engine.launch(built.run, (x, mask) if sums is None else (x, mask, sums))
    return x, sums


MASKED = {
    "one": (1, 8), "small": (5, 24), "wide": (40, 1032), "high": (700, 64), "batch": (3, 33, 256), "two": (2, 2, 9, 40),
}  # fmt: skip


#: Each case of each dtype, and half of them at each address.
DRELU = [(dtype, case, (i + j) % 2) for i, dtype in enumerate(UNIT) for j, case in enumerate(MASKED)]


@pytest.mark.parametrize(("dtype", "case", "start"), DRELU)
def test_drelu(engine: Engine, dtype: str, case: str, start: int) -> None:
    shape = MASKED[case]
    rng = np.random.default_rng(5)
    *batch, rows, columns = shape
    mask = rng.integers(0, 256, (*batch, rows, -(-columns // 128) * 16), np.uint8)
    keep = np.unpackbits(mask, axis=-1, count=columns, bitorder="little").astype(bool)
    x = random(shape, dtype)
    x.reshape(-1)[:4] = [np.nan, np.inf, -np.inf, -0.0]
    want = np.where(keep, x, DTYPES[dtype].type(0))
    once = drelu(engine, shifted(x, start), mask)
    assert once is not None
    assert once[0].tobytes() == want.tobytes()
    numbers = np.nan_to_num(x.astype(np.float32), posinf=3, neginf=-2).astype(DTYPES[dtype])
    summed = []
    for given in (DTYPES[dtype], np.dtype(np.float32)):
        both = drelu(engine, shifted(numbers, start), mask, poison((*batch, columns), given))
        assert both is not None
        kept = np.where(keep, numbers, DTYPES[dtype].type(0))
        assert both[0].tobytes() == kept.tobytes()
        exact, size = (v.astype(np.float64).sum(-2) for v in (kept, abs(kept)))
        got = both[1]
        assert got is not None
        within = 40 * 2.0**-24 * size + UNIT[given.name] * 1.01 * abs(exact) + 1e-30
        assert (abs(got.astype(np.float64) - exact) <= within).all()
        summed.append(got)
    assert summed[0].tobytes() == summed[1].astype(DTYPES[dtype]).tobytes()


def test_drelu_in_views(engine: Engine) -> None:
    base, mask = random((3, 40, 128), "bfloat16"), np.full((3, 40, 48), 0x5A, np.uint8)
    whole = base.copy()
    view, bits = base[1:, ::2, 16:88], mask[1:, ::2, 16:32]
    sums = poison((2, 144), np.dtype(np.float32))[:, ::2]
    assert drelu(engine, view, bits, sums) is not None
    keep = np.unpackbits(bits, axis=-1, count=72, bitorder="little").astype(bool)
    assert view.tobytes() == np.where(keep, whole[1:, ::2, 16:88], DTYPES["bfloat16"].type(0)).tobytes()
    np.testing.assert_allclose(sums, view.astype(np.float64).sum(1), rtol=1e-5, atol=1e-5)
    base[1:, ::2, 16:88] = whole[1:, ::2, 16:88]
    assert base.tobytes() == whole.tobytes()  # nothing beside it was written
    for bad in (view[..., :13], base.swapaxes(1, 2)[:, :, ::8][:, :40, :5], random((3, 40, 12), "bfloat16")):
        assert drelu(engine, bad, mask[..., :16]) is None


@pytest.mark.parametrize("dtype", UNIT)
def test_they_compile_for_a_gpu(dtype: str) -> None:
    need_nvrtc()
    hopper = Target("sm_90a")
    x, mask = np.zeros((300, 1024), DTYPES[dtype]), np.zeros((300, 128), np.uint8)
    for op, axis in (("sum", 0), ("sum", 1), ("max", 0), ("min", 1)):
        spec, _ = lowered(ReduceRequest(op=op, x=x, axis=axis))
        assert build_sum(reduction(spec), hopper) is not None
    spec, _ = lowered(ReduceRequest(op="sum", x=x.reshape(30, 10, 1024), axis=(0, 2)))
    assert build_sum(reduction(spec), hopper) is not None
    out, aux, sums = plain(out=x, aux=mask, bias_grad=x[0])
    far = replace(out, strides=(2**34, x.itemsize))  # which needs offsets of 64 bits
    for matrix in (out, far):
        assert build_drelu(matrix, aux, sums, hopper) is not None
    assert build_sum(Reduction(far, sums, "sum", (0,), "float32"), hopper) is not None
    assert build_sum(Reduction(far, replace(sums, shape=(300,)), "sum", (1,), "float32"), hopper) is not None
