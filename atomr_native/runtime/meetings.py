"""The communicators that a device is a rank of, for its links and its supervisor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .._lib.guard import Lock, shielded
from .._lib.seats import Page

__all__ = ["Meetings", "Place"]

_ALWAYS: Final = (1 << 64) - 1  # a sequence number after all others


@dataclass(frozen=True, slots=True)
class Place:
    """A rank of a communicator, and the UUIDs of all ranks' GPUs."""

    page: Page
    rank: int
    uuids: tuple[str, ...] = ()


class Meetings:
    """The communicators of one device.

    The page of each says which messages this device takes no part in: those that ran when its worker died, and, once
    the device has ended, all.  The other ranks then stop waiting for it.
    """

    def __init__(self) -> None:
        self._lock = Lock(leaf=True)
        self._places: dict[int, Place] = {}
        self._ended: tuple[int, int] | None = None  # code and fault of the device's end

    @shielded
    def join(self, number: int, page: Page, rank: int, uuids: tuple[str, ...] = ()) -> None:
        """Become a rank of a communicator."""
        with self._lock:
            self._places[number] = Place(page, rank, uuids)
            ended = self._ended
        if ended is not None:
            page.lose(rank, _ALWAYS, *ended)

    @shielded
    def leave(self, number: int) -> None:
        """Be no rank of it any more.  Idempotent."""
        with self._lock:
            self._places.pop(number, None)

    def numbers(self) -> list[int]:
        """Return the numbers of all communicators."""
        return list(self._places)

    def find(self, number: int) -> Place | None:
        """Return the rank in a communicator; None if it was closed."""
        return self._places.get(number)

    def lost(self, keys: list[tuple[int, int]], code: int, fault: int) -> None:
        """Note the death of the worker, and the messages, by communicator and sequence number, that it has ended."""
        for number, sequence in keys:
            place = self._places.get(number)
            if place is not None:
                place.page.lose(place.rank, sequence, code, fault)
        self.bury(code, fault)

    def bury(self, code: int, fault: int) -> None:
        """Note that the worker is gone.  Connections of other ranks to it are broken."""
        for place in list(self._places.values()):
            place.page.bury(place.rank, code, fault)

    def end(self, code: int, fault: int) -> None:
        """Note that the device takes part in no message any more."""
        self._ended = (code, fault)
        for place in list(self._places.values()):
            place.page.lose(place.rank, _ALWAYS, code, fault)
