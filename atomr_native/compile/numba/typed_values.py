"""Expressions of generated Python in Numba's types: how values are represented, converted and wrapped around.

`arithmetic` describes the representation.
"""

from __future__ import annotations

from typing import Any

from .api import types

__all__ = [
    "Unwritten",
    "as_argument",
    "converted",
    "is_integer",
    "is_number",
    "is_real",
    "normal",
    "plain",
    "wrapped",
]


class Unwritten(Exception):
    """A construct that this module does not write; the simulator runs the kernel's own Python."""


def plain(type_: Any) -> Any:
    """Return a type without its literal value."""
    return types.unliteral(type_) if isinstance(type_, types.Literal) else type_


def is_integer(type_: Any) -> bool:
    """Whether values of a type are integers; Booleans are not."""
    return isinstance(type_, types.Integer)


def is_real(type_: Any) -> bool:
    """Whether values of a type are floating-point numbers that are not complex."""
    return isinstance(type_, types.Float)


def wrapped(text: str, type_: Any) -> str:
    """Return an expression of any integer, wrapped around."""
    low, high = type_.minval, type_.maxval
    name = "_signed" if type_.signed else "_unsigned"
    return f"(_t if {low} <= (_t := {text}) <= {high} else {name}(_t, {type_.bitwidth}))"


def converted(text: str, old: Any, new: Any) -> str:
    """Return an expression of one type in another."""
    old, new = plain(old), plain(new)
    if old == new:
        return text
    if isinstance(new, types.Optional) or isinstance(old, types.Optional):
        raise Unwritten(f"{old} as {new}")
    if isinstance(new, types.Integer):
        if isinstance(old, types.Boolean):
            return f"int({text})"
        if is_real(old):
            return f"_truncated({text}, {new.bitwidth}, {new.signed})"
        if is_integer(old):
            inside = new.minval <= old.minval and old.maxval <= new.maxval
            return text if inside else wrapped(text, new)
        return normal(text, new)
    if isinstance(new, types.Boolean):
        return f"bool({text})"
    if isinstance(new, types.Float):
        if new == types.float64:
            return f"float({text})"
        if is_integer(old):
            return f"_narrow({text}, _{new})"
        return f"_{new}({text})"
    if isinstance(new, types.Complex):
        return f"_{new}({text})"
    if isinstance(new, types.BaseTuple) and isinstance(old, types.BaseTuple) and len(old) == len(new):
        if all((is_integer(a) and is_integer(b)) or plain(a) == plain(b) for a, b in zip(old, new, strict=True)):
            return text
        raise Unwritten(f"{old} as {new}")
    return normal(text, new)


def normal(text: str, type_: Any) -> str:
    """Return an expression of a value from elsewhere as values of its type are represented."""
    type_ = plain(type_)
    if isinstance(type_, types.Integer):
        return wrapped(f"int({text})", type_)
    if isinstance(type_, types.Boolean):
        return f"bool({text})"
    if isinstance(type_, types.Float):
        return f"float({text})" if type_ == types.float64 else f"_{type_}({text})"
    if isinstance(type_, types.Complex):
        return f"_{type_}({text})"
    if type_ == types.bfloat16:
        return f"_bfloat16({text})"
    return text


def as_argument(text: str, type_: Any) -> str:
    """Return an expression as an argument of the simulator's functions: a NumPy scalar, except of 64 bits."""
    type_ = plain(type_)
    if is_integer(type_) and type_ != types.int64:
        return f"_{type_}({text})"
    return text


def is_number(type_: Any) -> bool:
    """Whether values of a type are numbers or Booleans."""
    return isinstance(type_, types.Number | types.Boolean)
