"""The request of cosine and sine transforms, types I to IV."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..._support.checks import check_choice, is_integer
from ..._support.public import public
from ...arrays.operands import Fresh, check_disjoint, check_size, same_view
from ...dtypes import DTYPES
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Request, read, written
from .attributes import CosineAttributes
from .spec import NORMS, STORED, check_result, points_of, with_tuples

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["COSINES", "DctRequest", "cosine_factor", "forward_type", "period"]

COSINES: Final = ("dct", "idct", "dst", "idst")


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class DctRequest(Request["GpuRef"]):
    """A discrete cosine or sine transform, checked when it is made: those of `scipy.fft`.

    Parameters
    ----------
    transform : str
        ``"dct"``, ``"dst"``, or their inverses ``"idct"`` and ``"idst"``.
    x : GpuRef
        Of a real dtype, any shape and strides.  Computed in float32 and float64 as `FftRequest` has it.
    type : int
        1 to 4.  The inverse of type 2 is type 3, but for the factor; the others are their own inverses.
    s : int or tuple of int, optional
        Points along each of the axes: x is cut, or continued by zeros; -1 stands for those of x.  At least 2 for a
        cosine transform of type 1.
    axes : int or tuple of int, optional
        By default the last ``len(s)`` axes, or all without `s`.
    norm : str, optional
        ``"backward"`` (the default): inverse transforms are divided by the periods' product, ``2 * n`` for each axis,
        ``2 * (n - 1)`` and ``2 * (n + 1)`` for cosine and sine transforms of type 1.  ``"forward"``: the others are.
        ``"ortho"``: all are divided by its square root.  ``"none"``: no transform is scaled.
    orthogonalize : bool, optional
        Whether the first (or last) elements are scaled such that the transform's matrix is orthogonal under
        ``"ortho"``; by default under ``"ortho"`` only.
    out : GpuRef, optional
        Where the result goes: of the shape of the result, any strides, float32 or float64 as it is computed; float16
        and bfloat16 for float32.  x itself, or memory that it does not share.

    Raises
    ------
    InvalidRequest
        For invalid values; the message names the value and the allowed ones.

    Examples
    --------
    >>> x = device.put(np.array([1.0, 2.0, 4.0]))
    >>> device.fft.tell(an.DctRequest(x=x, norm="ortho")).numpy().round(4)
    array([ 4.0415, -2.1213,  0.4082])
    """

    x: Any
    transform: str = "dct"
    type: int = 2
    s: Any = None
    axes: Any = None
    norm: str | None = None
    orthogonalize: bool | None = None
    out: GpuRef | None = None

    def __post_init__(self) -> None:
        with_tuples(self, "s", "axes")
        Request.__post_init__(self)

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        check_choice("transform", self.transform, COSINES)
        if not is_integer(self.type) or not 1 <= self.type <= 4:
            raise InvalidRequest(f"type={self.type!r}; allowed: 1, 2, 3, 4")
        norm = "backward" if self.norm is None else self.norm
        check_choice("norm", norm, NORMS)
        if self.orthogonalize is not None and not isinstance(self.orthogonalize, bool | np.bool):
            raise InvalidRequest(f"orthogonalize={self.orthogonalize!r}; allowed: None, False, True")
        real, axes, lengths, extents = points_of(self, "r2r")
        if self.type == 1 and self.transform.endswith("dct") and min(lengths) < 2:
            raise InvalidRequest(
                f"{self.transform} of type 1 of {min(lengths)} point; allowed: 2 or more, or another type"
            )
        fresh = Fresh(tuple(extents), DTYPES[real])
        check_size("out", fresh.shape, fresh.dtype)
        if self.out is not None:
            fresh = check_result(self.out, fresh, STORED[real])
            if not same_view(self.x, self.out):
                check_disjoint([("out", self.out)], [("x", self.x)])
        orthogonal = norm == "ortho" if self.orthogonalize is None else bool(self.orthogonalize)
        return Lowered(
            op="fft.cosine",
            operands=(read("x", self.x), written("out", self.out, fresh)),
            collect=itemgetter("out"),
            attributes=CosineAttributes(
                transform=self.transform,
                type=int(self.type),
                axes=axes,
                lengths=lengths,
                norm=norm,
                orthogonalize=orthogonal,
            ),
        )


def forward_type(how: CosineAttributes) -> int:
    """Return the type of the transform that is computed: the inverse of type 2 is type 3."""
    return {2: 3, 3: 2}.get(how.type, how.type) if how.transform.startswith("i") else how.type


def period(transform: str, kind: int, n: int) -> int:
    """Return the period of what a transform of n points continues its input to."""
    return 2 * n if kind != 1 else 2 * (n - 1) if transform.endswith("dct") else 2 * (n + 1)


def cosine_factor(how: CosineAttributes) -> float:
    """Return the factor of a transform's results."""
    points = math.prod(period(how.transform, how.type, n) for n in how.lengths)
    if how.norm == "ortho":
        return 1 / math.sqrt(points)
    return 1 / points if how.norm == ("backward" if how.transform.startswith("i") else "forward") else 1.0
