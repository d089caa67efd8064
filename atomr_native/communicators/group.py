"""Groups: several collectives in one message a rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lib.guard import Block
from ..arrays.operands import memory_span
from ..errors import InvalidRequest
from .request import Lowered

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..arrays.gpu_ref import GpuRef

__all__ = ["Group", "merged"]


class Group(Block):
    """The calls of one thread inside of ``with comm.group()``.

    Parameters
    ----------
    begin : callable
        Called with the group at its beginning.
    end : callable
        Called with the group at its end, and with whether its calls are sent.
    """

    def __init__(self, begin: Callable[[Group], None], end: Callable[[Group, bool], None]) -> None:
        self._begins, self._ends = begin, end
        self.calls: list[Lowered] = []
        self.refs: list[tuple[GpuRef, ...]] = []

    def _begin(self) -> None:
        self._begins(self)

    def _end(self, kind: type[BaseException] | None, *_: object) -> None:
        self._ends(self, kind is None)

    def add(self, lowered: Lowered, refs: list[tuple[GpuRef, ...]]) -> None:
        """Add a call, with the operands of each rank.

        Raises
        ------
        InvalidRequest
            If it uses what another call writes, or writes what another call uses.
        """
        for rank, mine in enumerate(refs):
            for ref, use in zip(mine, lowered.uses[rank], strict=True):
                self._check(lowered, rank, ref, writes=use.writes)
        self.refs = [a + b for a, b in zip(self.refs, refs, strict=True)] if self.calls else list(refs)
        self.calls.append(lowered)

    def _check(self, lowered: Lowered, rank: int, ref: GpuRef, *, writes: bool) -> None:
        if not self.calls or not ref.size:
            return
        place, first, end = memory_span(ref)
        earlier = [use for call in self.calls for use in call.uses[rank]]
        for use, other in zip(earlier, self.refs[rank], strict=True):
            where, start, stop = memory_span(other)
            if place == where and first < stop and start < end and other.size and (writes or use.writes):
                raise InvalidRequest(
                    f"{lowered.kind}: an array of rank {rank} shares memory with what an earlier call of the group "
                    f"{'writes' if use.writes else 'reads'}; allowed in a group: calls that do not depend on each other"
                )


def merged(group: Group) -> Lowered:
    """Return the calls of a group as one message a rank."""
    first = group.calls[0]
    if len(group.calls) == 1:
        return first
    return Lowered(
        "group",
        first.step,
        [[use for call in group.calls for use in call.uses[rank]] for rank in range(len(first.uses))],
        lambda found: found,
        tuple(number for call in group.calls for number in call.numbers),
        calls=tuple(group.calls),
    )
