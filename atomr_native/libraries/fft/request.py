"""The request of the FFT actor."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ..._support.public import public
from ...plans.lowering import Lowered, Operand, Request, read, written
from ...plans.spec import READ, WRITE, describe
from .attributes import FftAttributes
from .spec import resolve

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["FftRequest"]


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class FftRequest(Request["GpuRef"]):
    """A discrete Fourier transform, checked when it is made.

    Parameters
    ----------
    transform : str
        ``fft`` and ``ifft``: complex to complex, with the sign - and + in the exponent.  ``rfft``: ``fft`` of a real
        array, of which ``n // 2 + 1`` elements along the last of the axes are kept.  ``irfft``: its inverse, real.
        ``hfft``: ``fft`` of an array with Hermitian symmetry, given as ``n // 2 + 1`` elements; real.  ``ihfft``: its
        inverse.
    x : GpuRef
        Any shape and strides, also broadcast or backwards.  float32, complex64, float16, bfloat16, bool, and integers
        of 8 and 16 bits are transformed in float32; float64, complex128 and wider integers in float64.  ``rfft`` and
        ``ihfft`` take real arrays only; the others convert them to complex.
    s : int or tuple of int, optional
        Points along each of the axes: x is cut, or continued by zeros; -1 stands for those of x.  For ``irfft`` and
        ``hfft`` the last one is that of the output, by default ``2 * (m - 1)`` for m elements.
    axes : int or tuple of int, optional
        By default the last ``len(s)`` axes, or all without `s`.  The last one is the axis that real transforms halve.
    norm : str, optional
        ``"backward"`` (the default): inverse transforms are divided by the number of points.  ``"forward"``: the
        others are.  ``"ortho"``: all are divided by its square root.  ``"none"``: no transform is scaled.
    out : GpuRef, optional
        Where the result goes: of the dtype and shape of the result, with any strides.  A real result in float32 is
        also rounded to an `out` of float16 or bfloat16.  x itself for ``fft`` and ``ifft``; otherwise it shares no
        memory with x.
    overwrite : bool
        Of ``irfft`` and ``hfft``: x may be destroyed.  Together with `hermitian` it saves a copy of x on a GPU.
    hermitian : bool
        Of ``irfft`` and ``hfft``: a promise that x has the symmetry of a real array's transform.  Without it, parts
        that have not are ignored, as in NumPy: imaginary parts at the first element along the last axis, and at the
        middle one.

    Raises
    ------
    InvalidRequest
        For invalid values; the message names the value and the allowed ones.

    Examples
    --------
    >>> x = device.put(np.arange(4.0))
    >>> device.fft.tell(an.FftRequest(transform="rfft", x=x)).numpy()
    array([ 6.+0.j, -2.+2.j, -2.+0.j])
    """

    transform: str
    x: Any
    s: Any = None
    axes: Any = None
    norm: str | None = None
    out: GpuRef | None = None
    overwrite: bool = False
    hermitian: bool = False

    def __post_init__(self) -> None:
        for name in ("s", "axes"):  # so that a request can be hashed
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        Request.__post_init__(self)

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        problem = resolve(self)
        x = Operand(describe("x", self.x, READ | WRITE), self.x) if self.overwrite else read("x", self.x)
        return Lowered(
            op="fft.transform",
            operands=(x, written("out", self.out, problem.out)),
            collect=itemgetter("out"),
            attributes=FftAttributes(
                transform=self.transform,
                axes=problem.axes,
                lengths=problem.lengths,
                norm=problem.norm,
                overwrite=bool(self.overwrite),
                hermitian=bool(self.hermitian),
                aligned=problem.aligned,
            ),
        )
