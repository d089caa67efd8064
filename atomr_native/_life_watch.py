"""Who is told of a device's restarts and of its end."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Any

from .errors import AtomrError, InvalidRequest

__all__ = ["LifeWatch"]

_log = logging.getLogger("atomr_native")


class LifeWatch:
    """Callbacks of users; what they raise is logged, and harms nobody.

    Parameters
    ----------
    name : str
        Of the device, for the log.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._of_generations: list[Callable[[int], object]] = []
        self._of_end: list[Callable[[AtomrError], object]] = []
        self._ended: AtomrError | None = None

    def on_generation(self, callback: Callable[[int], object]) -> None:
        """Call ``callback(generation)`` whenever `generation` is called."""
        if not callable(callback):
            raise InvalidRequest(f"callback {callback!r} is not callable; it is called with the generation")
        self._of_generations.append(callback)

    def on_end(self, callback: Callable[[AtomrError], object]) -> None:
        """Call ``callback(error)`` once, when `end` is called; at once if it was."""
        if not callable(callback):
            raise InvalidRequest(f"callback {callback!r} is not callable; it is called with the error")
        with self._lock:
            error = self._ended
            if error is None:
                self._of_end.append(callback)
        if error is not None:
            self._call(callback, error)

    def forget(self, callback: Callable[..., object]) -> None:
        """Do not call it any more.  Idempotent."""
        for watchers in (self._of_generations, self._of_end):
            with contextlib.suppress(ValueError):
                watchers.remove(callback)

    def generation(self, generation: int) -> None:
        """Tell of a restart."""
        for callback in list(self._of_generations):
            self._call(callback, generation)

    def end(self, error: AtomrError) -> None:
        """Tell of the end, the first time."""
        with self._lock:
            if self._ended is None:
                self._ended = error
            watchers, self._of_end = self._of_end, []
        for callback in watchers:
            self._call(callback, error)

    def clear(self) -> None:
        """Let go of everybody: callbacks may lead back to the device."""
        self._of_generations.clear()

    def _call(self, callback: Callable[[Any], object], value: object) -> None:
        try:
            callback(value)
        except BaseException:  # a SystemExit of a callback must not end the device's thread
            _log.exception("a callback of %s failed", self._name)
