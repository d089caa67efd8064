"""A cluster in one process, for tests: nodes are Systems, and calls may be lost, late or repeated."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from .._lib.guard import Lock
from .._support.checks import is_real
from ..errors import InvalidRequest
from .carrier import Caller, Carrier, NodeDied, NodeUnavailable, Place
from .directory import Directory
from .host import Host

__all__ = ["InProcess"]

_FALLIBLE = ("deliver", "collect", "control")


class _Node(Caller):
    """The process of a node, as far as there is one: a dead one makes no more calls, and gets no results."""

    shared = True

    def __init__(self, place: Place, carrier: InProcess) -> None:
        self.place, self._carrier = place, carrier
        self.host: Host | None = None
        self.dead = threading.Event()
        self.lock = Lock()
        self.watchers: list[Callable[[], object]] = []
        self._links: dict[str, Host] = {}  # those with calls that may wait, and the nodes that have them

    def call(self, handle: Any, method: str, *args: Any) -> Any:
        """Call a node; see `Caller`."""
        if method == "collect":
            self._links[args[0]] = handle.host
        self._check()
        result = self._carrier.call(handle, method, *args)
        self._check()
        return result

    def directory(self, method: str, *args: Any) -> Any:
        """Call the directory; see `Caller`."""
        self._check()
        return self._carrier.directory(method, *args)

    def address(self) -> str:
        """Return the address of this machine; see `Caller`."""
        return self._carrier.address()

    def end_waits(self) -> None:
        """End the calls of this node that wait at others."""
        for link, host in list(self._links.items()):
            host.bye(link)

    def _check(self) -> None:
        if self.dead.is_set():
            raise NodeDied(f"{self.place.node} itself has ended")


class InProcess(Carrier):
    """Nodes in the calling process, for ``Cluster(carrier=InProcess())``: programs for clusters, tested without Ray.

    Messages are pickled, as between machines.

    Parameters
    ----------
    lost, late, repeated : float
        Probabilities that a call between nodes gets no result (half of them before it runs, half after), waits up to 10
        ms before it runs, or runs a second time, a little later.
    seed : int
        Of these.

    Examples
    --------
    >>> from atomr_native.ray import Cluster
    >>> from atomr_native.ray.in_process import InProcess
    >>> with Cluster(nodes=3, carrier=InProcess(lost=0.1)) as cluster:
    ...     sorted(cluster.nodes)
    ['node0', 'node1', 'node2']
    """

    shared = True

    def __init__(self, *, lost: float = 0.0, late: float = 0.0, repeated: float = 0.0, seed: int = 0) -> None:
        for name, value in (("lost", lost), ("late", late), ("repeated", repeated)):
            if not is_real(value) or not 0 <= value < 1:
                raise InvalidRequest(f"{name}={value!r}; it must be a probability from 0 to below 1")
        self._rates = (lost, late, repeated)
        self._random = random.Random(seed)  # noqa: S311 - faults of tests
        self._directory: Directory | None = None
        self._nodes: list[_Node] = []
        self.deepest = 0  # most calls of links that were open at once
        self._open = 0
        self._lock = Lock()

    def prepare(self, nodes: dict[str, int]) -> None:
        """Make the directory."""
        self._directory = Directory(nodes)

    def start(self, place: Place) -> Any:
        """Start a node; see `Carrier`."""
        node = _Node(place, self)
        with self._lock:
            self._nodes.append(node)
        node.host = Host(place, node, self.directory("records", place.node))
        return node

    def call(self, handle: Any, method: str, *args: Any) -> Any:
        """Call a node; see `Caller`."""
        node: _Node = handle
        with self._lock:
            self._open += 1
            self.deepest = max(self.deepest, self._open)
            lost, late, again = (self._random.random() < rate for rate in self._rates)
            first, pause = self._random.random() < 0.5, 0.01 * self._random.random()
        try:
            fallible = method in _FALLIBLE
            if fallible and late:
                time.sleep(pause)
            if fallible and lost and first:
                raise NodeUnavailable("the call was lost")
            result = self._run(node, method, args)
            if fallible and again:
                threading.Timer(pause, self._repeat, (node, method, args)).start()
            if fallible and lost:
                raise NodeUnavailable("the result was lost")
            return result
        finally:
            with self._lock:
                self._open -= 1

    def _run(self, node: _Node, method: str, args: tuple[Any, ...]) -> Any:
        if node.dead.is_set() or node.host is None:
            raise NodeDied(f"{node.place.node} has ended")
        result = getattr(node.host, method)(*args)
        if node.dead.is_set():
            raise NodeDied(f"{node.place.node} has ended")
        return result

    def _repeat(self, node: _Node, method: str, args: tuple[Any, ...]) -> None:
        if method == "collect":
            args = (*args[:-1], 0.0)
        with contextlib.suppress(NodeDied):
            self._run(node, method, args)

    def watch(self, handle: Any, died: Callable[[], object]) -> None:
        """Report the end of a node; see `Carrier`."""
        with handle.lock:
            if not handle.dead.is_set():
                handle.watchers.append(died)
                return
        died()

    def kill(self, node: str) -> None:
        """End a node at once, as the death of its process does."""
        for each in list(self._nodes):
            if each.place.node == node and not each.dead.is_set():
                self.end(each)

    def end(self, handle: Any) -> None:
        """End a node; see `Carrier`."""
        if handle is None:
            return
        with handle.lock:
            if handle.dead.is_set():
                return
            handle.dead.set()
            watchers, handle.watchers = handle.watchers, []
        with self._lock:
            self._nodes.remove(handle)
        for died in watchers:
            died()
        handle.end_waits()
        if handle.host is not None:
            handle.host.abort()
            handle.host.close(0.0)

    def directory(self, method: str, *args: Any) -> Any:
        """Call the directory; see `Caller`."""
        if self._directory is None:
            raise NodeDied("the cluster has ended")
        return getattr(self._directory, method)(*args)

    def address(self) -> str:
        """Return the address of this machine; see `Caller`."""
        return "127.0.0.1"

    def close(self) -> None:
        """End the directory and the nodes; see `Carrier`."""
        for each in list(self._nodes):
            self.end(each)
        self._directory = None
