"""Operators of tensor operations, as data: in NumPy for the host device, in C for kernels."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np

__all__ = ["BINARY", "COMPLEX_UNARY", "INTEGER_UNARY", "REDUCTIONS", "UNARY", "unary_function", "unary_source"]

Array = np.ndarray[Any, Any]

#: Reductions.  Of complex tensors those that compare are refused.
REDUCTIONS: Final = ("sum", "prod", "max", "min", "mean", "any", "all", "norm1", "norm2", "norm_max")
#: What combines two operands.
BINARY: Final = ("add", "mul", "max", "min")

#: Unary operators: NumPy's function, and the C expression of `x`, with ``@`` for the suffix of float32's functions.
_UNARY: Final[dict[str, tuple[Callable[[Array], Array], str]]] = {
    "identity": (lambda x: x, "x"),
    "sqrt": (np.sqrt, "sqrt@(x)"),
    "relu": (lambda x: np.maximum(x, 0), "(x < 0 ? 0 : x)"),
    "conj": (np.conj, "x"),
    "rcp": (lambda x: 1 / x, "1 / x"),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), "1 / (1 + exp@(-x))"),
    "tanh": (np.tanh, "tanh@(x)"),
    "exp": (np.exp, "exp@(x)"),
    "log": (np.log, "log@(x)"),
    "abs": (np.abs, "fabs@(x)"),
    "neg": (lambda x: -x, "-x"),
    "sin": (np.sin, "sin@(x)"),
    "cos": (np.cos, "cos@(x)"),
    "tan": (np.tan, "tan@(x)"),
    "sinh": (np.sinh, "sinh@(x)"),
    "cosh": (np.cosh, "cosh@(x)"),
    "asin": (np.arcsin, "asin@(x)"),
    "acos": (np.arccos, "acos@(x)"),
    "atan": (np.arctan, "atan@(x)"),
    "asinh": (np.arcsinh, "asinh@(x)"),
    "acosh": (np.arccosh, "acosh@(x)"),
    "atanh": (np.arctanh, "atanh@(x)"),
    "ceil": (np.ceil, "ceil@(x)"),
    "floor": (np.floor, "floor@(x)"),
    "mish": (lambda x: x * np.tanh(np.logaddexp(0, x)), "x * tanh@(SOFT_PLUS(x))"),
    "swish": (lambda x: x / (1 + np.exp(-x)), "x / (1 + exp@(-x))"),
    "soft_plus": (lambda x: np.logaddexp(0, x), "SOFT_PLUS(x)"),
    "soft_sign": (lambda x: x / (1 + np.abs(x)), "x / (1 + fabs@(x))"),
}
UNARY: Final = tuple(_UNARY)
#: Those of complex numbers, and of integers.
COMPLEX_UNARY: Final = ("identity", "conj", "neg")
INTEGER_UNARY: Final = ("identity", "conj", "neg", "abs", "relu")


def unary_function(name: str) -> Callable[[Array], Array]:
    """Return the function of NumPy arrays."""
    return _UNARY[name][0]


def unary_source(name: str, dtype: str, value: str) -> str:
    """Return the C expression of an operator on `value`, which it may evaluate several times."""
    if dtype.startswith("complex"):
        c = {"complex64": "c64", "complex128": "c128"}[dtype]
        if name == "conj":
            return f"make_{c}({value}.re, -{value}.im)"
        return f"make_{c}(-{value}.re, -{value}.im)" if name == "neg" else value
    if dtype in ("int64", "uint64", "bool"):
        if name == "neg":
            return f"({'long long' if dtype == 'int64' else 'u64'})(0ull - (u64){value})"
        if name == "abs" or name == "relu":
            below = f"(long long)(0ull - (u64){value})" if name == "abs" else "0"
            return f"({value} < 0 ? {below} : {value})" if dtype == "int64" else value
        return value
    suffix = "f" if dtype == "float32" else ""
    soft = "(x > 0 ? x + log1p@(exp@(-x)) : log1p@(exp@(x)))"
    text = _UNARY[name][1].replace("SOFT_PLUS(x)", soft).replace("@", suffix)
    return "(" + _substitute(text, value) + ")"


def _substitute(text: str, value: str) -> str:
    """Put a value in the place of the variable ``x``, which no function's name has alone."""
    return re.sub(r"\bx\b", value, text)
