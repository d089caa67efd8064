"""The parts of a sequence's workspace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from ...errors import Unsupported
from .sequence import SequenceProgram, Source, Step

__all__ = ["Layout", "beyond_limit", "padded"]

_ALIGNMENT: Final = 256


def beyond_limit(op: str, purpose: str, nbytes: int, limit: int, advice: str = "") -> Unsupported:
    """Return the error of an operation that needs more workspace than its limit.

    Parameters
    ----------
    op
        The operation; its library names the rule, ``"blas_lt.workspace_limit"``.
    purpose
        What needs the workspace, in the singular.
    nbytes, limit
        Bytes that it needs, and that it may have.
    advice
        Another remedy than a higher limit.
    """
    return Unsupported(
        f"{purpose} needs {nbytes} bytes of workspace, and the limit is {limit}; raise System(workspace_limit=)"
        f"{advice and f', or {advice}'}",
        rule=f"{op.partition('.')[0]}.workspace_limit",
        lifted_by=("workspace_limit", "shape"),
    )


def padded(nbytes: int) -> int:
    """Return the bytes of a workspace's part, so that the next part is aligned."""
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


class Layout:
    """The workspace of a sequence with one call of a library: the call's own part comes first.

    Parameters
    ----------
    limit
        Bytes that the sequence may use.
    op
        The operation that is built.
    advice
        A remedy where the limit is too low, besides a higher one.
    """

    def __init__(self, limit: int, op: str, advice: str = "") -> None:
        self.limit = limit
        self._op, self._advice = op, advice
        self._parts: list[tuple[int, bool]] = []

    def left(self, reserved: int = 0) -> int:
        """Return the bytes that are left for the call of the library, with `reserved` bytes for parts to come."""
        taken = padded(reserved) + sum(size for size, later in self._parts if not later)
        if taken > self.limit:
            raise self._too_small(taken)
        return self.limit - taken

    def _too_small(self, nbytes: int) -> Unsupported:
        return beyond_limit(self._op, f"{self._op} in steps", nbytes, self.limit, self._advice)

    def take(self, nbytes: int, *, later: bool = False) -> Source:
        """Return a part, whose offset `place` sets.  A part for `later` reuses the memory of the library's call."""
        self._parts.append((padded(nbytes), later))
        return ("workspace", len(self._parts) - 1)

    def place(self, steps: Iterable[Step], first: int, notes: tuple[str, ...]) -> SequenceProgram:
        """Return the sequence with the offsets of its parts, after `first` bytes for the library's call."""
        offsets, after = [], 0
        at = max(padded(first), sum(size for size, later in self._parts if later))
        for size, later in self._parts:
            offsets.append(after if later else at)
            after, at = (after + size, at) if later else (after, at + size)
        if at > self.limit:
            raise self._too_small(at)

        def placed(source: Source) -> Source:
            return ("workspace", offsets[source[1]]) if source[0] == "workspace" else source

        moved = tuple(replace(step, operands=tuple(map(placed, step.operands))) for step in steps)
        return SequenceProgram(moved, at, notes)
