"""What of a workspace each step of a sequence has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...errors import Unsupported
from .sequence import SequenceProgram, Source, Step

__all__ = ["Layout"]

_ALIGNMENT: Final = 256


class Layout:
    """The workspace of a program: what its matmul needs comes first."""

    def __init__(self, limit: int) -> None:
        self.parts: list[tuple[int, bool]] = []
        self.limit = limit

    def left(self) -> int:
        """Return the bytes that a matmul may have."""
        taken = sum(size for size, later in self.parts if not later)
        if taken > self.limit:
            raise Unsupported(self.says(taken))
        return self.limit - taken

    def says(self, nbytes: int) -> str:
        """Return the refusal of so many bytes."""
        return (
            f"products and copies in the workspace need {nbytes} bytes of it, and the limit is {self.limit}; raise "
            f"System(workspace_limit=), or split the matmul along M or N"
        )

    def take(self, nbytes: int, *, later: bool = False) -> Source:
        """Return a part; offsets follow from `place`.  One for `later` lies where the matmul has had its workspace."""
        self.parts.append((-(-nbytes // _ALIGNMENT) * _ALIGNMENT, later))
        return ("workspace", len(self.parts) - 1)

    def place(self, steps: Iterable[Step], first: int, notes: tuple[str, ...]) -> SequenceProgram:
        """Return the program with offsets for parts, after `first` bytes."""
        offsets, after = [], 0
        at = max(-(-first // _ALIGNMENT) * _ALIGNMENT, sum(size for size, later in self.parts if later))
        for size, later in self.parts:
            offsets.append(after if later else at)
            after, at = (after + size, at) if later else (after, at + size)
        if at > self.limit:
            raise Unsupported(self.says(at))
        placed = tuple(
            Step(
                step.run,
                tuple(
                    ("workspace", offsets[value]) if kind == "workspace" else (kind, value)
                    for kind, value in step.operands
                ),
                step.scalars,
            )
            for step in steps
        )
        return SequenceProgram(placed, at, notes)
