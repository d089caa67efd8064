"""Arithmetic of kernels on the host device, as a GPU computes it: integers wrap around, and nothing raises.

Integers of every width are Python's integers, Booleans Python's, float64 Python's floats; other numbers are NumPy's
scalars.  Code of `typed_python` calls these functions by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import ml_dtypes
import numpy as np

__all__ = ["FUNCTIONS", "MATH", "SCOPE"]

Float = Any


def signed(value: int, bits: int) -> int:
    """Return an integer wrapped around to a signed one."""
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def unsigned(value: int, bits: int) -> int:
    """Return an integer wrapped around to an unsigned one."""
    return value & ((1 << bits) - 1)


def truncated(value: Float, bits: int, is_signed: bool) -> int:
    """Return a floating-point number as an integer: the nearest in its range, and 0 for NaN."""
    number = float(value)
    if number != number:
        return 0
    wide = max(bits, 32)  # narrow ones are converted in two steps
    low, high = (-(1 << (wide - 1)), (1 << (wide - 1)) - 1) if is_signed else (0, (1 << wide) - 1)
    result = high if number >= high else low if number <= low else int(number)
    return signed(result, bits) if is_signed else unsigned(result, bits)


def narrow(value: int, kind: type) -> Float:
    """Return an integer as a floating-point number, rounded once."""
    return np.uint64(value).astype(kind) if value >= 1 << 63 else np.int64(value).astype(kind)


def quotient(a: Float, b: Float) -> float:
    """Divide float64 numbers."""
    return a / b if b else float(np.float64(a) / np.float64(b))


def floor_quotient(a: Float, b: Float) -> Float:
    """Divide floating-point numbers, and round down."""
    return np.floor_divide(a, b) if b else np.float64(a) / b


def rest(a: Float, b: Float) -> Float:
    """Return the rest of a division that rounds down."""
    return np.remainder(a, b) if b else math.nan


def integer_quotient(a: int, b: int) -> int:
    """Divide integers, and round down; by 0 the result is 0."""
    return a // b if b else 0


def integer_rest(a: int, b: int) -> int:
    """Return the rest of a division of integers that rounds down; by 0 it is 0."""
    return a % b if b else 0


def integer_power(a: int, b: int, bits: int) -> int:
    """Return a power of integers, modulo their range; a negative power is truncated."""
    if b >= 0:
        return pow(a, b, 1 << bits)
    if a == 0:
        return 1 << (bits - 1)
    return a ** (b & 1) if a in (1, -1) else 0


def float_power(a: Float, b: Float) -> Float:
    """Return a power of floating-point numbers."""
    return np.power(a, b)


def left(a: int, b: int, bits: int) -> int:
    """Shift to the left; by more than the width, all bits leave."""
    return a << b if 0 <= b < bits else 0


def right(a: int, b: int, bits: int) -> int:
    """Shift to the right; by more than the width, only copies of the sign remain."""
    return a >> b if 0 <= b < bits else -1 if a < 0 else 0


def following(iterator: Iterator[Any]) -> tuple[Any, bool]:
    """Return the next value of an iterator, and whether there is one."""
    for value in iterator:
        return value, True
    return None, False


def _guarded(function: Callable[..., float], outside: float) -> Callable[..., float]:
    """Return one of Python's functions with results where it raises."""

    def call(*arguments: Float) -> float:
        try:
            return function(*arguments)
        except OverflowError:
            return math.inf
        except ValueError:
            return outside

    return call


def _gamma(value: Float) -> float:
    if value == 0:
        return math.copysign(math.inf, value)
    return _guarded(math.gamma, math.nan)(value)


#: Python's functions by name: NumPy's, which do not raise, and others with results where they raise.
FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    **{name: getattr(np, name) for name in (
        "sqrt", "exp", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "hypot",
        "fabs", "floor", "ceil", "trunc", "copysign", "fmod", "isnan", "isinf", "isfinite", "degrees", "radians",
        "ldexp",
    )},
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "atan2": np.arctan2, "pow": np.power, "erf": math.erf, "erfc": math.erfc, "gamma": _gamma,
    "lgamma": _guarded(math.lgamma, math.inf),
}  # fmt: skip
#: The same, by identity of Python's function.
MATH: Final = {getattr(math, name): f"_math_{name}" for name in FUNCTIONS}

#: Names in generated code.
SCOPE: Final[dict[str, Any]] = {
    "_signed": signed, "_unsigned": unsigned, "_truncated": truncated, "_narrow": narrow, "_quotient": quotient,
    "_floor_quotient": floor_quotient, "_rest": rest, "_integer_quotient": integer_quotient,
    "_integer_rest": integer_rest, "_integer_power": integer_power, "_float_power": float_power, "_left": left,
    "_right": right, "_following": following, "_bfloat16": ml_dtypes.bfloat16,
    **{f"_{kind.__name__}": kind for kind in (
        np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float16, np.float32,
        np.float64, np.complex64, np.complex128,
    )},
    **{f"_math_{name}": function for name, function in FUNCTIONS.items()},
}  # fmt: skip
