"""The results of `Device.stats` and `System.stats`: plain dictionaries with known keys, for JSON.

Memory is in bytes.  Counters that a worker keeps restart from zero with each generation of the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, cast

from .._lib.guard import shielded
from .._lib.sender import CLOSED, LOST, OPEN
from .._support.public import public
from ..errors import AtomrError

if TYPE_CHECKING:
    from .._lib.sender import Core
    from .link import Links
    from .owner import ServedDevice

__all__ = [
    "UNKNOWN",
    "ActorStats",
    "DeviceFacts",
    "DeviceStateName",
    "DeviceStats",
    "MemoryStats",
    "PoolStats",
    "RecordStats",
    "SystemStats",
    "checked_facts",
    "checked_handles",
    "checked_memory",
    "checked_records",
    "device_stats",
    "state_name",
    "worker_stats",
]


#: The state of a device in words.
DeviceStateName: TypeAlias = Literal["open", "restarting", "lost", "closed"]

#: Bounds of a worker's report of native handles: libraries, and characters of a library's name.
_MOST_LIBRARIES, _LONGEST_NAME = 64, 64
_LARGEST = 1 << 63  # above every number that a worker reports
_MOST_CAPABLE = 1000  # above every number of a compute capability


@public
class DeviceFacts(TypedDict):
    """Facts about a device, constant while its System lives.

    Attributes
    ----------
    name : str
        The driver's name of the GPU; for ``host`` the name of the CPU.
    uuid : str or None
        ``"GPU-..."`` or ``"MIG-..."``, as in nvidia-smi; None for ``host``.
    compute_capability : tuple of (int, int), or None
        For example (9, 0); None for ``host``.
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


#: The facts before the first worker has answered.
UNKNOWN: DeviceFacts = {
    "name": "unknown",
    "uuid": None,
    "compute_capability": None,
    "multiprocessors": None,
    "driver_version": None,
    "total_memory": 0,
}


class PoolStats(TypedDict):
    """One pool of memory: ``total`` is ``in_use`` + ``free`` + ``deferred``.

    Attributes
    ----------
    total : int
        Bytes of all its segments.
    in_use : int
        Allocated bytes, each allocation rounded up to 256; includes freed memory that is still lent.
    free : int
        Bytes that are free for allocations, in one or more blocks.
    largest : int
        The largest free block.
    deferred : int
        Freed bytes that wait for the messages that use them.  Only in the staging pool: elsewhere a freed range is
        reused at once, and its next user is ordered after them.
    segments, blocks : int
        Numbers of segments, and of allocations.
    waited, ahead : int
        Segments made while an allocation waited, and segments made ahead of need.
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


@public
class MemoryStats(TypedDict):
    """The memory of a device.

    Attributes
    ----------
    limit : int
        Maximum bytes of volatile and durable segments in total; see ``System(memory_limit=)``.
    reserved : int
        Bytes of these segments.
    in_use, free, deferred : int
        Parts of it, as in `PoolStats`.
    workspaces : int
        Scratch memory of plans, which is part of the volatile pool's ``in_use``; see ``System(workspace_limit=)``.
    device_free, device_total : int or None
        Free and total memory of the device, for all programs, from its driver (for ``host``: the system); None while no
        worker answers, as during a restart.
    pools : dict of str to PoolStats
        ``"volatile"``, ``"durable"``, and ``"staging"``: host memory that the device can access.
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


class RecordStats(TypedDict):
    """Launch records; see ``System(launch_records=)``.

    Attributes
    ----------
    kept, nodes : int
        Records that are kept, and the kernels and fills in them.
    captures : int
        Records that have been made.
    refused : int
        Launches that could not be recorded, or not be repeated.
    replays : int
        Messages that were launched from a record.
    """

    kept: int
    nodes: int
    captures: int
    refused: int
    replays: int


class ActorStats(TypedDict):
    """One mailbox.

    Attributes
    ----------
    sent, completed : int
        Messages sent, and messages resolved, successfully or not.
    queued : int
        The difference: ``sent - completed``.
    claimed : int
        The last message that the worker has begun.
    cells_in_use : int
        Cells of the mailbox that hold messages; see ``System(mailbox_size=)``.
    messages, failed : int
        Messages that this generation's worker has taken, and the failed ones among them.
    busy_ns : int
        Nanoseconds that its lane has worked on them; on a GPU, the time of launching them.
    parks : int
        Number of times its lane went to sleep.
    started_ns : int
        Start of the last message (CLOCK_MONOTONIC).
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


@public
class DeviceStats(TypedDict):
    """One device.

    Attributes
    ----------
    name : str
        ``"host"``, ``"host:1"``, ``"cuda:0"``, ...
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
    native_handles : dict of str to int
        Handles of native libraries that its worker holds, by library: of ``cublas`` one for each lane that has used
        it, of ``cublaslt`` one.  Empty while no worker answers.
    records : RecordStats
        Launch records (``System(launch_records=)``): ``"kept"``, the kernels and fills in them (``"nodes"``),
        ``"captures"``, ``"refused"``, and messages launched from one (``"replays"``).  Zeros for ``host``, and while no
        worker answers.
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
    native_handles: dict[str, int]
    records: RecordStats
    actors: dict[str, ActorStats]


