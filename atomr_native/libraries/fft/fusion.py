"""Functions of the user's inside the kernels of cuFFT: for which elements it calls them, and where it cannot.

cuFFT sees dense arrays in place of x and out.  For each element that it loads or stores there, the function reads x at
the same index, or writes out: it converts, pads, and follows any strides.  Where a plan does not hand the dense array
itself to cuFFT, the function is a kernel of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from ...arrays.operands import contiguous_strides
from ...dtypes import as_dtype
from ...plans.spec import OperandSpec, PlanSpec
from .attributes import MappedAttributes
from .spec import COMPLEX_OF, COMPUTED, TRANSFORMS, factor, whole_shape

__all__ = [
    "Elements", "dense_dtype", "dense_order", "elements_of", "folded", "is_dense", "is_order", "scale_of", "word_of",
    "wrong_callback",
]  # fmt: skip

Axes = tuple[int, ...]

#: Even lengths from which on cuFFT calls functions on the real side wrongly, or refuses them, where a prime factor is
#: above the largest allowed: in cuFFT 12.3 and before (nvmath-python has the list), right from CUDA 13.4 on.
_WRONG_FROM: Final = {"float32": 8192, "float64": 4096}
_LARGEST_FACTOR: Final = 127


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements that a function gets, by the place of each in the dense array that cuFFT sees.

    Attributes
    ----------
    extents : tuple of int
        Axes of the dense array, the innermost last; those that all arrays step through together are one.
    bounds : tuple of int
        Beyond these the array behind it has no element; as long as `extents`.
    flat, own : tuple of int
        Steps along the axes, of the offset that the function gets, and of x or out in elements.
    others : tuple of tuple of int
        Steps of the operands of the function.
    """

    extents: Axes
    bounds: Axes
    flat: Axes
    own: Axes
    others: tuple[Axes, ...]


def _in_elements(operand: OperandSpec) -> Axes:
    size = as_dtype(operand.dtype).itemsize
    return tuple(step // size for step in operand.strides)


def _order_of(operand: OperandSpec) -> Axes:
    return tuple(sorted(range(len(operand.shape)), key=lambda a: (-abs(operand.strides[a]), a)))


def dense_order(spec: PlanSpec[MappedAttributes]) -> Axes:
    """Return the axes of the dense arrays, the outermost first: as those of x and out lie in memory if both agree."""
    x, out = spec.operands[0], spec.operands[-1]
    order = _order_of(x)
    return order if order == _order_of(out) else tuple(range(len(x.shape)))


def scale_of(spec: PlanSpec[MappedAttributes], which: str) -> float:
    """Return the factor that a function multiplies by: results of ``"load"``, or values of ``"store"``."""
    how = spec.attributes
    last = "load" if how.store is None else "store"
    return factor(how.transform, how.norm, how.lengths) if which == last else 1.0


def word_of(spec: PlanSpec[MappedAttributes], name: str) -> int:
    """Return where the block of a message's parameters has an operand's address, or a number."""
    names = [*(operand.name for operand in spec.operands), *spec.attributes.scalar_names]
    return names.index(name)


def elements_of(spec: PlanSpec[MappedAttributes], which: str) -> Elements:
    """Return the elements of the function ``"load"`` or ``"store"``."""
    how = spec.attributes
    x, out = spec.operands[0], spec.operands[-1]
    own = x if which == "load" else out
    shape = whole_shape(TRANSFORMS[how.transform], x.shape, how.axes, how.lengths) if which == "load" else out.shape
    inside = tuple(min(n, m) for n, m in zip(shape, own.shape, strict=True))
    by_name = {operand.name: operand for operand in spec.operands}
    names = [name for name in getattr(how, which) if name in by_name]
    steps = [contiguous_strides(own.shape, 1), _in_elements(own)]
    for name in names:
        operand = by_name[name]
        missing = len(shape) - len(operand.shape)
        own_steps = zip(operand.shape, _in_elements(operand), strict=True)
        steps.append((*([0] * missing), *(0 if n == 1 else step for n, step in own_steps)))
    order = dense_order(spec)
    extents, bounds = [shape[a] for a in order], [inside[a] for a in order]
    flat, at, *others = folded(extents, bounds, [[step[a] for a in order] for step in steps])
    return Elements(tuple(extents), tuple(bounds), flat, at, tuple(others))


def folded(extents: list[int], bounds: list[int], steps: list[list[int]]) -> list[Axes]:
    """Join axes that all arrays step through together, in place; return the steps."""
    i = len(extents) - 1
    while i > 0:
        whole = bounds[i] == extents[i]
        if extents[i - 1] == 1 == bounds[i - 1]:
            gone = i - 1
        elif extents[i] == 1 and whole:
            gone = i
        elif whole and all(step[i - 1] == step[i] * extents[i] for step in steps):
            extents[i] *= extents[i - 1]
            bounds[i] *= bounds[i - 1]
            gone = i - 1
        else:
            i -= 1
            continue
        for each in (extents, bounds, *steps):
            del each[gone]
        i -= 1
    return [tuple(step) for step in steps]


def is_order(extents: Axes, steps: Axes) -> bool:
    """Whether steps along axes are those of a dense array of these extents, so that places there are places here."""
    return steps == contiguous_strides(extents, 1)


def is_dense(operand: OperandSpec, order: Axes, shape: Axes, dtype: str) -> bool:
    """Whether an operand is itself the dense array of this shape, order of axes and dtype."""
    if operand.dtype != dtype or operand.shape != shape:
        return False
    steps = contiguous_strides(tuple(shape[a] for a in order), as_dtype(dtype).itemsize)
    return all(operand.strides[a] == step or shape[a] == 1 for a, step in zip(order, steps, strict=True))


def dense_dtype(spec: PlanSpec[Any], which: str) -> str:
    """Return the dtype of what cuFFT loads or stores."""
    kind, real = TRANSFORMS[spec.attributes.transform], COMPUTED[spec.operands[0].dtype]
    return real if kind == ("r2c" if which == "load" else "c2r") else COMPLEX_OF[real]


def wrong_callback(which: str, dtype: str, lengths: Axes) -> str:
    """Return why cuFFT must not call a function for elements of a dtype, or nothing."""
    n = lengths[-1]
    least = _WRONG_FROM.get(dtype)
    if least is None or n % 2 or n < least:
        return ""
    largest = max(_prime_factors(n))
    if largest <= _LARGEST_FACTOR:
        return ""
    return (
        f"cuFFT calls functions on {which} of {dtype} wrongly for even lengths from {least} on with a prime factor "
        f"above {_LARGEST_FACTOR}, here {n} with {largest}"
    )


def _prime_factors(n: int) -> list[int]:
    found, p = [1], 2
    while p <= math.isqrt(n):
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return [*found, n]
