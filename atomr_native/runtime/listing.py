"""The devices that a System can use."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .._support.host_memory import host_memory
from .._support.public import public
from .addresses import Address
from .statistics import DeviceStateName, state_name

__all__ = ["DeviceListing", "gpu_count", "has_gpu", "list_devices", "machine_gpus"]


@public
@dataclass(frozen=True, slots=True)
class DeviceListing:
    """One entry of `System.devices`.

    Attributes
    ----------
    name : str
        The name for `System.device`.
    kind : {"host", "cuda"}
    index : int
        Its number among the devices of its kind.
    state : {"not started", "open", "restarting", "lost", "closed"}
    memory_total : int or None
        Bytes of the device's memory; None for a GPU that is not started.
    memory_limit : int or None
        Bytes that its arrays may take; None for a device that is not started.
    memory_free : int or None
        Bytes of `memory_limit` that no array takes; for a host device that is not started, the free memory of the host.
    """

    name: str
    kind: Literal["host", "cuda"]
    index: int
    state: DeviceStateName | Literal["not started"]
    memory_total: int | None
    memory_limit: int | None
    memory_free: int | None


def has_gpu() -> bool:
    """Whether the kernel driver lists a GPU; the check loads no CUDA library into this process."""
    return any(Path("/proc/driver/nvidia/gpus").glob("*")) or Path("/dev/nvidia0").exists()


def machine_gpus(root: Path = Path("/")) -> int:
    """Return the number of GPUs that the kernel driver lists."""
    found = len(list((root / "proc/driver/nvidia/gpus").glob("*")))
    return found or sum(bool(re.fullmatch(r"nvidia\d+", path.name)) for path in (root / "dev").glob("nvidia*"))


def gpu_count(root: Path = Path("/")) -> int:
    """Return the number of GPUs that the kernel driver lists and the environment leaves visible."""
    found = machine_gpus(root)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return found
    chosen = 0
    for entry in (part.strip() for part in visible.split(",")):
        if not entry or (entry.lstrip("-").isdigit() and not 0 <= int(entry) < found):
            break  # the driver ignores this entry and all after it
        chosen += 1
    return min(found, chosen)


def list_devices(states: Iterable[Any]) -> list[DeviceListing]:
    """Return the devices that can be used, given the internal states of those in use."""
    found: dict[Address, DeviceListing] = {}
    free, total = host_memory()
    for address in (Address("host", 0), *(Address("cuda", i) for i in range(gpu_count()))):
        host = address.kind == "host"
        found[address] = DeviceListing(
            address.name,
            address.kind,
            address.number,
            "not started",
            total if host else None,
            None,
            free if host else None,
        )
    for owner in states:
        pools = owner.memory.segments.pool_stats()
        used = pools["volatile"]["in_use"] + pools["durable"]["in_use"]
        limit = owner.memory.limit
        found[owner.address] = DeviceListing(
            owner.name,
            owner.address.kind,
            owner.address.number,
            state_name(owner.core),
            owner.facts["total_memory"],
            limit,
            limit - used,
        )
    return [found[address] for address in sorted(found, key=lambda a: (a.kind != "host", a.number))]
