"""From plan specifications of ``tensor.*`` to sequences of kernels and calls of libraries."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

from msgspec import structs

from ....builders.context import Built
from ....builders.cuda.codegen import value_type
from ....builders.cuda.context import CudaContext
from ....plans.spec import PlanSpec
from ..attributes import ElementwiseAttributes, ReduceAttributes
from .arrays import Array
from .builder import Builder, copied
from .contract import elementwise, reduce
from .einsum import build_einsum
from .elements import constant, factored, loaded, multiplied, operated, scaled
from .finish import Finish
from .plain import plain_reduction
from .task import Task
from .whole import tuned_route

__all__ = ["build_einsum", "build_elementwise", "build_reduce"]

#: Reductions as kernels have them: what is done to each value, the reduction, what is done at the end.
_REDUCED: Final = {"mean": ("", "sum"), "norm1": ("abs", "sum"), "norm2": ("square", "sum"), "norm_max": ("abs", "max")}


def build_reduce(spec: PlanSpec[ReduceAttributes], context: CudaContext) -> Built:
    """Build ``tensor.reduce``.  Waits for the compiler."""
    if math.prod(spec.operands[-1].shape) == 0:
        return Built("noop")
    route, line = tuned_route(spec, context, build_reduce)
    return replace(_reduced(_routed(spec, route), context), tuning=line)


def _routed(spec: PlanSpec[Any], route: str) -> PlanSpec[Any]:
    return structs.replace(spec, attributes=structs.replace(spec.attributes, route=route))


def _reduced(spec: PlanSpec[ReduceAttributes], context: CudaContext) -> Built:
    how = spec.attributes
    builder = Builder(spec, context, how.inputs, how.output)
    reduced = tuple(m for m in dict.fromkeys(how.inputs[0]) if m not in how.output)
    dtype = "bool" if how.reduction in ("any", "all") else how.dtype
    if how.route == "cutensor" and reduce(builder, how, builder.finish(how.added, zero=how.zero)):
        return builder.built()
    if (
        not how.reduction.startswith("norm")
        and not how.tail
        and (plain := plain_reduction(builder, how.reduction, dtype, reduced)) is not None
    ):
        return plain
    finish = builder.finish(how.added, zero=how.zero)
    before, reduction = _REDUCED.get(how.reduction, ("", how.reduction))
    x = builder.inputs[0]
    count = math.prod(builder.extents[m] for m in reduced)
    inputs: tuple[Array, ...] = () if how.zero else (x,)
    kind = value_type(dtype)
    value: tuple[str, ...] = (f"{kind} v = {constant(dtype, 0)};",)
    if inputs:
        made = {"": "v0", "square": multiplied(dtype, "v0", "v0"), "abs": operated("abs", dtype, "v0")}[before]
        value = (loaded(0, x.dtype, dtype), f"{kind} v = {made};")
    after: list[str] = []
    if how.reduction == "mean":
        divided = f"make_{'c64' if dtype == 'complex64' else 'c128'}(v.re / {float(count)!r}, v.im / {float(count)!r})"
        after = [f"v = {divided if dtype.startswith('complex') else f'v / ({kind}){float(count)!r}'};"]
    elif how.reduction == "norm2":
        after = [f"v = {operated('sqrt', dtype, 'v')};"]
    builder.run(
        Task(
            inputs=inputs,
            finals=finish.finals,
            output=builder.target,
            kept=how.output,
            reduced=() if how.zero else reduced,
            dtype=dtype,
            value=value,
            reduction=reduction,
            finish=(*after, *finish.statements(len(inputs), builder.target, dtype)),
            scalars=finish.scalars,
            updated=finish.updated,
        )
    )
    builder.notes.append("a kernel")
    return builder.built()


def build_elementwise(spec: PlanSpec[ElementwiseAttributes], context: CudaContext) -> Built:
    """Build ``tensor.elementwise``: one kernel, and another for zeros around the result.  Waits for the compiler."""
    if math.prod(spec.operands[-1].shape) == 0:
        return Built("noop")
    route, line = tuned_route(spec, context, build_elementwise)
    return replace(_elementwise(_routed(spec, route), context), tuning=line)


def _elementwise(spec: PlanSpec[ElementwiseAttributes], context: CudaContext) -> Built:
    how = spec.attributes
    builder = Builder(spec, context, how.inputs, how.output, how.padding)
    whole = builder.target
    inside = whole
    if builder.output != how.output:
        builder.map(whole, whole, builder.output, copied(whole.dtype), Finish(zero=True))
        before = sum(step * pad for step, (pad, _) in zip(whole.along(builder.output), how.padding, strict=True))
        inside = replace(whole, modes=how.output, strides=whole.along(builder.output), offset=before)
        builder.notes.append("a kernel for zeros")

    def by_kernel() -> None:
        builder.run(_elementwise_task(builder, how, inside))

    if 0 not in builder.extents and not (how.route == "cutensor" and elementwise(builder, how, inside, by_kernel)):
        by_kernel()
        builder.notes.append("a kernel")
    return builder.built()


def _elementwise_task(builder: Builder, how: ElementwiseAttributes, inside: Array) -> Task:
    """Return the kernel of an elementwise operation."""
    dtype = how.dtype
    values, lines = [], []
    inputs = tuple(x for x, zero in zip(builder.inputs, how.zero, strict=True) if not zero)
    parts = 2 if dtype.startswith("complex") else 1
    number = 0
    for i, zero in enumerate(how.zero):
        if zero:
            values.append(constant(dtype, 0))
            continue
        lines.append(loaded(number, inputs[number].dtype, dtype))
        if not builder.spec.scalars:  # of a plan that is measured
            values.append(f"({operated(how.unary[i], dtype, f'v{number}')})")
            number += 1
            continue
        factor = factored(dtype, i * parts, i * parts + 1)
        lines.append(f"const {value_type(dtype)} f{number} = {factor};")
        made = scaled(dtype, operated(how.unary[i], dtype, f"v{number}"), f"f{number}")
        lines.append(f"const {value_type(dtype)} u{number} = {made};")
        values.append(f"u{number}")
        number += 1
    made = values[0]
    for i, value in enumerate(values[1:]):
        lines.append(f"const {value_type(dtype)} w{i} = {multiplied(dtype, made, value, how.binary[i])};")
        made = f"w{i}"
        if i == 0 and len(values) == 3:
            lines.append(f"const {value_type(dtype)} g = {operated(how.unary[3], dtype, 'w0')};")
            made = "g"
    lines.append(f"const {value_type(dtype)} v = {made};")
    return Task(inputs, (), inside, how.output, (), dtype, tuple(lines), scalars=builder.spec.scalars)
