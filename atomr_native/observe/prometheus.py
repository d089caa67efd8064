"""Statistics of a System as Prometheus metrics."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from .._lib.guard import Lock
from ..errors import ActorStopped, InvalidRequest, Unsupported
from ..system import state_of
from .optional import need
from .snapshot import check_system, snapshot

if TYPE_CHECKING:
    from ..runtime.statistics import SystemStats
    from ..system import System

__all__ = ["MetricsServer", "StatsCollector", "SystemCollector", "serve", "serve_metrics"]

#: Values of labels, and the statistics that they belong to.
Taken: TypeAlias = "tuple[tuple[str, ...], SystemStats]"

_PREFIX = "atomr_native_"
_DEVICE_STATES = ("open", "restarting", "lost", "closed")
_ACTOR_STATES = ("starting", "running", "failed", "restarting", "waiting", "stopping", "stopped")

#: Name, help, and key in `MemoryStats`; bytes.
_MEMORY = (
    ("limit", "Limit for the volatile and durable segments of a device in total.", "limit"),
    ("reserved", "Size of the volatile and durable segments.", "reserved"),
    ("in_use", "Allocated memory, rounded up to 256 bytes each.", "in_use"),
    ("workspaces", "Scratch memory of plans.", "workspaces"),
    ("device_free", "Free memory for any program, by the driver or the system.", "device_free"),
    ("device_total", "Total memory of the device.", "device_total"),
)  # fmt: skip
_POOL = (
    ("in_use", "Allocated memory of a pool.", "in_use"),
    ("free", "Free memory of a pool.", "free"),
    ("largest_free", "The largest free block of a pool.", "largest"),
    ("deferred", "Freed memory that messages still use.", "deferred"),
    ("total", "Memory of all segments of a pool.", "total"),
)  # fmt: skip
#: Name, help, key in `ActorStats`, factor.  Counters first.
_LANE_COUNTERS = (
    ("messages_sent", "Messages sent to an actor of a device.", "sent", 1.0),
    ("messages_completed", "Messages resolved, successfully or not.", "completed", 1.0),
    ("messages_failed", "Messages that failed in the current worker.", "failed", 1.0),
    ("busy_seconds", "Working time of the lane; on a GPU, the time of launching.", "busy_ns", 1e-9),
    ("parks", "Number of times the lane went to sleep.", "parks", 1.0),
)  # fmt: skip
_LANE_GAUGES = (
    ("queued_messages", "Messages sent and not resolved.", "queued"),
    ("mailbox_cells_in_use", "Cells of the mailbox that hold messages.", "cells_in_use"),
    ("workspace_bytes", "Scratch memory that the plans of a lane share.", "workspace"),
)  # fmt: skip
_ACTOR_COUNTERS = (
    ("messages_processed", "Messages that an actor has handled.", "processed"),
    ("messages_failed", "Messages at which an actor failed.", "failed"),
    ("restarts", "Restarts of an actor.", "restarts"),
)  # fmt: skip
_ACTOR_GAUGES = (
    ("mailbox_messages", "Messages that wait in the mailbox of an actor.", "mailbox"),
    ("mailbox_capacity_messages", "Capacity of the mailbox in messages; no sample if it is unbounded.", "capacity"),
    ("stashed_messages", "Messages in the stash of an actor.", "stashed"),
)  # fmt: skip


class StatsCollector:
    """A collector of the statistics of Systems, told apart by labels of their own.

    Parameters
    ----------
    labels : tuple of str
        Names of labels that every sample has, such as ``("node",)``.
    take : callable
        Returns the values of these labels and the statistics of each System.

    Raises
    ------
    Unsupported
        If prometheus_client is not installed.
    """

    def __init__(self, labels: tuple[str, ...], take: Callable[[], Sequence[Taken]]) -> None:
        self._names = labels
        self._take = take
        self._core = need("prometheus_client.core", "prometheus-client", "the Prometheus exporter")

    def describe(self) -> Iterable[Any]:
        """Return no names, so registering does not collect."""
        return ()

    def collect(self) -> Iterator[Any]:
        """Yield the current metric families.  Called by the registry, in its thread."""
        taken = self._take()
        if not taken:
            return
        yield from self._devices(taken)
        yield from self._lanes(taken)
        yield from self._actors(taken)
        letters = self._counter("dead_letters", "Messages that failed without a holder of their reply.", ())
        for where, stats in taken:
            letters.add_metric(where, stats["dead_letters"])
        yield letters

    def _gauge(self, name: str, text: str, labels: tuple[str, ...]) -> Any:
        return self._core.GaugeMetricFamily(_PREFIX + name, text, labels=self._names + labels)

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Any:
        return self._core.CounterMetricFamily(_PREFIX + name, text, labels=self._names + labels)

    def _devices(self, taken: Sequence[Taken]) -> Iterator[Any]:
        devices = [((*where, name), device) for where, stats in taken for name, device in stats["devices"].items()]
        labels = (*self._names, "device")
        info = self._core.InfoMetricFamily(_PREFIX + "device", "Facts about a device.", labels=labels)
        state = self._gauge("device_state", "1 for the state that a device is in, else 0.", ("device", "state"))
        generation = self._gauge("device_generation", "Number of the serving worker, counted from 1.", ("device",))
        restarts = self._counter("device_restarts", "Restarts of a device.", ("device",))
        for where, device in devices:
            hardware = device["hardware"]
            info.add_metric(where, {"hardware": hardware["name"], "uuid": hardware["uuid"] or ""})
            for each in _DEVICE_STATES:
                state.add_metric((*where, each), float(device["state"] == each))
            generation.add_metric(where, device["generation"])
            restarts.add_metric(where, device["restarts"])
        yield from (info, state, generation, restarts)
        for what, text, key in _MEMORY:
            family = self._gauge(f"device_memory_{what}_bytes", text, ("device",))
            for where, device in devices:
                value = device["memory"][key]  # type: ignore[literal-required]
                if value is not None:
                    family.add_metric(where, value)
            yield family
        for what, text, key in _POOL:
            family = self._gauge(f"pool_{what}_bytes", text, ("device", "pool"))
            for where, device in devices:
                for pool, values in device["memory"]["pools"].items():
                    family.add_metric((*where, pool), values[key])  # type: ignore[literal-required]
            yield family

    def _lanes(self, taken: Sequence[Taken]) -> Iterator[Any]:
        lanes: list[tuple[tuple[str, ...], Any]] = [
            ((*where, device, lane), values)
            for where, stats in taken
            for device, each in stats["devices"].items()
            for lane, values in each["actors"].items()
        ]
        labels = ("device", "lane")
        for name, text, key, factor in _LANE_COUNTERS:
            family = self._counter(f"lane_{name}", text, labels)
            for place, values in lanes:
                family.add_metric(place, values[key] * factor)
            yield family
        for name, text, key in _LANE_GAUGES:
            family = self._gauge(f"lane_{name}", text, labels)
            for place, values in lanes:
                family.add_metric(place, values[key])
            yield family

    def _actors(self, taken: Sequence[Taken]) -> Iterator[Any]:
        actors = [((*where, path), values) for where, stats in taken for path, values in stats["actors"].items()]
        state = self._gauge("actor_state", "1 for the state that an actor is in, else 0.", ("actor", "state"))
        for place, values in actors:
            for each in _ACTOR_STATES:
                state.add_metric((*place, each), float(values["state"] == each))
        yield state
        for name, text, key in _ACTOR_COUNTERS:
            family = self._counter(f"actor_{name}", text, ("actor",))
            for place, values in actors:
                family.add_metric(place, values[key])
            yield family
        for name, text, key in _ACTOR_GAUGES:
            family = self._gauge(f"actor_{name}", text, ("actor",))
            for place, values in actors:
                if values[key] is not None:
                    family.add_metric(place, values[key])
            yield family


class SystemCollector(StatsCollector):
    """A collector for a registry of prometheus_client: ``registry.register(SystemCollector(system))``.

    Holds no reference to the System; after its end there are no samples.

    Raises
    ------
    InvalidRequest
        If `system` is not a System.
    Unsupported
        If prometheus_client is not installed.
    """

    def __init__(self, system: System) -> None:
        found = weakref.ref(check_system(system))

        def take() -> list[Taken]:
            system = found()
            return [] if system is None or system.closed else [((), snapshot(system)["stats"])]

        super().__init__((), take)


class MetricsServer:
    """An HTTP server of one System's metrics; made by `serve_metrics`, a context manager.

    Attributes
    ----------
    port : int
        Listening port.
    """

    def __init__(self, server: Any, thread: Any) -> None:
        self._server, self._thread = server, thread
        self._lock = Lock()
        self.port: int = server.server_port

    def close(self) -> None:
        """Stop serving.  Idempotent; waits for its thread."""
        with self._lock:
            server, self._server = self._server, None
            if server is not None:
                server.shutdown()
                server.server_close()
                self._thread.join()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def serve_metrics(system: System, port: int, *, address: str = "127.0.0.1") -> MetricsServer:
    """Serve the metrics of a System over HTTP, in a thread, until it is closed.

    Parameters
    ----------
    system : System
        The System to serve.
    port : int
        From 0 to 65535; 0 selects a free port, see `MetricsServer.port`.
    address : str
        By default reachable from this machine only.  There is neither encryption nor a password.

    Raises
    ------
    InvalidRequest
        For an invalid port or address.
    ActorStopped
        If the System is closed.
    Unsupported
        If prometheus_client is not installed, or nothing can listen there.
    """
    check_system(system)
    made = serve(lambda: SystemCollector(system), port, address, lambda: system.closed)
    state_of(system).closers.append(made.close)
    return made


def serve(
    collector: Callable[[], StatsCollector], port: int, address: str, is_closed: Callable[[], bool]
) -> MetricsServer:
    """Serve what a collector collects; see `serve_metrics`."""
    if type(port) is not int or not 0 <= port <= 65535:
        raise InvalidRequest(f"port={port!r}; it must be an integer from 0 to 65535")
    if not isinstance(address, str):
        raise InvalidRequest(f"address={address!r}; it must be a string such as '127.0.0.1'")
    made = collector()
    if is_closed():
        raise ActorStopped("this System is closed; make a new one")
    client = need("prometheus_client", "prometheus-client", "the Prometheus exporter")
    registry = client.CollectorRegistry()
    registry.register(made)
    try:
        server, thread = client.start_http_server(port, addr=address, registry=registry)
    except OSError as error:
        why = str(error)
    else:
        return MetricsServer(server, thread)
    raise Unsupported(f"nothing can listen at port {port} of {address}: {why}")
