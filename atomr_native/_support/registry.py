"""The Systems of this process by their tokens, for objects pickled by name."""

from __future__ import annotations

import weakref
from typing import Any

from .._lib.guard import Lock, shielded
from ..errors import InvalidRequest

__all__ = ["add", "find_device", "find_system", "remove", "systems"]

_systems: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
_lock = Lock()


@shielded
def add(system: Any) -> None:
    """Register a System under its token."""
    with _lock:
        _systems[system.token] = system


@shielded
def remove(system: Any) -> None:
    """Remove a System.  Idempotent."""
    with _lock:
        _systems.pop(system.token, None)


def systems() -> list[Any]:
    """Return the open Systems of this process."""
    return list(_systems.values())


def find_system(token: str) -> Any:
    """Return the System that a pickled name belongs to; None if it belongs to another process, or is closed."""
    system = _systems.get(token)
    return None if system is None or system.closed else system


def find_device(token: str, name: str) -> Any:
    """Return the device that a pickled handle names.

    Raises
    ------
    InvalidRequest
        If its System belongs to another process, or is closed.
    """
    system = find_system(token)
    if system is None:
        raise InvalidRequest("this handle belongs to another System (of another process, or a closed one)")
    return system.device(name)
