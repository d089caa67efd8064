"""Programs: plans whose one message runs the messages of other plans, on every kind of device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

__all__ = ["Control", "ProgramRun", "ProgramStep", "captures", "late_failures", "sets_alone"]


def captures(run: Any) -> bool:
    """Return whether a CUDA graph may have the launches of a run of a GPU."""
    if getattr(run, "kind", "") == "sequence":
        return all(captures(step.run) for step in run.steps)
    return bool(getattr(run, "captures", True))


def late_failures(run: Any) -> int:
    """Return how many info words a run of a GPU reports failures by, after its work is done."""
    kind = getattr(run, "kind", "")
    if kind == "kernels":
        return int(run.info is not None)
    if kind == "sequence":
        return sum(late_failures(step.run) for step in run.steps)
    return int(getattr(run, "late_failures", 0))


def sets_alone(run: Any) -> bool:
    """Return whether a run of a GPU is one launch, whose parameters can be set in a graph: `atomr_cuda_sets_alone`."""
    kernels = getattr(run, "kind", "") == "kernels"
    return kernels and len(run.launches) == 1 and run.report < 0 and not run.sets and run.info is None


@dataclass(frozen=True, slots=True)
class ProgramStep:
    """One message of a program, or control flow.

    Attributes
    ----------
    number : int
        Equal for steps with the same run.
    run : Any
        As `Built.run`; None for control flow.
    name : str
        Its operation.
    layouts : tuple of (dtype, shape, strides)
        Of its operands, for runs in Python.
    kinds : tuple of str
        Of its scalars.
    operands : tuple of (int, int)
        Operand of the message, and bytes from its address, for each operand.  Control flow has one, the integer that
        decides.
    scalars : tuple of (bool, int)
        The number of a scalar of the message (True), or a 64-bit word, for each scalar.
    after : tuple of int
        The steps of the same body that it depends on.
    workspace : int
        From which byte of the workspace on it may use it.
    control : Control, optional
    late : int
        Its place, from 1, among those that may fail when their work is done; 0: it is none.
    """

    number: int
    run: Any
    name: str
    layouts: tuple[tuple[Any, tuple[int, ...], tuple[int, ...]], ...]
    kinds: tuple[str, ...]
    operands: tuple[tuple[int, int], ...]
    scalars: tuple[tuple[bool, int], ...]
    after: tuple[int, ...] = ()
    workspace: int = 0
    control: Control | None = None
    late: int = 0


@dataclass(frozen=True, slots=True)
class Control:
    """What a step of control flow does; see `ControlAttributes`.

    Attributes
    ----------
    kind : str
        ``"if"``, ``"while"`` or ``"switch"``.
    bodies : tuple of int
        How many steps each has.
    width : int
        Bytes of the integer that decides.
    signed : bool
    limit : int
    """

    kind: Literal["if", "while", "switch"]
    bodies: tuple[int, ...]
    width: int
    signed: bool
    limit: int


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """Steps to be run in order.

    Attributes
    ----------
    steps : tuple of ProgramStep
    n_operands, n_scalars : int
        Of the message.
    workspace : int
        Bytes of workspace that the steps and the counts of loops use.
    captures : bool
        Whether a GPU may run it as a CUDA graph.
    conditions : KernelProgram, optional
        What decides about control flow on a GPU.
    loops_at : int
        The byte of the workspace from which on loops count.
    """

    kind: ClassVar[Literal["program"]] = "program"  # for the lanes

    steps: tuple[ProgramStep, ...]
    n_operands: int
    n_scalars: int
    workspace: int = 0
    captures: bool = True
    conditions: Any = None
    loops_at: int = 0
