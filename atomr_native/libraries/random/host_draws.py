"""Draws of cuRAND's generators on the host: by its host generators, or for Sobol points of 32 bits by SciPy."""

from __future__ import annotations

import math
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ..._lib import curand
from ..._lib.curand import HostGenerator
from ...builders.context import Built, HostContext
from ...builders.cuda.context import library_file
from ...errors import Unsupported
from ...plans.spec import PlanSpec
from .attributes import DrawAttributes
from .curand import DrawDescription, describe

__all__ = ["build_draw"]

Array = np.ndarray[Any, Any]

_BY_SCIPY: Final = (
    "Sobol points by SciPy, since cuRAND is not installed; normal numbers differ from cuRAND's by roundings"
)


class _Shared:
    """A generator that several plans draw from, one after the other."""

    def __init__(self, description: DrawDescription) -> None:
        self.generator = HostGenerator(description)
        self.lock = threading.Lock()


_made: weakref.WeakValueDictionary[tuple[int, int, int], _Shared] = weakref.WeakValueDictionary()
_making = threading.Lock()


def _shared(description: DrawDescription) -> _Shared:
    """Return the process's generator of this kind, ordering and dimensions, which lives as long as a plan has it."""
    key = (description.kind, description.ordering, description.dimensions)
    with _making:
        found = _made.get(key)
        if found is None:
            found = _made[key] = _Shared(description)
    return found


def build_draw(spec: PlanSpec[DrawAttributes], _context: HostContext) -> Built:
    """Return the run of ``random.draw``: operand out; scalars low and high or the parameters, seed, offset.

    Raises
    ------
    Unsupported
        Without cuRAND, unless SciPy has the numbers, and for orderings that cuRAND does not have on the host.
    """
    how = spec.attributes
    if math.prod(spec.operands[0].shape) == 0:
        return Built("noop")
    try:
        curand.load(library_file("curand"))
    except Unsupported:
        if how.engine != "sobol32" or how.distribution not in _FROM_WORDS:
            raise
        return Built(_run(how, _by_scipy(how)), notes=(_BY_SCIPY,))
    description = describe(spec)
    shared = _shared(description)

    def draw(out: Array, parameters: tuple[float, ...], seed: int, offset: int) -> None:
        with shared.lock:
            shared.generator.draw(description, out.ctypes.data, parameters, seed, offset)

    return Built(_run(how, draw))


def _run(
    how: DrawAttributes, draw: Callable[[Array, tuple[float, ...], int, int], None]
) -> Callable[[tuple[Array, ...], tuple[Any, ...]], None]:
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        (out,), (*parameters, seed, offset) = arrays, scalars
        draw(out, () if how.scaled else tuple(parameters), int(seed) % 2**64, int(offset) % 2**64)
        if how.scaled:
            low, high = (out.dtype.type(value) for value in parameters)
            np.multiply(out, high - low, out=out)
            np.add(out, low, out=out)

    return run


# ------------------------------------------------------------------------------------------ Sobol points without cuRAND


def _uniform(words: Array, real: Any) -> Array:
    least = real(2.0**-33 if real is np.float32 else 2.0**-32)
    made: Array = words.astype(real) * real(2.0**-32) + least
    return made


def _normal(words: Array, real: Any) -> Array:
    from scipy.special import ndtri

    made: Array = ndtri(words.astype(np.float64) * 2.0**-32 + 2.0**-33).astype(real)
    return made


#: From words, the dtype of the result and parameters to numbers, as cuRAND makes them.
_FROM_WORDS: Final[dict[str, Callable[..., Array]]] = {
    "integers": lambda words, _: words,
    "uniform": lambda words, real: _uniform(words, real),
    "normal": lambda words, real, mean, std: real(mean) + real(std) * _normal(words, real),
    "lognormal": lambda words, real, mean, sigma: np.exp(real(mean) + real(sigma) * _normal(words, real)),
}


def _by_scipy(how: DrawAttributes) -> Callable[[Array, tuple[float, ...], int, int], None]:
    from scipy.stats import qmc

    finish = _FROM_WORDS[how.distribution]

    def draw(out: Array, parameters: tuple[float, ...], _seed: int, offset: int) -> None:
        points = qmc.Sobol(how.dimensions, scramble=False, bits=32)
        if offset:
            points.fast_forward(offset)
        with warnings.catch_warnings():  # of numbers of points that are no power of two
            warnings.simplefilter("ignore", UserWarning)
            drawn = points.random(out.size // how.dimensions)
        words = (drawn.T * 2.0**32).astype(np.uint32)
        out[...] = finish(words, out.dtype.type, *parameters).reshape(out.shape)

    return draw
