"""Fourier transforms of a few points in registers, as C: without loops, and without products with 1 and i."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

__all__ = ["LARGEST", "WHOLE", "butterfly", "literal", "splits", "table", "whole_type"]

#: Points that a butterfly has at most.
LARGEST: Final = 16

Pair = tuple[str, str]


#: The C type of a complex number, which is read and written by one access.
WHOLE: Final = "whole"


def whole_type(real: str) -> list[str]:
    """Return the text of the type `WHOLE`, and of its product."""
    kind, size = ("float", 8) if real == "float32" else ("double", 16)
    return [
        f"typedef struct ALIGNED({size}) {{ {kind} re, im; }} {WHOLE};",
        f"DEVICE {WHOLE} made_of({kind} re, {kind} im) {{ {WHOLE} z; z.re = re; z.im = im; return z; }}",
        f"DEVICE {WHOLE} product({WHOLE} a, {WHOLE} b) {{",
        "return made_of(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);",
        "}",
    ]


def literal(value: float, real: str) -> str:
    """Return a number as C."""
    return f"{np.float32(value).item()!r}f" if real == "float32" else repr(float(value))


def _root(k: int, n: int) -> complex:
    """Return ``exp(2 pi i k / n)``, exactly where its parts are whole."""
    k %= n
    if 4 * k % n == 0:
        return (1, 1j, -1, -1j)[4 * k // n]
    angle = 2 * math.pi * k / n
    return complex(math.cos(angle), math.sin(angle))


def table(name: str, count: int, n: int, sign: int, real: str) -> list[str]:
    """Return the text of an array of roots of unity: ``exp(sign * 2 pi i k / n)`` for k below `count`."""
    roots = (_root(sign * k, n) for k in range(count))
    values = ", ".join(f"{{{literal(w.real, real)}, {literal(w.imag, real)}}}" for w in roots)
    return [f"static __device__ const {WHOLE} {name}[{count}] = {{{values}}};"]


@dataclass
class _Code:
    """Statements that declare a number each."""

    real: str
    lines: list[str] = field(default_factory=list)

    def new(self, text: str) -> str:
        name = f"t{len(self.lines)}"
        self.lines.append(f"const {'float' if self.real == 'float32' else 'double'} {name} = {text};")
        return name

    def plus(self, a: Pair, b: Pair) -> Pair:
        return self.new(f"{a[0]} + {b[0]}"), self.new(f"{a[1]} + {b[1]}")

    def minus(self, a: Pair, b: Pair) -> Pair:
        return self.new(f"{a[0]} - {b[0]}"), self.new(f"{a[1]} - {b[1]}")

    def times(self, a: Pair, k: int, n: int) -> Pair:
        """Multiply by a root of unity."""
        w = _root(k, n)
        if w == 1:
            return a
        if w == -1:
            return self.new(f"-{a[0]}"), self.new(f"-{a[1]}")
        if w in (1j, -1j):
            turned = self.new(f"-{a[1 if w == 1j else 0]}")
            return (turned, a[0]) if w == 1j else (a[1], turned)
        c, s = literal(w.real, self.real), literal(w.imag, self.real)
        if 8 * k % n == 0:  # parts of one size
            size = literal(math.sqrt(0.5), self.real)
            first = self.new(f"{a[0]} {'-' if w.real * w.imag > 0 else '+'} {a[1]}")
            second = self.new(f"{a[0]} {'+' if w.real * w.imag > 0 else '-'} {a[1]}")
            signs = ("" if w.real > 0 else "-", "" if w.imag > 0 else "-")
            return self.new(f"{signs[0]}{size} * {first}"), self.new(f"{signs[1]}{size} * {second}")
        return self.new(f"{a[0]} * {c} - {a[1]} * {s}"), self.new(f"{a[0]} * {s} + {a[1]} * {c}")

    def prime(self, x: list[Pair], sign: int) -> list[Pair]:
        """Transform a prime number of points."""
        p = len(x)
        if p == 2:
            return [self.plus(*x), self.minus(*x)]
        half = range(1, (p - 1) // 2 + 1)
        sums, differences = [self.plus(x[k], x[p - k]) for k in half], [self.minus(x[k], x[p - k]) for k in half]
        first = x[0]
        for each in sums:
            first = self.plus(first, each)
        made = [first] * p
        for m in half:
            roots = [_root(m * k, p) for k in half]
            even, odd = [], []
            for part in range(2):
                terms = " + ".join(
                    f"{literal(w.real, self.real)} * {s[part]}" for w, s in zip(roots, sums, strict=True)
                )
                even.append(self.new(f"{x[0][part]} + {terms}"))
                terms = " + ".join(
                    f"{literal(w.imag, self.real)} * {d[part]}" for w, d in zip(roots, differences, strict=True)
                )
                odd.append(self.new(terms))
            turned = (self.new(f"{even[0]} - {odd[1]}"), self.new(f"{even[1]} + {odd[0]}"))
            back = (self.new(f"{even[0]} + {odd[1]}"), self.new(f"{even[1]} - {odd[0]}"))
            made[m], made[p - m] = (turned, back) if sign > 0 else (back, turned)
        return made

    def transform(self, x: list[Pair], sign: int) -> list[Pair]:
        """Transform points, by the rule of Cooley and Tukey."""
        n = len(x)
        if n == 1:
            return x
        a = 4 if n % 4 == 0 and n > 4 else next(p for p in range(2, n + 1) if n % p == 0)
        if a == n:
            return self.prime(x, sign)
        b = n // a
        inner = [self.transform(x[j::b], sign) for j in range(b)]
        made = [x[0]] * n
        for m in range(a):
            column = [self.times(inner[j][m], sign * j * m, n) for j in range(b)]
            for q, value in enumerate(self.transform(column, sign)):
                made[m + a * q] = value
        return made


def splits(n: int, most: int = LARGEST) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write n as a product of points of butterflies, the largest first."""
    if n == 1:
        yield ()
    for first in range(min(n, most), 1, -1):
        if n % first == 0:
            for rest in splits(n // first, first):
                yield first, *rest


def butterfly(name: str, n: int, sign: int, real: str) -> list[str]:
    """Return a function that transforms an array of n points in place: ``exp(sign * 2 pi i j k / n)``."""
    code = _Code(real)
    made = code.transform([(f"v[{k}].re", f"v[{k}].im") for k in range(n)], sign)
    ends = [f"v[{k}] = made_of({re}, {im});" for k, (re, im) in enumerate(made)]
    return [f"DEVICE void {name}({WHOLE} *v) {{", *code.lines, *ends, "}"]
