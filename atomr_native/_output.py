"""Standard output whose reader may leave before the end: ``... | head`` has read what it wanted."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["console", "reader_may_leave"]


@contextlib.contextmanager
def reader_may_leave() -> Iterator[None]:
    """Drop what is still to be written, now and later, when nobody reads any more; a command's status stays its own."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        if sys.stdout is not sys.__stdout__:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def console(width: int) -> Console:
    """Return a console that leaves a reader's leaving to `reader_may_leave`; `width` is for what is no terminal."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    # A pipe has no width of its own.
    return Plain(width=None if sys.stdout.isatty() else width)
