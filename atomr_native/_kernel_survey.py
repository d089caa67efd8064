"""What a Numba kernel needs besides itself, found in it without compiling it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from . import _numba
from ._bytecode import all_names, global_names
from .gpu_ref import GpuRef

__all__ = ["captured", "is_recursive", "survey"]


def _functions(function: FunctionType) -> Iterator[FunctionType]:
    """Yield a kernel and the device functions that it may call."""
    done: dict[int, FunctionType] = {}
    left = [function]
    while left:
        one = left.pop()
        if id(one) not in done:
            done[id(one)] = one
            yield one
            left += [value.py_func for _, value in _values(one) if isinstance(value, _numba.CUDADispatcher)]


def _values(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield what a function refers to, by name: globals, values of closures, and members of tuples among them."""
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
            if isinstance(value, _numba.ExternFunction):
                declared.add(value.name)
            grid = grid or value is _numba.cuda.cg.this_grid
    return frozenset(declared), grid


def is_recursive(dispatcher: Any) -> bool:
    """Return whether a device function may call itself."""
    return any(value is dispatcher for one in _functions(dispatcher.py_func) for _, value in _values(one))


def captured(function: FunctionType) -> str | None:
    """Return the name of an array on a GPU to which a kernel refers by other ways than its arguments, if it does."""
    for one in _functions(function):
        for name, value in _values(one):
            if isinstance(value, GpuRef) or hasattr(type(value), "__cuda_array_interface__"):
                return name
    return None
