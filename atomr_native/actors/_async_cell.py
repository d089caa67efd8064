"""Actors with coroutine handlers: each has an event loop in its thread."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import traceback
from collections.abc import Coroutine
from typing import Any

from .._lib.actor_cell import AnswerBase, Envelope
from .._lib.guard import Lock
from ..errors import ActorStopped, AtomrError, InvalidRequest
from .answer import bare
from .cell import Cell

__all__ = ["AsyncCell"]

_at_work: contextvars.ContextVar[Envelope | None] = contextvars.ContextVar("atomr_native_message", default=None)


class AsyncCell(Cell):
    """A cell whose handlers and hooks may be coroutine functions.

    One task takes messages and processes system messages.  A handler that suspends becomes a separate task.  No message
    is taken while the maximum number of handlers runs, so a stop need not wait for them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tasks: dict[asyncio.Task[Any], Envelope] = {}
        self._wake: asyncio.Future[None] | None = None
        self._held = True  # determined by the state of the actor, at first "starting"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_lock = Lock()
        self._hook: asyncio.Task[Any] | None = None
        self._interrupted = False

    @property
    def load(self) -> int:
        """Number of waiting and running messages."""
        return self.depth + len(self._tasks)

    # ---- the thread

    def _main(self) -> None:
        self._bind(True)
        fd = -1
        try:
            fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            with asyncio.Runner() as runner:
                loop = runner.get_loop()
                self._run_loop(loop, loop.create_task(self._drive(fd)))
        except BaseException as error:
            self.crashed(error)
        finally:
            if not self.abandoned:
                self._watch(-1)
            if fd >= 0:
                os.close(fd)
            self._pay()
            self._bind(False)

    def _run_loop(self, loop: asyncio.AbstractEventLoop, main: asyncio.Task[None]) -> None:
        """Run the loop until `main` ends.

        SystemExit and KeyboardInterrupt of any task or callback leave the loop.  They are failures of the actor like
        all others: its supervisor decides, and the loop continues.
        """
        while not main.done():
            try:
                loop.run_until_complete(main)
            except (SystemExit, KeyboardInterrupt) as error:
                if not any(_raised(task, error) for task in (main, self._hook, *self._tasks)):
                    text = "".join(traceback.format_exception(error)).rstrip()
                    self.report(bare(error), None, "failed in a background task", text)
        main.result()

    async def _drive(self, fd: int) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._watch(fd)

        def ring() -> None:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(fd)
            self._nudge()

        loop.add_reader(fd, ring)
        try:
            while not self.finished:
                item = self._take()
                if item is None:
                    self._pay()
                    self._wake = loop.create_future()
                    if not self._arm():
                        await self._wake
                    self._wake = None
                elif isinstance(item, Envelope):
                    if item.mark is None:
                        self._begin(loop, item)
                    else:
                        self._begin_marked(loop, item)
                else:
                    await self.operate(item)
                self._look_drained()
        finally:
            loop.remove_reader(fd)
            with self._loop_lock:
                self._loop = None

    def _nudge(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _look_drained(self) -> None:
        if self.draining and self.depth == 0 and not self._tasks:
            self._drained()

    # ---- messages

    def _begin_marked(self, loop: asyncio.AbstractEventLoop, envelope: Envelope) -> None:
        mark, failed, tasks = envelope.mark, self.failed, len(self._tasks)
        mark.begin(self)
        try:
            self._begin(loop, envelope)
        finally:
            mark.leave()
            if len(self._tasks) == tasks:
                mark.end(self.failed != failed)

    def _begin(self, loop: asyncio.AbstractEventLoop, envelope: Envelope) -> None:
        self.processed += 1
        self.current = envelope
        token = _at_work.set(envelope)
        try:
            if envelope.kind and not self._admit(envelope):
                return
            result = self.behavior(envelope.message)
            if asyncio.iscoroutine(result):
                task = loop.create_task(result)
                self._tasks[task] = envelope
                task.add_done_callback(self._end_task)
                self._suspend(self._held)
                return
        except BaseException as error:
            self._failed(envelope, error)
        else:
            if envelope.answer is not None and not envelope.deferred:
                envelope.answer.resolve(result)
        finally:
            _at_work.reset(token)
            self.current = None

    def _end_task(self, task: asyncio.Task[Any]) -> None:
        envelope, failed = self._tasks.pop(task), self.failed
        if task.cancelled():
            if self.state in ("stopping", "restarting", "failed"):
                if envelope.answer is not None:
                    envelope.answer.fail(ActorStopped(f"actor {self.path} was stopped or restarted at this message"))
            else:
                self._failed(envelope, AtomrError(f"a handler of actor {self.path} was cancelled"))
        else:
            error = task.exception()
            if error is not None:
                self._failed(envelope, error)
            elif envelope.answer is not None and not envelope.deferred:
                envelope.answer.resolve(task.result())
        if envelope.mark is not None:
            envelope.mark.end(self.failed != failed)
        self._suspend(self._held)
        self._pay()
        self._look_drained()
        self._nudge()

    def _suspend(self, yes: bool) -> None:
        self._held = yes
        super()._suspend(yes or len(self._tasks) >= self.kind.reentrant)

    def envelope(self) -> Envelope:
        found = _at_work.get()
        if found is None:
            raise InvalidRequest(
                f"actor {self.path} is not handling a message, so there is none to reply to, stash or forward"
            )
        return found

    def at_work(self) -> Envelope | None:
        return _at_work.get()

    def askers(self) -> list[AnswerBase]:
        running = [envelope.answer for envelope in tuple(self._tasks.values()) if envelope.answer is not None]
        return [*super().askers(), *running]

    # ---- ending running handlers

    async def quiesce(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
            await asyncio.sleep(0)  # their callbacks

    def interrupt(self) -> None:
        """Cancel a hook that delays the actor's start; other work ends when the system message is taken."""
        self._interrupted = True  # a stop is pending
        with self._loop_lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._cancel_start)

    def _cancel_start(self) -> None:
        if self._hook is not None and self.state in ("starting", "restarting"):
            self._hook.cancel()

    async def call(self, hook: Any, *args: Any) -> None:
        result = hook(*args)
        if not isinstance(result, Coroutine):
            return
        if self._interrupted and self.state == "starting":
            result.close()
            raise AtomrError(f"{hook.__name__} of actor {self.path} was not called, since the actor is stopping")
        task = self._hook = asyncio.get_running_loop().create_task(result)
        try:
            await task
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise AtomrError(f"{hook.__name__} of actor {self.path} was cancelled") from None
        finally:
            self._hook = None


def _raised(task: asyncio.Task[Any] | None, error: BaseException) -> bool:
    return task is not None and task.done() and not task.cancelled() and task.exception() is error
