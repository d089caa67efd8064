"""Plan specifications: what a request module asks a worker to build."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["HOST", "OVERWRITE", "READ", "WRITE", "OperandSpec", "PlanSpec", "signed_word"]

#: The operation reads the operand.
READ = 1
#: The operation writes the operand, or part of it.
WRITE = 2
#: The operation writes every byte of its view and reads none of it (always with `WRITE`).
OVERWRITE = 4
#: The operand is memory that the processor writes too (staging, host arrays): a failure leaves no poison.
HOST = 8


def signed_word(number: int) -> int:
    """Return an integer of 64 bits, signed or not, as messages and specifications have it: signed."""
    return number - 2**64 if number >= 2**63 else number


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """One array of a plan: its structure and how the operation uses it.

    Strides are in bytes, as NumPy's.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    access: int


@dataclass(frozen=True, slots=True)
class PlanSpec:
    """A frozen operation: everything about it except addresses and scalars.

    Two equal specifications name the same native plan, so plans are cached by the whole value.
    `attributes` is a tuple of (name, JSON value) pairs whose values are hashable.
    """

    op: str
    operands: tuple[OperandSpec, ...]
    scalars: tuple[str, ...] = ()
    attributes: tuple[tuple[str, Any], ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Return the form that crosses the control plane."""
        return {
            "op": self.op,
            **dict(self.attributes),
            "operands": [
                {"name": o.name, "dtype": o.dtype, "shape": list(o.shape), "strides": list(o.strides)}
                for o in self.operands
            ],
            "scalars": list(self.scalars),
        }
