"""The base class of users' actors."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from .._lib.actor_cell import current_cell
from .._support.public import public
from ..errors import InvalidRequest
from ._handlers import HandlerTable, marked_names, table_of
from .supervision import OneForOne, Supervision

if TYPE_CHECKING:
    from .cell import Cell
    from .context import Context

__all__ = ["Actor"]

_HOOKS = ("pre_start", "post_stop", "pre_restart", "post_restart")


@public
class Actor:
    """State behind an address, with handlers for messages: one message at a time, in a separate thread.

    Define `receive`, or one method for each message type, marked with `handler`.  Its return value is the answer to an
    ask.  If `receive`, a handler or a hook is a coroutine function, all of them run in the actor's own event loop.

    Attributes
    ----------
    supervision : Supervision
        Default strategy for its children, if `spawn` names none.
    reentrant : int
        Maximum number of messages that its coroutines handle concurrently.  With 1, each message waits for the end of
        the previous one; with more, they start in order and may end in any order.
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
            raise InvalidRequest(f"{cls.__name__}.reentrant={cls.reentrant!r}; it must be a positive integer")
        if not isinstance(cls.supervision, Supervision):
            raise InvalidRequest(f"{cls.__name__}.supervision={cls.supervision!r}; it must be OneForOne or AllForOne")

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:  # noqa: ARG004 - the constructor's
        """Create an instance that has its context before its constructor runs."""
        made = super().__new__(cls)
        cell = cast("Cell | None", current_cell())
        made._context = None if cell is None or cell.making is not cls else cell.context
        return made

    @property
    def context(self) -> Context:
        """Operations beyond receiving: spawn, reply, watch, timers; available already in the constructor.

        Raises
        ------
        InvalidRequest
            If `spawn` did not create the object.
        """
        if self._context is None:
            raise InvalidRequest(f"this {type(self).__name__} was not made by spawn(), so it has no context")
        return self._context

    def receive(self, message: Any) -> Any:
        """Handle a message; the return value is the answer.  By default, call the handler of its type."""
        name = self._handlers().find(type(message))
        if name is None:
            return self.unhandled(message)
        return getattr(self, name)(message)

    def unhandled(self, message: object) -> Any:  # noqa: ARG002 - for those who override it
        """Handle a message without a handler: by default a dead letter; an ask gets `UnhandledMessage`."""
        self.context.unhandled()

    def pre_start(self) -> Any:
        """Run before the first message."""

    def post_stop(self) -> Any:
        """Run after the last message; `pre_restart` also calls it on the instance that a restart replaces.

        At the end of the actor its children stop before it runs; at a restart they stop after it.
        """

    def pre_restart(self, error: BaseException, message: object) -> Any:  # noqa: ARG002
        """Run on the old instance before a restart; by default `post_stop`.

        Parameters
        ----------
        error
            The failure; under `AllForOne` possibly of another actor of the group.
        message
            The message at which it failed, or None.
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


def is_asynchronous(kind: type[Actor]) -> bool:
    """Return whether an actor has coroutine methods; raise for invalid handlers."""
    names = [*_HOOKS, "receive", "unhandled"]
    if kind.receive is Actor.receive:
        kind._handlers()  # noqa: SLF001 - users subclass Actor: it takes no public names from them
        names += marked_names(kind)
    return kind.reentrant > 1 or any(inspect.iscoroutinefunction(getattr(kind, name)) for name in names)


def known_handlers(kind: type[Actor]) -> HandlerTable | None:
    """Return the handlers of an actor; None if it overrides `receive`."""
    return None if kind._table is None else kind._handlers()  # noqa: SLF001 - as above
