"""What `Device.stats` and `System.stats` return: plain dictionaries with known keys, which JSON can hold.

Memory is in bytes.  Counters of an actor that its worker keeps begin anew with each generation of the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, cast

from ._lib.sender import CLOSED, LOST, OPEN
from .errors import AtomrError

if TYPE_CHECKING:
    from .device import Device

__all__ = [
    "UNKNOWN",
    "ActorStats",
    "DeviceFacts",
    "DeviceStats",
    "MemoryStats",
    "PoolStats",
    "SystemStats",
    "checked_facts",
    "checked_memory",
    "device_memory",
    "device_stats",
]


class DeviceFacts(TypedDict):
    """What a device is; it stays what it is as long as its System lives.

    Attributes
    ----------
    name : str
        Of the GPU, as its driver has it; of the processor for ``host``.
    uuid : str or None
        ``"GPU-..."`` or ``"MIG-..."``, as nvidia-smi prints it; None for ``host``.
    compute_capability : tuple of (int, int), or None
        Such as (9, 0); None for ``host``.
    multiprocessors : int or None
        None for ``host``.
    driver_version : int or None
        The CUDA version of the driver: 1000 * major + 10 * minor; None for ``host``.
    total_memory : int
        Bytes.
    """

    name: str
    uuid: str | None
    compute_capability: tuple[int, int] | None
    multiprocessors: int | None
    driver_version: int | None
    total_memory: int


#: What is known of a device before its first worker has answered.
UNKNOWN: DeviceFacts = {
    "name": "unknown",
    "uuid": None,
    "compute_capability": None,
    "multiprocessors": None,
    "driver_version": None,
    "total_memory": 0,
}


class PoolStats(TypedDict):
    """Memory of one kind: ``total`` is ``in_use`` + ``free`` + ``deferred``.

    Attributes
    ----------
    total : int
        Of all its segments.
    in_use : int
        Allocated, each allocation rounded up to 256 bytes; freed memory that is still lent to others counts.
    free : int
        What an allocation may get, if it is in one piece.
    largest : int
        The largest free block.
    deferred : int
        Freed, and waiting for the messages that use it.  In the staging pool only: elsewhere a freed range is handed
        out at once, and who gets it is ordered after them.
    segments, blocks : int
        Numbers of segments, and of allocations.
    waited, ahead : int
        Segments made so far while an allocation waited for them, and ahead of need.
    """

    total: int
    in_use: int
    free: int
    largest: int
    deferred: int
    segments: int
    blocks: int
    waited: int
    ahead: int


class MemoryStats(TypedDict):
    """The memory of a device.

    Attributes
    ----------
    limit : int
        What volatile and durable segments may take together; see ``System(memory_limit=)``.
    reserved : int
        What they take.
    in_use, free, deferred : int
        Of that, as in `PoolStats`.
    workspaces : int
        Scratch memory of plans, which is part of the volatile pool's ``in_use``; see ``System(workspace_limit=)``.
    device_free, device_total : int or None
        What the device has left for any program, and has in all, as its driver (for ``host``: the system) counts
        them now; None while no worker answers, as during a restart.
    pools : dict of str to PoolStats
        ``"volatile"``, ``"durable"``, and ``"staging"``: host memory that the device reaches.
    """

    limit: int
    reserved: int
    in_use: int
    free: int
    deferred: int
    workspaces: int
    device_free: int | None
    device_total: int | None
    pools: dict[str, PoolStats]


class ActorStats(TypedDict):
    """One mailbox.

    Attributes
    ----------
    sent, completed : int
        Messages sent to it, and resolved, in whatever way.
    queued : int
        Those between: ``sent - completed``.
    claimed : int
        The last message that the worker has begun.
    cells_in_use : int
        Cells of the mailbox that hold messages; see ``System(mailbox_size=)``.
    messages, failed : int
        Messages that this generation's worker has taken, and those of them that failed.
    busy_ns : int
        Nanoseconds that its lane has worked on them; on a GPU, has taken to launch them.
    parks : int
        How often its lane went to sleep.
    started_ns : int
        When the last message began (CLOCK_MONOTONIC).
    parked : bool
        Whether its lane sleeps.
    workspace : int
        Bytes of scratch memory that its plans share.
    """

    sent: int
    completed: int
    queued: int
    claimed: int
    cells_in_use: int
    messages: int
    failed: int
    busy_ns: int
    parks: int
    started_ns: int
    parked: bool
    workspace: int


class DeviceStats(TypedDict):
    """One device.

    Attributes
    ----------
    name : str
        ``"host"``, ``"cuda:0"``, ...
    state : str
        ``"open"``, ``"restarting"``, ``"lost"`` or ``"closed"``.
    generation, restarts : int
        See `Device.generation` and `Device.restarts`.
    worker_pid : int or None
        None in thread placement, and while there is no worker.
    hardware : DeviceFacts
        What the device is.
    memory : MemoryStats
        Its memory.
    actors : dict of str to ActorStats
        Its actors, by name.
    """

    name: str
    state: str
    generation: int
    restarts: int
    worker_pid: int | None
    hardware: DeviceFacts
    memory: MemoryStats
    actors: dict[str, ActorStats]


class SystemStats(TypedDict):
    """A System.

    Attributes
    ----------
    devices : dict of str to DeviceStats
        The devices that were used, by name.
    actors : dict of str to dict
        Actors written in Python, by path: state, counts of messages, failures and restarts, mailbox depth.
    dead_letters : int
        How many messages failed while nobody held their reply.
    """

    devices: dict[str, DeviceStats]
    actors: dict[str, dict[str, Any]]
    dead_letters: int


def device_stats(device: Device, timeout: float) -> DeviceStats:
    """Collect the statistics of a device; waits for its worker up to `timeout` seconds."""
    core = device._core
    free, total = device_memory(device, timeout)
    workspaces = device._workspaces.sizes()
    return {
        "name": device.name,
        "state": {OPEN: "open", LOST: "lost", CLOSED: "closed"}.get(core.state, "restarting"),
        "generation": device.generation,
        "restarts": device.restarts,
        "worker_pid": device.worker_pid,
        "hardware": device.facts,
        "memory": _memory(device, free, total),
        "actors": {
            name: _actor(core.lane_stats(lane), workspaces.get(lane, 0)) for lane, name in list(core.lane_names.items())
        },
    }


def _memory(device: Device, free: int | None, total: int | None) -> MemoryStats:
    memory = device._memory
    pools = memory.pool_stats()
    limited = [pools["volatile"], pools["durable"]]
    return {
        "limit": memory.limit,
        # As the pools say it: a segment that is being added right now is in neither figure, or in both.
        "reserved": sum(pool["total"] for pool in limited),
        "in_use": sum(pool["in_use"] for pool in limited),
        "free": sum(pool["free"] for pool in limited),
        "deferred": sum(pool["deferred"] for pool in limited),
        "workspaces": sum(device._workspaces.sizes().values()),
        "device_free": free,
        "device_total": total,
        "pools": pools,
    }


def _actor(stats: dict[str, int], workspace: int) -> ActorStats:
    return cast("ActorStats", {**stats, "queued": stats["sent"] - stats["completed"], "workspace": workspace})


def device_memory(device: Device, timeout: float) -> tuple[int | None, int | None]:
    """Return (free, total) bytes as the worker says, or (None, None) if it does not within `timeout` seconds."""
    try:
        answer = device._supervisor.links.serving().worker.client.request("stats", timeout=timeout)
    except AtomrError:  # it is gone, or slow
        return None, None
    answer.close()
    return checked_memory(answer.fields) or (None, None)


def checked_memory(fields: dict[str, Any]) -> tuple[int, int] | None:
    """Return (free, total) bytes of a device from a worker's answer, or None if they make no sense."""
    free, total = fields.get("memory_free"), fields.get("memory_total")
    if type(free) is not int or type(total) is not int or not 0 <= free <= total:
        return None
    return free, total


def checked_facts(given: object) -> DeviceFacts:
    """Return what a worker says of its device, checked: a worker may say anything.

    Raises
    ------
    AtomrError
        If something is missing or makes no sense.
    """
    facts: dict[str, Any] = given if isinstance(given, dict) else {}
    capability = facts.get("compute_capability")
    if isinstance(capability, list | tuple) and len(capability) == 2 and all(type(n) is int for n in capability):
        capability = (capability[0], capability[1])
    elif capability is not None:
        raise AtomrError(f"the worker says that its device has compute capability {capability!r:.100}")
    found: dict[str, Any] = {"compute_capability": capability}
    expected: dict[str, tuple[type, ...]] = {
        "name": (str,),
        "uuid": (str, type(None)),
        "multiprocessors": (int, type(None)),
        "driver_version": (int, type(None)),
        "total_memory": (int,),
    }
    for key, kinds in expected.items():
        value = facts.get(key)
        if type(value) not in kinds or (type(value) is int and value < 0):
            raise AtomrError(f"the worker says that {key!r} of its device is {value!r:.100}")
        found[key] = value[:300] if isinstance(value, str) else value
    return cast("DeviceFacts", found)
