"""Gathers and sequences of numbers: requests of the functions of arrays, and their rules."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from ...arrays.operands import Fresh, check_input, check_size
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.calls import form_of
from ...plans.lowering import Lowered, Request, Scalar, read, written
from .attributes import TakeAttributes

__all__ = ["SEQUENCE", "TAKE", "SequenceRequest", "TakeRequest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeRequest(Request[Any]):
    """Elements of `x` at integer indices along an axis.

    Parameters
    ----------
    x, indices
        With `along`, of equal shapes but for the axis, and the result has the shape of the indices; otherwise the axes
        of the indices stand in the place of the axis.
    axis
        Counted from the front.
    along
        Whether each index belongs to one element of the result.
    """

    x: Any
    indices: Any
    axis: int
    along: bool = False

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        x = check_input("x", self.x, backwards=True)
        indices = check_input("indices", self.indices, backwards=True)
        kind = as_dtype(indices.dtype)
        if kind.kind not in "iu":
            raise InvalidRequest(f"indices has dtype {dtype_name(kind)}; allowed: integer dtypes")
        shape = tuple(x.shape)
        place = tuple(indices.shape) if self.along else (*shape[: self.axis], *indices.shape, *shape[self.axis + 1 :])
        if not shape[self.axis] and 0 not in place:
            raise InvalidRequest(
                f"indices of shape {tuple(indices.shape)} into axis {self.axis} of shape {shape}, which is empty"
            )
        fresh = Fresh(place, as_dtype(x.dtype))
        check_size("out", *fresh)
        return Lowered(
            op="elementwise.take",
            operands=(read("x", self.x), read("indices", self.indices), written("out", None, fresh)),
            collect=itemgetter("out"),
            attributes=TakeAttributes(axis=self.axis, along=self.along),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRequest(Request[Any]):
    """The numbers ``start + i * step`` for i from 0, computed in int64 or float64.

    Parameters
    ----------
    count, dtype
        How many, and their dtype.
    start, step
        Both integers, or both floats.
    """

    count: int
    dtype: str
    start: float
    step: float

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        fresh = Fresh((self.count,), DTYPES[self.dtype])
        check_size("out", *fresh)
        kind = "int64" if isinstance(self.start, int) else "float64"
        return Lowered(
            op="elementwise.sequence",
            operands=(written("out", None, fresh),),
            collect=itemgetter("out"),
            scalars=(Scalar("start", kind, self.start), Scalar("step", kind, self.step)),
        )


TAKE: Final = form_of(TakeRequest, "x indices", "axis along")
SEQUENCE: Final = form_of(SequenceRequest, "", "count dtype", "start step")
