"""Growth of a device's memory: the size of the next segment, and the thread that adds it ahead of need.

A segment takes milliseconds to make.  So a pool asks for one before it is empty (`atomr_sender_arm_pool` sets the
mark), and this thread adds it; an allocation waits only if it comes first.  A pool that uses no more than when it last
asked does not ask again, so a program with constant use keeps its segments.  An array larger than half a segment would
seldom fit into a segment made ahead: it waits once, and gets a segment of its own size.

Free memory stays with its pool until `Device.trim`, or until an allocation fails.  If it were returned automatically
after a while, a program with varying use would wait for new segments each time.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from .._lib.guard import own_thread
from .._lib.sender import DURABLE, STAGING, VOLATILE
from .._support.error_text import error_text
from ..errors import AtomrError, OutOfMemory

if TYPE_CHECKING:
    from .owner import MemoryOwner
    from .segments import MemorySegments

__all__ = ["ROUND", "SEGMENT", "Growth"]

_log = logging.getLogger("atomr_native")

#: Minimum bytes of a segment, unless the limit or the device leaves less.
SEGMENT = 64 << 20
#: Granularity of device memory; sizes of segments are multiples of it.
ROUND = 2 << 20
_LARGEST = 1 << 30
#: Pools, each with the minimum bytes of its segments.
_LEAST = {VOLATILE: SEGMENT, DURABLE: SEGMENT, STAGING: SEGMENT}


class Growth:
    """Adds segments to the pools of a device that run low.

    Parameters
    ----------
    segments : MemorySegments
        The segments, to which it adds.
    owner : MemoryOwner
        The device.
    """

    def __init__(self, segments: MemorySegments, owner: MemoryOwner) -> None:
        self._segments = segments
        self._name = owner.name
        self._core = owner.core
        self._thread = threading.Thread(target=self._run, name=f"atomr_native-{owner.name}-growth", daemon=True)
        #: Segments that an allocation waited for, and segments made ahead of need, by pool.
        self.waited = dict.fromkeys(_LEAST, 0)
        self.ahead = dict.fromkeys(_LEAST, 0)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread after its current work; wait up to `timeout` seconds.  Idempotent."""
        self._core.stop_low()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def next_size(self, pool: int) -> int:
        """Return the bytes of a pool's next segment: an eighth of the pool, at least 64 MiB.

        So there are few segments for a restart to map, and little memory is unused: at most a ninth, an eighth of the
        limit, or 1 GiB.
        """
        most = _LARGEST if pool == STAGING else min(_LARGEST, self._segments.limit // 8)
        size = min(self._core.pool_stats(pool)["total"] // 8, most)
        return max(size // ROUND * ROUND, _LEAST[pool])

    def arm(self) -> None:
        """Allow every pool to ask again, and cancel open requests; the caller holds the lock of growth."""
        for pool, least in _LEAST.items():
            size = self.next_size(pool)
            mark = max(self._core.pool_stats(pool)["total"] // 32, least // 8)
            self._core.arm_pool(pool, min(mark, _LARGEST // 8), size // 2)

    def _run(self) -> None:
        own_thread()
        while self._core.wait_low():
            for pool in _LEAST:
                with self._segments.lock:
                    if self._core.asks_for_growth(pool):  # otherwise trim, or an allocation, was first
                        self._grow(pool)

    def _grow(self, pool: int) -> None:
        size = self.next_size(pool)
        if pool != STAGING:
            # Not all remaining memory: another pool may need it, and this pool does not need it yet.
            size = min(size, (self._segments.limit - self._segments.reserved()) // 2 // ROUND * ROUND)
        self._core.arm_pool(pool, 0, 0)  # until something changes
        if size <= 0:
            return
        try:
            self._segments.add(pool, size)
            self.ahead[pool] += 1
        except OutOfMemory as error:  # an allocation that needs it will also reclaim memory
            _log.debug("%s does not grow ahead of need: %s", self._name, error)
        except AtomrError as error:  # the worker has died, or the device is closing
            self.arm()
            _log.debug("%s did not grow: %s", self._name, error)
        except Exception as error:  # this thread must serve the next request, too
            # As text: a stored log record must not keep frames, and with them the device.
            _log.error("%s does not grow ahead of need: %s", self._name, error_text(error))
