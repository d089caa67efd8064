"""Kernels that copy arrays between layouts: with conversion, zeros beyond the source, a factor, conjugation."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from ....builders.cuda.codegen import (
    NARROW,
    THREADS,
    MapOperand,
    alignment,
    convert,
    kernels,
    map_kernel,
    value_type,
)
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.target import Argument, Launch, Target
from .steps import Move

__all__ = ["move_kernel", "move_source", "stored"]

_BLOCKS: Final = 32  # for each multiprocessor
_REALS: Final = {"complex64": "float32", "complex128": "float64"}
_MAKE: Final = {"complex64": "make_c64", "complex128": "make_c128"}


def stored(source: str, move: Move, name: str) -> list[str]:
    """Return statements that declare `made`, what is stored for the element `name` of dtype `source`."""
    target = move.target.dtype
    real = _REALS.get(target, "float32" if target in NARROW else target)
    scale = f" * {np.float32(move.scale).item()!r}f" if real == "float32" else f" * {move.scale!r}"
    scale = "" if move.scale == 1 else scale
    if target in _MAKE:
        value = convert(source, target, name)
        sign = "-" if move.conjugated else ""
        return [
            f"const {value_type(target)} value = {value};",
            f"const {value_type(target)} made = {_MAKE[target]}(value.re{scale}, {sign}value.im{scale});",
        ]
    value = convert(_REALS.get(source, source), real, f"{name}.re" if source in _MAKE else name)
    return [
        f"const {value_type(real)} value = ({value}){scale};",
        f"const {value_type(target)} made = {convert(real, target, 'value')};",
    ]


def _place(strides: tuple[int, ...], index: dict[int, str]) -> str:
    terms = [f"{index[a]} * {step}ll" for a, step in enumerate(strides) if a in index and step]
    return " + ".join(terms) or "0"


def _gather(move: Move, target: Target) -> tuple[str, Launch]:
    """Return a kernel that visits the target's elements, some of which the source lacks, or has twice."""
    source, into = move.source, move.target
    order = sorted((a for a, n in enumerate(into.shape) if n > 1), key=lambda a: -into.strides[a])
    total = math.prod(into.shape)
    wide = "u64" if total >= 2**31 else "unsigned int"
    lines = [
        f"KERNEL move(const {STORAGE[source.dtype]} *p, {STORAGE[into.dtype]} *q) {{",
        "AWAIT_LAUNCH();",
        f"const {wide} step = ({wide})thread_count();",
        f"for ({wide} i = ({wide})thread_index(); i < {total}u; i += step) {{",
        f"{wide} rest = i;",
    ]
    index: dict[int, str] = {}
    for place, axis in enumerate(reversed(order)):
        index[axis] = f"i{axis}"
        value = "rest" if place == len(order) - 1 else f"rest % {into.shape[axis]}u"
        lines.append(f"const long long i{axis} = (long long)({value}); rest /= {into.shape[axis]}u;")
    at = {axis: index.get(axis, "0ll") for axis in range(len(into.shape))}
    held = into.dtype if into.dtype in _MAKE or source.dtype not in _MAKE else source.dtype
    lines += _loaded(move, held, at, "x")
    if move.symmetric:
        axis, n = move.symmetric[-1]
        middle = f" || {at[axis]} == {n // 2}" if n % 2 == 0 else ""
        mirrored = {**at, **{a: f"(({m} - {at[a]}) % {m})" for a, m in move.symmetric[:-1] if m > 1}}
        half = "0.5f" if held == "complex64" else "0.5"
        lines += [
            f"if ({at[axis]} == 0{middle}) {{",
            *_loaded(move, held, mirrored, "y"),
            f"x = {_MAKE[held]}({half} * x.re + {half} * y.re, {half} * x.im - {half} * y.im);",
            "}",
        ]
    lines += [*stored(held, move, "x"), f"q[{_place(into.strides, index)}] = made;", "}", "}"]
    grid = max(1, min(-(-total // THREADS), target.sm_count * _BLOCKS))
    arguments: tuple[Argument, ...] = (("operand", 0), ("operand", 1))
    return "\n".join(lines) + "\n", Launch("move", (grid, 1, 1), (THREADS, 1, 1), 0, arguments)


def _loaded(move: Move, held: str, at: dict[int, str], name: str) -> list[str]:
    """Return statements that declare `name`, the source's element at an index as the dtype `held`, or zero."""
    source, into = move.source, move.target
    inside = [f"{at[a]} < {n}" for a, n in enumerate(source.shape) if n < into.shape[a]]
    zero = f"{_MAKE[held]}(0, 0)" if held in _MAKE else "0"
    found = f"{name} = {convert(source.dtype, held, f'p[{_place(source.strides, at)}]')};"
    return [f"{value_type(held)} {name} = {zero};", f"if ({' && '.join(inside)}) {found}" if inside else found]


def move_source(move: Move, target: Target) -> tuple[str, Launch]:
    """Return the kernel of a copy, and its launch: of operands source and target, or of the one array."""
    source, into = move.source, move.target
    if source == into:
        mapped = [MapOperand(0, source.dtype, source.strides, True, True)]
        return map_kernel(into.shape, mapped, (), (), [*stored(source.dtype, move, "x0"), "y0 = made;"], target)
    if move.symmetric or source.shape != into.shape:
        return _gather(move, target)
    mapped = [
        MapOperand(0, source.dtype, source.strides, True, False),
        MapOperand(1, into.dtype, into.strides, False, True),
    ]
    return map_kernel(into.shape, mapped, (), (), [*stored(source.dtype, move, "x0"), "y1 = made;"], target)


def move_kernel(move: Move, target: Target) -> Any:
    """Compile the kernel of a copy, a `KernelProgram`.  Waits for the compiler."""
    source, launch = move_source(move, target)
    arrays = [move.source] if move.source == move.target else [move.source, move.target]
    dtypes = {array.dtype for array in arrays}
    return kernels(source, [launch], target, dtypes=dtypes, alignments=[alignment(a.dtype) for a in arrays]).run
