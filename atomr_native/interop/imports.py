"""Arrays of other libraries as memory of a device, without a copy.

An import is a range of addresses.  An array inside a known range is a view of it; arrays that share only some bytes are
ordered together.  The producer's object is kept until no handle of the range is left and every message that uses it is
resolved.  A restart makes imports stale, and releases their producers, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from .._lib import foreign as native
from .._lib.guard import Lock, finish, shielded, shielded_service
from .._lib.sender import CLOSED, DURABLE, LOST, VOLATILE
from ..arrays.gpu_ref import GpuRef
from ..arrays.layout import layout_from, layout_of
from ..arrays.views import name_of, view_as_numpy
from ..dtypes import dtype_name
from ..errors import AskTimeout, GpuRefStale, InvalidRequest, Unsupported
from .producers import Source, cuda_source, host_source, is_on_cuda, parent_context
from .ranges import Ranges
from .segments import Mapping, Segments

if TYPE_CHECKING:
    from collections.abc import Callable

    from .owner import SharingDevice

__all__ = ["Imports"]

_log = logging.getLogger("atomr_native")


class _Import:
    """A range of foreign memory, and its owner, until nothing may use it."""

    __slots__ = (
        "aliases", "end", "epoch", "mapping", "name", "owner", "pending_ticket", "ranged", "slot", "start",
    )  # fmt: skip

    def __init__(
        self, slot: tuple[int, int], mapping: Mapping, start: int, end: int, owner: object, *, ranged: bool
    ) -> None:  # fmt: skip
        self.slot = slot
        self.epoch = mapping.epoch
        self.mapping = mapping
        self.start, self.end = start, end
        self.owner = owner
        self.ranged = ranged  # has addresses of this process
        self.aliases = {self}  # imports that are ordered with it: their bytes overlap, directly or through others
        self.name: weakref.ref[_Name] | None = None
        self.pending_ticket: tuple[int, int] | None = None

    @property
    def has_handles(self) -> bool:
        """Whether handles exist."""
        return self.name is not None and self.name() is not None


class _Name:
    """An object that all handles of an import keep.  The callback of a weak reference to it reports its end.

    It has no finalizer, since a finalizer that runs while another thread makes a handle could not run again.
    """

    __slots__ = ("__weakref__", "of")

    def __init__(self, of: _Import) -> None:
        self.of = of


class Imports:
    """The imports of one device.

    Parameters
    ----------
    owner : SharingDevice
        The device that uses the memory.
    """

    def __init__(self, owner: SharingDevice) -> None:
        self._owner = owner
        self._core = owner.core
        self.segments = Segments(owner)
        self._lock = Lock()  # guards what follows; never held while anything waits or is finalized
        self._imports: set[_Import] = set()
        self._ranges: Ranges[_Import] = Ranges()
        self._dropped: deque[_Import] = deque()  # without handles, but not released yet
        self._swept_epoch = 0  # the generation whose stale imports have been released
        self._ended = False

    # ---- importing

    def asarray(self, x: Any, copy: bool | None) -> GpuRef:
        """Serve `Device.asarray`."""
        if copy is not None and not isinstance(copy, bool | np.bool_):
            raise InvalidRequest(f"copy must be None, True or False, got {copy!r}")
        self._core.lane_stats(0)  # raises in a forked child, where locks may be held forever
        device = self._owner.device
        if isinstance(x, GpuRef) and x.device.system is device.system:
            x.allocation.refuse_gone()
            if x.device is device:
                return device.copy(x) if copy else x
            if copy is not None and not copy:
                raise Unsupported(
                    f"the array is memory of {x.device.name}, not of {device.name}; device.copy(x) copies it"
                )
            return device.copy(x)
        if is_on_cuda(x):
            return self._from_gpu(cuda_source(x), copy)
        return self._from_host(x, copy)

    def _from_host(self, x: Any, copy: bool | None) -> GpuRef:
        if not _has_memory(x):
            if copy is None or copy:
                return self._owner.device.put(x)
            raise Unsupported(f"{name_of(x)} has no memory to share; pass a NumPy array, or copy=None")
        array = view_as_numpy(x)
        source = host_source(array, name_of(x))
        if not copy:
            try:
                return self._find_or_share(source, array)
            except Unsupported as error:
                if copy is not None:
                    raise
                _log.debug("%s: copied: %s", self._owner.name, error)
        if self._imports:  # most programs import nothing, and `_settle_uses` goes through another thread
            self._settle_uses(source)
        return self._owner.device.put(array)

    def _from_gpu(self, source: Source, copy: bool | None) -> GpuRef:
        try:
            found = self._find_or_share(source, None)
            # A copy within the device, if possible.
            return self._owner.device.copy(found).wait() if copy else found
        except Unsupported as error:
            if copy is not None and not copy:
                raise
            _log.debug("%s: copied through the host: %s", self._owner.name, error)
        return self._owner.device.put(self._to_host(source))

    def _to_host(self, source: Source) -> np.ndarray[Any, Any]:
        """Copy an array of any GPU to a NumPy array, and wait."""
        if source.empty:
            return np.empty(source.shape, source.dtype)
        self._settle_uses(source)
        start, end = source.start, source.end
        raw = np.empty(end - start, np.uint8)
        parent_context(source.ordinal or 0).copy_out(raw.__array_interface__["data"][0], start, end - start)
        return np.ndarray(source.shape, source.dtype, raw, source.address - start, source.strides)

    def _find_or_share(self, source: Source, array: np.ndarray[Any, Any] | None) -> GpuRef:
        own = self._own(source, array)
        if own is not None:
            return own
        # Most arrays are refused for their place: here, since `_share` goes through another thread.
        self.segments.check_place(source)
        return self._share(source)

    def _own(self, source: Source, array: np.ndarray[Any, Any] | None) -> GpuRef | None:
        """Return a handle for memory that this device has lent; None for foreign memory."""
        owner = self._owner
        if source.empty:
            return owner.memory.new(layout_of(source.shape, source.dtype), VOLATILE)
        if array is not None and owner.kind == "host":
            shared = owner.memory.shared(array)
            if shared is not None:
                return native.view(shared.allocation, GpuRef, shared.layout, shared.offset, source.readonly)
        if (source.ordinal is not None) != owner.exports.on_gpu:
            return None
        start, end = source.start, source.end
        loan = owner.exports.find(start, end)
        if loan is None:
            return None
        status = loan.allocation.status()
        if status:
            raise Unsupported(f"{source.name} is memory of {owner.name} whose handle is stale ({status}); copy it")
        return native.view(loan.allocation, GpuRef, _layout(source), source.address - loan.address, source.readonly)

    @shielded
    def _share(self, source: Source) -> GpuRef:
        """Import an array; `Unsupported` with the rule that forbids it."""
        self.segments.check_range(source)
        if not source.usable:
            raise Unsupported(
                f"{source.name} lies at address {source.address:#x} with strides {source.strides}; messages need "
                f"non-negative strides and the alignment of {source.dtype}; let it be copied (copy=None)"
            )
        deadline = self._deadline()
        while True:
            mapping = self.segments.open(source)
            try:
                made = self._adopt(source, mapping, deadline)
            finally:
                self.segments.unpin(mapping)
            if made is not None:
                return made
            if deadline is not None and time.monotonic() > deadline:
                raise AskTimeout(
                    f"{source.name} could not be imported: arrays that share bytes with it were in use the whole time"
                )

    def _deadline(self) -> float | None:
        timeout = self._owner.config.timeout
        return None if timeout is None else time.monotonic() + timeout

    def _adopt(self, source: Source, mapping: Mapping, deadline: float | None) -> GpuRef | None:
        """Return a handle of `source`, or None if another attempt may succeed."""
        start, end = source.start, source.end
        with self._lock:
            overlapping = self._overlapping(start, end)
            for known in overlapping:
                if known.start <= start and end <= known.end and native.live(self._core, *known.slot):
                    return self._handle(known, source)
            if not overlapping:
                made = self._make(source, mapping)
                return None if made is None else self._handle(made, source)
        members = self._last_writes(overlapping, deadline)
        if members is None:
            return None
        with self._lock:
            if self._overlapping(start, end) != overlapping:
                return None
            made = self._make(source, mapping)
            if made is None:
                return None
            aliases = set().union(*(i.aliases for i in overlapping))
            covers = all(start <= i.start and i.end <= end for i in aliases)
            if native.unite(self._core, [(*made.slot, 0, 0), *members], covers):
                aliases.add(made)
                for i in aliases:
                    i.aliases = aliases
                return self._handle(made, source)
            self._forget(made)
            native.disown(self._core, made.slot[0])
        self.segments.unpin(made.mapping)
        return None

    def _last_writes(
        self, overlapping: list[_Import], deadline: float | None
    ) -> list[tuple[int, int, int, int]] | None:
        """Wait for the users of imports that share bytes with a new one; return the last write of each.

        Returns None if one of the imports is gone.  Raises the error of a failed write, since the bytes would be
        undefined.
        """
        found = []
        for known in overlapping:
            if not native.live(self._core, *known.slot):  # freed, while messages may still use it
                for lane, ticket in native.uses(self._core, known.slot[0]):
                    self._core.wait_ticket(lane, ticket, _left(deadline))
                return None
            with self._lock:
                if known not in self._imports:
                    return None
                whole = self._handle(known, None)
            try:
                lane, ticket = whole.allocation.last_write()
                whole.wait(_left(deadline))
            except GpuRefStale:  # freed, or the device has restarted
                return None
            found.append((*known.slot, lane, ticket))
        return found

    def reach(self, source: GpuRef) -> GpuRef:
        """Return a handle for this device of an array of another GPU, for a message that both devices run.

        Nothing is lent: the other device's part of that message keeps the memory.  Waits for the worker where it has to
        map the segment of the array.

        Raises
        ------
        Unsupported
            If this GPU has no access to that one.
        """
        allocation = source.allocation
        if allocation.pool not in (VOLATILE, DURABLE):
            raise Unsupported("the array lies in memory of another library")
        other: SharingDevice = allocation.core.owner
        whole = self.segments.reached.get((other.name, allocation.segment))
        if whole is None or whole.allocation.status():
            whole = self._reach_segment(other, allocation.segment)
        return whole.view_as(source.layout, allocation.offset + source.offset)

    @shielded
    def _reach_segment(self, other: SharingDevice, segment: int) -> GpuRef:
        found = other.memory.segments.find(segment)
        if found is None:
            raise other.core.stale(None, "device closed")
        whole = self.hold(lambda: self.segments.open_peer(other, segment), 0, found.nbytes, None)
        self.segments.reached[other.name, segment] = whole
        return whole

    def hold(self, opened: Callable[[], Mapping], start: int, nbytes: int, owner: object) -> GpuRef:
        """Return a handle of bytes in a mapping, which `opened` opens; they begin at `start`, where the mapping's do.

        Waits for the worker.  `owner` is kept until nothing uses the bytes.
        """
        while True:
            mapping = opened()
            try:
                with self._lock:
                    slot = native.adopt(self._core, mapping.epoch, mapping.segment, start - mapping.base, nbytes)
                    if slot is None:  # this device has restarted
                        continue
                    made = _Import(slot, mapping, start, start + nbytes, owner, ranged=False)
                    self.segments.pin(mapping)
                    self._imports.add(made)
                    return self._handle(made, None)
            finally:
                self.segments.unpin(mapping)

    @shielded
    def _settle_uses(self, source: Source) -> None:
        """Wait for the messages sent so far that use any byte of an array that is about to be copied."""
        if source.empty:
            return
        with self._lock:
            handles = [self._handle(i, None) for i in self._ranges.overlapping(source.start, source.end)
                    if native.live(self._core, *i.slot)]  # fmt: skip
        for ref in handles:
            ref.wait()

    # ---- under the lock

    def _overlapping(self, start: int, end: int) -> list[_Import]:
        """Return the live imports of this generation that share bytes with a range."""
        core = self._core
        return [
            i
            for i in self._ranges.overlapping(start, end)
            if i.epoch == core.epoch and (native.live(core, *i.slot) or native.uses(core, i.slot[0]))
        ]

    def _make(self, source: Source, mapping: Mapping) -> _Import | None:
        start, end = source.start, source.end
        slot = native.adopt(self._core, mapping.epoch, mapping.segment, start - mapping.base, end - start)
        if slot is None:  # the device has restarted
            return None
        made = _Import(slot, mapping, start, end, source.owner, ranged=True)
        self.segments.pin(mapping)
        self._imports.add(made)
        self._ranges.add(made)
        return made

    def _forget(self, gone: _Import) -> None:
        self._imports.discard(gone)
        if gone.ranged:
            self._ranges.remove(gone)
        gone.aliases.discard(gone)

    def _handle(self, of: _Import, source: Source | None) -> GpuRef:
        name = None if of.name is None else of.name()
        if name is None:
            name = _Name(of)
            of.name = weakref.ref(name, lambda _: self._unnamed(of))
        if source is None:
            layout, offset = layout_of((of.end - of.start,), np.dtype(np.uint8)), 0
        else:
            layout, offset = _layout(source), source.address - of.start
        return native.handle(
            self._core, GpuRef, layout, offset, of.slot, of.epoch, of.mapping.segment, of.start - of.mapping.base,
            of.end - of.start, name, source is not None and source.readonly,
        )  # fmt: skip

    def _try(self, candidate: _Import) -> list[tuple[int, int]] | None:
        """Release an unused import and return [], or return its users; None if it is needed, or gone."""
        if candidate not in self._imports or self._owner.supervisor.left_behind:  # which may be using any import
            return None
        uses = native.let_go(self._core, *candidate.slot, candidate.has_handles)
        if uses == []:
            self._forget(candidate)
            native.disown(self._core, candidate.slot[0])
        return uses

    # ---- releasing

    def _unnamed(self, of: _Import) -> None:
        """Record that the last handle of an import is gone: a finalizer, in any thread, which never waits."""
        if not self._owner.abandoned:
            self._retire(of)

    @shielded_service
    def _retire(self, of: _Import) -> None:
        if not of.mapping.closes and self._lock.acquire(blocking=False):
            try:
                done = self._try(of) == []
            finally:
                self._lock.release()
            if done:
                of.owner = None
                return
        self._dropped.append(of)
        if self._ended and not self._lock.locked():  # the device's callback thread has ended
            finish(self.collect)
        self._owner.wakers.own.kick()

    def freed(self, ref: GpuRef) -> None:
        """Record that a handle has freed an import."""
        name = ref.allocation.keep
        if isinstance(name, _Name):
            self._dropped.append(name.of)
            self._owner.wakers.own.kick()

    def nudge(self) -> None:
        """Wake the device's callback thread, if there are imports to release.  Never waits."""
        if self._dropped or self.segments.pending:
            self._owner.wakers.own.kick()

    @shielded
    def collect(self) -> None:
        """Release producers whose memory is no longer used.  Runs their destructors; does not wait."""
        again = True
        while again:
            gone, open_ = self._sweep()
            again = False
            for candidate, use in open_:
                if candidate.pending_ticket != use:
                    candidate.pending_ticket = use
                    again |= not self._owner.wakers.kick_when_resolved(*use)
            for item in gone:
                self._release(item)
            del gone, open_
        self.segments.tidy()

    def _sweep(self) -> tuple[list[_Import], list[tuple[_Import, tuple[int, int]]]]:
        gone, open_ = [], []
        with self._lock:
            epoch, over = self._core.epoch, self._core.state in (LOST, CLOSED)
            candidates: list[_Import] = []
            if over or epoch != self._swept_epoch:  # all of these are stale now
                candidates = [i for i in self._imports if over or i.epoch != epoch]
                self._swept_epoch = epoch
            for _ in range(len(self._dropped)):
                candidates.append(self._dropped.popleft())
            for candidate in dict.fromkeys(candidates):
                uses = self._try(candidate)
                if uses == []:
                    gone.append(candidate)
                elif uses:
                    open_.append((candidate, uses[0]))
                wanted = candidate.has_handles and candidate.epoch == epoch and not over
                if uses or (candidate in self._imports and not wanted):  # otherwise it is lent
                    self._dropped.append(candidate)
        return gone, open_

    def _release(self, gone: _Import) -> None:
        """Drop the owner: at once, or when the worker has closed the unused mapping."""
        owner, gone.owner = gone.owner, None
        self.segments.unpin(gone.mapping, owner)
        del owner

    def close(self, *, left_behind: bool) -> None:
        """Release everything, since the worker has ended, unless a hanging worker was `left_behind`."""
        if left_behind:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._imports))  # the worker may outlive this interpreter
        else:
            self._ended = True
            self.collect()


def _layout(source: Source) -> Any:
    return layout_from(source.shape, source.strides, dtype_name(source.dtype))


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _has_memory(x: Any) -> bool:
    """Return whether an object exposes memory, instead of creating an array on request."""
    if isinstance(x, bool | int | float | complex | list | tuple | np.generic):
        return False
    if isinstance(x, np.ndarray) or hasattr(x, "__dlpack__") or hasattr(x, "__array_interface__"):
        return True
    with contextlib.suppress(TypeError):
        memoryview(x)
        return True
    return False
