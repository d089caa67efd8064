"""Code objects of Python functions, and their names."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType
from typing import Final

__all__ = ["all_code", "all_names", "global_names"]

_LOADS: Final = ("LOAD_GLOBAL", "LOAD_NAME")


def all_code(code: CodeType) -> Iterator[CodeType]:
    """Yield the code objects of a function and of the functions defined in it."""
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from all_code(part)


def all_names(code: CodeType) -> set[str]:
    """Return the names of globals and attributes in a function and in its inner functions."""
    return {name for part in all_code(code) for name in part.co_names}


def global_names(code: CodeType) -> set[str]:
    """Return the names of globals that a function or its inner functions read."""
    return {i.argval for one in all_code(code) for i in dis.get_instructions(one) if i.opname in _LOADS}
