"""Rules of the solver's routines, as pure functions of layouts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ...arrays.operands import ArrayLayout, Fresh, broadcast_shapes, check_input
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest
from .checks import check_operands, check_options, check_outputs, check_size, matrix_dtype

if TYPE_CHECKING:
    from .request import SolverRequest

__all__ = ["INDEFINITE", "ROUTINES", "Problem", "Routine", "column_major", "complex_of", "real_of", "resolve"]

#: Ways to factor a matrix.
ASSUME: Final = ("general", "positive_definite", "symmetric", "hermitian")
#: Of matrices that are not definite, which are factored by Bunch and Kaufman's pivots.
INDEFINITE: Final = ASSUME[2:]


class Routine(NamedTuple):
    """The rules of a routine.

    Attributes
    ----------
    reads : tuple of str
        Operands that are read, in message order.
    writes : tuple of str
        Outputs besides info; of each the request has a field.
    flags : tuple of str
        Options that it takes.
    checks : bool
        Whether its work can find that a matrix has no result.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    flags: tuple[str, ...] = ()
    checks: bool = False


ROUTINES: Final[dict[str, Routine]] = {
    "cholesky": Routine(("a",), ("out",), ("lower",), True),
    "cholesky_solve": Routine(("a", "b"), ("out",), ("lower",)),
    "lu_factor": Routine(("a",), ("out", "pivots_out"), (), True),
    "lu_solve": Routine(("a", "pivots", "b"), ("out",), ("trans", "conj")),
    "ldl_factor": Routine(("a",), ("out", "pivots_out"), ("assume", "lower"), True),
    "ldl_solve": Routine(("a", "pivots", "b"), ("out",), ("assume",)),
    "solve": Routine(("a", "b"), ("out",), ("assume", "lower"), True),
    "inv": Routine(("a",), ("out",), ("assume", "lower"), True),
    "det": Routine(("a",), ("out",), ("assume", "lower"), True),
    "slogdet": Routine(("a",), ("out", "log_out"), ("assume", "lower"), True),
    "solve_triangular": Routine(("a", "b"), ("out",), ("lower", "trans", "conj", "unit"), True),
    "inv_triangular": Routine(("a",), ("out",), ("lower", "unit"), True),
}
_DEFAULTS: Final = {
    "assume": "general", "lower": True, "trans": False, "conj": False, "unit": False, "check": True,
}  # fmt: skip
_OUTPUTS: Final = ("out", "pivots_out", "log_out", "info")


@dataclass(frozen=True, slots=True)
class Problem:
    """A request with everything that follows from it.

    Attributes
    ----------
    dtype : numpy.dtype
        Of the matrices.
    batch : tuple of int
        Extents of the batch axes.
    size : tuple of int
        Rows and columns of A.
    vector : bool
        Whether B and X are vectors.
    fresh : dict of str to Fresh
        Shape and dtype of each output, with the batch axes.
    """

    dtype: np.dtype[Any]
    batch: tuple[int, ...]
    size: tuple[int, int]
    vector: bool
    fresh: dict[str, Fresh]


def real_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of the magnitude of an element."""
    return DTYPES[dtype_name(dtype).replace("complex64", "float32").replace("complex128", "float64")]


def complex_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the complex dtype of the same precision."""
    return DTYPES["complex64" if real_of(dtype) == DTYPES["float32"] else "complex128"]


def column_major(array: ArrayLayout, *, turned: bool = False) -> bool:
    """Return whether LAPACK can work in an array's matrices: rows next to each other, the batch in even steps.

    With `turned`, whether it can work in their transposes.
    """
    size = as_dtype(array.dtype).itemsize
    (rows, columns), (row, column) = array.shape[-2:], array.strides[-2:]
    if turned:
        rows, columns, row, column = columns, rows, column, row
    if (rows > 1 and row != size) or (columns > 1 and (column < max(rows, 1) * size or column % size)):
        return False
    axes = [(n, s) for n, s in zip(array.shape[:-2], array.strides[:-2], strict=True) if n > 1]
    return all(s == step * n for (_, s), (n, step) in pairwise(axes))


