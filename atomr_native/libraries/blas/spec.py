"""Rules of the BLAS routines, as pure functions of layouts, row-major and column-major alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..._support.checks import check_choice, check_factor, check_flag
from ...arrays.operands import Fresh, broadcast_shapes, check_disjoint, check_input, check_output
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest

if TYPE_CHECKING:
    from .request import BlasRequest

__all__ = ["ROUTINES", "BlasProblem", "own_axes", "resolve"]

#: Routine: (operands that are read, in message order; whether beta times `out` is added; flags that it takes).
ROUTINES: Final[dict[str, tuple[tuple[str, ...], bool, tuple[str, ...]]]] = {
    "axpy": (("x",), False, ()),
    "scal": ((), False, ()),
    "dot": (("x", "y"), False, ("conj",)),
    "nrm2": (("x",), False, ()),
    "gemv": (("a", "x"), True, ("trans", "conj")),
    "ger": (("x", "y"), False, ("conj",)),
    "symm": (("a", "b"), True, ("side", "lower")),
    "syrk": (("a",), True, ("trans", "lower")),
    "trmm": (("a", "b"), False, ("side", "lower", "trans", "conj", "unit")),
    "trsm": (("a",), False, ("side", "lower", "trans", "conj", "unit")),
    "geam": (("a", "b"), False, ("trans", "trans_b", "conj", "conj_b")),
    "gemm": (("a", "b"), True, ("trans", "trans_b", "conj", "conj_b")),
}
_VECTORS: Final = ("x", "y")
#: Axes of `out` that are not those of batches; of others 2.
_OUT_AXES: Final = {"axpy": 1, "scal": 1, "gemv": 1, "dot": 0, "nrm2": 0}
#: Routines that update `out`: they read it as well.
_UPDATES: Final = ("axpy", "scal", "ger", "trsm", "syrk")
_DTYPES: Final = ("float32", "float64", "complex64", "complex128")


@dataclass(frozen=True, slots=True)
class BlasProblem:
    """A request with everything that follows from it.

    Attributes
    ----------
    dtype : numpy.dtype
        Of the operands.
    batch : tuple of int
        Extents of the batch axes.
    out : Fresh
        Shape, with the batch axes, and dtype of the result.
    updates : bool
        Whether `out` is read as well.
    """

    dtype: np.dtype[Any]
    batch: tuple[int, ...]
    out: Fresh
    updates: bool


def own_axes(routine: str, name: str) -> int:
    """Return how many axes of an operand are not those of batches."""
    if name == "out":
        return _OUT_AXES.get(routine, 2)
    return 1 if name in _VECTORS else 2


def _axes(name: str, operand: Any, axes: int) -> tuple[int, ...]:
    array = check_input(name, operand)
    if len(array.shape) < axes:
        kind = "vector of 1 axis" if axes == 1 else "matrix of 2 axes"
        raise InvalidRequest(f"{name} has shape {tuple(array.shape)}; it must be a {kind}, after those of batches")
    return tuple(array.shape[len(array.shape) - axes :])


def _batch(request: BlasRequest, given: list[str], single: bool) -> tuple[int, ...]:
    """Return the axes of batches of all operands; `single`: out is one element, as () or (1,)."""
    leads = []
    for name in given:
        shape = tuple(getattr(request, name).shape)
        lead = shape[: len(shape) - own_axes(request.routine, name)]
        if not (name == "out" and single and shape == (1,)):
            leads.append((name, lead))
    batch = broadcast_shapes(leads, "batch axes")
    out = dict(leads).get("out", batch)
    if out != batch:
        raise InvalidRequest(f"out has batch axes {out}; allowed: {batch}, those of the operands")
    return batch


def _need(request: BlasRequest) -> tuple[tuple[str, ...], bool, tuple[str, ...]]:
    if not isinstance(request.routine, str) or request.routine not in ROUTINES:
        raise InvalidRequest(f"unknown routine {request.routine!r}; allowed: {', '.join(ROUTINES)}")
    reads, adds, flags = ROUTINES[request.routine]
    for name in ("a", "b", "x", "y"):
        if (getattr(request, name) is not None) != (name in reads):
            if name == "b" and request.routine == "geam" and request.beta == 0:
                continue
            word = "needs" if name in reads else "does not take"
            raise InvalidRequest(f"{request.routine} {word} {name}; its operands: {', '.join((*reads, 'out'))}")
    if request.out is None and request.routine in _UPDATES and request.routine != "syrk":
        raise InvalidRequest(f"{request.routine} updates out, which is missing")
    defaults = {"trans": False, "conj": False, "trans_b": False, "conj_b": False, "unit": False, "lower": True}
    for name, default in defaults.items():
        value = getattr(request, name)
        check_flag(name, value, bool | np.bool)
        if value != default and name not in flags:
            raise InvalidRequest(
                f"{request.routine} does not take {name}={value!r}; it takes {', '.join(flags) or 'none'}"
            )
    check_choice("side", request.side, ("left", "right"))
    if request.side != "left" and "side" not in flags:
        raise InvalidRequest(f"{request.routine} does not take side={request.side!r}")
    return reads, adds, flags


def _factors(request: BlasRequest, dtype: np.dtype[Any], adds: bool) -> None:
    for name in ("alpha", "beta"):
        check_factor(name, getattr(request, name), imaginary=dtype.kind == "c")
    if request.beta != 0 and not adds and request.routine != "geam":
        raise InvalidRequest(f"{request.routine} has no beta; allowed: 0")
    if request.alpha != 1 and request.routine in ("dot", "nrm2"):
        raise InvalidRequest(f"{request.routine} has no alpha; allowed: 1")


def _result(request: BlasRequest) -> tuple[int, ...]:
    """Return the shape of the result, from the operands; checks theirs."""
    r = request
    sides = ("left", "right")
    if r.routine in ("axpy", "scal", "dot", "nrm2"):
        shapes = {n: _axes(n, getattr(r, n), 1) for n in ("x", "y") if getattr(r, n) is not None}
        if r.routine in ("axpy", "scal"):
            shapes["out"] = _axes("out", r.out, 1)
        if len(set(shapes.values())) > 1:
            raise InvalidRequest(f"{r.routine} of vectors {shapes}; they must have one length")
        return next(iter(shapes.values())) if r.routine in ("axpy", "scal") else ()
    if r.routine == "ger":
        return *_axes("x", r.x, 1), *_axes("y", r.y, 1)
    if r.routine == "trsm":
        return _square(r, _axes("out", r.out, 2)[sides.index(r.side)], _axes("out", r.out, 2))
    rows, columns = _axes("a", r.a, 2)[:: -1 if r.trans else 1]
    if r.routine == "gemm":
        inner, across = _axes("b", r.b, 2)[:: -1 if r.trans_b else 1]
        if inner != columns:
            raise InvalidRequest(
                f"op(B) is {(inner, across)} and op(A) is {(rows, columns)}; allowed: ({columns}, any)"
            )
        return rows, across
    if r.routine == "gemv":
        if _axes("x", r.x, 1) != (columns,):
            raise InvalidRequest(
                f"x has shape {tuple(r.x.shape)}; allowed: {(columns,)}, since op(A) is {(rows, columns)}"
            )
        return (rows,)
    if r.routine == "syrk":
        return rows, rows
    if r.routine == "geam":
        if r.b is not None and _axes("b", r.b, 2)[:: -1 if r.trans_b else 1] != (rows, columns):
            raise InvalidRequest(f"op(B) of b {tuple(r.b.shape)} is not op(A) {(rows, columns)}; they must be equal")
        return rows, columns
    b = _axes("b", r.b, 2)
    return _square(r, b[sides.index(r.side)], b)


def _square(request: BlasRequest, extent: int, result: tuple[int, ...]) -> tuple[int, ...]:
    if _axes("a", request.a, 2) != (extent, extent):
        raise InvalidRequest(
            f"a has shape {tuple(request.a.shape)}; allowed: {(extent, extent)}, on the {request.side}"
        )
    return result


def resolve(request: BlasRequest) -> BlasProblem:
    """Check a request and return the problem that it poses.

    Raises
    ------
    InvalidRequest
        As `BlasRequest` says.
    """
    reads, adds, _ = _need(request)
    given = [name for name in (*reads, "out") if getattr(request, name) is not None]
    for name in given:
        check_input(name, getattr(request, name))
    own = _result(request)
    single = not own and all(len(getattr(request, name).shape) == 1 for name in reads)
    batch = _batch(request, given, single)
    shape = (*batch, *own)
    dtype = as_dtype(getattr(request, given[0]).dtype)
    if dtype_name(dtype) not in _DTYPES:
        raise InvalidRequest(f"{given[0]} has dtype {dtype_name(dtype)}; allowed: {', '.join(_DTYPES)}")
    out = DTYPES[dtype_name(dtype).replace("complex64", "float32").replace("complex128", "float64")]
    out = out if request.routine == "nrm2" else dtype
    for name in given:
        wanted = out if name == "out" else dtype
        found = as_dtype(getattr(request, name).dtype)
        if found != wanted:
            raise InvalidRequest(f"{name} has dtype {dtype_name(found)}; allowed: {dtype_name(wanted)}")
    _factors(request, dtype, adds)
    updates = request.routine in _UPDATES or (adds and request.beta != 0)
    if request.out is None:
        if updates:
            raise InvalidRequest(f"{request.routine} updates out, which is missing")
    else:
        check_output("out", request.out)
        if tuple(request.out.shape) not in (shape, shape or (1,)):  # one element may have an axis
            raise InvalidRequest(f"out has shape {tuple(request.out.shape)}; allowed: {shape}")
        check_disjoint(
            [("out", request.out)], [(n, getattr(request, n)) for n in reads if getattr(request, n) is not None]
        )
    return BlasProblem(dtype, batch, Fresh(shape, out), updates)
