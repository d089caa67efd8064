"""The children of an actor: names, and what is done about those that fail."""

from __future__ import annotations

import itertools
import logging
import reprlib
import threading
from typing import TYPE_CHECKING, Any

from ..errors import ActorStopped, InvalidRequest
from .actor import Actor
from .supervision import Directive, Supervision

if TYPE_CHECKING:
    from .cell import Cell
    from .mailbox import Mailbox

__all__ = ["Family"]

_log = logging.getLogger("atomr_native.supervision")


class Family:
    """The children of one cell.  Failures are dealt with in the cell's thread; the rest may be called by any."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._lock = threading.Lock()
        self._children: dict[str, Cell] = {}
        self._numbers = itertools.count(1)
        self._escalated: list[tuple[Cell, int, BaseException]] = []
        self._closed = False
        self._draining = False  # the children finish what they have

    @property
    def empty(self) -> bool:
        """Whether all have stopped."""
        return not self._children

    def cells(self) -> list[Cell]:
        """Return those that have not stopped."""
        with self._lock:
            return list(self._children.values())

    def get(self, name: str) -> Cell | None:
        """Return the child of that name."""
        return self._children.get(name)

    def spawn(
        self,
        kind: type[Actor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None,
        supervision: Supervision | None,
        mailbox: Mailbox | None,
    ) -> Cell:
        """Make a child and start it."""
        cell = self._cell
        cell.alive_here()
        tree = cell.tree
        make, box = tree.prepare(kind, name, supervision, mailbox)
        # Without a constructor of its own a class takes anything, since Actor.__new__ does: a misspelt option, too.
        if (args or kwargs) and kind.__init__ is object.__init__ and kind.__new__ is Actor.__new__:
            given = ", ".join([*map(reprlib.repr, args), *(f"{name}=" for name in kwargs)])
            raise InvalidRequest(f"{kind.__name__} has no constructor, and so no arguments; it was given {given}")
        with self._lock:
            if self._closed or cell.state in ("stopping", "stopped"):
                raise ActorStopped(f"{cell.path or 'this System'} is stopping; it takes no new actors")
            if name is None:
                name = next(n for i in self._numbers if (n := f"{kind.__name__}-{i}") not in self._children)
            elif name in self._children:
                raise InvalidRequest(
                    f"actor {cell.path}/{name} exists; names are unique among the children of a parent"
                )
            child = make(
                box.capacity or 0, tree.spin_us, box.overflow == "drop_oldest", tree=tree, parent=cell, name=name,
                kind=kind, args=args, kwargs=kwargs, supervision=supervision, mailbox=box,
            )  # fmt: skip
            child.stepper = tree.stepper
            self._children[name] = child
        try:
            child.start()
        except RuntimeError as error:  # no more threads: it never was
            self.forget(child)
            child._shut(True)
            child.state = "stopped"
            child.begun.fail(child.stopped_error())
            child.ended.resolve(None)
            raise ActorStopped(f"actor {child.path} could not be started: {error}") from None
        return child

    def forget(self, child: Cell) -> None:
        """Note that a child has stopped; its name is free."""
        with self._lock:
            if self._children.get(child.name) is child:
                del self._children[child.name]

    def stop(self, *, drain: bool) -> None:
        """Have all of them stop, or finish what they have and then stop.  In the cell's thread."""
        undecided = {child for child, _, _ in self._escalated}  # nobody will decide any more
        self._escalated.clear()
        self._draining = drain
        for child in self.cells():
            child.stop(drain=drain and child not in undecided)

    def close(self) -> None:
        """Take no new ones."""
        with self._lock:
            self._closed = True

    def failed(self, child: Cell, failure: int, error: BaseException) -> None:
        """Decide what happens to a child that has failed."""
        cell = self._cell
        if self._children.get(child.name) is not child or failure <= child.covered:
            return
        if cell.state not in ("starting", "running", "failed") and not (cell.state == "stopping" and self._draining):
            return  # all children are being stopped
        strategy = self._strategy(child)
        directive = strategy.decide(error)
        if directive is Directive.RESUME:
            self._resume(child, failure, error)
        elif directive is Directive.ESCALATE:
            self._escalate(child, failure, error)
        else:
            group = self._group(strategy) if strategy.together else [child]
            pause = self._pause(child) if directive is Directive.RESTART else None
            self._apply(group, child, failure, pause, error)

    def _resume(self, child: Cell, failure: int, error: BaseException) -> None:
        """Let a child go on; one whose constructor has failed has nothing to go on with, and is restarted."""
        if child.instance is None:
            self._apply([child], child, failure, self._pause(child), error)
        else:
            _log.warning("actor %s resumes after %s", child.path, type(error).__name__)
            child._put_system(("resume", failure))

    def _pause(self, child: Cell) -> float | None:
        """Return the seconds before a restart of a child; None, and say so, when its budget is spent."""
        strategy, tree = self._strategy(child), self._cell.tree
        pause = strategy.pause(child.history, tree.clock.now(), tree.random)
        if pause is None:
            _log.error("actor %s: more than %s restarts within %g s; stopping it", child.path,
                       strategy.max_restarts, strategy.within)  # fmt: skip
        return pause

    def _apply(self, group: list[Cell], child: Cell, failure: int, pause: float | None, error: BaseException) -> None:
        """Restart a group after a pause (seconds), or stop it where there is none."""
        for each in group:
            # The child's own directive is for this failure: it may have been restarted with others, and failed again.
            each.covered = max(each.covered, failure if each is child and pause is not None else each.failures)
            if pause is None:
                _log.error("actor %s is stopped after %s of %s", each.path, type(error).__name__, child.path)
                each._shut(False)
                each._put_system(("stop", error))
                each.interrupt()
            else:
                _log.warning("actor %s restarts%s after %s of %s", each.path, f" in {pause:.3g} s" if pause else "",
                             type(error).__name__, child.path)  # fmt: skip
                each._put_system(("restart", failure if each is child else None, pause, error))

    def _strategy(self, child: Cell) -> Supervision:
        return child.supervision or self._cell.kind.supervision

    def _group(self, strategy: Supervision) -> list[Cell]:
        return [each for each in self.cells() if self._strategy(each) is strategy]

    def _escalate(self, child: Cell, failure: int, error: BaseException) -> None:
        cell = self._cell
        if cell.parent is None or cell.state == "stopping":
            _log.critical("actor %s is stopped: %s was escalated, and nobody is above it", child.path,
                          type(error).__name__)  # fmt: skip
            child._shut(False)
            child._put_system(("stop", error))
            return
        _log.warning("actor %s escalates %s to %s", child.path, type(error).__name__, cell.path)
        self._escalated.append((child, failure, error))
        if cell.state != "failed":
            cell.report(error, None, f"fails with its child {child.name}", f"{type(error).__name__}: {error}")

    def resume_escalated(self) -> None:
        """Have the children go on for which the actor has failed, since it goes on as it is."""
        escalated, self._escalated = self._escalated, []
        for child, failure, error in escalated:
            self._resume(child, failure, error)
