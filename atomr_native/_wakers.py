"""Waking event loops and callbacks when tickets resolve.

Each event loop has an eventfd that the worker signals by itself, so a completion reaches the loop without passing
through another thread.  Subscriber 0 is the device's own thread, for callbacks and for loops that cannot watch a
descriptor.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import heapq
import itertools
import logging
import os
import threading
from collections.abc import Callable
from typing import Any

from ._lib.sender import MAX_SUBSCRIBERS, NEVER, Core
from .errors import AtomrError

__all__ = ["Subscriber", "Wakers"]

_log = logging.getLogger("atomr_native")
_order = itertools.count()
_numbers = itertools.count()
_Item = tuple[int, int, Any, Callable[[Any], object]]


class _Ticket:
    """A ticket to wait for that is no reply: room in a mailbox."""

    def __init__(self, core: Core, lane: int, ticket: int) -> None:
        self.core, self.lane, self.ticket = core, lane, ticket

    def done(self) -> bool:
        return self.core.resolved(self.lane, self.ticket)


class _Bell:
    """An eventfd; closed when nobody has it any more, so that nobody rings a number that is another's by then."""

    __slots__ = ("fd",)

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            os.close(self.fd)


class Subscriber:
    """One eventfd and what to do when tickets resolve, by lane."""

    def __init__(self, core: Core, index: int) -> None:
        self.core = core
        self.index = index
        self.number = next(_numbers)
        self._bell: _Bell | None = _Bell()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._waiting: dict[int, list[_Item]] = {}

    @property
    def fd(self) -> int:
        """The descriptor to watch; -1 once closed."""
        bell = self._bell
        return -1 if bell is None else bell.fd

    def add(self, reply: Any, action: Callable[[Any], object]) -> bool:
        """Have `action` called when the reply is resolved; False if it is already."""
        with self._lock:
            heap = self._waiting.setdefault(reply.lane, [])
            item = (reply.ticket, next(_order), reply, action)
            heapq.heappush(heap, item)
            if not self.core.want(reply.lane, self.index, heap[0][0]):
                return True
            late = reply.done()
            if late:
                heap.remove(item)
                heapq.heapify(heap)
        if heap:  # the worker wants to ring for none of them any more, be they resolved or open
            self.kick()
        return not late

    def kick(self) -> None:
        """Signal the eventfd from this side."""
        bell = self._bell
        if bell is not None:
            with contextlib.suppress(OSError):  # full
                os.eventfd_write(bell.fd, 1)

    def serve(self) -> None:
        """Take the signal and act on everything that is resolved."""
        bell = self._bell
        if bell is not None:
            with contextlib.suppress(OSError):  # nothing to take
                os.eventfd_read(bell.fd)
        interrupt: BaseException | None = None
        for reply, action in self._take():
            try:
                action(reply)
            except BaseException as error:
                # Not even SystemExit may keep the others from being called, or end the device's own thread.
                _log.exception("a callback of %r failed", reply)
                if self.loop is not None and not isinstance(error, Exception):
                    interrupt = error
        if interrupt is not None:
            raise interrupt

    def _take(self) -> list[tuple[Any, Callable[[Any], object]]]:
        ready: list[tuple[Any, Callable[[Any], object]]] = []
        with self._lock:
            for lane, heap in self._waiting.items():
                while heap:
                    while heap and heap[0][2].done():
                        _, _, reply, action = heapq.heappop(heap)
                        ready.append((reply, action))
                    if not self.core.want(lane, self.index, heap[0][0] if heap else NEVER) or not heap:
                        break
        return ready

    def close(self) -> None:
        """Release the eventfd.  Idempotent."""
        self._bell = None


class Wakers:
    """The subscribers of one device.

    Parameters
    ----------
    core
        The device's native part.
    subscribe
        Tells the worker about a new subscriber, by its number, which `duplicate` takes.
    """

    def __init__(self, core: Core, subscribe: Callable[[int], None]) -> None:
        self._core = core
        self._subscribe = subscribe
        self._lock = threading.Lock()
        self.own = Subscriber(core, 0)
        self._loops: dict[asyncio.AbstractEventLoop, Subscriber] = {}

    def numbers(self) -> list[int]:
        """Return the numbers of all subscribers; no two ever have the same."""
        return [subscriber.number for subscriber in self._each()]

    def duplicate(self, number: int) -> tuple[int, int] | None:
        """Return the index of a subscriber, and a descriptor of its eventfd, the caller's; None if it is gone."""
        with self._lock:
            for subscriber in (self.own, *self._loops.values()):
                bell = subscriber._bell
                if subscriber.number == number and bell is not None:
                    return subscriber.index, os.dup(bell.fd)
        return None

    def _each(self) -> list[Subscriber]:
        with self._lock:
            return [self.own, *self._loops.values()]

    def room(self, loop: asyncio.AbstractEventLoop, lane: int, ticket: int) -> asyncio.Future[None]:
        """Return a future of `loop` that is set when a ticket is resolved."""
        return self.future_of(loop, _Ticket(self._core, lane, ticket))

    def kick_when_resolved(self, lane: int, ticket: int) -> bool:
        """Have the device's own thread go round when a ticket is resolved; False if it is already."""
        return self.own.add(_Ticket(self._core, lane, ticket), lambda _: None)

    def call_when_done(self, reply: Any, callback: Callable[[Any], object]) -> None:
        """Call back when the reply is resolved; at once if it is."""
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
                loop.add_reader(made.fd, made.serve)
            except NotImplementedError:
                made.close()
                return None
            self._loops[loop] = made
        with contextlib.suppress(AtomrError):
            self._subscribe(made.number)
        return made

    def kick(self) -> None:
        """Have everybody look anew: after a restart, or at the end."""
        for subscriber in self._each():
            subscriber.kick()

    def close(self) -> None:
        """Serve what is left and release everything; the loops are told from outside."""
        with self._lock:
            loops, self._loops = dict(self._loops), {}
        running = asyncio._get_running_loop()
        for loop, subscriber in loops.items():
            if loop.is_closed():
                subscriber.close()
            elif loop is running:
                _leave(loop, subscriber)
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
    loop.remove_reader(subscriber.fd)
    subscriber.close()


def _call_soon(loop: asyncio.AbstractEventLoop, action: Callable[[], object]) -> None:
    with contextlib.suppress(RuntimeError):  # closed meanwhile: nobody waits there any more
        loop.call_soon_threadsafe(action)
