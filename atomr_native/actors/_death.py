"""Death watch: who is told when an actor has stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lib.actor_cell import BEYOND, Envelope
from ..errors import InvalidRequest
from .messages import Terminated

if TYPE_CHECKING:
    from .cell import Cell
    from .ref import ActorRef

__all__ = ["DeathWatch"]

_TERMINATED = 2


class DeathWatch:
    """Both sides of one cell: whom it watches, and who watches it.  Used in the cell's thread."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._watchers: dict[Cell, None] = {}
        self._watched: dict[Cell, object] = {}
        self._queued: dict[Cell, object] = {}  # their Terminated is in the mailbox

    def watch(self, ref: ActorRef) -> None:
        """Have a `Terminated` sent when it has stopped; at once if it has."""
        other = ref.cell
        if other is self._cell:
            raise InvalidRequest(f"actor {ref.path} cannot watch itself; it has post_stop")
        if other in self._watched:
            return
        self._watched[other] = object()
        if not other._put_system(("watch", self._cell)):
            self._cell._put_system(("died", ref))

    def unwatch(self, ref: ActorRef) -> None:
        """Have no `Terminated` of it delivered from here on."""
        self._queued.pop(ref.cell, None)
        if self._watched.pop(ref.cell, None) is not None:
            ref.cell._put_system(("unwatch", self._cell))

    def unwatch_all(self) -> None:
        """Watch nobody any more."""
        for other in list(self._watched):
            self.unwatch(other.ref)
        self._queued.clear()

    def died(self, ref: ActorRef) -> None:
        """One that was watched has stopped: its `Terminated` comes behind what it had sent."""
        token = self._watched.pop(ref.cell, None)
        if token is not None:
            self._queued[ref.cell] = token
            message = Terminated(ref, ref.cell.final_error)
            self._cell._put(Envelope(message, ref, None, _TERMINATED, (ref.cell, token)), BEYOND)

    def admit(self, extra: tuple[Cell, object]) -> bool:
        """Whether a `Terminated` is still wanted."""
        cell, token = extra
        if self._queued.get(cell) is not token:
            return False
        del self._queued[cell]
        return True

    def add_watcher(self, watcher: Cell) -> None:
        """Note who is to be told."""
        self._watchers[watcher] = None

    def remove_watcher(self, watcher: Cell) -> None:
        """Note who is not."""
        self._watchers.pop(watcher, None)

    def tell_watchers(self) -> None:
        """Tell everybody of the end."""
        for watcher in self._watchers:
            watcher._put_system(("died", self._cell.ref))
        self._watchers.clear()
