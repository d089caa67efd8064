"""Death watch: notifications of stopped actors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lib.actor_cell import BEYOND, Envelope
from ..errors import InvalidRequest
from ._envelopes import TERMINATED
from .messages import Terminated

if TYPE_CHECKING:
    from .cell import Cell
    from .ref import ActorRef

__all__ = ["DeathWatch"]


class DeathWatch:
    """Both sides of one cell: the actors that it watches, and its watchers.  Used in the cell's thread."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._watchers: dict[Cell, None] = {}
        self._watched: dict[Cell, object] = {}
        self._queued: dict[Cell, object] = {}  # actors whose Terminated is in the mailbox

    def watch(self, ref: ActorRef) -> None:
        """Watch an actor: send a `Terminated` when it has stopped, or at once if it already has."""
        other = ref.cell
        if other is self._cell:
            raise InvalidRequest(f"actor {ref.path} cannot watch itself; it has post_stop")
        if other in self._watched:
            return
        self._watched[other] = object()
        if not other.enqueue_system(("watch", self._cell)):
            self._cell.enqueue_system(("died", ref))

    def unwatch(self, ref: ActorRef) -> None:
        """Stop watching an actor; no `Terminated` of it is delivered from now on."""
        self._queued.pop(ref.cell, None)
        if self._watched.pop(ref.cell, None) is not None:
            ref.cell.enqueue_system(("unwatch", self._cell))

    def unwatch_all(self) -> None:
        """Stop watching all actors."""
        for other in list(self._watched):
            self.unwatch(other.ref)
        self._queued.clear()

    def died(self, ref: ActorRef) -> None:
        """Handle the stop of a watched actor: its `Terminated` follows the messages that it had sent."""
        token = self._watched.pop(ref.cell, None)
        if token is not None:
            self._queued[ref.cell] = token
            message = Terminated(ref, ref.cell.final_error)
            self._cell.enqueue(Envelope(message, ref, None, TERMINATED, (ref.cell, token)), BEYOND)

    def admit(self, extra: tuple[Cell, object]) -> bool:
        """Whether a `Terminated` is still to be delivered."""
        cell, token = extra
        if self._queued.get(cell) is not token:
            return False
        del self._queued[cell]
        return True

    def add_watcher(self, watcher: Cell) -> None:
        """Add a watcher."""
        self._watchers[watcher] = None

    def remove_watcher(self, watcher: Cell) -> None:
        """Remove a watcher."""
        self._watchers.pop(watcher, None)

    def tell_watchers(self) -> None:
        """Notify all watchers of the end."""
        for watcher in self._watchers:
            watcher.enqueue_system(("died", self._cell.ref))
        self._watchers.clear()
