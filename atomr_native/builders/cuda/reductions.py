"""Reductions as CUDA kernels.

Every result is the same in each run: which elements meet in which order is fixed by the plan alone.  Sums are trees,
so they differ from NumPy's in the last places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..blocks import fold_axes
from ..context import Built
from .codegen import (
    NARROW,
    THREADS,
    alignment,
    broadcast_strides,
    by_stride,
    convert,
    index_type,
    kernels,
    offsets,
    reach,
    value_type,
)
from .combined import Result
from .prelude import STORAGE
from .sums import Reduction, build_sum
from .target import Argument, Launch, Target

__all__ = ["build_reduce"]

#: Independent accumulators of a thread.
_WAYS: Final = 4
#: Elements of a thread below which a reduction is not split further.
_LEAST: Final = 16
_MOST_SPLITS: Final = 1024
#: Reductions whose result is one of the elements, and those whose result is where it is.
_EXTREMA: Final = ("max", "min")
_INDEXED: Final = ("argmax", "argmin")

#: What combines two values without an index: the value to begin with, and the expression.
_COMBINED: Final = {
    "sum": ("0", "a.value + b.value"),
    "prod": ("1", "a.value * b.value"),
    "any": ("0", "a.value || b.value"),
    "all": ("1", "a.value && b.value"),
    "max": ("", "(b.value > a.value || b.value != b.value) ? b.value : a.value"),  # NaN stays NaN
    "min": ("", "(b.value < a.value || b.value != b.value) ? b.value : a.value"),
}
_PLAIN = """\
DEVICE pair fresh(void) {{ pair p; p.value = {first}; return p; }}
DEVICE pair combine(pair a, pair b) {{ a.value = {combined}; return a; }}
"""
# Of equal values, and of several NaN, the first; `at` is -1 where nothing has been seen.
_MAX = """\
DEVICE pair fresh(void) { pair p; p.value = 0; p.at = -1; return p; }
DEVICE pair combine(pair a, pair b) {
  if (b.at < 0) return a;
  if (a.at < 0) return b;
  bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  bool better = a_nan || b_nan ? b_nan && !a_nan : b.value @ a.value;
  bool equal = a_nan || b_nan ? a_nan && b_nan : b.value == a.value;
  return better || (equal && b.at < a.at) ? b : a;
}
"""


@dataclass(frozen=True, slots=True)
class _Plan:
    """The partition of a reduction: `lanes` threads and `splits` partial results for each output."""

    kept: tuple[int, ...]
    reduced: tuple[int, ...]
    kept_x: tuple[int, ...]
    kept_out: tuple[int, ...]
    reduced_x: tuple[int, ...]
    lanes: int
    splits: int

    @property
    def outputs(self) -> int:
        return math.prod(self.kept)

    @property
    def count(self) -> int:
        return math.prod(self.reduced)

    @property
    def blocks(self) -> int:
        return -(-self.outputs * self.lanes // THREADS)


def _lanes(count: int) -> int:
    """Return the number of threads that share a row of neighbours."""
    return 1 if count <= 4 else 32 if count <= 1024 else THREADS


def _cut(reduction: Reduction, target: Target) -> _Plan:
    x, out, axes = reduction.x, reduction.out, reduction.axes
    shape = x.shape
    steps = broadcast_strides(x, shape)
    kept = [i for i in range(len(shape)) if i not in axes]
    out_steps = broadcast_strides(out, out.shape)
    kept_shape, (kept_x, kept_out) = by_stride([shape[i] for i in kept], [tuple(steps[i] for i in kept), out_steps])
    reduced_shape, reduced_steps = [shape[i] for i in axes], tuple(steps[i] for i in axes)
    order = tuple(range(len(axes)))
    if reduction.kind not in ("argmax", "argmin"):  # whose result is an index in the order of the axes
        order = tuple(sorted(order, key=lambda i: -reduced_steps[i]))
    ordered = tuple(reduced_shape[i] for i in order) or (1,)
    reduced, (reduced_x,) = fold_axes(ordered, (tuple(reduced_steps[i] for i in order) or (0,),))
    count = math.prod(reduced)
    neighbours = min((s for n, s in zip(reduced, reduced_x, strict=True) if n > 1), default=0)
    across = min((s for n, s in zip(kept_shape, kept_x, strict=True) if n > 1), default=0)
    lanes = 1 if across and across < neighbours else _lanes(count)
    blocks = -(-math.prod(kept_shape) * lanes // THREADS)
    splits = min(-(-4 * target.sm_count // blocks), count // (lanes * _LEAST), _MOST_SPLITS)
    return _Plan(kept_shape, reduced, kept_x, kept_out, reduced_x, lanes, max(1, splits))


def _tree(lanes: int) -> list[str]:
    """Return statements that combine the `mine` of the `lanes` threads of each output, for the first of them."""
    if lanes == 1:
        return []
    return [
        f"SHARED pair all[{THREADS}];",
        "all[threadIdx.x] = mine;",
        "SYNC();",
        f"for (unsigned int half = {lanes // 2}; half; half >>= 1) {{",
        "if (lane < half) all[threadIdx.x] = combine(all[threadIdx.x], all[threadIdx.x + half]);",
        "SYNC();",
        "}",
        "mine = all[threadIdx.x];",
    ]


def _store(reduction: Reduction, result: str, count: int) -> str:
    """Return the statement that stores `mine` of type `result` at `o`."""
    out = reduction.out.dtype
    if reduction.kind in ("argmax", "argmin"):
        return f"out[o] = {convert('int64', out, 'mine.at')};"
    if reduction.kind == "mean":
        if result.startswith("complex"):
            part = "float32" if result == "complex64" else "float64"
            divided = (f"mine.value.{side} / ({STORAGE[part]}){count}u" for side in ("re", "im"))
            mean = f"make_{STORAGE[result]}({', '.join(divided)})"
            return f"out[o] = {convert(result, out, mean)};"
        divisor = float(np.float32(count)) if result == "float32" else float(count)
        return f"const {STORAGE[result]} mean = mine.value / ({STORAGE[result]}){divisor!r}; " + (
            f"out[o] = {convert(result, out, 'mean')};"
        )
    return f"out[o] = {convert(result, out, 'mine.value')};"


def _first_stage(reduction: Reduction, plan: _Plan, result: str, kind: str) -> list[str]:
    x, out = reduction.x.dtype, reduction.out.dtype
    indexed = reduction.kind in _INDEXED
    load = convert(x, result, "(x[b + r] != 0)" if x == "bool" else "x[b + r]")
    last = "part" if plan.splits > 1 else "out"
    step = -(-plan.count // plan.splits)
    inner = [
        f"for ({kind} k = 0; k < {_WAYS}; k++) {{",
        f"const {kind} j = j0 + k * {plan.lanes}u;",
        "if (j >= end) break;",
        *offsets(plan.reduced, {"r": plan.reduced_x}, "j", kind),
        f"pair p; p.value = {load};" + (" p.at = (long long)j;" if indexed else ""),
        "acc[k] = combine(acc[k], p);",
        "}",
    ]
    return [
        f"KERNEL reduce(const {STORAGE[x]} *x, "
        f"{'pair *__restrict__ part' if plan.splits > 1 else f'{STORAGE[out]} *__restrict__ out'}) {{",
        "AWAIT_LAUNCH();",
        "ALLOW_LAUNCH();",
        f"const {kind} group = ({kind})(thread_index() / {plan.lanes}u);",
        f"const {kind} lane = threadIdx.x % {plan.lanes}u;",
        f"const {kind} begin = blockIdx.y * ({kind}){step}u;",
        f"const {kind} end = begin + {step}u < {plan.count}u ? begin + {step}u : {plan.count}u;",
        f"pair acc[{_WAYS}];",
        "#pragma unroll",
        f"for (int k = 0; k < {_WAYS}; k++) acc[k] = fresh();",
        f"if (group < {plan.outputs}u) {{",
        *offsets(plan.kept, {"b": plan.kept_x}, "group", kind),
        f"for ({kind} j0 = begin + lane; j0 < end; j0 += {_WAYS * plan.lanes}u) {{",
        "#pragma unroll",
        *inner,
        "}",
        "}",
        "pair mine = combine(combine(acc[0], acc[1]), combine(acc[2], acc[3]));",
        *_tree(plan.lanes),
        f"if (lane == 0 && group < {plan.outputs}u) {{",
        *(
            [f"part[group * ({kind}){plan.splits}u + blockIdx.y] = mine;"]
            if last == "part"
            else [*offsets(plan.kept, {"o": plan.kept_out}, "group", kind), _store(reduction, result, plan.count)]
        ),
        "}",
        "}",
    ]


def _second_stage(reduction: Reduction, plan: _Plan, result: str, kind: str) -> list[str]:
    """Return the kernel that combines partial results, a block for each output."""
    out = reduction.out.dtype
    return [
        f"KERNEL finish(const pair *part, {STORAGE[out]} *out) {{",
        "AWAIT_LAUNCH();",
        f"const {kind} group = blockIdx.x;",
        "const unsigned int lane = threadIdx.x;",
        "pair mine = fresh();",
        f"for (unsigned int j = lane; j < {plan.splits}u; j += {THREADS}u)",
        f"mine = combine(mine, part[group * ({kind}){plan.splits}u + j]);",
        *_tree(THREADS),
        "if (lane == 0) {",
        *offsets(plan.kept, {"o": plan.kept_out}, "group", kind),
        _store(reduction, result, plan.count),
        "}",
        "}",
    ]


def _furthest(dtype: str, kind: str) -> str:
    """Return the value that changes no maximum, or minimum, in C."""
    if dtype in ("float32", "float64"):
        return Result(dtype, dtype, 0, kind).first
    if dtype == "bool":
        return "0" if kind == "max" else "1"
    info = np.iinfo(dtype)
    number = info.min if kind == "max" else info.max
    return f"(-{-number - 1}ll - 1)" if number < 0 else f"{number}ull"


def _pair(value: str, kind: str) -> tuple[list[str], int]:
    """Return the type of an accumulator and its largest size in bytes."""
    at = " long long at;" if kind in _INDEXED else ""
    made = f"typedef struct {{ {value_type(value)} value;{at} }} pair;"
    if kind in _INDEXED:
        return [made, _MAX.replace("@", ">" if kind.endswith("max") else "<")], 16
    name = "sum" if kind == "mean" else kind
    first, combined = _COMBINED[name]
    first = first or _furthest(value, name)
    if value.startswith("complex"):
        c = STORAGE[value]
        first, combined = f"make_{c}({first}, 0)", f"{'add' if name == 'sum' else 'multiply'}_{c}(a.value, b.value)"
    return [made, _PLAIN.format(first=first, combined=combined)], 16


def build_reduce(reduction: Reduction, target: Target) -> Built:
    """Build a reduction: operands ``x, out``, no scalars.

    Deterministic.  A reduction with few outputs runs in two launches, through partial results in the workspace.
    Sums that can be read by 16 bytes are `build_sum`'s.
    """
    x, out = reduction.x, reduction.out
    if math.prod(out.shape) == 0:
        return Built("noop")
    if (sums := build_sum(reduction, target)) is not None:
        return sums
    result = reduction.accumulate
    if reduction.kind in (*_INDEXED, *_EXTREMA):
        result = "float32" if x.dtype in NARROW else x.dtype
    plan = _cut(reduction, target)
    kind = index_type(
        max(plan.count * 2, plan.outputs * max(plan.lanes, plan.splits)),
        reach(plan.kept, plan.kept_x) + reach(plan.reduced, plan.reduced_x),
        reach(plan.kept, plan.kept_out),
    )
    helpers, size = _pair(result, reduction.kind)
    lines = [*helpers, *_first_stage(reduction, plan, result, kind)]
    last: Argument = ("operand", 1) if plan.splits == 1 else ("workspace", 0)
    launches = [Launch("reduce", (plan.blocks, plan.splits, 1), (THREADS, 1, 1), 0, (("operand", 0), last))]
    workspace = 0
    if plan.splits > 1:
        lines += _second_stage(reduction, plan, result, kind)
        workspace = plan.outputs * plan.splits * size
        launches.append(Launch("finish", (plan.outputs, 1, 1), (THREADS, 1, 1), 0, (("workspace", 0), ("operand", 1))))
    return _finish(lines, launches, target, reduction, {result, "int64"}, workspace)


def _finish(
    lines: Sequence[str],
    launches: Sequence[Launch],
    target: Target,
    reduction: Reduction,
    computed: set[str],
    workspace: int,
) -> Built:
    dtypes = [reduction.x.dtype, reduction.out.dtype]
    return kernels(
        "\n".join(lines) + "\n",
        launches,
        target,
        dtypes={*dtypes, *computed},
        alignments=[alignment(dtype) for dtype in dtypes],
        functions=("add", "multiply") if any(dtype.startswith("complex") for dtype in computed) else (),
        workspace=workspace,
    )
