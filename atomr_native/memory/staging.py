"""Staging memory in pieces: the number of pieces in use, and the waits of a copy.

A copy is written once, as a generator that yields its waits.  `drive` serves it in the calling thread, with `block`;
`drive_async` in an event loop, with `settle`.  Both throw errors into the generator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from .._lib.copies import HostCopy, send_bytes
from .._lib.sender import Core, Layout
from .._lib.waiting import Piece, Window
from .._support.timeouts import deadline_of
from ..arrays.gpu_ref import GpuRef
from ..errors import AskTimeout, MailboxFull
from ..plans.plan import room_for
from .pacing import Pace

if TYPE_CHECKING:
    from ..plans.plan import Plan
    from ..plans.reply import Reply
    from .device_memory import DeviceMemory

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

_LOOK = 0.02  # seconds after which a wait for room checks again
T = TypeVar("T")


class Wait(Protocol):
    """A wait of a copy.  `block` gets the remaining seconds, None for no limit."""

    def block(self, left: float | None) -> Any: ...
    async def settle(self) -> Any: ...


Steps = Generator[Wait, Any, T]


def drive(steps: Steps[T], timeout: float | None = None) -> T:
    """Serve a copy in this thread; return its result.

    Raises
    ------
    AskTimeout
        When `timeout` (seconds) passes, unless the copy handles it.
    """
    end = deadline_of(timeout)
    try:
        wait = next(steps)
        while True:
            try:
                value = wait.block(None if end is None else max(0.0, end - time.monotonic()))
                if value is _LATE:
                    raise AskTimeout(f"the array was not there within {timeout} s; the message continues")
            except BaseException as error:
                wait = steps.throw(error)
            else:
                wait = steps.send(value)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def drive_async(steps: Steps[T]) -> T:
    """Serve a copy in the running event loop; return its result."""
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


def _await_piece(window: Window, core: Core, seconds: float) -> None:
    """Wait until a piece may be free, for at most `seconds` and a short time."""
    seconds = min(seconds, _LOOK)
    waiting = window.hold()
    oldest = window.oldest()
    if oldest is not None:
        core.wait_ticket(*oldest, seconds)
    else:  # every piece is in the hands of a copy
        time.sleep(min(seconds, _LOOK / 10))
    del waiting


class Room:
    """A piece of staging memory, without memory yet.

    Parameters
    ----------
    memory, window
        The memory actor, and its window of pieces.
    limit : float, optional
        Seconds after which a sender gives up with `MailboxFull`.
    """

    def __init__(self, memory: DeviceMemory, window: Window, limit: float | None = None) -> None:
        self._memory, self._window = memory, window
        self._limit = limit

    def block(self, left: float | None) -> object:
        """Wait in this thread."""
        end = time.monotonic() + min(9e9 if left is None else left, 9e9 if self._limit is None else self._limit)
        while (piece := self._window.take(first=True, blocks=True)) is None:
            seconds = end - time.monotonic()
            if seconds <= 0:
                if left is not None:
                    return _LATE
                raise self._full()
            _await_piece(self._window, self._memory.owner.core, seconds)
        return piece

    async def settle(self) -> Piece:
        """Wait in the event loop."""
        import asyncio  # at first use: most programs have no coroutines

        end = time.monotonic() + (9e9 if self._limit is None else self._limit)
        wakers = self._memory.owner.wakers
        while (piece := self._window.take(first=True)) is None:
            if time.monotonic() >= end:
                raise self._full()
            waiting = self._window.hold()
            oldest = self._window.oldest()
            if oldest is None:
                await asyncio.sleep(_LOOK / 10)
            else:
                await asyncio.wait([wakers.room(asyncio.get_running_loop(), *oldest)], timeout=_LOOK)
            del waiting
        return piece

    def _full(self) -> MailboxFull:
        core = self._memory.owner.core
        return MailboxFull(
            f"the staging memory of {self._memory.owner.name} had no room within {self._limit} s, since earlier "
            f"copies have not finished; the array was not put",
            self._memory.name,
            core.cells,
        )


class Allocate:
    """Memory for a layout; a new segment for it waits for the worker."""

    def __init__(self, memory: DeviceMemory, layout: Layout, pool: int) -> None:
        self._memory, self._layout, self._pool = memory, layout, pool

    def block(self, left: float | None) -> GpuRef:
        """Allocate in this thread."""
        del left
        return self._memory.new(self._layout, self._pool)

    async def settle(self) -> GpuRef:
        """Make another thread create a segment, if necessary."""
        if self._memory.owner.core.pool_stats(self._pool)["largest"] < self._layout.nbytes:
            await self._memory.wait_pool.call(lambda: self._memory.segments.grow(self._pool, self._layout.nbytes))
        return self._memory.new(self._layout, self._pool)


class Arrival:
    """The resolution of a reply, successful or not."""

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
        """Wait in this thread, and spin near its end."""
        return None if self._pace.wait(self._reply, self._nbytes, self._began, left) else _LATE


class Finish:
    """The end of a copy in host memory."""

    def __init__(self, memory: DeviceMemory, job: HostCopy) -> None:
        self._memory, self._job = memory, job

    def block(self, left: float | None) -> None:
        """Help with the copy."""
        del left
        self._job.finish()

    async def settle(self) -> None:
        """Make another thread help."""
        if not self._job.done():
            await self._memory.wait_pool.call(self._job.finish)


class Call:
    """A longer piece of work, without arguments."""

    def __init__(self, memory: DeviceMemory, work: Callable[[], object]) -> None:
        self._memory, self._work = memory, work

    def block(self, left: float | None) -> object:
        """Do it here."""
        del left
        return self._work()

    async def settle(self) -> object:
        """Do it in another thread."""
        return await self._memory.wait_pool.call(self._work)


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
            await room_for(plan)
