"""Dynamic batching: many single requests become one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..actors.actor import Actor
from ..actors.answer import ReplyTo
from ..actors.pool import Pool
from ..actors.ref import ActorRef
from ..errors import AtomrError, InvalidRequest
from ..plans.retry import as_retries, caught_by_restart

__all__ = ["Batcher", "WrongCount"]

_AGE = "atomr_native.patterns.batching"


class WrongCount(AtomrError):
    """The number of a batch's results differs from the number of its items; all its items fail with this error."""


class _Age:
    """The first item has reached its maximum age."""


class _Results:
    def __init__(self, batch: list[ReplyTo], results: Any, error: BaseException | None) -> None:
        self.batch, self.results, self.error = batch, results, error


class Batcher(Actor):
    """Collects requests into batches, and answers each with its own result, in order.

    A batch is sent when it has `max_size` items, or when its first item has waited `max_age` seconds.  When the actor
    stops, it sends the collected items as a last batch.

    Parameters
    ----------
    target : callable, ActorRef or Pool
        Takes a list of items and returns as many results in the same order.  A function runs in this actor's thread,
        and meanwhile the next items wait in the mailbox.  An actor is asked, and meanwhile further batches are
        collected and sent.
    max_size : int
        Maximum number of items in a batch.
    max_age : float
        Seconds.
    retry : int
        How often the target gets a batch again that has failed since a device restarted; see `ActorRef.ask`.
    """

    def __init__(
        self,
        target: Callable[[list[Any]], Sequence[Any]] | ActorRef | Pool,
        *,
        max_size: int = 32,
        max_age: float = 0.01,
        retry: int = 0,
    ) -> None:
        if not callable(target) and not isinstance(target, ActorRef | Pool):
            raise InvalidRequest(f"target={target!r}; allowed: a function of a list, an ActorRef, a Pool")
        if type(max_size) is not int or max_size < 1:
            raise InvalidRequest(f"max_size={max_size!r}; it must be a positive integer")
        if isinstance(max_age, bool) or not isinstance(max_age, int | float) or not 0 <= max_age < 1e9:
            raise InvalidRequest(f"max_age={max_age!r}; it must be a non-negative number of seconds")
        self._target, self._max_size, self._max_age = target, max_size, max_age
        self._retries = as_retries(retry)
        self._items: list[Any] = []
        self._askers: list[ReplyTo] = []

    def receive(self, message: Any) -> None:
        """Collect an item."""
        if isinstance(message, _Results):
            _deliver(message.batch, message.results, message.error)
        elif isinstance(message, _Age):
            self._flush()
        else:
            self._items.append(message)
            self._askers.append(self.context.reply_later())
            if len(self._items) >= self._max_size:
                self._flush()
            elif len(self._items) == 1:
                self.context.timers.start_once(self._max_age, _Age(), key=_AGE)

    def post_stop(self) -> None:
        """Send the collected items as a last batch; they are answered although the actor has stopped."""
        self._flush(last=True)

    def pre_restart(self, error: BaseException, message: object) -> None:  # noqa: ARG002
        """Send the collected items, which the next instance would not have."""
        self._flush(last=True)

    def _flush(self, *, last: bool = False) -> None:
        self.context.timers.cancel(_AGE)
        items, askers = self._items, self._askers
        self._items, self._askers = [], []
        if not items:
            return
        if isinstance(self._target, ActorRef | Pool):
            answer = self._target.ask(items, retry=self._retries)
            if last:
                answer.add_done_callback(lambda done: _deliver(askers, *_outcome(done)))
            else:
                self.context.pipe_to_self(answer, lambda results, error: _Results(askers, results, error))
            return
        for left in range(self._retries, -1, -1):
            try:
                results = self._target(items)
            except Exception as error:
                if left and caught_by_restart(error):
                    continue
                self.context.log.warning("a batch of %d failed: %r", len(items), error)
                _deliver(askers, None, error)
            else:
                _deliver(askers, results, None)
            return


def _outcome(done: Any) -> tuple[Any, BaseException | None]:
    error = done.exception()
    return (None, error) if error is not None else (done.result(0), None)


def _deliver(askers: list[ReplyTo], results: Any, error: BaseException | None) -> None:
    if error is None:
        try:
            count = len(results)
        except TypeError:
            error = WrongCount(f"a batch of {len(askers)} items gave {type(results).__name__}, which is not a sequence")
        else:
            if count != len(askers):
                error = WrongCount(f"a batch of {len(askers)} items gave {count} results")
    if error is not None:
        for asker in askers:
            asker.fail(error)
    else:
        for asker, result in zip(askers, results, strict=True):
            asker.reply(result)
