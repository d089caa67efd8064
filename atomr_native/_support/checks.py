"""Checks of options: flags, choices, numbers, paths.  Errors name the offending value and the allowed ones."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import UnionType
from typing import Any

import numpy as np

from ..errors import InvalidRequest

__all__ = ["as_flag", "as_integer", "as_path", "as_strings", "check_choice", "check_factor", "check_flag",
           "is_integer", "is_real"]  # fmt: skip

_LARGEST = sys.float_info.max


def as_flag(name: str, value: object) -> bool:
    """Return a bool; values such as 1 and "no" are refused."""
    if not isinstance(value, bool | np.bool):
        raise InvalidRequest(f"{name}={value!r}; allowed: False, True")
    return bool(value)


def check_flag(name: str, value: object, kinds: type | UnionType = bool) -> None:
    """Raise `InvalidRequest` if an option is neither True nor False."""
    if not isinstance(value, kinds):
        raise InvalidRequest(f"{name}={value!r} must be True or False")


def check_choice(name: str, value: object, allowed: Iterable[str]) -> None:
    """Raise `InvalidRequest` unless a value is one of these strings."""
    if not isinstance(value, str) or value not in allowed:  # the equality of an array is an array
        raise InvalidRequest(f"{name}={value!r}; allowed: {', '.join(map(repr, allowed))}")


def is_integer(value: object) -> bool:
    """Whether a value is a Python or NumPy integer, and not a bool."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_real(value: object) -> bool:
    """Whether a value is a real number of Python, NumPy or ``ml_dtypes``, and not a bool."""
    if isinstance(value, int | float | np.integer | np.floating):
        return not isinstance(value, bool)
    return isinstance(value, np.generic) and value.dtype.kind == "V" and isinstance(value.item(), float)


def check_factor(name: str, value: Any, *, imaginary: bool, more: str = "") -> None:
    """Raise `InvalidRequest` unless a message can hold a value, as a real or with `imaginary` complex number."""
    if not is_real(value) and not (imaginary and isinstance(value, complex | np.complexfloating)):
        kind = "complex" if imaginary else "real"
        raise InvalidRequest(f"{name}={value!r} is a {type(value).__name__}; it must be a {kind} number{more}")
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise InvalidRequest(f"{name}={value!r}; a number in a message has at most the magnitude {_LARGEST:.3g}")


def as_integer(name: str, value: Any, low: int, high: int) -> int:
    """Return an integer within limits."""
    if not is_integer(value) or not low <= value <= high:
        raise InvalidRequest(f"{name}={value!r}; allowed: integers from {low} to {high}")
    return int(value)


def as_strings(name: str, value: object, what: str) -> tuple[str, ...]:
    """Return a sequence of strings; a single string is refused."""
    found: tuple[Any, ...] | None = None
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        with contextlib.suppress(TypeError):  # iteration over an array without axes
            found = tuple(value)
    if found is None or not all(isinstance(one, str) for one in found):
        raise InvalidRequest(f"{name} is {value!r}; allowed: a sequence of {what}")
    return found


def as_path(path: object) -> Path:
    """Return the path of a file."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise InvalidRequest(f"path is {path!r}; allowed: the name of a file, a string or os.PathLike")
    return Path(path)
