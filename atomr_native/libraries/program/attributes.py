"""Attributes of recorded programs in plan specifications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, get_args

from msgspec import Meta, Struct

from ...plans.spec import Attributes, NestedSpec

__all__ = [
    "FLAG_TYPES",
    "MAX_BODIES",
    "ControlAttributes",
    "FlagType",
    "ProgramAttributes",
    "StepAttributes",
    "bodies_of",
]

_Index = Annotated[int, Meta(ge=0)]
#: Types of the integers that decide about control flow.
FlagType = Literal["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLAG_TYPES: tuple[str, ...] = get_args(FlagType)
#: Cases that a switch may have.
MAX_BODIES: Final = 1024


class StepAttributes(Struct, frozen=True, forbid_unknown_fields=True, tag="message"):
    """One recorded message.

    Attributes
    ----------
    spec : int
        Its plan, among the program's.
    operands : tuple of (int, int)
        Operand of the program, and bytes from its address, for each operand.
    scalars : tuple of (bool, int)
        The number of a scalar of the program (True), or a 64-bit word, for each scalar.
    after : tuple of int
        The steps of the same body that it depends on by data.
    """

    spec: _Index
    operands: tuple[tuple[_Index, int], ...]
    scalars: tuple[tuple[bool, int], ...]
    after: tuple[_Index, ...]


class ControlAttributes(Struct, frozen=True, forbid_unknown_fields=True, tag="control"):
    """A step that decides which of the steps behind it run.

    Attributes
    ----------
    kind : str
        ``"if"``, with one body or two; ``"while"``, with one; ``"switch"``.
    flag : tuple of (int, int)
        Operand of the program, and bytes from its address, of the integer that decides.
    dtype : str
        Its type.
    bodies : tuple of int
        How many steps each body has, which follow this one in order.
    limit : int
        How often the body of a ``"while"`` may run.
    after : tuple of int
        The steps of the same body that it depends on by data.
    """

    kind: Literal["if", "while", "switch"]
    flag: tuple[_Index, int]
    dtype: FlagType
    bodies: tuple[_Index, ...]
    limit: _Index
    after: tuple[_Index, ...]


class ProgramAttributes(Attributes, frozen=True):
    """Of ``program.replay``.

    Attributes
    ----------
    specs : tuple of NestedSpec
        The plans of its steps.
    steps : tuple of StepAttributes or ControlAttributes
        In the order of the recording.
    """

    specs: tuple[NestedSpec, ...]
    steps: tuple[StepAttributes | ControlAttributes, ...]


def bodies_of(steps: Sequence[Any]) -> list[tuple[int, list[list[int]]]]:
    """Return the steps of each body of a program: first of its own, under -1, then of each control flow's bodies.

    Bodies come after the control flow in which they are; of a step inside a body its own bodies are left out.
    """
    found: list[tuple[int, list[list[int]]]] = []
    pending: list[tuple[int, int, tuple[int, ...]]] = [(-1, 0, (len(steps),))]
    while pending:
        parent, begin, sizes = pending.pop()
        bodies: list[list[int]] = []
        for size in sizes:
            end = begin + size
            bodies.append([])
            while begin < end:
                bodies[-1].append(begin)
                inside = getattr(steps[begin], "bodies", ())
                if inside:
                    pending.append((begin, begin + 1, inside))
                begin += 1 + sum(inside)
        found.append((parent, bodies))
    return found
