"""A cluster's statistics for Prometheus and ``python -m atomr_native top``, with the names of its nodes."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from ..errors import ActorStopped
from ..observe.prometheus import MetricsServer, StatsCollector, Taken, serve
from ..observe.publisher import Publisher
from ..observe.snapshot import Snapshot, described

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..runtime.statistics import SystemStats
    from .cluster import Cluster

__all__ = ["collector_of", "publish", "serve_metrics"]


class _Nodes(StatsCollector):
    """The nodes' statistics, with the label ``node``, and which nodes are up."""

    def __init__(self, cluster: Cluster) -> None:
        self._found = weakref.ref(cluster)
        self._stats: dict[str, SystemStats | None] = {}
        super().__init__(("node",), self._take_all)

    def _take_all(self) -> list[Taken]:
        return [((node,), stats) for node, stats in self._stats.items() if stats is not None]

    def collect(self) -> Iterator[Any]:
        """Yield the current metric families; waits for the nodes."""
        cluster = self._found()
        try:
            self._stats = {} if cluster is None or cluster.closed else cluster.stats()
        except ActorStopped:  # it ends meanwhile
            self._stats = {}
        if not self._stats:
            return
        up = self._core.GaugeMetricFamily("atomr_native_node_up", "1 for a node that serves, else 0.", labels=("node",))
        for node, stats in self._stats.items():
            up.add_metric((node,), float(stats is not None))
        yield up
        yield from super().collect()


def collector_of(cluster: Cluster) -> StatsCollector:
    """Return a collector of a cluster's statistics; see `Cluster.serve_metrics`."""
    return _Nodes(cluster)


def serve_metrics(cluster: Cluster, port: int, address: str) -> MetricsServer:
    """Serve the metrics of all nodes; see `Cluster.serve_metrics`."""
    return serve(lambda: _Nodes(cluster), port, address, lambda: cluster.closed)


def _joined(cluster: Cluster) -> SystemStats:
    """Return the statistics of all nodes as of a single System, whose names begin with those of nodes."""
    found: SystemStats = {"devices": {}, "actors": {}, "dead_letters": 0}
    for node, stats in cluster.stats().items():
        if stats is not None:
            found["devices"].update({f"{node}/{name}": device for name, device in stats["devices"].items()})
            found["actors"].update({f"/{node}{path}": actor for path, actor in stats["actors"].items()})
            found["dead_letters"] += stats["dead_letters"]
    return found


def _snapshot(cluster: Cluster) -> Snapshot:
    return described(cluster.name, _joined(cluster))


def publish(cluster: Cluster) -> Publisher:
    """Let ``python -m atomr_native top`` show a cluster; see `Cluster.publish`."""
    return Publisher(cluster, _snapshot)
