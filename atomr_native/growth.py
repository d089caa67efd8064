"""Growth of a device's memory: how large the next segment is, and the thread that adds it ahead of need.

A segment takes milliseconds to make, so a pool asks for one before it is empty (`atomr_sender_arm_pool` says when),
and this thread adds it; an allocation waits only if it comes first.  A pool that does not use more than when it last
asked does not ask again, so a program that does not grow keeps what it has.  An array that takes more than half of a
segment would seldom find one that was made ahead: it waits, once, and gets a segment of its own size.

What is free stays with its pool until `Device.trim`, or until an allocation finds no more: given back by itself, after
a while, it would have to be made anew by a program whose need comes and goes, which would wait each time.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from ._lib.sender import DURABLE, STAGING, VOLATILE, Core
from .errors import AtomrError, OutOfMemory

if TYPE_CHECKING:
    from .memory import DeviceMemory

__all__ = ["ROUND", "SEGMENT", "Growth"]

_log = logging.getLogger("atomr_native")

#: Bytes of a segment, at least, unless the limit or the device leaves less.
SEGMENT = 64 << 20
#: What sizes of segments are multiples of: the granularity of device memory.
ROUND = 2 << 20
_LARGEST = 1 << 30
_POOLS = (VOLATILE, DURABLE, STAGING)


class Growth:
    """Adds segments to the pools of a device that run low.

    Parameters
    ----------
    memory : DeviceMemory
        Whose segments.
    """

    def __init__(self, memory: DeviceMemory) -> None:
        self._memory = memory
        self._core: Core = memory._core
        self._thread = threading.Thread(target=self._run, name=f"atomr_native-{memory.device.name}-growth", daemon=True)
        #: Segments that an allocation waited for, and those that were there before, by pool.
        self.waited = dict.fromkeys(_POOLS, 0)
        self.ahead = dict.fromkeys(_POOLS, 0)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread, after what it is at; waits up to `timeout` seconds.  Idempotent."""
        self._core.stop_low()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def next_size(self, pool: int) -> int:
        """Return the bytes of a pool's next segment: an eighth of what it has, from 64 MiB on.

        So there are few segments, which a restart maps again, and little is unused: a ninth, an eighth of the limit, or
        1 GiB at most.
        """
        most = _LARGEST if pool == STAGING else min(_LARGEST, self._memory.limit // 8)
        size = min(self._core.pool_stats(pool)["total"] // 8, most)
        return max(size // ROUND * ROUND, SEGMENT)

    def arm(self) -> None:
        """Let every pool ask again, and cancel what was asked; the caller holds the lock of growth."""
        for pool in _POOLS:
            size = self.next_size(pool)
            mark = max(self._core.pool_stats(pool)["total"] // 32, SEGMENT // 8)
            self._core.arm_pool(pool, min(mark, _LARGEST // 8), size // 2)

    def _run(self) -> None:
        while self._core.wait_low():
            for pool in _POOLS:
                with self._memory._grow_lock:
                    if self._core.asks_for_growth(pool):  # else trim, or an allocation, was first
                        self._grow(pool)

    def _grow(self, pool: int) -> None:
        size = self.next_size(pool)
        if pool != STAGING:
            # Not all that is left: another pool may need it, and this one does not yet.
            size = min(size, (self._memory.limit - self._memory._reserved()) // 2 // ROUND * ROUND)
        self._core.arm_pool(pool, 0, 0)  # until something changes
        if size <= 0:
            return
        try:
            self._memory._make(pool, size)
            self.ahead[pool] += 1
        except OutOfMemory as error:  # who needs it will try harder
            _log.debug("%s does not grow ahead of need: %s", self._memory.device.name, error)
        except AtomrError as error:  # the worker is gone, or the device closes
            self.arm()
            _log.debug("%s did not grow: %s", self._memory.device.name, error)
