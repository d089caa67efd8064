"""Rules of Fourier transforms: dtypes, axes, lengths, factors, as pure functions of layouts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..._support.checks import check_choice, check_flag, is_integer
from ...arrays.operands import Fresh, check_disjoint, check_input, check_output, check_size, same_view
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest

if TYPE_CHECKING:
    from .cosine import DctRequest
    from .request import FftRequest

__all__ = [
    "COMPLEX_OF", "COMPUTED", "FORWARD", "HALVED", "NORMS", "REAL_OF", "STORED", "TRANSFORMS", "FftProblem", "axes_of",
    "check_result", "factor", "is_aligned", "lengths_of", "numbers_of", "points_of", "resolve", "whole_shape",
    "with_tuples",
]  # fmt: skip

#: Of each transform: the kind of its input and of its output, complex (c) or real (r), as libraries name it.
TRANSFORMS: Final = {"fft": "c2c", "ifft": "c2c", "rfft": "r2c", "irfft": "c2r", "hfft": "c2r", "ihfft": "r2c"}
#: Transforms with a negative sign in the exponent, which ``norm="backward"`` does not scale.
FORWARD: Final = ("fft", "rfft", "hfft")
#: Kinds of transforms whose complex array has half of the last axis, and the index of that array: x or out.
HALVED: Final = {"c2r": 0, "r2c": 1}
NORMS: Final = ("backward", "ortho", "forward", "none")
#: The real dtype in which a transform of each dtype is computed.
COMPUTED: Final = {
    **dict.fromkeys(
        ("float32", "complex64", "float16", "bfloat16", "int8", "int16", "uint8", "uint16", "bool"), "float32"
    ),
    **dict.fromkeys(("float64", "complex128", "int32", "int64", "uint32", "uint64"), "float64"),
}
#: Dtypes to which a real result of each computed dtype may be rounded.
STORED: Final = {"float32": ("float32", "float16", "bfloat16"), "float64": ("float64",)}
#: The complex dtype of a real one.
COMPLEX_OF: Final = {"float32": "complex64", "float64": "complex128"}
#: The real dtype of a complex one.
REAL_OF: Final = {made: real for real, made in COMPLEX_OF.items()}


@dataclass(frozen=True, slots=True)
class FftProblem:
    """A request with everything that follows from it.

    Attributes
    ----------
    axes, lengths : tuple of int
        Axes of x, from 0 on, and points along each.
    norm : str
    out : Fresh
        Shape and dtype of the result.
    aligned : (bool, bool)
        Whether x and out start at multiples of a complex element's size.
    """

    axes: tuple[int, ...]
    lengths: tuple[int, ...]
    norm: str
    out: Fresh
    aligned: tuple[bool, bool]


def factor(transform: str, norm: str, lengths: tuple[int, ...]) -> float:
    """Return the factor of a transform's results."""
    points = math.prod(lengths)
    if norm == "ortho":
        return 1 / math.sqrt(points)
    scaled = norm == ("forward" if transform in FORWARD else "backward")
    return 1 / points if scaled else 1.0


