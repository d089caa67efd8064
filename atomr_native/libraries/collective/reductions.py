"""Reductions of collectives on the host: in the order of ranks, each step rounded to the element type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import ml_dtypes
import numpy as np

__all__ = ["REDUCIBLE", "reduce_into"]

_Array = np.ndarray[Any, Any]

#: Element types that can be reduced: those of NCCL.
REDUCIBLE: Final = (
    "int8", "int32", "int64", "uint8", "uint32", "uint64", "float16", "float32", "float64", "bfloat16",
    "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip
_UFUNCS: Final[dict[str, np.ufunc]] = {
    "sum": np.add,
    "avg": np.add,
    "prod": np.multiply,
    "min": np.fmin,  # a NaN gives way to a number, as on a GPU
    "max": np.fmax,
}
_LARGEST: Final[dict[np.dtype[Any], float]] = {
    np.dtype(ml_dtypes.float8_e4m3fn): 448.0,
    np.dtype(ml_dtypes.float8_e5m2): 57344.0,
}
#: The type in which one step is computed; others are computed as they are.
_WIDER: Final[dict[np.dtype[Any], type]] = {
    np.dtype(ml_dtypes.bfloat16): np.float32,
    np.dtype(ml_dtypes.float8_e4m3fn): np.float16,
    np.dtype(ml_dtypes.float8_e5m2): np.float16,
}


def _round(values: _Array, dtype: np.dtype[Any]) -> _Array:
    """Return values of a wider type as `dtype`; float8 saturates."""
    largest = _LARGEST.get(dtype)
    return (values if largest is None else np.clip(values, -largest, largest)).astype(dtype)


def _apply(ufunc: np.ufunc, x: _Array, y: _Array, out: _Array) -> None:
    wider = _WIDER.get(out.dtype)
    if wider is None:
        ufunc(x, y, out=out)
    else:
        out[...] = _round(ufunc(x.astype(wider), y.astype(wider)), out.dtype)


def _scaled(x: _Array, factor: Any) -> _Array:
    made = np.empty_like(x)
    _apply(np.multiply, x, np.broadcast_to(np.asarray(factor, x.dtype), x.shape), made)
    return made


def _divide(total: _Array, n: int) -> None:
    """Divide integers in place, towards zero."""
    quotient, remainder = np.divmod(total, total.dtype.type(n))
    total[...] = quotient + ((remainder != 0) & (total < 0))


def reduce_into(out: _Array, parts: Sequence[_Array], op: str, factor_of: Callable[[int], Any] | None = None) -> None:
    """Reduce the ranks' parts into `out`, which is none of them.

    Parameters
    ----------
    out, parts
        One-dimensional, of one type and size.
    op
        One of `collective.attributes.OPERATIONS`.
    factor_of
        The factor of each rank's part, by rank; None without one.
    """
    with np.errstate(all="ignore"):
        floats = out.dtype.kind not in "iu"
        if factor_of is not None:
            parts = [_scaled(part, factor_of(rank)) for rank, part in enumerate(parts)]
        elif op == "avg" and floats:
            parts = [_scaled(part, 1.0 / len(parts)) for part in parts]
        ufunc = _UFUNCS[op]
        if len(parts) == 1:
            out[...] = parts[0]
        else:
            _apply(ufunc, parts[0], parts[1], out)
        for part in parts[2:]:
            _apply(ufunc, out, part, out)
        if op == "avg" and not floats:
            _divide(out, len(parts))
