"""The code of Python functions, and the names in it."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType

__all__ = ["all_code", "all_names"]


def all_code(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function, and of those defined in it."""
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from all_code(part)


def all_names(code: CodeType) -> set[str]:
    """Return the names of globals and attributes in a function, and in those defined in it."""
    return {name for part in all_code(code) for name in part.co_names}
