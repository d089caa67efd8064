"""Copies of functions whose constants are float32.

Numba takes a float literal as float64, so one literal makes the arithmetic of float32 arguments double.  NumPy's rules
for Python numbers are meant: a literal is as wide as the array.
"""

from __future__ import annotations

import types as python_types
from typing import Any

import numpy as np

from .api import CUDADispatcher, cuda
from .copies import copied

__all__ = ["in_dtype"]


def in_dtype(function: python_types.FunctionType, dtype: str) -> python_types.FunctionType:
    """Return a function whose float constants, also of the functions that it calls, have a dtype.

    Literals, global variables and variables of enclosing functions are constants; attributes of modules, as
    ``math.pi``, and results of operations on integers are not.

    Parameters
    ----------
    function : FunctionType
    dtype : {"float32", "float64"}
    """
    if dtype == "float64":
        return function

    def number(value: Any) -> Any:
        return np.float32(value) if type(value) is float else value

    def again(copy: python_types.FunctionType, old: Any) -> Any:
        return cuda.jit(**{**old.targetoptions, "device": True})(_with_single_literals(copy))

    return _with_single_literals(copied(function, again, {}, (CUDADispatcher,), other=number))


def _with_single_literals(function: python_types.FunctionType) -> python_types.FunctionType:
    function.__code__ = _single(function.__code__)
    return function


def _single(code: python_types.CodeType) -> python_types.CodeType:
    """Return code with float32 literals."""

    def constant(value: Any) -> Any:
        if type(value) is float:
            return np.float32(value)
        if isinstance(value, python_types.CodeType):
            return _single(value)
        if type(value) is tuple:
            return tuple(map(constant, value))
        return value

    return code.replace(co_consts=tuple(map(constant, code.co_consts)))
