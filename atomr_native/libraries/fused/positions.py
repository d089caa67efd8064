"""Requests of the fused actor that go by the places of elements: rotary embeddings and dropout."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from ..._support.checks import as_integer, check_flag
from ..._support.public import public
from ...arrays.operands import check_input, is_contiguous
from ...compile.shipped import Part
from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Request, Scalar, ShippedKernels, read
from .attributes import RopeAttributes, ShippedAttributes
from .spec import check_float, check_number, output

if TYPE_CHECKING:
    pass

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef  # noqa: F401 - the result of requests

__all__ = ["DropoutRequest", "RopeRequest"]

_NARROW: Final = ("float32", "float16", "bfloat16")
_COUNTERS: Final = 2**62
_WORDS: Final = 2**32
_SCALARS: Final = (("threshold", "int64"), ("scale", "float64"), ("seed", "int64"), ("offset", "int64"))


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class RopeRequest(Request["GpuRef"]):
    """Rotary position embedding; checked when it is made.

    Parameters
    ----------
    x
        float32, float16 or bfloat16 of (..., tokens, heads, head dimension), the last one even.
    positions
        int32 or int64, contiguous: of each token, of the shape that x has without heads and head dimension; or without
        some of its first axes, over which positions are then repeated.
    theta : float
        Base of the angles' wavelengths, above 0; travels in the message.
    interleaved : bool
        Whether pairs are neighbours (2 i and 2 i + 1), as in the paper; else i and i + half of the head dimension.
    inverse : bool
        Whether to turn back: the gradient by x of the gradient of the result.
    out
        Where the result goes, x itself among others; allocated if missing.

    Raises
    ------
    InvalidRequest
        For what cannot work; the message names the value and the allowed ones.

    Examples
    --------
    >>> x = device.put(np.ones((3, 1, 4), "float32"))
    >>> positions = device.put(np.arange(3, dtype="int32"))
    >>> device.fused.tell(an.RopeRequest(x=x, positions=positions)).numpy()[0]
    array([[1., 1., 1., 1.]], dtype=float32)
    """

    x: Any
    positions: Any
    theta: float = 10000.0
    interleaved: bool = False
    inverse: bool = False
    out: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        dtype = check_float("x", self.x, _NARROW)
        shape = tuple(self.x.shape)
        if len(shape) < 3 or shape[-1] % 2:
            raise InvalidRequest(
                f"x has shape {shape}; allowed: (..., tokens, heads, head dimension), the last one even"
            )
        kind = dtype_name(as_dtype(check_input("positions", self.positions).dtype))
        places = tuple(self.positions.shape)
        if kind not in ("int32", "int64") or not places or places != shape[-2 - len(places) : -2]:
            raise InvalidRequest(
                f"positions has dtype {kind} and shape {places}; allowed: int32 or int64 of {shape[:-2]}, or without "
                f"some of its first axes"
            )
        if not is_contiguous(self.positions):
            raise InvalidRequest(f"positions has strides {tuple(self.positions.strides)}; allowed: a contiguous array")
        for name in ("interleaved", "inverse"):
            check_flag(name, getattr(self, name))
        theta = check_number("theta", self.theta, 0.0, math.inf, above=True)
        inputs = (read("x", self.x), read("positions", self.positions))
        part = Part("rope", (("dtype", dtype), ("positions", kind), ("interleaved", self.interleaved)))
        return Lowered(
            op="fused.rope",
            operands=(*inputs, output("out", self.out, dtype, shape, inputs, in_place=True)),
            collect=itemgetter("out"),
            attributes=RopeAttributes(interleaved=self.interleaved, inverse=self.inverse),
            scalars=(Scalar("theta", "float64", theta),),
            code=ShippedKernels("fused.rope", (part,)),
        )


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class DropoutRequest(Request["GpuRef"]):
    """Dropout by a counter-based generator; checked when it is made.

    The gradient is the same request with the result's gradient as x: no mask is kept.

    Parameters
    ----------
    x
        float32, float16, bfloat16 or float64, of any shape.
    p : float
        Probability with which an element becomes 0, from 0 to 1, as a multiple of 2**-32; the others are multiplied by
        ``1 / (1 - p)``.
    seed : int
        Key of the generator, from 0 to 2**63 - 1.
    offset : int
        First counter, from 0 to 2**62 - 1; x uses ``ceil(x.size / 8)`` of them.
    out
        Where the result goes, x itself among others; allocated if missing.

    Raises
    ------
    InvalidRequest
        For what cannot work; the message names the value and the allowed ones.

    Examples
    --------
    >>> x = device.put(np.ones(1000, "float32"))
    >>> y = device.fused.tell(an.DropoutRequest(x=x, p=0.5, seed=1)).numpy()
    >>> sorted(set(y.tolist()))
    [0.0, 2.0]
    """

    x: Any
    p: float
    seed: int
    offset: int = 0
    out: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        dtype = check_float("x", self.x)
        p = check_number("p", self.p, 0.0, 1.0)
        seed = as_integer("seed", self.seed, 0, 2**63 - 1)
        offset = as_integer("offset", self.offset, 0, _COUNTERS - 1)
        scalars = zip(_SCALARS, _scalars(p, seed, offset), strict=True)
        inputs = (read("x", self.x),)
        return Lowered(
            op="fused.dropout",
            operands=(*inputs, output("out", self.out, dtype, tuple(self.x.shape), inputs, in_place=True)),
            collect=itemgetter("out"),
            attributes=ShippedAttributes(),
            scalars=tuple(Scalar(name, kind, value) for (name, kind), value in scalars),
            numbers=("p", "seed", "offset"),
            convert=_scalars,
            code=ShippedKernels("fused.dropout", (Part("dropout", (("dtype", dtype),)),)),
        )


def _scalars(p: float, seed: int, offset: int) -> tuple[float | int, ...]:
    """Return the scalars of a message; p counts in steps of 2**-32."""
    threshold = round(float(p) * _WORDS)
    return threshold, 0.0 if threshold == _WORDS else 1.0 / (1.0 - float(p)), seed, offset
