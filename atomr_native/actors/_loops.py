"""Notifications of event loops from other threads: one wake-up for many results."""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from collections import deque

from .._lib.guard import Lock

__all__ = ["LoopMailer", "mailer_of"]


class LoopMailer:
    """Settles futures of one event loop from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._due: deque[asyncio.Future[None]] = deque()
        self._lock = Lock(reentrant=True)  # a destructor may call `settle` inside
        self._called = False

    def settle(self, future: asyncio.Future[None]) -> None:
        """Set the future's result in its loop; do nothing if the loop is closed by then."""
        with self._lock:
            self._due.append(future)
            if self._called:
                return
            self._called = True
        try:
            loop = self._loop()
            if loop is not None:
                with contextlib.suppress(RuntimeError):  # closed meanwhile: it has no waiting coroutines
                    loop.call_soon_threadsafe(self._run)
        except BaseException:  # an interrupt: the next call rings again
            self._called = False
            raise

    def _run(self) -> None:
        with self._lock:
            self._called = False
            due, self._due = self._due, deque()
        for future in due:
            if not future.done():
                future.set_result(None)


_mailers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopMailer] = weakref.WeakKeyDictionary()
_lock = Lock(reentrant=True)


def mailer_of(loop: asyncio.AbstractEventLoop) -> LoopMailer:
    """Return the mailer of a loop."""
    with _lock:
        found = _mailers.get(loop)
        if found is None:
            found = _mailers[loop] = LoopMailer(loop)
        return found


os.register_at_fork(after_in_child=_mailers.clear)
