"""Rules of sparse products, as pure functions of layouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..._support.checks import check_choice, check_factor, check_flag
from ...arrays.operands import Fresh, check_disjoint, check_input, check_output
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest
from .matrix import check_longest, check_parts
from .padded import PADDED

if TYPE_CHECKING:
    from .request import SparseProductRequest

__all__ = ["ROUTINES", "Problem", "check_out", "compute_dtype", "resolve"]

ROUTINES: Final = ("spmv", "spmm", "sddmm")
_WIDE: Final = {"float16": "float32", "bfloat16": "float32", "int8": "int32"}


def compute_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of sums of products of a dtype."""
    name = dtype_name(dtype)
    return DTYPES[_WIDE.get(name, name)]


@dataclass(frozen=True, slots=True)
class Problem:
    """A product with everything that follows from it.

    Attributes
    ----------
    shape : tuple of int
        Of the sparse matrix.
    compute : numpy.dtype
        Of sums and factors.
    factors : bool
        Whether alpha and beta are on the device.
    out : Fresh
        Shape and dtype of the result.
    batch : int or None
        Matrices of a batch.
    """

    shape: tuple[int, int]
    compute: np.dtype[Any]
    factors: bool
    out: Fresh
    batch: int | None


def _dense(name: str, array: Any, axes: int, routine: str, dtype: np.dtype[Any], batch: int | None) -> tuple[int, ...]:
    """Check a vector or a matrix, of which a batch of matrices may have as many; return its shape for one of them."""
    if array is None:
        raise InvalidRequest(f"{routine} needs {name}")
    shape = tuple(check_input(name, array).shape)
    if batch is not None and len(shape) == axes + 1:
        if shape[0] != batch:
            raise InvalidRequest(f"{name} has shape {shape}; allowed: {(batch, *shape[1:])}, since A is a batch")
        shape = shape[1:]
    if len(shape) != axes:
        raise InvalidRequest(f"{name} has shape {shape}; {routine} takes {'a vector' if axes == 1 else 'a matrix'}")
    if as_dtype(array.dtype) != dtype:
        raise InvalidRequest(f"{name} has dtype {dtype_name(as_dtype(array.dtype))}; allowed: {dtype_name(dtype)}")
    return shape


def check_out(request: Any, shape: tuple[int, ...], dtypes: list[np.dtype[Any]], reads: tuple[str, ...]) -> Fresh:
    """Check an output, if it is given; return its shape and dtype."""
    if request.out is None:
        return Fresh(shape, dtypes[0])
    check_output("out", request.out)
    if tuple(request.out.shape) != shape:
        raise InvalidRequest(f"out has shape {tuple(request.out.shape)}; allowed: {shape}")
    found = as_dtype(request.out.dtype)
    if found not in dtypes:
        allowed = ", ".join(map(dtype_name, dtypes))
        raise InvalidRequest(f"out has dtype {dtype_name(found)}; allowed: {allowed}")
    given = [(name, getattr(request, name)) for name in reads if getattr(request, name) is not None]
    check_disjoint([("out", request.out)], given, "; omit it for a new array")
    return Fresh(shape, found)


def _factors(request: SparseProductRequest, compute: np.dtype[Any]) -> bool:
    given = [name for name in ("alpha_at", "beta_at") if getattr(request, name) is not None]
    for name in ("alpha", "beta"):
        check_factor(name, getattr(request, name), imaginary=compute.kind == "c")
        if compute.kind == "i" and (value := getattr(request, name)) != int(value):
            raise InvalidRequest(f"{name}={value!r} of int8 values; allowed: integers")
    if not given:
        return False
    if len(given) == 1:
        raise InvalidRequest(f"{given[0]} is given alone; allowed: alpha and beta both on the device, or both numbers")
    if request.routine != "sddmm" and request.out is None:
        raise InvalidRequest("beta is on the device, and out is missing; out is read, since beta may not be 0")
    if request.alpha != 1 or request.beta != 0:
        raise InvalidRequest("alpha and beta are numbers and arrays at once; allowed: either")
    for name in given:
        array = check_input(name, getattr(request, name))
        if tuple(array.shape) not in ((), (1,)) or as_dtype(array.dtype) != compute:
            raise InvalidRequest(
                f"{name} has shape {tuple(array.shape)} and dtype {dtype_name(as_dtype(array.dtype))}; allowed: one "
                f"element of {dtype_name(compute)}, the dtype of sums"
            )
    return True


