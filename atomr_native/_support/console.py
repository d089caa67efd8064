"""Standard output that tolerates a closed pipe, as in ``... | head``."""

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
    """Discard all output once the reader has closed the pipe; the command's exit status is unaffected."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        if sys.stdout is not sys.__stdout__:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def console(width: int) -> Console:
    """Return a console that leaves a closed pipe to `reader_may_leave`; `width` applies if it is not a terminal."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    # A pipe has no width.
    return Plain(width=None if sys.stdout.isatty() else width)
