"""The memory of a device: segments, allocation, copies on the device, memory that both processes see."""

from __future__ import annotations

import bisect
import gc
import os
import threading
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np

from . import memory_ops
from ._aside import Aside
from ._host_memory import host_memory
from ._lib.copies import TOUCH, ZERO, HostCopy
from ._lib.dlpack import array_at
from ._lib.sender import DURABLE, STAGING, VOLATILE, Core, Form, Layout
from ._messages import Message, New
from ._operands import check_disjoint
from .control import WorkerGone
from .dtypes import as_dtype, dtype_name
from .errors import AtomrError, InvalidRequest, OutOfMemory
from .gpu_ref import GpuRef, as_shape, layout_of
from .growth import ROUND, SEGMENT, Growth
from .library_actor import LibraryActor
from .plan import Plan
from .plan_spec import OVERWRITE, READ, WRITE, OperandSpec, PlanSpec
from .statistics import device_memory
from .transfers import Transfers, check_ref

if TYPE_CHECKING:
    from ._link import Links
    from .device import Device
    from .reply import Reply
    from .statistics import PoolStats

__all__ = ["DeviceMemory", "default_limit"]

_ASIDE = 8  # coroutines whose arrays are converted, or get memory made for them, at once
_PAGE = 4096
_SHORT_SECONDS = 1.0  # how long who is short of memory waits for other threads that hold some for a moment
_POOLS = {"volatile": VOLATILE, "durable": DURABLE, "staging": STAGING}


def default_limit() -> int:
    """Return four fifths of the memory that this process may still take, bytes."""
    return host_memory()[0] * 4 // 5


class _Segment:
    def __init__(self, fd: int, nbytes: int, pool: int) -> None:
        self.fd, self.nbytes, self.pool = fd, nbytes, pool


class _Fill(NamedTuple):
    out: GpuRef


class _Copy(NamedTuple):
    source: GpuRef
    out: GpuRef | None
    dtype: object
    host: bool  # whether `out` is memory that the processor writes as well
    nbytes: int  # of the source


_FILL: Final = Form(lambda values: _Fill(values[0]), tuple, ("out",), b"a", (None,), b"n")
_COPY: Final = Form(_Copy._make, tuple, _Copy._fields, b"aaoon", (None, None, None, False, 0))


