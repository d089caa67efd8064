"""The life of one actor: start, failure, restart, stop.

Everything here runs in the actor's own thread, except where a method says otherwise.  Whatever another thread wants
of an actor, it puts into its mailbox as a system message: a tuple of the operation's name and its arguments.
Operations are coroutines, so that hooks may be; for actors without an event loop they never suspend.
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

from .._lib.actor_cell import CellBase, Envelope
from .._log_events import log_fields
from ..errors import ActorStopped, AtomrError, InvalidRequest, NoReply, UnhandledMessage
from ._death import DeathWatch
from ._devices import DeviceWatch
from ._family import Family
from ._handlers import complete
from ._refusal import Refusal
from .answer import Answer, bare
from .context import Context
from .ref import ActorRef
from .timers import Timers

if TYPE_CHECKING:
    from .actor import Actor
    from .mailbox import Mailbox
    from .supervision import Supervision
    from .tree import ActorTree

__all__ = ["Cell"]

_log = logging.getLogger("atomr_native.actors")
_uids = itertools.count(1)
#: Kinds of envelopes that are looked at before the actor sees them.
TIMER, TERMINATED, PIPE = 1, 2, 4


class Cell(Refusal, CellBase):
    """One actor, whichever instance stands behind it.

    Attributes
    ----------
    state : str
        ``"starting"``, ``"running"``, ``"failed"`` (its supervisor decides), ``"restarting"``, ``"waiting"`` (before a
        restart), ``"stopping"``, ``"stopped"``.
    ended : Answer
        Resolved when it has stopped for good.
    begun : Answer
        Resolved when it has started, however often that was tried.
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
        self.ref = ActorRef._to(self)
        self.context = Context(self)
        self.timers = Timers(self)
        self.family = Family(self)
        self.deaths = DeathWatch(self)
        self.devices = DeviceWatch(self)
        self.ended = Answer._open(f"the end of {self.path}")
        self.begun = Answer._open(f"the start of {self.path}")
        self.ended.cell = self.begun.cell = self
        self.restarts = 0
        self.history: deque[float] = deque()  # of its restarts; the parent's thread's
        self.covered = 0  # the last failure that a directive to the group has dealt with; the parent's thread's
        self.failures = 0
        self.failure: int | None = None  # the number of the open one
        self.error: BaseException | None = None
        self.final_error: BaseException | None = None
        self.failed_message: object = None
        self.stash: list[Envelope] = []
        self.stack: list[Callable[[Any], Any]] = []
        self.rooms: deque[Callable[[], object]] = deque()
        self.thread: threading.Thread | None = None
        self._pause: Any = None  # a restart that waits
        self._after_children: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._graceful = False
        self.pipes = 0  # what `pipe_to_self` waits for

    # ---- from any thread

    def start(self) -> None:
        """Have the actor begin, in a thread of its own unless somebody steps through it."""
        self._put_system(("start",))
        if self.stepper is None:
            self.thread = threading.Thread(target=self._main, name=f"atomr_native{self.path}", daemon=True)
            self.thread.start()
            self.tree.note_thread(self.thread)

    def stop(self, *, drain: bool) -> None:
        """Ask it to stop, after the messages that it has or after the one at work.  From any thread."""
        self.alive_here()
        self._shut(False)
        self._put_system(("drain",) if drain else ("stop",))
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
        """Messages waiting and at work.  From any thread."""
        return self.depth + self.busy

    # ---- the thread

    def _main(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self.crashed(error)

    def crashed(self, error: BaseException) -> None:
        """Leave no zombie when the library itself has failed in this thread."""
        if self.abandoned:
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
        """Act on a system message."""
        await getattr(self, f"_on_{message[0]}")(*message[1:])

    async def call(self, hook: Callable[..., Any], *args: Any) -> None:
        """Call a hook, which may be a coroutine function."""
        result = hook(*args)
        if inspect.isawaitable(result):
            await result

    async def quiesce(self) -> None:
        """Wait until no message is at work (overridden)."""

    def interrupt(self) -> None:
        """End what is at work, where that can be done (overridden).  From any thread."""

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
            raise error  # the test's, not the actor's
        self.failed += 1
        text = "".join(traceback.format_exception(error)).rstrip()
        bare(error)
        if envelope.answer is not None:
            envelope.answer.fail(error)
        self.report(error, envelope.message, f"failed at {type(envelope.message).__name__}", text)

    def report(self, error: BaseException, message: object, what: str, text: str) -> None:
        """Tell the supervisor of a failure, and take no message until it has decided."""
        if self.state not in ("running", "starting"):  # its failure before, or its end, is being dealt with
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
        if parent is None or not parent._put_system(("failed", self, self.failure, error)):
            self._put_system(("stop", error))

    def unhandled(self) -> None:
        """Refuse the message at work, for which there is no handler."""
        envelope = self.envelope()
        name = type(envelope.message).__name__
        table = self.kind._handlers() if self.kind._table is not None else None
        known = "" if table is None else f"; it handles {', '.join(table.types) or 'nothing: it has no receive'}"
        error = UnhandledMessage(f"actor {self.path} ({self.kind.__name__}) has no handler for {name}{known}")
        if envelope.answer is not None:
            envelope.answer.fail(error)
        else:
            self.tree.dead_letter(self.path, envelope, error)

    def envelope(self) -> Envelope:
        """Return the message at work."""
        found = self.current
        if found is None:
            raise InvalidRequest(
                f"actor {self.path} is at no message now, so there is none to reply to, stash or forward"
            )
        return found

    def at_work(self) -> Envelope | None:
        """Return the message at work, or None.  In the actor's thread only."""
        return self.current

    def behave(self, behavior: Callable[[Any], Any] | None) -> None:
        """Have messages handled by this."""
        self.behavior = behavior

    # ---- start

    async def _on_start(self) -> None:
        if self.state == "starting":
            await self._create(None)

    async def _create(self, cause: BaseException | None) -> None:
        """Make an instance; `cause` is the error behind a restart."""
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
        """Raise what is no failure of the actor's (overridden)."""
        if self.stepper is not None and isinstance(error, KeyboardInterrupt):
            raise error

    # ---- what the supervisor decided

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
        self._pause = clock.call_at(clock.now() + pause, lambda: self._put_system(("again",)))

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
        self._graceful = self.draining = True  # the loop calls `_drained` when nothing is left

    def _drained(self) -> None:
        if self.pipes:
            return  # what it has asked others for is still to come
        self.draining = False
        self._put_system(("stop",))

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
        self._shut(False)
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
        """End: tell everybody, and take nothing in any more."""
        self.deaths.unwatch_all()
        self.devices.unwatch_all()
        for envelope in self.stash:
            self.discard(envelope)
        self.stash.clear()
        self.stack.clear()
        self.behave(None)
        self.timers.cancel_all()
        self._shut(True)
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
            self.parent._put_system(("child_stopped",))
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
        """Answer for whoever has dropped a message that was to be answered later."""
        answer.fail(NoReply(f"actor {self.path} has dropped the message without an answer"))

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
        """Put what is stashed back, in its order, before what waits."""
        while self.stash:
            self._put_back(self.stash.pop())

    def discard_queue(self) -> None:
        """Make dead letters of the messages that wait.  From any thread."""
        while (envelope := self._take_user()) is not None:
            self.discard(envelope)

    def discard(self, envelope: Envelope) -> None:
        """Refuse a message that was taken in, since the actor stops.  From any thread."""
        if envelope.kind:
            return
        error = self.stopped_error()
        if envelope.answer is None:
            self.tree.dead_letter(self.path, envelope, error)
        else:
            envelope.answer.fail(error)

    def stopped_error(self) -> ActorStopped:
        """Return the error for messages to an actor that has stopped, or is about to."""
        why = f" after {_brief(self.final_error)}" if self.final_error is not None else ""
        return ActorStopped(f"actor {self.path} has stopped{why}; the message was not handled")

    def __repr__(self) -> str:
        return f"<Cell {self.path}, {self.state}>"


def _brief(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]
