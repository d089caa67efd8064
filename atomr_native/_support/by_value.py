"""Pickles of functions by value, with the names of their files."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

import cloudpickle

__all__ = ["Pickler"]


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """cloudpickle's pickler, whose functions keep the file that errors and tracebacks name.

    Since 3.1.3 cloudpickle leaves it out, so that equal functions have equal pickles wherever they were written.
    """

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, CodeType):
            make, arguments = self.dispatch_table[CodeType](obj)
            return _code, (make, arguments, obj.co_filename)
        return super().reducer_override(obj)


def _code(make: Callable[..., CodeType], arguments: tuple[Any, ...], filename: str) -> CodeType:
    """Return the received code, with its file."""
    return make(*arguments).replace(co_filename=filename)
