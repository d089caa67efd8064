"""Threads for what coroutines of a device have to wait for.

Not those of `asyncio.to_thread`, which are the program's, and few: what it runs there may wait for the device itself,
for a piece of staging memory say, which belongs to a coroutine that would wait for such a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["Aside"]

T = TypeVar("T")


class Aside:
    """A few threads, which start when they are needed and end with the device.

    What runs here must come to its end whatever becomes of other coroutines and of whatever else runs here.

    Parameters
    ----------
    name : str
        Of the threads.
    size : int
        How many, at most.
    """

    def __init__(self, name: str, size: int) -> None:
        self._threads: ThreadPoolExecutor | None = ThreadPoolExecutor(size, thread_name_prefix=name)

    async def call(self, work: Callable[[], T]) -> T:
        """Do something that waits without blocking the running event loop; its result."""
        future = self._submit(work)
        if future is None:
            return work()
        try:
            return await asyncio.wrap_future(future)
        finally:
            del future  # an error of its own would keep this frame, and the two each other

    def _submit(self, work: Callable[[], T]) -> Future[T] | None:
        """Give work to a thread; None where there is none any more, and nothing waits."""
        if self._threads is None:
            return None
        try:
            return self._threads.submit(_do, [work])
        except RuntimeError:  # closed
            return None

    def close(self) -> None:
        """Have the threads end after what they are at.  Does not wait.  Idempotent."""
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    def abandon(self) -> None:
        """In a forked child, where the threads do not exist."""
        self._threads = None


def _do(work: list[Callable[[], T]]) -> T:
    """Do the one thing there is, which nobody keeps: who waits for it finds that what it used is free."""
    return work.pop()()
