"""What every process of a cluster must agree on: its nodes, their present lives, and their top-level actors."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass, field
from typing import Any

__all__ = ["DOWN", "LOST", "UP", "Directory"]

UP, DOWN, LOST = "up", "down", "lost"


@dataclass
class _Entry:
    gpus: int
    state: str = DOWN
    incarnation: int = 0
    handle: Any = None
    records: dict[str, bytes] = field(default_factory=dict)


class Directory:
    """A table of nodes; thread-safe.  One process of the cluster has it, the others call it.

    Parameters
    ----------
    nodes : dict of str to int
        The names of the nodes, and the number of GPUs of each.
    """

    def __init__(self, nodes: dict[str, int]) -> None:
        self._lock = threading.RLock()  # and not that of the condition: see `Link.lock`
        self._change = threading.Condition(self._lock)
        self._nodes = {name: _Entry(gpus) for name, gpus in nodes.items()}
        self._keys = itertools.count(1)
        self._turn = itertools.count()

    def nodes(self) -> dict[str, tuple[str, int, int]]:
        """Return the state, the number of lives and the number of GPUs of each node."""
        with self._lock:
            return {name: (each.state, each.incarnation, each.gpus) for name, each in self._nodes.items()}

    def begin(self, node: str) -> int:
        """Begin a new life of a node; return its number, from 1."""
        with self._lock:
            entry = self._nodes[node]
            entry.incarnation += 1
            entry.state, entry.handle = DOWN, None
            return entry.incarnation

    def publish(self, node: str, state: str, incarnation: int, handle: Any = None) -> None:
        """Publish the state of a node's life; those that wait for it go on."""
        with self._lock:
            entry = self._nodes[node]
            if entry.incarnation == incarnation and entry.state != LOST:
                entry.state, entry.handle = state, handle
                if state == LOST:
                    entry.records.clear()
                self._change.notify_all()

    def lose(self, node: str) -> None:
        """Publish that a node will not come back."""
        with self._lock:
            self._nodes[node].state, self._nodes[node].handle = LOST, None
            self._nodes[node].records.clear()
            self._change.notify_all()

    def wait(self, node: str, after: int, seconds: float) -> tuple[str, int, Any]:
        """Return (state, incarnation, handle) of a node, once it is up in a life later than `after`, or lost."""
        end = time.monotonic() + seconds
        with self._lock:
            entry = self._nodes[node]
            while not (entry.state == LOST or (entry.state == UP and entry.incarnation > after)):
                left = end - time.monotonic()
                if left <= 0:
                    return DOWN, entry.incarnation, None
                self._change.wait(left)
            return entry.state, entry.incarnation, entry.handle

    # ---- top-level actors, which a node's next life spawns again

    def new_key(self) -> str:
        """Return a key for a top-level actor, unique in the cluster."""
        return f"a{next(self._keys)}"

    def turn(self) -> int:
        """Return the next number, to place actors on the nodes in turn."""
        return next(self._turn)

    def record(self, node: str, key: str, data: bytes) -> None:
        """Keep what it takes to spawn an actor."""
        with self._lock:
            if self._nodes[node].state != LOST:
                self._nodes[node].records[key] = data

    def forget(self, node: str, key: str) -> None:
        """Forget an actor that has stopped for good.  Idempotent."""
        with self._lock:
            self._nodes[node].records.pop(key, None)

    def records(self, node: str) -> dict[str, bytes]:
        """Return the actors of a node, in the order in which they were spawned."""
        with self._lock:
            return dict(self._nodes[node].records)
