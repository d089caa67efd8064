"""Callbacks for a device's restarts and its end."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

from .._lib.guard import Lock, shielded
from ..errors import AtomrError, InvalidRequest

__all__ = ["LifeWatch"]

_log = logging.getLogger("atomr_native")


class LifeWatch:
    """Users' callbacks; their exceptions are logged, and have no other effect.

    Parameters
    ----------
    name : str
        Name of the device, for the log.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = Lock(leaf=True)
        self._of_generations: list[Callable[[int], object]] = []
        self._of_end: list[Callable[[AtomrError], object]] = []
        self._ended: AtomrError | None = None

    def on_generation(self, callback: Callable[[int], object]) -> None:
        """Call ``callback(generation)`` whenever `generation` is called."""
        if not callable(callback):
            raise InvalidRequest(f"callback {callback!r} is not callable; it is called with the generation")
        self._of_generations.append(callback)

    def on_end(self, callback: Callable[[AtomrError], object]) -> None:
        """Call ``callback(error)`` once, when `end` is called, or at once if it was."""
        if not callable(callback):
            raise InvalidRequest(f"callback {callback!r} is not callable; it is called with the error")
        error = self._add(callback)
        if error is not None:
            self._call(callback, error)

    @shielded
    def _add(self, callback: Callable[[AtomrError], object]) -> AtomrError | None:
        with self._lock:
            if self._ended is None:
                self._of_end.append(callback)
            return self._ended

    def forget(self, callback: Callable[..., object]) -> None:
        """Remove a callback.  Idempotent."""
        for watchers in (self._of_generations, self._of_end):
            with contextlib.suppress(ValueError):
                watchers.remove(callback)

    def generation(self, generation: int) -> None:
        """Report a restart."""
        for callback in list(self._of_generations):
            self._call(callback, generation)

    def end(self, error: AtomrError) -> None:
        """Report the end, once."""
        with self._lock:
            if self._ended is None:
                self._ended = error
            watchers, self._of_end = self._of_end, []
        for callback in watchers:
            self._call(callback, error)

    def clear(self) -> None:
        """Drop all callbacks: they may refer to the device."""
        self._of_generations.clear()

    def _call(self, callback: Callable[[Any], object], value: object) -> None:
        try:
            callback(value)
        except BaseException:  # a SystemExit of a callback must not end the device's thread
            _log.exception("a callback of %s failed", self._name)
