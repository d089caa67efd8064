"""Launches of the random kernels: see `atomr_native.libraries.random.kernels`."""

from __future__ import annotations

import math
from typing import Final

from ...builders.blocks import fold_axes
from ...builders.context import Built
from ...builders.cuda.codegen import broadcast_strides
from ...builders.cuda.context import CudaContext
from ...builders.cuda.shipped import Grid, numbers, program
from ...builders.cuda.target import Argument
from ...dtypes import as_dtype
from ...errors import Unsupported
from ...plans.spec import OperandSpec, PlanSpec
from .attributes import ChooseAttributes, FillAttributes, PermuteAttributes
from .kernels.permutation import FEW, halves
from .kernels.positions import CHUNK, per_counter
from .spec import parameter_names

__all__ = ["build_choose", "build_fill", "build_permute"]

_THREADS: Final = 256
_BLOCKS: Final = 16  # for a multiprocessor: twice as many as there are at once
_FAST_BLOCKS: Final = 12  # likewise, of kernels with a limit of registers
_AXES: Final = 4
_NOTHING: Final[Argument] = ("uint64", 0)


def _grid(threads: int, context: CudaContext, blocks: int = _BLOCKS) -> Grid:
    return max(1, min(-(-threads // _THREADS), blocks * context.target.sm_count)), 1, 1


def _steps(operand: OperandSpec) -> tuple[int, ...]:
    itemsize = as_dtype(operand.dtype).itemsize
    return tuple(stride // itemsize for stride in operand.strides)


def _folded(out: OperandSpec, arrays: list[OperandSpec]) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Return four extents, and the steps of the output and of each array that broadcasts to it.

    Raises
    ------
    Unsupported
        If more axes are needed.
    """
    shape = out.shape or (1,)
    steps = [_steps(out) or (1,)]
    for array in arrays:
        steps.append(broadcast_strides(array, out.shape) or (0,))
    folded, found = fold_axes(shape, tuple(steps))
    if len(folded) > _AXES:
        raise Unsupported(
            f"an output of shape {out.shape} and strides {out.strides} with {len(arrays)} arrays of parameters: their "
            f"axes fold into {len(folded)}, and kernels take {_AXES}; make contiguous copies"
        )
    missing = _AXES - len(folded)
    return (1,) * missing + folded, tuple((0,) * missing + step for step in found)


def build_fill(spec: PlanSpec[FillAttributes], context: CudaContext) -> Built:
    """Build ``random.fill``: arrays of parameters and of the offset, then out; scalars are those that are no arrays."""
    at = {operand.name: i for i, operand in enumerate(spec.operands)}
    distribution = spec.attributes.distribution
    names = parameter_names(distribution, at)
    out = spec.operands[at["out"]]
    count = math.prod(out.shape)
    if count == 0:
        return Built("noop")
    arrays = [name for name in names if name in at]
    given = "offset" in at
    extents, steps = _folded(out, [spec.operands[at[name]] for name in arrays])
    own = dict(zip(arrays, steps[1:], strict=True))
    scalars = [name for name in (*names, "seed", "stream", "offset") if name not in at]
    whole = distribution == "integers"
    result: Argument = ("operand", at["out"])
    report: Argument = ("workspace", 0) if arrays else result

    def number(name: str) -> Argument:
        if name not in scalars:
            return _NOTHING
        return "int64" if whole or name in ("seed", "stream", "offset") else "float64", scalars.index(name)

    start: Argument = ("operand", at["offset"]) if given else result
    counters = (number("seed"), number("stream"), number("offset"), *numbers(count, *extents[1:], *steps[0]))
    if whole and arrays:
        pointers: list[Argument] = [("operand", at[name]) if name in at else result for name in names]
        places = [step for name in names for step in own.get(name, (0,) * _AXES)]
        arguments = (result, *pointers, start, report, *map(number, names), *counters, *numbers(*places))
    elif whole:
        arguments = (result, start, *map(number, names), *counters)
    else:
        padded = (*names, *("",) * (4 - len(names)))
        pointers = [("operand", at[name]) if name in at else result for name in padded]
        places = [step for name in padded for step in own.get(name, (0,) * _AXES)]
        arguments = (result, *pointers, start, report, *map(number, padded), *counters, *numbers(*places))
    share = 4 if whole else per_counter(distribution, out.dtype)
    blocks = _FAST_BLOCKS if share == 4 and not whole and not arrays else _BLOCKS
    grid = _grid(count // share + 2 if share > 1 else count, context, blocks)
    name = ("ranges" if arrays else "integers") if whole else "fill" if share > 1 else "reject"
    launches = [(name, grid, _THREADS, arguments)]
    if report is result:
        return program(spec, launches, context.target)
    launches.insert(0, ("clear", (1, 1, 1), 1, (report,)))
    return program(spec, launches, context.target, 256, info=("workspace", 0))


def build_permute(spec: PlanSpec[PermuteAttributes], context: CudaContext) -> Built:
    """Build ``random.permute``: operands x, offset if it is an array, out; scalars seed, stream and the offset."""
    at = {operand.name: i for i, operand in enumerate(spec.operands)}
    out = spec.operands[at["out"]]
    rows, size = out.shape[0], math.prod(out.shape)
    if size == 0:
        return Built("noop")
    moves, given = "x" in at, "offset" in at
    few = rows <= FEW
    order: Argument = ("workspace", 0) if moves and few else ("operand", at["out"])
    step = 1 if moves else _steps(out)[0]
    start: Argument = ("operand", at["offset"]) if given else order
    counters: tuple[Argument, ...] = (("int64", 0), ("int64", 1), _NOTHING if given else ("int64", 2))
    items = size // rows * max(1, as_dtype(out.dtype).itemsize // 8)  # of a row, of eight bytes at most
    x: Argument = ("operand", at["x"]) if moves else order
    if not few:
        sizes = numbers(rows * items if moves else rows, rows, items if moves else step, *halves(rows))
        grid = _grid(rows * items if moves else rows, context)
        pointers: tuple[Argument, ...] = (("operand", at["out"]), *((x,) if moves else ()), start)
        return program(
            spec, [("move_many" if moves else "many", grid, _THREADS, (*pointers, *counters, *sizes))], context.target
        )
    launches = [("few", _grid(rows, context), _THREADS, (order, start, *counters, *numbers(rows, step)))]
    if not moves:
        return program(spec, launches, context.target)
    arguments = (order, x, ("operand", at["out"]), *numbers(rows * items, items))
    return program(
        spec, [*launches, ("gather", _grid(rows * items, context), _THREADS, arguments)], context.target, 8 * FEW
    )


def build_choose(spec: PlanSpec[ChooseAttributes], context: CudaContext) -> Built:
    """Build ``random.choose``: operands weights, offset if it is an array, out; scalars seed, stream and the offset."""
    at = {operand.name: i for i, operand in enumerate(spec.operands)}
    weights, count = spec.operands[at["weights"]], math.prod(spec.operands[at["out"]].shape)
    if count == 0:
        return Built("noop")
    items, step = weights.shape[0], _steps(weights)[0]
    given = "offset" in at
    counters: tuple[Argument, ...] = (("int64", 0), ("int64", 1), _NOTHING if given else ("int64", 2))
    report: Argument = ("workspace", 0)
    parts: Argument = ("workspace", 256)
    x: Argument = ("operand", at["weights"])
    out: Argument = ("operand", at["out"])
    after = 256 + -(-8 * items // 256) * 256
    chunks = -(-items // CHUNK)
    launches: list[tuple[str, Grid, int, tuple[Argument, ...]]] = [("clear", (1, 1, 1), 1, (report,))]
    if spec.attributes.replace:
        start: Argument = ("operand", at["offset"]) if given else out
        bases: Argument = ("workspace", after)
        after += -(-8 * (chunks + 1) // 256) * 256
        launches += [
            ("sums", _grid(chunks, context), _THREADS, (x, parts, report, *numbers(items, step))),
            ("totals", (1, 1, 1), 1, (parts, bases, report, *numbers(items))),
            ("pick", _grid(count, context), _THREADS, (out, parts, bases, start, *counters, *numbers(count, items))),
        ]
    else:
        start = ("operand", at["offset"]) if given else parts
        grid = (-(-items // _THREADS), 1, 1)
        launches += [
            ("keys", grid, _THREADS, (x, parts, start, report, *counters, *numbers(items, step))),
            ("ranks", grid, _THREADS, (out, parts, report, *numbers(count, items))),
        ]
    return program(spec, launches, context.target, after, info=("workspace", 0))
