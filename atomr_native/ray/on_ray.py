"""Nodes as Ray actors; no other module but `transport` imports Ray."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    GetTimeoutError,
    OwnerDiedError,
    RayActorError,
    RaySystemError,
    RayTaskError,
)
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from .. import __version__
from .._support.ray_version import OLDEST_RAY, is_too_old
from ..errors import AtomrError, InvalidRequest, Unsupported
from . import _peers
from .carrier import Carrier, NodeDied, NodeUnavailable, Place
from .directory import Directory
from .handover import await_gpus

if TYPE_CHECKING:
    from .host import Host
    from .peer import Peer

__all__ = ["OnRay"]

_log = logging.getLogger("atomr_native.ray")

NAMESPACE = "atomr_native"
_START = 60.0  # seconds for a node's process to start
_GROUPS = {"deliver": 4, "collect": 64, "control": 16}  # threads of a node, by kind of call


class _NodeActor:
    """The process of a node: a `Host` that is made when Ray has set the environment."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._host: Host | None = None

    def __repr__(self) -> str:
        return self._node  # Ray puts it in front of each line of the process's log

    def open(self, place: Place, version: str) -> AtomrError | None:
        """Make the System; return why it cannot be made."""
        from .host import Host

        if version != __version__:
            return Unsupported(
                f"{place.node} has atomr_native {__version__}, and the program that made the cluster {version}; "
                f"install the same version on all nodes",
                rule="ray.version",
            )
        gpus = ray.get_gpu_ids()
        if not gpus:  # Ray leaves the variable as it is, and a GPU may be another's
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        await_gpus(gpus)
        carrier = OnRay.joined(place.cluster)
        try:
            self._host = Host(place, carrier, carrier.directory("records", place.node))
        except AtomrError as error:
            return error
        return None

    def deliver(self, *args: Any) -> Any:
        """Put messages; in threads of their own."""
        return self._open().deliver(*args)

    def collect(self, *args: Any) -> Any:
        """Wait for answers; in threads of their own."""
        return self._open().collect(*args)

    def control(self, *args: Any) -> Any:
        """Run an operation; in threads of their own."""
        return self._open().control(*args)

    def bye(self, link: str) -> None:
        """Forget a link."""
        self._open().bye(link)

    def close(self, timeout: float) -> None:
        """Close the System."""
        self._open().close(timeout)

    def wait_for_end(self) -> None:
        """Return never; its caller learns of the end of this process."""
        threading.Event().wait()

    def _open(self) -> Host:
        if self._host is None:
            raise RuntimeError("this node has not been opened")
        return self._host


def _grouped(cls: type) -> type:
    for name in ("deliver", "collect"):
        setattr(cls, name, ray.method(concurrency_group=name)(getattr(cls, name)))
    for name in ("control", "bye", "close", "open", "wait_for_end"):
        setattr(cls, name, ray.method(concurrency_group="control")(getattr(cls, name)))
    return cls


def check_ray() -> None:
    """Raise if Ray is too old, or used through Ray Client."""
    if is_too_old(ray.__version__):
        raise Unsupported(
            f"Ray {ray.__version__} is too old; allowed: {OLDEST_RAY[0]}.{OLDEST_RAY[1]} and later", rule="ray.oldest",
            lifted_by=("library",),
        )  # fmt: skip
    from ray.util.client import ray as client

    if client.is_connected():
        raise Unsupported(
            "Ray Client (ray.init('ray://...')) is not supported: run the program on a machine of the Ray cluster, "
            "for example by `ray job submit`",
            rule="ray.client",
        )


