"""Dependencies of a Numba kernel, found without compiling it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import numpy as np

from ...arrays.gpu_ref import GpuRef
from ..bytecode import all_names, global_names
from . import api

__all__ = ["captured", "constant_bytes", "is_recursive", "survey"]


def _functions(function: FunctionType) -> Iterator[FunctionType]:
    """Yield a kernel and the device functions that it may call."""
    done: dict[int, FunctionType] = {}
    left = [function]
    while left:
        one = left.pop()
        if id(one) not in done:
            done[id(one)] = one
            yield one
            left += [value.py_func for _, value in _values(one) if isinstance(value, api.CUDADispatcher)]


def _values(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the references of a function by name: globals, closure values, and members of tuples among them."""
    names = global_names(function.__code__)
    left = [(name, function.__globals__[name]) for name in names if name in function.__globals__]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # it has none yet
            left.append((name, cell.cell_contents))
    while left:
        name, value = left.pop()
        yield name, value
        if isinstance(value, tuple):
            left += [(f"{name}[{i}]", member) for i, member in enumerate(value)]


def survey(function: FunctionType) -> tuple[frozenset[str], bool]:
    """Return the names of the declared functions that a kernel may call, and whether it synchronises its grid.

    Device functions that it calls count as part of it.
    """
    declared: set[str] = set()
    grid = False
    for one in _functions(function):
        grid = grid or "this_grid" in all_names(one.__code__)
        for _, value in _values(one):
            if isinstance(value, api.ExternFunction):
                declared.add(value.name)
            grid = grid or value is api.cuda.cg.this_grid
    return frozenset(declared), grid


def is_recursive(dispatcher: Any) -> bool:
    """Return whether a device function may call itself."""
    return any(value is dispatcher for one in _functions(dispatcher.py_func) for _, value in _values(one))


def constant_bytes(function: FunctionType) -> int:
    """Return the bytes of the NumPy arrays that a kernel refers to by name, and which are compiled into it."""
    return sum(
        value.nbytes for one in _functions(function) for _, value in _values(one) if isinstance(value, np.ndarray)
    )


def captured(function: FunctionType) -> str | None:
    """Return the name of a GPU array that a kernel refers to other than by an argument, or None."""
    for one in _functions(function):
        for name, value in _values(one):
            if isinstance(value, GpuRef) or hasattr(type(value), "__cuda_array_interface__"):
                return name
    return None
