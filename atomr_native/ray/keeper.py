"""The supervised child that stands for a node: it starts the node's process, and fails when that ends."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass
from typing import Any

from ..actors.actor import Actor
from ..errors import AtomrError, NodeLost
from .carrier import Carrier, NodeDied, NodeUnavailable, Place
from .directory import UP

__all__ = ["Keeper"]


@dataclass(frozen=True)
class _Died:
    incarnation: int


class Keeper(Actor):
    """A node, as an actor of the System of the program that made the cluster.

    Its supervision is that of any actor: `NodeLost` is its failure, a restart is a new process, and its end is the loss
    of the node.
    """

    def __init__(self, carrier: Carrier, place: Place) -> None:
        self._carrier = carrier
        self._handle: Any = None
        try:
            self._place = dataclasses.replace(place, incarnation=carrier.directory("begin", place.node))
            self._handle = carrier.start(self._place)
        except (NodeDied, NodeUnavailable) as error:
            raise NodeLost(f"{place.node} ended while it started: {error}", place.node) from None
        ref, died = self.context.self_ref, _Died(self._place.incarnation)
        carrier.directory("publish", place.node, UP, self._place.incarnation, self._handle)
        carrier.watch(self._handle, lambda: ref.try_tell(died))

    def receive(self, message: Any) -> int:
        """Fail when this life has ended; answer with its number otherwise."""
        if isinstance(message, _Died) and message.incarnation == self._place.incarnation:
            raise NodeLost(f"the process of {self._place.node} has ended", self._place.node)
        return self._place.incarnation

    def post_stop(self) -> None:
        """End the process."""
        with contextlib.suppress(NodeDied, NodeUnavailable, AtomrError):
            self._carrier.directory("publish", self._place.node, "down", self._place.incarnation)
        self._carrier.end(self._handle)
