"""What reductions read together, 16 bytes of neighbouring elements, and how values are combined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from .codegen import convert, half_of, itemsize, value_type
from .prelude import STORAGE

__all__ = ["COMBINED", "DTYPES", "Group", "Result"]

#: Dtypes of elements that are read together.
DTYPES: Final = ("float32", "float16", "bfloat16")
#: What combines two values, and what each dtype's bits begin with: that changes no other value.  NaN stays NaN.
COMBINED: Final = {
    "sum": ("a + b", dict.fromkeys(DTYPES, 0)),
    "max": ("(b > a || b != b) ? b : a", {"float32": 0xFF800000, "float16": 0xFC00, "bfloat16": 0xFF80}),
    "min": ("(b < a || b != b) ? b : a", {"float32": 0x7F800000, "float16": 0x7C00, "bfloat16": 0x7F80}),
}


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring elements of a dtype that a thread reads together, as words ``w.at[...]``."""

    dtype: str
    count: int

    @property
    def words(self) -> int:
        """How many words of 32 bits it has."""
        return self.count * itemsize(self.dtype) // 4

    def words_of(self, bits: int) -> str:
        """Return the initializer of a group whose elements have these bits."""
        word = bits if self.dtype == "float32" else bits << 16 | bits
        return f"{{{{{', '.join([f'{word}u'] * self.words)}}}}}"

    def helpers(self, writes: bool, first: int = 0) -> list[str]:
        """Return the type and its functions: aligned and unaligned loads, what is missing being `first`, and stores."""
        storage = STORAGE[self.dtype]
        if self.dtype == "float32":
            gather = [f"w.at[{q}] = {q}u < left ? float_bits(p[{q}]) : {first}u;" for q in range(self.count)]
            scatter = [f"p[{q}] = bits_float(w.at[{q}]);" for q in range(self.count)]
        else:
            gather = [
                f"w.at[{q // 2}] |= ({q}u < left ? (unsigned int)p[{q}] : {first}u) << {16 * (q % 2)};"
                for q in range(self.count)
            ]
            scatter = [f"p[{q}] = {half_of('w', q)};" for q in range(self.count)]
        lines = [
            f"typedef struct ALIGNED(16) {{ unsigned int at[{self.words}]; }} group;",
            f"DEVICE group direct(const {storage} *p, u64 left) {{ return *(const group *)p; }}",
            f"DEVICE group gathered(const {storage} *p, u64 left) {{",
            "group w = {{0}};",
            *gather,
            "return w;",
            "}",
        ]
        if writes:
            lines += [
                f"DEVICE void direct_store({storage} *p, group w) {{ *(group *)p = w; }}",
                f"DEVICE void gathered_store({storage} *p, group w) {{ {' '.join(scatter)} }}",
            ]
        return lines

    def value(self, w: str, q: int, result: str) -> str:
        """Return the C expression of element `q` of the group `w`, of dtype `result`."""
        if self.dtype == "float32":
            return convert("float32", result, f"bits_float({w}.at[{q}])")
        return convert(self.dtype, result, half_of(w, q))

    def masked(self, w: str, mask: str) -> list[str]:
        """Return statements that clear the elements whose bit in a byte of the mask is 0."""
        if self.dtype == "float32":
            return [f"if (!({mask} >> {q} & 1u)) {w}.at[{q}] = 0;" for q in range(self.count)]
        return [
            f"{w}.at[{i}] &= ({mask} >> {2 * i} & 1u ? 0xffffu : 0u) | ({mask} >> {2 * i + 1} & 1u ? 0xffff0000u : 0u);"
            for i in range(self.words)
        ]


@dataclass(frozen=True, slots=True)
class Result:
    """What is combined, in which dtype, the output's dtype, and the divisor of a mean, or 0."""

    acc: str
    out: str
    divisor: int
    kind: str = "sum"

    @property
    def first(self) -> str:
        """The value that changes no other, in C."""
        bits = COMBINED[self.kind][1]["float32"]
        return f"({value_type(self.acc)})bits_float({bits}u)" if bits else "0"

    @property
    def helper(self) -> str:
        """The function that combines two values."""
        acc = value_type(self.acc)
        return f"DEVICE {acc} combine({acc} a, {acc} b) {{ return {COMBINED[self.kind][0]}; }}"

    def bits(self, dtype: str) -> int:
        """Return the bits of the value that changes no other, in the dtype of an input."""
        return COMBINED[self.kind][1][dtype]

    def store(self, value: str) -> str:
        """Return the statement that stores the variable `value` at ``out[o]``."""
        if self.divisor:
            by = float(np.float32(self.divisor)) if self.acc == "float32" else float(self.divisor)
            value = f"({value} / ({STORAGE[self.acc]}){by!r})"
        return f"out[o] = {convert(self.acc, self.out, value)};"
