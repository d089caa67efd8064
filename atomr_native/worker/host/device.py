"""The ``host`` device in a worker; modules that take time to import are imported on use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from ..._support.host_memory import host_memory, processor_name
from ...builders.context import Built, HostContext
from ...errors import InvalidRequest
from ...plans.spec import PlanSpec
from .. import faults
from ..contracts import LanesLike

__all__ = ["HostBuilders"]


class HostBuilders:
    """The builders of the host; see `atomr_native.worker.contracts.Builders`."""

    def __init__(self) -> None:
        self._meetings: Mapping[int, Any] = {}
        #: Builds operations of tests, as steps of programs.
        self.special: Callable[[PlanSpec], Built | None] | None = None

    def lanes(self, p_fd: int, p_bytes: int, *, parent_pidfd: int, spin_us: int, fault_fd: int) -> LanesLike:
        """Create the lanes of the host, whose places in communicators runs use: a `LanesFactory`."""
        lanes = importlib.import_module("atomr_native._lib.lanes").Lanes(
            p_fd, p_bytes, parent_pidfd=parent_pidfd, spin_us=spin_us, fault_fd=fault_fd
        )
        self._meetings = lanes.meetings
        made: LanesLike = lanes
        return made

    @property
    def facts(self) -> dict[str, Any]:
        """Name of the CPU, and bytes of memory."""
        return {"name": processor_name(), "total_memory": host_memory()[1]}

    def memory(self) -> tuple[int, int]:
        """Return (free, total) bytes, from the system."""
        return host_memory()

    def build(self, spec: PlanSpec, plan: int, workspace: int | None = None, /) -> Built:  # noqa: ARG002 - of the protocol
        """Build a plan."""
        built: Built = importlib.import_module("atomr_native.worker.build").build(
            spec, HostContext(self._meetings, self.special)
        )
        return built

    def self_test(self) -> None:
        """Compute a known answer."""
        faults.known_answer()

    def crash(self, how: str) -> None:
        """Refuse: the host has no device that could fault."""
        raise InvalidRequest(f"the host does not know the fault {how!r}")

    def assign(self, _lane: int, /) -> faults.Assign:
        """Return a function that fills an array."""
        return faults.assign

    def recover(self, lanes: Any, groups: list[Any]) -> list[Any]:
        """Restore durable groups to their last commits."""
        recovered: list[Any] = importlib.import_module("atomr_native.libraries.memory.host.groups").recover(
            lanes, groups
        )
        return recovered
