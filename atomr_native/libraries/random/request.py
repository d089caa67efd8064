"""The request of the random actor that fills an array."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._support.checks import check_choice
from ..._support.public import public
from ...arrays.operands import check_input, is_contiguous
from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Operand, Request, Scalar, ShippedKernels, read
from .attributes import FillAttributes
from .draws import lower_draw
from .engines import NAMES, engine_of
from .kernels.positions import DISTRIBUTIONS, ENGINES
from .operands import check_range, output
from .spec import (
    as_shape,
    converter,
    element_dtype,
    fill_kernels,
    is_array,
    parameter_names,
    streams_of,
)

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef  # noqa: F401 - the result of requests
    from .engines import CurandEngine

__all__ = ["RandomRequest"]


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class RandomRequest(Request["GpuRef"]):
    """An array of random numbers, checked when it is made.

    An element depends on distribution, dtype, parameters, seed, stream and its position alone: the one at i in C order
    has the position ``offset + i``.

    Parameters
    ----------
    distribution : str
        ``"uniform"``, ``"integers"``, ``"bernoulli"``, ``"normal"``, ``"lognormal"``, ``"exponential"``, ``"cauchy"``,
        ``"geometric"``, ``"truncated_normal"``, ``"gamma"``, ``"beta"``, ``"poisson"`` or ``"binomial"``.
    shape : int or tuple of int, optional
        By default that of `out`, or to which the parameters broadcast.
    dtype : dtype, optional
        By default that of `out`; else float32, int64 for integers and counts, and bool for ``"bernoulli"``.
    parameters : tuple
        In the order of the method of `Random`: numbers, or arrays that broadcast to the shape, of float32 or float64,
        and for ``"integers"`` of int32 or int64.
    seed : int
        From 0 to 2**64 - 1.
    stream : int
        From 0 to 2**32 - 1.
    offset : int or array
        Position of the first element, from 0 to 2**64 - 1; or an array of int64 or uint64 that has it.
    engine : str or CurandEngine
        ``"philox"``, or ``"curand_philox"``: the sequence of cuRAND's generator ``CURAND_RNG_PSEUDO_PHILOX4_32_10``,
        for uniform, normal and lognormal numbers of float32 and float64, and integers of uint32; `stream` is 0 there.
        A `CurandEngine`, or for its defaults ``"curand_"`` and its name, draws by cuRAND itself: uniform, normal and
        lognormal numbers of float32 and float64, ``"poisson"`` of uint32, and all words as ``"integers"``.  `offset` is
        then that of ``curandSetGeneratorOffset``, a number; Sobol points have `seed` 0.
    out : array, optional
        Where the numbers go; allocated if missing.

    Raises
    ------
    InvalidRequest
        For what cannot work; the message names the value and the allowed ones.

    Examples
    --------
    >>> request = an.RandomRequest(distribution="normal", shape=4, parameters=(0.0, 1.0), seed=7, offset=2)
    >>> whole = device.random.normal(6, seed=7)
    >>> bool((device.random.tell(request).numpy() == whole.numpy()[2:]).all())
    True
    """

    distribution: str
    shape: Any = None
    dtype: Any = None
    parameters: tuple[Any, ...] = ()
    seed: int
    stream: int = 0
    offset: Any = 0
    engine: str | CurandEngine = "philox"
    out: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        check_choice("distribution", self.distribution, DISTRIBUTIONS)
        native, engine = engine_of(self.engine), str(self.engine)
        if native is None:
            check_choice("engine", self.engine, (*ENGINES, *NAMES))
        whole = self.distribution == "integers"
        shown = ("low", "high") if whole else parameter_names(self.distribution)
        if not isinstance(self.parameters, tuple) or len(self.parameters) != len(shown):
            raise InvalidRequest(f"parameters={self.parameters!r}; allowed: a tuple of {', '.join(shown)}")
        if native is not None:
            return lower_draw(self, native)
        dtype = element_dtype(self.distribution, self._or_of_out("dtype"), engine)
        arrays = {name: value for name, value in zip(shown, self.parameters, strict=True) if is_array(value)}
        names = parameter_names(self.distribution, arrays)
        shape = self._shape(dtype, arrays)
        kinds = ("int32", "int64") if whole else ("float32", "float64")
        inputs = [_parameter(name, array, kinds) for name, array in arrays.items()]
        counters, start = check_range(self.seed, self.stream, self.offset, math.prod(shape), streams_of(engine))
        out = output(self.out, dtype, shape, [*inputs, *start])
        values = {name: value for name, value in zip(shown, self.parameters, strict=True) if not is_array(value)}
        convert = converter(self.distribution, dtype, math.prod(shape), tuple(values), streams_of(engine))
        travelling = [name for name in names if name not in arrays]
        scalars = zip((*travelling, *counters), convert(*values.values(), *counters.values()), strict=True)
        floats = () if whole else travelling
        contiguous = self.out is None or is_contiguous(self.out)
        return Lowered(
            op="random.fill",
            operands=(*inputs, *start, out),
            collect=itemgetter("out"),
            attributes=FillAttributes(distribution=self.distribution, engine=engine),
            scalars=tuple(Scalar(name, "float64" if name in floats else "int64", value) for name, value in scalars),
            numbers=(*(f"p{names.index(name)}" for name in travelling), *counters),
            convert=convert,
            code=ShippedKernels(
                "random.fill",
                fill_kernels(self.distribution, dtype, contiguous, self.parameters, bool(start), engine),
            ),
        )

    def _or_of_out(self, name: str) -> Any:
        given = getattr(self, name)
        return getattr(self.out, name, None) if given is None else given

    def _shape(self, dtype: str, arrays: dict[str, Any]) -> tuple[int, ...]:
        shapes = [tuple(check_input(name, array).shape) for name, array in arrays.items()]
        given = self._or_of_out("shape")
        try:
            together = np.broadcast_shapes(*shapes)
            shape = together if given is None else as_shape(given, dtype)
            fits = np.broadcast_shapes(shape, together) == shape
        except ValueError:
            fits = False
            shape = given
        if not fits:
            listed = ", ".join(f"{name} {found}" for name, found in zip(arrays, shapes, strict=True))
            raise InvalidRequest(f"shape={shape} with arrays of shapes {listed}; allowed: arrays that broadcast to it")
        return as_shape(shape, dtype)


def _parameter(name: str, array: Any, allowed: tuple[str, ...]) -> Operand:
    found = dtype_name(as_dtype(array.dtype))
    if found not in allowed:
        raise InvalidRequest(f"{name} has dtype {found}; allowed: {', '.join(allowed)}")
    return read(name, array)
