"""The extension `fft` of the array API standard, by ``device.fft``: ``xp.fft`` of a namespace.

Every function enqueues and returns a handle.  Arrays are floating-point, real or complex; results have the precision
of the array: complex64 of float32, complex128 of float64.  float16 and bfloat16 are transformed in float32.
``device.fft`` has further arguments, such as ``out=``, and takes integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .._support.options import named_members
from ..dtypes import dtype_name
from ..errors import InvalidRequest
from ._operands import check_device, handle

if TYPE_CHECKING:
    from ..arrays.gpu_ref import GpuRef
    from ..device import Device

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft",
    "rfftfreq", "rfftn",
]  # fmt: skip

_NORMS: Final = ("backward", "ortho", "forward")


def _transform(name: str, x: GpuRef, lengths: Any, axes: Any, norm: Any) -> GpuRef:
    if handle(name, x).dtype.kind in "biu":
        raise InvalidRequest(
            f"{name} of {dtype_name(x.dtype)}; allowed: floating-point dtypes, as by x.astype('float64')"
        )
    if not isinstance(norm, str) or norm not in _NORMS:
        raise InvalidRequest(f"{name} with norm={norm!r}; allowed: {', '.join(map(repr, _NORMS))}")
    made: GpuRef = getattr(x.device.fft, name)(x, lengths, axes, norm)
    return made


def fft(x: GpuRef, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> GpuRef:
    """Return the Fourier transform along an axis: complex."""
    return _transform("fft", x, n, axis, norm)


def ifft(x: GpuRef, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> GpuRef:
    """Return the inverse Fourier transform along an axis: complex."""
    return _transform("ifft", x, n, axis, norm)


def fftn(x: GpuRef, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> GpuRef:
    """Return the Fourier transform along axes, by default all: complex."""
    return _transform("fftn", x, s, axes, norm)


def ifftn(x: GpuRef, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> GpuRef:
    """Return the inverse Fourier transform along axes, by default all: complex."""
    return _transform("ifftn", x, s, axes, norm)


def rfft(x: GpuRef, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> GpuRef:
    """Return the Fourier transform of a real array along an axis: its first ``n // 2 + 1`` elements."""
    return _transform("rfft", x, n, axis, norm)


def irfft(x: GpuRef, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> GpuRef:
    """Return the inverse of `rfft`: real, of `n` elements, by default an even number."""
    return _transform("irfft", x, n, axis, norm)


def rfftn(x: GpuRef, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> GpuRef:
    """Return the Fourier transform of a real array along axes: of the last one its first ``n // 2 + 1`` elements."""
    return _transform("rfftn", x, s, axes, norm)


def irfftn(x: GpuRef, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> GpuRef:
    """Return the inverse of `rfftn`: real."""
    return _transform("irfftn", x, s, axes, norm)


def hfft(x: GpuRef, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> GpuRef:
    """Return the Fourier transform along an axis of an array with Hermitian symmetry, given one half: real."""
    return _transform("hfft", x, n, axis, norm)


def ihfft(x: GpuRef, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> GpuRef:
    """Return the inverse of `hfft`, of a real array: one half."""
    return _transform("ihfft", x, n, axis, norm)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Device | None = None) -> GpuRef:
    """Return the frequencies of the elements of `fft`, `d` between samples; by default float64."""
    return check_device(device).fft.fftfreq(n, d, dtype=dtype)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Device | None = None) -> GpuRef:
    """Return the frequencies of the elements of `rfft`, `d` between samples; by default float64."""
    return check_device(device).fft.rfftfreq(n, d, dtype=dtype)


def fftshift(x: GpuRef, /, *, axes: Any = None) -> GpuRef:
    """Return the array with frequency 0 moved to the middle of axes, by default all; of any dtype, in one message."""
    return handle("fftshift", x).device.fft.fftshift(x, axes)


def ifftshift(x: GpuRef, /, *, axes: Any = None) -> GpuRef:
    """Return the inverse of `fftshift`."""
    return handle("ifftshift", x).device.fft.ifftshift(x, axes)


named_members(globals(), __all__)
