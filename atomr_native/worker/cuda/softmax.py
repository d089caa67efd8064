"""Softmax cross entropy and its gradient as CUDA kernels: memory is read once and written once, where rows fit.

A row belongs to some threads of a warp, or to a block, which keep it in registers between its sum and its gradient;
of a row that is too long for this the rest is read again, when most of it is still in a cache.  Each thread sums what
it has below its own maximum, and the sums are scaled when they meet (Milakov and Gimelshein, "Online normalizer
calculation for softmax", 2018), so that threads wait for each other once a row.

Which elements meet in which order is fixed by the plan alone, whatever the addresses: an array that does not begin at
a multiple of 16 bytes is read element by element, and the results are the same, bit by bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ._prelude import STORAGE
from .codegen import (
    THREADS,
    alignment,
    both_ways,
    broadcast_strides,
    convert,
    half_of,
    index_type,
    itemsize,
    kernels,
    next_power,
)
from .target import Built, Launch, Target

__all__ = ["build_softmax_cross_entropy"]

#: Registers of a thread that hold its row: within a warp, within a block, and at most, also where the row is longer.
_FEW: Final = 16
_HELD: Final = 16
_MOST: Final = 32
#: Threads of a block for a row that fits, and for one that does not.
_BLOCK: Final = 512
_LONG: Final = 1024
#: Registers of a multiprocessor, and of a thread besides its row; threads on a multiprocessor, and those for float64.
_REGISTERS: Final = 65536
_OTHERS: Final = 24
_RESIDENT: Final = 1536
_DOUBLE: Final = 512
#: Registers of what a thread has on its way at once, of the rest of a long row; loads of a thread of `mean`.
_WAY: Final = 16
_LOADS: Final = 8

_LOWEST: Final = {"float16": "0xfc00fc00u", "bfloat16": "0xff80ff80u"}


@dataclass(frozen=True, slots=True)
class _Kind:
    """How elements are read and computed with: the dtype, C type of results, and how many are read together."""

    dtype: str
    compute: str
    width: int

    @property
    def acc(self) -> str:
        return STORAGE[self.compute]

    @property
    def paired(self) -> bool:
        """Whether a word holds two elements."""
        return self.dtype in _LOWEST

    @property
    def word(self) -> str:
        return "unsigned int" if self.paired else STORAGE[self.dtype]

    @property
    def words(self) -> int:
        return -(-self.width // 2) if self.paired else self.width

    @property
    def registers(self) -> int:
        """Registers of a group."""
        return self.words * (2 if self.dtype == "float64" else 1)

    def bits(self, w: str, q: int) -> str:
        """Return element `q` of a group as it is in memory."""
        return half_of(w, q) if self.paired else f"{w}.at[{q}]"

    def value(self, w: str, q: int) -> str:
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

    def helpers(self) -> list[str]:
        """Return functions of one element, and of a group: what is in it, its greatest, its sum, its gradient."""
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
            f"SHARED {acc} all[{_LONG}]; all[threadIdx.x] = x; SYNC(); x = all[threadIdx.x ^ mask]; SYNC(); return x;",
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


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of `classes` elements and how they are cut: `lanes` threads a row, each with `held` groups in registers."""

    kind: _Kind
    n: int
    classes: int
    lanes: int
    held: int

    @property
    def whole(self) -> int:
        """Groups of a row that are full."""
        return self.classes // self.kind.width

    @property
    def block(self) -> int:
        return max(self.lanes, THREADS) if self.lanes <= 32 else self.lanes

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.block // self.lanes

    @property
    def blocks(self) -> int:
        return -(-self.n // self.rows)

    @property
    def bounds(self) -> str:
        """Return what is said to the compiler of a block's threads, and of blocks on a multiprocessor."""
        resident = min(_RESIDENT, _REGISTERS // (self.held * self.kind.registers + _OTHERS))
        resident = _DOUBLE if self.kind.dtype == "float64" else resident
        return f"__launch_bounds__({self.block}, {max(1, resident // self.block)})"


def _cut(kind: _Kind, n: int, classes: int) -> _Rows:
    words = kind.registers
    whole = classes // kind.width
    most = _HELD if kind.dtype == "float64" else _MOST  # whose exponentials need many registers
    lanes = min(32, next_power(-(-whole * words // _FEW)))
    while lanes < _BLOCK and whole * words > lanes * _HELD:
        lanes *= 2
    if whole * words > lanes * most:
        lanes = _LONG
    return _Rows(kind, n, classes, lanes, min(-(-whole // lanes), most // words))


def _meet(rows: _Rows) -> list[str]:
    """Return statements that make `top` and `sum` of each thread those of its row."""
    acc, f = rows.kind.acc, "f" if rows.kind.acc == "float" else ""

    def warp(lanes: int, guarded: bool) -> list[str]:
        masks = [lanes >> i for i in range(1, lanes.bit_length())]
        return [
            "{",
            f"const {acc} mine = top;",
            *(f"top = fmax{f}(top, other(top, {mask}u));" for mask in masks),
            f"sum = sum * power(mine - {'base(top)' if guarded else 'top'});",
            *(f"sum = sum + other(sum, {mask}u);" for mask in masks),
            "}",
        ]

    if rows.lanes <= 32:
        return warp(rows.lanes, True)
    warps = rows.lanes // 32
    return [
        *warp(32, True),
        f"SHARED {acc} tops[{warps}], sums[{warps}];",
        "if (lane % 32u == 0) { tops[lane / 32u] = top; sums[lane / 32u] = sum; }",
        "SYNC();",
        f"top = tops[lane % {warps}u];",
        f"sum = sums[lane % {warps}u];",
        *warp(warps, False),
    ]


def _body(rows: _Rows, x_step: int, g_step: int, aligned: bool, index: str) -> list[str]:
    """Return the statements of a row, from its elements to its gradient, and to `top` and `sum`."""
    kind, lanes, storage = rows.kind, rows.lanes, STORAGE[rows.kind.dtype]
    acc, f = kind.acc, "f" if kind.acc == "float" else ""
    left = rows.classes % kind.width
    rest_lane, rest_at = rows.whole % lanes, rows.whole * kind.width
    streams, fast = rows.whole > lanes * rows.held, "fast" if aligned else ""
    batch = max(1, _WAY // kind.registers)
    partly = bool(rows.n % rows.rows)  # threads of the last block may have no row

    def place(array: str, i: int, c: str = "") -> str:
        """Return the address of a thread's group `i`, after the `c` first ones; bases and constants are apart."""
        step = kind.width * (x_step if array == "x" else g_step)
        return f"{array}_lane" + (f" + {c} * ({index}){step}u" if c else "") + f" + {lanes * i * step}u"

    def full(group: int) -> bool:
        return lanes * (group + 1) <= rows.whole

    guards = ["" if full(i) else f"if (lane + {lanes * i}u < {rows.whole}u) " for i in range(rows.held)]
    inside = [f"if (lane + c + {lanes * i}u < {rows.whole}u)" for i in range(batch)]
    loop = f"for ({index} c = {lanes * rows.held}u; c < {rows.whole}u; c += {lanes * batch}u) {{"
    loads = [
        *(f"group v{i} = empty();" for i in range(batch)),
        *(f"{inside[i]} v{i} = @({place('x', i, 'c')});" for i in range(batch)),
    ]
    ways = min(4, rows.held)
    online = [
        loop,
        *loads,
        f"const {acc} before = top;",
        *(f"top = greatest(v{i}, top);" for i in range(batch)),
        f"const {acc} less = base(top);",
        f"{acc} more = total(v0, less);",
        *(f"more = more + total(v{i}, less);" for i in range(1, batch)),
        "sum = sum * power(before - less) + more;",
        "}",
    ]
    again = [
        loop,
        *loads,
        *(f"{inside[i]} @_store({place('grad', i, 'c')}, gradient(v{i}, top, factor));" for i in range(batch)),
        "}",
    ]  # fmt: skip
    elements = [kind.put("rest", q, f"x[{(rest_at + q) * x_step}u]") for q in range(left)]
    return [
        f"const {storage} *x_lane = x + lane * ({index}){kind.width * x_step}u;",
        f"{storage} *grad_lane = grad + lane * ({index}){kind.width * g_step}u;",
        *(f"group w{i} = empty();" for i in range(rows.held)),
        *both_ways(fast, [f"{guard}w{i} = @({place('x', i)});" for i, guard in enumerate(guards)]),
        *(["group rest = empty();",
           f"if (lane == {rest_lane}u) {{",
           *([f"rest.at[{i}] = 0;" for i in range(left // 2)] if kind.paired else []),
           *([f"rest.at[{left // 2}] &= 0xffff0000u;"] if kind.paired and left % 2 else []),
           *elements, "}"] if left else []),
        f"{acc} {', '.join(f'top{i} = lowest()' for i in range(ways))};",
        *(f"top{i % ways} = greatest(w{i}, top{i % ways});" for i in range(rows.held)),
        *(["top0 = greatest(rest, top0);"] if left else []),
        f"{acc} top = top0;",
        *(f"top = fmax{f}(top, top{i});" for i in range(1, ways)),
        f"{acc} sum = 0;",
        "{",
        f"const {acc} less = base(top);",
        f"{acc} {', '.join(f'sum{i} = 0' for i in range(ways))};",
        *(f"sum{i % ways} = sum{i % ways} + total(w{i}, less);" for i in range(rows.held)),
        *(["sum0 = sum0 + total(rest, less);"] if left else []),
        *(f"sum = sum + sum{i};" for i in range(ways)),
        "}",
        *(both_ways(fast, online) if streams else []),
        *_meet(rows),
        f"const {acc} factor = valid ? scale / sum : nan_of();",
        *(["if (active) {"] if partly else []),
        *both_ways(fast, [
            f"{guard}@_store({place('grad', i)}, gradient(w{i}, top, factor));" for i, guard in enumerate(guards)
        ]),
        *(both_ways(fast, again) if streams else []),
        *([f"if (lane == {rest_lane}u) {{",
           "const group g = gradient(rest, top, factor);",
           *(f"grad[{(rest_at + q) * g_step}u] = {kind.bits('g', q)};" for q in range(left)),
           "}"] if left else []),
        *(["}"] if partly else []),
    ]  # fmt: skip


def _mean(kind: _Kind, count: int, n: int, out: str) -> tuple[list[str], int]:
    """Return the kernel that adds `count` sums of losses and divides by `n`, and its threads."""
    acc = kind.acc
    threads = max(32, min(_LONG, next_power(count)))
    divisor = (float(np.float32(n)) if acc == "float" else float(n)).hex()
    warps = threads // 32
    ways = min(_LOADS, -(-count // threads))
    adds = [f"if (j + {threads * i}u < {count}u) sum{i} = sum{i} + losses[j + {threads * i}u];" for i in range(ways)]
    return [
        f"KERNEL mean(const {acc} *losses, {STORAGE[out]} *loss) {{",
        "AWAIT_LAUNCH();",
        "const unsigned int lane = threadIdx.x;",
        f"{acc} {', '.join(f'sum{i} = 0' for i in range(ways))};",
        f"for ({index_type(count + threads * ways)} j = lane; j < {count}u; j += {threads * ways}u) {{",
        *adds,
        "}",
        f"{acc} sum = sum0;",
        *(f"sum = sum + sum{i};" for i in range(1, ways)),
        *(f"sum = sum + other(sum, {16 >> i}u);" for i in range(5)),
        f"SHARED {acc} sums[{warps}];",
        "if (lane % 32u == 0) sums[lane / 32u] = sum;",
        "SYNC();",
        f"sum = sums[lane % {warps}u];",
        *(f"sum = sum + other(sum, {warps >> i}u);" for i in range(1, warps.bit_length())),
        f"sum = sum / ({acc}){divisor};",
        f"if (lane == 0) loss[0] = {convert(kind.compute, out, 'sum')};",
        "}",
    ], threads  # fmt: skip


def build_softmax_cross_entropy(spec: dict[str, Any], target: Target) -> Built:
    """Build ``elementwise.softmax_cross_entropy``: operands ``logits, labels, grad, loss``, no scalars.

    Deterministic; two launches.  A label outside the classes makes the loss and its row of the gradient NaN (on the
    host such a message fails before it writes anything, which a kernel cannot).
    """
    logits, labels, grad, loss = spec["operands"]
    n, classes = logits["shape"]
    compute, dtype = spec["compute"], logits["dtype"]
    size = itemsize(dtype)
    x, g = broadcast_strides(logits, (n, classes)), broadcast_strides(grad, (n, classes))
    (label_step,) = broadcast_strides(labels, (n,))
    width = 16 // size
    aligned = x[1] == g[1] == 1 and classes >= width and not any(step * size % 16 for step in (x[0], g[0]))
    kind = _Kind(dtype, compute, width if aligned else 1)
    rows = _cut(kind, n, classes)
    acc, f = kind.acc, "f" if kind.acc == "float" else ""
    lanes, batch = rows.lanes, max(1, _WAY // kind.registers)
    reach = classes + lanes * kind.width * (batch + 1)
    index = index_type(reach, reach * x[1], reach * g[1])
    scale = (1.0 / n).hex() if compute == "float64" else float(np.float32(1.0 / n)).hex()
    storage = STORAGE[dtype]
    warps = rows.block // 32
    within = lanes <= 32  # a warp, and blocks have several rows
    last = rows.n % rows.rows
    lines = [
        *kind.helpers(),
        f'extern "C" __global__ void {rows.bounds} rows(const {storage} *logits, '
        f"const {STORAGE[labels['dtype']]} *labels,",
        f"{storage} *__restrict__ gradients, {acc} *__restrict__ losses) {{",
        "AWAIT_LAUNCH();",
        "ALLOW_LAUNCH();",
        f"const unsigned int lane = threadIdx.x % {lanes}u;",
        f"{'' if last else 'const '}u64 row = blockIdx.x * (u64){rows.rows}u + threadIdx.x / {lanes}u;",
        *([f"const bool active = row < {n}u;", f"if (!active) row = {n - 1}u;"] if last else []),
        f"const long long label = labels[row * {label_step}u];",
        f"const bool valid = label >= 0 && label < {classes};",
        f"const {storage} *x = logits + row * {x[0]}u;",
        f"{storage} *grad = gradients + row * {g[0]}u;",
        *(["const bool fast = ((u64)logits | (u64)gradients) % 16u == 0;"] if aligned else []),
        f"const {acc} scale = ({acc}){scale};",
        *_body(rows, x[1], g[1], aligned, index),
        # The thread that wrote the label's gradient writes it again, so that nothing has to be waited for.
        f"const bool mine = lane == (valid ? (unsigned int)(label / {kind.width} % {lanes}) : 0u)"
        f"{' && active' if last else ''};",
        f"{acc} loss = 0;",
        "if (mine) loss = nan_of();",
        "if (mine && valid) {",
        f"const {storage} bits = x[label * {x[1]}];",
        f"const {acc} d = {convert(dtype, compute, 'bits')} - top, e = (power(d) / sum - 1) * scale;",
        f"grad[label * {g[1]}] = {convert(compute, dtype, 'e')};",
        f"loss = log{f}(sum) - d;",
        "}",
        *(
            [
                *(f"loss = loss + other(loss, {16 >> i}u);" for i in range(5)),
                f"SHARED {acc} parts[{warps}];",
                "if (threadIdx.x % 32u == 0) parts[threadIdx.x / 32u] = loss;",
                "SYNC();",
                "if (threadIdx.x == 0) {",
                *(f"loss = loss + parts[{i}];" for i in range(1, warps)),
                "losses[blockIdx.x] = loss;",
                "}",
            ]
            if within
            else ["if (mine) losses[row] = loss;"]
        ),
        "}",
    ]
    more, threads = _mean(kind, rows.blocks, n, loss["dtype"])
    launches = [
        Launch(
            "rows",
            (rows.blocks, 1, 1),
            (rows.block, 1, 1),
            0,
            (("operand", 0), ("operand", 1), ("operand", 2), ("workspace", 0)),
        ),
        Launch("mean", (1, 1, 1), (threads, 1, 1), 0, (("workspace", 0), ("operand", 3))),
    ]
    dtypes = [o["dtype"] for o in spec["operands"]]
    return kernels(
        "\n".join([*lines, *more]) + "\n",
        launches,
        target,
        dtypes={*dtypes, compute},
        alignments=[alignment(d) for d in dtypes],
        workspace=rows.blocks * itemsize(compute),
    )
