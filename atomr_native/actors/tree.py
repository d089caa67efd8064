"""The actors of one System."""

from __future__ import annotations

import logging
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from .._lib.actor_cell import Envelope, current_cell
from .._lib.guard import TICK, Lock, abandoned, shielded
from ..errors import ActorStopped, AtomrError, InvalidRequest, Unsupported
from ._async_cell import AsyncCell
from .actor import Actor, is_asynchronous
from .cell import Cell
from .clock import Clock, SystemClock
from .mailbox import Mailbox
from .ref import ActorRef
from .supervision import OneForOne, Supervision

if TYPE_CHECKING:
    from ..runtime.dead_letters import DeadLetters
    from ..system import System

__all__ = ["ActorTree"]

_log = logging.getLogger("atomr_native.actors")


class _Top(Actor):
    """The parent of the actors spawned by the System; handles no messages."""

    supervision = OneForOne()


class ActorTree:
    """Names, look-up, statistics and the end of all actors of a System.

    Parameters
    ----------
    system
        The System of the actors.
    dead_letters
        Messages that no actor handled.
    clock
        Clock of timers and restarts.
    stepper
        Scheduler that runs actors without threads: see `testing.Deterministic`.
    """

    def __init__(
        self, system: System, dead_letters: DeadLetters, clock: Clock | None = None, stepper: Any = None
    ) -> None:
        config = system.config
        self._dead_letters = dead_letters
        self.system = system
        self.clock: Clock = SystemClock() if clock is None else clock
        self.stepper = stepper
        self.timeout = config.timeout
        self.spin_us = config.spin_us
        self.random = random.Random(config.seed)  # noqa: S311 - jitter, no secret
        self._mailbox = Mailbox(config.mailbox_size, config.mailbox)
        #: Gives actors a name that other processes resolve: how they are pickled on a node of a cluster.
        self.naming: Callable[[Cell], tuple[Any, ...]] | None = None
        self._lock = Lock()
        self._top: Cell | None = None
        self._closed = False
        #: Threads of all actors, also of those that have just stopped.
        self._threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()

    @shielded
    def top(self) -> Cell:
        """Return the topmost cell, started on first use."""
        made = False
        with self._lock:
            if self._closed:
                raise ActorStopped("this System is closed; make a new one")
            if self._top is None:
                self._top = Cell(
                    0, self.spin_us, False, tree=self, parent=None, name="", kind=_Top, args=(), kwargs={},
                    supervision=None, mailbox=Mailbox(None),
                )  # fmt: skip
                self._top.stepper = self.stepper
                made = True
        if made:
            self._top.start()
        return self._top

    @property
    def top_cell(self) -> Cell | None:
        """The topmost cell, or None."""
        return self._top

    def prepare(self, kind: object, name: object, supervision: object, mailbox: object) -> tuple[type[Cell], Mailbox]:
        """Check the arguments of `spawn`; return the class of the cell, and its mailbox."""
        if not isinstance(kind, type) or not issubclass(kind, Actor):
            raise InvalidRequest(f"spawn takes a subclass of Actor and its arguments, not {kind!r}")
        if name is not None and (not isinstance(name, str) or not name or "/" in name):
            raise InvalidRequest(f"name={name!r}; it must be a non-empty string without '/'")
        if supervision is not None and not isinstance(supervision, Supervision):
            raise InvalidRequest(f"supervision={supervision!r}; allowed: OneForOne(...), AllForOne(...)")
        if mailbox is not None and not isinstance(mailbox, Mailbox):
            raise InvalidRequest(f"mailbox={mailbox!r}; allowed: Mailbox(capacity=..., overflow=...)")
        asynchronous = is_asynchronous(kind)
        if asynchronous and self.stepper is not None:
            raise Unsupported(f"{kind.__name__} has coroutines, which a deterministic scheduler cannot run")
        return AsyncCell if asynchronous else Cell, mailbox or self._mailbox

    def note_thread(self, thread: threading.Thread) -> None:
        """Register a thread to wait for at the end."""
        with self._lock:
            self._threads.add(thread)

    def find(self, path: str) -> ActorRef | None:
        """Return the actor with this path; None if there is none."""
        if not isinstance(path, str) or not path.strip("/"):
            raise InvalidRequest(f"path={path!r}; it must be names such as '/trainer/worker'")
        cell = self._top
        for name in path.strip("/").split("/"):
            cell = None if cell is None else cell.family.get(name)
        return None if cell is None else cell.ref

    def cells(self) -> Iterator[Cell]:
        """Yield all running actors, parents first."""
        waiting = [] if self._top is None or self._top.abandoned else self._top.family.cells()
        while waiting:
            cell = waiting.pop()
            yield cell
            waiting.extend(cell.family.cells())

    def stats(self) -> dict[str, dict[str, Any]]:
        """Return the counters of all actors, by path."""
        return {cell.path: cell.stats() for cell in sorted(self.cells(), key=lambda cell: cell.path)}

    def dead_letter(self, path: str, envelope: Envelope, error: AtomrError) -> None:
        """Record a told message that will not be handled."""
        sender = envelope.sender
        self._dead_letters.of_actor(path, envelope.message, None if sender is None else sender.path, error)

    # ---- the end

    def check_closing(self) -> None:
        """Raise if this thread belongs to an actor, which must not wait for all actors."""
        cell = cast("Cell | None", current_cell())
        if cell is not None and cell.tree is self:
            raise InvalidRequest(
                f"actor {cell.path} cannot close its System, which waits for every actor; close it in the main program"
            )

    def drain(self, deadline: float) -> None:
        """Let every actor finish its messages until the deadline; then stop all."""
        top = self._top
        if top is not None and top.abandoned:
            return
        with self._lock:
            self._closed = True
            top = self._top
        if top is None:
            return
        top.family.close()
        try:
            for child in top.family.cells():
                child.stop(drain=True)
            for child in top.family.cells():
                while not child.ended.wait(max(0.0, min(deadline - time.monotonic(), TICK))):
                    if abandoned() or time.monotonic() >= deadline:
                        break
        finally:
            for cell in list(self.cells()):
                cell.stop(drain=False)
            top.stop(drain=False)

    def join(self, timeout: float) -> None:
        """Wait until the threads have ended; log and leave those that do not end within `timeout` seconds."""
        top = self._top
        if top is not None and top.abandoned:
            return
        if top is None:
            self.clock.close()
            return
        end = time.monotonic() + timeout
        top.ended.wait(timeout)
        left = list(self.cells())
        busy = {cell.thread for cell in (*left, top) if cell.state != "stopped"}
        if left:
            names = ", ".join(cell.path for cell in left)
            _log.error("these actors did not stop, and their threads are left behind: %s", names)
            for cell in left:
                for answer in cell.askers():
                    answer.fail(ActorStopped(f"the System was closed while actor {cell.path} had this message"))
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            if thread not in busy:
                thread.join(max(0.1, end - time.monotonic()))
        self.clock.close()
