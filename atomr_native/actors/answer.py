"""Answers to asks; a program can wait for them or await them."""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from .._lib.actor_cell import AnswerBase
from .._support.public import public
from ..errors import AskTimeout, AtomrError, InvalidRequest
from ._loops import mailer_of

if TYPE_CHECKING:
    from .cell import Cell

__all__ = ["Answer", "ReplyTo", "bare"]

_log = logging.getLogger("atomr_native.actors")


# The attributes themselves: classes of users may refuse to set theirs, as frozen dataclasses do.
_ARGS, _CAUSE, _CONTEXT, _SUPPRESS, _TRACEBACK = (
    vars(BaseException)[name]
    for name in ("args", "__cause__", "__context__", "__suppress_context__", "__traceback__")
)  # fmt: skip


def bare(error: BaseException) -> BaseException:
    """Return the error without frames, which would keep their objects alive."""
    seen: BaseException | None = error
    for _ in range(100):
        if seen is None:
            break
        _TRACEBACK.__set__(seen, None)
        context = _CONTEXT.__get__(seen)
        _CONTEXT.__set__(seen, None)
        seen = _CAUSE.__get__(seen) or context
    return error


def _fresh(error: BaseException) -> BaseException:
    """Return a copy of an error, so raising it adds no frames to the original."""
    try:
        made = copy.copy(error)
    except Exception:
        made = None  # its constructor takes arguments other than `args`
    if type(made) is not type(error) or made is error:
        try:
            made = type(error).__new__(type(error), *error.args)
            _ARGS.__set__(made, _ARGS.__get__(error))
            made.__dict__.update(error.__dict__)
        except Exception:
            return error
    _CAUSE.__set__(made, _CAUSE.__get__(error))
    _SUPPRESS.__set__(made, True)
    _TRACEBACK.__set__(made, None)
    return made


@public
class Answer(AnswerBase):
    """The answer to one message: a value, or the error that the actor raised.  Made by `ActorRef.ask`.

    Dropping it, or a timed-out wait, does not cancel the message.
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError("an Answer is made by asking: ref.ask(...)")

    def add_done_callback(self, callback: Callable[[Answer], object]) -> None:
        """Call ``callback(answer)`` once it is resolved.

        It runs at once if the answer is already resolved, otherwise in the resolving thread, usually the actor's: it
        must be short, and must not wait.  Its exceptions are logged.
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
        if timeout is None and self.deadline == float("inf"):  # under a deterministic scheduler
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
        """Wait until it is resolved, successfully or not, without blocking the running event loop.

        Raises
        ------
        AskTimeout
            When the timeout of the ask passes.
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


def open_answer(what: str) -> Answer:
    """Return an unresolved answer; `what` names it in errors."""
    made = Answer.__new__(Answer)
    made.what = what
    return made


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


@public
class ReplyTo:
    """The asker of a message, for a later answer; made by `Context.reply_later`.

    Only the first call of `reply` or `fail` counts.  If it is dropped unanswered, the asker gets `NoReply`.
    """

    __slots__ = ("_answer", "_cell")

    def __init__(self, answer: Answer | None, cell: Cell) -> None:
        self._answer = answer
        self._cell = cell

    @property
    def wanted(self) -> bool:
        """Whether the message was asked; a told message needs no answer."""
        return self._answer is not None

    def reply(self, value: object = None) -> bool:
        """Answer with a value; return False if it was answered before, or not asked."""
        answer, self._answer = self._answer, None
        return answer is not None and answer.resolve(value)

    def fail(self, error: BaseException) -> bool:
        """Answer with an error; return False if it was answered before, or not asked."""
        if not isinstance(error, BaseException):
            raise InvalidRequest(f"error {error!r} is not an exception")
        answer, self._answer = self._answer, None
        return answer is not None and answer.fail(bare(error))

    def __del__(self) -> None:
        # In the actor's thread: this thread may hold locks that a callback of the answer would take.
        answer = getattr(self, "_answer", None)
        if answer is None or self._cell.abandoned:
            return
        top = self._cell.tree.top_cell
        if not self._cell.enqueue_system(("no_reply", answer)) and not (
            top and top.enqueue_system(("no_reply", answer))
        ):
            self._cell.dropped(answer)
