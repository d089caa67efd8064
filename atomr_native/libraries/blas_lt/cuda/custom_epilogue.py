"""Matmuls with an epilogue of the user's: the library's product, then one kernel, then sums of D's columns."""

from __future__ import annotations

import math
from typing import Final

from msgspec.structs import replace

from ....arrays.operands import contiguous_strides
from ....builders.blocks import fold_axes
from ....builders.cuda.codegen import next_power
from ....builders.cuda.reductions import build_reduce
from ....builders.cuda.sequence import SequenceProgram, Source, Step
from ....builders.cuda.sums import Reduction
from ....builders.cuda.target import Argument, KernelProgram, Launch, Target
from ....builders.cuda.workspace import beyond_limit, padded
from ....dtypes import as_dtype
from ....errors import InvalidRequest, Unsupported
from ....plans.spec import OperandSpec, PlanSpec
from ..attributes import CustomAttributes, MatmulAttributes
from .program import Prepare, matmul_program, workspace_as_operand

__all__ = ["custom_program"]

_THREADS: Final = 256
_BLOCKS: Final = 16  # of a multiprocessor
_WIDE: Final = 8  # elements of one access
_AXES: Final = 3  # of D's rows and batches


def custom_program(
    spec: PlanSpec[MatmulAttributes],
    custom: CustomAttributes,
    target: Target,
    *,
    version: int,
    prepare: Prepare,
    workspace_bytes: int,
    zero: int = 0,
) -> SequenceProgram:
    """Return how to compute ``blas_lt.matmul`` with a custom epilogue; parameters are those of `matmul_program`.

    Products are kept in the workspace in the accumulator's dtype; in D, where that is D's dtype, or where the
    specification says that the workspace is too small for them.

    Raises
    ------
    Unsupported
        If the library cannot make the product, or arrays are laid out so that no kernel has them.
    """
    operands, at = spec.operands, {o.name: i for i, o in enumerate(spec.operands)}
    out = operands[at["out"]]
    shape, stored = out.shape, custom.stored
    extra = [name for name, _ in custom.operands]
    in_place = stored == out.dtype
    size = 0 if in_place else padded(math.prod(shape) * as_dtype(stored).itemsize)
    if size > workspace_bytes:
        raise beyond_limit(spec.op, "the product before the epilogue", size, workspace_bytes)

    inner: list[OperandSpec] = []
    sources: list[Source] = []
    added = spec.attributes.added
    for i, operand in enumerate(operands):
        if operand.name in ("aux", "bias_grad") or operand.name in extra:
            continue
        if operand.name == "out" and not in_place:
            if added == "out":
                added = "c"
                inner.append(replace(operand, name="c"))
                sources.append(("operand", i))
            strides = contiguous_strides(shape, as_dtype(stored).itemsize)
            inner.append(replace(operand, dtype=stored, strides=strides))
            sources.append(("workspace", -1))
        else:
            inner.append(operand)
            sources.append(("operand", i))
    attributes = replace(spec.attributes, added=added, custom=None)
    product = matmul_program(
        replace(spec, operands=tuple(inner), attributes=attributes),
        target,
        version=version,
        prepare=prepare,
        workspace_bytes=workspace_bytes - size,
        zero=zero,
    )
    start = padded(product.workspace)
    places: list[Source] = [("workspace", start) if kind == "workspace" else (kind, i) for kind, i in sources]
    steps = [
        Step(step.run, tuple(places[v] if kind == "operand" else (kind, v) for kind, v in step.operands), step.scalars)
        for step in product.steps
    ]
    x = inner[-1]
    names = [*extra, "out", *(["aux"] if "aux" in at and "aux" not in extra else [])]
    if math.prod(shape):
        kinds = dict(custom.operands)
        run = _kernel(
            custom,
            shape,
            [("matrix", x), *((kinds.get(name, "matrix"), operands[at[name]]) for name in names)],
            target,
        )
        own: tuple[Source, ...] = tuple(("operand", at[name]) for name in names)
        steps.append(Step(run, (places[-1], *own)))
    end = start + size
    if "bias_grad" in at:
        sums, need = _sums(out, operands[at["bias_grad"]], custom.acc, (at["out"], at["bias_grad"]), target)
        steps += sums
        end = max(end, need)
    if end > workspace_bytes:
        raise beyond_limit(spec.op, "the product with its sums", end, workspace_bytes)
    note = "the epilogue is a second kernel, after the product"
    if stored != custom.acc:
        need = math.prod(shape) * as_dtype(custom.acc).itemsize
        note += (
            f", which is rounded to {stored} in between, since {need} bytes in {custom.acc} are more than "
            f"System(workspace_limit=) allows"
        )
    else:
        note += f"; between them products are {stored} in {'D' if in_place else 'the workspace'}"
    notes = (note, *(f"product: {line}" for line in product.notes))
    return SequenceProgram(tuple(steps), end, notes)


