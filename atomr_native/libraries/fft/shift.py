"""The request of shifts: frequencies from 0 on are moved to the middle of an array, or back."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._support.checks import check_flag
from ..._support.public import public
from ...arrays.operands import Fresh, check_disjoint, check_input
from ...dtypes import as_dtype
from ...plans.lowering import Lowered, Request, read, written
from .attributes import ShiftAttributes
from .spec import axes_of, check_result, with_tuples

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["FftShiftRequest"]


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class FftShiftRequest(Request["GpuRef"]):
    """A cyclic shift by half of each axis, checked when it is made: `numpy.fft.fftshift` and its inverse.

    Parameters
    ----------
    x : GpuRef
        Any shape, strides and dtype.
    axes : int or tuple of int, optional
        Axes that are shifted, each at most once; by default all.
    inverse : bool
        False: by ``n // 2``, which moves the first element to the middle (``fftshift``).  True: by ``-(n // 2)``,
        which moves it back (``ifftshift``).  Both are the same along axes of even length.
    out : GpuRef, optional
        Where the result goes, of the shape and dtype of x; shares no memory with it.

    Raises
    ------
    InvalidRequest
        With the value and the allowed ones.

    Examples
    --------
    >>> x = device.put(np.arange(5))
    >>> device.fft.tell(an.FftShiftRequest(x=x)).numpy()
    array([3, 4, 0, 1, 2])
    """

    x: GpuRef
    axes: Any = None
    inverse: bool = False
    out: GpuRef | None = None

    def __post_init__(self) -> None:
        with_tuples(self, "axes")
        Request.__post_init__(self)

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        check_flag("inverse", self.inverse, bool | np.bool)
        x = check_input("x", self.x, backwards=True)
        shape = tuple(x.shape)
        axes = tuple(range(len(shape))) if self.axes is None else axes_of(self.axes, shape)
        fresh = Fresh(shape, as_dtype(x.dtype))
        if self.out is not None:
            check_result(self.out, fresh)
            check_disjoint([("out", self.out)], [("x", self.x)])
        sign = -1 if self.inverse else 1
        shifts = tuple(sign * (n // 2) % n if n and axis in axes else 0 for axis, n in enumerate(shape))
        return Lowered(
            op="fft.shift",
            operands=(read("x", self.x), written("out", self.out, fresh)),
            collect=itemgetter("out"),
            attributes=ShiftAttributes(shifts=shifts),
        )
