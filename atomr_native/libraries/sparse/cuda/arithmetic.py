"""C of the arithmetic in sparse kernels: one spelling for real and complex types."""

from __future__ import annotations

from typing import Final

from ....builders.cuda.codegen import NARROW, convert
from ....builders.cuda.prelude import STORAGE

__all__ = ["FUNCTIONS", "arithmetic", "factor_text", "load", "store"]

#: Helpers of the prelude that the macros call.
FUNCTIONS: Final = ("divide",)

_COMPLEX: Final = """\
#define ADD(a, b) add_{T}(a, b)
#define SUB(a, b) subtract_{T}(a, b)
#define MUL(a, b) multiply_{T}(a, b)
#define DIV(a, b) divide_{T}(a, b)
#define CONJ(a) make_{T}((a).re, -(a).im)
#define ZERO make_{T}(0, 0)
#define IS_ZERO(a) ((a).re == 0 && (a).im == 0)
#define FACTOR(re, im) make_{T}(({R})(re), ({R})(im))
"""
_REAL: Final = """\
#define ADD(a, b) ((a) + (b))
#define SUB(a, b) ((a) - (b))
#define MUL(a, b) ((a) * (b))
#define DIV(a, b) ((a) / (b))
#define CONJ(a) (a)
#define ZERO (({T})0)
#define IS_ZERO(a) ((a) == 0)
#define FACTOR(re, im) (({T})(re))
"""


def arithmetic(dtype: str) -> str:
    """Return the macros for values of a dtype, which is not a narrow one, and the type ``elem``."""
    kind = STORAGE[dtype]
    text = _COMPLEX if dtype.startswith("complex") else _REAL
    return f"typedef {kind} elem;\n" + text.format(T=kind, R="float" if dtype == "complex64" else "double")


def load(source: str, target: str, value: str) -> str:
    """Return the expression of a stored element as a value of the dtype of sums."""
    return convert(source, target, value)


def store(source: str, target: str, value: str) -> str:
    """Return the expression of a sum as an element of an output."""
    return convert(source, target, value) if target in NARROW or source != target else value


def factor_text(name: str, is_complex: bool) -> tuple[str, str]:
    """Return the parameters of a factor that is a scalar of the message, and its expression."""
    if is_complex:
        return f"double {name}_re, double {name}_im", f"FACTOR({name}_re, {name}_im)"
    return f"double {name}_re", f"FACTOR({name}_re, 0)"
