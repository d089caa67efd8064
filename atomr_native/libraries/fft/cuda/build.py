"""From a plan specification of ``fft.transform`` to calls of cuFFT and kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from ...._lib import cufft
from ...._lib.cufft import CONSTANTS, Transform
from ....builders.context import Built
from ....builders.cuda.codegen import alignment, kernels
from ....builders.cuda.context import CudaContext, library_file
from ....builders.cuda.native import NativeStruct
from ....builders.cuda.routes import Refusal, Refusals
from ....builders.cuda.sequence import SequenceProgram, Step
from ....builders.cuda.target import Target
from ....builders.cuda.workspace import beyond_limit, padded
from ....dtypes import as_dtype
from ....errors import LibraryError, Unsupported
from ....plans.spec import PlanSpec
from ..attributes import FftAttributes, MappedAttributes
from .callbacks import callbacks_of, parameter_step
from .functions import apply_step
from .line_axes import plan_axes
from .line_steps import lines_step, plan_lines
from .line_types import Lines
from .linked import plan_linked
from .mapped import lines_mapped, plan_mapped, ways
from .moves import move_kernel
from .planner import plan_steps
from .sources import source_step
from .steps import Apply, Array, Call, Custom, Move, Steps, operand

__all__ = [
    "TransformDescription", "build_mapped", "build_transform", "built_steps", "describe_call", "first_built",
]  # fmt: skip

#: Bytes of a result from which on cuFFT's kernels multiply by the factor: linking them takes the time of many passes.
_LEAST: Final = 1 << 20
_COMPILERS: Final = ("nvrtc", "nvjitlink")
_NARROW: Final = {"float16": "16F", "bfloat16": "16BF"}
_TYPES: Final = {"float32": "R_32F", "float64": "R_64F", "complex64": "C_32F", "complex128": "C_64F"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformDescription(NativeStruct):
    """A plan of cuFFT with the members of ``atomr_fft_spec``, see ``cython/libraries/cufft/plan.h``."""

    rank: int
    n: tuple[int, ...]
    embed_in: tuple[int, ...]
    stride_in: int
    dist_in: int
    embed_out: tuple[int, ...]
    stride_out: int
    dist_out: int
    batch: int
    type_in: int
    type_out: int
    type_exec: int
    direction: int
    loop: tuple[int, ...]
    step_in: tuple[int, ...]
    step_out: tuple[int, ...]
    input: int
    output: int
    n_operands: int
    alignment: int
    scratch: int


def _type(array: Array, narrow: str) -> int:
    if narrow:
        return CONSTANTS[f"CUDA_{'R' if array.dtype == narrow else 'C'}_{_NARROW[narrow]}"]
    return CONSTANTS[f"CUDA_{_TYPES[array.dtype]}"]


def describe_call(call: Call, scratch: int) -> TransformDescription:
    """Return the plan of a call; its work area begins at byte `scratch` of the workspace."""
    layout = call.layout
    rank = len(layout.lengths)
    whole = call.target if call.narrow or not call.source.dtype.startswith("complex") else call.source
    loops = (*layout.loops, *([(1, 0, 0)] * (2 - len(layout.loops))))

    def three(values: tuple[int, ...]) -> tuple[int, ...]:
        return (*values, *([1] * (3 - rank)))

    return TransformDescription(
        rank=rank,
        n=three(layout.lengths),
        embed_in=three(layout.embed[0]),
        stride_in=layout.stride[0],
        dist_in=layout.dist[0],
        embed_out=three(layout.embed[1]),
        stride_out=layout.stride[1],
        dist_out=layout.dist[1],
        batch=layout.batch,
        type_in=_type(call.source, call.narrow),
        type_out=_type(call.target, call.narrow),
        type_exec=_type(whole, call.narrow),
        direction=CONSTANTS["CUFFT_INVERSE" if call.inverse else "CUFFT_FORWARD"],
        loop=tuple(n for n, *_ in loops),
        step_in=tuple(step for _, step, _ in loops),
        step_out=tuple(step for *_, step in loops),
        input=0,
        output=1,
        n_operands=2,
        alignment=as_dtype(whole.dtype).itemsize,
        scratch=scratch,
    )


def _program(steps: Steps, spec: PlanSpec[Any], context: CudaContext) -> SequenceProgram:
    """Return the steps as native runs, on the message's operands and parts of the workspace."""
    target, made, most = context.target, [], 0
    for step in steps.steps:
        if isinstance(step, Apply):
            sources = [which for which, *_ in getattr(spec.attributes, "sources", ())]
            made.append((source_step if step.which in sources else apply_step)(step, spec, target))
            continue
        if isinstance(step, Lines):
            made.append(lines_step(step, spec, target))
            continue
        run: Any
        if isinstance(step, Call):
            description = describe_call(step, padded(steps.nbytes))
            run = Transform(context.backend, description, callbacks_of(step, spec, target))
            most = max(most, run.workspace)
            if step.callbacks or any(function.block for function in step.linked):
                made.append(parameter_step(spec, run.parameters, target))
        else:
            run = _kernel(step, target)
        arrays = (step.source,) if isinstance(step, Move) and step.source == step.target else (step.source, step.target)
        others = step.others if isinstance(step, Custom) else ()
        made.append(Step(run, tuple(array.source for array in (*arrays, *others))))
    return SequenceProgram(tuple(made), max(most, padded(steps.nbytes)), steps.notes)


