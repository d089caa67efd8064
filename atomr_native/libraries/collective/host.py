"""Collectives on host devices: ranks exchange pieces through their staging areas, in rounds.

A recorded program has several collectives in one message, whose rounds follow each other.

In a round each rank writes a piece into its own area, notes that, waits for the others, and reads their areas.  There
are two areas a rank, used in turn: a rank that has passed round k knows that all have read round k - 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

import numpy as np

from ..._lib.seats import PIECE, RankAbsent, Seat
from ...builders.context import Built, HostContext
from ...dtypes import as_dtype
from ...errors import InvalidRequest
from ...plans.spec import PlanSpec
from .attributes import CollectiveAttributes, Step
from .reductions import reduce_into

__all__ = ["build_collective"]

_Array = np.ndarray[Any, Any]


class _Meeting:
    """The rounds of one message.

    Parameters
    ----------
    seat : Seat
    stages : list of list of numpy.ndarray
        The areas, by rank and parity.
    sequence : int
        The number of the message.
    """

    def __init__(self, seat: Seat, stages: list[list[_Array]], sequence: int) -> None:
        self.rank, self.size = seat.rank, seat.size
        self._seat = seat
        self._stages = stages
        self._sequence = sequence

    def exchange(self, write: Callable[[_Array], None]) -> list[_Array]:
        """Have `write` fill this rank's area, then wait; return the areas of all ranks."""
        parity = self._seat.parity(self._sequence)
        write(self._stages[self.rank][parity])
        self._seat.exchange(self._sequence)
        return [pair[parity] for pair in self._stages]


_Move = Callable[[_Meeting, tuple[_Array, ...], tuple[Any, ...]], None]


