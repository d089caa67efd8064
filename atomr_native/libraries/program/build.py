"""The builder of recorded programs, the same on every kind of device."""

from __future__ import annotations

from typing import Any, cast

from ...builders.context import Built
from ...builders.program import ProgramRun, ProgramStep, late_failures
from ...dtypes import as_dtype
from ...errors import InvalidRequest, Unsupported
from ...plans.spec import PlanSpec
from .. import builder
from .attributes import ProgramAttributes

__all__ = ["build_program"]

_GRAPH = (
    "launched step by step by the first message, captured into a CUDA graph by the second, and launched from the graph "
    "by later ones; a message with other addresses or numbers captures its launches again, and updates the graph in "
    "place"
)
_STEPWISE = "launched step by step, not as a CUDA graph: {} reports failures by a word that differs for each message"


def build_program(spec: PlanSpec[ProgramAttributes], context: Any) -> Built:
    """Build ``program.replay``: the plans of its steps, once for each specification.

    Raises
    ------
    Unsupported, LibraryError
        For a step that cannot be built; the message names it.
    """
    attributes = spec.attributes
    built = [_build(nested.spec, context) for nested in attributes.specs]
    steps = []
    for number, step in enumerate(attributes.steps):
        if step.spec >= len(attributes.specs):
            raise InvalidRequest(f"step {number} has plan {step.spec}; allowed: less than {len(attributes.specs)}")
        nested = attributes.specs[step.spec].spec
        words = [word for given, word in step.scalars if given]
        if len(step.scalars) != len(nested.scalars) or any(not 0 <= word < len(spec.scalars) for word in words):
            raise InvalidRequest(
                f"step {number} has scalars {step.scalars}; allowed: {len(nested.scalars)}, words or numbers of the "
                f"program's {len(spec.scalars)}"
            )
        if any(at >= len(spec.operands) for at, _ in step.operands) or len(step.operands) != len(nested.operands):
            raise InvalidRequest(
                f"step {number} has operands {step.operands}; allowed: {len(nested.operands)} of the program's "
                f"{len(spec.operands)}"
            )
        steps.append(
            ProgramStep(
                step.spec,
                built[step.spec].run,
                nested.op,
                tuple((as_dtype(o.dtype), o.shape, o.strides) for o in nested.operands),
                nested.scalars,
                step.operands,
                step.scalars,
            )
        )
    late = [step for step in steps if late_failures(step.run)]
    if len(late) > 1 and context.kind == "cuda":
        raise Unsupported(
            f"a program with {len(late)} messages that fail only when their work is done "
            f"({', '.join(step.name for step in late)}); allowed on a GPU: one",
            rule="program.one_late_failure",
        )
    notes = [
        f"{nested.spec.op}: {note}" for nested, one in zip(attributes.specs, built, strict=True) for note in one.notes
    ]
    if context.kind == "cuda":
        notes.append(_STEPWISE.format(late[0].name) if late else _GRAPH)
    workspace = max((one.workspace for one in built), default=0)
    run = ProgramRun(tuple(steps), len(spec.operands), len(spec.scalars), workspace, not late)
    return Built(run, workspace, tuple(notes))


def _build(spec: PlanSpec, context: Any) -> Built:
    if context.special is not None and (made := context.special(spec)) is not None:
        return cast("Built", made)
    found = builder(spec.op, context.kind)
    if found is None:
        raise Unsupported(f"operation {spec.op!r} cannot be recorded: it is unknown on a {context.kind} device")
    built: Built = found(spec, context)
    return built
