"""Misspelt options: one error for all of them, with the nearest name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

from ..errors import InvalidRequest, UnknownOption

__all__ = ["check_arguments", "check_options", "named_fields", "named_options"]

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")

_KEYWORDS = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def check_options(what: str, given: Iterable[object], allowed: Iterable[str]) -> None:
    """Raise `UnknownOption` for an option that is not allowed, with the nearest name as a suggestion."""
    known = sorted(allowed)
    for name in given:
        if name not in known:
            from difflib import get_close_matches  # it takes longer to import than this module

            near = get_close_matches(str(name), known, 1)
            nearest = near[0] if near else None
            meant = f" (did you mean {nearest!r}?)" if near else ""
            raise UnknownOption(
                f"unknown option {name!r} of {what}{meant}; allowed: {', '.join(known) or 'none'}",
                str(name), nearest, tuple(known),
            )  # fmt: skip


def named_options(what: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator of functions that are not called in loops: a misspelt option raises `UnknownOption`.

    It only looks at a call that Python has refused, and costs others a Python frame.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> R:
            try:
                return function(*args, **options)
            except TypeError as error:
                trace = error.__traceback__
                if trace is None or trace.tb_next is not None:  # raised inside of the function
                    raise
            _explain(what, function, options)
            return function(*args, **options)  # another mistake: the TypeError

        return call

    return decorate


def named_fields(what: str) -> Callable[[type[C]], type[C]]:
    """Return a decorator of dataclasses whose constructor does as `named_options` says."""

    def decorate(cls: type[C]) -> type[C]:
        init: Any = cls.__init__
        setattr(cls, "__init__", named_options(what)(init))  # noqa: B010 - a method of a class is not assigned
        return cls

    return decorate


def _explain(what: str, function: Callable[..., object], options: Mapping[str, object]) -> None:
    parameters = inspect.signature(function).parameters.values()
    check_options(what, options, [p.name for p in parameters if p.kind in _KEYWORDS and p.name != "self"])


def check_arguments(kind: type, args: tuple[Any, ...], options: Mapping[str, Any]) -> None:
    """Raise for arguments that the constructor of a class does not take.

    Raises
    ------
    UnknownOption
        For a keyword that it does not know.
    InvalidRequest
        For an argument that is missing, or too many.
    """
    try:
        signature = inspect.signature(kind)
    except (ValueError, TypeError):  # of a class without a readable signature
        return
    try:
        signature.bind(*args, **options)
    except TypeError as error:
        why = str(error)
    else:
        return
    parameters = signature.parameters.values()
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        check_options(kind.__name__, options, [p.name for p in parameters if p.kind in _KEYWORDS])
    raise InvalidRequest(f"{kind.__name__}{signature}: {why}")