def _pieces(total: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield (first, last) of pieces of at most `most`."""
    for first in range(0, total, most):
        yield first, min(total, first + most)


def _flat(arrays: tuple[_Array, ...], place: int, dtype: np.dtype[Any] | type) -> _Array | None:
    return None if place < 0 else arrays[place].reshape(-1).view(dtype)


def _spread(step: Step, sources: set[int], readers: set[int]) -> _Move:
    """Make the move in which some ranks show all they have, and some read it: side by side, in the order of ranks."""
    nbytes = step.count * as_dtype(step.dtype).itemsize

    def move(meeting: _Meeting, arrays: tuple[_Array, ...], _: tuple[Any, ...]) -> None:
        x, out = _flat(arrays, step.x, np.uint8), _flat(arrays, step.out, np.uint8)

        def write(area: _Array) -> None:
            if meeting.rank in sources and x is not None:
                area[: last - first] = x[first:last]

        for first, last in _pieces(nbytes, PIECE):
            areas = meeting.exchange(write)
            if meeting.rank in readers and out is not None:
                for at, source in enumerate(sorted(sources)):
                    out[at * nbytes + first : at * nbytes + last] = areas[source][: last - first]

    return move


def _exchange(step: Step, counts: tuple[tuple[int, ...], ...]) -> _Move:
    """Make the move of a number of elements from each rank to each rank."""
    itemsize = as_dtype(step.dtype).itemsize
    nbytes = [[n * itemsize for n in row] for row in counts]
    most = max((max(row) for row in nbytes), default=0)

    def move(meeting: _Meeting, arrays: tuple[_Array, ...], _: tuple[Any, ...]) -> None:
        x, out = _flat(arrays, step.x, np.uint8), _flat(arrays, step.out, np.uint8)
        room = PIECE // meeting.size
        given = [0, *accumulate(nbytes[meeting.rank])]
        taken = [0, *accumulate(row[meeting.rank] for row in nbytes)]

        def write(area: _Array) -> None:
            if x is None:
                return
            for target, n in enumerate(nbytes[meeting.rank]):
                end = min(n, last)
                if end > first:
                    at = given[target]
                    area[target * room : target * room + end - first] = x[at + first : at + end]

        for first, last in _pieces(most, room):
            areas = meeting.exchange(write)
            if out is None:
                continue
            for source in range(meeting.size):
                end = min(nbytes[source][meeting.rank], last)
                if end > first:
                    at, own = taken[source], meeting.rank * room
                    out[at + first : at + end] = areas[source][own : own + end - first]

    return move


def _factor(step: Step, arrays: tuple[_Array, ...], scalars: tuple[Any, ...], dtype: np.dtype[Any]) -> _Array | None:
    """Return this rank's factor as an array of one element; None without one."""
    if step.factor >= 0:
        return arrays[step.factor].reshape(-1)
    return None if step.number < 0 else np.asarray([scalars[step.number]]).astype(dtype)


def _reduce(step: Step, readers: set[int]) -> _Move:
    """Make the move that reduces whole arrays, for some ranks."""
    dtype = as_dtype(step.dtype)

    def move(meeting: _Meeting, arrays: tuple[_Array, ...], scalars: tuple[Any, ...]) -> None:
        x, out = _flat(arrays, step.x, dtype), _flat(arrays, step.out, dtype)
        factor = _factor(step, arrays, scalars, dtype)
        room = PIECE // dtype.itemsize
        head = 0 if factor is None else 1  # it travels before each piece

        def write(area: _Array) -> None:
            typed = area.view(dtype)
            if factor is not None:
                typed[:1] = factor
            if x is not None:
                typed[head : head + last - first] = x[first:last]

        for first, last in _pieces(step.count, room - head):
            areas = [area.view(dtype) for area in meeting.exchange(write)]
            if meeting.rank in readers and out is not None:
                parts = [area[head : head + last - first] for area in areas]
                reduce_into(out[first:last], parts, step.op, None if factor is None else lambda r: areas[r][0])  # noqa: B023

    return move


def _reduce_scatter(step: Step) -> _Move:
    """Make the move that reduces a part of each array for each rank."""
    dtype = as_dtype(step.dtype)

    def move(meeting: _Meeting, arrays: tuple[_Array, ...], scalars: tuple[Any, ...]) -> None:
        x, out = _flat(arrays, step.x, dtype), _flat(arrays, step.out, dtype)
        if x is None or out is None:  # every rank has both
            raise InvalidRequest("a rank of reduce_scatter lacks an operand")
        factor = _factor(step, arrays, scalars, dtype)
        head = 0 if factor is None else 1
        room = (PIECE // dtype.itemsize - head) // meeting.size

        def write(area: _Array) -> None:
            typed = area.view(dtype)
            if factor is not None:
                typed[:1] = factor
            for target in range(meeting.size):
                at, own = head + target * room, target * step.count
                typed[at : at + last - first] = x[own + first : own + last]

        for first, last in _pieces(step.count, room):
            areas = [area.view(dtype) for area in meeting.exchange(write)]
            at = head + meeting.rank * room
            parts = [area[at : at + last - first] for area in areas]
            reduce_into(out[first:last], parts, step.op, None if factor is None else lambda r: areas[r][0])  # noqa: B023

    return move


def _even(step: Step, size: int) -> tuple[tuple[int, ...], ...]:
    """Return the counts of a scatter."""
    return tuple(tuple(step.count if source == step.root else 0 for _ in range(size)) for source in range(size))


def _move(step: Step, size: int) -> _Move | None:
    every, root = set(range(size)), {step.root}
    if step.kind in ("barrier", "connect"):
        return None  # the vote before a message is all that it takes
    if step.kind in ("all_reduce", "reduce"):
        return _reduce(step, every if step.kind == "all_reduce" else root)
    if step.kind == "reduce_scatter":
        return _reduce_scatter(step)
    if step.kind in ("all_gather", "gather"):
        return _spread(step, every, every if step.kind == "all_gather" else root)
    if step.kind in ("broadcast", "send", "copy"):
        return _spread(step, root, every if step.kind == "broadcast" else {step.target})
    if step.kind in ("all_to_all", "scatter"):
        return _exchange(step, step.counts or _even(step, size))
    raise InvalidRequest(f"unknown collective {step.kind!r}")


def build_collective(spec: PlanSpec[CollectiveAttributes], context: HostContext) -> Built:
    """Return the run of a collective message: operands as its steps say, scalars the key and factors."""
    attributes = spec.attributes
    seat = context.meetings.get(attributes.communicator)
    if seat is None:
        raise InvalidRequest(f"communicator {attributes.communicator} is not open in this worker")
    stages = [[np.frombuffer(seat.stage(rank, parity), np.uint8) for parity in (0, 1)] for rank in range(seat.size)]
    moves = [move for step in attributes.steps if (move := _move(step, seat.size)) is not None]

    def run(arrays: tuple[_Array, ...], scalars: tuple[Any, ...]) -> None:
        sequence = scalars[1]
        meeting = _Meeting(seat, stages, sequence)
        try:
            for move in moves:
                move(meeting, arrays, scalars)
        except RankAbsent:
            raise
        except BaseException as error:
            seat.fail(sequence, type(error).__name__, str(error))  # the others wait for this rank
            raise

    return Built(run)
