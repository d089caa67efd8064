"""Products with a vector of matrices whose rows are known to be short, and what decides for their kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sparse_checks import DTYPES, tolerance, values_of

import atomr_native as an
from atomr_native.libraries.sparse.cuda.short_rows import FEWEST, LONGEST, takes

NOTE = "computed by a kernel for short rows, some in a block"
#: Rows, of which the last block has a part only; columns.
ROWS, COLUMNS = FEWEST + 77, 900
WIDE = {"float16": "float64", "bfloat16": "float64", "float32": "float64", "complex64": "complex128", "int8": "int32"}


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def matrix(longest: int, dtype: str, seed: int = 1) -> tuple[dict[str, np.ndarray[Any, Any]], Any]:
    """Return the arrays of a matrix with rows of 0 to `longest` elements, and the same in float64."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, longest + 1, ROWS)
    lengths[5] = longest
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype("i4")
    indices = np.concatenate([np.sort(rng.choice(COLUMNS, n, replace=False)) for n in lengths]).astype("i4")
    values = values_of(rng, (len(indices),), dtype)
    wide = scipy.sparse.csr_array((values.astype(WIDE.get(dtype, dtype)), indices, offsets), shape=(ROWS, COLUMNS))
    return {"values": values, "indices": indices, "offsets": offsets}, wide


def made(device: an.Device, parts: dict[str, np.ndarray[Any, Any]], longest: int | None, index: str) -> an.SparseMatrix:
    arrays = {name: device.put(part, dtype=None if name == "values" else index) for name, part in parts.items()}
    return an.SparseMatrix("csr", (ROWS, COLUMNS), **arrays, longest=longest)


def notes(device: an.Device, a: an.SparseMatrix, x: an.GpuRef, **options: Any) -> tuple[str, ...]:
    given = {"format": a.format, "shape": a.shape, "longest": a.longest, **a.arrays, "x": x, **options}
    found: tuple[str, ...] = device.sparse.plan(an.SparseProductRequest(routine="spmv", **given)).wait(60).notes
    return found


#: Each dtype with the longest rows, and with rows of one element or a few.
PRODUCTS = [(dtype, LONGEST, "int32") for dtype in DTYPES]
PRODUCTS += [(dtype, *((1, "int64"), (7, "int32"))[i % 2]) for i, dtype in enumerate(DTYPES)]


@pytest.mark.parametrize(("dtype", "longest", "index"), PRODUCTS)
def test_products(device: an.Device, dtype: str, longest: int, index: str) -> None:
    parts, wide = matrix(longest, dtype)
    a = made(device, parts, longest, index)
    x = values_of(np.random.default_rng(2), (COLUMNS,), dtype)
    at, b = device.put(np.repeat(x, 2))[::2], x.astype(wide.dtype)
    if device.kind == "cuda":
        assert NOTE in notes(device, a, at)
    size = abs(wide) @ abs(b)
    bound = tolerance(dtype) * size
    assert (abs(device.sparse.spmv(a, at).numpy().astype(wide.dtype) - wide @ b) <= bound).all()
    before = values_of(np.random.default_rng(3), (ROWS,), "int32" if dtype == "int8" else dtype)
    out = device.zeros((2 * ROWS,), "int32" if dtype == "int8" else dtype)[::2]
    device.copy(device.put(before), out=out)
    device.sparse.spmv(a, at, alpha=-2.0, beta=3.0, conj=dtype.startswith("complex"), out=out)
    want = -2.0 * (wide.conj() @ b) + 3.0 * before.astype(wide.dtype)
    assert (abs(out.numpy().astype(wide.dtype) - want) <= 3 * bound + 8 * tolerance(dtype) * abs(before)).all()
    turned = replace(a, format="csc", shape=(COLUMNS, ROWS))
    assert (abs(device.sparse.spmv(turned, at, trans=True).numpy().astype(wide.dtype) - wide @ b) <= bound).all()


def test_what_was_promised_need_not_be_true(device: an.Device) -> None:
    """Blocks with more elements than they have room for, indices of no column, and NaN where nothing is stored."""
    parts, wide = matrix(20, "float64")
    a = made(device, parts, 2, "int32")
    x = np.random.default_rng(2).standard_normal(COLUMNS)
    unused = np.setdiff1d(np.arange(COLUMNS), parts["indices"])
    x[unused] = np.nan
    want = wide @ np.nan_to_num(x)
    np.testing.assert_allclose(device.sparse.spmv(a, device.put(x)).numpy(), want, rtol=1e-12, atol=1e-12)
    if device.kind == "host":
        return
    bad = {**parts, "indices": parts["indices"].copy(), "offsets": parts["offsets"].copy()}
    bad["indices"][::2] = np.where(np.arange(len(bad["indices"][::2])) % 2, -1, COLUMNS)
    bad["offsets"][-1] += 10  # behind the last element
    kept = np.arange(len(bad["indices"])) % 2 == 1
    want = scipy.sparse.csr_array((wide.data * kept, wide.indices, wide.indptr), shape=wide.shape) @ np.nan_to_num(x)
    for longest in (2, 20):
        found = device.sparse.spmv(made(device, bad, longest, "int32"), device.put(np.nan_to_num(x))).numpy()
        np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-12)


def test_the_kernel_is_for_short_rows_only(device: an.Device) -> None:
    parts, wide = matrix(3, "float32")
    x = device.ones((COLUMNS,), "float32")
    known = device.sparse.matrix(wide.astype("f4"))
    assert (known.longest, known.T.longest, known.with_values(known.values).longest) == (3, 3, 3)
    assert device.sparse.matrix(scipy.sparse.csc_array(np.eye(4)[:, :2])).longest == 1
    assert device.sparse.matrix(scipy.sparse.coo_array(np.eye(3))).longest is None
    assert device.sparse.matrix(scipy.sparse.csr_array((3, 3), dtype="f4")).longest == 0

    def taken(**changed: Any) -> bool:
        given = {"routine": "spmv", "format": "csr", "shape": (ROWS, COLUMNS), "longest": 3, **known.arrays, "x": x}
        return takes(an.SparseProductRequest(**given | changed).lowered.spec())

    assert taken()
    assert taken(longest=LONGEST)
    for changed in ({"longest": None}, {"longest": 0}, {"longest": LONGEST + 1}):
        assert not taken(**changed)
    assert not taken(trans=True, x=device.ones((ROWS,), "float32"))
    assert not taken(routine="spmm", x=device.ones((COLUMNS, 2), "float32"))
    few = FEWEST - 1
    offsets = device.put(parts["offsets"][: few + 1])
    assert not taken(shape=(few, COLUMNS), offsets=offsets)
    with pytest.raises(an.InvalidRequest, match=r"longest=-1; allowed: integers from 0"):
        taken(longest=-1)
    with pytest.raises(an.InvalidRequest, match="longest='7'"):
        replace(known, longest="7")


def test_equal_messages_give_equal_bits(device: an.Device) -> None:
    _, wide = matrix(LONGEST, "float64")
    a, x = device.sparse.matrix(wide), device.put(np.random.default_rng(2).standard_normal(COLUMNS))
    first = device.sparse.spmv(a, x).numpy()
    assert all((device.sparse.spmv(a, x, deterministic=True).numpy() == first).all() for _ in range(3))
