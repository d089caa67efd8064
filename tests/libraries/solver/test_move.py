"""Copies of matrices around the libraries' calls: both kernels against NumPy, in the simulator, mode by mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from codegen_engines import Engine, engines

from atomr_native.builders.cuda.codegen import kernels
from atomr_native.builders.cuda.target import Argument, Launch
from atomr_native.libraries.solver.cuda.kernels import MODES, THREADS, TILE, source

#: Rows, columns and matrices; tiles that are whole and in part.
SHAPES = ((TILE, TILE, 1), (70, 33, 1), (40, 97, 3))
CASES = (
    (), ("conj",), ("lower",), ("upper", "conj"), ("eye",), ("guard",), ("guard", "only_bad"), ("note",),
    ("note", "infinite", "only_note"), ("blank",), ("noted", "lower"), ("guard", "noted", "upper"),
)  # fmt: skip


@pytest.fixture(scope="module", params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engines(request.param, tmp_path_factory) as made:
        yield made


def moved(before: np.ndarray, a: np.ndarray, modes: tuple[str, ...], info: np.ndarray, notes: np.ndarray) -> np.ndarray:
    """What a copy leaves in `before`; writes notes."""
    (count, rows, columns), made = a.shape, before.copy()
    for b in range(count):
        bad = ("guard" in modes and info[b] != 0) or ("noted" in modes and notes[b] != 0)
        if "only_bad" in modes and not bad:
            continue
        half = np.tril if "lower" in modes else np.triu if "upper" in modes else np.asarray
        x = half(a[b].conj() if "conj" in modes else a[b])
        if "eye" in modes or ("blank" in modes and notes[b]):
            x = np.eye(rows, columns, dtype=a.dtype)
        elif "note" in modes and not bad:
            notes[b] |= not (np.isfinite(x).all() if "infinite" in modes else (x == x).all())
        if "only_note" not in modes:
            made[b] = np.nan if bad else x
    return made


def numbers(a: np.ndarray) -> list[int]:
    row, column = (s // a.itemsize for s in a.strides[1:])
    return [row, column, 0, 0, a.strides[0] // a.itemsize]


def launched(engine: Engine, name: str, to: np.ndarray, of: np.ndarray, mode: int, info: Any, notes: Any) -> None:
    """Launch a kernel on the arrays in which views lie."""
    count, rows, columns = to.shape
    grid = 2 if name == "move" else min(-(-rows // TILE) * -(-columns // TILE) * count, 4)
    given = [rows, columns, count, 1, count, *numbers(to), *numbers(of), mode]
    arguments: tuple[Argument, ...] = (*(("operand", i) for i in range(4)), *(("uint64", n) for n in given))
    made = Launch(name, (grid, 1, 1), (THREADS, 1, 1), 0, arguments)
    dtype = str(of.dtype)
    with engine.building():
        program = kernels(source(dtype), [made], engine.target, dtypes=(dtype,), alignments=(4, 4, 4, 4)).run
    engine.launch(program, (to.base, to.base if to is of else of.base, info, notes))


def lying(shape: tuple[int, int, int], dtype: str, *, by_rows: bool) -> np.ndarray:
    """Matrices whose rows, or columns, are dense in memory, and three elements longer than they are wide."""
    count, rows, columns = shape
    outer, inner = (rows, columns) if by_rows else (columns, rows)
    whole = np.zeros((count, outer, inner + 3), dtype)
    part = whole[:, :, :inner]
    return part if by_rows else part.transpose(0, 2, 1)


@pytest.mark.parametrize("kernel", ["move", "tiles"])
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_copies_are_those_of_numpy(engine: Engine, kernel: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    for rows, columns, count in SHAPES:
        for by_rows in (False, True):
            a = lying((count, rows, columns), dtype, by_rows=by_rows)
            a[...] = rng.standard_normal(a.shape) + (1j * rng.standard_normal(a.shape) if dtype[0] == "c" else 0)
            a[0, 20, 9], a[-1, rows - 1, 0], a[-1, 1, columns - 1] = np.inf, np.nan, 7
            for modes in CASES:
                out = lying((count, rows, columns), dtype, by_rows=False)
                out[...] = 5
                info, notes = np.zeros(count, "i4"), np.zeros(count, "i4")
                info[-1] = 3
                if "note" not in modes:
                    notes[0] = 1
                seen = notes.copy()
                want = moved(out, a, modes, info, seen)
                launched(engine, kernel, out, a, sum(MODES[mode] for mode in modes), info, notes)
                np.testing.assert_array_equal(out, want, err_msg=str(modes))
                np.testing.assert_array_equal(notes, seen, err_msg=str(modes))
                assert (out.base[:, :, rows:] == 0).all()


@pytest.mark.parametrize("kernel", ["move", "tiles"])
def test_a_triangle_in_place_is_written_only_where_it_changes(engine: Engine, kernel: str) -> None:
    a = lying((2, 70, 70), "float32", by_rows=False)
    a[...] = np.random.default_rng(4).standard_normal(a.shape)
    a[0, 60, 3] = np.float32(np.nan)
    info, notes = np.array([0, 2], "i4"), np.zeros(2, "i4")
    want = moved(a, a, ("lower", "guard"), info, notes)
    launched(engine, kernel, a, a, MODES["lower"] | MODES["guard"] | MODES["in_place"], info, notes)
    np.testing.assert_array_equal(a, want)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_a_triangle_is_flipped_in_place(engine: Engine, dtype: str) -> None:
    rng = np.random.default_rng(5)
    for n, count in ((TILE, 1), (70, 1), (97, 3)):
        a = lying((count, n, n), dtype, by_rows=False)
        a[...] = rng.standard_normal(a.shape) + (1j * rng.standard_normal(a.shape) if dtype[0] == "c" else 0)
        info, notes = np.zeros(count, "i4"), np.zeros(count, "i4")
        info[1:2], notes[2:3] = 4, 1
        for modes in ((), ("conj",), ("guard", "noted")):
            want = np.tril(a).transpose(0, 2, 1)
            want = want.conj() if "conj" in modes else want.copy()
            if modes and modes[0] == "guard":
                want[1:] = np.nan
            given = a.base.copy()
            out = given[:, :, :n].transpose(0, 2, 1)
            numbers = [n, count, 1, count, n + 3, 0, 0, n * (n + 3), sum(MODES[mode] for mode in modes)]
            arguments: tuple[Argument, ...] = (*(("operand", i) for i in range(3)), *(("uint64", n) for n in numbers))
            made = Launch("flip", (4, 1, 1), (THREADS, 1, 1), 0, arguments)
            with engine.building():
                program = kernels(source(dtype), [made], engine.target, dtypes=(dtype,), alignments=(4, 4, 4)).run
            engine.launch(program, (given, info, notes))
            np.testing.assert_array_equal(out, want, err_msg=str((n, modes)))
            assert (given[:, :, n:] == 0).all()
