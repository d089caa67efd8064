"""Public classes: their name in pickles and messages, and their answer to misspelt options."""

from __future__ import annotations

from typing import TypeVar

from .options import named_methods

__all__ = ["public"]

_Class = TypeVar("_Class", bound=type)


def public(cls: _Class) -> _Class:
    """Mark a class as one of `atomr_native.__all__`: it is pickled and printed as ``atomr_native.<name>``.

    So modules of the package may move without breaking pickles.  A misspelt option of its constructor and its public
    methods raises `UnknownOption`.
    """
    named_methods(cls)
    cls.__module__ = __name__.partition(".")[0]
    return cls
