"""Answers: what becomes of messages that were asked, to wait for or to await."""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Self

from .._lib.actor_cell import AnswerBase
from ..errors import AskTimeout, AtomrError, InvalidRequest
from ._loops import mailer_of

if TYPE_CHECKING:
    from .cell import Cell

__all__ = ["Answer", "ReplyTo", "bare"]

_log = logging.getLogger("atomr_native.actors")


def bare(error: BaseException) -> BaseException:
    """Return the error without frames, which would keep what is in them alive."""
    seen: BaseException | None = error
    for _ in range(100):
        if seen is None:
            break
        seen.__traceback__ = None
        context, seen.__context__ = seen.__context__, None
        seen = seen.__cause__ or context
    return error


def _fresh(error: BaseException) -> BaseException:
    """Return a copy of an error, so that raising it leaves no frames with who keeps the original."""
    try:
        made = copy.copy(error)
    except Exception:
        made = None  # its constructor takes other arguments than it was given
    if type(made) is not type(error) or made is error:
        try:
            made = type(error).__new__(type(error), *error.args)
            made.args = error.args
            made.__dict__.update(error.__dict__)
        except Exception:
            return error
    made.__cause__ = error.__cause__
    made.__suppress_context__ = True
    made.__traceback__ = None
    return made


class Answer(AnswerBase):
    """The answer to one message: a value, or the error that the actor raised.  Made by `ActorRef.ask`.

    Dropping it, or giving up waiting, does not cancel the message.
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError("an Answer is made by asking: ref.ask(...)")

    @classmethod
    def _open(cls, what: str) -> Self:
        made = cls.__new__(cls)
        made.what = what
        return made

    @classmethod
    def _of(cls, value: object) -> Self:
        made = cls._open("")
        made.resolve(value)
        return made

    def add_done_callback(self, callback: Callable[[Answer], object]) -> None:
        """Call ``callback(answer)`` once it is resolved.

        It runs at once if that is so already, else in the thread that resolves it, mostly the actor's: it must be
        short, and must not wait.  What it raises is logged.
        """
        if not callable(callback):
            raise InvalidRequest(f"callback {callback!r} is not callable; it is called with the answer")
        if not self._when_done(callback):
            try:
                callback(self)
            except Exception as error:
                self._callback_failed(error)

    def _callback_failed(self, error: BaseException) -> None:
        _log.error("a callback of %r failed", self, exc_info=error)

    def _fresh_error(self) -> BaseException:
        error = self._error
        return AtomrError("no error") if error is None else _fresh(error)

    def _late(self, timeout: float | None) -> AskTimeout:
        limit = f"within {timeout} s" if timeout is not None else "within the time given to ask"
        if timeout is None and self.deadline == float("inf"):  # under a deterministic schedule
            limit = "before all actors came to rest"
        return AskTimeout(f"{self._name()} was not answered {limit}; the message is not cancelled")

    def _name(self) -> str:
        if self.what:
            return self.what
        return "a message" if self.cell is None else f"a message to {self.cell.path}"

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait without blocking the running event loop, and return the value or raise the error."""
        if not self.done():
            yield from self.settled().__await__()
        return self.result(0)

    async def settled(self) -> None:
        """Wait until it is resolved, in whatever way, without blocking the running event loop.

        Raises
        ------
        AskTimeout
            When the time that was given to ask is over.
        """
        if self.done() or (self.cell is not None and self.cell.stepper is not None and self.wait()):
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        mailer = mailer_of(loop)
        if not self._when_done(lambda _: mailer.settle(future)):
            return
        if self.deadline == float("inf"):
            await future
            return
        timer = loop.call_later(self.deadline - time.monotonic(), _resolve, future)
        try:
            await future
        finally:
            timer.cancel()
        if not self.done():
            raise self._late(None)

    def __repr__(self) -> str:
        state = "open" if not self.done() else "failed" if self._error is not None else "resolved"
        return f"<Answer to {self._name()}, {state}>"


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class ReplyTo:
    """Who asked, to be answered later; made by `Context.reply_later`.

    Exactly one of `reply` and `fail` counts, the first.  If it is dropped unanswered, the asker gets `NoReply`.
    """

    __slots__ = ("_answer", "_cell")

    def __init__(self, answer: Answer | None, cell: Cell) -> None:
        self._answer = answer
        self._cell = cell

    @property
    def wanted(self) -> bool:
        """Whether anybody asked; a message that was told needs no answer."""
        return self._answer is not None

    def reply(self, value: object = None) -> bool:
        """Answer with a value; False if it was answered before, or nobody asked."""
        answer, self._answer = self._answer, None
        return answer is not None and answer.resolve(value)

    def fail(self, error: BaseException) -> bool:
        """Answer with an error; False if it was answered before, or nobody asked."""
        if not isinstance(error, BaseException):
            raise InvalidRequest(f"error {error!r} is no exception")
        answer, self._answer = self._answer, None
        return answer is not None and answer.fail(bare(error))

    def __del__(self) -> None:
        # By the actor's thread: here, locks may be held that a callback of the answer would take.
        answer = getattr(self, "_answer", None)
        if answer is None or self._cell.abandoned:
            return
        top = self._cell.tree.top_cell
        if not self._cell._put_system(("no_reply", answer)) and not (top and top._put_system(("no_reply", answer))):
            self._cell.dropped(answer)
