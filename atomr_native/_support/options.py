"""Misspelt options: one error for all of them, with the nearest name."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any, TypeVar, cast

from .._lib.told import NativeFunction, ToldFunction
from ..errors import InvalidRequest, UnknownOption

__all__ = [
    "check_arguments",
    "check_options",
    "named_members",
    "named_methods",
    "named_options",
    "quickened",
    "unknown_option",
]

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)

#: Functions of Python's and of Cython's.
_FUNCTIONS: tuple[type, ...] = (FunctionType, NativeFunction)
_HEAP_TYPE = 1 << 9
_PACKAGE = __name__.partition(".")[0]
_KEYWORDS = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def check_options(what: str, given: Iterable[object], allowed: Iterable[str]) -> None:
    """Raise `UnknownOption` for an option that is not allowed, with the nearest name as a suggestion."""
    known = sorted(allowed)
    for name in given:
        if name not in known:
            raise unknown_option(f"unknown option {name!r} of {what}", str(name), known)


def unknown_option(said: str, name: str, known: Sequence[str]) -> UnknownOption:
    """Return the error for a name, which has said so far that it is unknown."""
    from difflib import get_close_matches  # it takes longer to import than this module

    near = get_close_matches(name, known, 1)
    nearest = near[0] if near else None
    meant = f" (did you mean {nearest!r}?)" if near else ""
    return UnknownOption(f"{said}{meant}; allowed: {', '.join(known) or 'none'}", name, nearest, tuple(known))


def named_options(function: F) -> F:
    """Return a function that raises `UnknownOption` for a misspelt option, and otherwise does as `function`.

    A call costs no further frame of Python's: `ToldFunction` looks only at calls that have ended with a TypeError.
    """
    return cast("F", ToldFunction(function, _explain, *_quick(function)))


def quickened(function: F, quick: Callable[..., Any]) -> F:
    """Return a function that looks like `function`, and is called as `quick`, which does the same."""
    return cast("F", ToldFunction(function, _keep, quick, sys.maxsize))


def _keep(function: Any, args: tuple[object, ...], given: tuple[str, ...]) -> None:
    """Leave a TypeError as it is."""


def _quick(function: Any) -> tuple[Callable[..., Any], int]:
    """Return the function with all parameters positional, and the number of arguments by position that it may get.

    A call fills in the defaults of positional parameters by copying them, and those of keyword-only parameters by a
    look-up for each: 25 of them take a third of the time of a call that sends a message.
    """
    if not isinstance(function, FunctionType):
        return function, 0
    code, options = function.__code__, function.__kwdefaults__ or {}
    places, named = code.co_argcount, code.co_kwonlyargcount
    if not named or len(options) != named or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        return function, 0
    defaults = (function.__defaults__ or ()) + tuple([options[n] for n in code.co_varnames[places : places + named]])
    code = code.replace(co_argcount=places + named, co_kwonlyargcount=0)
    quick = FunctionType(code, function.__globals__, function.__name__, defaults, function.__closure__)
    quick.__qualname__ = function.__qualname__
    return quick, places


def named_methods(cls: C) -> C:
    """Apply `named_options` to the constructor and the public methods of a class, and of its bases in this package."""
    if issubclass(cls, BaseException):  # which the library makes
        return cls
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] == _PACKAGE:
            # A class of Cython's cannot be changed: its methods are replaced in the class itself.
            place = base if base.__flags__ & _HEAP_TYPE else cls
            for name, member in list(vars(base).items()):
                if (name.startswith("_") and name != "__init__") or (place is not base and name in vars(cls)):
                    continue
                plain: Any = member.__func__ if isinstance(member, classmethod | staticmethod) else member
                if isinstance(plain, _FUNCTIONS) and _has_options(plain):
                    told = named_options(cast("Callable[..., Any]", plain))
                    setattr(place, name, told if plain is member else type(member)(told))
    return cls


def named_members(module: dict[str, Any], names: Iterable[str]) -> None:
    """Apply `named_options` to functions of a module, in its dictionary, and `named_methods` to its classes."""
    for name in names:
        member = module[name]
        if isinstance(member, type):
            named_methods(member)
        elif isinstance(member, FunctionType) and _has_options(member):
            module[name] = named_options(member)


def _has_options(function: Any) -> bool:
    """Return whether a function has parameters by name, besides ``self``, and refuses others."""
    native = isinstance(function, NativeFunction)
    if native and not (function.__defaults__ or function.__kwdefaults__):
        return False
    code = inspect.unwrap(function).__code__
    names = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    return not code.co_flags & inspect.CO_VARKEYWORDS and any(name not in ("self", "cls") for name in names)


def _explain(function: Any, args: tuple[object, ...], given: tuple[str, ...]) -> None:
    """Raise `UnknownOption` if a call that has failed has a keyword that the function does not know."""
    named = [p.name for p in inspect.signature(function).parameters.values() if p.kind in _KEYWORDS]
    what = function.__name__
    if named[:1] == ["self"] and args:
        what = type(args[0]).__name__ if what == "__init__" else f"{type(args[0]).__name__}.{what}"
    check_options(what, given, [name for name in named if name not in ("self", "cls")])


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