class DeviceMemory(LibraryActor):
    """The device's own actor: it owns the segments and does put, get, copy and fill.

    Parameters
    ----------
    device : Device
        Whose memory.
    limit : int
        Bytes of volatile and durable segments together, at most.
    """

    def __init__(self, device: Device, limit: int) -> None:
        super().__init__(device, "memory")
        self.limit = limit
        self._core: Core = device._core
        self._core.grow = self._grow
        self._grow_lock = threading.RLock()
        self._segments: dict[int, _Segment] = {}
        self.growth = Growth(self)
        self._hosts_lock = threading.Lock()
        self._host_starts: list[int] = []  # addresses of live host arrays, sorted
        self._hosts: dict[int, weakref.ref[GpuRef]] = {}
        self._probe: Plan | None = None
        self._clear: Plan | None = None
        self.aside = Aside(f"atomr_native-{device.name}-copies", _ASIDE)
        self.transfers = Transfers(self)

    # ---- segments

    def _grow(self, pool: int, nbytes: int) -> None:
        """Add a segment with room for `nbytes`; called by an allocation that found none.  Waits for the worker."""
        ways = (partial(self._wait_for_deferred, pool, nbytes), self.trim, self._reclaim)
        with self._grow_lock:
            for reclaim in ways:
                if self._has_block(pool, nbytes):
                    return  # another thread was first
                reclaim()
                if self._has_block(pool, nbytes):
                    return
                try:
                    self._add(pool, nbytes)
                    return
                except OutOfMemory:
                    if reclaim is ways[-1]:
                        raise

    def _has_block(self, pool: int, nbytes: int) -> bool:
        return self._core.pool_stats(pool)["largest"] >= max(nbytes, 1)

    def _add(self, pool: int, nbytes: int) -> None:
        """Make a segment with room for `nbytes`, of what the limit and the device leave, and no smaller than that."""
        size, least = self._segment_size(pool, nbytes), self._rounded(nbytes)
        while True:
            self.device.wait_ready(self.device.system.config.timeout)
            epoch = self._core.epoch
            try:
                self._make(pool, size)
                self.growth.waited[pool] += 1
                return
            except WorkerGone:
                self.device._supervisor.await_change(epoch)
            except OutOfMemory:  # the device has less than the limit would allow: others use it, too
                if size <= least:
                    raise self._no_room(pool, nbytes, device_memory(self.device, 1.0)[0]) from None
                size = least

    def _reclaim(self) -> None:
        """Give back all that can be, and wait for that."""
        gc.collect()  # arrays that nobody reaches may be in cycles: of an exception and its frames, say
        self._wait_for_all()  # a segment whose memory is free goes back only when nobody uses it any more
        self.device._exports.drain()
        self.trim(_SHORT_SECONDS)

    def _wait_for_deferred(self, pool: int, nbytes: int) -> None:
        """Host memory comes back only when the messages that use it are done: wait for them before growing much."""
        stats = self._core.pool_stats(pool)
        if stats["deferred"] >= max(nbytes, SEGMENT):
            self._wait_for_all()

    def _wait_for_all(self) -> None:
        """Wait for the messages sent so far, which may still use memory that was freed; 10 s in all."""
        end = time.monotonic() + 10.0
        for lane in list(self._core.lane_names):
            self._core.wait_ticket(lane, self._core.lane_stats(lane)["sent"], max(0.0, end - time.monotonic()))

    def _rounded(self, nbytes: int) -> int:
        """Return the bytes of the smallest segment for an allocation."""
        return -(-max(nbytes, 1) // ROUND) * ROUND

    def _segment_size(self, pool: int, nbytes: int) -> int:
        needed = self._rounded(nbytes)
        small = -(-max(nbytes, 1) // _PAGE) * _PAGE if self.device.name == "host" else needed
        size = self.growth.next_size(pool)
        if nbytes > size // 2:  # the rest would hardly be of use, and a large array never finds a segment ahead of need
            size = needed
        if pool == STAGING:
            free = host_memory()[0]
            if needed > free:  # it is pinned page by page: the system would end the worker, or somebody else
                mine = self._core.pool_stats(pool)
                raise OutOfMemory(
                    f"the host has no room for {nbytes} bytes that {self.device.name} reaches: it has {free} left, and "
                    f"of what the device has of it {mine['free']} are free (largest block {mine['largest']})",
                    nbytes, mine["free"] + free, max(mine["largest"], free), self.limit,
                )  # fmt: skip
            return size
        free = self.limit - self._reserved()
        if size <= free:
            return size
        if needed > free:
            needed = small  # a small limit is a limit too
        if needed > free:
            raise self._no_room(pool, nbytes, None)
        return max(needed, free // ROUND * ROUND)

    def _no_room(self, pool: int, nbytes: int, device_free: int | None) -> OutOfMemory:
        """Return the error of an allocation; `device_free`: what the device itself has left, if that is too little."""
        stats = [self._core.pool_stats(p) for p in (VOLATILE, DURABLE)]
        mine = self._core.pool_stats(pool)
        more = max(self.limit - self._reserved(), 0)
        advice = "free some arrays, or raise System(memory_limit=)"
        if self._rounded(nbytes) > self.limit >= nbytes and self.device.name != "host":
            advice = f"its memory comes in segments of at least {self._rounded(1)} bytes: raise System(memory_limit=)"
        if device_free is not None:
            more = min(more, device_free)
            advice = f"the device has {device_free} bytes left, which other programs use, too; free some arrays"
        return OutOfMemory(
            f"{self.device.name} has no room for {nbytes} bytes: {sum(s['in_use'] for s in stats)} in use, "
            f"{mine['free']} free (largest block {mine['largest']}), memory limit {self.limit}; {advice}",
            nbytes,
            sum(s["free"] for s in stats) + more,
            max(mine["largest"], more),
            self.limit,
        )

    def has_room(self, pool: int, nbytes: int) -> bool:
        """Whether an allocation can be expected to succeed without waiting for memory to be freed."""
        free = self.limit - self._reserved()
        return self._core.pool_stats(pool)["largest"] >= nbytes or -(-nbytes // ROUND) * ROUND <= free

    def _reserved(self) -> int:
        return sum(s.nbytes for s in list(self._segments.values()) if s.pool != STAGING)

    def _make(self, pool: int, size: int) -> None:
        number = self._core.reserve_segment()
        try:
            fd = self._links.create_segment(number, size, pool)
            try:
                if pool == STAGING or self.device.name == "host":
                    if os.fstat(fd).st_size < size:
                        raise AtomrError(f"the worker made a segment of {os.fstat(fd).st_size} bytes instead of {size}")
                    base = self._core.map_segment(number, fd, size)
                    if self.device.name != "host":  # the worker has pinned it, so that all of its pages are there
                        HostCopy(TOUCH, base, 0, size, None).finish()
            except BaseException:
                self._links.forget_segment(number, self._segments)
                os.close(fd)
                raise
        except BaseException:
            self._core.add_segment(number, -1, 0)
            raise
        self._segments[number] = _Segment(fd, size, pool)
        # The worker that made it may be dead by now, and the next one have mapped what there was before.
        self._links.tell("segment", number)
        self._core.add_segment(number, pool, size)
        self.growth.arm()

    @property
    def _links(self) -> Links:
        return self.device._supervisor.links

    def segments(self) -> list[int]:
        """Return the numbers of all segments."""
        return list(self._segments)

    def segment(self, number: int) -> _Segment | None:
        """Return a segment, for a worker to map it; None if it was given back."""
        return self._segments.get(number)

    def trim(self, seconds: float = 0.0) -> int:
        """Give memory that nobody uses back to the system; the bytes given back.  For `seconds`: `Workspaces.trim`."""
        given = 0
        self.device._plans.collect()
        self.device._workspaces.trim(seconds)
        with self._grow_lock:
            if not self._segments:
                return 0
            for pool in (VOLATILE, DURABLE, STAGING):
                while number := self._core.remove_segment(pool):
                    segment = self._segments[number]
                    given += segment.nbytes
                    self.device._give_back(number)
                    self._links.forget_segment(number, self._segments)
                    os.close(segment.fd)
            self.growth.arm()  # what was asked is not wanted any more: whoever trims wants less
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

    def close(self) -> None:
        """Close the descriptors.  Memory that other code still holds stays mapped until it lets go."""
        self.growth.stop(5.0)
        self.aside.close()
        while self._segments:
            os.close(self._segments.popitem()[1].fd)

    def abandon(self) -> None:
        """In a forked child: as `close`."""
        self.transfers.window.abandon()
        self.aside.abandon()
        self.close()

    # ---- small messages

    def _noop(self, names: tuple[str, ...], access: int) -> Plan:
        spec = PlanSpec(
            "noop", tuple(OperandSpec(name, "uint8", (1,), (1,), access) for name in names),
        )  # fmt: skip
        return self._plan(spec, any_layout=True)

    @property
    def _probe_plan(self) -> Plan:
        if self._probe is None:
            self._probe = self._noop(("ref",), READ)
        return self._probe

    def probe(self, ref: GpuRef) -> Reply:
        """Send a message that only depends on `ref`."""
        return self._probe_plan.ask(ref)

    async def probe_async(self, ref: GpuRef) -> Reply:
        """As `probe`, awaiting room in the mailbox."""
        return await self._probe_plan.send_async(ref)

    def clear_error(self, ref: GpuRef) -> None:
        """Lift poison and torn marks of the allocation of `ref`."""
        if self._clear is None:
            self._clear = self._noop(("ref",), WRITE | OVERWRITE)
        if ref.allocation.status() in ("torn", "rolled back"):
            ref.allocation.untear()
        whole = ref.view_as(layout_of((ref.allocation.nbytes,), np.dtype(np.uint8)), 0)
        self._clear.tell(whole.declared())

    def _copy_plan(self, source: GpuRef, target: GpuRef | Layout) -> tuple[Plan, tuple[int, ...]]:
        """Return the plan of a copy, and its scalars, which are none or the bytes; a Layout is that of a new array."""
        given = None if isinstance(target, Layout) else target
        theirs, ours = source.layout, target if isinstance(target, Layout) else target.layout
        to_host = given is not None and given.allocation.pool == STAGING
        same = theirs.shape == ours.shape and theirs.dtype_name == ours.dtype_name
        if not (same and theirs.contiguous and ours.contiguous):
            spec = memory_ops.copy_spec(source, target, host=to_host)
            return self._plan(spec), memory_ops.copy_scalars(spec)
        if given is not None and given.allocation.space == source.allocation.space:
            check_disjoint([("out", given)], [("src", source)])
        if to_host or source.allocation.pool == STAGING:
            return self.transfers.plans[to_host], (theirs.nbytes,)
        return self.transfers.within, (theirs.nbytes,)

    # ---- public operations, reached through Device

    def allocate(self, shape: object, dtype: object, pool: int) -> GpuRef:
        """Allocate an array without writing it."""
        return self.new(layout_of(as_shape(shape), as_dtype(dtype)), pool)

    def new(self, layout: Layout, pool: int) -> GpuRef:
        """Allocate memory for a layout."""
        return self._core.empty(GpuRef, layout, pool)

    def fill(self, ref: GpuRef, value: complex) -> GpuRef:
        """Send a fill."""
        check_ref(ref)
        made: GpuRef = self._calls.send(self, _FILL, (ref, *memory_ops.fill_scalars(ref.layout.dtype, value)))
        return made

    def copy(self, source: GpuRef, out: GpuRef | None, dtype: object, pool: int) -> GpuRef:
        """Send a copy, with conversion where dtypes differ."""
        check_ref(source)
        if out is not None:
            check_ref(out)
        elif pool != VOLATILE:
            out = self.new(layout_of(source.shape, source.dtype if dtype is None else as_dtype(dtype)), pool)
        host = out is not None and out.allocation.pool == STAGING
        made: GpuRef = self._calls.send(self, _COPY, (source, out, dtype, host, source.layout.nbytes))
        return made

    def _message(self, request: _Fill | _Copy) -> Message:
        if isinstance(request, _Fill):
            plan = self._plan(memory_ops.fill_spec(request.out))
            return Message(plan, (request.out,), request.out, tuple(range(1, 1 + len(plan.spec.scalars))))
        source, out, dtype, *_ = request
        target = source.dtype if dtype is None else as_dtype(dtype)
        if out is not None and dtype is not None and target != out.dtype:
            raise InvalidRequest(f"dtype {dtype_name(target)} and an out of {out.layout!r}; give one of them")
        fresh = layout_of(source.shape, target)
        plan, scalars = self._copy_plan(source, fresh if out is None else out)
        result = New(fresh) if out is None else out
        return Message(plan, (source, result), result, ("nbytes",) if scalars else ())

    # ---- memory that both processes see

    def host_view(self, ref: GpuRef, layout: Layout) -> np.ndarray[Any, Any]:
        """Return an array of a layout over memory that both processes see, from the first byte of `ref` on."""
        return array_at(ref, ref.allocation.address + ref.offset, layout.shape, layout.strides, layout.dtype)

    def host_array(self, shape: object, dtype: object) -> np.ndarray[Any, Any]:
        """Make a NumPy array in memory that the device copies from and to directly."""
        ref = self.new(layout_of(as_shape(shape), as_dtype(dtype)), STAGING)
        start = ref.allocation.address
        with self._hosts_lock:
            self._forget_dead()
            bisect.insort(self._host_starts, start)
            self._hosts[start] = weakref.ref(ref)
        HostCopy(ZERO, start, 0, ref.nbytes, ref).finish()
        return self.host_view(ref, ref.layout)

    def _forget_dead(self) -> None:
        dead = [start for start, ref in self._hosts.items() if ref() is None]
        for start in dead:
            del self._hosts[start]
        if dead:
            self._host_starts = sorted(self._hosts)

    def _shared(self, array: np.ndarray[Any, Any]) -> GpuRef | None:
        """Return the handle of an array that lies in a host array of this device."""
        itemsize = array.dtype.itemsize
        if not self._host_starts or array.size == 0 or any(s < 0 or s % itemsize for s in array.strides):
            return None
        first = array.__array_interface__["data"][0]
        with self._hosts_lock:
            at = bisect.bisect_right(self._host_starts, first) - 1
            owner = self._hosts[self._host_starts[at]]() if at >= 0 else None
        if owner is None or first - self._host_starts[at] >= owner.allocation.nbytes:
            return None
        from .gpu_ref import layout_from

        layout = layout_from(array.shape, array.strides, dtype_name(array.dtype))
        return owner.view_as(layout, first - owner.allocation.address)