@public
class SystemStats(TypedDict):
    """A System.

    Attributes
    ----------
    devices : dict of str to DeviceStats
        The used devices, by name.
    actors : dict of str to dict
        Actors written in Python, by path: state, counts of messages, failures and restarts, mailbox depth.
    dead_letters : int
        Number of failed messages without a holder of their reply.
    """

    devices: dict[str, DeviceStats]
    actors: dict[str, dict[str, Any]]
    dead_letters: int


def state_name(core: Core) -> DeviceStateName:
    """Return the state of a device in words."""
    state = core.state
    return "open" if state == OPEN else "lost" if state == LOST else "closed" if state == CLOSED else "restarting"


def device_stats(owner: ServedDevice, timeout: float) -> DeviceStats:
    """Collect the statistics of a device; waits for its worker up to `timeout` seconds."""
    core = owner.core
    answer = worker_stats(owner.links, timeout)
    free, total = checked_memory(answer) or (None, None)
    workspaces = owner.workspaces.sizes()
    return {
        "name": owner.name,
        "state": state_name(core),
        "generation": owner.generation,
        "restarts": owner.supervisor.count,
        "worker_pid": owner.supervisor.pid,
        "hardware": owner.facts,
        "memory": _memory(owner, free, total),
        "native_handles": checked_handles(answer),
        "records": checked_records(answer),
        "actors": {
            name: _actor(core.lane_stats(lane), workspaces.get(lane, 0)) for lane, name in list(core.lane_names.items())
        },
    }


def _memory(owner: ServedDevice, free: int | None, total: int | None) -> MemoryStats:
    memory = owner.memory
    pools = memory.segments.pool_stats()
    limited = [pools["volatile"], pools["durable"]]
    return {
        "limit": memory.limit,
        # From the pools: a segment that is being added is in neither figure, or in both.
        "reserved": sum(pool["total"] for pool in limited),
        "in_use": sum(pool["in_use"] for pool in limited),
        "free": sum(pool["free"] for pool in limited),
        "deferred": sum(pool["deferred"] for pool in limited),
        "workspaces": sum(owner.workspaces.sizes().values()),
        "device_free": free,
        "device_total": total,
        "pools": pools,
    }


def _actor(stats: dict[str, int], workspace: int) -> ActorStats:
    return cast("ActorStats", {**stats, "queued": stats["sent"] - stats["completed"], "workspace": workspace})


def worker_stats(links: Links, timeout: float) -> dict[str, Any]:
    """Return what the worker reports of itself, unchecked; nothing if it does not within `timeout` seconds."""
    try:
        return _ask_stats(links, timeout)
    except AtomrError:  # it has died, or is slow, or this thread must not wait for it
        return {}


@shielded
def _ask_stats(links: Links, timeout: float) -> dict[str, Any]:
    answer = links.serving().worker.client.request("stats", timeout=timeout)
    answer.close()
    return answer.fields


def checked_memory(fields: dict[str, Any]) -> tuple[int, int] | None:
    """Return (free, total) bytes of a device from a worker's answer, or None if they are invalid."""
    free, total = fields.get("memory_free"), fields.get("memory_total")
    if type(free) is not int or type(total) is not int or not 0 <= free <= total < _LARGEST:
        return None
    return free, total


def checked_handles(fields: dict[str, Any]) -> dict[str, int]:
    """Return the numbers of native handles from a worker's answer, or none if they make no sense."""
    given = fields.get("native_handles")
    if not isinstance(given, dict) or len(given) > _MOST_LIBRARIES:
        return {}
    if any(type(n) is not int or not 0 <= n < _LARGEST or len(name) > _LONGEST_NAME for name, n in given.items()):
        return {}
    return given


def checked_records(fields: dict[str, Any]) -> RecordStats:
    """Return the counts of launch records from a worker's answer, or zeros where they make no sense."""
    given = fields.get("records")
    found = given if isinstance(given, dict) else {}
    counts = {name: found.get(name) for name in RecordStats.__annotations__}
    if any(type(n) is not int or not 0 <= n < _LARGEST for n in counts.values()):
        counts = dict.fromkeys(counts, 0)
    return cast("RecordStats", counts)


def checked_facts(given: object) -> DeviceFacts:
    """Return the facts that a worker reports, checked, since a worker is untrusted.

    Raises
    ------
    AtomrError
        If a fact is missing or invalid.
    """
    facts: dict[str, Any] = given if isinstance(given, dict) else {}
    capability = facts.get("compute_capability")
    if (
        isinstance(capability, list | tuple)
        and len(capability) == 2
        and all(type(n) is int and 0 <= n < _MOST_CAPABLE for n in capability)
    ):
        capability = (capability[0], capability[1])
    elif capability is not None:
        raise AtomrError(f"the worker reports compute capability {capability!r:.100}")
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
        if type(value) not in kinds or (type(value) is int and not 0 <= value < _LARGEST):
            raise AtomrError(f"the worker reports {key!r} {value!r:.100}")
        found[key] = value[:300] if isinstance(value, str) else value
    return cast("DeviceFacts", found)
