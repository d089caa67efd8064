"""Replies: exactly one for each message; a program can wait for it or await it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from .._lib.actor_cell import AnswerBase
from .._lib.sender import ReplyBase
from .._support.options import named_options
from .._support.process_bound import ProcessBound
from .._support.public import public
from .._support.timeouts import deadline_of
from ..arrays.gpu_ref import GpuRef, probe, settle
from ..errors import AskTimeout, DeviceLost, InvalidRequest

if TYPE_CHECKING:
    from ..device import Device
    from .owner import PlanOwner

__all__ = ["Reply", "gather"]


@public
class Reply(ProcessBound, ReplyBase):
    """The reply of one message: a value, or a typed error, after the device has finished.

    Returned by `ask`.  Dropping it, or a timed-out wait, does not cancel the message.
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError("a Reply is made by sending: plan.ask(...)")

    @property
    def device(self) -> Device:
        """The device that runs the message."""
        owner: PlanOwner = self.core.owner
        return owner.device

    def add_done_callback(self, callback: Callable[[Reply], object]) -> None:
        """Call ``callback(reply)`` once the message is resolved.

        It runs at once if the message is already resolved, otherwise in the device's callback thread: it must be short,
        and must not wait for the same device.  Its exceptions are logged.
        """
        if not callable(callback):
            raise InvalidRequest(f"callback {callback!r} is not callable; it is called with the reply")
        owner: PlanOwner = self.core.owner
        owner.wakers.call_when_done(self, callback)

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait without blocking the running event loop, and return the value or raise the error."""
        yield from self.settled().__await__()
        return self.result()

    async def settled(self) -> None:
        """Wait until the message is resolved, successfully or not, without blocking the running event loop."""
        if not self.done():
            import asyncio  # at first use: most programs have no coroutines

            owner: PlanOwner = self.core.owner
            await owner.wakers.future_of(asyncio.get_running_loop(), self)

    def __repr__(self) -> str:
        name = self.core.lane_names.get(self.lane, self.lane)
        try:
            state = "resolved" if self.done() else "open"
        except DeviceLost:  # in a forked child
            state = "lost"
        return f"<Reply {self.ticket} of {name!r}, {state}>"


@named_options
def gather(*waitables: Any, timeout: float | None = None) -> list[Any]:
    """Wait for several replies or handles.

    Parameters
    ----------
    *waitables : Reply, Answer or GpuRef
        What to wait for.
    timeout : float, optional
        Seconds for all of them in total.

    Returns
    -------
    list
        The values of replies and answers, and the handles themselves.

    Raises
    ------
    AskTimeout
        When the time is up.
    AtomrError
        The first error in argument order, after all are resolved; an actor's error may be any exception.
    """
    deadline = deadline_of(timeout)
    replies: list[Any] = []
    for item in waitables:
        if not isinstance(item, ReplyBase | AnswerBase | GpuRef):
            raise InvalidRequest(f"gather takes replies, answers and GpuRefs, not {type(item).__name__}")
    for item in waitables:
        replies.append(probe(item) if isinstance(item, GpuRef) else item)
    for reply in replies:
        if not reply.wait(None if deadline is None else max(0.0, deadline - time.monotonic())):
            raise AskTimeout(f"not everything was resolved within {timeout} s; the messages continue")
    values = []
    for item, reply in zip(waitables, replies, strict=True):
        if item is reply:
            values.append(reply.result())
        else:
            settle(reply)
            values.append(item)
    return values
