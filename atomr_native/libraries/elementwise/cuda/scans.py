"""Running sums and products as CUDA kernels."""

from __future__ import annotations

from ....builders.context import Built
from ....builders.cuda.codegen import THREADS, alignment, convert, kernels
from ....builders.cuda.context import CudaContext
from ....builders.cuda.prelude import INTEGERS, STORAGE
from ....builders.cuda.target import Launch
from ....plans.spec import PlanSpec
from ..attributes import ScanAttributes

__all__ = ["build_scan"]

#: Elements of a thread, and of a block.
_EACH = 8
_TILE = THREADS * _EACH


def _combined(op: str, dtype: str) -> tuple[str, str]:
    """Return the neutral element, and the C expression of ``a`` followed by ``b``."""
    c, sign, first = STORAGE[dtype], "+" if op == "sum" else "*", "0" if op == "sum" else "1"
    if dtype.startswith("complex"):
        return f"make_{c}({first}, 0)", f"{'add' if op == 'sum' else 'multiply'}_{c}(a, b)"
    if dtype == "bool":
        return first, f"a {'|' if op == 'sum' else '&'} b"
    if dtype in INTEGERS:  # which wraps
        return first, f"({c})(({INTEGERS[dtype]})a {sign} ({INTEGERS[dtype]})b)"
    return first, f"a {sign} b"


def build_scan(spec: PlanSpec[ScanAttributes], context: CudaContext) -> Built:
    """Build ``elementwise.scan``: operands ``x, out``, no scalars.

    Deterministic.  Rows of more than one tile take three launches: totals of tiles, running totals of rows, and the
    tiles, each from the total before it.
    """
    x, out = spec.operands
    rows, n = x.shape
    if rows * n == 0:
        return Built("noop")
    kind = spec.attributes.accumulate
    c, tiles = STORAGE[kind], -(-n // _TILE)
    first, combined = _combined(spec.attributes.op, kind)
    load = convert(x.dtype, kind, "(x[row + i] != 0)" if x.dtype == "bool" else "x[row + i]")
    text = f"""\
DEVICE {c} combine({c} a, {c} b) {{ return {combined}; }}
/* What the threads before this one have, and in `all` what all of them have together. */
DEVICE {c} before({c} *held, {c} mine, {c} *all) {{
held[threadIdx.x] = mine;
SYNC();
for (unsigned int step = 1; step < {THREADS}u; step *= 2) {{
const {c} sum = threadIdx.x < step ? held[threadIdx.x] : combine(held[threadIdx.x - step], held[threadIdx.x]);
SYNC();
held[threadIdx.x] = sum;
SYNC();
}}
*all = held[{THREADS - 1}];
const {c} found = threadIdx.x ? held[threadIdx.x - 1] : {first};
SYNC();
return found;
}}
KERNEL total(const {STORAGE[x.dtype]} *x, {c} *__restrict__ part) {{
AWAIT_LAUNCH();
SHARED {c} held[{THREADS}];
for (u64 block = blockIdx.x; block < {rows * tiles}ull; block += gridDim.x) {{
const u64 row = block / {tiles}ull * {n}ull, begin = block % {tiles}ull * {_TILE}ull + threadIdx.x * {_EACH}ull;
{c} mine = {first}, all;
for (u64 i = begin; i < begin + {_EACH}ull && i < {n}ull; i++) mine = combine(mine, {load});
(void)before(held, mine, &all);
if (threadIdx.x == 0) part[block] = all;
}}
}}
KERNEL carry({c} *__restrict__ part) {{
AWAIT_LAUNCH();
SHARED {c} held[{THREADS}];
for (u64 row = blockIdx.x; row < {rows}ull; row += gridDim.x) {{
{c} sum = {first}, all;
for (u64 start = 0; start < {tiles}ull; start += {THREADS}ull) {{
const u64 i = start + threadIdx.x;
const {c} mine = i < {tiles}ull ? part[row * {tiles}ull + i] : {first};
const {c} found = combine(sum, before(held, mine, &all));
if (i < {tiles}ull) part[row * {tiles}ull + i] = found;
sum = combine(sum, all);
}}
}}
}}
KERNEL scan(const {STORAGE[x.dtype]} *x, const {c} *part, {STORAGE[out.dtype]} *__restrict__ out) {{
AWAIT_LAUNCH();
SHARED {c} held[{THREADS}];
for (u64 block = blockIdx.x; block < {rows * tiles}ull; block += gridDim.x) {{
const u64 row = block / {tiles}ull * {n}ull, begin = block % {tiles}ull * {_TILE}ull + threadIdx.x * {_EACH}ull;
{c} mine = {first}, all;
for (u64 i = begin; i < begin + {_EACH}ull && i < {n}ull; i++) mine = combine(mine, {load});
{c} sum = before(held, mine, &all);
{"sum = combine(part[block], sum);" if tiles > 1 else ""}
for (u64 i = begin; i < begin + {_EACH}ull && i < {n}ull; i++) {{
sum = combine(sum, {load});
out[row + i] = {convert(kind, out.dtype, "sum")};
}}
}}
}}
"""
    most, block = context.target.sm_count * 32, (THREADS, 1, 1)
    grid = (min(rows * tiles, most), 1, 1)
    launches = [Launch("scan", grid, block, 0, (("operand", 0), ("workspace", 0), ("operand", 1)))]
    if tiles > 1:
        launches = [
            Launch("total", grid, block, 0, (("operand", 0), ("workspace", 0))),
            Launch("carry", (min(rows, most), 1, 1), block, 0, (("workspace", 0),)),
            *launches,
        ]
    return kernels(
        text, launches, context.target, dtypes={x.dtype, kind, out.dtype},
        functions=("add", "multiply") if kind.startswith("complex") else (),
        alignments=[alignment(o.dtype) for o in spec.operands], workspace=16 * rows * tiles if tiles > 1 else 16,
    )  # fmt: skip
