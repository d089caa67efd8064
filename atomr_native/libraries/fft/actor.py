"""The FFT actor, ``device.fft``: Fourier transforms as messages.

Requests and their rules are in `FftRequest`; docs/libraries/fft.md has the methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._support.public import public
from ...plans.actor import LibraryActor
from .convolution import convolved
from .cosine import DctRequest
from .cosines import CosineMethods
from .forms import FORMS, HALF, SHIFT, TRANSFORM, Mapped, alignment
from .frames import IstftRequest, StftRequest
from .framings import FramesMethods
from .frequencies import all_frequencies, half_frequencies
from .functions import as_function, plain
from .half import HalfFftRequest
from .request import FftRequest
from .shift import FftShiftRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeAlias

    from ...arrays.gpu_ref import GpuRef
    from ...plans.plan import Plan
    from .many import FftLayout

    Integers: TypeAlias = int | Sequence[int] | None

__all__ = ["Fft"]

_LAST_TWO = (-2, -1)


@public
class Fft(CosineMethods, FramesMethods, LibraryActor):
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

    # ------------------------------------------------------------------------------------------ functions

    def transform(
        self, transform: str, x: GpuRef, s: Integers = None, axes: Integers = None, norm: str | None = None, *,
        load: Any = None, store: Any = None, operands: Mapping[str, Any] | None = None, out: GpuRef | None = None,
        overwrite: bool = False, hermitian: bool = False,
    ) -> GpuRef:  # fmt: skip
        """Send any transform, with functions of one's own on each element before and after it.

        `transform` is ``"fft"``, ``"ifft"``, ``"rfft"``, ``"irfft"``, ``"hfft"`` or ``"ihfft"``, along axes, by default
        all; `load`, `store` and `operands` are those of `FftRequest`.  The first call with a function waits for its
        compilation, which needs numba-cuda.

        Examples
        --------
        >>> def windowed(value, offset, window, gain):
        ...     return gain * window * value
        >>> def power(value, offset):
        ...     return value.real ** 2 + value.imag ** 2
        >>> x, window = device.put(np.arange(4.0)), device.put(np.array([0.0, 1.0, 1.0, 0.0]))
        >>> operands = {"window": window, "gain": 2.0}
        >>> device.fft.transform("rfft", x, load=windowed, store=power, operands=operands,
        ...                      out=device.zeros((3,), "float64")).numpy()
        array([36., 20.,  4.])
        """
        if load is None and store is None and not operands:
            return self._send(transform, x, s, axes, norm, out, overwrite, hermitian)
        pairs = {name: plain(name, value) for name, value in (operands or {}).items()}
        mapped: Any = Mapped(transform, as_function("load", load), as_function("store", store), tuple(pairs))
        return self._send(mapped, x, s, axes, norm, out, overwrite, hermitian, tuple(pairs.values()))

    # ------------------------------------------------------------------------------------------ raw layouts

    def many(
        self, transform: str, layout: FftLayout, x: GpuRef, out: GpuRef, norm: str = "none", *,
        overwrite: bool = False, hermitian: bool = False,
    ) -> GpuRef:  # fmt: skip
        """Send a batch of transforms between two flat buffers with a raw layout, and return `out`.

        `transform`, `norm`, `overwrite` and `hermitian` are those of `FftRequest`; nothing is scaled by default.  For a
        plan, give the views of `FftLayout.views` to a request.
        """
        source, target = layout.views(transform, x, out)
        axes = tuple(range(1, len(layout.n) + 1))
        self._send(transform, source, layout.n, axes, norm, target, overwrite, hermitian)
        return out

    # ------------------------------------------------------------------------------------------ frequencies

    def half(
        self,
        transform: str,
        x: GpuRef,
        s: Integers = None,
        axes: Integers = None,
        norm: str | None = None,
        *,
        hermitian: bool = False,
        convert: bool = True,
        out: GpuRef | None = None,
    ) -> GpuRef:
        """Send a transform in float16 or bfloat16, whose complex arrays have a last axis of 2; see `HalfFftRequest`.

        Examples
        --------
        >>> x = device.put(np.array([[1, 0], [0, 1]], "float16"))
        >>> device.fft.half("ifft", x, norm="none").numpy().tolist()
        [[1.0, 1.0], [1.0, -1.0]]
        """
        if type(s) is list:
            s = tuple(s)
        if type(axes) is list:
            axes = tuple(axes)
        made: GpuRef = self._calls.send(
            self, HALF, (x, out, transform, s, axes, norm, hermitian, convert, alignment(x, out))
        )
        return made

    def fftshift(self, x: GpuRef, axes: Integers = None, *, out: GpuRef | None = None) -> GpuRef:
        """Send a cyclic shift by ``n // 2`` along axes, by default all: frequency 0 goes to the middle.

        One message, of any dtype; see `FftShiftRequest`.

        Examples
        --------
        >>> device.fft.fftshift(device.put(np.fft.fftfreq(4))).numpy()
        array([-0.5 , -0.25,  0.  ,  0.25])
        """
        return self._shift(x, axes, False, out)

    def ifftshift(self, x: GpuRef, axes: Integers = None, *, out: GpuRef | None = None) -> GpuRef:
        """Send the inverse of `fftshift`: frequency 0 goes to the front.

        Examples
        --------
        >>> device.fft.ifftshift(device.put(np.arange(-2, 3))).numpy()
        array([ 0,  1,  2, -2, -1])
        """
        return self._shift(x, axes, True, out)

    def fftfreq(self, n: int, d: float = 1.0, *, dtype: object = None) -> GpuRef:
        """Send the frequencies of the elements of ``fft`` over `n` points, in cycles per unit of `d`.

        Two messages of the elementwise actor.

        Parameters
        ----------
        n : int
            Points of the transform, 1 or more.
        d : float
            Distance between samples.
        dtype : optional
            float64 (the default), float32, float16 or bfloat16.  Computed in float64.

        Raises
        ------
        InvalidRequest
            With the value and the allowed ones.

        Examples
        --------
        >>> device.fft.fftfreq(5, d=0.2).numpy()
        array([ 0.,  1.,  2., -2., -1.])
        """
        return all_frequencies(self.device, n, d, dtype)

    def rfftfreq(self, n: int, d: float = 1.0, *, dtype: object = None) -> GpuRef:
        """Send the frequencies of the ``n // 2 + 1`` elements of ``rfft`` over `n` points; otherwise as `fftfreq`.

        One message of the elementwise actor.

        Examples
        --------
        >>> device.fft.rfftfreq(4, d=0.25).numpy()
        array([0., 1., 2.])
        """
        return half_frequencies(self.device, n, d, dtype)

    # ------------------------------------------------------------------------------------------ convolution

    def convolve(
        self, x: GpuRef, y: GpuRef, mode: str = "full", axes: Integers = None, *, out: GpuRef | None = None
    ) -> GpuRef:
        """Send the convolution of two arrays along axes, by transforms, as `scipy.signal.fftconvolve`.

        Four messages: two transforms, the product, and the inverse.  A copy comes before where dtypes differ in
        precision, and after for `out`.

        Parameters
        ----------
        x, y : GpuRef
            Of equally many axes, any strides, and any dtype that `FftRequest` takes; real and complex.  They broadcast
            along the axes that are not convolved.
        mode : str
            ``"full"``: each overlap, ``n + m - 1`` elements along an axis.  ``"same"``: the middle, as long as x.
            ``"valid"``: where one array lies within the other, ``abs(n - m) + 1``.
        axes : int or tuple of int, optional
            Axes along which arrays are convolved; by default all.
        out : GpuRef, optional
            Where the result goes; it may be x or y.

        Returns
        -------
        GpuRef
            `out`, or a view of a new array, which is padded to lengths with the prime factors 2, 3 and 5.  float32 or
            complex64, and float64 or complex128 if one of the arrays has that precision.

        Raises
        ------
        InvalidRequest
            With the value and the allowed ones, before anything is enqueued.

        Examples
        --------
        >>> x, y = device.put(np.array([1.0, 2.0, 3.0])), device.put(np.array([0.0, 1.0, 0.5]))
        >>> device.fft.convolve(x, y, mode="same").numpy().round(6)
        array([1. , 2.5, 4. ])
        """
        return convolved(self, x, y, mode, axes, out, correlate=False)

    def correlate(
        self, x: GpuRef, y: GpuRef, mode: str = "full", axes: Integers = None, *, out: GpuRef | None = None
    ) -> GpuRef:
        """Send the correlation of two arrays along axes: the convolution of x with y reversed and conjugated.

        As `scipy.signal.correlate` with ``method="fft"``; otherwise as `convolve`.

        Examples
        --------
        >>> x, y = device.put(np.array([1.0, 2.0, 3.0])), device.put(np.array([0.0, 1.0, 0.5]))
        >>> device.fft.correlate(x, y, mode="valid").numpy().round(6)
        array([3.5])
        """
        return convolved(self, x, y, mode, axes, out, correlate=True)

    # ------------------------------------------------------------------------------------------ messages

    def plan(
        self, request: DctRequest | FftRequest | FftShiftRequest | HalfFftRequest | IstftRequest | StftRequest
    ) -> Plan:
        """Return the plan of a request, whose arrays lend their layouts only: ``plan.tell(x, out=y)``.

        Does not wait for the worker.  Where a request's x and out start at multiples of a complex element, those of
        the plan's messages must, too, or a message fails with `Unsupported`.
        """
        if not isinstance(request, tuple(FORMS)):
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
        operands: tuple[Any, ...] = (),
    ) -> GpuRef:
        if type(s) is list:
            s = tuple(s)
        if type(axes) is list:
            axes = tuple(axes)
        made: GpuRef = self._calls.send(
            self, TRANSFORM, (x, out, transform, s, axes, norm, overwrite, hermitian, alignment(x, out), *operands)
        )
        return made

    def _shift(self, x: GpuRef, axes: Integers, inverse: bool, out: GpuRef | None) -> GpuRef:
        if type(axes) is list:
            axes = tuple(axes)
        made: GpuRef = self._calls.send(self, SHIFT, (x, out, axes, inverse))
        return made
