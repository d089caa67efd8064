"""Checks that requests of the solver share: which parameters a routine takes, and what arrays they may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ..._support.checks import check_choice, check_flag
from ...arrays.operands import Fresh, check_disjoint, check_input, check_output
from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest

__all__ = ["check_operands", "check_options", "check_outputs", "check_size", "matrix_dtype"]

_DTYPES: Final = ("float32", "float64", "complex64", "complex128")


def check_operands(request: Any, names: Iterable[str], reads: Sequence[str]) -> None:
    """Refuse an operand that the routine does not read, and one that it lacks."""
    for name in names:
        if (getattr(request, name) is not None) != (name in reads):
            word = "needs" if name in reads else "does not take"
            raise InvalidRequest(f"{request.routine} {word} {name}; its operands: {', '.join(reads)}")


def check_options(
    request: Any, defaults: Mapping[str, object], choices: Mapping[str, tuple[str, ...]], takes: Sequence[str]
) -> None:
    """Refuse the value of an option that is not one of its choices, or no bool; and an option that is not taken."""
    for name, default in defaults.items():
        value = getattr(request, name)
        if name in choices:
            check_choice(name, value, choices[name])
        else:
            check_flag(name, value, bool | np.bool)
        if value != default and name not in takes:
            allowed = ", ".join(takes) or "no option"
            raise InvalidRequest(f"{request.routine} does not take {name}={value!r}; it takes {allowed}")


def check_size(name: str, array: Any) -> tuple[int, int]:
    """Return the rows and columns of an array of matrices."""
    shape = tuple(check_input(name, array).shape)
    if len(shape) < 2:
        raise InvalidRequest(f"{name} has shape {shape}; it must be a matrix of 2 axes, after those of batches")
    return shape[-2:]  # type: ignore[return-value]


def matrix_dtype(array: Any) -> np.dtype[Any]:
    """Return the dtype of ``a``, which its matrices may have."""
    dtype = as_dtype(array.dtype)
    if dtype_name(dtype) not in _DTYPES:
        raise InvalidRequest(f"a has dtype {dtype_name(dtype)}; allowed: {', '.join(_DTYPES)}")
    return dtype


def check_outputs(request: Any, names: Iterable[str], reads: Iterable[str], fresh: Mapping[str, Fresh]) -> None:
    """Refuse outputs of another shape or dtype than the routine makes, and those that share memory."""
    given = [(name, getattr(request, name)) for name in names if getattr(request, name) is not None]
    for name, array in given:
        check_output(name, array)
        wanted = fresh[name]
        if tuple(array.shape) != wanted.shape:
            raise InvalidRequest(f"{name} has shape {tuple(array.shape)}; allowed: {wanted.shape}")
        if as_dtype(array.dtype) != wanted.dtype:
            found = dtype_name(as_dtype(array.dtype))
            raise InvalidRequest(f"{name} has dtype {found}; allowed: {dtype_name(wanted.dtype)}")
    check_disjoint(given, [(name, getattr(request, name)) for name in reads], "; omit it for a new array")
