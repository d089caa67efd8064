"""Requests of short-time transforms: transforms of frames of a signal that overlap, and the signal of such frames."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec.structs import replace

from ..._support.checks import as_integer, check_choice, check_flag
from ..._support.public import public
from ...arrays.operands import Fresh, check_disjoint, check_input, check_size
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Operand, Request, read, written
from .attributes import FramesAttributes
from .spec import COMPLEX_OF, COMPUTED, STORED, check_result, is_aligned

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["LEAST", "IstftRequest", "StftRequest", "scale_of"]

#: Sums of squared windows below it count as no window at all.
LEAST: Final = 1e-11
_PADS: Final = ("reflect", "constant")
_WINDOWS: Final = ("float64", "float32", "float16", "bfloat16")
_MOST: Final = 2**62


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class StftRequest(Request["GpuRef"]):
    """A short-time transform, checked when it is made: that of each frame of a signal, as `torch.stft` has it.

    Parameters
    ----------
    x : GpuRef
        Signals along the last axis, of any strides and a dtype of `FftRequest`.
    n_fft : int
        Points of a frame.
    hop_length : int, optional
        Samples from one frame to the next, by default ``n_fft // 4``.
    win_length : int, optional
        Points of the window, `n_fft` at most and by default; it stands in the middle of a frame, with zeros around.
    window : GpuRef, optional
        Of shape (win_length,) and a floating dtype; ones by default.
    center : bool
        Whether frame t has its middle at sample ``t * hop_length``: the signal is continued by ``n_fft // 2`` samples
        on both sides.  Otherwise it begins there, and frames lie within the signal.
    pad_mode : str
        How the signal is continued: ``"reflect"``, without its last sample twice, or ``"constant"``, by zeros.
    normalized : bool
        Whether results are divided by ``sqrt(n_fft)``.
    onesided : bool, optional
        Whether only the first ``n_fft // 2 + 1`` frequencies are kept; by default for real signals, for which alone it
        is possible.
    out : GpuRef, optional
        Where the result goes, of any strides; shares no memory with x and the window.

    Returns
    -------
    GpuRef
        Complex, (..., frequencies, frames); a new array is a view of one with its last axes exchanged, as torch's.

    Raises
    ------
    InvalidRequest
        For invalid values; the message names the value and the allowed ones.

    Examples
    --------
    >>> x = device.put(np.ones(16))
    >>> device.fft.tell(an.StftRequest(x=x, n_fft=4, center=False)).shape
    (3, 13)
    """

    x: Any
    n_fft: int
    hop_length: int | None = None
    win_length: int | None = None
    window: GpuRef | None = None
    center: bool = True
    pad_mode: str = "reflect"
    normalized: bool = False
    onesided: bool | None = None
    out: GpuRef | None = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        x, dtype = _signal("x", self.x, 1)
        real = not dtype.startswith("complex")
        onesided = real if self.onesided is None else self.onesided
        check_flag("onesided", onesided, bool | np.bool)
        if onesided and not real:
            raise InvalidRequest(f"onesided=True of x with dtype {dtype}; allowed: False, and True for real signals")
        check_choice("pad_mode", self.pad_mode, _PADS)
        n, hop, width = _lengths(self)
        samples = x.shape[-1]
        if self.center and self.pad_mode == "reflect" and samples <= n // 2:
            raise InvalidRequest(
                f"x has {samples} samples; allowed: more than {n // 2} for n_fft={n} with center=True and "
                f"pad_mode='reflect', or pad_mode='constant'"
            )
        whole = samples + (2 * (n // 2) if self.center else 0)
        if whole < n:
            raise InvalidRequest(f"x has {samples} samples, and frames have {n}; allowed: {n} or more, or center=True")
        made = DTYPES[COMPLEX_OF[COMPUTED[dtype]]]
        fresh = Fresh((*x.shape[:-1], n // 2 + 1 if onesided else n, 1 + (whole - n) // hop), made)
        check_size("out", *fresh)
        if self.out is not None:
            check_result(self.out, fresh)
        return _lowered("fft.stft", self, fresh, (n, hop, width), made, onesided=bool(onesided), pad=self.pad_mode)


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class IstftRequest(Request["GpuRef"]):
    """The inverse of `StftRequest`, checked when it is made: a signal by the sum of its windowed frames.

    The sum is divided by that of the squared windows.  Samples that no window reaches are zero.

    Parameters
    ----------
    x : GpuRef
        complex64 or complex128, (..., frequencies, frames), of any strides.
    n_fft, hop_length, win_length, window, center, normalized
        As `StftRequest` has them.
    onesided : bool
        Whether x has ``n_fft // 2 + 1`` frequencies, those of a real signal; otherwise it has `n_fft`, and the signal
        is complex.
    length : int, optional
        Samples of the signal, by default ``(frames - 1) * hop_length``, and `n_fft` more without `center`, one more
        with an odd `n_fft`.  It is continued by zeros.
    out : GpuRef, optional
        Where the result goes, of any strides; float16 and bfloat16 round a real float32 result.  Shares no memory with
        x and the window.

    Raises
    ------
    InvalidRequest
        For invalid values; the message names the value and the allowed ones.

    Examples
    --------
    >>> x, window = np.arange(32.0), device.put(np.hanning(8))
    >>> frames = device.fft.stft(device.put(x), 8, window=window)
    >>> np.allclose(device.fft.istft(frames, 8, window=window).numpy(), x)
    True
    """

    x: Any
    n_fft: int
    hop_length: int | None = None
    win_length: int | None = None
    window: GpuRef | None = None
    center: bool = True
    normalized: bool = False
    onesided: bool = True
    length: int | None = None
    out: GpuRef | None = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        x, dtype = _signal("x", self.x, 2)
        if not dtype.startswith("complex"):
            raise InvalidRequest(f"x has dtype {dtype}; allowed: complex64, complex128")
        check_flag("onesided", self.onesided, bool | np.bool)
        n, hop, width = _lengths(self)
        frequencies, frames = x.shape[-2:]
        wanted = n // 2 + 1 if self.onesided else n
        if frequencies != wanted or frames < 1:
            raise InvalidRequest(
                f"x has shape {tuple(x.shape)}; allowed: (..., {wanted}, frames) for n_fft={n} and "
                f"onesided={self.onesided}, with 1 frame or more"
            )
        natural = n + hop * (frames - 1) - (2 * (n // 2) if self.center else 0)
        samples = natural if self.length is None else as_integer("length", self.length, 1, _MOST)
        real = COMPUTED[dtype]
        made = DTYPES[real if self.onesided else COMPLEX_OF[real]]
        fresh = Fresh((*x.shape[:-2], samples), made)
        check_size("out", *fresh)
        if self.out is not None:
            fresh = check_result(self.out, fresh, STORED[real] if self.onesided else ())
        return _lowered("fft.istft", self, fresh, (n, hop, width), made, onesided=bool(self.onesided))


def _signal(name: str, given: Any, axes: int) -> tuple[Any, str]:
    x = check_input(name, given, backwards=True)
    dtype = dtype_name(as_dtype(x.dtype))
    if dtype not in COMPUTED:
        raise InvalidRequest(f"{name} has dtype {dtype}; allowed: {', '.join(COMPUTED)}")
    if len(x.shape) < axes:
        raise InvalidRequest(f"{name} has shape {tuple(x.shape)}; allowed: {axes} axes or more")
    return x, dtype


def _lengths(request: Any) -> tuple[int, int, int]:
    """Return points of a frame, the step from frame to frame, and points of the window."""
    for name in ("center", "normalized"):
        check_flag(name, getattr(request, name), bool | np.bool)
    n = as_integer("n_fft", request.n_fft, 1, _MOST)
    hop = max(1, n // 4) if request.hop_length is None else as_integer("hop_length", request.hop_length, 1, _MOST)
    width = n if request.win_length is None else as_integer("win_length", request.win_length, 1, n)
    if request.window is not None:
        window = check_input("window", request.window, backwards=True)
        dtype = dtype_name(as_dtype(window.dtype))
        if tuple(window.shape) != (width,) or dtype not in _WINDOWS:
            raise InvalidRequest(
                f"window is {dtype}{list(window.shape)}; allowed: shape ({width},) and {', '.join(_WINDOWS)}"
            )
    return n, hop, width


def _lowered(
    op: str, request: Any, fresh: Fresh, lengths: tuple[int, int, int], made: np.dtype[Any], *, onesided: bool,
    pad: str = "constant",
) -> Lowered:  # fmt: skip
    n, hop, width = lengths
    inputs = [("x", request.x), *([("window", request.window)] if request.window is not None else [])]
    out = written("out", request.out, fresh)
    if request.out is not None:
        check_disjoint([("out", request.out)], inputs)
    elif op == "fft.stft":  # a new array has frames outside, as the transforms write them
        *rest, bins, frames = fresh.shape
        *strides, _, _ = out.spec.strides
        spec = replace(out.spec, strides=(*strides, fresh.dtype.itemsize, bins * fresh.dtype.itemsize))
        out = Operand(spec, None, (*rest, frames, bins))
    size = made.itemsize * (1 if made.kind == "c" else 2)
    return Lowered(
        op=op,
        operands=(*(read(name, array) for name, array in inputs), out),
        collect=itemgetter("out"),
        attributes=FramesAttributes(
            n_fft=n,
            hop=hop,
            width=width,
            center=bool(request.center),
            pad=pad,
            norm="ortho" if request.normalized else "backward",
            onesided=onesided,
            aligned=(is_aligned(request.x, size), request.out is None or is_aligned(request.out, size)),
        ),
    )


def scale_of(how: FramesAttributes) -> float:
    """Return the factor of results of ``fft.stft``."""
    return 1 / math.sqrt(how.n_fft) if how.norm == "ortho" else 1.0
