"""The builder of recorded programs, the same on every kind of device."""

from __future__ import annotations

from typing import Any, cast

from ...builders.context import Built
from ...builders.program import Control, ProgramRun, ProgramStep, captures, late_failures, sets_alone
from ...dtypes import as_dtype
from ...errors import InvalidRequest, Unsupported
from ...plans.spec import PlanSpec
from .. import builder
from .attributes import MAX_BODIES, ControlAttributes, ProgramAttributes, StepAttributes
from .branches import Workspaces, assign, check_driver, count_branches, shared

__all__ = ["build_program"]

_GRAPH = (
    "launched step by step by the first message, captured into a CUDA graph by the second, and launched from the graph "
    "by later ones; a message with other addresses or numbers sets the parameters of kernels in place"
)
_AGAIN = "captured again where their addresses or numbers change: {}"
_CONDITIONAL = (
    "launched step by step by the first message, for whose flags the mailbox waits; captured into a CUDA graph with "
    "conditional nodes by the second, and launched from the graph by later ones; a message with other addresses or "
    "numbers sets the parameters of kernels in place, or, where a flag has another address, "
    "captures its launches again and updates the graph"
)
_ALIGNMENT = 256
_LATE = 15  # ATOMR_INFO_STEPS
_STEPWISE = "launched step by step, not as a CUDA graph: {} reports failures by a word that differs for each message"
_OF_RANKS = "launched step by step, not as a CUDA graph: a captured collective would bind all ranks to one graph"
_NOT_CAPTURED = "launched step by step, not as a CUDA graph: {} changes a state of its library's on the host"


def build_program(spec: PlanSpec[ProgramAttributes], context: Any) -> Built:
    """Build ``program.replay``: the plans of its steps, once for each specification.

    Raises
    ------
    Unsupported, LibraryError
        For a step that cannot be built; the message names it.
    """
    attributes = spec.attributes
    built = [_build(nested.spec, context) for nested in attributes.specs]
    cuda = context.kind == "cuda"
    controls = any(isinstance(step, ControlAttributes) for step in attributes.steps)
    if controls and cuda:
        check_driver(context)
    workspaces = assign(attributes, built, context.workspace_limit) if cuda else shared(attributes)
    slots = _late_slots(attributes, built)
    steps = [
        _control(spec, number, step, workspaces.after[number])
        if isinstance(step, ControlAttributes)
        else _message(spec, number, step, built, workspaces, slots[number])
        for number, step in enumerate(attributes.steps)
    ]
    late = [step for step in steps if step.late]
    if max(slots, default=0) > _LATE:
        raise Unsupported(
            f"a program with {max(slots)} messages that fail only when their work is done "
            f"({', '.join(dict.fromkeys(step.name for step in late))}); allowed on a GPU: {_LATE}",
            rule="program.late_failures",
        )
    for number, step in enumerate(steps):
        rounds = step.control is not None and step.control.kind == "while"
        for inside in steps[number + 1 : number + 1 + sum(step.control.bodies)] if rounds and step.control else ():
            if inside.late:
                raise Unsupported(
                    f"a loop with a message that fails only when its work is done ({inside.name}): each round would "
                    f"overwrite its verdict; allowed on a GPU: outside of while_",
                    rule="program.late_failure_in_loop",
                )
    notes = [
        f"{nested.spec.op}: {note}" for nested, one in zip(attributes.specs, built, strict=True) for note in one.notes
    ]
    workspace = max((one.workspace for one in built), default=0) if not cuda else workspaces.nbytes
    conditions, loops_at = None, 0
    alone = [step for step in steps if step.control is None and not captures(step.run)] if cuda else []
    stepwise = bool(late or alone)
    if cuda:
        if alone and "collective" in alone[0].name:
            notes.append(_OF_RANKS)
        elif alone:
            notes.append(_NOT_CAPTURED.format(alone[0].name))
        else:
            notes.append(_STEPWISE.format(late[0].name) if late else _CONDITIONAL if controls else _GRAPH)
        again = dict.fromkeys(step.name for step in steps if step.control is None and not sets_alone(step.run))
        if again and not (stepwise or controls):
            notes.append(_AGAIN.format(", ".join(again)))
        branches = count_branches(attributes, workspaces.after)
        if branches > 1 and not stepwise:
            notes.append(f"up to {branches} steps side by side")
        if controls:
            from ...builders.cuda.conditions import build_conditions

            conditions = build_conditions(context.target)
            loops = sum(isinstance(step, ControlAttributes) and step.kind == "while" for step in attributes.steps)
            loops_at = -(-workspace // _ALIGNMENT) * _ALIGNMENT
            workspace = loops_at + 8 * (1 + loops) if loops else workspace
    run = ProgramRun(tuple(steps), len(spec.operands), len(spec.scalars), workspace, not stepwise, conditions, loops_at)
    return Built(run, workspace, tuple(notes))


def _late_slots(attributes: ProgramAttributes, built: list[Built]) -> list[int]:
    """Return the place, from 1, of each step among those that may fail when their work is done; 0: it is none.

    The collectives of a program are judged together: by the connection that all of them use.
    """
    slots: list[int] = []
    together, last = 0, 0
    for step in attributes.steps:
        run = built[step.spec].run if isinstance(step, StepAttributes) and step.spec < len(built) else None
        if run is None or not late_failures(run):
            slots.append(0)
        elif getattr(run, "judged_together", False):
            last += not together
            together = together or last
            slots.append(together)
        else:
            last += 1
            slots.append(last)
    return slots


def _message(
    spec: PlanSpec[ProgramAttributes],
    number: int,
    step: StepAttributes,
    built: list[Built],
    workspaces: Workspaces,
    late: int,
) -> ProgramStep:
    attributes = spec.attributes
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
    return ProgramStep(
        step.spec,
        built[step.spec].run,
        nested.op,
        tuple((as_dtype(o.dtype), o.shape, o.strides) for o in nested.operands),
        nested.scalars,
        step.operands,
        step.scalars,
        workspaces.after[number],
        workspaces.offsets[number],
        late=late,
    )


def _control(
    spec: PlanSpec[ProgramAttributes], number: int, step: ControlAttributes, after: tuple[int, ...]
) -> ProgramStep:
    counts = {"if": (1, 2), "while": (1, 1)}.get(step.kind, (1, MAX_BODIES))
    steps = len(spec.attributes.steps) - number - 1
    if step.flag[0] >= len(spec.operands) or not counts[0] <= len(step.bodies) <= counts[1] or sum(step.bodies) > steps:
        raise InvalidRequest(
            f"step {number}, {step.kind}, has operand {step.flag} and bodies of {step.bodies} steps; allowed: one of "
            f"the program's {len(spec.operands)} operands, {counts[0]} to {counts[1]} bodies, {steps} steps together"
        )
    dtype = as_dtype(step.dtype)
    control = Control(step.kind, step.bodies, dtype.itemsize, dtype.kind == "i", step.limit)
    return ProgramStep(-1, None, step.kind, (), (), (step.flag,), (), after, 0, control)


def _build(spec: PlanSpec, context: Any) -> Built:
    if context.special is not None and (made := context.special(spec)) is not None:
        return cast("Built", made)
    found = builder(spec.op, context.kind)
    if found is None:
        raise Unsupported(f"operation {spec.op!r} cannot be recorded: it is unknown on a {context.kind} device")
    built: Built = found(spec, context)
    return built
