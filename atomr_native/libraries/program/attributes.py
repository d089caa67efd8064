"""Attributes of recorded programs in plan specifications."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from ...plans.spec import Attributes, NestedSpec

__all__ = ["ProgramAttributes", "StepAttributes"]

_Index = Annotated[int, Meta(ge=0)]


class StepAttributes(Struct, frozen=True, forbid_unknown_fields=True):
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
        The steps that it depends on by data.
    """

    spec: _Index
    operands: tuple[tuple[_Index, int], ...]
    scalars: tuple[tuple[bool, int], ...]
    after: tuple[_Index, ...]


class ProgramAttributes(Attributes, frozen=True):
    """Of ``program.replay``.

    Attributes
    ----------
    specs : tuple of NestedSpec
        The plans of its steps.
    steps : tuple of StepAttributes
        In the order of the recording.
    """

    specs: tuple[NestedSpec, ...]
    steps: tuple[StepAttributes, ...]
