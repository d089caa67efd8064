"""What a Numba kernel needs besides itself, found in it without compiling it."""

from __future__ import annotations

from types import FunctionType

from . import _numba

__all__ = ["survey"]


def survey(function: FunctionType) -> tuple[frozenset[str], bool]:
    """Return the names of the declared functions that a kernel may call, and whether it synchronises its grid.

    Device functions that it calls count as part of it.
    """
    declared: set[str] = set()
    grid = False
    done: dict[int, FunctionType] = {}
    left = [function]
    while left:
        one = left.pop()
        if id(one) in done:
            continue
        done[id(one)] = one
        grid = grid or "this_grid" in one.__code__.co_names
        values = [one.__globals__.get(name) for name in one.__code__.co_names]
        for value in (*values, *(cell.cell_contents for cell in one.__closure__ or ())):
            if isinstance(value, _numba.ExternFunction):
                declared.add(value.name)
            elif isinstance(value, _numba.CUDADispatcher):
                left.append(value.py_func)
            grid = grid or value is _numba.cuda.cg.this_grid
    return frozenset(declared), grid
