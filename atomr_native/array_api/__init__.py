"""The functions of the Python array API standard, version 2024.12, on the arrays of devices.

``xp = x.__array_namespace__()`` is this module for the device of ``x``.  Imported by itself it has no default device:
functions that create arrays then need ``device=``.  Functions enqueue and return handles, and none copies elements to
the host.  Those whose result has a shape that depends on elements wait for its size: `nonzero`, ``unique_*``,
``x[mask]`` and `repeat` with an array.  `fft` and `linalg` are the standard's extensions.
``docs/array_api.md`` lists the functions that are left out, with the reasons.
"""

from __future__ import annotations

from math import e, inf, nan, pi
from typing import Any

from .._support.options import named_members
from ..dtypes import DTYPES
from . import fft, linalg
from ._creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from ._elementwise import ELEMENTWISE, clip, ufunc, where
from ._indexing import assign, gather, take, take_along_axis, take_any, to_device
from ._linear import matmul, outer, tensordot, vecdot
from ._manipulation import (
    astype,
    broadcast_arrays,
    broadcast_to,
    concat,
    copied,
    diff,
    expand_dims,
    flip,
    matrix_transpose,
    moveaxis,
    permute_dims,
    reshape,
    roll,
    squeeze,
    stack,
    tile,
    transposed,
    unstack,
)
from ._namespace import VERSION, Info, namespace_of
from ._operands import is_operand
from ._ordering import argsort, cumulative_prod, cumulative_sum, searchsorted, sort
from ._reductions import all, any, argmax, argmin, count_nonzero, max, mean, min, prod, std, sum, var
from ._selection import nonzero, repeat, unique_all, unique_counts, unique_inverse, unique_values
from ._types import can_cast, finfo, iinfo, isdtype, result_type

newaxis = None
__array_api_version__ = VERSION
globals().update(ELEMENTWISE)
globals().update(DTYPES)


def __array_namespace_info__() -> Info:  # noqa: N807 - the standard's name
    """Return what the namespace can do."""
    return Info(None)


#: Names that handles and functions of NumPy use, and the standard does not have; constants; the extension.
_OTHER = (
    e,
    inf,
    nan,
    pi,
    __array_api_version__,
    assign,
    copied,
    fft,
    gather,
    is_operand,
    linalg,
    namespace_of,
    outer,
    take_any,
    to_device,
    transposed,
    ufunc,
)

__all__ = [
    "all", "any", "arange", "argmax", "argmin", "argsort", "asarray", "astype", "broadcast_arrays", "broadcast_to",
    "can_cast", "clip", "concat", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "empty",
    "empty_like", "expand_dims", "eye", "finfo", "flip", "from_dlpack", "full", "full_like", "iinfo", "isdtype",
    "linspace", "matmul", "matrix_transpose", "max", "mean", "meshgrid", "min", "moveaxis", "nonzero", "ones",
    "ones_like", "permute_dims", "prod", "repeat", "reshape", "result_type", "roll", "searchsorted", "sort",
    "squeeze", "stack", "std", "sum", "take", "take_along_axis", "tensordot", "tile", "tril", "triu", "unique_all",
    "unique_counts", "unique_inverse", "unique_values", "unstack", "var", "vecdot", "where", "zeros", "zeros_like",
    *ELEMENTWISE,
]  # fmt: skip
named_members(globals(), __all__)


def __getattr__(name: str) -> Any:
    # Type checkers do not see the functions of `ELEMENTWISE`, nor the dtypes.
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}; docs/array_api.md says what is left out, and why"
    )
