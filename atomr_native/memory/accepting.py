"""The array argument of `Device.put`: as a NumPy array, with its element type on the device; which casts are allowed.

Pure functions: they neither allocate nor send.
"""

from __future__ import annotations

import reprlib
from typing import Any, Final

import numpy as np

from .._support.checks import check_choice
from ..arrays.gpu_ref import GpuRef
from ..arrays.views import view_as_numpy
from ..dtypes import DTYPES, as_dtype, dtype_name
from ..errors import InvalidRequest

__all__ = ["SAME_KIND", "accept"]

#: The default of ``casting=``.
SAME_KIND: Final = "same_kind"
#: NumPy's names of rules, strict to lax.
_CASTINGS: Final = ("no", "equiv", "safe", SAME_KIND, "unsafe")
_KINDS: Final = "buifc"  # each may become those behind it
_KNOWN: Final = frozenset(DTYPES.values())
_PLAIN: Final = (bool, int, float, complex, list, tuple)  # without a dtype


def accept(
    array: object, dtype: object, out: GpuRef | None, casting: str
) -> tuple[np.ndarray[Any, Any], np.dtype[Any]]:
    """Return the argument of `put` as an array, and its element type on the device.

    Raises
    ------
    InvalidRequest
        If it is no array, does not fit `out`, or the cast is not allowed.
    """
    check_choice("casting", casting, _CASTINGS)
    host = _as_array(array)
    target = as_dtype(dtype) if dtype is not None else as_dtype(host.dtype)
    if out is not None:
        if dtype is not None and target != out.dtype:
            raise InvalidRequest(f"dtype {dtype_name(target)} and an out of {out.layout!r}; give one of them")
        if out.shape != host.shape:
            raise InvalidRequest(f"out has shape {out.shape}, the array {host.shape}; they must be equal")
        target = out.dtype
    if host.dtype != target:
        if host.dtype.kind == "c" and target.kind != "c":
            raise InvalidRequest(f"complex values cannot become {dtype_name(target)}; take .real or .imag first")
        plain = isinstance(array, _PLAIN) and not isinstance(array, np.generic)
        if not (_holds(host, target, array) if plain and casting == SAME_KIND else _may(host.dtype, target, casting)):
            raise InvalidRequest(
                f"{dtype_name(as_dtype(host.dtype))} does not become {dtype_name(target)} with casting={casting!r}; "
                f"allowed: {_allowed(host.dtype, target)}"
            )
    return host, target


def _kind(dtype: np.dtype[Any]) -> int:
    """Return the place of a dtype among the kinds; bfloat16 and float8 are floats."""
    return _KINDS.index("f" if dtype.kind == "V" else dtype.kind)


def _may(source: np.dtype[Any], target: np.dtype[Any], casting: str) -> bool:
    """Return whether NumPy's rule allows a cast; NumPy does not know that bfloat16 and float8 are floats."""
    if casting == SAME_KIND:
        return _kind(source) <= _kind(target)
    return casting == "unsafe" or np.can_cast(source, target, casting)  # type: ignore[arg-type]


def _allowed(source: np.dtype[Any], target: np.dtype[Any]) -> str:
    found = [repr(casting) for casting in _CASTINGS if _may(source, target, casting)]
    return f"casting={' or '.join(found)}, or a dtype that holds the values"


def _holds(host: np.ndarray[Any, Any], target: np.dtype[Any], array: object) -> bool:
    """Return whether a type takes numbers without a dtype: any float those that it rounds, any other the exact ones."""
    if host.dtype.kind == "b" or target.kind not in "biu" or not host.size:
        return True
    low, high = (0, 1) if target.kind == "b" else (np.iinfo(target).min, np.iinfo(target).max)
    least, most = host.min().item(), host.max().item()
    if not low <= least <= most <= high:  # NaN is out of range
        what = "0 and 1" if target.kind == "b" else f"integers from {low} to {high}"
        raise InvalidRequest(f"{reprlib.repr(array)} does not fit {dtype_name(target)}; allowed: {what}")
    return host.dtype.kind != "f" or bool((host == np.floor(host)).all())


def _as_array(array: object) -> np.ndarray[Any, Any]:
    if isinstance(array, GpuRef):
        raise InvalidRequest(f"put takes an array of this process, not {array!r}; device.copy() copies a GpuRef")
    if isinstance(array, _PLAIN):
        try:
            found = np.asarray(array)
        except (ValueError, TypeError, OverflowError) as error:
            raise InvalidRequest(f"{reprlib.repr(array)} is not a numeric array: {error}") from None
        if found.dtype not in _KNOWN:
            raise InvalidRequest(
                f"{reprlib.repr(array)} is not a numeric array: NumPy converts it to {found.dtype}; "
                f"allowed: {', '.join(DTYPES)}"
            )
        return found
    return view_as_numpy(array)
