"""Arrays of a node that other processes name, and who holds them."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from typing import TYPE_CHECKING

from ..errors import GpuRefStale

if TYPE_CHECKING:
    from ..arrays.gpu_ref import GpuRef

__all__ = ["Exports"]

_TRANSIT = ""  # the holder of an array whose handle is on its way


class _Transit:
    """Holds an array while a message with its handle is on its way."""

    __slots__ = ("_exports", "_ident")

    def __init__(self, exports: Exports, ident: int) -> None:
        self._exports, self._ident = exports, ident

    def __del__(self) -> None:
        self._exports.release(self._ident, _TRANSIT)


class Exports:
    """Handles by number, each with the processes that hold it; an array without a holder is dropped."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: finalizers release
        self._numbers = itertools.count(1)
        self._arrays: dict[int, tuple[GpuRef, Counter[str]]] = {}

    def __len__(self) -> int:
        return len(self._arrays)

    def add(self, ref: GpuRef, holder: str) -> int:
        """Add an array with its first holder; return its number."""
        with self._lock:
            ident = next(self._numbers)
            self._arrays[ident] = (ref, Counter({holder: 1}))
            return ident

    def export(self, ref: GpuRef) -> tuple[int, object]:
        """Add an array; return its number, and the object that holds it until it is dropped."""
        ident = self.add(ref, _TRANSIT)
        return ident, _Transit(self, ident)

    def find(self, ident: int) -> GpuRef:
        """Return an array.

        Raises
        ------
        GpuRefStale
            If nobody holds it any more.
        """
        found = self._arrays.get(ident)
        if found is None:
            raise GpuRefStale("the array was freed: no process held it any more", "freed")
        return found[0]

    def lease(self, ident: int, holder: str) -> None:
        """Add a hold.  Raises as `find`."""
        with self._lock:
            self.find(ident)
            self._arrays[ident][1][holder] += 1

    def release(self, ident: int, holder: str) -> None:
        """Take one hold back."""
        with self._lock:
            found = self._arrays.get(ident)
            if found is None:
                return
            found[1][holder] -= 1
            if found[1][holder] <= 0:
                del found[1][holder]
            if not found[1]:
                del self._arrays[ident]

    def drop(self, holder: str) -> None:
        """Take back all holds of a process that has ended."""
        with self._lock:
            for ident, (_, holders) in list(self._arrays.items()):
                if holders.pop(holder, None) is not None and not holders:
                    del self._arrays[ident]

    def forget(self, ident: int) -> None:
        """Drop an array for all holders."""
        with self._lock:
            self._arrays.pop(ident, None)