def _steps(operand: OperandSpec, kind: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of an operand, in elements, along D's axes."""
    size = as_dtype(operand.dtype).itemsize
    found = [0 if n == 1 else s // size for n, s in zip(operand.shape, operand.strides, strict=True)]
    if kind == "scalar":
        return (0,) * len(shape)
    if kind == "row":
        found = [*found[:-1], 0, found[-1]]
    elif kind == "column":
        found = [*found, 0]
    return (*((0,) * (len(shape) - len(found))), *found)


def _kernel(
    custom: CustomAttributes, shape: tuple[int, ...], given: list[tuple[str, OperandSpec]], target: Target
) -> KernelProgram:
    """Return the launch of the epilogue; its operands are products, operands, D, aux, here with their kinds."""
    arrays = [_steps(operand, kind, shape) for kind, operand in given]
    extents, folded = fold_axes(shape[:-1], tuple(steps[:-1] for steps in arrays))
    if len(extents) > _AXES:
        raise Unsupported(
            f"a custom epilogue for D of shape {shape} whose batches do not fold with those of its operands; allowed: "
            f"at most {_AXES} axes that step unevenly; copy operands into C order",
            rule="blas_lt.custom_epilogue_axes",
            lifted_by=("layout",),
        )
    missing = _AXES - len(extents)
    rows, columns = math.prod(extents), shape[-1]
    _, e1, e2 = (*((1,) * missing), *extents)
    sizes = [as_dtype(operand.dtype).itemsize for _, operand in given]
    fast = columns % _WIDE == 0 and all(
        size < 8 and (kind in ("column", "scalar") or (steps[-1] == 1 and not any(step * size % 16 for step in lead)))
        for (kind, _), size, steps, lead in zip(given, sizes, arrays, folded, strict=True)
    )
    numbers = [rows, columns, e1, e2, int(fast)]
    for steps, lead in zip(arrays, folded, strict=True):
        numbers += [*((0,) * missing), *lead, steps[-1]]
    arguments: list[Argument] = [("operand", i) for i in range(len(arrays))]
    arguments += [("uint64", number) for number in numbers]
    across = -(-columns // _WIDE) if fast else columns
    wide = min(32, next_power(across))
    limit = target.sm_count * _BLOCKS
    grid_x = min(-(-across // wide), limit)
    grid_y = max(1, min(-(-rows // (_THREADS // wide)), limit // grid_x))
    code = custom.shipped
    if code is None:
        raise InvalidRequest("a custom epilogue comes without machine code, which GPUs need")
    entry = dict(code.entries)["apply"]
    block = (wide, _THREADS // wide, 1)
    launch = Launch(entry, (grid_x, grid_y, 1), block, 0, tuple(arguments), overlaps=target.overlaps)
    return KernelProgram(code.code.data, (launch,), alignments=tuple(sizes))


def _sums(
    out: OperandSpec, into: OperandSpec, acc: str, places: tuple[int, int], target: Target
) -> tuple[list[Step], int]:
    """Return the step that sums D over its rows, and its workspace, which no other step uses any more."""
    reduction = Reduction(out, into, "sum", (len(out.shape) - 2,), acc)
    built = build_reduce(reduction, target).run
    if not isinstance(built, KernelProgram):  # nothing to write
        return [], 0
    sources: list[Source] = [("operand", place) for place in places]
    if built.workspace:
        sources.append(("workspace", 0))
    return [Step(workspace_as_operand(built), tuple(sources))], padded(built.workspace)
