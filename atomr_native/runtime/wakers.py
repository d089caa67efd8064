"""Waking event loops and callbacks when tickets resolve.

Each event loop has an eventfd that the worker signals directly, so a completion reaches the loop without another
thread.  Subscriber 0 is the device's callback thread, for callbacks and for loops that cannot watch a descriptor.

A worker that has gone wild may fill and empty that eventfd, and make it blocking.  So this side reads it without
waiting, whatever its flags, and never writes it: signals from this side go through another eventfd.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import logging
import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._lib.guard import Lock, shielded
from .._lib.sender import MAX_SUBSCRIBERS, Core
from .._lib.waiting import Actions, Ticket

if TYPE_CHECKING:
    import asyncio

__all__ = ["Subscriber", "Wakers"]

_log = logging.getLogger("atomr_native")
_numbers = itertools.count()


class _Bells:
    """Two eventfds, the worker's and this side's, closed with the last reference, so no thread signals a reused one."""

    __slots__ = ("own", "shared")

    def __init__(self) -> None:
        self.own = self.shared = -1
        self.own = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.shared = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def ring(self) -> None:
        """Signal this side's."""
        with contextlib.suppress(OSError):  # full
            os.eventfd_write(self.own, 1)

    def consume(self) -> None:
        """Reset both.  Never waits."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.own)
        with contextlib.suppress(BlockingIOError):
            try:
                os.preadv(self.shared, [bytearray(8)], -1, os.RWF_NOWAIT)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                    raise
                os.eventfd_read(self.shared)  # Linux before 5.8

    def __del__(self) -> None:
        for fd in (self.own, self.shared):
            if fd >= 0:
                os.close(fd)


class Subscriber:
    """The eventfds of one reader, and the actions for resolved tickets, by lane."""

    def __init__(self, core: Core, index: int) -> None:
        self.core = core
        self.index = index
        self.number = next(_numbers)
        self._bells: _Bells | None = _Bells()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._actions = Actions(core, index)
        self._due: deque[tuple[Any, Callable[[Any], object]]] = deque()

    @property
    def fds(self) -> tuple[int, ...]:
        """The descriptors to watch; none once closed."""
        bells = self._bells
        return () if bells is None else (bells.own, bells.shared)

    def duplicate(self) -> int | None:
        """Return a new descriptor of the worker's eventfd, owned by the caller; None once closed."""
        bells = self._bells
        return None if bells is None else os.dup(bells.shared)

    def add(self, reply: Any, action: Callable[[Any], object]) -> bool:
        """Call `action` when the reply is resolved; return False if it already is."""
        kept, ring = self._actions.add(reply, action)
        if ring:
            self.kick()
        return kept

    def kick(self) -> None:
        """Signal from this side.  Never waits."""
        bells = self._bells
        if bells is not None:
            bells.ring()

    def serve(self) -> None:
        """Consume the signals and run the actions of resolved tickets."""
        bells = self._bells
        if bells is not None:
            bells.consume()
        interrupt: BaseException | None = None
        self._due.extend(self._actions.take())
        while self._due:
            reply, action = self._due[0]  # it stays until it has run: an interrupt may come before
            try:
                action(reply)
            except BaseException as error:
                # Not even SystemExit may skip the other actions, or end the device's callback thread.
                _log.exception("a callback of %r failed", reply)
                if self.loop is not None and not isinstance(error, Exception):
                    interrupt = error
            with contextlib.suppress(IndexError):
                self._due.popleft()
        if interrupt is not None:
            raise interrupt

    def close(self) -> None:
        """Release the eventfds.  Idempotent."""
        self._bells = None


