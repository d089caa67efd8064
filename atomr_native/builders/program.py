"""Programs: plans whose one message runs the messages of other plans, on every kind of device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

__all__ = ["ProgramRun", "ProgramStep", "late_failures"]


def late_failures(run: Any) -> int:
    """Return how many info words a run of a GPU reports failures by, after its work is done."""
    kind = getattr(run, "kind", "")
    if kind == "kernels":
        return int(run.info is not None)
    if kind == "sequence":
        return sum(late_failures(step.run) for step in run.steps)
    return int(getattr(run, "late_failures", 0))


@dataclass(frozen=True, slots=True)
class ProgramStep:
    """One message of a program.

    Attributes
    ----------
    number : int
        Equal for steps with the same run.
    run : Any
        As `Built.run`.
    name : str
        Its operation.
    layouts : tuple of (dtype, shape, strides)
        Of its operands, for runs in Python.
    kinds : tuple of str
        Of its scalars.
    operands : tuple of (int, int)
        Operand of the message, and bytes from its address, for each operand.
    scalars : tuple of (bool, int)
        The number of a scalar of the message (True), or a 64-bit word, for each scalar.
    """

    number: int
    run: Any
    name: str
    layouts: tuple[tuple[Any, tuple[int, ...], tuple[int, ...]], ...]
    kinds: tuple[str, ...]
    operands: tuple[tuple[int, int], ...]
    scalars: tuple[tuple[bool, int], ...]


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """Steps to be run in order.

    Attributes
    ----------
    steps : tuple of ProgramStep
    n_operands, n_scalars : int
        Of the message.
    workspace : int
        Bytes of workspace that the steps use, one after the other.
    captures : bool
        Whether a GPU may run it as a CUDA graph.
    """

    kind: ClassVar[Literal["program"]] = "program"  # for the lanes

    steps: tuple[ProgramStep, ...]
    n_operands: int
    n_scalars: int
    workspace: int = 0
    captures: bool = True
