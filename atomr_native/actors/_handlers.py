"""One method for each message type, found by its annotation."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, Union

from ..errors import AtomrError, InvalidRequest

__all__ = ["HandlerTable", "complete", "handler", "marked_names", "table_of"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_MARK = "_atomr_handler"


def handler(function: _Function) -> _Function:
    """Mark a method of an `Actor` as the handler for messages of its argument's annotated type.

    The type is a class, or a union of classes.  If several handlers match a message, the most specific is called.

    Examples
    --------
    >>> class Counter(Actor):
    ...     @handler
    ...     def on_step(self, message: Step) -> int: ...
    """
    if not callable(function):
        raise InvalidRequest(f"{function!r} is not a method; @handler marks methods of an Actor")
    setattr(function, _MARK, True)
    return function


class HandlerTable:
    """The handlers of one class: method names by message type."""

    def __init__(self, names: dict[type, str]) -> None:
        self._names = names
        self._known: dict[type, str | None] = dict(names)

    def find(self, kind: type) -> str | None:
        """Return the name of the handler for messages of a type; None if there is none."""
        try:
            return self._known[kind]
        except KeyError:
            name = next((self._names[base] for base in kind.__mro__ if base in self._names), None)
            self._known[kind] = name
            return name

    @property
    def types(self) -> list[str]:
        """Names of the types with a handler."""
        return sorted(kind.__name__ for kind in self._names)


def marked_names(cls: type) -> list[str]:
    """Return the names of the handlers of a class, inherited ones too."""
    names: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            if getattr(value, _MARK, False):
                names[name] = None
    return list(names)


def table_of(cls: type) -> HandlerTable:
    """Build the table of a class.

    Raises
    ------
    InvalidRequest
        For a handler without a usable annotation, and for two handlers of one type.
    """
    found: dict[type, str] = {}
    for name in marked_names(cls):
        function = getattr(cls, name)
        for kind in _types(cls, name, function):
            other = found.get(kind)
            if other is not None:
                raise InvalidRequest(
                    f"{cls.__name__} has two handlers of {kind.__name__}: {other} and {name}; a type may have one"
                )
            found[kind] = name
    return HandlerTable(found)


def _types(cls: type, name: str, function: Any) -> list[type]:
    where = f"{cls.__name__}.{name}"
    parameters = [
        each for each in list(inspect.signature(function).parameters.values())[1:]
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]  # fmt: skip
    if not parameters or any(each.default is each.empty for each in parameters[1:]):
        raise InvalidRequest(f"{where} must take one argument, the message")
    try:
        hints = typing.get_type_hints(function)
    except Exception as error:
        raise InvalidRequest(f"the annotations of {where} cannot be resolved: {error}") from None
    hint = hints.get(parameters[0].name)
    if hint is None:
        raise InvalidRequest(f"{where} needs an annotation of its message: def {name}(self, message: SomeType)")
    if hint is Any:
        return [object]
    members = typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)
    for each in members:
        if not isinstance(each, type) or typing.get_origin(each) is not None:
            raise InvalidRequest(f"{where} is annotated with {hint!r}; allowed: a class, or a union of classes")
    return list(members)


def complete(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise AtomrError("a hook has returned an awaitable, but is not a coroutine function; define it with async def")
