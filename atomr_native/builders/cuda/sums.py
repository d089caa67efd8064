"""Sums, maxima and minima, read by 16 bytes: large reductions, and the bias gradients of matmuls.

Rows of neighbours are reduced by some threads each, and columns by threads that have neighbouring ones and every so
many rows.  Which elements meet in which order is fixed by the plan alone, whatever the addresses: an array that does
not begin at a multiple of 16 bytes is read element by element, and the sums are the same, bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ...plans.spec import OperandSpec
from ..blocks import fold_axes
from ..context import Built
from .codegen import (
    THREADS,
    alignment,
    both_ways,
    broadcast_strides,
    by_stride,
    index_type,
    itemsize,
    kernels,
    next_power,
    offsets,
    reach,
    value_type,
)
from .combined import COMBINED, DTYPES, Group, Result
from .prelude import STORAGE
from .target import Argument, Launch, Target

__all__ = ["Reduction", "build_drelu", "build_sum"]

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
#: Threads of a row of which several are parts of a result, so that they read whole lines.
_SHARED: Final = 32
#: Minimum elements of a row of which several are parts of a result.
_LEAST_ROW: Final = 64


def _finish(outputs: int, splits: int, places: Sequence[str], result: Result, kind: str) -> tuple[list[str], Launch]:
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
        f"{acc} mine = {result.first};",
        f"if (i < {outputs}u) {{",
        "#pragma unroll",
        f"for (unsigned int j = 0; j < {-(-splits // lanes)}u; j++)",
        f"if (j * {lanes}u + lane < {splits}u) "
        f"mine = combine(mine, part[(j * {lanes}u + lane) * ({kind}){outputs}u + i]);",
        "}",
        "all[threadIdx.x] = mine;",
        "SYNC();",
        f"for (unsigned int half = {THREADS // 2}; half >= {slots}u; half >>= 1) {{",
        "if (threadIdx.x < half) all[threadIdx.x] = combine(all[threadIdx.x], all[threadIdx.x + half]);",
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
    """An array to be reduced: the axes that are kept, and those that are not; strides in elements."""

    kept: tuple[int, ...]
    kept_x: tuple[int, ...]
    kept_out: tuple[int, ...]
    count: int  # of the axis whose elements are neighbours
    outer: tuple[int, ...] = ()  # those outside of it, whose rows are parts of a result
    outer_x: tuple[int, ...] = ()

    @property
    def outputs(self) -> int:
        return math.prod(self.kept)


def _rows(dtype: str, layout: _Layout, result: Result, target: Target) -> tuple[list[str], list[Launch], int]:
    """Return kernels that reduce neighbours, their launches, and bytes of workspace."""
    group = Group(dtype, 16 // itemsize(dtype))
    width, count, outputs, turns = group.count, layout.count, layout.outputs, math.prod(layout.outer)
    most = min(THREADS, next_power(-(-count // width)))
    each, lanes = next_power(-(-count // (width * _WAYS))), 1
    least = min(each, _SHARED) if layout.outer else 1
    while lanes < most and (
        lanes < least or outputs * turns * lanes < target.sm_count * (_BUSY if lanes < each else _ENOUGH)
    ):
        lanes *= 2
    blocks = -(-outputs * lanes // THREADS)
    wanted = -(-_BLOCKS * target.sm_count // blocks)
    splits = max(1, min(-(-wanted // turns), count // (width * lanes * _WAYS), _MOST // turns))
    step = -(-count // (splits * width)) * width
    inner = -(-count // step)
    parts = -(-turns // max(1, turns // wanted))
    own = -(-turns // parts)  # rows of a result that its threads take one after the other
    parts = -(-turns // own)
    splits = inner * parts
    acc, kind = value_type(result.acc), index_type(
        max(2 * count, outputs * max(lanes, splits)),
        reach((*layout.kept, *layout.outer), (*layout.kept_x, *layout.outer_x)) + count,
        reach(layout.kept, layout.kept_out),
    )  # fmt: skip
    part_of = f"blockIdx.y % {inner}u" if layout.outer else "blockIdx.y"
    outer = offsets(layout.outer, {"behind": layout.outer_x}, "turn", kind) if layout.outer else []
    turned = [
        f"const {kind} first = blockIdx.y / {inner}u * ({kind}){own}u;",
        f"const {kind} last = first + {own}u < {turns}u ? first + {own}u : {turns}u;",
    ]
    stride, split = lanes * width, splits > 1
    adds = [
        f"acc{q % _WAYS} = combine(acc{q % _WAYS}, {group.value(f'w{u}', q, result.acc)});"
        for u in range(_WAYS)
        for q in range(width)
    ]
    nothing = group.words_of(result.bits(dtype))
    rest = [
        "if (lane == 0 && whole < end) {",
        "const group w0 = gathered(row + whole, end - whole);",
        *adds[:width],
        "}",
    ]
    rows = f"for ({kind} turn = first; turn < last; turn++) {{" if layout.outer else "{"
    loop = [
        rows,
        *outer,
        f"const {STORAGE[dtype]} *row = x + b{' + behind' if outer else ''};",
        f"for ({kind} k = begin + lane * {width}u; k < whole; k += {_WAYS * stride}u) {{",
        *(f"group w{u} = {nothing};" for u in range(_WAYS)),
        *(f"if (k + {u * stride}u < whole) w{u} = @(row + k + {u * stride}u, {width});" for u in range(_WAYS)),
        *adds,
        "}",
        *(rest if count % width else []),
        "}",
    ]
    tree = [
        f"SHARED {acc} all[{THREADS}];",
        "all[threadIdx.x] = mine;",
        "SYNC();",
        f"for (unsigned int half = {lanes // 2}; half; half >>= 1) {{",
        "if (lane < half) all[threadIdx.x] = combine(all[threadIdx.x], all[threadIdx.x + half]);",
        "SYNC();",
        "}",
        "mine = all[threadIdx.x];",
    ]
    places = [*offsets(layout.kept, {"o": layout.kept_out}, "i", kind), result.store("mine")]
    into = f"{acc} *__restrict__ part" if split else f"{STORAGE[result.out]} *__restrict__ out"
    lines = [
        *group.helpers(False, result.bits(dtype)),
        result.helper,
        f"KERNEL rows(const {STORAGE[dtype]} *x, {into}) {{",
        "AWAIT_LAUNCH();",
        "ALLOW_LAUNCH();",
        f"const {kind} i = ({kind})(thread_index() / {lanes}u);",
        f"const unsigned int lane = threadIdx.x % {lanes}u;",
        f"const {kind} begin = {part_of} * ({kind}){step}u;",
        f"const {kind} end = begin + {step}u < {count}u ? begin + {step}u : {count}u;",
        *(turned if outer else []),
        f"const {kind} whole = end - end % {width}u;",
        f"{acc} {', '.join(f'acc{j} = {result.first}' for j in range(_WAYS))};",
        f"if (i < {outputs}u) {{",
        *offsets(layout.kept, {"b": layout.kept_x}, "i", kind),
        *both_ways("(u64)x % 16u == 0", loop),
        "}",
        f"{acc} mine = combine(combine(acc0, acc1), combine(acc2, acc3));",
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
    """Matrices with dense rows, to be reduced over rows, masked, or both; strides in elements."""

    batch: tuple[int, ...]
    rows: tuple[int, ...]  # along which they are reduced together
    columns: int
    x: tuple[int, ...]  # steps along the batch, and along rows
    mask: tuple[int, ...] | None  # the same in bytes, of rows along one axis
    out: tuple[int, ...] | None  # steps along the batch, and along columns
    sums: Result | None

    @property
    def count(self) -> int:
        """Rows of a matrix."""
        return math.prod(self.rows)

    def places(self, high: int, kind: str) -> tuple[list[str], list[str]]:
        """Return statements, and where the row of each of a thread's ways is behind the first row."""
        rows = [f"(r + {u * high}u)" for u in range(_WAYS)]
        if len(self.rows) == 1:
            return [], [f"{row} * ({kind}){self.x[-1]}u" for row in rows]
        lines = []
        for u, row in enumerate(rows):
            lines.append(f"const {kind} n{u} = {row};")
            lines += offsets(self.rows, {f"at{u}": self.x[len(self.batch) :]}, f"n{u}", kind)
        return lines, [f"at{u}" for u in range(_WAYS)]


