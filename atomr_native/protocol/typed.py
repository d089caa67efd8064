"""Values of the control protocol as types: checked where they arrive, and refused by name.

A type is whatever msgspec decodes: structs, tuples, numbers within bounds.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
from msgspec import Meta

from .._lib.guard import Lock
from ..errors import InvalidRequest

__all__ = ["decode", "one_of"]

Decoded = TypeVar("Decoded")

_SHOWN = 200  # characters of a value in an error
#: msgspec looks at the fields of a struct when it first decodes one, and two threads may not do that at once.
_looking = Lock(reentrant=True)
_seen: set[object] = set()


def _convert(value: object, kind: type[Decoded], decoded: Callable[[type, object], Any]) -> Decoded:
    """Convert by msgspec, the first time for a type with no other thread beside."""
    if kind in _seen:
        return msgspec.convert(value, kind, dec_hook=decoded)
    with _looking:
        try:
            return msgspec.convert(value, kind, dec_hook=decoded)
        finally:
            _seen.add(kind)


def one_of(*names: str) -> Meta:
    """Return the constraint on a string to be one of `names`, for ``Annotated[str, one_of("left", "right")]``."""
    return Meta(pattern=f"^({'|'.join(names)})$", extra={"allowed": names})


def decode(
    value: object,
    kind: type[Decoded],
    what: str,
    refusal: Callable[[str], Exception] = InvalidRequest,
    own: Mapping[type, Callable[[object], Any]] = MappingProxyType({}),
) -> Decoded:
    """Return JSON-able data as a value of a type.

    Parameters
    ----------
    value
        Dictionaries, lists, strings, numbers, Booleans and None.
    kind : type
        The type; structs and tuples may be nested in it.
    what : str
        The whole in errors, ``"the specification of 'blas.gemm'"``.
    refusal : callable
        Makes the error from its message.
    own : mapping, optional
        For types that msgspec does not know, a function from their JSON to their value; it refuses by `ValueError`.

    Raises
    ------
    InvalidRequest
        If it is none of that type; the message names the innermost part that is wrong, its value, and what is allowed.
    """

    def decoded(kind: type, value: object) -> Any:
        return own[kind](value)

    try:
        return _convert(value, kind, decoded)
    except msgspec.ValidationError:
        raise refusal(f"{what}: {_explain(value, kind, '', decoded)}") from None


def _explain(value: object, kind: Any, path: str, decoded: Callable[[type, object], Any]) -> str:
    """Return which part of a value is wrong, and why."""
    for part, inner, place in _parts(value, kind, path):
        if _refusal(part, inner, decoded):
            return _explain(part, inner, place, decoded)
    shown = f"{path or 'it'} is {repr(value)[:_SHOWN]}"
    if typing.get_origin(kind) is typing.Annotated:
        for note in kind.__metadata__:
            if isinstance(note, Meta) and note.extra and isinstance(value, str):
                return f"{shown}; allowed: {', '.join(note.extra['allowed'])}"
    if _is_struct(kind) and isinstance(value, dict):
        fields = msgspec.structs.fields(kind)
        names = [field.name for field in fields]
        if (tagged := _config(kind).tag_field) is not None:
            names.insert(0, tagged)
        if unknown := [name for name in value if name not in names]:
            return f"{path or 'it'} has the field {unknown[0]!r}; allowed: {', '.join(names) or 'none'}"
        if missing := [field.name for field in fields if field.required and field.name not in value]:
            return f"{path or 'it'} lacks the field {missing[0]!r}; it has {', '.join(value) or 'none'}"
    return f"{shown}; {_refusal(value, kind, decoded)}"


def _refusal(value: object, kind: Any, decoded: Callable[[type, object], Any]) -> str:
    """Return why a value is not of a type; empty if it is."""
    try:
        msgspec.convert(value, kind, dec_hook=decoded)
    except msgspec.ValidationError as error:
        return str(error) or "not allowed"
    return ""


def _config(kind: Any) -> Any:
    """Return how a struct was declared; `kind` may be a generic one with arguments."""
    return (typing.get_origin(kind) or kind).__struct_config__


def _is_struct(kind: Any) -> bool:
    found = typing.get_origin(kind) or kind
    return isinstance(found, type) and issubclass(found, msgspec.Struct)


def _has_tag(value: dict[str, object], kind: Any) -> bool:
    """Whether a dictionary says that it is a struct of this type."""
    return (
        _is_struct(kind) and _config(kind).tag is not None and value.get(_config(kind).tag_field) == _config(kind).tag
    )


def _parts(value: object, kind: Any, path: str) -> Iterator[tuple[object, Any, str]]:
    """Yield the parts of a value, each with its type and its place."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType or origin is typing.Union:
        candidates = [one for one in arguments if one is not types.NoneType]
        if isinstance(value, dict) and len(candidates) > 1:
            candidates = [one for one in candidates if _has_tag(value, one)]
        if value is not None and len(candidates) == 1:
            yield value, candidates[0], path
    elif _is_struct(kind) and isinstance(value, dict):
        for field in msgspec.structs.fields(kind):
            if field.name in value:
                yield value[field.name], field.type, f"{path}.{field.name}" if path else field.name
    elif origin is tuple and isinstance(value, list | tuple):
        each = [arguments[0]] * len(value) if arguments[1:] == (...,) else list(arguments)
        if len(each) == len(value):
            for i, (part, inner) in enumerate(zip(value, each, strict=True)):
                yield part, inner, f"{path}[{i}]"
