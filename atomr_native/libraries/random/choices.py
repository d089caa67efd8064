"""The request of the random actor for indices by weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._support.checks import check_flag
from ..._support.public import public
from ...arrays.operands import check_input, contiguous_strides, is_contiguous
from ...compile.shipped import Part
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Request, Scalar, ShippedKernels, read
from .attributes import ChooseAttributes
from .kernels.positions import INTEGERS, LEAST_WEIGHT, MOST_ITEMS
from .operands import check_range, output
from .spec import as_shape, check_counters

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef  # noqa: F401 - the result of requests

__all__ = ["ChoiceRequest", "checked_weights"]


def checked_weights(weights: Any) -> np.ndarray[Any, Any]:
    """Return weights of the program as float64.

    Raises
    ------
    InvalidRequest
        For anything but one axis of finite numbers of 0 or more with a sum above 0.
    """
    try:
        found = np.asarray(weights, np.float64)
    except (TypeError, ValueError):
        raise InvalidRequest(f"weights={weights!r}; allowed: real numbers, or an array of one axis") from None
    if found.ndim != 1 or not np.all((found >= 0) & (found < np.inf)) or not LEAST_WEIGHT <= found.sum() < np.inf:
        raise InvalidRequest(
            f"weights={weights!r}; allowed: one axis of finite numbers of 0 or more, with a finite sum above 0"
        )
    return found


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceRequest(Request["GpuRef"]):
    """Indices that are drawn by their weights, checked when it is made.

    The weights are checked on the device: the message fails with `LibraryError` if one is negative or not finite, or
    their sum is less than 2**-960 or infinite, or without replacement fewer are above 0 than indices are drawn.

    Parameters
    ----------
    weights : array
        float32 or float64 of shape (n,), which need not have the sum 1.
    shape : int or tuple of int, optional
        By default that of `out`, or ().
    dtype : dtype, optional
        An integer that holds n - 1; int64, or that of `out`, by default.
    replace : bool
        Whether an index may come twice.  Without replacement n is at most 65536, and indices are in the order in which
        they would be drawn one by one.
    seed, stream, offset
        As of `RandomRequest`; without replacement n positions are taken.
    out : array, optional
        Where the indices go, contiguous; allocated if missing.

    Raises
    ------
    InvalidRequest
        For what cannot work; the message names the value and the allowed ones.

    Examples
    --------
    >>> weights = device.put(np.array([0.0, 1.0, 0.0]))
    >>> device.random.tell(an.ChoiceRequest(weights=weights, shape=4, seed=7)).numpy()
    array([1, 1, 1, 1])
    """

    weights: Any
    shape: Any = None
    dtype: Any = None
    replace: bool = True
    seed: int
    stream: int = 0
    offset: Any = 0
    out: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        check_flag("replace", self.replace)
        kind, found = dtype_name(as_dtype(check_input("weights", self.weights).dtype)), tuple(self.weights.shape)
        if kind not in ("float32", "float64") or len(found) != 1 or not found[0]:
            raise InvalidRequest(
                f"weights has dtype {kind} and shape {found}; allowed: float32 or float64 of (n,), n above 0"
            )
        n = found[0]
        dtype = dtype_name(as_dtype(self.dtype if self.dtype is not None else getattr(self.out, "dtype", "int64")))
        if dtype not in INTEGERS or n > np.iinfo(dtype).max + 1:
            held = [name for name in INTEGERS if n <= np.iinfo(name).max + 1]
            raise InvalidRequest(f"dtype {dtype} of indices below {n}; allowed: {', '.join(held)}")
        shape = as_shape(self.shape if self.shape is not None else getattr(self.out, "shape", ()), dtype)
        count = math.prod(shape)
        if not self.replace and not count <= n <= MOST_ITEMS:
            raise InvalidRequest(
                f"{count} indices of {n} without replacement; allowed: up to {min(n, MOST_ITEMS)} of up to {MOST_ITEMS}"
            )
        if self.out is not None and not is_contiguous(self.out):
            raise InvalidRequest(
                f"out has strides {tuple(self.out.strides)}; allowed: the contiguous "
                f"{contiguous_strides(shape, DTYPES[dtype].itemsize)}"
            )
        taken = count if self.replace else n
        counters, start = check_range(self.seed, self.stream, self.offset, taken)
        inputs = [read("weights", self.weights), *start]
        scalars = zip(counters, check_counters(taken, *counters.values()), strict=True)
        given = ("given", bool(start))
        parts: tuple[Part, ...]
        if self.replace:
            parts = (Part("sums", (("weights", kind),)), Part("totals", ()), Part("pick", (("dtype", dtype), given)))
        else:
            parts = (Part("keys", (("weights", kind), given)), Part("ranks", (("dtype", dtype),)))
        return Lowered(
            op="random.choose",
            operands=(*inputs, output(self.out, dtype, shape, inputs)),
            collect=itemgetter("out"),
            attributes=ChooseAttributes(replace=self.replace),
            scalars=tuple(Scalar(name, "int64", value) for name, value in scalars),
            numbers=tuple(counters),
            convert=partial(check_counters, taken),
            code=ShippedKernels("random.choose", (Part("clear", ()), *parts)),
        )
