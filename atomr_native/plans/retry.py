"""Messages that are sent again when a death of the worker has caught them (``ask(..., retry=n)``)."""

from __future__ import annotations

import contextlib
import copy
import functools
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._lib.guard import TICK, Promise, check
from .._support.checks import as_integer
from .._support.timeouts import seconds_of
from ..errors import AskTimeout, AtomrError, DependencyFailed, DeviceFault, GpuRefStale, InvalidRequest
from .reply import Reply

if TYPE_CHECKING:
    import asyncio

    from .owner import PlanOwner

__all__ = ["RetriedReply", "as_retries", "caught_by_restart"]

_MOST = 1000


def as_retries(retry: object) -> int:
    """Return how often a message may be sent again, checked."""
    return as_integer("retry", retry, 0, _MOST)


def caught_by_restart(error: BaseException | None) -> bool:
    """Whether a message failed since its device restarted, so that it may succeed when it is sent again."""
    while isinstance(error, DependencyFailed):
        error = error.cause
    if isinstance(error, GpuRefStale):
        return error.reason == "device restarted"
    return isinstance(error, DeviceFault) and error.restarted


class _Attempt:
    """One send: its reply, or why it could not be made."""

    __slots__ = ("failure", "following", "left", "reply")

    def __init__(self, reply: Reply, left: int, failure: Exception | None = None) -> None:
        self.reply = reply  # with a failure, that of the attempt before
        self.left = left  # further sends
        self.failure = failure
        self.following: Promise[None] = Promise()  # there is another attempt

    def is_last(self) -> bool:
        """Whether there will be no other; for an attempt that is done."""
        return self.failure is not None or not self.left or not caught_by_restart(self.reply.exception())

    def is_final(self) -> bool:
        """Whether its outcome is that of the message."""
        return self.failure is not None or (self.reply.done() and self.is_last())


class RetriedReply(Reply):
    """The reply of a message that is sent again, up to a number of times, when a death of the worker catches it.

    Attributes `ticket`, `lane` and `value` are those of the newest send.
    """

    __slots__ = ("_attempt", "_callbacks", "_owner", "_send")

    def __init__(self, owner: PlanOwner, first: Reply, send: Callable[[], Reply], retries: int) -> None:
        self._owner = owner
        self._send: Callable[[], Reply] | None = send
        self._attempt = _Attempt(first, retries)
        self._callbacks: deque[Callable[[Reply], object]] = deque()
        self._follow()

    @classmethod
    def follow(cls, owner: PlanOwner, first: Reply, send: Callable[[], Reply], retries: int) -> Reply:
        """Return the reply of a message that `send` sends again; `first` is the reply of the first send."""
        return cls(owner, first, send, retries) if retries else first

    # ---- further sends

    def _follow(self) -> None:
        attempt = self._attempt
        attempt.reply.add_done_callback(lambda _: self._arrived(attempt))

    def _arrived(self, attempt: _Attempt) -> None:
        """Continue after an attempt, in the device's callback thread: a send waits for the device elsewhere."""
        if attempt.is_last():
            self._finish()
        elif not self._owner.plans.retry_pool.start(functools.partial(self._again, attempt)):
            self._move(attempt, _Attempt(attempt.reply, 0))  # the device is closed

    def _again(self, attempt: _Attempt) -> None:
        send = self._send
        if send is None:
            return
        try:
            reply = send()
        except Exception as error:
            error.__traceback__ = None
            self._move(attempt, _Attempt(attempt.reply, 0, error))
        else:
            self._move(attempt, _Attempt(reply, attempt.left - 1))

    def _move(self, old: _Attempt, new: _Attempt) -> None:
        self._attempt = new
        old.following.set_result(None)
        if new.is_final():
            self._finish()
        else:
            self._follow()

    def _finish(self) -> None:
        self._send = None  # which holds the operands
        while self._callbacks:
            with contextlib.suppress(IndexError):
                self._owner.wakers.call_when_done(self, self._callbacks.popleft())

    # ---- as a reply

    @property
    def core(self) -> Any:
        """The native part of the device."""
        return self._attempt.reply.core

    @property
    def lane(self) -> int:
        """Number of the mailbox."""
        return self._attempt.reply.lane

    @property
    def ticket(self) -> int:
        """Number of the newest message in its mailbox."""
        return self._attempt.reply.ticket

    @property
    def value(self) -> Any:
        """What the newest message writes."""
        return self._attempt.reply.value

    def done(self) -> bool:
        """Whether the message is resolved and will not be sent again.  Does not wait."""
        return self._attempt.is_final()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the message is resolved; return False when `timeout` (seconds) passes first."""
        limit = seconds_of(timeout)
        end = None if limit is None else time.monotonic() + limit
        while True:
            attempt = self._attempt
            if attempt.is_final():
                return True
            left = None if end is None else max(0.0, end - time.monotonic())
            if not attempt.reply.wait(left):
                return False
            if attempt.is_last():
                return True
            while not attempt.following.done():
                check()
                left = TICK if end is None else min(end - time.monotonic(), TICK)
                with contextlib.suppress(TimeoutError):
                    attempt.following.exception(max(left, 0.0))
                    break
                if left < TICK:
                    return False

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the reply and return its value; see `Reply.result`."""
        if not self.wait(timeout):
            raise AskTimeout(f"no reply within {timeout} s; the message itself goes on")
        error = self.exception()
        if error is None:
            return self.value
        try:
            raise error
        finally:
            del error

    def exception(self) -> AtomrError | None:
        """Return the error of a resolved message, or None; a new object each time."""
        attempt = self._attempt
        if not attempt.is_final():
            raise InvalidRequest("the message is not resolved; wait for it first")
        if attempt.failure is not None:
            return copy.copy(attempt.failure)  # type: ignore[return-value]
        return attempt.reply.exception()

    def add_done_callback(self, callback: Callable[[Reply], object]) -> None:
        """Call ``callback(reply)`` once the message is resolved; see `Reply.add_done_callback`."""
        if not callable(callback):
            raise InvalidRequest(f"callback {callback!r} is not callable; it is called with the reply")
        self._callbacks.append(callback)
        if self.done():
            self._finish()

    async def settled(self) -> None:
        """Wait until the message is resolved without blocking the running event loop."""
        import asyncio  # at first use: most programs have no coroutines

        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def resolve() -> None:
            if not future.done():
                future.set_result(None)

        def arrived(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(resolve)

        self.add_done_callback(arrived)
        await future
