"""The children of an actor: their names, and the handling of their failures."""

from __future__ import annotations

import itertools
import logging
import reprlib
from typing import TYPE_CHECKING, Any

from .._lib.guard import Lock, shielded
from .._support.error_text import error_text
from .._support.options import check_arguments
from ..errors import ActorStopped, InvalidRequest
from .actor import Actor
from .supervision import Directive, Supervision

if TYPE_CHECKING:
    from .cell import Cell
    from .mailbox import Mailbox

__all__ = ["Family", "check_constructor"]

_log = logging.getLogger("atomr_native.supervision")


class Family:
    """The children of one cell.  Failures are handled in the cell's thread; other methods may run in any thread."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._lock = Lock()
        self._children: dict[str, Cell] = {}
        self._numbers = itertools.count(1)
        self._escalated: list[tuple[Cell, int, BaseException]] = []
        self._closed = False
        self._draining = False  # the children finish their messages

    @property
    def empty(self) -> bool:
        """Whether all children have stopped."""
        return not self._children

    def cells(self) -> list[Cell]:
        """Return the children that have not stopped."""
        return list(self._children.copy().values())

    def get(self, name: str) -> Cell | None:
        """Return the child with this name."""
        return self._children.get(name)

    @shielded
    def spawn(
        self,
        kind: type[Actor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None,
        supervision: Supervision | None,
        mailbox: Mailbox | None,
    ) -> Cell:
        """Create a child and start it."""
        cell = self._cell
        cell.alive_here()
        tree = cell.tree
        make, box = tree.prepare(kind, name, supervision, mailbox)
        check_constructor(kind, args, kwargs)
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
        except RuntimeError as error:  # no more threads: the child never existed
            self.forget(child)
            child.shut(True)
            child.state = "stopped"
            child.begun.fail(child.stopped_error())
            child.ended.resolve(None)
            raise ActorStopped(f"actor {child.path} could not be started: {error}") from None
        return child

    @shielded
    def forget(self, child: Cell) -> None:
        """Remove a stopped child; its name is free."""
        with self._lock:
            if self._children.get(child.name) is child:
                del self._children[child.name]

    def stop(self, *, drain: bool) -> None:
        """Stop all children, at once or after their messages.  In the cell's thread."""
        undecided = {child for child, _, _ in self._escalated}  # failures are not decided any more
        self._escalated.clear()
        self._draining = drain
        for child in self.cells():
            child.stop(drain=drain and child not in undecided)

    @shielded
    def close(self) -> None:
        """Accept no new children."""
        with self._lock:
            self._closed = True

    def failed(self, child: Cell, failure: int, error: BaseException) -> None:
        """Decide about a failed child."""
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
        """Resume a child; a child without an instance, after a failed constructor, is restarted."""
        if child.instance is None:
            self._apply([child], child, failure, self._pause(child), error)
        else:
            _log.warning("actor %s resumes after %s", child.path, type(error).__name__)
            child.enqueue_system(("resume", failure))

    def _pause(self, child: Cell) -> float | None:
        """Return the seconds before a child's restart; log and return None when its budget is spent."""
        strategy, tree = self._strategy(child), self._cell.tree
        pause = strategy.pause(child.history, tree.clock.now(), tree.random)
        if pause is None:
            _log.error("actor %s: more than %s restarts within %g s; stopping it", child.path,
                       strategy.max_restarts, strategy.within)  # fmt: skip
        return pause

    def _apply(self, group: list[Cell], child: Cell, failure: int, pause: float | None, error: BaseException) -> None:
        """Restart a group after a pause (seconds), or stop it if the pause is None."""
        for each in group:
            # The child's own directive belongs to this failure: it may have been restarted with others, and failed
            # again.
            each.covered = max(each.covered, failure if each is child and pause is not None else each.failures)
            if pause is None:
                _log.error("actor %s is stopped after %s of %s", each.path, type(error).__name__, child.path)
                each.shut(False)
                each.enqueue_system(("stop", error))
                each.interrupt()
            else:
                _log.warning("actor %s restarts%s after %s of %s", each.path, f" in {pause:.3g} s" if pause else "",
                             type(error).__name__, child.path)  # fmt: skip
                each.enqueue_system(("restart", failure if each is child else None, pause, error))

    def _strategy(self, child: Cell) -> Supervision:
        return child.supervision or self._cell.kind.supervision

    def _group(self, strategy: Supervision) -> list[Cell]:
        return [each for each in self.cells() if self._strategy(each) is strategy]

    def _escalate(self, child: Cell, failure: int, error: BaseException) -> None:
        cell = self._cell
        if cell.parent is None or cell.state == "stopping":
            _log.critical("actor %s is stopped: %s was escalated, and it has no supervisor", child.path,
                          type(error).__name__)  # fmt: skip
            child.shut(False)
            child.enqueue_system(("stop", error))
            return
        _log.warning("actor %s escalates %s to %s", child.path, type(error).__name__, cell.path)
        self._escalated.append((child, failure, error))
        if cell.state != "failed":
            cell.report(error, None, f"fails with its child {child.name}", error_text(error))

    def resume_escalated(self) -> None:
        """Resume the children whose failures were escalated, since the actor itself is resumed."""
        escalated, self._escalated = self._escalated, []
        for child, failure, error in escalated:
            self._resume(child, failure, error)


def check_constructor(kind: type[Actor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise `InvalidRequest` for arguments that the constructor of an actor does not take."""
    # A class without a constructor would accept any argument, since Actor.__new__ does, even a misspelt option.
    if (args or kwargs) and kind.__init__ is object.__init__ and kind.__new__ is Actor.__new__:
        given = ", ".join([*map(reprlib.repr, args), *(f"{name}=" for name in kwargs)])
        raise InvalidRequest(f"{kind.__name__} has no constructor, so it takes no arguments; given: {given}")
    check_arguments(kind, args, kwargs)