def resolve(request: SparseProductRequest) -> Problem:
    """Check a request and return the problem that it poses.

    Raises
    ------
    InvalidRequest
        As `SparseProductRequest` says.
    """
    r = request
    check_choice("routine", r.routine, ROUTINES)
    for name in ("ordered", "trans", "conj", "deterministic"):
        check_flag(name, getattr(r, name), bool | np.bool)
    shape, _, batch = check_parts(r.format, r.shape, r.values, r.indices, r.offsets, r.rows)
    check_longest(r.longest)
    if r.format == "coo" and not r.ordered:
        raise InvalidRequest(
            "the rows of this coo matrix are not known to be in order, and products need that; device.sparse.sort(a) "
            "orders them, ordered=True promises it"
        )
    if r.format in PADDED and r.trans:
        raise InvalidRequest(
            f"trans=True of {r.format}; allowed: False; device.sparse.convert makes csr, whose transpose is multiplied"
        )
    dtype = as_dtype(r.values.dtype)
    if dtype_name(dtype) == "int32":
        raise InvalidRequest("values has dtype int32; products allow: int8, float16, bfloat16, float32, float64, "
                             "complex64, complex128")  # fmt: skip
    compute = compute_dtype(dtype)
    factors = _factors(r, compute)
    reads = ("values", "indices", "offsets", "rows", "x", "y", "alpha_at", "beta_at")
    if r.routine == "sddmm":
        return _sampled(r, shape, dtype, compute, factors, batch)
    if r.y is not None:
        raise InvalidRequest(f"{r.routine} does not take y")
    rows, inner = shape[::-1] if r.trans else shape
    x = _dense("x", r.x, 1 if r.routine == "spmv" else 2, r.routine, dtype, batch)
    front = () if batch is None else (batch,)
    if x[0] != inner:
        raise InvalidRequest(f"x has shape {x}; allowed: {(inner, *x[1:])}, since op(A) is {(rows, inner)}")
    if r.beta != 0 and r.out is None:
        raise InvalidRequest(f"beta={r.beta}, and out is missing, which it is a factor of")
    outs = [compute] if dtype.kind == "i" else list(dict.fromkeys((dtype, compute)))
    return Problem(shape, compute, factors, check_out(r, (*front, rows, *x[1:]), outs, reads), batch)


def _sampled(
    r: SparseProductRequest, shape: tuple[int, int], dtype: np.dtype[Any], compute: np.dtype[Any], factors: bool,
    batch: int | None,
) -> Problem:  # fmt: skip
    if r.trans or r.conj:
        raise InvalidRequest(f"sddmm does not take trans={r.trans!r}, conj={r.conj!r}; allowed: x.T, a view")
    if dtype.kind == "i":
        raise InvalidRequest("values has dtype int8; sddmm allows: float16, bfloat16, float32, float64, complex64, "
                             "complex128")  # fmt: skip
    if r.format == "bsr" or r.format in PADDED:
        raise InvalidRequest(f"format={r.format!r}; sddmm allows: csr, csc, coo")
    x, y = (_dense(name, array, 2, "sddmm", dtype, batch) for name, array in (("x", r.x), ("y", r.y)))
    if x[0] != shape[0] or y[1] != shape[1] or x[1] != y[0]:
        raise InvalidRequest(f"x {x} times y {y} for a matrix {shape}; allowed: ({shape[0]}, k) times (k, {shape[1]})")
    out = check_out(r, tuple(r.values.shape), [dtype], ("values", "indices", "offsets", "rows", "x", "y"))
    return Problem(shape, compute, factors, out, batch)
