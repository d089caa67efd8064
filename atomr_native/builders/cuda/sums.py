"""Sums along one axis, read by 16 bytes: large reductions, and the bias gradients of matmuls.

Rows of neighbours are summed by some threads each, and columns by threads that have neighbouring ones and every so
many rows.  Which elements meet in which order is fixed by the plan alone, whatever the addresses: an array that does
not begin at a multiple of 16 bytes is read element by element, and the sums are the same, bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ...plans.spec import OperandSpec
from ..blocks import fold_axes
from ..context import Built
from .codegen import (
    THREADS,
    alignment,
    both_ways,
    broadcast_strides,
    by_stride,
    convert,
    half_of,
    index_type,
    itemsize,
    kernels,
    next_power,
    offsets,
    reach,
    value_type,
)
from .prelude import STORAGE
from .target import Argument, Launch, Target

__all__ = ["Reduction", "build_drelu", "build_sum"]

_DTYPES: Final = ("float32", "float16", "bfloat16")
#: Groups that a thread loads ahead.
_WAYS: Final = 4
#: Elements for each byte of a ReLU mask.
_MASKED: Final = 8
#: Maximum number of blocks along y and z of a grid.
_MOST: Final = 65535
#: Blocks for each multiprocessor; threads of a block, and enough of them where a thread has less than `_WAYS` groups.
_BLOCKS: Final = 4
_BUSY: Final = 1536
_ENOUGH: Final = 512


@dataclass(frozen=True, slots=True)
class _Group:
    """Neighbouring elements of a dtype that a thread reads together, as words ``w.at[...]``."""

    dtype: str
    count: int

    @property
    def words(self) -> int:
        return self.count * itemsize(self.dtype) // 4

    def helpers(self, writes: bool) -> list[str]:
        """Return the type and its functions: aligned and unaligned loads and stores."""
        storage = STORAGE[self.dtype]
        if self.dtype == "float32":
            gather = [f"if ({q}u < left) w.at[{q}] = float_bits(p[{q}]);" for q in range(self.count)]
            scatter = [f"p[{q}] = bits_float(w.at[{q}]);" for q in range(self.count)]
        else:
            gather = [
                f"if ({q}u < left) w.at[{q // 2}] |= (unsigned int)p[{q}] << {16 * (q % 2)};" for q in range(self.count)
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
class _Result:
    """The end of a sum: the accumulation dtype, the output's dtype, and the divisor of a mean, or 0."""

    acc: str
    out: str
    divisor: int

    def store(self, value: str) -> str:
        """Return the statement that stores the variable `value` at ``out[o]``."""
        if self.divisor:
            by = float(np.float32(self.divisor)) if self.acc == "float32" else float(self.divisor)
            value = f"({value} / ({STORAGE[self.acc]}){by!r})"
        return f"out[o] = {convert(self.acc, self.out, value)};"


