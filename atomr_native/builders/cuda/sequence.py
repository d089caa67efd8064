"""Plans of several steps, which share one message and one lane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

__all__ = ["SequenceProgram", "Source", "Step"]

#: Where an operand or scalar of a step comes from: ``("operand", i)`` and ``("scalar", j)`` of the message;
#: ``("workspace", byte)`` an address in the plan's workspace; ``("constant", word)`` a 64-bit word, for an operand an
#: address in device memory that lives as long as the plan; ``("info", byte)`` an address where the device writes the
#: info words of the message, in host memory; ``("lane", 0)`` a scalar, the number of the message's lane.
Source = tuple[Literal["operand", "scalar", "workspace", "constant", "info", "lane"], int]


@dataclass(frozen=True, slots=True)
class Step:
    """One native run of a sequence.

    Attributes
    ----------
    run : Any
        A `KernelProgram` or a `NativeRun`.
    operands, scalars : tuple of Source
        Its operands and scalars, in its own order.
    when : str
        ``"always"``; ``"zero"``: for messages with a factor of 0; ``"nonzero"``: for all others.
    factors : tuple of tuple of int
        These factors: a scalar of the message each, or two for a complex one.
    offsets : tuple of int
        Bytes from the address of each operand to where the step takes it to begin; empty: none.
    alignment : int
        0, or a power of two: the step is for messages all of whose operands start at its multiples.
    apart : bool
        Whether it is for all other messages instead.
    """

    run: Any
    operands: tuple[Source, ...]
    scalars: tuple[Source, ...] = ()
    when: Literal["always", "zero", "nonzero"] = "always"
    factors: tuple[tuple[int, ...], ...] = ()
    offsets: tuple[int, ...] = ()
    alignment: int = 0
    apart: bool = False


@dataclass(frozen=True, slots=True)
class SequenceProgram:
    """Steps to be enqueued in order.

    Attributes
    ----------
    steps : tuple of Step
    workspace : int
        Bytes of device memory, aligned to 256, that belong to the plan while it runs.
    notes : tuple of str
        The parts that are not computed in one call of the library, and why.
    """

    kind: ClassVar[Literal["sequence"]] = "sequence"  # for `CudaBackend`

    steps: tuple[Step, ...]
    workspace: int = 0
    notes: tuple[str, ...] = ()
