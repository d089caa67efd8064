"""The module name of public classes in pickles and messages."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["public"]

_Class = TypeVar("_Class", bound=type)


def public(cls: _Class) -> _Class:
    """Mark a class as one of `atomr_native.__all__`: it is pickled and printed as ``atomr_native.<name>``.

    So modules of the package may move without breaking pickles.
    """
    cls.__module__ = __name__.partition(".")[0]
    return cls