def _columns(dtype: str, c: _Columns, target: Target) -> tuple[list[str], list[Launch], int]:
    """Return kernels that reduce columns, or apply a mask to them, their launches, and bytes of workspace.

    Operands are x, then the mask if there is one, then what sums are stored in.
    """
    group = Group(dtype, 16 // itemsize(dtype) if c.mask is None else _MASKED)
    width, count = group.count, math.prod(c.batch)
    wide = _width(-(-c.columns // width))
    high = THREADS // wide
    blocks, each = -(-c.columns // (wide * width)), high * _WAYS
    turns = -(-c.count // each)  # of a thread, if it were alone
    if c.sums is None:
        splits = min(turns, _MOST)
    else:
        splits = max(1, min(-(-_BLOCKS * target.sm_count // (blocks * count)), turns, _MOST))
    step = -(-turns // splits) * each
    splits = -(-c.count // step)
    padded, split = blocks * wide * width, splits > 1
    kind = index_type(
        max(c.count + step, count * splits * padded),
        reach((*c.batch, *c.rows), c.x) + c.columns,
        0 if c.mask is None else reach((*c.batch, *c.rows), c.mask) + c.columns,
        0 if c.out is None else reach((*c.batch, c.columns), c.out),
    )
    storage = STORAGE[dtype]
    const = "const " if c.mask is None else ""
    parameters = [f"{const}{storage} *x"]
    before, at = c.places(high, kind)
    loads = [f"w{u} = @(p + {at[u]}, left);" for u in range(_WAYS)]
    after: list[str] = []
    steps = {"b": c.x[: len(c.batch)]}
    if c.mask is not None:
        parameters.append("const unsigned char *mask")
        steps["bits"] = c.mask[:-1]
        loads = [
            f"{load} m{u} = mask[bits + (r + {u * high}u) * ({kind}){c.mask[-1]}u + column / 8u];"
            for u, load in enumerate(loads)
        ]
        after += [line for u in range(_WAYS) for line in group.masked(f"w{u}", f"m{u}")]
        after += [f"if (r + {u * high}u < end) @_store(p + {at[u]}, w{u});" for u in range(_WAYS)]
    acc, first = "", 0
    if c.sums is not None:
        acc, first = value_type(c.sums.acc), c.sums.bits(dtype)
        parameters.append(f"{acc} *__restrict__ part" if split else f"{STORAGE[c.sums.out]} *__restrict__ out")
        after += [
            f"acc{q} = combine(acc{q}, {group.value(f'w{u}', q, c.sums.acc)});"
            for u in range(_WAYS)
            for q in range(width)
        ]
    loop = [
        f"for ({kind} r = begin + ty; r < end; r += {each}u) {{",
        *before,
        *(f"group w{u} = {group.words_of(first)};" for u in range(_WAYS)),
        *([f"unsigned int {', '.join(f'm{u} = 0' for u in range(_WAYS))};"] if c.mask is not None else []),
        *(f"if (r + {u * high}u < end) {{ {load} }}" for u, load in enumerate(loads)),
        *after,
        "}",
    ]
    fast = "(u64)x % 16u == 0" + (" && left >= " + f"{width}u" if c.columns % width else "")
    lines = [
        *group.helpers(c.mask is not None, first),
        *([] if c.sums is None else [c.sums.helper]),
        f"KERNEL columns({', '.join(parameters)}) {{",
        "AWAIT_LAUNCH();",
        "ALLOW_LAUNCH();",
        f"const unsigned int tx = threadIdx.x % {wide}u, ty = threadIdx.x / {wide}u;",
        f"const {kind} column = (({kind})blockIdx.x * {wide}u + tx) * {width}u, z = blockIdx.z;",
        f"const {kind} begin = blockIdx.y * ({kind}){step}u;",
        f"const {kind} end = begin + {step}u < {c.count}u ? begin + {step}u : {c.count}u;",
        *([] if c.sums is None else [f"{acc} {', '.join(f'acc{q} = {c.sums.first}' for q in range(width))};"]),
        f"if (column < {c.columns}u) {{",
        *offsets(c.batch or (1,), {name: s or (0,) for name, s in steps.items()}, "z", kind),
        f"const {kind} left = {c.columns}u - column;",
        f"{const}{storage} *p = x + b + column;",
        *both_ways(fast, loop),
        "}",
    ]
    given: list[Argument] = [("operand", j) for j in range(1 if c.mask is None else 2)]
    grid, block = (blocks, splits, count), (THREADS, 1, 1)
    if c.sums is None or c.out is None:
        return [*lines, "}"], [Launch("columns", grid, block, 0, tuple(given))], 0
    into = len(given)  # the operand that sums are stored in
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
        f"{acc} mine = {c.sums.first};",
        "#pragma unroll",
        f"for (unsigned int y = 0; y < {high}u; y++) mine = combine(mine, all[from + y * {wide}u]);",
        f"const {kind} t = ({kind})blockIdx.x * {wide * width}u + c;",
        *([f"part[(blockIdx.y * ({kind}){count}u + z) * {padded}u + t] = mine;"] if split else place),
        "}",
        "}",
    ]
    last: Argument = ("workspace", 0) if split else ("operand", into)
    launches = [Launch("columns", grid, block, 0, (*given, last))]
    if not split:
        return lines, launches, 0
    places = [f"const {kind} z = i / {padded}u, t = i % {padded}u;", *place]
    more, launch = _finish(count * padded, splits, places, c.sums, kind)
    arguments: tuple[Argument, ...] = (("workspace", 0), ("operand", into))
    launch = replace(launch, arguments=arguments)
    return [*lines, *more], [*launches, launch], splits * count * padded * itemsize(c.sums.acc)


# ---------------------------------------------------------------------------------------------- what there is


def _width(groups: int) -> int:
    """Return the threads along a row: a power of 2, with few beyond its groups."""
    return min((32, 16, 8), key=lambda n: -(-groups // n) * n) if groups > 8 else next_power(groups)


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
    """Build a reduction for sums, means and extrema of float32, float16 and bfloat16, where the layout allows it.

    Neighbours are reduced along one axis, once axes that lie one after the other are one, and columns along any; other
    axes beside neighbours are reduced by a second kernel.  All other axes step by multiples of 16 bytes.  Otherwise the
    result is None.
    """
    x, out = reduction.x, reduction.out
    dtype, shape, axes = x.dtype, x.shape, reduction.axes
    if reduction.kind not in ("mean", *COMBINED) or dtype not in DTYPES or 0 in shape:
        return None
    if reduction.accumulate not in ("float32", "float64"):
        return None
    acc = reduction.accumulate if reduction.kind in ("sum", "mean") else "float32"
    steps, out_steps = broadcast_strides(x, shape), broadcast_strides(out, out.shape)
    kept_axes = [i for i in range(len(shape)) if i not in axes]
    kept, (kept_x, kept_out) = by_stride([shape[i] for i in kept_axes], [tuple(steps[i] for i in kept_axes), out_steps])
    order = sorted(axes, key=lambda i: -steps[i])
    summed, (summed_x,) = fold_axes(tuple(shape[i] for i in order), (tuple(steps[i] for i in order),))
    if not summed or min(*summed_x, *kept_x, 0) < 0:
        return None
    count, step, alone = math.prod(summed), summed_x[-1], len(summed) == 1
    width = 16 // itemsize(dtype)
    kind = "sum" if reduction.kind == "mean" else reduction.kind
    result = Result(acc, out.dtype, count if reduction.kind == "mean" else 0, kind)
    inside = summed[-1]
    if alone and step == 1 and count >= width and _aligned(dtype, kept_x):
        made = _rows(dtype, _Layout(kept, kept_x, kept_out, count), result, target)
    elif step == 1 and inside >= _LEAST_ROW and count // inside <= _MOST and _aligned(dtype, (*kept_x, *summed_x[:-1])):
        layout = _Layout(kept, kept_x, kept_out, inside, summed[:-1], summed_x[:-1])
        made = _rows(dtype, layout, result, target)
    elif kept_x[-1] == 1 and kept[-1] >= width and _aligned(dtype, (*kept_x[:-1], *summed_x)) and _fits(kept[:-1]):
        columns = _Columns(kept[:-1], summed, kept[-1], (*kept_x[:-1], *summed_x), None, kept_out, result)
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
    if dtype not in DTYPES or columns % _MASKED or not math.prod(out.shape):
        return None
    x, bits = broadcast_strides(out, out.shape), broadcast_strides(mask, mask.shape)
    if min(x) < 0 or min(bits) < 0 or x[-1] != 1 or bits[-1] != 1 or not _aligned(dtype, x[:-1]):
        return None
    if bias_grad is None:
        lead, (x_lead, bits_lead) = fold_axes((*batch, rows), (x[:-1], bits[:-1]))
        made = _Columns(lead[:-1], lead[-1:], columns, x_lead, bits_lead, None, None)
    else:
        sums = broadcast_strides(bias_grad, bias_grad.shape)
        lead, (x_lead, bits_lead, sums_lead) = fold_axes(tuple(batch), (x[:-2], bits[:-2], sums[:-1]))
        result = Result("float32", bias_grad.dtype, 0)
        x_steps, bits_steps = (*x_lead, x[-2]), (*bits_lead, bits[-2])
        made = _Columns(lead, (rows,), columns, x_steps, bits_steps, (*sums_lead, sums[-1]), result)
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
