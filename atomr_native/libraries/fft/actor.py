"""The FFT actor, ``device.fft``: Fourier transforms as messages.

Requests and their rules are in `FftRequest`; docs/libraries/fft.md has the methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._support.public import public
from ...plans.actor import LibraryActor
from .forms import FORMS, TRANSFORM, alignment
from .request import FftRequest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from ...arrays.gpu_ref import GpuRef
    from ...plans.plan import Plan

    Integers: TypeAlias = int | Sequence[int] | None

__all__ = ["Fft"]

_LAST_TWO = (-2, -1)


@public
class Fft(LibraryActor):
    """Fourier transforms on one device; messages to it run in order.

    Names, arguments and results are those of `numpy.fft` and `scipy.fft`.  Every method enqueues and returns its result
    at once: the array that was given as ``out=``, or a new one, which is its own future.  None waits for the device,
    except that the first call of a structure waits for its plan, and that a full mailbox blocks or raises as the System
    was told.

    Lengths (`n`, `s`), `axis` and `axes`, `norm`, `out`, `overwrite` and `hermitian` are those of `FftRequest`, as are
    the errors.

    Examples
    --------
    >>> x = device.put(np.arange(8.0))
    >>> spectrum = device.fft.rfft(x)
    >>> spectrum.shape, spectrum.dtype
    ((5,), dtype('complex128'))
    >>> np.allclose(device.fft.irfft(spectrum).numpy(), np.arange(8.0))
    True
    """

    _forms = FORMS

    def __init__(self, device: Any, name: str = "fft") -> None:
        super().__init__(device, name)

    # ------------------------------------------------------------------------------------------ one axis

    def fft(
        self, x: GpuRef, n: int | None = None, axis: int = -1, norm: str | None = None, *, out: GpuRef | None = None
    ) -> GpuRef:
        """Send the transform along an axis, of complex or real x; complex."""
        return self._send("fft", x, n, axis, norm, out)

    def ifft(
        self, x: GpuRef, n: int | None = None, axis: int = -1, norm: str | None = None, *, out: GpuRef | None = None
    ) -> GpuRef:
        """Send the inverse transform along an axis, of complex or real x; complex."""
        return self._send("ifft", x, n, axis, norm, out)

    def rfft(
        self, x: GpuRef, n: int | None = None, axis: int = -1, norm: str | None = None, *, out: GpuRef | None = None
    ) -> GpuRef:
        """Send the transform of real x along an axis: its first ``n // 2 + 1`` elements."""
        return self._send("rfft", x, n, axis, norm, out)

    def irfft(
        self,
        x: GpuRef,
        n: int | None = None,
        axis: int = -1,
        norm: str | None = None,
        *,
        out: GpuRef | None = None,
        overwrite: bool = False,
        hermitian: bool = False,
    ) -> GpuRef:
        """Send the inverse of `rfft` along an axis; real, with `n` elements, by default an even number."""
        return self._send("irfft", x, n, axis, norm, out, overwrite, hermitian)

    def hfft(
        self,
        x: GpuRef,
        n: int | None = None,
        axis: int = -1,
        norm: str | None = None,
        *,
        out: GpuRef | None = None,
        overwrite: bool = False,
        hermitian: bool = False,
    ) -> GpuRef:
        """Send the transform along an axis of x with Hermitian symmetry, of which `x` is one half; real."""
        return self._send("hfft", x, n, axis, norm, out, overwrite, hermitian)

    def ihfft(
        self, x: GpuRef, n: int | None = None, axis: int = -1, norm: str | None = None, *, out: GpuRef | None = None
    ) -> GpuRef:
        """Send the inverse of `hfft` along an axis, of real x."""
        return self._send("ihfft", x, n, axis, norm, out)

    # ------------------------------------------------------------------------------------------ two axes

    def fft2(
        self, x: GpuRef, s: Integers = None, axes: Integers = _LAST_TWO, norm: str | None = None, *,
        out: GpuRef | None = None,
    ) -> GpuRef:  # fmt: skip
        """Send the transform along two axes; as `fftn`."""
        return self._send("fft", x, s, axes, norm, out)

    def ifft2(
        self, x: GpuRef, s: Integers = None, axes: Integers = _LAST_TWO, norm: str | None = None, *,
        out: GpuRef | None = None,
    ) -> GpuRef:  # fmt: skip
        """Send the inverse transform along two axes; as `ifftn`."""
        return self._send("ifft", x, s, axes, norm, out)

    def rfft2(
        self, x: GpuRef, s: Integers = None, axes: Integers = _LAST_TWO, norm: str | None = None, *,
        out: GpuRef | None = None,
    ) -> GpuRef:  # fmt: skip
        """Send the transform of real x along two axes; as `rfftn`."""
        return self._send("rfft", x, s, axes, norm, out)

    def irfft2(
        self, x: GpuRef, s: Integers = None, axes: Integers = _LAST_TWO, norm: str | None = None, *,
        out: GpuRef | None = None, overwrite: bool = False, hermitian: bool = False,
    ) -> GpuRef:  # fmt: skip
        """Send the inverse of `rfft2`; as `irfftn`."""
        return self._send("irfft", x, s, axes, norm, out, overwrite, hermitian)

    # ------------------------------------------------------------------------------------------ any axes

    def fftn(
        self, x: GpuRef, s: Integers = None, axes: Integers = None, norm: str | None = None, *,
        out: GpuRef | None = None,
    ) -> GpuRef:  # fmt: skip
        """Send the transform along axes, by default all, of complex or real x; complex."""
        return self._send("fft", x, s, axes, norm, out)

    def ifftn(
        self, x: GpuRef, s: Integers = None, axes: Integers = None, norm: str | None = None, *,
        out: GpuRef | None = None,
    ) -> GpuRef:  # fmt: skip
        """Send the inverse transform along axes, by default all, of complex or real x; complex."""
        return self._send("ifft", x, s, axes, norm, out)

    def rfftn(
        self, x: GpuRef, s: Integers = None, axes: Integers = None, norm: str | None = None, *,
        out: GpuRef | None = None,
    ) -> GpuRef:  # fmt: skip
        """Send the transform of real x along axes: of the last axis the first ``n // 2 + 1`` elements."""
        return self._send("rfft", x, s, axes, norm, out)

    def irfftn(
        self, x: GpuRef, s: Integers = None, axes: Integers = None, norm: str | None = None, *,
        out: GpuRef | None = None, overwrite: bool = False, hermitian: bool = False,
    ) -> GpuRef:  # fmt: skip
        """Send the inverse of `rfftn`; real."""
        return self._send("irfft", x, s, axes, norm, out, overwrite, hermitian)

    def hfftn(
        self, x: GpuRef, s: Integers = None, axes: Integers = None, norm: str | None = None, *,
        out: GpuRef | None = None, overwrite: bool = False, hermitian: bool = False,
    ) -> GpuRef:  # fmt: skip
        """Send the transform along axes of x with Hermitian symmetry, of which `x` is one half; real."""
        return self._send("hfft", x, s, axes, norm, out, overwrite, hermitian)

    def ihfftn(
        self, x: GpuRef, s: Integers = None, axes: Integers = None, norm: str | None = None, *,
        out: GpuRef | None = None,
    ) -> GpuRef:  # fmt: skip
        """Send the inverse of `hfftn`, of real x."""
        return self._send("ihfft", x, s, axes, norm, out)

    # ------------------------------------------------------------------------------------------ messages

    def plan(self, request: FftRequest) -> Plan:
        """Return the plan of a request, whose arrays lend their layouts only: ``plan.tell(x, out=y)``.

        Does not wait for the worker.  Where a request's x and out start at multiples of a complex element, those of
        the plan's messages must, too, or a message fails with `Unsupported`.
        """
        if not isinstance(request, FftRequest):
            raise self._refused(request)
        return self._plan_of(request)

    def _send(
        self,
        transform: str,
        x: GpuRef,
        s: Integers,
        axes: Integers,
        norm: str | None,
        out: GpuRef | None,
        overwrite: bool = False,
        hermitian: bool = False,
    ) -> GpuRef:
        if type(s) is list:
            s = tuple(s)
        if type(axes) is list:
            axes = tuple(axes)
        made: GpuRef = self._calls.send(
            self, TRANSFORM, (x, out, transform, s, axes, norm, overwrite, hermitian, alignment(x, out))
        )
        return made
