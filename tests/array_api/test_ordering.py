"""Sorts, searches and running sums: the kernels of CUDA devices compute what the host builders compute."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from codegen_engines import FLOATS, INTEGERS, Engine, engines, random, run_request
from placements import GPU

from atomr_native.dtypes import DTYPES
from atomr_native.libraries.elementwise.cuda import scans
from atomr_native.libraries.elementwise.ordering import ScanRequest, SearchRequest, SortRequest


@pytest.fixture(scope="module", params=["cpu", *GPU])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Lend each engine in turn."""
    with engines(request.param, tmp_path_factory) as found:
        yield found


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 3) -> np.ndarray:
    """Random numbers with many equal ones, and with NaN, infinities and both zeros where there are such."""
    x = random(shape, dtype, seed)
    if dtype in FLOATS:
        x = np.round(x.astype(np.float64)).astype(DTYPES[dtype])
        x[0, :3] = np.array([np.nan, -0.0, 0.0]).astype(x.dtype)
        x[-1, -1] = np.nan
    return x


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
def test_sorts(engine: Engine, dtype: str) -> None:
    """Within a tile of 256 elements, and merged from several, the last of them short; equal elements stay in order."""
    for shape in ((3, 40), (1, 256), (2, 1100)) if dtype in ("float32", "uint8") else ((2, 600),):
        x = numbers(shape, dtype)
        for descending, places in ((False, True), (True, True), (False, False)):
            run_request(engine, SortRequest(x=x, descending=descending, places=places), rtol=0)


def test_sorts_of_nothing_and_of_one(engine: Engine) -> None:
    for shape in ((0, 4), (4, 0), (3, 1)):
        run_request(engine, SortRequest(x=np.ones(shape, np.float32), places=True))


@pytest.mark.parametrize(("op", "dtype", "out"), [
    ("sum", "int32", "int64"), ("sum", "bool", "int64"), ("sum", "float16", "float16"), ("sum", "float64", "float64"),
    ("sum", "complex64", "complex64"), ("prod", "uint8", "uint64"), ("prod", "complex128", "complex128"),
    ("prod", "float32", "float32"), ("sum", "int8", "int8"), ("sum", "bool", "bool"), ("prod", "bool", "bool"),
])  # fmt: skip
def test_scans(engine: Engine, op: str, dtype: str, out: str) -> None:
    """Within a tile of 2048 elements, and over several."""
    for shape in ((3, 7), (2, 2048), (2, 2049)):
        x = random(shape, dtype, 5)
        if op == "prod" and dtype.startswith("complex"):
            x = (x / np.abs(x)).astype(x.dtype)
        elif op == "prod" and dtype == "float32":
            x = np.sign(x).astype(x.dtype)
        rtol = None if DTYPES[out].kind in "biu" else 4e-3 if out == "float16" else 1e-3
        run_request(engine, ScanRequest(x=x, op=op, dtype=out), rtol=rtol)


def test_a_scan_of_more_tiles_than_a_block_has_threads(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "_EACH", 1)
    monkeypatch.setattr(scans, "_TILE", scans.THREADS)
    run_request(engine, ScanRequest(x=random((2, 256 * 258 + 3), "int32"), op="sum", dtype="int64"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "uint64", "bool"])
def test_searches(engine: Engine, dtype: str) -> None:
    """Of values among equal ones, before all and behind all; NaN stands at the end."""
    x = numbers((1, 500), dtype)
    row = x[:, np.argsort(x[0].astype(np.float64), kind="stable")]
    for right in (False, True):
        run_request(engine, SearchRequest(row=row, values=numbers((1, 70), dtype, 8), right=right))
        run_request(engine, SearchRequest(row=row[:, :0].copy(), values=row[:, :5].copy(), right=right))