def _finish(outputs: int, splits: int, places: Sequence[str], result: _Result, kind: str) -> tuple[list[str], Launch]:
    """Return the kernel that adds ``part[split * outputs + i]``; `places` say where output `i` goes, ``o``."""
    acc = value_type(result.acc)
    lanes = min(THREADS, next_power(-(-splits // _WAYS)))
    slots = THREADS // lanes
    lines = [
        f"KERNEL finish(const {acc} *part, {STORAGE[result.out]} *out) {{",
        "AWAIT_LAUNCH();",
        f"SHARED {acc} all[{THREADS}];",
        f"const unsigned int lane = threadIdx.x / {slots}u;",
        f"const {kind} i = ({kind})blockIdx.x * {slots}u + threadIdx.x % {slots}u;",
        f"{acc} mine = 0;",
        f"if (i < {outputs}u) {{",
        "#pragma unroll",
        f"for (unsigned int j = 0; j < {-(-splits // lanes)}u; j++)",
        f"if (j * {lanes}u + lane < {splits}u) mine += part[(j * {lanes}u + lane) * ({kind}){outputs}u + i];",
        "}",
        "all[threadIdx.x] = mine;",
        "SYNC();",
        f"for (unsigned int half = {THREADS // 2}; half >= {slots}u; half >>= 1) {{",
        "if (threadIdx.x < half) all[threadIdx.x] += all[threadIdx.x + half];",
        "SYNC();",
        "}",
        f"if (lane == 0 && i < {outputs}u) {{",
        "mine = all[threadIdx.x];",
        *places,
        "}",
        "}",
    ]
    arguments: tuple[Argument, ...] = (("workspace", 0), ("operand", 1))
    return lines, Launch("finish", (-(-outputs // slots), 1, 1), (THREADS, 1, 1), 0, arguments)


# ---------------------------------------------------------------------------------------------- along rows


@dataclass(frozen=True, slots=True)
class _Layout:
    """An array to be summed: the axes that are kept, and the one that is not; strides in elements."""

    kept: tuple[int, ...]
    kept_x: tuple[int, ...]
    kept_out: tuple[int, ...]
    count: int

    @property
    def outputs(self) -> int:
        return math.prod(self.kept)


def _rows(dtype: str, layout: _Layout, result: _Result, target: Target) -> tuple[list[str], list[Launch], int]:
    """Return kernels for sums of neighbours, their launches, and bytes of workspace."""
    group = _Group(dtype, 16 // itemsize(dtype))
    width, count, outputs = group.count, layout.count, layout.outputs
    most = min(THREADS, next_power(-(-count // width)))
    each, lanes = next_power(-(-count // (width * _WAYS))), 1
    while lanes < most and outputs * lanes < target.sm_count * (_BUSY if lanes < each else _ENOUGH):
        lanes *= 2
    blocks = -(-outputs * lanes // THREADS)
    splits = max(1, min(-(-_BLOCKS * target.sm_count // blocks), count // (width * lanes * _WAYS), _MOST))
    step = -(-count // (splits * width)) * width
    splits = -(-count // step)
    acc, kind = value_type(result.acc), index_type(
        max(2 * count, outputs * max(lanes, splits)),
        reach(layout.kept, layout.kept_x) + count,
        reach(layout.kept, layout.kept_out),
    )  # fmt: skip
    stride, split = lanes * width, splits > 1
    adds = [
        f"acc{q % _WAYS} += {group.value(f'w{u}', q, result.acc)};" for u in range(_WAYS) for q in range(width)
    ]  # fmt: skip
    loop = [
        f"for (; k < whole; k += {_WAYS * stride}u) {{",
        *(f"group w{u} = {{{{0}}}};" for u in range(_WAYS)),
        *(f"if (k + {u * stride}u < whole) w{u} = @(row + k + {u * stride}u, {width});" for u in range(_WAYS)),
        *adds,
        "}",
    ]
    rest = [
        "if (lane == 0 && whole < end) {",
        "const group w0 = gathered(row + whole, end - whole);",
        *adds[:width],
        "}",
    ]
    tree = [
        f"SHARED {acc} all[{THREADS}];",
        "all[threadIdx.x] = mine;",
        "SYNC();",
        f"for (unsigned int half = {lanes // 2}; half; half >>= 1) {{",
        "if (lane < half) all[threadIdx.x] += all[threadIdx.x + half];",
        "SYNC();",
        "}",
        "mine = all[threadIdx.x];",
    ]
    places = [*offsets(layout.kept, {"o": layout.kept_out}, "i", kind), result.store("mine")]
    into = f"{acc} *__restrict__ part" if split else f"{STORAGE[result.out]} *__restrict__ out"
    lines = [
        *group.helpers(False),
        f"KERNEL rows(const {STORAGE[dtype]} *x, {into}) {{",
        "AWAIT_LAUNCH();",
        "ALLOW_LAUNCH();",
        f"const {kind} i = ({kind})(thread_index() / {lanes}u);",
        f"const unsigned int lane = threadIdx.x % {lanes}u;",
        f"const {kind} begin = blockIdx.y * ({kind}){step}u;",
        f"const {kind} end = begin + {step}u < {count}u ? begin + {step}u : {count}u;",
        f"const {kind} whole = end - end % {width}u;",
        f"{acc} {', '.join(f'acc{j} = 0' for j in range(_WAYS))};",
        f"if (i < {outputs}u) {{",
        *offsets(layout.kept, {"b": layout.kept_x}, "i", kind),
        f"const {STORAGE[dtype]} *row = x + b;",
        f"{kind} k = begin + lane * {width}u;",
        *both_ways("(u64)x % 16u == 0", loop),
        *(rest if count % width else []),
        "}",
        f"{acc} mine = (acc0 + acc1) + (acc2 + acc3);",
        *(tree if lanes > 1 else []),
        f"if (lane == 0 && i < {outputs}u) {{",
        *([f"part[blockIdx.y * ({kind}){outputs}u + i] = mine;"] if split else places),
        "}",
        "}",
    ]
    last: Argument = ("workspace", 0) if split else ("operand", 1)
    launches = [Launch("rows", (blocks, splits, 1), (THREADS, 1, 1), 0, (("operand", 0), last))]
    if not split:
        return lines, launches, 0
    more, launch = _finish(outputs, splits, places, result, kind)
    return [*lines, *more], [*launches, launch], splits * outputs * itemsize(result.acc)


# ---------------------------------------------------------------------------------------------- columns


@dataclass(frozen=True, slots=True)
class _Columns:
    """Matrices with dense rows, to be summed over rows, masked, or both; strides in elements."""

    batch: tuple[int, ...]
    rows: int
    columns: int
    x: tuple[int, ...]  # steps along the batch, and along rows
    mask: tuple[int, ...] | None  # the same in bytes
    out: tuple[int, ...] | None  # steps along the batch, and along columns
    sums: _Result | None


def _columns(dtype: str, c: _Columns, target: Target) -> tuple[list[str], list[Launch], int]:
    """Return kernels for sums of columns, or for a mask over them, their launches, and bytes of workspace.

    Operands are x, then the mask if there is one, then what sums are stored in.
    """
    group = _Group(dtype, 16 // itemsize(dtype) if c.mask is None else _MASKED)
    width, count = group.count, math.prod(c.batch)
    wide = min(32, next_power(-(-c.columns // width)))
    high = THREADS // wide
    blocks, each = -(-c.columns // (wide * width)), high * _WAYS
    turns = -(-c.rows // each)  # of a thread, if it were alone
    if c.sums is None:
        splits = min(turns, _MOST)
    else:
        splits = max(1, min(-(-_BLOCKS * target.sm_count // (blocks * count)), turns, _MOST))
    step = -(-turns // splits) * each
    splits = -(-c.rows // step)
    padded, split = blocks * wide * width, splits > 1
    kind = index_type(
        max(c.rows + step, count * splits * padded),
        reach((*c.batch, c.rows), c.x) + c.columns,
        0 if c.mask is None else reach((*c.batch, c.rows), c.mask) + c.columns,
        0 if c.out is None else reach((*c.batch, c.columns), c.out),
    )
    storage = STORAGE[dtype]
    const = "const " if c.mask is None else ""
    parameters = [f"{const}{storage} *x"]
    loads = [f"w{u} = @(p + (r + {u * high}u) * ({kind}){c.x[-1]}u, left);" for u in range(_WAYS)]
    after: list[str] = []
    steps = {"b": c.x[:-1]}
    if c.mask is not None:
        parameters.append("const unsigned char *mask")
        steps["bits"] = c.mask[:-1]
        loads = [
            f"{load} m{u} = mask[bits + (r + {u * high}u) * ({kind}){c.mask[-1]}u + column / 8u];"
            for u, load in enumerate(loads)
        ]
        after += [line for u in range(_WAYS) for line in group.masked(f"w{u}", f"m{u}")]
        after += [
            f"if (r + {u * high}u < end) @_store(p + (r + {u * high}u) * ({kind}){c.x[-1]}u, w{u});"
            for u in range(_WAYS)
        ]
    acc = ""
    if c.sums is not None:
        acc = value_type(c.sums.acc)
        parameters.append(f"{acc} *__restrict__ part" if split else f"{STORAGE[c.sums.out]} *__restrict__ out")
        after += [f"acc{q} += {group.value(f'w{u}', q, c.sums.acc)};" for u in range(_WAYS) for q in range(width)]
    loop = [
        f"for ({kind} r = begin + ty; r < end; r += {each}u) {{",
        *(f"group w{u} = {{{{0}}}};" for u in range(_WAYS)),
        *([f"unsigned int {', '.join(f'm{u} = 0' for u in range(_WAYS))};"] if c.mask is not None else []),
        *(f"if (r + {u * high}u < end) {{ {load} }}" for u, load in enumerate(loads)),
        *after,
        "}",
    ]
    fast = "(u64)x % 16u == 0" + (" && left >= " + f"{width}u" if c.columns % width else "")
    lines = [
        *group.helpers(c.mask is not None),
        f"KERNEL columns({', '.join(parameters)}) {{",
        "AWAIT_LAUNCH();",
        "ALLOW_LAUNCH();",
        f"const unsigned int tx = threadIdx.x % {wide}u, ty = threadIdx.x / {wide}u;",
        f"const {kind} column = (({kind})blockIdx.x * {wide}u + tx) * {width}u, z = blockIdx.z;",
        f"const {kind} begin = blockIdx.y * ({kind}){step}u;",
        f"const {kind} end = begin + {step}u < {c.rows}u ? begin + {step}u : {c.rows}u;",
        *([f"{acc} {', '.join(f'acc{q} = 0' for q in range(width))};"] if c.sums is not None else []),
        f"if (column < {c.columns}u) {{",
        *offsets(c.batch or (1,), {name: s or (0,) for name, s in steps.items()}, "z", kind),
        f"const {kind} left = {c.columns}u - column;",
        f"{const}{storage} *p = x + b + column;",
        *both_ways(fast, loop),
        "}",
    ]
    first: list[Argument] = [("operand", j) for j in range(1 if c.mask is None else 2)]
    grid, block = (blocks, splits, count), (THREADS, 1, 1)
    if c.sums is None or c.out is None:
        return [*lines, "}"], [Launch("columns", grid, block, 0, tuple(first))], 0
    into = len(first)  # the operand that sums are stored in
    place = [
        f"const {kind} j = (t / {wide * width}u * {wide}u + t % {wide}u) * {width}u + t % {wide * width}u / {wide}u;",
        f"if (j < {c.columns}u) {{",
        *offsets(c.batch or (1,), {"at": c.out[:-1] or (0,)}, "z", kind),
        f"const {kind} o = at + j * ({kind}){c.out[-1]}u;",
        c.sums.store("mine"),
        "}",
    ]
    lines += [
        f"SHARED {acc} all[{THREADS * width}];",
        *(f"all[{THREADS * q}u + threadIdx.x] = acc{q};" for q in range(width)),
        "SYNC();",
        f"for (unsigned int c = threadIdx.x; c < {wide * width}u; c += {THREADS}u) {{",
        f"const unsigned int from = c / {wide}u * {THREADS}u + c % {wide}u;",
        f"{acc} mine = 0;",
        "#pragma unroll",
        f"for (unsigned int y = 0; y < {high}u; y++) mine += all[from + y * {wide}u];",
        f"const {kind} t = ({kind})blockIdx.x * {wide * width}u + c;",
        *([f"part[(blockIdx.y * ({kind}){count}u + z) * {padded}u + t] = mine;"] if split else place),
        "}",
        "}",
    ]
    last: Argument = ("workspace", 0) if split else ("operand", into)
    launches = [Launch("columns", grid, block, 0, (*first, last))]
    if not split:
        return lines, launches, 0
    places = [f"const {kind} z = i / {padded}u, t = i % {padded}u;", *place]
    more, launch = _finish(count * padded, splits, places, c.sums, kind)
    arguments: tuple[Argument, ...] = (("workspace", 0), ("operand", into))
    launch = replace(launch, arguments=arguments)
    return [*lines, *more], [*launches, launch], splits * count * padded * itemsize(c.sums.acc)


# ---------------------------------------------------------------------------------------------- what there is


def _aligned(dtype: str, steps: Sequence[int]) -> bool:
    return not any(step * itemsize(dtype) % 16 for step in steps)


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction of `x` over `axes`, ``"sum"``, ``"mean"``, ``"max"`` or ``"argmax"``; sums are of `accumulate`."""

    x: OperandSpec
    out: OperandSpec
    kind: str
    axes: tuple[int, ...]
    accumulate: str


def build_sum(reduction: Reduction, target: Target) -> Built | None:
    """Build a reduction for sums and means of float32, float16 and bfloat16, where the layout allows it.

    One axis is summed, once axes that lie one after the other are one; it is dense, or the innermost one that is kept
    is; and all others step by multiples of 16 bytes.  Otherwise the result is None.
    """
    x, out = reduction.x, reduction.out
    dtype, shape, axes = x.dtype, x.shape, reduction.axes
    if reduction.kind not in ("sum", "mean") or dtype not in _DTYPES or 0 in shape:
        return None
    if reduction.accumulate not in ("float32", "float64"):
        return None
    steps, out_steps = broadcast_strides(x, shape), broadcast_strides(out, out.shape)
    kept_axes = [i for i in range(len(shape)) if i not in axes]
    kept, (kept_x, kept_out) = by_stride([shape[i] for i in kept_axes], [tuple(steps[i] for i in kept_axes), out_steps])
    order = sorted(axes, key=lambda i: -steps[i])
    summed, (summed_x,) = fold_axes(tuple(shape[i] for i in order), (tuple(steps[i] for i in order),))
    if len(summed) != 1 or min(summed_x[0], *kept_x) < 0:
        return None
    count, step = summed[0], summed_x[0]
    width = 16 // itemsize(dtype)
    result = _Result(reduction.accumulate, out.dtype, count if reduction.kind == "mean" else 0)
    if step == 1 and count >= width and _aligned(dtype, kept_x):
        made = _rows(dtype, _Layout(kept, kept_x, kept_out, count), result, target)
    elif kept_x[-1] == 1 and kept[-1] >= width and _aligned(dtype, (*kept_x[:-1], step)) and _fits(kept[:-1]):
        columns = _Columns(kept[:-1], count, kept[-1], (*kept_x[:-1], step), None, kept_out, result)
        made = _columns(dtype, columns, target)
    else:
        return None
    lines, launches, workspace = made
    return kernels(
        "\n".join(lines) + "\n",
        launches,
        target,
        dtypes={dtype, result.acc, result.out},
        alignments=[alignment(dtype), alignment(result.out)],
        workspace=workspace,
    )


def _fits(batch: tuple[int, ...]) -> bool:
    return math.prod(batch) <= _MOST


def build_drelu(out: OperandSpec, mask: OperandSpec, bias_grad: OperandSpec | None, target: Target) -> Built | None:
    """Build the kernel that applies a ReLU mask to a matrix in place, and sums the result over its rows.

    Operands are the matrix, the mask, and the sums, if there are any.  Sums are float32.  The result is None where the
    layout does not allow it: rows are dense and of a multiple of 8 elements, and they and matrices begin at multiples
    of 16 bytes from each other.

    Parameters
    ----------
    out, mask, bias_grad
        Operands of a plan's specification, of shapes (..., M, N), (..., M, bytes) and (..., N).
    target
        What to size grids by.
    """
    dtype, (*batch, rows, columns) = out.dtype, out.shape
    if dtype not in _DTYPES or columns % _MASKED or not math.prod(out.shape):
        return None
    x, bits = broadcast_strides(out, out.shape), broadcast_strides(mask, mask.shape)
    if min(x) < 0 or min(bits) < 0 or x[-1] != 1 or bits[-1] != 1 or not _aligned(dtype, x[:-1]):
        return None
    if bias_grad is None:
        lead, (x_lead, bits_lead) = fold_axes((*batch, rows), (x[:-1], bits[:-1]))
        made = _Columns(lead[:-1], lead[-1], columns, x_lead, bits_lead, None, None)
    else:
        sums = broadcast_strides(bias_grad, bias_grad.shape)
        lead, (x_lead, bits_lead, sums_lead) = fold_axes(tuple(batch), (x[:-2], bits[:-2], sums[:-1]))
        result = _Result("float32", bias_grad.dtype, 0)
        x_steps, bits_steps = (*x_lead, x[-2]), (*bits_lead, bits[-2])
        made = _Columns(lead, rows, columns, x_steps, bits_steps, (*sums_lead, sums[-1]), result)
    if not _fits(made.batch):
        return None
    lines, launches, workspace = _columns(dtype, made, target)
    dtypes = [dtype, "uint8", *([] if bias_grad is None else [bias_grad.dtype])]
    return kernels(
        "\n".join(lines) + "\n",
        launches,
        target,
        dtypes={*dtypes, "float32"},
        alignments=[alignment(d) for d in dtypes],
        workspace=workspace,
    )
