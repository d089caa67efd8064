"""Blocks of Numba's simulator, whose threads take turns: each runs until a barrier, a function of its warp, or its end.

Numba's own runs them at once and watches them in a busy loop: 0.5 s for 256 threads and nine barriers, three to four
times as long as in turns.  A thread that waits for another in a loop of its own, as at a lock, is left running when its
turn has taken long.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .api import kernelapi, simulator
from .simulated_cuda import Warps

__all__ = ["Block", "BlockThread"]

_TURN: Final = 0.01  # seconds


class BlockThread(simulator.BlockThread):  # type: ignore[misc]
    """A thread of a block, registered with its warp."""

    def __init__(self, function: Callable[[], None], manager: Any, *place: Any) -> None:
        super().__init__(function, manager, *place)
        self.ended = False
        manager.warps.add(self)
        self._go = threading.Lock()
        self._go.acquire()

    def run(self) -> None:
        """Compute like a GPU, without warnings about overflows and divisions by zero."""
        try:
            with np.errstate(all="ignore"):
                super().run()
        finally:
            self.ended = True
            self._manager.stopped(self, at_barrier=False)

    def syncthreads(self) -> None:
        """Wait for the other threads of the block that have not ended."""
        self._manager.stopped(self, at_barrier=True)
        if not self.abort:
            self._go.acquire()
        if self.abort:
            raise RuntimeError("another thread of the block has failed")

    def go_on(self) -> None:
        """Start it, or have it pass the barrier."""
        if self.ident is None:
            self.start()
        else:
            self._go.release()

    def leave_barrier(self) -> None:
        """Have it look whether it is to fail."""
        with contextlib.suppress(RuntimeError):  # it does not wait
            self._go.release()

    def give_turn(self) -> None:
        """Let the next thread run: this one waits for it, or goes on beside it."""
        self._manager.end_turn(self)


class Block(simulator.BlockManager):  # type: ignore[misc]
    """A block; its threads run one after the other if none can wait for another."""

    def __init__(self, function: Any, grid: Any, block: tuple[int, ...], debug: bool) -> None:
        super().__init__(function, grid, block, debug)
        self.warps = Warps(math.prod(block))
        self._lock = threading.Lock()
        self._ready: list[BlockThread] = []  # that have their turns until the next barrier, the last first
        self._running: BlockThread | None = None  # whose turn it is
        self._waiting: list[BlockThread] = []  # at the barrier
        self._left = 0  # threads that have not come to the barrier or their end
        self._failed: BlockThread | None = None
        self._over = threading.Lock()  # free when none is left, or one has failed
        self._over.acquire()

    def run(self, grid_point: tuple[int, ...], *arguments: Any) -> None:
        """Run the block."""
        points = [point[::-1] for point in np.ndindex(*self._block_dim[::-1])]

        def one_after_the_other() -> None:
            for number, point in enumerate(points):
                threads[0].threadIdx, threads[0].thread_id = kernelapi.Dim3(*point), number
                self._f(*arguments)

        if getattr(self._f, "meets", True):
            works = [(lambda: self._f(*arguments), point) for point in points]
        else:
            works = [(one_after_the_other, (0, 0, 0))]
        threads = self._waiting = [BlockThread(work, self, grid_point, point, self._debug) for work, point in works]
        while self._waiting:
            with self._lock:
                self._left, self._ready, self._waiting = len(self._waiting), self._waiting[::-1], []
                self._next()
            self._watch()
            if self._failed is not None:
                error, trace = self._failed.exception
                self._abort(threads)
                raise error.with_traceback(trace)

    def stopped(self, thread: BlockThread, *, at_barrier: bool) -> None:
        """Hear from a thread that is at the barrier, or has ended."""
        with self._lock:
            self._left -= 1
            if at_barrier:
                self._waiting.append(thread)
            if self._failed is not None:
                return
            if thread.exception:
                self._failed = thread
            if self._left == 0 or self._failed is not None:
                self._running = None
                self._over.release()
            elif self._running is thread:
                self._next()

    def end_turn(self, thread: BlockThread) -> None:
        """Let the next thread run beside this one."""
        with self._lock:
            if self._running is thread:
                self._next()

    def _next(self) -> None:
        """Give the turn to the next thread; the caller holds the lock."""
        thread = self._running = self._ready.pop() if self._ready else None
        if thread is None:
            return
        try:
            thread.go_on()
        except RuntimeError as error:  # no more threads can be started
            thread.exception = error, error.__traceback__
            self._failed, self._running = thread, None
            self._over.release()

    def _watch(self) -> None:
        """Wait until no thread is left, or one has failed; let the next one run where a turn takes long."""
        seen = None
        while not self._over.acquire(timeout=_TURN):
            if seen is not None:
                self.end_turn(seen)
            seen = self._running

    def _abort(self, threads: list[BlockThread]) -> None:
        """Have threads fail at their next barrier, or where they wait."""
        for thread in threads:
            thread.abort = True
        for thread in threads:
            if thread.ident is not None:
                thread.leave_barrier()
