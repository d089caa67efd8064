from collections.abc import Callable
from typing import Any, final

from .sender import Core

@final
class Ticket:
    """A ticket to wait for without a reply."""

    core: Core
    lane: int
    ticket: int
    def __init__(self, core: Core, lane: int, ticket: int) -> None: ...
    def done(self) -> bool: ...

@final
class Actions:
    """The actions of a subscriber, by lane."""

    def __init__(self, core: Core, index: int) -> None: ...
    def add(self, reply: Any, action: Callable[[Any], object]) -> tuple[bool, bool]: ...
    def take(self) -> list[tuple[Any, Callable[[Any], object]]]: ...

@final
class Piece:
    """A piece of staging memory, until it is put back."""

    ref: Any
    def sent(self, lane: int, ticket: int, reply: Any = None) -> None: ...
    def arrived(self) -> None: ...
    def put_back(self) -> None: ...

@final
class Window:
    """The pieces of staging memory that a device's copies may use at once."""

    free: int
    def __init__(self, core: Core, pieces: int) -> None: ...
    def take(self, *, first: bool, blocks: bool = False) -> Piece | None: ...
    def oldest(self) -> tuple[int, int] | None: ...
    def hold(self) -> Waiting: ...

@final
class Waiting:
    """A copy that waits for a piece, until this object is gone."""
