"""The life cycle of one actor: start, failure, restart, stop.

All methods run in the actor's thread, unless they say otherwise.  Other threads request operations by system messages
in its mailbox: tuples of the operation's name and its arguments.  Operations are coroutines, since hooks may be; for
actors without an event loop they never suspend.
"""

from __future__ import annotations

import inspect
import itertools
import logging
import threading
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from .._lib.actor_cell import AnswerBase, CellBase, Envelope, current_cell
from .._support.error_text import error_text
from .._support.log_events import log_fields
from ..errors import ActorStopped, AtomrError, InvalidRequest, NoReply, UnhandledMessage
from ._death import DeathWatch
from ._devices import DeviceWatch
from ._envelopes import PIPE, TERMINATED, TIMER
from ._family import Family
from ._handlers import complete
from ._refusal import Refusal
from .actor import known_handlers
from .answer import Answer, bare, open_answer
from .context import Context
from .ref import ActorRef, ref_to
from .timers import Timers

if TYPE_CHECKING:
    from .actor import Actor
    from .mailbox import Mailbox
    from .supervision import Supervision
    from .tree import ActorTree

__all__ = ["Cell"]

_log = logging.getLogger("atomr_native.actors")
_uids = itertools.count(1)


class Cell(Refusal, CellBase):
    """One actor, across all its instances.

    Attributes
    ----------
    state : str
        ``"starting"``, ``"running"``, ``"failed"`` (its supervisor decides), ``"restarting"``, ``"waiting"`` (before a
        restart), ``"stopping"``, ``"stopped"``.
    ended : Answer
        Resolved when it has stopped for good.
    begun : Answer
        Resolved when it has started, after any number of attempts.
    """

    ref: ActorRef

    def __init__(
        self,
        capacity: int,  # noqa: ARG002 - the native part's
        spin_us: int,  # noqa: ARG002
        evicts: bool,  # noqa: ARG002
        *,
        tree: ActorTree,
        parent: Cell | None,
        name: str,
        kind: type[Actor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        supervision: Supervision | None,
        mailbox: Mailbox,
    ) -> None:
        self.tree, self.parent, self.name = tree, parent, name
        self.path: str = "" if parent is None else f"{parent.path}/{name}"
        self.uid = next(_uids)
        self.kind, self.args, self.kwargs = kind, args, kwargs
        self.supervision, self.mailbox = supervision, mailbox
        self.state = "starting"
        self.instance: Actor | None = None
        self.making: type[Actor] | None = None
        self.ref = ref_to(self)
        self.context = Context(self)
        self.timers = Timers(self)
        self.family = Family(self)
        self.deaths = DeathWatch(self)
        self.devices = DeviceWatch(self)
        self.ended = open_answer(f"the end of {self.path}")
        self.begun = open_answer(f"the start of {self.path}")
        self.ended.cell = self.begun.cell = self
        self.restarts = 0
        self.history: deque[float] = deque()  # times of its restarts; for the parent's thread
        self.covered = 0  # the last failure handled by a directive to the group; for the parent's thread
        self.failures = 0
        self.failure: int | None = None  # the number of the open failure
        self.error: BaseException | None = None
        self.final_error: BaseException | None = None
        self.failed_message: object = None
        self.stash: list[Envelope] = []
        self.stack: list[Callable[[Any], Any]] = []
        self.rooms: deque[Callable[[], object]] = deque()
        self.thread: threading.Thread | None = None
        self._pause: Any = None  # a pending restart
        self._after_children: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._graceful = False
        self.pipes = 0  # replies that `pipe_to_self` waits for

    # ---- from any thread

    def start(self) -> None:
        """Start the actor, in its own thread unless a stepper runs it."""
        self.enqueue_system(("start",))
        if self.stepper is None:
            self.thread = threading.Thread(target=self._main, name=f"atomr_native{self.path}", daemon=True)
            self.thread.start()
            self.tree.note_thread(self.thread)

    def stop(self, *, drain: bool) -> None:
        """Request a stop, after its queued messages or after the current one.  From any thread."""
        self.alive_here()
        self.shut(False)
        self.enqueue_system(("drain",) if drain else ("stop",))
        if not drain:
            self.discard_queue()
            self.interrupt()

    def alive_here(self) -> None:
        """Raise `ActorStopped` in a forked child."""
        if self.abandoned:
            raise ActorStopped("this actor's System was made before a fork; make a new one in the child process")

    def stats(self) -> dict[str, Any]:
        """Return the counters.  From any thread."""
        return {
            "state": self.state, "processed": self.processed, "failed": self.failed, "restarts": self.restarts,
            "mailbox": self.depth, "stashed": len(self.stash), "capacity": self.capacity or None,
        }  # fmt: skip

    @property
    def load(self) -> int:
        """Number of waiting and running messages.  From any thread."""
        return self.depth + self.busy

    # ---- the thread

    def _main(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self.crashed(error)

    def crashed(self, error: BaseException) -> None:
        """Stop the actor when the library itself fails in this thread."""
        if self.abandoned:
            return
        if self.finished:  # as a background task does that raises SystemExit when it is cancelled
            _log.error("actor %s failed after its end", self.path, exc_info=error)
            return
        _log.critical("actor %s: internal error, stopping it", self.path, exc_info=error,
                      extra=self._event("failed", error))  # fmt: skip
        self.final_error = bare(error)
        for child in self.family.cells():
            child.stop(drain=False)
        self._finish_end()

    def _system(self, message: tuple[Any, ...]) -> None:
        complete(self.operate(message))

    async def operate(self, message: tuple[Any, ...]) -> None:
        """Execute a system message."""
        await getattr(self, f"_on_{message[0]}")(*message[1:])

    async def call(self, hook: Callable[..., Any], *args: Any) -> None:
        """Call a hook, which may be a coroutine function."""
        result = hook(*args)
        if inspect.isawaitable(result):
            await result

    async def quiesce(self) -> None:
        """Wait until no message is running (overridden)."""

    def interrupt(self) -> None:
        """End running work, if possible (overridden).  From any thread."""

    # ---- messages

    def _admit(self, envelope: Envelope) -> bool:
        if envelope.kind == TIMER:
            return self.timers.admit(envelope.extra)
        if envelope.kind == TERMINATED:
            return self.deaths.admit(envelope.extra)
        if envelope.kind == PIPE:
            self.pipes -= 1
            if envelope.extra is not None:
                raise envelope.extra
            return True
        return self.devices.admit(envelope)

    def _failed(self, envelope: Envelope, error: BaseException) -> None:
        if self.stepper is not None and isinstance(error, KeyboardInterrupt):
            raise error  # an error of the test, not of the actor
        self.failed += 1
        text = "".join(traceback.format_exception(error)).rstrip()
        bare(error)
        if envelope.answer is not None:
            envelope.answer.fail(error)
        self.report(error, envelope.message, f"failed at {type(envelope.message).__name__}", text)

    def report(self, error: BaseException, message: object, what: str, text: str) -> None:
        """Report a failure to the supervisor, and take no message until it has decided."""
        if self.state not in ("running", "starting"):  # an earlier failure, or its end, is being handled
            _log.error(
                "actor %s %s while it was %s: %s", self.path, what, self.state, text, extra=self._event("failed", error)
            )
            return
        _log.error("actor %s %s: %s", self.path, what, text, extra=self._event("failed", error))
        self.state = "failed"
        self._suspend(True)
        self.failures += 1
        self.failure = self.failures
        self.error, self.failed_message = error, message
        parent = self.parent
        if parent is None or not parent.enqueue_system(("failed", self, self.failure, error)):
            self.enqueue_system(("stop", error))

    def unhandled(self) -> None:
        """Refuse the current message, which has no handler."""
        envelope = self.envelope()
        name = type(envelope.message).__name__
        table = known_handlers(self.kind)
        known = "" if table is None else f"; it handles {', '.join(table.types) or 'nothing: it has no receive'}"
        error = UnhandledMessage(f"actor {self.path} ({self.kind.__name__}) has no handler for {name}{known}")
        if envelope.answer is not None:
            envelope.answer.fail(error)
        else:
            self.tree.dead_letter(self.path, envelope, error)

    def own(self, what: str) -> Cell:
        """Return the cell; raise if another thread uses `what` of its actor."""
        if current_cell() is not self:
            raise InvalidRequest(f"{what} of actor {self.path} was used in another thread; send it a message instead")
        return self

    def envelope(self) -> Envelope:
        """Return the current message."""
        found = self.current
        if found is None:
            raise InvalidRequest(
                f"actor {self.path} is not handling a message, so there is none to reply to, stash or forward"
            )
        return found

    def at_work(self) -> Envelope | None:
        """Return the current message, or None.  In the actor's thread only."""
        return self.current

    def askers(self) -> list[AnswerBase]:
        """Return the answers that only this actor can give, now that its mailbox is empty.  From any thread."""
        return [each.answer for each in (self.current, *self.stash) if each is not None and each.answer is not None]

    def behave(self, behavior: Callable[[Any], Any] | None) -> None:
        """Set the behavior for messages."""
        self.behavior = behavior

    # ---- start

    async def _on_start(self) -> None:
        if self.state == "starting":
            await self._create(None)

    async def _create(self, cause: BaseException | None) -> None:
        """Create an instance; `cause` is the error behind a restart."""
        what = "failed to construct"
        try:
            self.making = self.kind
            instance = self.kind(*self.args, **self.kwargs)
            self.making = None
            what = "failed in pre_start" if cause is None else "failed in post_restart"
            self.instance = instance
            self.stack.clear()
            self.behave(instance.receive)
            if cause is None:
                await self.call(instance.pre_start)
            else:
                await self.call(instance.post_restart, cause)
        except BaseException as error:
            self.making = None
            self._pass_on(error)
            text = "".join(traceback.format_exception(error)).rstrip()
            self.report(bare(error), None, what, text)
            return
        self.failure = self.error = self.failed_message = None
        if cause is not None:
            self.restarts += 1
            _log.warning("actor %s restarted (%d so far) after %s", self.path, self.restarts, _brief(cause),
                         extra=self._event("restarted", cause))  # fmt: skip
        elif self.parent is not None and _log.isEnabledFor(logging.INFO):
            _log.info("actor %s started", self.path, extra=self._event("started"))
        if self.state != "stopping":
            self.state = "running"
            self._suspend(False)
        self.begun.resolve(None)

    def _pass_on(self, error: BaseException) -> None:
        """Re-raise exceptions that are not actor failures (overridden)."""
        if self.stepper is not None and isinstance(error, KeyboardInterrupt):
            raise error

    # ---- decisions of the supervisor

    async def _on_resume(self, failure: int) -> None:
        if failure != self.failure or self.state != "failed":
            return
        self.state, self.failure, self.error, self.failed_message = "running", None, None, None
        self.family.resume_escalated()
        self._suspend(False)
        self.begun.resolve(None)  # if it has failed in pre_start

    async def _on_restart(self, failure: int | None, pause: float, cause: BaseException) -> None:
        current = self.state == "failed" if failure is None else failure == self.failure and self.state == "failed"
        if not current and not (failure is None and self.state in ("running", "starting")):
            return
        if self.error is None:
            self.error = cause
        await self._restart(pause)

    async def _restart(self, pause: float) -> None:
        self.state = "restarting"
        self.failure = None
        self._suspend(True)
        self.timers.cancel_all()
        await self.quiesce()
        self.unstash()
        old, self.instance = self.instance, None
        self.behave(None)
        self.stack.clear()
        if old is not None and self.error is not None:
            await self._guard("pre_restart", old.pre_restart, self.error, self.failed_message)
        self.family.stop(drain=False)
        await self._when_childless(lambda: self._recreate(pause))

    async def _recreate(self, pause: float) -> None:
        if pause <= 0:
            await self._on_again()
            return
        self.state = "waiting"
        clock = self.tree.clock
        self._pause = clock.call_at(clock.now() + pause, lambda: self.enqueue_system(("again",)))

    async def _on_again(self) -> None:
        if self.state not in ("waiting", "restarting"):
            return
        self._pause = None
        self.state = "starting"
        await self._create(self.error or AtomrError("restart"))

    # ---- stop

    async def _on_drain(self) -> None:
        if self.state in ("stopping", "stopped"):
            return
        self._graceful = self.draining = True  # the loop calls `_drained` when no message is left

    def _drained(self) -> None:
        if self.pipes:
            return  # answers to its own asks are still to come
        self.draining = False
        self.enqueue_system(("stop",))

    async def _on_stop(self, error: BaseException | None = None) -> None:
        if self.state == "stopped":
            return
        if self.state == "stopping":
            self.family.stop(drain=False)
            return
        drained = self._graceful and error is None and self.depth == 0
        if error is not None:
            self.final_error = error
        self.draining = False
        self.state = "stopping"
        self._suspend(True)
        self.shut(False)
        self.timers.cancel_all()
        if self._pause is not None:
            self._pause.cancel()
        self.discard_queue()
        await self.quiesce()
        self.family.stop(drain=drained)
        await self._when_childless(self._end)

    async def _end(self) -> None:
        instance, self.instance = self.instance, None
        if instance is not None:
            await self._guard("post_stop", instance.post_stop)
        self._finish_end()

    def _finish_end(self) -> None:
        """End: notify all watchers, and accept no more messages."""
        self.deaths.unwatch_all()
        self.devices.unwatch_all()
        for envelope in self.stash:
            self.discard(envelope)
        self.stash.clear()
        self.stack.clear()
        self.behave(None)
        self.timers.cancel_all()
        self.shut(True)
        if self.parent is not None:
            self.parent.family.forget(self)
        self.state = "stopped"
        if self.parent is not None and _log.isEnabledFor(logging.INFO):
            _log.info("actor %s stopped", self.path, extra=self._event("stopped", self.final_error))
        self._suspend(False)
        while (item := self._take()) is not None:
            if isinstance(item, Envelope):
                self.discard(item)
            elif item[0] == "watch":
                self.deaths.add_watcher(item[1])
            elif item[0] == "no_reply":
                self.dropped(item[1])
        self.deaths.tell_watchers()
        self.args, self.kwargs, self.error, self.failed_message = (), {}, None, None
        if self.parent is not None:
            self.parent.enqueue_system(("child_stopped",))
        self.finished = True
        self.begun.fail(self.stopped_error())
        self.ended.resolve(None)

    # ---- children and the watched

    async def _on_failed(self, child: Cell, failure: int, error: BaseException) -> None:
        self.family.failed(child, failure, error)

    async def _on_child_stopped(self) -> None:
        action = self._after_children
        if action is not None and self.family.empty:
            self._after_children = None
            await action()

    async def _when_childless(self, action: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self.family.empty:
            self._after_children = None
            await action()
        else:
            self._after_children = action

    async def _on_watch(self, watcher: Cell) -> None:
        self.deaths.add_watcher(watcher)

    async def _on_unwatch(self, watcher: Cell) -> None:
        self.deaths.remove_watcher(watcher)

    async def _on_died(self, ref: ActorRef) -> None:
        self.deaths.died(ref)

    async def _on_no_reply(self, answer: Answer) -> None:
        self.dropped(answer)

    def dropped(self, answer: Answer) -> None:
        """Answer a message that was kept for a later reply and dropped."""
        answer.fail(NoReply(f"actor {self.path} dropped the message without an answer"))

    # ---- helpers

    async def _guard(self, what: str, hook: Callable[..., Any], *args: Any) -> None:
        try:
            await self.call(hook, *args)
        except BaseException as error:
            self._pass_on(error)
            _log.error("actor %s: %s failed", self.path, what, exc_info=error)
            bare(error)

    def _event(self, what: str, cause: BaseException | None = None) -> dict[str, Any]:
        return log_fields(f"actor_{what}", actor=self.path, cause=cause, restarts=self.restarts)

    def unstash(self) -> None:
        """Put stashed messages back, in their order, before the waiting ones."""
        while self.stash:
            self._put_back(self.stash.pop())

    def discard_queue(self) -> None:
        """Turn the waiting messages into dead letters.  From any thread."""
        while (envelope := self._take_user()) is not None:
            self.discard(envelope)

    def discard(self, envelope: Envelope) -> None:
        """Refuse an accepted message, since the actor stops.  From any thread."""
        if envelope.kind:
            return
        error = self.stopped_error()
        if envelope.answer is None:
            self.tree.dead_letter(self.path, envelope, error)
        else:
            envelope.answer.fail(error)

    def stopped_error(self) -> ActorStopped:
        """Return the error for messages to a stopped or stopping actor."""
        why = f" after {_brief(self.final_error)}" if self.final_error is not None else ""
        return ActorStopped(f"actor {self.path} has stopped{why}; the message was not handled")

    def __repr__(self) -> str:
        return f"<Cell {self.path}, {self.state}>"


def _brief(error: BaseException) -> str:
    return error_text(error)[:200]
