"""The nodes of a cluster in the program that has made it: each one under an actor that supervises it."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from ..actors.mailbox import Mailbox
from ..actors.supervision import OneForOne, Supervision
from ..errors import ActorStopped, AtomrError, NodeLost
from .carrier import Carrier, NodeDied, NodeUnavailable, Place
from .directory import UP
from .keeper import Keeper

if TYPE_CHECKING:
    from ..actors.ref import ActorRef
    from ..system import System

__all__ = ["Nodes"]

_log = logging.getLogger("atomr_native.ray")


class Nodes:
    """Starts and ends the nodes of a cluster.

    Parameters
    ----------
    system : System
        Of the program, for the actors that supervise them.
    carrier : Carrier
    """

    def __init__(self, system: System, carrier: Carrier) -> None:
        self._system, self._carrier = system, carrier
        self._keepers: dict[str, ActorRef] = {}
        self._ending = False

    def start(
        self, cluster: str, names: dict[str, int], options: dict[str, Any], supervision: Supervision | None
    ) -> None:
        """Start nodes with their numbers of GPUs, and wait until they are up.

        Raises
        ------
        AtomrError
            Of a node that cannot start.
        """
        strategy = supervision or OneForOne()
        for number, (node, gpus) in enumerate(names.items()):
            place = Place(cluster, node, number, 0, options, gpus)
            keeper = self._system.spawn(
                Keeper, self._carrier, place, name=node, supervision=strategy, mailbox=Mailbox(None)
            )
            self._keepers[node] = keeper
            cell: Any = keeper.cell
            cell.ended.add_done_callback(lambda _, node=node: self._lost(node))
        for node, keeper in self._keepers.items():
            try:
                keeper.started.result()
            except ActorStopped:
                cell = keeper.cell
                error = cell.final_error
                raise error if isinstance(error, AtomrError) else NodeLost(f"{node} did not start", node) from None

    def _lost(self, node: str) -> None:
        """Publish that a node's supervision has given it up."""
        if not self._ending:
            try:
                self._carrier.directory("lose", node)
            except (NodeDied, NodeUnavailable):
                _log.debug("the loss of %s could not be published: the cluster has ended", node)

    def leave(self) -> None:
        """Take the ends of nodes from now on for the cluster's own."""
        self._ending = True

    def close(self, deadline: float) -> None:
        """Close the Systems of all nodes that are up, side by side."""
        closing = []
        for node in self._keepers:
            try:
                state, _, handle = self._carrier.directory("wait", node, 0, 0.0)
            except (NodeDied, NodeUnavailable):
                _log.debug("%s is ended at once: the cluster's table has gone", node)
                continue
            if state == UP:
                thread = threading.Thread(target=self._end, args=(handle, deadline), daemon=True)
                thread.start()
                closing.append(thread)
        for thread in closing:
            thread.join(max(0.1, deadline + 1.0 - time.monotonic()))

    def end(self) -> None:
        """End the processes that are left, and the directory.  Idempotent."""
        self._carrier.close()

    def _end(self, handle: Any, deadline: float) -> None:
        try:
            self._carrier.call(handle, "close", max(0.0, deadline - time.monotonic()))
        except (NodeDied, NodeUnavailable):
            return
