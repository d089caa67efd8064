"""Rules of products with compressed matrices, as pure functions of layouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ...._support.checks import check_choice, check_factor
from ....arrays.operands import check_input
from ....dtypes import DTYPES as ALL_DTYPES
from ....dtypes import as_dtype, dtype_name
from ....errors import InvalidRequest
from ..spec import check_out
from .matrix import StructuredMatrix

if TYPE_CHECKING:
    from .request import StructuredProductRequest

__all__ = ["ACTIVATIONS", "METHODS", "OUTPUTS", "PRUNED", "Problem", "bias_dtype", "misfit", "resolve"]

METHODS: Final = ("strip", "tile")
ACTIVATIONS: Final = ("none", "relu", "gelu")
#: Dtypes that are pruned.
PRUNED: Final = ("int8", "float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32")
#: Dtypes of results, the default first, by that of the operands.
OUTPUTS: Final[dict[str, tuple[str, ...]]] = {
    "float16": ("float16",),
    "bfloat16": ("bfloat16",),
    "int8": ("int32", "int8", "float16", "bfloat16"),
    "float8_e4m3fn": ("bfloat16", "float16", "float32"),
    "float8_e5m2": ("bfloat16", "float16", "float32"),
}
_TUNE: Final = {False: "", True: "measure", "known": "known"}
#: Bytes of which steps and extents are multiples.
_LINE: Final = 16


class Problem(NamedTuple):
    """A product with everything that follows from it.

    Attributes
    ----------
    shape : tuple of int
        Of A.
    dtype : str
        Of A and x.
    out : tuple
        Shape and dtype of the result.
    tune : str
        ``""``, ``"known"`` or ``"measure"``.
    """

    shape: tuple[int, int]
    dtype: str
    out: tuple[tuple[int, int], np.dtype[Any]]
    tune: str


def bias_dtype(dtype: str, out: str) -> str:
    """Return the dtype of a bias, by those of the operands and of the result."""
    return "float32" if dtype == "int8" else out


def misfit(name: str, array: Any, *, turned: bool = True) -> str:
    """Return why the library does not take the layout of a matrix, or nothing.

    Parameters
    ----------
    turned : bool
        Whether columns without gaps do instead of rows.
    """
    size = as_dtype(array.dtype).itemsize
    (rows, columns), (step, inner) = tuple(array.shape), tuple(array.strides)
    unit = _LINE // size
    if rows % unit or columns % unit:
        return (
            f"{name} has shape {(rows, columns)} of {dtype_name(as_dtype(array.dtype))}; allowed: multiples of {unit}"
        )
    by_rows = inner == size and step >= columns * size and step % _LINE == 0
    by_columns = turned and step == size and inner >= rows * size and inner % _LINE == 0
    if by_rows or by_columns:
        return ""
    lines = "rows or columns" if turned else "rows"
    return (
        f"{name} has strides {(step, inner)}; allowed: {lines} without gaps, and a multiple of {_LINE} bytes from one "
        f"to the next; device.copy makes them"
    )


def _vector(name: str, array: Any, shapes: tuple[tuple[int, ...], ...], dtype: str) -> None:
    given = check_input(name, array)
    if tuple(given.shape) not in shapes or dtype_name(as_dtype(given.dtype)) != dtype:
        raise InvalidRequest(
            f"{name} has shape {tuple(given.shape)} and dtype {dtype_name(as_dtype(given.dtype))}; allowed: "
            f"{' or '.join(map(str, shapes))} of {dtype}"
        )
    if given.shape and given.shape[0] > 1 and given.strides[0] != as_dtype(given.dtype).itemsize:
        raise InvalidRequest(f"{name} has strides {tuple(given.strides)}; allowed: no gaps")


def _check_epilogue(r: StructuredProductRequest, m: int, dtype: str, made: str) -> None:
    """Check factors, bias and activation of a result of dtype `made` with m columns."""
    for name in ("alpha", "beta"):
        check_factor(name, getattr(r, name), imaginary=False)
    check_choice("activation", r.activation, ACTIVATIONS)
    if r.activation == "gelu" and made.startswith("int"):
        raise InvalidRequest(
            f"activation='gelu' of {made}; allowed: floating results, by out_dtype=, 'none' and 'relu'"
        )
    if r.beta != 0 and r.out is None:
        raise InvalidRequest(f"beta={r.beta}, and out is missing, which it is a factor of")
    if r.row_beta is not None and r.beta == 0:
        raise InvalidRequest("row_beta is given with beta=0; allowed: a factor, as 1.0")
    if r.bias is not None:
        _vector("bias", r.bias, ((m,),), bias_dtype(dtype, made))
    for name in ("row_alpha", "row_beta"):
        if getattr(r, name) is not None:
            _vector(name, getattr(r, name), ((m,),), "float32")
    if r.scale_a is not None:
        _vector("scale_a", r.scale_a, ((), (1,), (m,)), "float32")
    if r.scale_x is not None:
        _vector("scale_x", r.scale_x, ((), (1,)), "float32")


def resolve(request: StructuredProductRequest) -> Problem:
    """Check a request and return the problem that it poses.

    Raises
    ------
    InvalidRequest
        As `StructuredProductRequest` says.
    """
    r = request
    a = StructuredMatrix(r.shape, r.dtype, r.compressed)
    (m, k), dtype = a.shape, dtype_name(a.dtype)
    x = check_input("x", r.x)
    if len(x.shape) != 2 or x.shape[1] != k:
        raise InvalidRequest(f"x has shape {tuple(x.shape)}; allowed: (any, {k}), since A is {a.shape}")
    if as_dtype(x.dtype) != a.dtype:
        raise InvalidRequest(f"x has dtype {dtype_name(as_dtype(x.dtype))}; allowed: {dtype}, A's")
    n = int(x.shape[0])
    if why := misfit("x", x, turned=a.dtype.itemsize == 2):
        raise InvalidRequest(why)
    allowed = OUTPUTS[dtype]
    if r.out_dtype is not None:
        check_choice("out_dtype", dtype_name(as_dtype(r.out_dtype)), allowed)
    wanted = allowed if r.out_dtype is None else (dtype_name(as_dtype(r.out_dtype)),)
    reads = ("compressed", "x", "bias", "row_alpha", "row_beta", "scale_a", "scale_x")
    out = check_out(r, (n, m), [ALL_DTYPES[name] for name in wanted], reads)
    made = dtype_name(out.dtype)
    if r.out is not None and (why := misfit("out", r.out)):
        raise InvalidRequest(why)
    if n % (_LINE // out.dtype.itemsize):
        raise InvalidRequest(f"x has {n} rows; allowed: multiples of {_LINE // out.dtype.itemsize} for out of {made}")
    _check_epilogue(r, m, dtype, made)
    if not isinstance(r.tune, bool) and r.tune != "known":
        raise InvalidRequest(f"tune={r.tune!r}; allowed: True, False, 'known'")
    return Problem((m, k), dtype, ((n, m), out.dtype), _TUNE[r.tune])
