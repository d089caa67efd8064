"""The communicators of a System: their numbers, and how workers learn of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from .._lib.guard import Lock, Persisting, shielded
from .._lib.seats import MAX_MEETINGS, MAX_RANKS, Page
from ..arrays.owner import owner_of
from ..errors import ActorStopped, InvalidRequest
from .communicator import Communicator

if TYPE_CHECKING:
    from ..device import Device

__all__ = ["Communicators"]

_LANE: Final = "collective"
#: What surviving workers do when a rank has died.
ON_DEATH: Final = ("abort", "restart")


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
    def make(self, devices: Sequence[Device], on_death: str = "abort", copy_engines: bool = False) -> Communicator:
        """Make a communicator; waits until all workers know it, and GPUs are connected.

        Raises
        ------
        InvalidRequest
            For no device, or one that is given twice.
        Unsupported
            For GPUs without NCCL.
        """
        _check(devices, on_death, copy_engines)
        made = self._make(devices, on_death, bool(copy_engines))
        if devices[0].kind != "host":
            try:
                made.connect()
            except BaseException:
                with Persisting():
                    made.close()
                raise
        return made

    def _make(self, devices: Sequence[Device], on_death: str, copy_engines: bool) -> Communicator:
        page = Page([device.name for device in devices], restarts=on_death == "restart", engines=copy_engines)
        number = self.seat(page, dict(enumerate(devices)))
        return Communicator(self, number, tuple(devices), page, on_death, copy_engines)

    @shielded
    def seat(self, page: Page, ranks: Mapping[int, Device]) -> int:
        """Make devices ranks of a page, of whose ranks others may be in other programs; return its number.  Internal.

        Raises
        ------
        InvalidRequest
            If too many communicators are open.
        """
        with self._lock:
            if not self._free:
                raise InvalidRequest(f"{MAX_MEETINGS} communicators of this System are open; close one")
            owners = {rank: owner_of(device) for rank, device in ranks.items()}
            uuids = tuple(owners[rank].exports.uuid if rank in owners else "" for rank in range(max(owners) + 1))
            number = self._free.pop()
            try:
                for rank, owner in owners.items():
                    owner.meetings.join(number, page, rank, uuids)
                for owner in owners.values():
                    self._lane(owner)
                    owner.links.tell("meeting", number)
            except BaseException:
                for owner in owners.values():
                    owner.links.close_meeting(number)
                self._free.append(number)
                raise
            return number

    def pair(self, first: Device, second: Device) -> Communicator:
        """Return the communicator of two devices, of any kinds, made on first use; GPUs are not connected."""
        key = (first, second) if first.number < second.number else (second, first)
        found = self._pairs.get(key)
        return self._make_pair(key) if found is None else found

    @shielded
    def _make_pair(self, key: tuple[Device, Device]) -> Communicator:
        with self._pair_lock:
            found = self._pairs.get(key)
            if found is None:
                found = self._pairs[key] = self._make(key, ON_DEATH[0], copy_engines=False)
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


def _check(devices: Sequence[Device], on_death: str, copy_engines: object) -> None:
    if on_death not in ON_DEATH:
        raise InvalidRequest(f"on_death={on_death!r}; allowed: {', '.join(map(repr, ON_DEATH))}")
    if not isinstance(copy_engines, bool):
        raise InvalidRequest(f"copy_engines={copy_engines!r}; allowed: True, False")
    names = ", ".join(device.name for device in devices)
    if not 1 <= len(devices) <= MAX_RANKS:
        raise InvalidRequest(f"{len(devices)} devices; allowed: 1 to {MAX_RANKS}")
    if len({device.name for device in devices}) != len(devices):
        raise InvalidRequest(f"devices {names}: one is given twice; allowed: each device once")
    for device in devices:
        if device.kind != devices[0].kind:
            raise InvalidRequest(f"devices {names}: two kinds; allowed: host devices only, or GPUs only")
        if device.generation and owner_of(device).closed:
            raise ActorStopped(f"{device.name} is closed")
