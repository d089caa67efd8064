"""The communicators of a System: their numbers, and how workers learn of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._lib.guard import Lock, shielded
from .._lib.seats import MAX_MEETINGS, MAX_RANKS, Page
from ..arrays.owner import owner_of
from ..errors import ActorStopped, InvalidRequest, Unsupported
from .communicator import Communicator

if TYPE_CHECKING:
    from ..device import Device

__all__ = ["Communicators"]

_LANE = "collective"


class Communicators:
    """Makes communicators, one at a time.

    Devices tell their workers of them, also those that start after a death.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._pair_lock = Lock()
        self._free = list(range(MAX_MEETINGS - 1, -1, -1))
        self._lanes: dict[str, int] = {}
        self._pairs: dict[tuple[Device, Device], Communicator] = {}

    @shielded
    def make(self, devices: Sequence[Device]) -> Communicator:
        """Make a communicator; waits until all workers know it.

        Raises
        ------
        InvalidRequest
            For no device, or one that is given twice.
        Unsupported
            For a device other than a host device.
        """
        _check(devices)
        with self._lock:
            if not self._free:
                raise InvalidRequest(f"{MAX_MEETINGS} communicators of this System are open; close one")
            page = Page([device.name for device in devices])
            owners = [owner_of(device) for device in devices]
            number = self._free.pop()
            try:
                for rank, owner in enumerate(owners):
                    owner.meetings.join(number, page, rank)
                for owner in owners:
                    self._lane(owner)
                    owner.links.tell("meeting", number)
            except BaseException:
                for owner in owners:
                    owner.links.close_meeting(number)
                self._free.append(number)
                raise
            return Communicator(self, number, tuple(devices), page)

    @shielded
    def pair(self, first: Device, second: Device) -> Communicator:
        """Return the communicator of two devices, made on first use."""
        key = (first, second) if first.number < second.number else (second, first)
        with self._pair_lock:
            found = self._pairs.get(key)
            if found is None:
                found = self._pairs[key] = self.make(key)
            return found

    def lane_of(self, owner: Any) -> int:
        """Return the mailbox of a device in which all of its collectives run."""
        return self._lanes[owner.name]

    def _lane(self, owner: Any) -> None:
        if owner.name not in self._lanes:
            self._lanes[owner.name] = owner.open_lane(_LANE)

    @shielded
    def forget(self, number: int, owners: Sequence[Any], *, over: bool) -> None:
        """Close a communicator on the workers, if its messages are over; its number is then free."""
        if not over:  # a lane may still be in it
            return
        for owner in owners:
            owner.links.close_meeting(number)
        with self._lock:
            self._free.append(number)


def _check(devices: Sequence[Device]) -> None:
    names = ", ".join(device.name for device in devices)
    if not 1 <= len(devices) <= MAX_RANKS:
        raise InvalidRequest(f"{len(devices)} devices; allowed: 1 to {MAX_RANKS}")
    if len({device.name for device in devices}) != len(devices):
        raise InvalidRequest(f"devices {names}: one is given twice; allowed: each device once")
    for device in devices:
        if device.kind != "host":
            raise Unsupported(
                f"device {device.name!r} in a communicator: collectives of GPUs are not there yet; allowed: "
                f"host devices",
                rule="communicator.host_devices",
            )
        if device.generation and owner_of(device).closed:
            raise ActorStopped(f"{device.name} is closed")
