"""Threads for blocking work of a device's coroutines.

The threads of `asyncio.to_thread` cannot be used: they are few, and belong to the program.  A function that it runs
there may wait for the device, for example for a piece of staging memory held by a coroutine that would wait for such a
thread.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from .._lib.guard import own_thread, shielded

if TYPE_CHECKING:
    import asyncio

__all__ = ["WaitPool"]

T = TypeVar("T")


class WaitPool:
    """A few threads, which start on demand and end with the device.

    Work on these threads must finish independently of other coroutines and of other work here.

    Parameters
    ----------
    name : str
        Name of the threads.
    size : int
        Maximum number of threads.
    """

    def __init__(self, name: str, size: int) -> None:
        self._threads: ThreadPoolExecutor | None = ThreadPoolExecutor(
            size, thread_name_prefix=name, initializer=own_thread
        )

    async def call(self, work: Callable[[], T]) -> T:
        """Run blocking work without blocking the running event loop; return its result.

        A cancelled call does not begin; work that has begun goes on.
        """
        import asyncio  # at first use: most programs have no coroutines

        loop = asyncio.get_running_loop()
        # Not a future of `concurrent.futures`, whose lock an interrupt could leave taken.
        done: asyncio.Future[T] = loop.create_future()
        box = [work]
        if not self.start(functools.partial(_do, box, loop, done)):
            return work()
        del work
        try:
            return await done
        finally:
            box.clear()
            del done  # a new error would keep this frame, and both each other

    @shielded
    def start(self, work: Callable[[], object]) -> bool:
        """Pass work, which must not raise, to a thread; return False if the pool is closed.  Does not wait."""
        if self._threads is None:
            return False
        try:
            self._threads.submit(work)
        except RuntimeError:  # closed
            return False
        return True

    @shielded
    def close(self) -> None:
        """Make the threads end after their current work.  Does not wait.  Idempotent."""
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    def abandon(self) -> None:
        """In a forked child, where the threads do not exist."""
        self._threads = None


def _do(box: list[Callable[[], Any]], loop: asyncio.AbstractEventLoop, done: asyncio.Future[Any]) -> None:
    """Run one piece of work without keeping it, so its objects are free when the caller resumes."""
    try:
        work = box.pop()
    except IndexError:  # cancelled
        return
    value = error = None
    try:
        value = work()
    except BaseException as raised:
        error = raised
    del work
    with contextlib.suppress(RuntimeError):  # closed meanwhile: it has no waiting coroutines
        loop.call_soon_threadsafe(_settle, done, value, error)
    del value, error


def _settle(done: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if done.done():  # cancelled
        return
    if error is None:
        done.set_result(value)
    else:
        done.set_exception(error)
