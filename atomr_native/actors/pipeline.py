"""A chain of actors, with a bounded number of items in flight."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .._lib.actor_cell import BEYOND, current_cell
from .._lib.guard import TICK, Last, Lock, check, shielded, shielded_service
from .._support.checks import as_integer
from .._support.public import public
from .._support.timeouts import deadline_of
from ..errors import InvalidRequest, MailboxFull
from ..plans.retry import as_retries
from ._retry import Deliver, deliver_to, send_until
from .answer import Answer, bare, open_answer
from .pool import Pool
from .ref import ActorRef

if TYPE_CHECKING:
    from .cell import Cell

__all__ = ["Pipeline"]


class _Place:
    """Room for one item; given back by `leave`, and with its last reference, so that no interrupt can lose it.

    Parameters
    ----------
    granted : Answer
        Resolved when a waiting item has got the room.
    """

    __slots__ = ("_room", "granted")

    def __init__(self, granted: Answer) -> None:
        self.granted = granted
        self._room: Last | None = None

    def enter(self, give: Callable[[], None]) -> None:
        self._room = Last(give)

    @property
    def entered(self) -> bool:
        return self._room is not None

    def leave(self) -> None:
        self._room = None


@public
class Pipeline:
    """Sends each item through several actors: each answer is the message to the next actor.

    With single actors as stages, results come in the order of the items.  An item that fails at a stage ends there, and
    affects no other item.

    Parameters
    ----------
    stages : sequence of ActorRef or Pool
        From first to last.
    in_flight : int
        Maximum number of items in flight; further submissions wait.  Stages accept items in flight regardless of their
        mailboxes' capacity.
    retry : int
        How often a stage gets an item again that has failed there since a device restarted; see `ActorRef.ask`.
    """

    def __init__(self, stages: Sequence[ActorRef | Pool], *, in_flight: int = 8, retry: int = 0) -> None:
        self.stages = tuple(stages) if isinstance(stages, Iterable) else ()
        if not self.stages or not all(isinstance(stage, ActorRef | Pool) for stage in self.stages):
            raise InvalidRequest(f"stages={stages!r}; they must be one or more ActorRefs or Pools")
        if any(isinstance(stage, Pool) and stage.routing == "broadcast" for stage in self.stages):
            raise InvalidRequest("a pool that broadcasts cannot be a stage: it gives several answers")
        self.in_flight = as_integer("in_flight", in_flight, 1, 2**31 - 1)
        self._retries = as_retries(retry)
        self._free = self.in_flight
        self._lock = Lock()
        self._waiting: deque[_Place] = deque()
        self._left: deque[None] = deque()  # room given back, and not yet handed over
        first = self.stages[0]
        self._cell: Cell = (first.head if isinstance(first, Pool) else first).cell

    @property
    def inside(self) -> int:
        """Number of items currently between first and last stage."""
        return self.in_flight - self._free

    def submit(self, item: object) -> Answer:
        """Submit an item; wait for a place up to the System's timeout, except in actors and event loops.

        Returns
        -------
        Answer
            The answer of the last stage; it fails with `MailboxFull` if there was no place.
        """
        may_wait = current_cell() is None and asyncio._get_running_loop() is None
        timeout = self._cell.tree.timeout if may_wait else 0.0
        if self._cell.stepper is not None:  # which runs actors in the thread that waits
            return self._submit(item, timeout)
        return self._submit_shielded(item, timeout)

    def _submit(self, item: object, timeout: float | None) -> Answer:
        answer = self._answer()
        place = self._take()
        if not place.entered:
            try:
                found = self._await_place(place.granted, timeout)
            except BaseException:  # Ctrl-C
                self._withdraw(place)
                raise
            if not found and self._withdraw(place):
                answer.fail(self._full())
                return answer
        self._advance(0, item, answer, place)
        return answer

    @shielded
    def _submit_shielded(self, item: object, timeout: float | None) -> Answer:
        return self._submit(item, timeout)

    @staticmethod
    def _await_place(granted: Answer, timeout: float | None) -> bool:
        end = deadline_of(timeout)
        while True:
            check()
            left = TICK if end is None else min(end - time.monotonic(), TICK)
            if granted.wait(max(left, 0.0)):
                return True
            if left < TICK:
                return False

    async def submit_async(self, item: object) -> Answer:
        """Like `submit`, but await the place."""
        answer = self._answer()
        place = self._take()
        if not place.entered:
            try:
                await asyncio.wait_for(place.granted.settled(), self._cell.tree.timeout)
            except TimeoutError:
                if self._withdraw(place):
                    answer.fail(self._full())
                    return answer
            except BaseException:
                self._withdraw(place)
                raise
        self._advance(0, item, answer, place)
        return answer

    def map(self, items: Iterable[object]) -> Iterator[Any]:
        """Submit items as places become free, and yield the results in the order of the items."""
        open_: deque[Answer] = deque()
        for item in items:
            while len(open_) >= self.in_flight:
                yield open_.popleft().result()
            open_.append(self.submit(item))
        while open_:
            yield open_.popleft().result()

    # ---- places

    def _answer(self) -> Answer:
        self._cell.alive_here()
        answer = open_answer("an item of a pipeline")
        answer.cell = self._cell
        return answer

    @shielded
    def _take(self) -> _Place:
        """Return a place, or one that waits for its turn."""
        place = _Place(self._answer())
        with self._lock:
            if self._free > 0:
                self._free -= 1
                place.enter(self._give)
            else:
                self._waiting.append(place)
        self._hand_over()
        return place

    @shielded
    def _withdraw(self, place: _Place) -> bool:
        """Give up waiting; return False if the place was handed over."""
        with self._lock:
            try:
                self._waiting.remove(place)
                found = True
            except ValueError:
                found = False
        self._hand_over()
        return found

    @shielded_service
    def _give(self) -> None:
        """Give room back: also a finalizer, in any thread, which may hold the lock."""
        self._left.append(None)
        self._hand_over()

    def _hand_over(self) -> None:
        """Hand over the room that was given back; a thread that holds the lock does it when it has released it."""
        while self._left and self._lock.acquire(blocking=False):
            place = None
            try:
                with contextlib.suppress(IndexError):  # another thread was first
                    self._left.pop()
                    if self._waiting:
                        place = self._waiting.popleft()
                        place.enter(self._give)
                    else:
                        self._free += 1
            finally:
                self._lock.release()
            if place is not None:
                place.granted.resolve(None)

    def _full(self) -> MailboxFull:
        return MailboxFull(f"the pipeline has no place: {self.in_flight} items are inside", "pipeline", self.in_flight)

    # ---- items

    def _advance(self, stage: int, item: object, answer: Answer, place: _Place) -> None:
        send_until(
            self._deliver(self.stages[stage]),
            item,
            None,
            self._retries,
            lambda: open_answer(f"an item at stage {stage} of a pipeline"),
            lambda done: self._arrived(stage, done, answer, place),
            BEYOND,
        )

    @staticmethod
    def _deliver(target: ActorRef | Pool) -> Deliver:
        return target.deliver if isinstance(target, Pool) else functools.partial(deliver_to, target.cell)

    def _arrived(self, stage: int, done: Answer, answer: Answer, place: _Place) -> None:
        error = done.exception()
        if error is None and stage + 1 < len(self.stages):
            self._advance(stage + 1, done.result(0), answer, place)
            return
        place.leave()
        if error is None:
            answer.resolve(done.result(0))
        else:
            answer.fail(bare(error))
