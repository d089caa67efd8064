"""Convolution and correlation by transforms: a few messages, whose sizes are a pure function of layouts."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..._support.checks import check_choice
from ...arrays.operands import Fresh, check_handle, check_input
from ...arrays.owner import owner_of
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest
from .spec import COMPLEX_OF, COMPUTED, axes_of, check_result

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef
    from .actor import Fft

__all__ = ["convolved", "fast_length"]

_MODES = ("full", "same", "valid")


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of arrays of given shapes and dtypes.

    Attributes
    ----------
    dtypes : (str, str)
        To which the two arrays are converted first.
    axes, lengths : tuple of int
        Axes that are transformed, and their points; arrays broadcast along the others.
    part : tuple of slice
        The elements of the padded result that the mode asks for.
    reverse : tuple of slice
        The index that reverses the axes of the second array.
    out : Fresh
        Shape and dtype of the result.
    """

    dtypes: tuple[str, str]
    axes: tuple[int, ...]
    lengths: tuple[int, ...]
    part: tuple[slice, ...]
    reverse: tuple[slice, ...]
    out: Fresh


def fast_length(n: int) -> int:
    """Return the least length from `n` on whose prime factors are 2, 3 and 5."""
    best = 1 << (n - 1).bit_length()
    fives = 1
    while fives < best:
        odd = fives
        while odd < best:
            best = min(best, odd << max(0, (-(-n // odd) - 1).bit_length()))
            odd *= 3
        fives *= 5
    return best


def _part(mode: str, n: int, m: int) -> tuple[int, int]:
    """Return the first element of a mode's result in the full one of n and m elements, and their number."""
    if mode == "full":
        return 0, n + m - 1
    if mode == "same":
        return (m - 1) // 2, n
    return min(n, m) - 1, abs(n - m) + 1


@functools.lru_cache(maxsize=1024)
def _problem(mode: str, axes: Any, first: tuple[Any, ...], second: tuple[Any, ...]) -> Convolution:
    """Return the convolution of arrays, each a shape and a dtype."""
    check_choice("mode", mode, _MODES)
    (shape, dtype), (other, kind) = first, second
    for name, given in (("x", dtype), ("y", kind)):
        if given not in COMPUTED:
            raise InvalidRequest(f"{name} has dtype {given}; allowed: {', '.join(COMPUTED)}")
    if not shape or len(shape) != len(other):
        raise InvalidRequest(f"x of shape {shape} and y of shape {other}; allowed: equally many axes, 1 or more")
    chosen = tuple(range(len(shape))) if axes is None else axes_of(axes, shape)
    for axis, (n, m) in enumerate(zip(shape, other, strict=True)):
        if axis in chosen and not (n and m):
            raise InvalidRequest(f"x of shape {shape} and y of shape {other}: axis {axis} is empty; allowed: 1 or more")
        if axis not in chosen and n != m and 1 not in (n, m):
            raise InvalidRequest(
                f"x of shape {shape} and y of shape {other}: axis {axis}, which is not among axes={axes!r}, does not "
                f"broadcast; allowed: equal extents, or 1"
            )
    if mode == "valid" and any(shape[a] < other[a] for a in chosen) and any(shape[a] > other[a] for a in chosen):
        raise InvalidRequest(
            f"mode='valid' of x of shape {shape} and y of shape {other}; allowed: one of them at least as long as the "
            f"other along all of axes={axes!r}"
        )
    parts = {a: _part(mode, shape[a], other[a]) for a in chosen}
    pairs = enumerate(zip(shape, other, strict=True))
    extents = tuple(parts[axis][1] if axis in parts else n if m == 1 else m for axis, (n, m) in pairs)
    # An array with one element along an axis multiplies the other: no transform is needed.
    active = tuple(a for a in chosen if shape[a] > 1 and other[a] > 1)
    real = "float64" if "float64" in (COMPUTED[dtype], COMPUTED[kind]) else "float32"
    made = COMPLEX_OF[real] if dtype.startswith("complex") or kind.startswith("complex") else real
    kept = tuple(
        given if COMPUTED[given] == real and active else COMPLEX_OF[real] if given.startswith("complex") else real
        for given in (dtype, kind)
    )
    return Convolution(
        dtypes=(kept[0], kept[1]),
        axes=active,
        lengths=tuple(fast_length(shape[a] + other[a] - 1) for a in active),
        part=tuple(slice(parts[a][0], sum(parts[a])) if a in parts else slice(None) for a in range(len(shape))),
        reverse=tuple(slice(None, None, -1 if a in parts else 1) for a in range(len(shape))),
        out=Fresh(extents, DTYPES[made]),
    )


def convolved(fft: Fft, x: GpuRef, y: GpuRef, mode: str, axes: Any, out: GpuRef | None, *, correlate: bool) -> GpuRef:
    """Send the messages of a convolution, or of a correlation; see `Fft.convolve`."""
    described = []
    for name, array in (("x", x), ("y", y)):
        check_input(name, array, backwards=True)
        check_handle(name, array)
        described.append((tuple(array.shape), dtype_name(as_dtype(array.dtype))))
    try:
        how = _problem(mode, tuple(axes) if isinstance(axes, list) else axes, *described)
    except TypeError:  # not hashable
        raise InvalidRequest(f"mode={mode!r}, axes={axes!r}; allowed: {', '.join(_MODES)}; integers") from None
    if out is not None:
        check_result(out, how.out)
        check_handle("out", out)
    x, y = (
        array if dtype_name(as_dtype(array.dtype)) == dtype else array.device.copy(array, dtype=dtype)
        for array, dtype in zip((x, y), how.dtypes, strict=True)
    )
    found = _computed(fft, x, y[how.reverse] if correlate else y, how, correlate=correlate)[how.part]
    if out is None:
        return found
    fft.device.copy(found, out=out)
    return out


def _computed(fft: Fft, x: GpuRef, y: GpuRef, how: Convolution, *, correlate: bool) -> GpuRef:
    """Send transforms, products and the inverse; return the padded result."""
    elementwise = owner_of(fft.device).elementwise
    conjugated = correlate and as_dtype(y.dtype).kind == "c"
    product = "x * conj(y)" if conjugated else "x * y"
    if not how.axes:
        made: GpuRef = elementwise.run(product, x=x, y=y)
        return made
    lengths, axes = how.lengths, how.axes
    # The factor of the inverse transform belongs to the product, which makes no further pass over memory.
    scale = 1 / math.prod(lengths)
    if how.out.dtype.kind == "f":
        left, right = fft.rfftn(x, lengths, axes), fft.rfftn(y, lengths, axes)
    else:
        left = fft.fftn(x, lengths, axes)
        # The transform of conjugated elements is the conjugated inverse, unscaled.
        right = fft.ifftn(y, lengths, axes, "none") if conjugated else fft.fftn(y, lengths, axes)
    whole = all(n >= m for n, m in zip(left.shape, right.shape, strict=True))
    target = {"out": left} if whole else {}
    both = elementwise.run(f"{product} * scale", **target, x=left, y=right, scale=scale)
    if how.out.dtype.kind == "f":
        return fft.irfftn(both, lengths, axes, "none", overwrite=True, hermitian=True)
    return fft.ifftn(both, lengths, axes, "none", out=both)
