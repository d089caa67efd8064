"""Gathers, sequences and the further reductions: the kernels of CUDA devices compute what the host builders compute."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from codegen_engines import Engine, engines, random, run_request
from placements import GPU

from atomr_native.dtypes import DTYPES
from atomr_native.libraries.elementwise.gathers import SequenceRequest, TakeRequest
from atomr_native.libraries.elementwise.request import ReduceRequest


@pytest.fixture(scope="module", params=["cpu", *GPU])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Lend each engine in turn."""
    with engines(request.param, tmp_path_factory) as found:
        yield found


@pytest.mark.parametrize(("op", "dtype"), [
    ("min", "float32"), ("min", "uint8"), ("argmin", "bfloat16"), ("argmin", "int64"), ("prod", "float64"),
    ("prod", "int8"), ("any", "float16"), ("all", "bool"), ("all", "complex64"), ("sum", "complex128"),
    ("mean", "complex64"), ("prod", "complex64"),
])  # fmt: skip
def test_reductions(engine: Engine, op: str, dtype: str) -> None:
    """Over rows, columns and all, of few and of many elements; NaN among them."""
    for shape, axis in (((3, 40), 1), ((70, 5), 0), ((6, 700), None)):
        x = random(shape, dtype, 7)
        if op == "prod" and DTYPES[dtype].kind not in "iu":
            x = (x / np.abs(x)).astype(x.dtype) if dtype.startswith("complex") else np.sign(x) * 1.01
        if op in ("any", "all") and DTYPES[dtype].kind != "b":
            x[...] = 0 if op == "any" else 1
            x[-1, -1] = 1 - x[-1, -1]
        if op == "argmin" and dtype == "bfloat16":
            x[2, 3] = np.nan
        run_request(engine, ReduceRequest(op=op, x=x, axis=axis), rtol=1e-4 if DTYPES[dtype].kind in "cf" else None)


def test_reductions_of_nothing(engine: Engine) -> None:
    x = np.zeros((3, 0), np.float32)
    for op in ("prod", "any", "all"):
        run_request(engine, ReduceRequest(op=op, x=x, axis=1))


@pytest.mark.parametrize("dtype", ["float32", "complex128", "bool"])
def test_gathers(engine: Engine, dtype: str) -> None:
    """Along each axis, of arrays that are views, backwards too; with indices of several types and shapes."""
    x = random((4, 7, 5), dtype, 1)
    for axis, indices in ((0, np.array([3, 0, -1])), (1, np.array([[6, -7], [2, 2]], np.int8)), (2, np.uint64(4))):
        run_request(engine, TakeRequest(x=x, indices=np.asarray(indices), axis=axis))
    run_request(engine, TakeRequest(x=x.transpose(2, 0, 1), indices=np.array([0, 3]), axis=1))
    along = np.arange(4 * 5).reshape(4, 1, 5) % 7
    run_request(engine, TakeRequest(x=x, indices=along, axis=1, along=True))
    run_request(engine, TakeRequest(x=x, indices=np.zeros((0, 2), np.int64), axis=0))


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "float64"])
def test_sequences(engine: Engine, dtype: str) -> None:
    run_request(engine, SequenceRequest(count=37, dtype=dtype, start=100, step=-3))
    if dtype.startswith("float"):
        run_request(engine, SequenceRequest(count=600, dtype=dtype, start=0.5, step=0.25))
    run_request(engine, SequenceRequest(count=0, dtype=dtype, start=1, step=1))
