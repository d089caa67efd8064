"""Work in several threads at once, whose failures are not lost."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any


@contextlib.contextmanager
def alongside(work: Callable[[Any], object], arguments: Iterable[Any], seconds: float = 120.0) -> Iterator[None]:
    """Do `work` with each of `arguments` in a thread of its own while the block runs; raises what the first raised.

    The end of the block waits for them, `seconds` for each.
    """
    failures: list[BaseException] = []

    def guarded(argument: Any) -> None:
        try:
            work(argument)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(seconds)
    if failures:
        raise failures[0]
    assert not any(thread.is_alive() for thread in threads)


def together(work: Callable[[Any], object], arguments: Iterable[Any], seconds: float = 120.0) -> None:
    """Do `work` with each of `arguments` at once, and wait for all."""
    with alongside(work, arguments, seconds):
        pass
