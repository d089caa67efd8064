"""Elements of rows in softmax cross entropy's kernels: groups of them, and functions of an element and of a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ....builders.cuda.codegen import convert, half_of, itemsize
from ....builders.cuda.prelude import STORAGE

__all__ = ["Kind"]

#: Registers of what a thread has on its way at once, of the rest of a long row.
_WAY: Final = 16

_LOWEST: Final = {"float16": "0xfc00fc00u", "bfloat16": "0xff80ff80u"}


@dataclass(frozen=True, slots=True)
class Kind:
    """How elements are read and computed with: the dtype, C type of results, and how many are read together."""

    dtype: str
    compute: str
    width: int

    @property
    def acc(self) -> str:
        """C type of the arithmetic."""
        return STORAGE[self.compute]

    @property
    def paired(self) -> bool:
        """Whether a word holds two elements."""
        return self.dtype in _LOWEST

    @property
    def word(self) -> str:
        """C type of a word of a group."""
        return "unsigned int" if self.paired else STORAGE[self.dtype]

    @property
    def words(self) -> int:
        """Words of a group."""
        return -(-self.width // 2) if self.paired else self.width

    @property
    def registers(self) -> int:
        """Registers of a group."""
        return self.words * (2 if self.dtype == "float64" else 1)

    @property
    def batch(self) -> int:
        """Groups that a thread has on its way at once, of the rest of a long row."""
        return max(1, _WAY // self.registers)

    def bits(self, w: str, q: int) -> str:
        """Return element `q` of a group as it is in memory."""
        return half_of(w, q) if self.paired else f"{w}.at[{q}]"

    def value(self, w: str, q: int) -> str:
        """Return element `q` of a group as a number to compute with."""
        return convert(self.dtype, self.compute, self.bits(w, q))

    def put(self, w: str, q: int, bits: str) -> str:
        """Return the statement that puts element `q` into a group of zeros."""
        if self.paired:
            return f"{w}.at[{q // 2}] |= (unsigned int){bits} << {16 * (q % 2)};"
        return f"{w}.at[{q}] = {bits};"

    def _greatest(self) -> list[str]:
        """Return statements that make `top` as great as the greatest of the group `w`."""
        f = "f" if self.acc == "float" else ""
        plain = [f"top = fmax{f}(top, {self.value('w', q)});" for q in range(self.width)]
        if not self.paired or self.width == 1:
            return plain
        # Two at once; and else the compiler keeps each element, converted, for what comes after.
        both = f"max.{'bf16x2' if self.dtype == 'bfloat16' else 'f16x2'} %0, %0, %1;"
        low, high = (convert(self.dtype, self.compute, f"(unsigned short)({m})") for m in ("m", "m >> 16"))
        return [
            "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800",
            "unsigned int m = w.at[0];",
            *(f'asm("{both}" : "+r"(m) : "r"(w.at[{i}]));' for i in range(1, self.words)),
            f"top = fmaxf(fmaxf(top, {low}), {high});",
            "#else",
            *plain,
            "#endif",
        ]

    def helpers(self, ranks: int, threads: int) -> list[str]:
        """Return functions of one element and of a group: values, maximum, sum, gradient.

        On a processor the `ranks` blocks of a cluster, `threads` or fewer in all, have their shared arrays in common.
        """
        acc, storage, width = self.acc, STORAGE[self.dtype], range(self.width)
        f = "f" if acc == "float" else ""
        # Below 2**-126 is zero here: less than the normal numbers of a narrow type, and nothing in a sum with 1.
        power = (
            ["#if defined(__CUDA_ARCH__)",
             'float e; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * 1.44269504f)); return e;',
             "#else", "return expf(x);", "#endif"]
            if self.paired else [f"return exp{f}(x);"]
        )  # fmt: skip
        lowest = _LOWEST.get(self.dtype, "lowest()")
        sums = [f"power({self.value('w', q)} - top)" for q in width]
        while len(sums) > 1:
            sums = [f"({' + '.join(sums[i : i + 2])})" for i in range(0, len(sums), 2)]

        def fresh(w: str, word: str) -> str:
            return f"group {w}; " + " ".join(f"{w}.at[{i}] = {word};" for i in range(self.words))

        return [
            f"typedef struct ALIGNED({self.width * itemsize(self.dtype)}) {{ {self.word} at[{self.words}]; }} group;"
            if self.width > 1 else f"typedef struct {{ {self.word} at[1]; }} group;",
            f"DEVICE {acc} lowest(void) {{ return -(({acc})bits_float(0x7f800000u)); }}",
            f"DEVICE {acc} nan_of(void) {{ return bits_float(0x7fc00000u); }}",
            f"DEVICE {acc} power({acc} x) {{",
            *power,
            "}",
            # What there is to subtract from numbers none of which is greater: -infinity less itself would be NaN.
            f"DEVICE {acc} base({acc} top) {{ return top == lowest() ? 0 : top; }}",
            f"DEVICE {acc} other({acc} x, unsigned int mask) {{",
            "#if defined(__CUDA_ARCH__)",
            "return __shfl_xor_sync(0xffffffffu, x, mask);",
            "#else",
            f"SHARED {acc} all[{threads}];",
            f"const unsigned int at = blockIdx.x % {ranks}u * blockDim.x + threadIdx.x;",
            "all[at] = x; SYNC(); x = all[at ^ mask]; SYNC(); return x;",
            "#endif",
            "}",
            f"DEVICE group empty(void) {{ {fresh('w', lowest)} return w; }}",
            f"DEVICE group direct(const {storage} *p) {{ return *(const group *)p; }}"
            if self.width > 1 else "",
            f"DEVICE group gathered(const {storage} *p) {{",
            fresh("w", "0"),
            *(self.put("w", q, f"p[{q}]") for q in width),
            "return w;",
            "}",
            f"DEVICE void direct_store({storage} *p, group w) {{ *(group *)p = w; }}"
            if self.width > 1 else "",
            f"DEVICE void gathered_store({storage} *p, group w) {{",
            *(f"p[{q}] = {self.bits('w', q)};" for q in width),
            "}",
            f"DEVICE {acc} greatest(group w, {acc} top) {{",
            *self._greatest(),
            "return top;",
            "}",
            f"DEVICE {acc} total(group w, {acc} top) {{ return {sums[0]}; }}",
            f"DEVICE group gradient(group w, {acc} top, {acc} factor) {{",
            fresh("g", "0"),
            f"{acc} e;",
            *(line for q in width for line in (
                f"e = power({self.value('w', q)} - top) * factor;",
                self.put("g", q, convert(self.compute, self.dtype, "e")),
            )),
            "return g;",
            "}",
        ]  # fmt: skip