def _need(request: SolverRequest) -> Routine:
    if not isinstance(request.routine, str) or request.routine not in ROUTINES:
        raise InvalidRequest(f"unknown routine {request.routine!r}; allowed: {', '.join(ROUTINES)}")
    routine = ROUTINES[request.routine]
    check_operands(request, ("a", "b", "pivots"), routine.reads)
    for name in ("pivots_out", "log_out"):
        if getattr(request, name) is not None and name not in routine.writes:
            raise InvalidRequest(f"{request.routine} does not take {name}; its outputs: {', '.join(routine.writes)}")
    flags = (*routine.flags, *(("check",) if routine.checks else ()))
    check_options(request, _DEFAULTS, {"assume": INDEFINITE if request.routine.startswith("ldl") else ASSUME}, flags)
    if request.routine in ("det", "slogdet") and request.assume != "positive_definite" and not request.check:
        raise InvalidRequest(
            f"{request.routine} does not take check=False with assume={request.assume!r}; the determinant of a "
            f"singular matrix is 0, so nothing fails: allowed: check=True"
        )
    if request.info is not None and request.check:
        raise InvalidRequest("info is given, and check=True raises errors instead; allowed: check=False")
    if request.assume == "general" and not request.lower and "assume" in flags:
        raise InvalidRequest(
            f"{request.routine} does not take lower=False with assume='general', which reads the whole matrix"
        )
    return routine


def _right_side(request: SolverRequest, rows: int) -> tuple[tuple[int, ...], bool]:
    """Return the columns of B, and whether it is a vector."""
    shape = tuple(check_input("b", request.b).shape)
    vector = len(shape) == 1
    found = shape[0] if vector else check_size("b", request.b)[0]
    if found != rows:
        raise InvalidRequest(f"b has shape {shape}; allowed: ({rows},) or (..., {rows}, any), since a has {rows} rows")
    return (() if vector else shape[-1:]), vector


def _check_dtypes(request: SolverRequest, reads: tuple[str, ...]) -> np.dtype[Any]:
    dtype = matrix_dtype(request.a)
    for name in reads:
        wanted = DTYPES["int32"] if name == "pivots" else dtype
        found = as_dtype(getattr(request, name).dtype)
        if found != wanted:
            raise InvalidRequest(f"{name} has dtype {dtype_name(found)}; allowed: {dtype_name(wanted)}")
    return dtype


def _batch(request: SolverRequest, reads: tuple[str, ...], vector: bool) -> tuple[int, ...]:
    own = {"a": 2, "b": 1 if vector else 2, "pivots": 1}
    leads = []
    for name in reads:
        shape = tuple(getattr(request, name).shape)
        leads.append((name, shape[: len(shape) - own[name]]))
    return broadcast_shapes(leads, "batch axes")


def resolve(request: SolverRequest) -> Problem:
    """Check a request and return the problem that it poses.

    Raises
    ------
    InvalidRequest
        As `SolverRequest` says.
    """
    routine = _need(request)
    rows, columns = check_size("a", request.a)
    if rows != columns and request.routine != "lu_factor":
        raise InvalidRequest(f"a has shape {tuple(request.a.shape)}; {request.routine} takes square matrices")
    if "pivots" in routine.reads and tuple(check_input("pivots", request.pivots).shape[-1:]) != (rows,):
        raise InvalidRequest(f"pivots has shape {tuple(request.pivots.shape)}; allowed: (..., {rows})")
    across, vector = _right_side(request, rows) if "b" in routine.reads else ((), False)
    dtype = _check_dtypes(request, routine.reads)
    batch = _batch(request, routine.reads, vector)
    shapes: dict[str, Fresh] = {}
    if request.routine in ("det", "slogdet"):
        shapes["out"] = Fresh(batch, dtype)
    elif "b" in routine.reads:
        shapes["out"] = Fresh((*batch, rows, *across), dtype)
    else:
        shapes["out"] = Fresh((*batch, rows, columns), dtype)
    if "pivots_out" in routine.writes:
        shapes["pivots_out"] = Fresh((*batch, min(rows, columns)), DTYPES["int32"])
    if "log_out" in routine.writes:
        shapes["log_out"] = Fresh(batch, real_of(dtype))
    if not request.check:
        shapes["info"] = Fresh(batch, DTYPES["int32"])
    check_outputs(request, _OUTPUTS, routine.reads, shapes)
    return Problem(dtype, batch, (rows, columns), vector, shapes)
