"""The interface of a device that supervisor, links and statistics use; see `atomr_native.arrays.owner`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ..plans.owner import PlanMemory, PlanOwner
from .config import SystemConfig
from .meetings import Meetings
from .wakers import Wakers
from .watchers import LifeWatch

if TYPE_CHECKING:
    from ..plans.failures import MessageErrors
    from .link import Links
    from .statistics import DeviceFacts, PoolStats
    from .supervisor import Supervisor

__all__ = ["Segment", "ServedDevice", "ServedGroups", "ServedImports", "ServedMemory", "ServedSegments"]


class Segment(Protocol):
    """A segment of memory, for a worker to map."""

    @property
    def fd(self) -> int:
        """Descriptor in this process."""

    @property
    def nbytes(self) -> int:
        """Size."""

    @property
    def pool(self) -> int:
        """Number of its pool."""


class ServedSegments(Protocol):
    """The segments of the device's memory."""

    def numbers(self) -> list[int]:
        """Return the numbers of all segments."""

    def find(self, number: int) -> Segment | None:
        """Return a segment; None if it was returned to the system."""

    def pool_stats(self) -> dict[str, PoolStats]:
        """Return the figures of each pool, by name."""


class ServedMemory(PlanMemory, Protocol):
    """The device's memory."""

    @property
    def lane(self) -> int:
        """Mailbox of the memory actor."""

    @property
    def segments(self) -> ServedSegments:
        """Its segments."""


class ServedGroups(Protocol):
    """Durable groups."""

    def descriptions(self, dirty: set[int]) -> list[dict[str, Any]]:
        """Return the descriptions of all groups for a new worker."""

    def recovered(self, asked: list[dict[str, Any]], answers: object) -> None:
        """Process the findings of a new worker."""


class ServedImports(Protocol):
    """Memory of other libraries."""

    def nudge(self) -> None:
        """Make the callback thread collect imports, if there are any to collect.  Never waits."""


class ServedDevice(PlanOwner, Protocol):
    """The device that a worker serves."""

    @property
    def config(self) -> SystemConfig:
        """Options of the System."""

    @property
    def facts(self) -> DeviceFacts:
        """Facts about the device."""

    @property
    def errors(self) -> MessageErrors:
        """Maker of typed errors."""

    @property
    def links(self) -> Links:
        """Requests to the worker."""

    @property
    def supervisor(self) -> Supervisor:
        """Keeper of the worker."""

    @property
    def wakers(self) -> Wakers:
        """Notifications of resolved tickets."""

    @property
    def meetings(self) -> Meetings:
        """Its ranks in communicators."""

    @property
    def watch(self) -> LifeWatch:
        """Users' callbacks for restarts and the end."""

    @property
    def memory(self) -> ServedMemory:
        """The memory actor."""

    @property
    def groups(self) -> ServedGroups:
        """Durable groups."""

    @property
    def imports(self) -> ServedImports:
        """Memory of other libraries."""

    def know(self, fields: dict[str, Any]) -> None:
        """Record the first worker's device; `DeviceLost` if a later worker reports another one."""

    def tidy(self) -> None:
        """Do the callback thread's work after each round."""
