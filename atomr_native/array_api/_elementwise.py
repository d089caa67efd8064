"""Elementwise functions of the namespace: each sends one program, and returns at once."""

# The names of the standard shadow builtins in this module.
from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, Final

from ..arrays.gpu_ref import GpuRef
from ..arrays.owner import ArrayArithmetic, owner_of
from ..errors import InvalidRequest
from ._operands import cast_to, handle

__all__ = ["ELEMENTWISE", "clip", "ufunc", "where"]

#: Programs over one array.
_ONE: Final = {
    "abs": "abs(x)", "bitwise_invert": "~x", "logical_not": "~(x != 0)", "negative": "-x", "reciprocal": "1 / x",
    "square": "x * x", **{name: f"{name}(x)" for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "exp", "expm1", "floor", "isfinite",
        "isinf", "isnan", "log", "log1p", "log2", "log10", "sign", "signbit", "sin", "sinh", "sqrt", "tan", "tanh",
        "trunc", "real", "imag",
    )},
}  # fmt: skip
#: Programs over two arrays, or an array and a number.
_TWO: Final = {
    "add": "x + y", "subtract": "x - y", "multiply": "x * y", "divide": "x / y", "floor_divide": "x // y",
    "remainder": "x % y", "pow": "x ** y", "bitwise_and": "x & y", "bitwise_or": "x | y", "bitwise_xor": "x ^ y",
    "bitwise_left_shift": "x << y", "bitwise_right_shift": "x >> y", "less": "x < y", "less_equal": "x <= y",
    "greater": "x > y", "greater_equal": "x >= y", "equal": "x == y", "not_equal": "x != y",
    "logical_and": "(x != 0) & (y != 0)", "logical_or": "(x != 0) | (y != 0)", "logical_xor": "(x != 0) ^ (y != 0)",
    **{name: f"{name}(x, y)" for name in (
        "atan2", "copysign", "hypot", "logaddexp", "maximum", "minimum", "nextafter",
    )},
}  # fmt: skip
#: Expressions with the operands exchanged, for a number on the left.
_MIRRORED: Final = {"x < y": "x > y", "x <= y": "x >= y", "x > y": "x < y", "x >= y": "x <= y", "x == y": "x == y",
                    "x != y": "x != y"}  # fmt: skip


def _arithmetic(x: GpuRef) -> ArrayArithmetic:
    found: ArrayArithmetic = owner_of(x.device).elementwise
    return found


def _unary(name: str, program: str) -> Callable[..., GpuRef]:
    def function(x: GpuRef, /) -> GpuRef:
        return _arithmetic(handle(name, x)).unary(program, x)

    return _named(function, name, f"Return ``{program}`` of each element; enqueues.")


def _binary(name: str, program: str) -> Callable[..., GpuRef]:
    def function(x1: Any, x2: Any, /) -> GpuRef:
        if isinstance(x1, GpuRef):
            return _arithmetic(x1).binary(program, x1, x2)
        array = handle(name, x2)
        if program in _MIRRORED:
            return _arithmetic(array).binary(_MIRRORED[program], array, x1)
        return _arithmetic(array).reflected(program, x1, array)

    return _named(
        function, name, f"Return ``{program}`` of the elements of two arrays, or of an array and a number; enqueues."
    )


def _named(function: Callable[..., GpuRef], name: str, text: str) -> Callable[..., GpuRef]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    function.__module__ = __name__.rpartition(".")[0]
    return function


def positive(x: GpuRef, /) -> GpuRef:
    """Return a copy; enqueues."""
    return +handle("positive", x)


def conj(x: GpuRef, /) -> GpuRef:
    """Return the complex conjugate of each element, of real arrays a copy; enqueues."""
    return _arithmetic(x).unary("conj(x)", x) if handle("conj", x).dtype.kind == "c" else positive(x)


def round(x: GpuRef, /) -> GpuRef:
    """Return the nearest integers, halves to even ones, in the array's dtype; enqueues."""
    return positive(x) if handle("round", x).dtype.kind in "biu" else _arithmetic(x).unary("rint(x)", x)


def clip(x: GpuRef, /, min: Any = None, max: Any = None) -> GpuRef:
    """Return the elements within bounds, in the dtype of `x`; enqueues.

    Parameters
    ----------
    x : GpuRef
        Array of a real dtype.
    min, max
        A number, an array that broadcasts, or None for no bound.
    """
    dtype = handle("clip", x).dtype
    if min is None and max is None:
        return positive(x)
    made = x
    if min is not None:
        made = _arithmetic(x).binary("maximum(x, y)", made, min)
    if max is not None:
        made = _arithmetic(x).binary("minimum(x, y)", made, max)
    return cast_to(made, dtype)


def where(condition: GpuRef, x1: Any, x2: Any, /) -> GpuRef:
    """Return the elements of `x1` where `condition` is not zero, else those of `x2`; enqueues.

    `x1` and `x2` are arrays, or numbers, which adapt to the other one.
    """
    actor = _arithmetic(handle("where", condition))
    if not isinstance(x1, GpuRef) and not isinstance(x2, GpuRef):
        if not builtins.all(isinstance(x, bool | int | float) for x in (x1, x2)):
            raise InvalidRequest(f"where with {x1!r} and {x2!r}; allowed: GpuRefs and numbers")
        if isinstance(x1, bool) and isinstance(x2, bool):
            x1 = condition.device.full((), x1, "bool")
    if isinstance(x1, GpuRef):
        x2 = x2 if isinstance(x2, GpuRef) else actor.operand("where", x1, x2)
    elif isinstance(x2, GpuRef):
        x1 = actor.operand("where", x2, x1)
    return actor.ternary("where(x, y, z)", condition, x1, x2)


#: The functions of the standard, by name.
ELEMENTWISE: Final[dict[str, Callable[..., GpuRef]]] = {
    **{name: _unary(name, program) for name, program in _ONE.items()},
    **{name: _binary(name, program) for name, program in _TWO.items()},
    "positive": positive,
    "conj": conj,
    "round": round,
}


def _divmod(x1: Any, x2: Any, /) -> tuple[GpuRef, GpuRef]:
    return ELEMENTWISE["floor_divide"](x1, x2), ELEMENTWISE["remainder"](x1, x2)


def ufunc(name: str) -> Callable[..., Any] | None:
    """Return the function for a universal function of NumPy, or None."""
    if name == "matmul":
        from ._linear import matmul

        return matmul
    return _divmod if name == "divmod" else ELEMENTWISE.get(name)
