"""Staging memory in pieces: how many may be in use at once, and what a copy waits for on its way.

A copy is written once, as a generator that yields what it waits for.  `drive` serves it in the calling thread, with
`block`; `drive_async` in an event loop, with `settle`.  Both hand errors into the generator, where they are raised.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ._lib.copies import HostCopy, send_bytes
from ._lib.sender import Core, Layout
from ._pace import Pace
from ._timeouts import deadline_of
from .errors import AskTimeout, MailboxFull
from .gpu_ref import GpuRef

if TYPE_CHECKING:
    from .memory import DeviceMemory
    from .plan import Plan
    from .reply import Reply

__all__ = [
    "Allocate",
    "Arrival",
    "Call",
    "Finish",
    "LongArrival",
    "Piece",
    "Room",
    "Send",
    "SendBytes",
    "Steps",
    "Window",
    "drive",
    "drive_async",
]

_LOOK = 0.02  # seconds after which who waits for room looks around again
T = TypeVar("T")


class Wait(Protocol):
    """What a copy waits for.  `block` gets the seconds that are left, None for any number."""

    def block(self, left: float | None) -> Any: ...
    async def settle(self) -> Any: ...


Steps = Generator[Wait, Any, T]


def drive(steps: Steps[T], timeout: float | None = None) -> T:
    """Serve a copy in this thread; its result.

    Raises
    ------
    AskTimeout
        When `timeout` (seconds) passes, and the copy does not take that otherwise.
    """
    end = deadline_of(timeout)
    try:
        wait = next(steps)
        while True:
            try:
                value = wait.block(None if end is None else max(0.0, end - time.monotonic()))
                if value is _LATE:
                    raise AskTimeout(f"the array was not there within {timeout} s; the message goes on")
            except BaseException as error:
                wait = steps.throw(error)
            else:
                wait = steps.send(value)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def drive_async(steps: Steps[T]) -> T:
    """Serve a copy in the running event loop; its result."""
    try:
        wait = next(steps)
        while True:
            try:
                value = await wait.settle()
            except BaseException as error:
                wait = steps.throw(error)
            else:
                wait = steps.send(value)
    except StopIteration as stop:
        result: T = stop.value
        return result


_LATE = object()


class Piece:
    """A piece of staging memory, until it is put back."""

    __slots__ = ("_sent", "_window", "ref")

    def __init__(self, window: Window) -> None:
        self._window: Window | None = window
        self._sent: tuple[int, int, Reply | None] | None = None
        self.ref: GpuRef

    def sent(self, lane: int, ticket: int, reply: Reply | None = None) -> None:
        """Note whose it is.  `reply` is kept until it is resolved, so that its failure is no dead letter."""
        self._sent = (lane, ticket, reply)

    def arrived(self) -> None:
        """Note that its message is resolved."""
        self._sent = None

    def put_back(self) -> None:
        """Return it, with the message that it was given to, if there is one.  Idempotent."""
        window, self._window = self._window, None
        if window is not None:
            window.put_back(self._sent)
            self._sent = None
            if hasattr(self, "ref"):  # else it has no memory yet
                del self.ref

    def __del__(self) -> None:
        self.put_back()  # nobody got it: the wait for it was interrupted just then


class Window:
    """How many pieces of staging memory a device's copies may use at once.

    Who has a piece never waits for another one, so that somebody always goes on.  A copy puts back what it has when it
    ends, in whatever way: an error that somebody keeps has its frames, and would have its pieces.

    Parameters
    ----------
    core
        The device's native part.
    pieces : int
        How many.
    """

    def __init__(self, core: Core, pieces: int) -> None:
        self._core = core
        self._free = pieces
        self._flying: deque[tuple[int, int, Reply | None]] = deque()
        self._changed = threading.Condition()  # re-entrant: a destructor may come inside
        self._waiting = 0

    def take(self, *, first: bool) -> Piece | None:
        """Take a piece if there is one.  Who has some already (not `first`) leaves it to those who wait."""
        with self._changed:
            self._reap()
            if self._free <= 0 or (self._waiting and not first):
                return None
            self._free -= 1
            return Piece(self)

    def put_back(self, sent: tuple[int, int, Reply | None] | None) -> None:
        """Take a piece back, or note the message with which it comes back."""
        with self._changed:
            if sent is None:
                self._free += 1
            else:
                self._flying.append(sent)
            self._changed.notify()

    def _reap(self) -> None:
        while self._flying and self._core.resolved(*self._flying[0][:2]):
            reply = self._flying.popleft()[2]
            if reply is not None:
                reply.done()  # takes its verdict
            self._free += 1

    def oldest(self) -> tuple[int, int] | None:
        """Return (lane, ticket) of the message whose piece comes back first; None when there is no such one."""
        with self._changed:
            return self._flying[0][:2] if self._flying else None

    def wait(self, seconds: float) -> None:
        """Wait until a piece may be free, but no longer than `seconds`, and not long at all."""
        seconds = min(seconds, _LOOK)
        self.count(1)
        try:
            oldest = self.oldest()
            if oldest is not None:
                self._core.wait_ticket(*oldest, seconds)
                return
            with self._changed:
                if self._free <= 0 and not self._flying:
                    self._changed.wait(seconds)
        finally:
            self.count(-1)

    def count(self, step: int) -> None:
        """Note that somebody begins or ends to wait."""
        with self._changed:
            self._waiting += step

    def abandon(self) -> None:
        """In a forked child, where somebody who is gone may hold the lock."""
        self._changed = threading.Condition()


class Room:
    """A piece of staging memory, without any memory yet.

    Parameters
    ----------
    memory, window
        Whose.
    limit : float, optional
        Seconds after which a sender gives up with `MailboxFull`.
    """

    def __init__(self, memory: DeviceMemory, window: Window, limit: float | None = None) -> None:
        self._memory, self._window = memory, window
        self._limit = limit

    def block(self, left: float | None) -> object:
        """Wait in this thread."""
        end = time.monotonic() + min(9e9 if left is None else left, 9e9 if self._limit is None else self._limit)
        while (piece := self._window.take(first=True)) is None:
            seconds = end - time.monotonic()
            if seconds <= 0:
                if left is not None:
                    return _LATE
                raise self._full()
            self._window.wait(seconds)
        return piece

    async def settle(self) -> Piece:
        """Wait in the event loop."""
        end = time.monotonic() + (9e9 if self._limit is None else self._limit)
        wakers = self._memory.device._wakers
        while (piece := self._window.take(first=True)) is None:
            if time.monotonic() >= end:
                raise self._full()
            self._window.count(1)
            try:
                oldest = self._window.oldest()
                if oldest is None:
                    await asyncio.sleep(_LOOK / 10)
                else:
                    await asyncio.wait([wakers.room(asyncio.get_running_loop(), *oldest)], timeout=_LOOK)
            finally:
                self._window.count(-1)
        return piece

    def _full(self) -> MailboxFull:
        core = self._memory.device._core
        return MailboxFull(
            f"the staging memory of {self._memory.device.name} had no room within {self._limit} s, since earlier "
            f"copies have not finished; the array was not put",
            self._memory.name,
            core.cells,
        )


class Allocate:
    """Memory for a layout; making a segment for it waits for the worker."""

    def __init__(self, memory: DeviceMemory, layout: Layout, pool: int) -> None:
        self._memory, self._layout, self._pool = memory, layout, pool

    def block(self, left: float | None) -> GpuRef:
        """Allocate in this thread."""
        del left
        return self._memory.new(self._layout, self._pool)

    async def settle(self) -> GpuRef:
        """Have another thread make a segment, if one is needed."""
        if self._memory._core.pool_stats(self._pool)["largest"] < self._layout.nbytes:
            await self._memory.aside.call(lambda: self._memory._grow(self._pool, self._layout.nbytes))
        return self._memory.new(self._layout, self._pool)


class Arrival:
    """A reply, in whatever way it is resolved."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def block(self, left: float | None) -> object:
        """Wait in this thread."""
        return None if self._reply.wait(left) else _LATE

    async def settle(self) -> None:
        """Wait in the event loop."""
        await self._reply.settled()


