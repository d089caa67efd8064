"""Segments of a device's memory: creation, return to the system, accounting, and retries of failed allocations."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, cast

from .._lib.copies import TOUCH, HostCopy
from .._lib.guard import check, shielded
from .._lib.sender import DURABLE, STAGING, VOLATILE
from .._support.host_memory import host_memory
from ..errors import OutOfMemory
from ..protocol.messages import WorkerGone
from ..runtime.statistics import checked_memory, worker_stats
from .growth import ROUND, SEGMENT, Growth

if TYPE_CHECKING:
    from ..runtime.statistics import PoolStats
    from .owner import MemoryOwner

__all__ = ["Lent", "MemorySegments"]

_PAGE = 4096
_SHORT_SECONDS = 1.0  # how long a failed allocation waits for memory that other threads hold briefly
_POOLS = {"volatile": VOLATILE, "durable": DURABLE, "staging": STAGING}


class _Segment:
    def __init__(self, fd: int, nbytes: int, pool: int) -> None:
        self.fd, self.nbytes, self.pool = fd, nbytes, pool


class Lent:
    """Bytes of the limit that are used outside of the segments, as long as it lives."""

    __slots__ = ("__weakref__", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


class MemorySegments:
    """The segments of all pools of a device.

    Parameters
    ----------
    owner : MemoryOwner
        The device.
    limit : int
        Maximum bytes of volatile and durable segments in total.
    """

    def __init__(self, owner: MemoryOwner, limit: int) -> None:
        self._owner = owner
        self._core = owner.core
        self.limit = limit
        self.lock = threading.RLock()  # held while segments are added or returned
        self._segments: dict[int, _Segment] = {}
        self._lent: weakref.WeakSet[Lent] = weakref.WeakSet()
        self.growth = Growth(self, owner)

    @shielded
    def grow(self, pool: int, nbytes: int) -> None:
        """Add a segment with room for `nbytes`; called by an allocation without room.  Waits for the worker."""
        ways = (partial(self._wait_for_deferred, pool, nbytes), self.trim, self._reclaim)
        with self.lock:
            for reclaim in ways:
                if self._has_block(pool, nbytes):
                    return  # another thread was first
                reclaim()
                if self._has_block(pool, nbytes):
                    return
                try:
                    self._add_some(pool, nbytes)
                    return
                except OutOfMemory:
                    if reclaim is ways[-1]:
                        raise

    def _has_block(self, pool: int, nbytes: int) -> bool:
        return self._core.pool_stats(pool)["largest"] >= max(nbytes, 1)

    def _add_some(self, pool: int, nbytes: int) -> None:
        """Make a segment with room for `nbytes`, or larger if the limit and the device allow it."""
        size, least = self._segment_size(pool, nbytes), self._rounded(nbytes)
        while True:
            self._owner.wait_ready(self._owner.timeout)
            epoch = self._core.epoch
            try:
                self.add(pool, size)
                self.growth.waited[pool] += 1
                return
            except WorkerGone:
                self._owner.supervisor.await_change(epoch)
            except OutOfMemory:  # the device has less than the limit allows: other programs use it, too
                if size <= least:
                    raise self._no_room(pool, nbytes, self.on_device(1.0)[0]) from None
                size = least

    def _reclaim(self) -> None:
        """Return all unused memory, and wait for that."""
        gc.collect()  # unreachable arrays may be in cycles, for example of an exception and its frames
        self.settle()  # a segment with free memory can be returned only when no message uses it
        self._owner.exports.drain()
        self.trim(_SHORT_SECONDS)

    def _wait_for_deferred(self, pool: int, nbytes: int) -> None:
        """Wait for messages whose host memory is deferred, rather than grow by much."""
        stats = self._core.pool_stats(pool)
        if stats["deferred"] >= max(nbytes, SEGMENT):
            self.settle()

    def settle(self) -> None:
        """Wait for the messages sent so far, which may still use freed memory; at most 10 s in total."""
        end = time.monotonic() + 10.0
        for lane in list(self._core.lane_names):
            check()
            self._core.wait_ticket(lane, self._core.lane_stats(lane)["sent"], max(0.0, end - time.monotonic()))

    def _rounded(self, nbytes: int) -> int:
        """Return the bytes of the smallest segment for an allocation."""
        return -(-max(nbytes, 1) // ROUND) * ROUND

    def _segment_size(self, pool: int, nbytes: int) -> int:
        needed = self._rounded(nbytes)
        small = -(-max(nbytes, 1) // _PAGE) * _PAGE if self._owner.kind == "host" else needed
        size = self.growth.next_size(pool)
        if nbytes > size // 2:  # the rest would hardly be used, and a large array needs its own segment
            size = needed
        if pool == STAGING:
            free = host_memory()[0]
            if needed > free:  # it is pinned page by page: the system would kill the worker, or another process
                mine = self._core.pool_stats(pool)
                raise OutOfMemory(
                    f"the host has no room for {nbytes} bytes of memory shared with {self._owner.name}: it has "
                    f"{free} left, and {mine['free']} bytes of the device's shared memory are free (largest block "
                    f"{mine['largest']})",
                    requested=nbytes,
                    free=mine["free"] + free,
                    largest=max(mine["largest"], free),
                    limit=self.limit,
                )
            return size
        free = self.limit - self.reserved()
        if size <= free:
            return size
        if needed > free:
            needed = small  # a small limit counts, too
        if needed > free:
            raise self._no_room(pool, nbytes, None)
        return max(needed, free // ROUND * ROUND)

    def _no_room(self, pool: int, nbytes: int, device_free: int | None) -> OutOfMemory:
        """Return the error of an allocation; `device_free`: the free memory of the device, if that is the cause."""
        stats = [self._core.pool_stats(p) for p in (VOLATILE, DURABLE)]
        mine = self._core.pool_stats(pool)
        more = max(self.limit - self.reserved(), 0)
        advice = "free some arrays, or raise System(memory_limit=)"
        if self._rounded(nbytes) > self.limit >= nbytes and self._owner.kind != "host":
            advice = f"its memory comes in segments of at least {self._rounded(1)} bytes: raise System(memory_limit=)"
        if device_free is not None:
            more = min(more, device_free)
            advice = f"the device has {device_free} bytes left, which other programs use, too; free some arrays"
        return OutOfMemory(
            f"{self._owner.name} has no room for {nbytes} bytes: {sum(s['in_use'] for s in stats)} in use, "
            f"{mine['free']} free (largest block {mine['largest']}), memory limit {self.limit}; {advice}",
            requested=nbytes,
            free=sum(s["free"] for s in stats) + more,
            largest=max(mine["largest"], more),
            limit=self.limit,
        )

    def has_room(self, pool: int, nbytes: int) -> bool:
        """Whether an allocation is expected to succeed without waiting for memory to be freed."""
        free = self.limit - self.reserved()
        return self._core.pool_stats(pool)["largest"] >= nbytes or -(-nbytes // ROUND) * ROUND <= free

    def reserved(self) -> int:
        """Return the bytes that count towards the limit: of segments, and of memory outside of them."""
        outside = sum(lent.nbytes for lent in list(self._lent))
        return outside + sum(s.nbytes for s in list(self._segments.values()) if s.pool != STAGING)

    def lend(self, nbytes: int) -> Lent:
        """Count bytes that the worker allocates outside of the segments, as long as what is returned lives.

        Raises
        ------
        OutOfMemory
            If the limit leaves less.
        """
        with self.lock:
            if nbytes > self.limit - self.reserved():
                self.trim()
            if nbytes > self.limit - self.reserved():
                raise self._no_room(VOLATILE, nbytes, None)
            lent = Lent(nbytes)
            self._lent.add(lent)
            return lent

    def add(self, pool: int, size: int) -> None:
        """Make the worker create a segment, and add it to a pool; the caller holds the lock."""
        number = self._core.reserve_segment()
        try:
            fd = self._owner.links.create_segment(number, size, pool)
            try:
                if pool == STAGING or self._owner.kind == "host":
                    base = self._core.map_segment(number, fd, size)
                    if self._owner.kind != "host":  # the worker has pinned it, so all of its pages exist
                        HostCopy(TOUCH, base, 0, size, None).finish()
            except BaseException:
                self._owner.links.forget_segment(number, self._segments)
                os.close(fd)
                raise
        except BaseException:
            self._core.add_segment(number, -1, 0)
            raise
        self._segments[number] = _Segment(fd, size, pool)
        # The worker that made it may have died, and the next worker may have mapped only earlier segments.
        self._owner.links.tell("segment", number)
        self._core.add_segment(number, pool, size)
        self.growth.arm()

    def numbers(self) -> list[int]:
        """Return the numbers of all segments."""
        return list(self._segments)

    def descriptors(self) -> dict[int, int]:
        """Return the descriptors of all segments, by number."""
        return {number: segment.fd for number, segment in list(self._segments.items())}

    def find(self, number: int) -> _Segment | None:
        """Return a segment for a worker to map; None if it was returned to the system."""
        return self._segments.get(number)

    @shielded
    def trim(self, seconds: float = 0.0) -> int:
        """Return unused memory to the system; return its bytes.  `seconds` is that of `Workspaces.trim`."""
        given = 0
        self._owner.plans.collect()
        self._owner.workspaces.trim(seconds)
        with self.lock:
            if not self._segments:
                return 0
            for pool in (VOLATILE, DURABLE, STAGING):
                while number := self._core.remove_segment(pool):
                    segment = self._segments[number]
                    given += segment.nbytes
                    self._owner.give_back(number)
                    self._owner.links.forget_segment(number, self._segments)
                    os.close(segment.fd)
            self.growth.arm()  # open requests are obsolete: a program that trims needs less
        return given

    def pool_stats(self) -> dict[str, PoolStats]:
        """Return the figures of each pool, by name."""
        return {name: self._pool(pool) for name, pool in _POOLS.items()}

    def _pool(self, pool: int) -> PoolStats:
        growth = self.growth
        return cast(
            "PoolStats",
            {**self._core.pool_stats(pool), "waited": growth.waited[pool], "ahead": growth.ahead[pool]},
        )

    def on_device(self, timeout: float) -> tuple[int | None, int | None]:
        """Return the worker's (free, total) bytes, or (None, None) after `timeout` seconds without an answer."""
        return checked_memory(worker_stats(self._owner.links, timeout)) or (None, None)

    def close(self) -> None:
        """Close the descriptors.  Memory that other code still holds stays mapped until it is released."""
        self.growth.stop(5.0)
        while self._segments:
            os.close(self._segments.popitem()[1].fd)
