"""Operations of constants, computed when a program is parsed: by Python's rules, with exact integers."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

__all__ = ["MAX_BITS", "compared", "computed"]

Number = int | float

#: Bits of the largest integer; larger ones fit no array, and could take forever.
MAX_BITS: Final = 4096
_OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "bitwise_and": operator.and_,
    "bitwise_or": operator.or_, "bitwise_xor": operator.xor, "negative": operator.neg, "invert": operator.invert,
    "left_shift": operator.lshift, "right_shift": operator.rshift, "less": operator.lt, "less_equal": operator.le,
    "greater": operator.gt, "greater_equal": operator.ge, "equal": operator.eq, "not_equal": operator.ne,
}  # fmt: skip
_COMPARISONS: Final = {
    "less": (-1, 0), "less_equal": (-1, 0), "greater": (1, 0), "greater_equal": (1, 0), "equal": (0, 0),
    "not_equal": (0, 1),
}  # fmt: skip


def computed(name: str, values: Sequence[Number], kind: str) -> Number:
    """Return the result of an operation of the language on numbers.

    Parameters
    ----------
    name : str
    values : sequence of int or float
    kind : str
        ``"int"`` or ``"float"``: of a function's result.  Those of operators follow Python's rules.

    Raises
    ------
    ArithmeticError
        If Python has no real result: for a division by zero, a result that is complex, or one that is too large.
    """
    if name == "power":
        result = _power(*values)
    elif name == "left_shift" and values[1] > MAX_BITS:
        raise OverflowError(f"the result has more than {MAX_BITS} bits")
    elif name in _OPERATORS:
        result = _OPERATORS[name](*values)
    else:
        result = _function(name, values)
        return float(result) if kind == "float" else int(result)
    if isinstance(result, complex):
        raise ArithmeticError("the result is complex")
    if isinstance(result, int) and result.bit_length() > MAX_BITS:
        raise OverflowError(f"the result has more than {MAX_BITS} bits")
    return float(result) if isinstance(result, float) else int(result)


def _power(base: Number, exponent: Number) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > 2 * MAX_BITS:
        if base not in (-1, 0, 1):
            raise OverflowError(f"the result has more than {MAX_BITS} bits")
        exponent = 2 + exponent % 2
    return base**exponent


def _function(name: str, values: Sequence[Number]) -> Any:
    """Return the result of a function: of integers exact where it can be an integer, otherwise float64 as in NumPy."""
    if name == "where":
        return values[1] if values[0] else values[2]
    if all(isinstance(value, int) for value in values):
        match name, values:
            case "minimum", _:
                return min(values)
            case "maximum", _:
                return max(values)
            case "relu", (value,):
                return max(value, 0)
            case "abs", (value,):
                return abs(value)
            case "sign", (value,):
                return (value > 0) - (value < 0)
            case "floor" | "ceil" | "trunc" | "real" | "conj", (value,):
                return value
    numbers = list(map(float, values))
    with np.errstate(all="ignore"):
        match name:
            case "erf":
                return math.erf(*numbers)
            case "sigmoid":
                return 1.0 / (1.0 + np.exp(-numbers[0]))
            case "relu":
                return np.maximum(numbers[0], 0.0)
        return getattr(np, {"abs": "absolute"}.get(name, name))(*numbers)


def compared(name: str, number: int, low: int, high: int, *, first: bool) -> bool | None:
    """Return a comparison of a number with all integers from `low` to `high`, or None if it depends on them.

    `first` says that the number is the left operand.
    """
    if name not in _COMPARISONS or low <= number <= high:
        return None
    order = -1 if (number < low) == first else 1  # of the left operand against the right one
    wanted, otherwise = _COMPARISONS[name]
    return bool(otherwise) if wanted == 0 else order == wanted
