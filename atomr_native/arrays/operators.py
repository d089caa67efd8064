"""Operators of Python and functions of NumPy on handles: refused, with what to write instead.

A comparison by identity would be a wrong answer, and a function of NumPy would copy to the host without a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NoReturn

import numpy as np

from ..errors import NoArrayOperator

__all__ = ["Operators"]

#: Binary operators: the method without underscores, the symbol, and whether elementwise programs have it.
_BINARY: Final = (
    ("add", "+", True), ("sub", "-", True), ("mul", "*", True), ("truediv", "/", True), ("floordiv", "//", True),
    ("mod", "%", True), ("pow", "**", True), ("and", "&", True), ("or", "|", True), ("xor", "^", True),
    ("matmul", "@", False), ("lshift", "<<", False), ("rshift", ">>", False),
)  # fmt: skip
_UNARY: Final = (("neg", "-", True), ("invert", "~", True), ("pos", "+", False))
_ORDER: Final = (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="))
#: Functions of NumPy that are programs.
_PROGRAMS: Final = {
    **{name: f"a {symbol} b" for name, symbol in (
        ("add", "+"), ("subtract", "-"), ("multiply", "*"), ("divide", "/"), ("floor_divide", "//"),
        ("remainder", "%"), ("power", "**"), ("bitwise_and", "&"), ("bitwise_or", "|"), ("bitwise_xor", "^"),
        ("less", "<"), ("less_equal", "<="), ("greater", ">"), ("greater_equal", ">="), ("equal", "=="),
        ("not_equal", "!="),
    )},
    **{name: f"{name}(a, b)" for name in ("minimum", "maximum")},
    **{name: f"{name}(a)" for name in (
        "exp", "log", "sqrt", "tanh", "sin", "cos", "sign", "floor", "ceil", "isnan",
    )},
    "absolute": "abs(a)", "negative": "-a", "invert": "~a",
}  # fmt: skip
#: Functions of NumPy that read no elements.
_STRUCTURE: Final = (np.shape, np.ndim, np.size)


def _refused(what: str, host: str, program: str = "", more: str = "") -> NoArrayOperator:
    """Return the error for an operator or function: on the device there is a program, or another call, or nothing."""
    if program:
        names = ", ".join(f"{name}=..." for name in re.findall(r"\b[ab]\b", program))
        more = f"on the device: device.elementwise.run({program!r}, {names})"
    return NoArrayOperator(
        f"{what} of a GpuRef: arrays on a device have no operators, and nothing is copied to the host unasked; "
        f"{more + '; ' if more else ''}on the host: {host}"
    )


class Operators:
    """What all handles refuse, so that no answer is by accident.

    A handle equals itself, so that containers find it, and is hashed by identity.
    """

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        """Whether this is the very handle; any other comparison is refused."""
        if other is self:
            return True
        raise _refused("==", "a.numpy() == b; whether both are one handle: a is b", "a == b")

    def __ne__(self, other: object) -> bool:
        """Whether this is not the very handle; any other comparison is refused."""
        if other is self:
            return False
        raise _refused("!=", "a.numpy() != b; whether both are one handle: a is b", "a != b")

    def __abs__(self) -> NoReturn:
        """Refuse: the values are on the device."""
        raise _refused("abs", "abs(a.numpy())", "abs(a)")

    def __divmod__(self, other: object) -> NoReturn:
        """Refuse: the values are on the device."""
        raise _refused("divmod", "divmod(a.numpy(), b)")

    __rdivmod__ = __divmod__

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **_options: object) -> NoReturn:
        """Refuse functions and operators of NumPy."""
        name = ufunc.__name__
        if method != "__call__":
            raise _refused(f"np.{name}.{method}", f"np.{name}.{method}(a.numpy(), ...)", more=_REDUCED)
        if name == "matmul":
            raise _refused("np.matmul", "np.matmul(a.numpy(), b)", more=_MATMUL)
        others = ", b" if len(inputs) > 1 else ""
        raise _refused(f"np.{name}", f"np.{name}(a.numpy(){others})", _PROGRAMS.get(name, ""))

    def __array_function__(
        self, func: Callable[..., Any], _types: object, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """Refuse functions of NumPy, except those of shapes."""
        if func in _STRUCTURE and len(args) == 1 and args[0] is self and not options:
            return getattr(self, func.__name__)
        name = f"{func.__module__}.{func.__name__}".replace("numpy", "np", 1)
        raise _refused(name, f"{name}(a.numpy(), ...)", more=_REDUCED if func in _REDUCTIONS else "")


_MATMUL: Final = "on the device: device.blas_lt.matmul(a, b)"
_REDUCED: Final = "sums, means, maxima on the device: device.elementwise.reduce('sum', a)"
_REDUCTIONS: Final = (np.sum, np.mean, np.max, np.argmax)


def _binary(symbol: str, program: bool) -> Callable[[Any, object], NoReturn]:
    def refuse(_self: Any, _other: object) -> NoReturn:
        raise _refused(
            symbol,
            f"a.numpy() {symbol} b",
            f"a {symbol} b" if program else "",
            _MATMUL if symbol == "@" else "",
        )

    refuse.__doc__ = "Refuse: the values are on the device."
    return refuse


def _unary(symbol: str, program: bool) -> Callable[[Any], NoReturn]:
    def refuse(_self: Any) -> NoReturn:
        raise _refused(symbol, f"{symbol}a.numpy()", f"{symbol}a" if program else "")

    refuse.__doc__ = "Refuse: the values are on the device."
    return refuse


# Set, and not written: for type checkers handles have no operators, so that they find a use before it runs.
for _name, _symbol, _is_program in _BINARY:
    for _prefix in ("", "r", "i"):
        setattr(Operators, f"__{_prefix}{_name}__", _binary(_symbol, _is_program))
for _name, _symbol, _is_program in _UNARY:
    setattr(Operators, f"__{_name}__", _unary(_symbol, _is_program))
for _name, _symbol in _ORDER:
    setattr(Operators, f"__{_name}__", _binary(_symbol, True))
