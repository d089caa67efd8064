"""What a worker needs of the ``host`` device; everything that takes time to import is imported when used."""

from __future__ import annotations

import importlib
from typing import Any

from .._host_memory import host_memory, processor_name
from ..errors import InvalidRequest
from . import faults
from .contracts import Built, LanesLike

__all__ = ["HostBuilders", "native_lanes"]


class HostBuilders:
    """The builders of the host; see `atomr_native.worker.contracts.Builders`."""

    @property
    def facts(self) -> dict[str, Any]:
        """Name of the processor, and bytes of memory."""
        return {"name": processor_name(), "total_memory": host_memory()[1]}

    def memory(self) -> tuple[int, int]:
        """Return (free, total) bytes, as the system counts them."""
        return host_memory()

    def build(self, spec: dict[str, Any]) -> Built:
        """Build a plan."""
        built: Built = importlib.import_module("atomr_native.worker.host").build(spec)
        return built

    def self_test(self) -> None:
        """Compute a known answer."""
        faults.known_answer()

    def crash(self, how: str) -> None:
        """Refuse: the host has no device that could fault by itself."""
        raise InvalidRequest(f"the host does not know the fault {how!r}")

    def assign(self, _lane: int, /) -> faults.Assign:
        """Return what fills an array."""
        return faults.assign

    def recover(self, lanes: Any, groups: list[Any]) -> list[Any]:
        """Bring durable groups to their last commit."""
        recovered: list[Any] = importlib.import_module("atomr_native.worker.host.groups").recover(lanes, groups)
        return recovered


def native_lanes(p_fd: int, p_bytes: int, *, parent_pidfd: int, spin_us: int, fault_fd: int) -> LanesLike:
    """Make the lanes of the host: a `LanesFactory`."""
    lanes: LanesLike = importlib.import_module("atomr_native._lib.lanes").Lanes(
        p_fd, p_bytes, parent_pidfd=parent_pidfd, spin_us=spin_us, fault_fd=fault_fd
    )
    return lanes
