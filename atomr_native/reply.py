"""Replies: exactly one for each message, to wait for or to await."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, cast

from ._lib.actor_cell import AnswerBase
from ._lib.sender import Ref, ReplyBase
from ._process_bound import ProcessBound
from ._timeouts import deadline_of
from .errors import AskTimeout, DeviceLost, InvalidRequest

if TYPE_CHECKING:
    from .device import Device
    from .gpu_ref import GpuRef

__all__ = ["Reply", "gather"]


class Reply(ProcessBound, ReplyBase):
    """The reply of one message: a value, or a typed error, after the device has finished.

    Made by `ask`.  Dropping it, or giving up waiting, does not cancel the message.
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError("a Reply is made by sending: plan.ask(...)")

    @property
    def device(self) -> Device:
        """The device that runs the message."""
        return cast("Device", self.core.device)

    def add_done_callback(self, callback: Callable[[Reply], object]) -> None:
        """Call ``callback(reply)`` once the message is resolved.

        It runs at once if that is so already, else in the device's own thread: it must be short, and must not
        wait for the same device.  What it raises is logged.
        """
        if not callable(callback):
            raise InvalidRequest(f"callback {callback!r} is not callable; it is called with the reply")
        self.device._wakers.call_when_done(self, callback)

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait without blocking the running event loop, and return the value or raise the error."""
        yield from self.settled().__await__()
        return self.result()

    async def settled(self) -> None:
        """Wait until the message is resolved, in whatever way, without blocking the running event loop."""
        if not self.done():
            await self.device._wakers.future_of(asyncio.get_running_loop(), self)

    def __repr__(self) -> str:
        name = self.core.lane_names.get(self.lane, self.lane)
        try:
            state = "resolved" if self.done() else "open"
        except DeviceLost:  # in a forked child
            state = "lost"
        return f"<Reply {self.ticket} of {name!r}, {state}>"


def gather(*waitables: Any, timeout: float | None = None) -> list[Any]:
    """Wait for several replies or handles.

    Parameters
    ----------
    *waitables : Reply, Answer or GpuRef
        What to wait for.
    timeout : float, optional
        Seconds for all of them together.

    Returns
    -------
    list
        The value of each reply and answer; each handle itself.

    Raises
    ------
    AskTimeout
        When the time is over.
    AtomrError
        The first error in the order of the arguments, after all are resolved; an actor's may be any exception.
    """
    deadline = deadline_of(timeout)
    replies: list[Any] = []
    for item in waitables:
        if not isinstance(item, ReplyBase | AnswerBase | Ref):
            raise InvalidRequest(f"gather takes replies, answers and GpuRefs, not {type(item).__name__}")
    for item in waitables:
        replies.append(cast("GpuRef", item)._probe() if isinstance(item, Ref) else item)
    for reply in replies:
        if not reply.wait(None if deadline is None else max(0.0, deadline - time.monotonic())):
            raise AskTimeout(f"not everything was resolved within {timeout} s; the messages go on")
    values = []
    for item, reply in zip(waitables, replies, strict=True):
        if item is reply:
            values.append(reply.result())
        else:
            item._settle(reply)
            values.append(item)
    return values
