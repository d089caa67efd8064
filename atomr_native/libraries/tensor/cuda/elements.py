"""C statements on single elements of tensors: loads, products, operators, factors."""

from __future__ import annotations

from collections.abc import Sequence

from ....builders.cuda.codegen import convert, value_type
from ....builders.cuda.prelude import STORAGE
from ..operators import unary_source
from .arrays import Array

__all__ = ["constant", "factored", "loaded", "multiplied", "operated", "product_value", "scaled"]


def loaded(number: int, source: str, dtype: str, name: str = "v") -> str:
    """Return the statement that declares the value of the bits ``x<number>`` in a dtype."""
    bits = f"(x{number} != 0)" if source == "bool" else f"x{number}"
    return f"{value_type(dtype)} {name}{number} = {convert(source, dtype, bits)};"


def constant(dtype: str, value: int) -> str:
    """Return a value in C."""
    return f"make_{STORAGE[dtype]}({value}, 0)" if dtype.startswith("complex") else f"({value_type(dtype)}){value}"


def multiplied(dtype: str, a: str, b: str, operator: str = "mul") -> str:
    """Return the C expression of a binary operator on two values."""
    if operator in ("max", "min"):
        return f"({a} != {a} || {a} {'>' if operator == 'max' else '<'} {b} ? {a} : {b})"
    if dtype.startswith("complex"):
        return f"{'multiply' if operator == 'mul' else 'add'}_{STORAGE[dtype]}({a}, {b})"
    if dtype == "bool":
        return f"({a} {'&&' if operator == 'mul' else '||'} {b})"
    sign = "*" if operator == "mul" else "+"
    if dtype in ("int64", "uint64"):
        return f"({value_type(dtype)})((u64)({a}) {sign} (u64)({b}))"
    return f"({a} {sign} {b})"


def operated(name: str, dtype: str, value: str) -> str:
    """Return the C expression of a unary operator."""
    return unary_source(name, dtype, value)


def product_value(inputs: Sequence[Array], conj: Sequence[bool], dtype: str) -> tuple[str, ...]:
    """Return the statements that declare `v`, the product of the inputs."""
    lines = [loaded(i, array.dtype, dtype) for i, array in enumerate(inputs)]
    values = [operated("conj", dtype, f"v{i}") if flag else f"v{i}" for i, flag in enumerate(conj)]
    made = values[0]
    for value in values[1:]:
        made = multiplied(dtype, made, value)
    return (*lines, f"{value_type(dtype)} v = {made};")


def factored(dtype: str, number: int, imaginary: int) -> str:
    """Return a factor of the message's scalars, as a value."""
    if dtype.startswith("complex"):
        part = "float" if dtype == "complex64" else "double"
        return f"make_{STORAGE[dtype]}(({part})s{number}, ({part})s{imaginary})"
    return f"({value_type(dtype)})s{number}"


def scaled(dtype: str, value: str, factor: str) -> str:
    """Return a value times a factor; 0 where the factor is 0, whatever the value."""
    is_zero = f"{factor}.re == 0 && {factor}.im == 0" if dtype.startswith("complex") else f"{factor} == 0"
    return f"({is_zero} ? {constant(dtype, 0)} : {multiplied(dtype, factor, value)})"