def build_transform(spec: PlanSpec[FftAttributes], context: CudaContext) -> Built:
    """Build ``fft.transform``: operands ``x, out``.  Waits for cuFFT, and for the compiler where there are copies.

    Raises
    ------
    Unsupported
        Without cuFFT, for what it refuses, and for more workspace than the limit.
    OutOfMemory
        If the device has no memory for the tables of cuFFT.
    """
    if math.prod(spec.operands[1].shape) == 0:
        return Built("noop")
    apart = plan_steps(spec)
    linked = [("functions of copies and factors", plan_linked(spec))]
    return first_built(linked, apart, spec, context, lines_transform(spec, apart))


def lines_transform(spec: PlanSpec[FftAttributes], apart: Steps) -> Steps | None:
    """Return the transform, or its first or last axis, by one kernel, where it is not one call of cuFFT."""
    reason = apart.reason
    if not reason:
        return None
    x, out = (operand(i, o) for i, o in enumerate(spec.operands))
    how = spec.attributes
    return plan_lines(how, x, out, reason=reason) or plan_axes(how, x, out, reason)


def first_built(
    linked: Sequence[tuple[str, Steps]],
    apart: Steps,
    spec: PlanSpec[Any],
    context: CudaContext,
    lines: Steps | None = None,
) -> Built:
    """Build by one kernel if there is one, by the first steps of which cuFFT takes the functions, or by the last.

    These have no functions, and errors are theirs.  So are plans of small results, which compiling would hold up for
    longer than it saves.
    """
    out = spec.operands[-1]
    if math.prod(out.shape) * as_dtype(out.dtype).itemsize < _LEAST:
        return built_steps(spec, apart, context)
    found = [("one kernel", lines)] if lines is not None else []
    found += [(name, steps) for name, steps in linked if steps.calls]
    ways = [(name, partial(_planned, steps)) for name, steps in (*found, ("copies", apart))]
    return _first(ways, spec, context)


def _planned(steps: Steps) -> Steps:
    return steps


def build_mapped(spec: PlanSpec[MappedAttributes], context: CudaContext) -> Built:
    """Build ``fft.mapped``: operands x, those of the functions, and out; errors as `build_transform`."""
    if math.prod(spec.operands[-1].shape) == 0:
        return Built("noop")
    how = spec.attributes
    given = {*(which for which, _ in how.callbacks), *(which for which, *_ in how.sources)}
    reason = (Refusal("callbacks", how.apart),) if how.apart else ()
    possible = [fused for fused in ways(spec) if fused <= given]
    named = [(" and ".join(sorted(fused)), partial(plan_mapped, spec, fused)) for fused in possible]
    lines = lines_mapped(spec) if possible[0] == next(ways(spec)) else None
    named = [("one kernel", partial(_planned, lines)), *named] if lines is not None else named
    return _first(named, spec, context, reason)


def _first(
    ways: Sequence[tuple[str, Callable[[], Steps]]],
    spec: PlanSpec[Any],
    context: CudaContext,
    refused: Refusals = (),
) -> Built:
    """Build by the first way that cuFFT and the compilers take; errors of the last, without callbacks, are the plan's.

    The reasons against the others are notes.
    """
    for name, plan in ways[:-1]:
        try:
            built = built_steps(spec, plan(), context)
        except (Unsupported, LibraryError) as error:
            if not (error.rule == "fft.callback" if isinstance(error, Unsupported) else error.lib in _COMPILERS):
                raise
            refused = (*refused, Refusal(name, error.message.splitlines()[0]))
            continue
        return replace(built, notes=(*built.notes, *_reasons(refused)))
    built = built_steps(spec, ways[-1][1](), context)
    return replace(built, notes=(*built.notes, *_reasons(refused)))


def _reasons(refused: Refusals) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"not inside cuFFT's kernels: {refusal.message}" for refusal in refused))


def _kernel(step: Move | Custom, target: Target) -> Any:
    """Compile the kernel of a step.  Waits for the compiler."""
    if isinstance(step, Move):
        return move_kernel(step, target)
    arrays = (step.source, step.target, *step.others)
    alignments = [alignment(array.dtype) for array in arrays]
    return kernels(
        step.code, [step.launch], target, dtypes={array.dtype for array in arrays}, alignments=alignments
    ).run


def built_steps(spec: PlanSpec[Any], steps: Steps, context: CudaContext) -> Built:
    """Return the steps as the run of a plan; errors as `build_transform`."""
    if steps.nbytes > context.workspace_limit:
        raise beyond_limit(spec.op, "a transform with copies", steps.nbytes, context.workspace_limit)
    cufft.load(library_file("cufft"))
    program = _program(steps, spec, context)
    if program.workspace > context.workspace_limit:
        raise beyond_limit(spec.op, "a transform", program.workspace, context.workspace_limit)
    only: Any = program.steps[0].run
    if len(program.steps) == 1 and isinstance(only, Transform):
        return Built(only, program.workspace, program.notes)
    return Built(program, program.workspace, program.notes)
