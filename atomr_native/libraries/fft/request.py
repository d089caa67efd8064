"""The request of the FFT actor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from ..._support.public import public
from ...dtypes import as_dtype
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Operand, Request, Scalar, read, written
from ...plans.spec import READ, WRITE, describe
from .attributes import FftAttributes, MappedAttributes
from .functions import Element, MappedCode, as_function, as_functions, plain, resolve_operands
from .spec import TRANSFORMS, FftProblem, resolve, with_tuples

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["TRANSFORM_VALUES", "FftRequest"]

#: Values of a transform's call before those of the operands of functions.
TRANSFORM_VALUES: Final = ("x", "out", "transform", "s", "axes", "norm", "overwrite", "hermitian", "alignment")


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
    load : callable, str or CudaFunction, optional
        A Python function that Numba compiles, plain or decorated with ``cuda.jit(device=True)`` or ``numba.njit``; one
        expression of its parameters, as text; or, on GPUs, a `CudaFunction`.  ``load(value, offset, ...)`` is
        transformed instead of each element of x.  `value` is real or complex as x is, in the precision of the
        transform; `offset` is the element's index in C order of x, whatever its strides.  Further parameters are
        `operands`, by name.  Zeros that continue x are not passed to it.
    store : callable, str or CudaFunction, optional
        ``store(value, offset, ...)`` is stored instead of each scaled element of the result; `offset` is its index
        there.  `out` may then be real where the result is complex, and the function returns what `out` holds.
    operands : mapping of str to array or number
        Further parameters of both functions.  Arrays broadcast to x for `load` and to the result for `store`; a
        function gets one element, real or complex in the precision of the transform, or int64.  Numbers travel with
        the message, and may change from call to call at no cost.

    Raises
    ------
    InvalidRequest
        For invalid values; the message names the value and the allowed ones.

    Notes
    -----
    With a function, out shares no memory with x and operands.  On a GPU the kernels that transform call the functions
    where they can; otherwise each is a kernel of its own, which `plan.notes` says with the bytes.

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
    load: Any = None
    store: Any = None
    operands: Any = ()

    def __post_init__(self) -> None:
        with_tuples(self, "s", "axes")
        for name in ("load", "store"):
            object.__setattr__(self, name, as_function(name, getattr(self, name)))
        object.__setattr__(self, "operands", _pairs(self.operands))
        Request.__post_init__(self)

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        problem = resolve(self)
        functions = {name: getattr(self, name) for name in ("load", "store") if getattr(self, name) is not None}
        x = Operand(describe("x", self.x, READ | WRITE), self.x) if self.overwrite else read("x", self.x)
        operands = (x, written("out", self.out, problem.out))
        common: dict[str, Any] = {
            "transform": self.transform,
            "axes": problem.axes,
            "lengths": problem.lengths,
            "norm": problem.norm,
            "overwrite": bool(self.overwrite),
            "hermitian": bool(self.hermitian),
            "aligned": problem.aligned,
        }
        if functions:
            return self._with_functions(problem, functions, operands, common)
        if self.operands:
            names = ", ".join(name for name, _ in self.operands)
            raise InvalidRequest(f"operands {names} without a function; allowed: with load or store")
        return Lowered(
            op="fft.transform", operands=operands, collect=itemgetter("out"), attributes=FftAttributes(**common)
        )

    def _with_functions(
        self,
        problem: FftProblem,
        functions: dict[str, Element],
        operands: tuple[Operand, ...],
        common: dict[str, Any],
    ) -> Lowered:
        shapes = {"load": tuple(self.x.shape), "store": problem.out.shape}
        outputs = [("out", self.out)] if self.out is not None else []
        outputs += [("x", self.x)] if self.overwrite else []
        arrays, scalars = resolve_operands(functions, self.operands, shapes, outputs)
        names = [name for name, _ in self.operands]
        return Lowered(
            op="fft.mapped",
            operands=(operands[0], *(read(name, array) for name, array in arrays.items()), operands[1]),
            collect=itemgetter("out"),
            attributes=MappedAttributes(
                **common,
                load=functions["load"].names if "load" in functions else None,
                store=functions["store"].names if "store" in functions else None,
                scalar_names=tuple(scalars),
            ),
            scalars=tuple(
                Scalar(name, "int64" if isinstance(value, int) else "float64", value) for name, value in scalars.items()
            ),
            numbers=tuple(len(TRANSFORM_VALUES) + names.index(name) for name in scalars),
            code=MappedCode(as_functions(functions, self._complex(), arrays)),
        )

    def _complex(self) -> dict[str, bool]:
        """Return whether functions get complex values."""
        kind = TRANSFORMS[self.transform]
        return {"load": as_dtype(self.x.dtype).kind == "c", "store": kind != "c2r"}


def _pairs(operands: Any) -> tuple[tuple[str, Any], ...]:
    """Return operands as pairs of names and values, so that a request can be hashed."""
    given = tuple(operands.items()) if isinstance(operands, Mapping) else operands
    if not isinstance(given, tuple) or not all(
        isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in given
    ):
        raise InvalidRequest(f"operands={operands!r}; allowed: a dict from names to arrays and numbers")
    return tuple((name, plain(name, value)) for name, value in given)
