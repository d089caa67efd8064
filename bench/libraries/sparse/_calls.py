"""Rows of C calls of NVIDIA's libraries."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from bench.harness import Setup
from bench.harness.gpu import ordinal, waited
from bench.libraries.sparse._library import Call, Library

__all__ = ["add_call"]


def add_call(
    setup: Setup, name: str, make: Callable[[Library], Call], count: int, *, every: int | None = None, of: str = ""
) -> None:
    """Add a C call, `count` times a sample, waited for after `every` of them; `of` is the series that is compared."""
    with setup.attempt(name, kind="twin"):
        library = setup.shared(Library, lambda: nullcontext(Library(ordinal(setup))))
        setup.add(name, waited(make(library), library.wait, count, min(every or count, count)))
    if of:
        setup.ratio(of, name)
