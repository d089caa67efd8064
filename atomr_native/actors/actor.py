"""The base class of users' actors."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from .._lib.actor_cell import current_cell
from ..errors import InvalidRequest
from ._handlers import HandlerTable, marked_names, table_of
from .supervision import OneForOne, Supervision

if TYPE_CHECKING:
    from .cell import Cell
    from .context import Context

__all__ = ["Actor"]

_HOOKS = ("pre_start", "post_stop", "pre_restart", "post_restart")


class Actor:
    """State behind an address, and what it does with messages: one at a time, in a thread of its own.

    Define `receive`, or one method for each type of message, marked with `handler`.  What it returns is the answer
    to who asked.  If `receive`, a handler or a hook is a coroutine function, all run in an event loop of the
    actor's own.

    Attributes
    ----------
    supervision : Supervision
        How its children are supervised, where `spawn` does not say otherwise.
    reentrant : int
        How many messages its coroutines may be working at, at once.  With 1, the next message waits for the end of
        the one before; with more, they start in order and may end in any.
    """

    supervision: ClassVar[Supervision] = OneForOne()
    reentrant: ClassVar[int] = 1
    _table: ClassVar[HandlerTable | None] = None
    _context: Context | None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.receive is not Actor.receive and marked_names(cls):
            raise InvalidRequest(
                f"{cls.__name__} has both receive and handlers ({', '.join(marked_names(cls))}); define one of the two"
            )
        if type(cls.reentrant) is not int or cls.reentrant < 1:
            raise InvalidRequest(f"{cls.__name__}.reentrant={cls.reentrant!r}; it must be an integer from 1")
        if not isinstance(cls.supervision, Supervision):
            raise InvalidRequest(f"{cls.__name__}.supervision={cls.supervision!r}; it must be OneForOne or AllForOne")

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:  # noqa: ARG004 - the constructor's
        """Make an instance that knows its context before its constructor runs."""
        made = super().__new__(cls)
        cell = cast("Cell | None", current_cell())
        made._context = None if cell is None or cell.making is not cls else cell.context
        return made

    @property
    def context(self) -> Context:
        """What the actor may do beside receiving: spawn, reply, watch, timers; already there in the constructor.

        Raises
        ------
        InvalidRequest
            If the object was not made by `spawn`.
        """
        if self._context is None:
            raise InvalidRequest(f"this {type(self).__name__} was not made by spawn(), so it has no context")
        return self._context

    def receive(self, message: Any) -> Any:
        """Handle a message; what it returns is the answer.  By default: call the handler of its type."""
        name = self._handlers().find(type(message))
        if name is None:
            return self.unhandled(message)
        return getattr(self, name)(message)

    def unhandled(self, message: object) -> Any:  # noqa: ARG002 - for those who override it
        """Deal with a message that has no handler.  By default a dead letter, or `UnhandledMessage` for who asked."""
        self.context.unhandled()

    def pre_start(self) -> Any:
        """Run before the first message."""

    def post_stop(self) -> Any:
        """Run after the last message; also, by `pre_restart`, on the instance that a restart replaces.

        At the end of the actor its children have stopped before; at a restart they stop after.
        """

    def pre_restart(self, error: BaseException, message: object) -> Any:  # noqa: ARG002
        """Run on the old instance before a restart; by default `post_stop`.

        Parameters
        ----------
        error
            Why; of another actor of its group, under `AllForOne`.
        message
            At which it failed; None if there was none.
        """
        return self.post_stop()

    def post_restart(self, error: BaseException) -> Any:  # noqa: ARG002
        """Run on the new instance after a restart; by default `pre_start`."""
        return self.pre_start()

    @classmethod
    def _handlers(cls) -> HandlerTable:
        table = cls.__dict__.get("_table")
        if table is None:
            table = cls._table = table_of(cls)
        return table

    @classmethod
    def _check(cls) -> bool:
        """Whether its methods are coroutine functions; raises for handlers that cannot work."""
        names = [*_HOOKS, "receive", "unhandled"]
        if cls.receive is Actor.receive:
            cls._handlers()
            names += marked_names(cls)
        return cls.reentrant > 1 or any(inspect.iscoroutinefunction(getattr(cls, name)) for name in names)
