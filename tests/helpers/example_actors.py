"""Actors that tests of several subjects use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import atomr_native as an


class Echo(an.Actor):
    def receive(self, message: Any) -> Any:
        return message


class Call(an.Actor):
    """Calls what it is sent with itself."""

    def receive(self, message: Callable[[Call], Any]) -> Any:
        return message(self)


class Worker(an.Actor):
    """Raises what it is sent, if that can be raised, and counts the rest."""

    def __init__(self, notes: list[str] | None = None) -> None:
        self.notes = [] if notes is None else notes
        self.count = 0
        self.notes.append("made")

    def pre_start(self) -> None:
        self.notes.append("pre_start")

    def post_stop(self) -> None:
        self.notes.append("post_stop")

    def pre_restart(self, error: BaseException, message: object) -> None:
        self.notes.append(f"pre_restart {error!r} {message!r}")
        super().pre_restart(error, message)

    def post_restart(self, error: BaseException) -> None:
        self.notes.append(f"post_restart {error!r}")
        super().post_restart(error)

    def receive(self, message: Any) -> int:
        if isinstance(message, BaseException):
            raise message
        self.count += 1
        return self.count