class OnRay(Carrier):
    """Nodes as Ray actors in a placement group, and a small Ray actor with the directory.

    Parameters
    ----------
    cluster : str
        The cluster's name, unique in the namespace ``"atomr_native"``.
    """

    direct = True

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self._directory: Any = None
        self._group: PlacementGroup | None = None
        self._owns_group = self._owner = False
        self._gpus, self._cpus, self._memory = 0, 1.0, 0

    def prepare(
        self, nodes: dict[str, int], *, gpus: int, cpus: float, memory: int | None, strategy: str,
        group: PlacementGroup | None,
    ) -> None:  # fmt: skip
        """Reserve the resources of all nodes, and start the directory.  Waits until they are there.

        Raises
        ------
        InvalidRequest
            If the Ray cluster has not got them, or the cluster's name is taken.
        """
        self._gpus, self._cpus, self._memory = gpus, cpus, memory or 0
        if not ray.is_initialized():
            ray.init(log_to_driver=True)
        check_ray()
        bundle = {"CPU": cpus, **({"GPU": gpus} if gpus else {}), **({"memory": memory} if memory else {})}
        if group is not None:
            _check_group(group, len(nodes), bundle)
            self._group = group
        else:
            self._reserve(len(nodes), bundle, strategy)
        actor = ray.remote(_in_threads(Directory))
        # On the program's own machine: with another one the directory, and so the cluster, would be lost.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        options = {
            "name": self.cluster, "namespace": NAMESPACE, "num_cpus": 0, "max_concurrency": 64,
            "scheduling_strategy": here,
        }  # fmt: skip
        try:
            self._directory = actor.options(**options).remote(nodes)
            self._owner = True
            ray.get(self._directory.nodes.remote())
        except ValueError:
            self.close()
            raise InvalidRequest(
                f"name={self.cluster!r} is the name of another cluster; Cluster.join joins it"
            ) from None

    def _reserve(self, count: int, bundle: dict[str, Any], strategy: str) -> None:
        there = ray.cluster_resources()
        for name, amount in bundle.items():
            if amount * count > there.get(name, 0) + 1e-6:
                raise InvalidRequest(
                    f"{count} nodes with {amount:g} {name} each need {amount * count:g}; the Ray cluster has "
                    f"{there.get(name, 0):g}"
                )
        machines = sum(1 for each in ray.nodes() if each["Alive"])
        if strategy == "STRICT_SPREAD" and count > machines:
            raise InvalidRequest(
                f"strategy='STRICT_SPREAD' with nodes={count}; the Ray cluster has {machines} machines"
            )
        self._group, self._owns_group = placement_group([dict(bundle)] * count, strategy=strategy), True
        try:
            ray.get(self._group.ready(), timeout=_START)
        except GetTimeoutError:
            self.close()
            raise InvalidRequest(
                f"{count} nodes with {bundle} each could not be placed within {_START:g} s with strategy={strategy!r}; "
                f"other jobs have the resources, or no machine has enough"
            ) from None

    @classmethod
    def joined(cls, cluster: str) -> OnRay:
        """Return the way to a cluster that another process has made.

        Raises
        ------
        NodeDied
            If there is none of this name.
        """
        made = cls(cluster)
        try:
            made._directory = ray.get_actor(cluster, namespace=NAMESPACE)
        except ValueError:
            raise NodeDied(f"there is no cluster {cluster!r}") from None
        return made

    # ---- nodes

    def start(self, place: Place) -> Any:
        """Start a node; see `Carrier`."""
        actor = ray.remote(concurrency_groups=_GROUPS)(_grouped(type("AtomrNode", (_NodeActor,), {})))
        strategy = PlacementGroupSchedulingStrategy(
            placement_group=self._group, placement_group_bundle_index=place.number,
            placement_group_capture_child_tasks=False,
        )  # fmt: skip
        handle = actor.options(
            num_cpus=self._cpus, num_gpus=self._gpus, memory=self._memory or None, max_restarts=0, max_task_retries=0,
            scheduling_strategy=strategy, namespace=NAMESPACE,
        ).remote(place.node)  # fmt: skip
        try:
            error = ray.get(handle.open.remote(place, __version__), timeout=_START)
        except GetTimeoutError:
            self.end(handle)
            raise NodeDied(f"the process of {place.node} did not start within {_START:g} s") from None
        except RayActorError as died:
            raise NodeDied(str(died)) from None
        except RayTaskError:
            self.end(handle)
            raise
        if error is not None:
            self.end(handle)
            raise error
        return handle

    def call(self, handle: Any, method: str, *args: Any) -> Any:
        """Call a node; see `Caller`."""
        return _result(getattr(handle, method).remote(*args))

    def watch(self, handle: Any, died: Callable[[], object]) -> None:
        """Report the end of a node; see `Carrier`."""
        reference = handle.wait_for_end.remote()

        def wait() -> None:
            while True:
                try:
                    _result(reference)
                except NodeUnavailable:
                    try:
                        _result(handle.wait_for_end.remote())
                    except NodeUnavailable:
                        continue
                    except NodeDied:
                        pass
                except NodeDied:
                    pass
                died()
                return

        threading.Thread(target=wait, name="atomr_native-watch", daemon=True).start()

    def end(self, handle: Any) -> None:
        """End a node; see `Carrier`."""
        if handle is not None and ray.is_initialized():
            try:
                ray.kill(handle, no_restart=True)
            except (RaySystemError, ValueError) as error:
                _log.debug("a node could not be killed: %s", error)

    def directory(self, method: str, *args: Any) -> Any:
        """Call the directory; see `Caller`."""
        if self._directory is None or not ray.is_initialized():
            raise NodeDied("the cluster has ended")
        return _result(getattr(self._directory, method).remote(*args))

    def address(self) -> str:
        """Return the address of this machine; see `Caller`."""
        return str(ray.util.get_node_ip_address())

    def close(self) -> None:
        """End the directory and the nodes; see `Carrier`."""
        directory, self._directory = self._directory, None
        group, self._group = self._group, None
        if not ray.is_initialized():
            return
        if directory is not None and self._owner:
            self.end(directory)
        if group is not None and self._owns_group:
            remove_placement_group(group)


def _in_threads(cls: type) -> type:
    """Return a class for Ray with the same methods; Ray runs them in `max_concurrency` threads."""
    return type("AtomrDirectory", (cls,), {})


def _result(reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ActorUnavailableError as error:
        raise NodeUnavailable(str(error)) from None
    except (ActorDiedError, RayActorError, OwnerDiedError) as error:
        raise NodeDied(str(error)) from None
    except RayTaskError as error:
        cause = error.as_instanceof_cause()
        if isinstance(cause, NodeDied | NodeUnavailable):
            raise type(cause)(str(cause)) from None
        raise


def _check_group(group: PlacementGroup, count: int, bundle: dict[str, Any]) -> None:
    found = group.bundle_specs
    if len(found) < count:
        raise InvalidRequest(f"nodes={count}, and the placement group has {len(found)} bundles")
    for number, each in enumerate(found[:count]):
        for name, amount in bundle.items():
            if amount > each.get(name, 0) + 1e-6:
                raise InvalidRequest(
                    f"a node needs {amount:g} {name}, and bundle {number} of the placement group has "
                    f"{each.get(name, 0):g}"
                )


def join_named(cluster: str) -> Peer | None:
    """Take part in a cluster from a process of its Ray job; None if there is none of this name."""
    from ..system import System
    from .peer import Peer

    if not ray.is_initialized():
        return None
    try:
        carrier = OnRay.joined(cluster)
        return Peer(cluster, f"process {os.getpid()}", carrier, System(standby="off"))
    except NodeDied:
        return None


if join_named not in _peers.joiner:
    _peers.joiner.append(join_named)