class Wakers:
    """The subscribers of one device.

    Parameters
    ----------
    core
        The device's native part.
    subscribe
        Notifies the worker of a new subscriber, by its number, which `duplicate` takes, and then calls `kick`.  Does
        not wait.
    """

    def __init__(self, core: Core, subscribe: Callable[[int], None]) -> None:
        self._core = core
        self._subscribe = subscribe
        self._lock = Lock(leaf=True)
        self.own = Subscriber(core, 0)
        self._loops: dict[asyncio.AbstractEventLoop, Subscriber] = {}

    def numbers(self) -> list[int]:
        """Return the numbers of all subscribers; numbers are never reused."""
        return [subscriber.number for subscriber in self._each()]

    def duplicate(self, number: int) -> tuple[int, int] | None:
        """Return the index of a subscriber, and a new descriptor of its eventfd; None if it is gone."""
        for subscriber in self._each():
            fd = subscriber.duplicate() if subscriber.number == number else None
            if fd is not None:
                return subscriber.index, fd
        return None

    def _each(self) -> list[Subscriber]:
        return [self.own, *self._loops.copy().values()]

    def room(self, loop: asyncio.AbstractEventLoop, lane: int, ticket: int) -> asyncio.Future[None]:
        """Return a future of `loop` that is set when a ticket is resolved."""
        return self.future_of(loop, Ticket(self._core, lane, ticket))

    def kick_when_resolved(self, lane: int, ticket: int) -> bool:
        """Wake the device's callback thread when a ticket is resolved; return False if it already is."""
        return self.own.add(Ticket(self._core, lane, ticket), lambda _: None)

    def call_when_done(self, reply: Any, callback: Callable[[Any], object]) -> None:
        """Call back when the reply is resolved, or at once if it already is."""
        if reply.done() or not self.own.add(reply, callback):
            try:
                callback(reply)
            except Exception:
                _log.exception("a callback of %r failed", reply)

    def future_of(self, loop: asyncio.AbstractEventLoop, reply: Any) -> asyncio.Future[None]:
        """Return a future of `loop` that is set when the reply is resolved."""
        future: asyncio.Future[None] = loop.create_future()

        def resolve(_: Any = None) -> None:
            if not future.done():
                future.set_result(None)

        subscriber = self._of_loop(loop)
        if subscriber is None:
            self.call_when_done(reply, lambda _: _call_soon(loop, resolve))
        elif not subscriber.add(reply, resolve):
            resolve()
        return future

    def _of_loop(self, loop: asyncio.AbstractEventLoop) -> Subscriber | None:
        return self._loops.get(loop) or self._make(loop)

    @shielded
    def _make(self, loop: asyncio.AbstractEventLoop) -> Subscriber | None:
        with self._lock:
            found = self._loops.get(loop)
            if found is not None:
                return found
            for stale in [old for old in self._loops if old.is_closed()]:
                self._loops.pop(stale).close()
            used = {subscriber.index for subscriber in self._loops.values()}
            free = [index for index in range(1, MAX_SUBSCRIBERS) if index not in used]
            if not free:
                return None
            made = Subscriber(self._core, free[0])
            made.loop = loop
            try:
                for fd in made.fds:
                    loop.add_reader(fd, made.serve)
            except NotImplementedError:
                made.close()
                return None
            self._loops[loop] = made
        self._subscribe(made.number)
        return made

    def kick(self) -> None:
        """Wake all subscribers: after a restart, or at the end."""
        for subscriber in self._each():
            subscriber.kick()

    @shielded
    def close(self) -> None:
        """Serve the remaining tickets and release everything; loops are notified from outside."""
        with self._lock:
            loops, self._loops = dict(self._loops), {}
        for loop, subscriber in loops.items():
            if loop.is_closed():
                subscriber.close()
            else:
                _call_soon(loop, functools.partial(_leave, loop, subscriber))
        self.own.serve()
        self.own.close()

    def abandon(self) -> None:
        """In a forked child: close the descriptors."""
        for subscriber in [self.own, *self._loops.values()]:
            subscriber.close()


def _leave(loop: asyncio.AbstractEventLoop, subscriber: Subscriber) -> None:
    subscriber.serve()
    for fd in subscriber.fds:
        loop.remove_reader(fd)
    subscriber.close()


def _call_soon(loop: asyncio.AbstractEventLoop, action: Callable[[], object]) -> None:
    with contextlib.suppress(RuntimeError):  # closed meanwhile: it has no waiting coroutines
        loop.call_soon_threadsafe(action)
