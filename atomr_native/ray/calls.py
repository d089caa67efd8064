"""Calls of one life of a node: by a connection of the two processes, or by the engine."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .carrier import NodeDied
from .moving.client import Broken
from .wire import pack, unpack

if TYPE_CHECKING:
    from .moving.way import Way
    from .peer import Peer

__all__ = ["Calls", "Life", "lasting"]

_log = logging.getLogger("atomr_native.ray")


@dataclass
class Life:
    """The connection to one life of the node."""

    incarnation: int
    handle: Any
    id: str = field(default_factory=lambda: os.urandom(8).hex())
    batch: int = 0
    acked: int = 0
    known: set[str] = field(default_factory=set)  # actors whose end the node reports
    way: Way | None = None  # to the bytes of its arrays
    direct: bool = True  # whether that way is open
    forgotten: bool = False  # by the node, which may go on


class Forgotten(NodeDied):
    """The node has forgotten this process, which it has not heard for long; what was on its way may have run."""


class Calls:
    """Makes the calls of a link.

    Parameters
    ----------
    peer : Peer
    node : str
    numbers : iterator of int
        Of the link's calls, which the node remembers by them.
    """

    def __init__(self, peer: Peer, node: str, numbers: Iterator[int]) -> None:
        self._peer, self._node, self._numbers = peer, node, numbers

    def by_engine(self, life: Life, method: str, *args: Any) -> Any:
        """Call the node by the engine; see `Caller.call`."""
        return _known(life, self._peer.caller.call(life.handle, method, *args))

    def way(self, life: Life) -> Way | None:
        """Return how the node is reached by connections; None if it gives none.  Raises as `Caller.call`."""
        if life.way is None:
            asked = pack(("way", ()), self._peer).data
            good, data, _ = self.by_engine(life, "control", life.id, next(self._numbers), asked, None)
            if not good:
                life.direct = False
                return None
            life.way = unpack(data, self._peer)
        return life.way

    def make(self, life: Life, method: str, *args: Any) -> Any:
        """Call the node by a connection of the two processes, which is quicker, or else by the engine.

        An array of bytes as the last argument goes by itself: on one machine by a descriptor of host memory.

        A call that is lost is made again, so the node may get it twice: its number tells.  Raises as `Caller.call`.
        """
        way = self.way(life) if life.direct and self._peer.caller.direct else None
        if way is not None:
            try:
                good, value = pickle.loads(self._over(way, method, args))  # noqa: S301 - it is a process of the cluster
            except Broken as error:
                _log.debug("calls of %s go through the engine: %s", self._node, error)
                life.direct = False
            else:
                if not good:
                    raise value
                return _known(life, value)
        return self.by_engine(life, method, *args)

    def _over(self, way: Way, method: str, args: tuple[Any, ...]) -> bytes:
        moves, blob = self._peer.moves, args[-1]
        if not isinstance(blob, np.ndarray):
            return moves.call(way, pickle.dumps((method, args), 5))
        return moves.push(way, pickle.dumps((method, args[:-1]), 5), blob)


def _known(life: Life, result: Any) -> Any:
    """Return the result of a call; none comes for a link that the node has forgotten."""
    if result is None:
        life.forgotten = True
        raise Forgotten(f"life {life.incarnation} of the node has forgotten this process")
    return result


def lasting(posts: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return what concerns actors that the node's next life has again."""
    return [each for each in posts if each[0] in ("stop", "begin") and each[1][0] == "a"]
