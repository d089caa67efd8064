"""BLAS requests: validation, and the plan specification that both devices build from.

Row-major and column-major NumPy layouts alike; everything here is a pure function of layouts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ._checks import check_choice, check_factor, check_flag
from ._operands import (
    Fresh,
    broadcast_shapes,
    check_disjoint,
    check_input,
    check_output,
    describe,
    describe_output,
)
from .dtypes import DTYPES, as_dtype, dtype_name
from .errors import InvalidRequest
from .plan_spec import OVERWRITE, READ, WRITE, PlanSpec

__all__ = ["ROUTINES", "BlasRequest", "BlasShape", "blas_shape", "blas_spec", "own_axes"]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BlasRequest:
    """A call of a classic BLAS routine, checked when it is made.

    Parameters
    ----------
    routine : str
        ``axpy`` out += alpha x; ``scal`` out *= alpha; ``dot`` out = sum(x y), with `conj` sum(conj(x) y); ``nrm2``
        out = sqrt(sum(abs(x)**2)); ``gemv`` out = alpha op(A) x + beta out; ``ger`` out += alpha x y^T, with `conj`
        x y^H; ``symm`` out = alpha A B + beta out, A symmetric (on the right: B A); ``syrk`` out = alpha op(A) op(A)^T
        + beta out, in one triangle, and the other stays as it is; ``trmm`` out = alpha op(A) B, A triangular (right:
        B op(A)); ``trsm`` solves op(A) X = alpha out (right: X op(A) = alpha out), and X replaces out; ``geam`` out =
        alpha op(A) + beta op(B); ``gemm`` out = alpha op(A) op(B) + beta out.
    a, b, x, y
        Operands: matrices of two axes, one of them dense; vectors with any positive stride.  One dtype for all:
        float32, float64, complex64 or complex128.  Axes in front are batches, equal, or broadcast where an operand
        lacks them or has 1; the routine is done for each.
    out
        The result, with all axes of batches; allocated if missing where it is not updated.
    alpha, beta
        Factors; they travel with the message.  Whether `beta` is 0 belongs to the plan, and ``beta=0`` never reads out.
    trans, conj, trans_b, conj_b : bool
        op: the transpose, the conjugate, or both.
    side : str
        ``"left"`` or ``"right"``.
    lower, unit : bool
        Which triangle of A (of out, for ``syrk``) is read; whether its diagonal is taken as ones.

    Raises
    ------
    InvalidRequest
        For what cannot work; the message names the value and the allowed ones.
    """

    routine: str
    a: Any = None
    b: Any = None
    x: Any = None
    y: Any = None
    out: Any = None
    alpha: complex = 1.0
    beta: complex = 0.0
    trans: bool = False
    conj: bool = False
    trans_b: bool = False
    conj_b: bool = False
    side: str = "left"
    lower: bool = True
    unit: bool = False

    def __post_init__(self) -> None:
        blas_shape(self)


@dataclass(frozen=True, slots=True)
class BlasShape:
    """What a request comes to: dtype, axes of batches, and the shape (with these) and dtype of its result."""

    dtype: np.dtype[Any]
    batch: tuple[int, ...]
    shape: tuple[int, ...]
    out: np.dtype[Any]
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


def blas_shape(request: BlasRequest) -> BlasShape:
    """Check a request and return what it comes to."""
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
    return BlasShape(dtype, batch, shape, out, updates)


def blas_spec(request: BlasRequest, shape: BlasShape | None = None) -> PlanSpec:
    """Return the plan specification: operands that are read, then ``out``; scalars alpha and beta, and other parts."""
    shape = shape or blas_shape(request)
    operands = [
        describe(name, getattr(request, name), READ)
        for name in ROUTINES[request.routine][0]
        if getattr(request, name) is not None
    ]
    access = READ | WRITE if shape.updates else WRITE | OVERWRITE
    operands.append(describe_output("out", request.out, Fresh(shape.shape, shape.out), access))
    return PlanSpec(
        op=f"blas.{request.routine}",
        operands=tuple(operands),
        scalars=("float64",) * (4 if shape.dtype.kind == "c" else 2),
        attributes=(
            ("dtype", dtype_name(shape.dtype)),
            ("batch", shape.batch),
            ("adds", bool(request.beta != 0)),
            ("trans", bool(request.trans)),
            ("conj", bool(request.conj)),
            ("trans_b", bool(request.trans_b)),
            ("conj_b", bool(request.conj_b)),
            ("side", request.side),
            ("lower", bool(request.lower)),
            ("unit", bool(request.unit)),
        ),
    )
