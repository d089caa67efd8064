"""Requests of the blend actor."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ..._support.checks import is_real
from ..._support.public import public
from ...arrays.operands import Fresh, check_output
from ...dtypes import DTYPES, as_dtype
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Request, Scalar, read, written
from .spec import check_pair

if TYPE_CHECKING:
    pass

__all__ = ["MixRequest"]


@public
@dataclass(frozen=True, kw_only=True)
class MixRequest(Request["GpuRef"]):
    """A weighted mean, ``weight * x + (1 - weight) * y``, checked when it is made.

    Parameters
    ----------
    x, y : GpuRef
        float32 or float64, of one dtype and shape.
    weight : float
        From 0 to 1.
    out : GpuRef, optional
        Where the result goes, x or y itself among others.

    Raises
    ------
    InvalidRequest
        For arrays that do not fit each other, and a weight out of range.
    """

    x: Any
    y: Any
    weight: float
    out: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        dtype, shape = check_pair(self.x, self.y)
        if not is_real(self.weight) or not 0 <= self.weight <= 1:
            raise InvalidRequest(f"weight={self.weight!r}; allowed: a number from 0 to 1")
        if self.out is not None:
            check_output("out", self.out)
            if tuple(self.out.shape) != shape or as_dtype(self.out.dtype) != DTYPES[dtype]:
                raise InvalidRequest(f"out is {self.out.dtype}{list(self.out.shape)}; allowed: {dtype}{list(shape)}")
        return Lowered(
            op="blend.mix",
            operands=(read("x", self.x), read("y", self.y), written("out", self.out, Fresh(shape, DTYPES[dtype]))),
            collect=itemgetter("out"),
            scalars=(Scalar("weight", "float64", float(self.weight)),),
        )
