"""The workspace of a sequence of steps: buffers that are used at different times share memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from ....builders.cuda.sequence import SequenceProgram, Source, Step
from ....builders.cuda.workspace import beyond_limit, padded

__all__ = ["Scratch"]


@dataclass(slots=True)
class _Buffer:
    nbytes: int
    first: int = -1
    last: int = -1


class Scratch:
    """Steps in order, and the buffers between them.

    Parameters
    ----------
    op : str
        The operation that is built.
    limit : int
        Bytes of the workspace.
    """

    def __init__(self, op: str, limit: int) -> None:
        self.op, self.limit = op, limit
        self.steps: list[Step] = []
        self.own = 0  # bytes that calls of libraries need for themselves, at the start of the workspace
        self._buffers: list[_Buffer] = []
        self._when: tuple[Any, tuple[tuple[int, ...], ...]] = ("always", ())

    def take(self, nbytes: int) -> int:
        """Return the number of a new buffer."""
        self._buffers.append(_Buffer(padded(max(nbytes, 1))))
        return len(self._buffers) - 1

    def add(
        self, run: object, operands: tuple[Source, ...], scalars: tuple[Source, ...] = (), own: int = 0,
        offsets: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        """Add a step; buffers among its operands are numbers yet.  Its operands begin `offsets` bytes behind these."""
        self.own = max(self.own, own)
        self.steps.append(Step(run, operands, scalars, *self._when, offsets=offsets))

    @contextmanager
    def only(self, when: Literal["zero", "nonzero"], factors: tuple[tuple[int, ...], ...]) -> Iterator[None]:
        """Have the steps that are added meanwhile run for messages with a factor of 0, or for all others."""
        self._when = (when, factors)
        yield
        self._when = ("always", ())

    def align(self, first: int, alignment: int, *, apart: bool) -> None:
        """Have the steps from `first` on run for messages whose operands start at multiples, or for all others."""
        self.steps[first:] = [replace(step, alignment=alignment, apart=apart) for step in self.steps[first:]]

    def _placed(self) -> tuple[list[int], int]:
        """Return the offsets of the buffers, large ones first and each as low as it fits, and the workspace's bytes."""
        offsets = [0] * len(self._buffers)
        for at, step in enumerate(self.steps):
            for kind, number in step.operands:
                if kind == "workspace":
                    buffer = self._buffers[number]
                    buffer.first = at if buffer.first < 0 else buffer.first
                    buffer.last = at
        done: list[int] = []
        start = padded(self.own)
        end = start if self.own else 0
        for number in sorted(range(len(offsets)), key=lambda i: -self._buffers[i].nbytes):
            buffer = self._buffers[number]
            if buffer.first < 0:
                continue
            at = start
            for other in sorted(done, key=lambda i: offsets[i]):
                taken = self._buffers[other]
                together = taken.first <= buffer.last and buffer.first <= taken.last
                if together and at < offsets[other] + taken.nbytes and offsets[other] < at + buffer.nbytes:
                    at = offsets[other] + taken.nbytes
            offsets[number] = at
            done.append(number)
            end = max(end, at + buffer.nbytes)
        return offsets, end

    def program(self, notes: tuple[str, ...]) -> SequenceProgram:
        """Return the sequence with its buffers in place.

        Raises
        ------
        Unsupported
            If they do not fit the limit.
        """
        offsets, nbytes = self._placed()
        if nbytes > self.limit:
            raise beyond_limit(self.op, self.op, nbytes, self.limit, "set memory_limit=, which slices modes")

        def placed(source: Source) -> Source:
            return ("workspace", offsets[source[1]]) if source[0] == "workspace" else source

        moved = tuple(replace(step, operands=tuple(map(placed, step.operands))) for step in self.steps)
        return SequenceProgram(moved, nbytes, notes)
