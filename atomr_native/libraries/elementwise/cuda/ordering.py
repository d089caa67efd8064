"""Sorts and searches as CUDA kernels."""

from __future__ import annotations

import math

from ....builders.context import Built
from ....builders.cuda.codegen import NARROW, THREADS, alignment, convert, kernels, value_type
from ....builders.cuda.context import CudaContext
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.target import Argument, Launch
from ....plans.spec import PlanSpec
from ..attributes import SearchAttributes, SortAttributes

__all__ = ["build_search", "build_sort"]

#: Blocks for each multiprocessor.
_BLOCKS = 32
#: Bytes to which the parts of the workspace are aligned.
_ALIGNED = 256


def _key(dtype: str) -> str:
    """Return the dtype that elements are compared in."""
    return "float32" if dtype in NARROW else dtype


def _less(dtype: str, *, descending: bool = False) -> str:
    """Return the function ``less``, by which NaN is the largest number."""
    key = _key(dtype)
    c = value_type(key)
    nan = " || (y != y && x == x)" if key.startswith("float") else ""
    swap = "const {c} x = b, y = a;" if descending else "const {c} x = a, y = b;"
    return f"DEVICE bool less({c} a, {c} b) {{ {swap.format(c=c)} return x < y{nan}; }}"


def _load(dtype: str, place: str) -> str:
    """Return the C expression of an element of ``x`` as what it is compared as."""
    return f"(x[{place}] != 0)" if dtype == "bool" else convert(dtype, _key(dtype), f"x[{place}]")


def build_sort(spec: PlanSpec[SortAttributes], context: CudaContext) -> Built:
    """Build ``elementwise.sort``: operands ``x, out``, no scalars.

    A merge sort of places: each block ranks the elements of a tile among each other, and each launch after it merges
    pairs of sorted runs, where an element finds its place by a search in the other run.  Equal elements keep their
    order, so the result is one that any order of the threads gives.
    """
    x, out = spec.operands
    rows, n = x.shape
    total = rows * n
    if total == 0:
        return Built("noop")
    c, tiles = value_type(_key(x.dtype)), -(-n // THREADS)
    place = "(long long)from[i]" if spec.attributes.places else f"x[i / {n}ull * {n}ull + from[i]]"
    text = f"""\
{_less(x.dtype, descending=spec.attributes.descending)}
KERNEL tile(const {STORAGE[x.dtype]} *x, unsigned int *__restrict__ to) {{
AWAIT_LAUNCH();
SHARED {c} keys[{THREADS}];
for (u64 block = blockIdx.x; block < {rows * tiles}ull; block += gridDim.x) {{
const u64 row = block / {tiles}ull * {n}ull, first = block % {tiles}ull * {THREADS}ull;
const unsigned int count = first + {THREADS}u < {n}ull ? {THREADS}u : (unsigned int)({n}ull - first);
SYNC();
if (threadIdx.x < count) keys[threadIdx.x] = {_load(x.dtype, "row + first + threadIdx.x")};
SYNC();
if (threadIdx.x < count) {{
const {c} mine = keys[threadIdx.x];
unsigned int rank = 0;
for (unsigned int j = 0; j < count; j++) rank += less(keys[j], mine) || (j < threadIdx.x && !less(mine, keys[j]));
to[row + first + rank] = (unsigned int)first + threadIdx.x;
}}
}}
}}
KERNEL merge(const {STORAGE[x.dtype]} *x, const unsigned int *from, unsigned int *__restrict__ to, const u64 width) {{
AWAIT_LAUNCH();
for (u64 i = thread_index(); i < {total}ull; i += thread_count()) {{
const u64 row = i / {n}ull * {n}ull, at = i - row, base = at / (2 * width) * (2 * width);
const u64 middle = base + width < {n}ull ? base + width : {n}ull;
const u64 end = base + 2 * width < {n}ull ? base + 2 * width : {n}ull;
const bool left = at < middle;
const unsigned int place = from[i];
const {c} mine = {_load(x.dtype, "row + place")};
u64 low = left ? middle : base, high = left ? end : middle;
while (low < high) {{
const u64 half = low + (high - low) / 2;
const unsigned int there = from[row + half];
const {c} other = {_load(x.dtype, "row + there")};
if (left ? less(other, mine) : !less(mine, other)) low = half + 1; else high = half;
}}
to[row + (left ? at + low - middle : low + at - middle)] = place;
}}
}}
KERNEL finish(const {STORAGE[x.dtype]} *x, const unsigned int *from, {STORAGE[out.dtype]} *__restrict__ out) {{
AWAIT_LAUNCH();
for (u64 i = thread_index(); i < {total}ull; i += thread_count()) out[i] = {place};
}}
"""
    most = context.target.sm_count * _BLOCKS
    grid, block = (max(1, min(-(-total // THREADS), most)), 1, 1), (THREADS, 1, 1)
    size = -(-4 * total // _ALIGNED) * _ALIGNED
    launches = [Launch("tile", (min(rows * tiles, most), 1, 1), block, 0, (("operand", 0), ("workspace", 0)))]
    here, there, width = 0, size, THREADS
    while width < n:
        launches.append(
            Launch(
                "merge", grid, block, 0,
                (("operand", 0), ("workspace", here), ("workspace", there), ("uint64", width)),
            )
        )  # fmt: skip
        here, there, width = there, here, 2 * width
    launches.append(Launch("finish", grid, block, 0, (("operand", 0), ("workspace", here), ("operand", 1))))
    return kernels(
        text, launches, context.target, dtypes={x.dtype, _key(x.dtype), out.dtype},
        alignments=[alignment(o.dtype) for o in spec.operands], workspace=size * (1 if n <= THREADS else 2),
    )  # fmt: skip


def build_search(spec: PlanSpec[SearchAttributes], context: CudaContext) -> Built:
    """Build ``elementwise.search``: operands ``row, values, out``, no scalars."""
    row, _, out = spec.operands
    total, n = math.prod(out.shape), row.shape[1]
    if total == 0:
        return Built("noop")
    c = value_type(_key(row.dtype))
    before = "!less(mine, there)" if spec.attributes.right else "less(there, mine)"
    text = f"""\
{_less(row.dtype)}
DEVICE {c} load(const {STORAGE[row.dtype]} *x, const u64 i) {{ return {_load(row.dtype, "i")}; }}
KERNEL search(const {STORAGE[row.dtype]} *row, const {STORAGE[row.dtype]} *values, long long *__restrict__ out) {{
AWAIT_LAUNCH();
for (u64 i = thread_index(); i < {total}ull; i += thread_count()) {{
const {c} mine = load(values, i);
u64 low = 0, high = {n}ull;
while (low < high) {{
const u64 half = low + (high - low) / 2;
const {c} there = load(row, half);
if ({before}) low = half + 1; else high = half;
}}
out[i] = (long long)low;
}}
}}
"""
    grid = (max(1, min(-(-total // THREADS), context.target.sm_count * _BLOCKS)), 1, 1)
    arguments: tuple[Argument, ...] = (("operand", 0), ("operand", 1), ("operand", 2))
    return kernels(
        text, [Launch("search", grid, (THREADS, 1, 1), 0, arguments)], context.target,
        dtypes={row.dtype, _key(row.dtype), "int64"}, alignments=[alignment(o.dtype) for o in spec.operands],
    )  # fmt: skip
