"""The request of transforms whose input and output have 16 bits, and cuFFT's rules for them."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..._support.checks import check_choice, check_flag
from ..._support.public import public
from ...arrays.operands import Fresh, check_disjoint, check_input, check_size
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest, Unsupported
from ...plans.lowering import Lowered, Request, read, written
from .attributes import FftAttributes
from .spec import NORMS, TRANSFORMS, axes_of, check_result, factor, is_aligned, lengths_of, numbers_of, with_tuples

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["HALF_ARCHITECTURES", "HALF_TRANSFORMS", "HalfFftRequest", "refused", "why_wide"]

#: Transforms of 16 bits; of each dtype, the first architecture that cuFFT computes it on.
HALF_TRANSFORMS: Final = ("fft", "ifft", "rfft", "irfft")
HALF_ARCHITECTURES: Final = {"float16": 53, "bfloat16": 80}
#: Elements of a batch, and axes, that a plan of cuFFT has at most; bytes of a pair.
_MOST_ELEMENTS: Final = 4_000_000_000
_MOST_AXES: Final = 3
_PAIR: Final = 4
_NEWEST: Final = 1000


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class HalfFftRequest(Request["GpuRef"]):
    """A Fourier transform in float16 or bfloat16, checked when it is made.

    A complex array has a last axis of 2 elements: the real and the imaginary part.

    Parameters
    ----------
    transform : str
        ``"fft"``, ``"ifft"``, ``"rfft"`` or ``"irfft"``, as `FftRequest` has them.
    x : GpuRef
        float16 or bfloat16, of any strides: pairs, or the real numbers of ``"rfft"``.
    s, axes
        As `FftRequest` has them; the axis of the pairs is not counted.
    norm : str, optional
        As `FftRequest` has it.
    hermitian : bool
        Of ``"irfft"``, as `FftRequest` has it.
    convert : bool
        Whether it may be computed in float32 where cuFFT does not compute it in 16 bits.  With False that is refused,
        also for the host device, which computes in float32.
    out : GpuRef, optional
        Where the result goes: of the dtype of x; shares no memory with it.

    Raises
    ------
    InvalidRequest
        For invalid values; the message names the value and the allowed ones.
    Unsupported
        With ``convert=False``, with the rule ``fft.half``: for what cuFFT does not compute in 16 bits.  Rules of strides
        and of the GPU are held when the plan is built.

    Examples
    --------
    >>> x = device.put(np.arange(4.0).astype("float16"))
    >>> device.fft.tell(an.HalfFftRequest(transform="rfft", x=x)).numpy().tolist()
    [[6.0, 0.0], [-2.0, 2.0], [-2.0, 0.0]]
    """

    transform: str
    x: Any
    s: Any = None
    axes: Any = None
    norm: str | None = None
    hermitian: bool = False
    convert: bool = True
    out: GpuRef | None = None

    def __post_init__(self) -> None:
        with_tuples(self, "s", "axes")
        Request.__post_init__(self)

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        check_choice("transform", self.transform, HALF_TRANSFORMS)
        kind, norm = TRANSFORMS[self.transform], "backward" if self.norm is None else self.norm
        check_choice("norm", norm, NORMS)
        check_flag("hermitian", self.hermitian, bool | np.bool)
        check_flag("convert", self.convert, bool | np.bool)
        if self.hermitian and kind != "c2r":
            raise InvalidRequest(f"hermitian=True of {self.transform}; allowed: False, and True for irfft")
        x = check_input("x", self.x, backwards=True)
        dtype, shape = dtype_name(as_dtype(x.dtype)), tuple(x.shape)
        if dtype not in HALF_ARCHITECTURES:
            raise InvalidRequest(f"x has dtype {dtype}; allowed: {', '.join(HALF_ARCHITECTURES)}")
        if kind != "r2c":
            if not shape or shape[-1] != 2:
                raise InvalidRequest(f"x of {self.transform} has shape {shape}; allowed: a last axis of 2, for pairs")
            shape = shape[:-1]
        if not shape:
            raise InvalidRequest("x has no axes to transform; allowed: 1 or more")
        given = None if self.s is None else numbers_of("s", self.s)
        axes = axes_of(self.axes, shape, given)
        lengths = lengths_of(given, axes, shape, kind)
        extents = list(shape)
        for axis, n in zip(axes, lengths, strict=True):
            extents[axis] = n // 2 + 1 if kind == "r2c" and axis == axes[-1] else n
        fresh = Fresh((*extents, *(() if kind == "c2r" else (2,))), DTYPES[dtype])
        check_size("out", fresh.shape, fresh.dtype)
        if self.out is not None:
            check_result(self.out, fresh)
            check_disjoint([("out", self.out)], [("x", self.x)])
        attributes = FftAttributes(
            transform=self.transform, axes=axes, lengths=lengths, norm=norm, hermitian=bool(self.hermitian),
            aligned=(is_aligned(self.x, _PAIR), self.out is None or is_aligned(self.out, _PAIR)),
            converts=bool(self.convert),
        )  # fmt: skip
        if not self.convert and (why := why_wide(attributes, dtype, tuple(x.shape))):
            raise refused(attributes, dtype, tuple(x.shape), why)
        return Lowered(
            op="fft.half",
            operands=(read("x", self.x), written("out", self.out, fresh)),
            collect=itemgetter("out"),
            attributes=attributes,
        )


def refused(how: FftAttributes, dtype: str, shape: tuple[int, ...], why: str) -> Unsupported:
    """Return the error for a transform that is not computed in 16 bits, and must not be converted."""
    return Unsupported(
        f"{how.transform} of {dtype} with shape {shape} along {how.axes}, in 16 bits: {why}; convert=True computes it "
        f"in float32",
        rule="fft.half",
    )


def why_wide(how: FftAttributes, dtype: str, shape: tuple[int, ...], architecture: int = _NEWEST) -> str:
    """Return why a transform is not computed in 16 bits, or nothing; `shape` is that of x, with its pairs.

    Without an `architecture`, it may be any that cuFFT supports.
    """
    kind = TRANSFORMS[how.transform]
    extents = shape if kind == "r2c" else shape[:-1]
    if kind == "c2r":
        return "cuFFT overwrites the input of irfft"
    if architecture < HALF_ARCHITECTURES[dtype]:
        return f"{dtype} takes sm_{HALF_ARCHITECTURES[dtype]}, and this is sm_{architecture}"
    if odd := [n for n in how.lengths if n < 2 or n & (n - 1)]:
        return f"cuFFT takes powers of two from 2 on in {dtype}, and a length is {odd[0]}"
    if any(extents[axis] != n for axis, n in zip(how.axes, how.lengths, strict=True)):
        return "x is cut, or continued by zeros"
    if len(how.axes) > _MOST_AXES:
        return f"cuFFT transforms {_MOST_AXES} axes at most, and these are {len(how.axes)}"
    if dtype == "float16" and factor(how.transform, how.norm, how.lengths) != 1:
        return "float16 would overflow before the factor"
    if int(np.prod(extents, dtype=object)) > _MOST_ELEMENTS:
        return f"cuFFT takes {_MOST_ELEMENTS} elements at most in {dtype}"
    if not all(how.aligned):
        return f"x or out does not start at a multiple of {_PAIR} bytes"
    return ""
