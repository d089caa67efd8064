"""Recovery of durable groups by a new worker: one walk over the memory of any kind of device.

A group has a header of eight int64 words: sequence begun, sequence done, tag begun, tag done, checksum of the shadow.
A commit writes "begun", copies the members into the shadow, then writes tag, checksum and "done".  If a worker dies in
between, the members are still what was to be committed, since every later writer waits for the commit: so a new
worker commits them again.  Otherwise the shadow holds the last commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

import numpy as np

__all__ = ["BEGUN", "CHECKSUM", "DONE", "TAG", "TAG_BEGUN", "WORDS", "DeviceMemory", "recover"]

#: Words of the header.
BEGUN, DONE, TAG_BEGUN, TAG, CHECKSUM = range(5)
WORDS: Final = 8

_Place = tuple[int, int]


class DeviceMemory(Protocol):
    """The memory of a device by (segment, offset); each call has finished, or raised, when it returns."""

    def read(self, place: _Place, nbytes: int) -> bytes:
        """Return bytes of device memory."""

    def write(self, place: _Place, data: bytes) -> None:
        """Set bytes of device memory."""

    def copy(self, source: _Place, target: _Place, nbytes: int) -> None:
        """Copy within device memory."""

    def checksum(self, total: int, place: _Place, nbytes: int, offset: int, /) -> int:
        """Return the checksum of what is in `total` and of these bytes, which belong at `offset` of the shadow.

        It is this kind of device's own, as its commits write it: an int64, 0 for nothing.
        """


class _Group:
    """A group as the parent's `DurableGroup.describe` describes it."""

    def __init__(self, memory: DeviceMemory, described: dict[str, Any]) -> None:
        self._memory = memory
        self._header: _Place = (described["header"][0], described["header"][1])
        self._shadow: _Place = (described["shadow"][0], described["shadow"][1])
        self._members = [tuple(member) for member in described["members"]]
        data = memory.read(self._header, 8 * WORDS)
        self.header = [int(word) for word in np.frombuffer(data, np.int64)]

    def _pairs(self) -> Iterator[tuple[_Place, _Place, int, int]]:
        """Yield (member, its place in the shadow, bytes, offset in the shadow)."""
        for segment, offset, nbytes, at in self._members:
            yield (segment, offset), (self._shadow[0], self._shadow[1] + at), nbytes, at

    def note(self, word: int, value: int) -> None:
        """Write one word of the header."""
        self.header[word] = value
        self._memory.write((self._header[0], self._header[1] + 8 * word), np.int64(value).tobytes())

    def save(self) -> None:
        """Copy the members into the shadow."""
        for member, kept, nbytes, _ in self._pairs():
            self._memory.copy(member, kept, nbytes)

    def load(self) -> None:
        """Copy the shadow into the members."""
        for member, kept, nbytes, _ in self._pairs():
            self._memory.copy(kept, member, nbytes)

    def sum(self, *, of_shadow: bool) -> int:
        """Return the checksum, as the header has it, of the shadow or of the members."""
        total = 0
        for member, kept, nbytes, at in self._pairs():
            total = self._memory.checksum(total, kept if of_shadow else member, nbytes, at)
        return total

    def examine(self, *, dirty: bool) -> tuple[bool, bool]:
        """Compare checksums; (the last commit is lost, the members are not as they should be).

        A shadow that is damaged is made good from members that are as committed.
        """
        expected = self.header[CHECKSUM]
        whole = self.sum(of_shadow=True) == expected
        if whole and dirty:
            return False, False  # whatever they hold, they go back
        unchanged = self.sum(of_shadow=False) == expected
        if unchanged and not whole:
            self.save()
        return not (whole or unchanged), not unchanged


def recover(memory: DeviceMemory, groups: list[Any]) -> list[Any]:
    """Bring every group to its last commit before the lanes of a new worker run.

    Waits for the device.  A group with a checksum is examined as a whole.

    Parameters
    ----------
    memory
        The memory of the device, with all segments mapped.
    groups
        Descriptions as the parent's `DurableGroup.describe` makes them.

    Returns
    -------
    list of dict
        For each group: `sequence` and `tag` of the commit it holds; by its checksum, if it has one, `damaged` if that
        commit is lost, and `strayed` if the members are not what it holds, although nothing was sent that writes them.
    """
    results = []
    for described in groups:
        group = _Group(memory, described)
        checked, dirty, damaged, strayed = bool(described["checksum"]), bool(described["dirty"]), False, False
        if group.header[BEGUN] != group.header[DONE]:
            group.save()
            group.note(CHECKSUM, group.sum(of_shadow=True) if checked else 0)
            group.note(TAG, group.header[TAG_BEGUN])
            group.note(DONE, group.header[BEGUN])
        elif group.header[DONE]:
            if checked:
                damaged, strayed = group.examine(dirty=dirty)
            if dirty and not damaged:
                group.load()
        results.append({
            "sequence": group.header[DONE], "tag": group.header[TAG], "damaged": damaged,
            "strayed": strayed and not dirty,
        })  # fmt: skip
    return results
