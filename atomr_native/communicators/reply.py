"""The reply of a message that several devices run together."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

from .._support.process_bound import ProcessBound
from .._support.public import public
from .._support.timeouts import deadline_of
from ..errors import AskTimeout, AtomrError, InvalidRequest
from ..plans.failures import is_of_another_rank
from ..plans.reply import Reply

__all__ = ["CollectiveReply"]


@public
class CollectiveReply(ProcessBound):
    """The reply of one collective message: resolved when all ranks have resolved it.

    Returned by `Communicator.ask`, `CollectivePlan.ask` and `Communicator.barrier`.

    Attributes
    ----------
    replies : tuple of Reply
        That of each rank.
    """

    __slots__ = ("_value", "replies")

    def __init__(self, replies: Sequence[Reply], value: Any) -> None:
        self.replies = tuple(replies)
        self._value = value

    def done(self) -> bool:
        """Whether all ranks have resolved the message.  Does not wait."""
        return all(reply.done() for reply in self.replies)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all ranks have resolved the message; False when `timeout` seconds pass first."""
        deadline = deadline_of(timeout)
        return all(
            reply.wait(None if deadline is None else max(0.0, deadline - time.monotonic())) for reply in self.replies
        )

    def exception(self) -> AtomrError | None:
        """Return the error of a resolved message, or None: of the rank that failed by itself, the first one by rank."""
        if not self.done():
            raise InvalidRequest("the message is not resolved; wait for it first")
        errors = [error for reply in self.replies if (error := reply.exception()) is not None]
        return next((error for error in errors if not is_of_another_rank(error)), errors[0] if errors else None)

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the reply and return its value, which is that of the communicator's method.

        Raises
        ------
        AskTimeout
            When `timeout` (seconds) passes; the message goes on.
        AtomrError
            The first cause, typed.
        """
        if not self.wait(timeout):
            raise AskTimeout(f"no reply of all ranks within {timeout} s; the message itself goes on")
        error = self.exception()
        if error is not None:
            raise error
        return self._value

    def add_done_callback(self, callback: Callable[[CollectiveReply], object]) -> None:
        """Call ``callback(reply)`` once all ranks have resolved the message; see `Reply.add_done_callback`."""
        if not callable(callback):
            raise InvalidRequest(f"callback {callback!r} is not callable; it is called with the reply")
        self._call_after(0, callback)

    def _call_after(self, rank: int, callback: Callable[[CollectiveReply], object]) -> None:
        """Follow the replies one after the other."""
        if rank == len(self.replies):
            callback(self)
        else:
            self.replies[rank].add_done_callback(lambda _: self._call_after(rank + 1, callback))

    async def settled(self) -> None:
        """Wait until the message is resolved, successfully or not, without blocking the running event loop."""
        for reply in self.replies:
            await reply.settled()

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait without blocking the running event loop, and return the value or raise the error."""
        yield from self.settled().__await__()
        return self.result()

    def __repr__(self) -> str:
        return f"<CollectiveReply of {len(self.replies)} ranks, {'resolved' if self.done() else 'open'}>"