def whole_shape(kind: str, shape: tuple[int, ...], axes: tuple[int, ...], lengths: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of what is transformed, of an x of this shape with all points."""
    extents = list(shape)
    for axis, n in zip(axes, lengths, strict=True):
        extents[axis] = n // 2 + 1 if kind == "c2r" and axis == axes[-1] else n
    return tuple(extents)


def numbers_of(name: str, value: Any, limits: str = "an integer, or integers, of 1 or more, or -1") -> tuple[int, ...]:
    """Return one integer or several."""
    found = (value,) if is_integer(value) else value
    if not isinstance(found, tuple | list) or not found or not all(is_integer(n) for n in found):
        raise InvalidRequest(f"{name}={value!r}; allowed: {limits}")
    return tuple(int(n) for n in found)


def axes_of(given: Any, shape: tuple[int, ...], lengths: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Return the axes of an array of this shape, counted from the front; by default the last ones, a length for each.

    Each is there at most once.
    """
    axes = len(shape)
    if given is None:
        count = axes if lengths is None else len(lengths)
        if count > axes:
            raise InvalidRequest(f"s={lengths} has {count} lengths, and x has {axes} axes; allowed: {axes} or fewer")
        return tuple(range(axes - count, axes))
    if not axes:
        raise InvalidRequest(f"axes={given!r} of an x without axes; allowed: None")
    limits = f"an integer, or different integers, from {-axes} to {axes - 1}, the axes of x"
    found = numbers_of("axes", given, limits)
    if not all(-axes <= axis < axes for axis in found):
        raise InvalidRequest(f"axes={given!r} of an x of shape {shape}; allowed: {limits}")
    made = tuple(axis % axes for axis in found)
    if len(set(made)) < len(made):
        raise InvalidRequest(f"axes={given!r}: an axis is there twice; allowed: each axis at most once")
    return made


def lengths_of(
    given: tuple[int, ...] | None, axes: tuple[int, ...], shape: tuple[int, ...], kind: str
) -> tuple[int, ...]:
    """Return the points along each axis, of a transform of this `kind`, as `TRANSFORMS` has them."""
    if given is not None and len(given) != len(axes):
        raise InvalidRequest(f"s={given} has {len(given)} lengths for {len(axes)} axes; allowed: one for each axis")
    made = []
    for place, axis in enumerate(axes):
        wanted = -1 if given is None else given[place]
        halved = kind == "c2r" and place == len(axes) - 1
        if wanted < -1 or wanted == 0:
            raise InvalidRequest(
                f"s={given}: {wanted} points along axis {axis}; allowed: 1 or more, or -1 for those of x"
            )
        n = wanted if wanted > 0 else 2 * (shape[axis] - 1) if halved else shape[axis]
        if n < 1:
            raise InvalidRequest(
                f"x of shape {shape} has {shape[axis]} elements along axis {axis}, which makes {n} points; allowed: "
                f"1 or more, or a length (n=, s=)"
            )
        made.append(n)
    return tuple(made)


def is_aligned(array: Any, size: int) -> bool:
    """Whether an array starts at a multiple of `size` bytes; a bare layout does."""
    allocation = getattr(array, "allocation", None)
    return allocation is None or (allocation.origin + array.offset) % size == 0


def points_of(request: FftRequest | DctRequest, kind: str) -> tuple[str, tuple[int, ...], tuple[int, ...], list[int]]:
    """Check the input of a transform of a kind, its axes and points.

    Returns
    -------
    tuple
        The real dtype that it is computed in, its axes, the points along each, and the shape of x with these points.
    """
    x = check_input("x", request.x, backwards=True)
    dtype, shape = dtype_name(as_dtype(x.dtype)), tuple(x.shape)
    allowed = [name for name in COMPUTED if kind.startswith("c2") or not name.startswith("complex")]
    if dtype not in allowed:
        raise InvalidRequest(f"x of {request.transform} has dtype {dtype}; allowed: {', '.join(allowed)}")
    if not shape:
        raise InvalidRequest("x has no axes; allowed: 1 or more")
    given = None if request.s is None else numbers_of("s", request.s)
    axes = axes_of(request.axes, shape, given)
    lengths = lengths_of(given, axes, shape, kind)
    extents = list(shape)
    for axis, n in zip(axes, lengths, strict=True):
        extents[axis] = n
    return COMPUTED[dtype], axes, lengths, extents


def with_tuples(request: object, *names: str) -> None:
    """Make tuples of the lists among a request's members, so that the request can be hashed."""
    for name in names:
        if isinstance(getattr(request, name), list):
            object.__setattr__(request, name, tuple(getattr(request, name)))


def resolve(request: FftRequest) -> FftProblem:
    """Check a request and return the problem that it poses.

    Raises
    ------
    InvalidRequest
        As `FftRequest` says.
    """
    transform = request.transform
    check_choice("transform", transform, TRANSFORMS)
    kind = TRANSFORMS[transform]
    norm = "backward" if request.norm is None else request.norm
    check_choice("norm", norm, NORMS)
    for name in ("overwrite", "hermitian"):
        check_flag(name, getattr(request, name), bool | np.bool)
        if getattr(request, name) and kind != "c2r":
            raise InvalidRequest(f"{name}=True of {transform}; allowed: False, and True for irfft and hfft")
    real, axes, lengths, extents = points_of(request, kind)
    made = DTYPES[real if kind == "c2r" else COMPLEX_OF[real]]
    if kind == "r2c":
        extents[axes[-1]] = lengths[-1] // 2 + 1
    fresh = Fresh(tuple(extents), made)
    check_size("out", fresh.shape, made)
    if request.overwrite:
        check_output("x", request.x)
    if request.out is not None:
        stored = STORED[real] if kind == "c2r" else ()
        if request.store is not None:  # which may make real numbers of complex ones
            stored = tuple(dict.fromkeys((dtype_name(made), *STORED[real])))
        fresh = _check_out(request, fresh, kind, stored)
    size = DTYPES[COMPLEX_OF[real]].itemsize
    aligned = is_aligned(request.x, size), request.out is None or is_aligned(request.out, size)
    return FftProblem(axes, lengths, norm, fresh, aligned)


def check_result(out: Any, fresh: Fresh, stored: tuple[str, ...] = ()) -> Fresh:
    """Refuse an `out` that cannot be written, or is not of the result's shape and dtype, or one of those `stored`.

    Returns the structure of `out`.
    """
    check_output("out", out)
    dtype = as_dtype(out.dtype)
    if tuple(out.shape) != fresh.shape or (dtype != fresh.dtype and dtype_name(dtype) not in stored):
        allowed = [f"{name}{list(fresh.shape)}" for name in stored or (dtype_name(fresh.dtype),)]
        raise InvalidRequest(f"out is {dtype_name(dtype)}{list(out.shape)}; allowed: {', '.join(allowed)}")
    return Fresh(fresh.shape, dtype)


def _check_out(request: FftRequest, fresh: Fresh, kind: str, stored: tuple[str, ...]) -> Fresh:
    out = request.out
    made = check_result(out, fresh, stored)
    mapped = request.load is not None or request.store is not None
    if kind != "c2c" or mapped or not same_view(request.x, out):
        reason = "" if kind == "c2c" else ", since input and output of a real transform differ in shape"
        reason = ", since a function is called" if mapped else reason
        check_disjoint([("out", out)], [("x", request.x)], reason)
    return made