class LongArrival(Arrival):
    """The reply of one large copy, sent no earlier than `began` (of the monotonic clock, seconds)."""

    def __init__(self, reply: Reply, pace: Pace, nbytes: int, began: float) -> None:
        super().__init__(reply)
        self._pace, self._nbytes, self._began = pace, nbytes, began

    def block(self, left: float | None) -> object:
        """Wait in this thread, and look for its end when that is near."""
        return None if self._pace.wait(self._reply, self._nbytes, self._began, left) else _LATE


class Finish:
    """The end of a copy in host memory."""

    def __init__(self, memory: DeviceMemory, job: HostCopy) -> None:
        self._memory, self._job = memory, job

    def block(self, left: float | None) -> None:
        """Help with it."""
        del left
        self._job.finish()

    async def settle(self) -> None:
        """Have another thread help."""
        if not self._job.done():
            await self._memory.aside.call(self._job.finish)


class Call:
    """Work that takes a while, without arguments."""

    def __init__(self, memory: DeviceMemory, work: Callable[[], object]) -> None:
        self._memory, self._work = memory, work

    def block(self, left: float | None) -> object:
        """Do it here."""
        del left
        return self._work()

    async def settle(self) -> object:
        """Do it in another thread."""
        return await self._memory.aside.call(self._work)


class Send:
    """A message of a plan, and room for it; the reply, if one is wanted."""

    def __init__(self, plan: Plan, refs: tuple[GpuRef, ...], scalars: tuple[int, ...], *, want_reply: bool) -> None:
        self._plan, self._refs, self._scalars, self._want_reply = plan, refs, scalars, want_reply

    def block(self, left: float | None) -> Reply | None:
        """Send from this thread."""
        del left
        answer: Reply | None = self._plan.send(self._refs, self._scalars, self._want_reply)
        return answer

    async def settle(self) -> Reply | None:
        """Send from the event loop."""
        named = dict(zip(self._plan.scalar_names, self._scalars, strict=True))
        reply = await self._plan.send_async(*self._refs, **named)
        return reply if self._want_reply else None


class SendBytes:
    """A message that copies bytes, and room for it; its reply, or its ticket if none is wanted."""

    def __init__(
        self, plan: Plan, source: GpuRef, source_at: int, target: GpuRef, target_at: int, nbytes: int, *,
        want_reply: bool,
    ) -> None:  # fmt: skip
        self._plan = plan
        self._arguments = (plan, source, source_at, target, target_at, nbytes)
        self._want_reply = want_reply

    def block(self, left: float | None) -> Any:
        """Send from this thread."""
        del left
        return send_bytes(*self._arguments, want_reply=self._want_reply)

    async def settle(self) -> Any:
        """Send from the event loop."""
        plan = self._plan
        while True:
            if plan.ready_epoch != plan.core.epoch:
                await plan
            sent = send_bytes(*self._arguments, want_reply=self._want_reply, may_wait=False)
            if sent is not None:
                return sent
            await plan._room()
