"""The part of a cluster that knows its engine, as an interface: start a node, call it, learn of its death.

`on_ray` implements it on Ray, and `in_process` in one process, for tests.  Everything else in this folder uses only
these few operations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Caller", "Carrier", "NodeDied", "NodeUnavailable", "Place"]


class NodeDied(Exception):
    """The process of a node has ended; the call may have run, or not."""


class NodeUnavailable(Exception):
    """A call got no result, and the node may be alive: the same call may be made again."""


@dataclass(frozen=True)
class Place:
    """One life of a node: which node, the number of this life, and the options of its System."""

    cluster: str
    node: str
    number: int
    incarnation: int
    options: dict[str, Any] = field(default_factory=dict)
    gpus: int = 0


class Caller(ABC):
    """Calls of a process of the cluster, as far as the engine carries them.  All methods may be called by any thread.

    Attributes
    ----------
    shared : bool
        Whether nodes share the process of the program.
    direct : bool
        Whether calls may be made by connections between the processes, and not by the engine.
    """

    shared = False
    direct = False

    @abstractmethod
    def call(self, handle: Any, method: str, *args: Any) -> Any:
        """Call a method of a node's `Host`, and wait for its result.

        Raises
        ------
        NodeDied, NodeUnavailable
        """

    @abstractmethod
    def directory(self, method: str, *args: Any) -> Any:
        """Call a method of the cluster's `Directory`.

        Raises
        ------
        NodeDied
            If the cluster has ended.
        """

    @abstractmethod
    def address(self) -> str:
        """Return the address of this machine for the other machines."""


class Carrier(Caller):
    """Processes on nodes, and calls to them."""

    @abstractmethod
    def start(self, place: Place) -> Any:
        """Start the process of a node, with a `Host` in it; wait until it is up, and return its handle.

        Raises
        ------
        AtomrError
            The error of the node's System, or why the node cannot be placed.
        NodeDied
            If the process ended meanwhile.
        """

    @abstractmethod
    def watch(self, handle: Any, died: Callable[[], object]) -> None:
        """Call `died` once, in some thread, when the process of a node has ended."""

    @abstractmethod
    def end(self, handle: Any) -> None:
        """End the process of a node at once.  Idempotent."""

    @abstractmethod
    def close(self) -> None:
        """End what the cluster itself started: the directory, and the placement.  Idempotent."""
