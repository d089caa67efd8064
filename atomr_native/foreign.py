"""Arrays of other libraries as memory of a device, without a copy.

An import is a range of addresses: what lies within one that is known already is a view of it, and what shares only some
bytes with others is ordered together with them.  The producer's object is kept until no handle of the range is left and
every message that uses it is resolved; a restart makes imports stale, and lets go of their producers too.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from ._foreign_segments import Mapping, Segments
from ._lib import foreign as native
from ._lib.sender import CLOSED, DURABLE, LOST, VOLATILE
from ._ranges import Ranges
from .dtypes import dtype_name
from .errors import AskTimeout, GpuRefStale, InvalidRequest, Unsupported
from .gpu_ref import GpuRef, layout_from, layout_of
from .interop import name_of, view_as_numpy
from .producers import Source, cuda_source, host_source, is_on_cuda, parent_context

if TYPE_CHECKING:
    from .device import Device

__all__ = ["Foreign"]

_log = logging.getLogger("atomr_native")


class _Import:
    """A range of memory of others, and who owns it, until nothing may use it."""

    __slots__ = ("awaited", "end", "epoch", "kin", "mapping", "name", "owner", "ranged", "slot", "start")

    def __init__(
        self, slot: tuple[int, int], mapping: Mapping, start: int, end: int, owner: object, *, ranged: bool
    ) -> None:  # fmt: skip
        self.slot = slot
        self.epoch = mapping.epoch
        self.mapping = mapping
        self.start, self.end = start, end
        self.owner = owner
        self.ranged = ranged  # by addresses of this process
        self.kin = {self}  # those that it is ordered with
        self.name: weakref.ref[_Name] | None = None
        self.awaited: tuple[int, int] | None = None

    @property
    def named(self) -> bool:
        """Whether there are handles."""
        return self.name is not None and self.name() is not None


class _Name:
    """What all handles of an import keep.  When it is gone, a callback of its weak reference tells.

    It has no finalizer of its own, since one that runs while another thread makes a handle could not run again.
    """

    __slots__ = ("__weakref__", "of")

    def __init__(self, of: _Import) -> None:
        self.of = of


class Foreign:
    """The imports of one device.

    Parameters
    ----------
    device : Device
        That uses the memory.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._core = device._core
        self.segments = Segments(device)
        self._lock = threading.Lock()  # guards what follows; never held while anything waits or is finalized
        self._imports: set[_Import] = set()
        self._ranges: Ranges[_Import] = Ranges()
        self._dropped: deque[_Import] = deque()  # without handles, and not let go yet
        self._swept = 0  # the generation whose stale imports were let go
        self._ended = False

    # ---- importing

    def asarray(self, x: Any, copy: bool | None) -> GpuRef:
        """Serve `Device.asarray`."""
        if copy is not None and not isinstance(copy, bool | np.bool_):
            raise InvalidRequest(f"copy must be None, True or False, got {copy!r}")
        self._core.lane_stats(0)  # raises in a forked child, where locks may be held for ever
        device = self._device
        if isinstance(x, GpuRef) and x.device.system is device.system:
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
                return self._device.put(x)
            raise Unsupported(f"{name_of(x)} has no memory of its own to share; pass a NumPy array, or copy=None")
        array = view_as_numpy(x)
        source = host_source(array, name_of(x))
        if not copy:
            try:
                return self._find_or_share(source, array)
            except Unsupported as error:
                if copy is not None:
                    raise
                _log.debug("%s: copied: %s", self._device.name, error)
        self._settle_uses(source)
        return self._device.put(array)

    def _from_gpu(self, source: Source, copy: bool | None) -> GpuRef:
        try:
            found = self._find_or_share(source, None)
            # A copy within the device, where that is possible.
            return self._device.copy(found).wait() if copy else found
        except Unsupported as error:
            if copy is not None and not copy:
                raise
            _log.debug("%s: copied through the host: %s", self._device.name, error)
        return self._device.put(self._to_host(source))

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
        return self._share(source) if own is None else own

    def _own(self, source: Source, array: np.ndarray[Any, Any] | None) -> GpuRef | None:
        """Return the handle of memory that is this device's own, and that it has lent; None for others."""
        device = self._device
        if source.empty:
            return device._memory.new(layout_of(source.shape, source.dtype), VOLATILE)
        if array is not None and device.name == "host" and not source.readonly:
            shared = device._memory._shared(array)
            if shared is not None:
                return shared
        if (source.ordinal is not None) != device._exports.on_gpu:
            return None
        start, end = source.start, source.end
        loan = device._exports.find(start, end)
        if loan is None or source.readonly:
            return None
        status = loan.allocation.status()
        if status:
            raise Unsupported(f"{source.name} is memory of {device.name} whose handle is stale ({status}); copy it")
        return native.view(loan.allocation, GpuRef, _layout(source), source.address - loan.address)

    def _share(self, source: Source) -> GpuRef:
        """Import an array; `Unsupported` with the rule that forbids it."""
        self.segments.check(source)
        if source.readonly:
            raise Unsupported(
                f"{source.name} is read-only, and messages may write what they name; pass a writable array, or let it "
                f"be copied (copy=None)"
            )
        if not source.usable:
            raise Unsupported(
                f"{source.name} lies at address {source.address:#x} with strides {source.strides}; messages take "
                f"strides from 0 on and the alignment of {source.dtype}; let it be copied (copy=None)"
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
                raise AskTimeout(f"{source.name} could not be imported: others kept using what it shares bytes with")

    def _deadline(self) -> float | None:
        timeout = self._device.system.config.timeout
        return None if timeout is None else time.monotonic() + timeout

    def _adopt(self, source: Source, mapping: Mapping, deadline: float | None) -> GpuRef | None:
        """Make a handle of `source`, or None where another try may do better."""
        start, end = source.start, source.end
        with self._lock:
            near = self._near(start, end)
            for known in near:
                if known.start <= start and end <= known.end and native.live(self._core, *known.slot):
                    return self._handle(known, source)
            if not near:
                made = self._make(source, mapping)
                return None if made is None else self._handle(made, source)
        members = self._look(near, deadline)
        if members is None:
            return None
        with self._lock:
            if self._near(start, end) != near:
                return None
            made = self._make(source, mapping)
            if made is None:
                return None
            kin = set().union(*(i.kin for i in near))
            covers = all(start <= i.start and i.end <= end for i in kin)
            if native.unite(self._core, [(*made.slot, 0, 0), *members], covers):
                kin.add(made)
                for i in kin:
                    i.kin = kin
                return self._handle(made, source)
            self._forget(made)
            native.disown(self._core, made.slot[0])
        self.segments.unpin(made.mapping)
        return None

    def _look(self, near: list[_Import], deadline: float | None) -> list[tuple[int, int, int, int]] | None:
        """Wait for what uses imports that share bytes with a new one: the last write of each; None if one is gone.

        Raises what went wrong with such a write: the bytes would be none that anybody has meant.
        """
        found = []
        for known in near:
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

    def borrow(self, source: GpuRef) -> GpuRef:
        """Return a handle for this device of an array of another GPU, whose memory is lent meanwhile.

        Waits for the worker.

        Raises
        ------
        Unsupported
            If this GPU does not reach that one.
        """
        allocation = source.allocation
        if allocation.pool not in (VOLATILE, DURABLE):
            raise Unsupported("the array lies in memory of another library")
        while True:
            lease = allocation.lease()
            mapping = self.segments.open_peer(source.device, allocation.segment)
            try:
                with self._lock:
                    slot = native.adopt(
                        self._core, mapping.epoch, mapping.segment, allocation.offset, allocation.nbytes
                    )  # fmt: skip
                    if slot is None:  # this device has restarted
                        continue
                    start = allocation.offset
                    made = _Import(
                        slot, mapping, start, start + allocation.nbytes, (lease, allocation), ranged=False
                    )  # fmt: skip
                    self.segments.pin(mapping)
                    self._imports.add(made)
                    return self._handle(made, None).view_as(source.layout, source.offset)
            finally:
                self.segments.unpin(mapping)

    def _settle_uses(self, source: Source) -> None:
        """Wait for the messages sent so far that use any byte of an array, which is about to be copied."""
        if source.empty:
            return
        with self._lock:
            near = [self._handle(i, None) for i in self._ranges.overlapping(source.start, source.end)
                    if native.live(self._core, *i.slot)]  # fmt: skip
        for ref in near:
            ref.wait()

    # ---- under the lock

    def _near(self, start: int, end: int) -> list[_Import]:
        """Return the imports of this generation that share bytes with a range, and that matter to who uses them."""
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
        gone.kin.discard(gone)

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
            of.end - of.start, name,
        )  # fmt: skip

    def _try(self, candidate: _Import) -> list[tuple[int, int]] | None:
        """Let go of an import if nothing may use it: empty.  Else who does; None if it is wanted, or gone already."""
        if candidate not in self._imports or self._device._supervisor.left_behind:  # which may be using any
            return None
        uses = native.let_go(self._core, *candidate.slot, candidate.named)
        if uses == []:
            self._forget(candidate)
            native.disown(self._core, candidate.slot[0])
        return uses

    # ---- letting go

    def _unnamed(self, of: _Import) -> None:
        """Take note that the last handle of an import is gone: a finalizer, in any thread, which never waits."""
        if self._device._abandoned:
            return
        if not of.mapping.closes and self._lock.acquire(blocking=False):
            try:
                done = self._try(of) == []
            finally:
                self._lock.release()
            if done:
                of.owner = None
                return
        self._dropped.append(of)
        if self._ended and not self._lock.locked():  # the device's own thread is no more
            self.collect()
        self._device._wakers.own.kick()

    def freed(self, ref: GpuRef) -> None:
        """Take note that a handle has freed an import."""
        name = ref.allocation.keep
        if isinstance(name, _Name):
            self._dropped.append(name.of)
            self._device._wakers.own.kick()

    def nudge(self) -> None:
        """Have the device's own thread look again, if there is anything to look for.  Never waits."""
        if self._dropped or self.segments.pending:
            self._device._wakers.own.kick()

    def collect(self) -> None:
        """Let go of producers whose memory nothing uses any more.  Runs their destructors; waits for nothing."""
        again = True
        while again:
            gone, open_ = self._sweep()
            again = False
            for candidate, use in open_:
                if candidate.awaited != use:
                    candidate.awaited = use
                    again |= not self._device._wakers.kick_when_resolved(*use)
            for item in gone:
                self._release(item)
            del gone, open_
        self.segments.tidy()

    def _sweep(self) -> tuple[list[_Import], list[tuple[_Import, tuple[int, int]]]]:
        gone, open_ = [], []
        with self._lock:
            epoch, over = self._core.epoch, self._core.state in (LOST, CLOSED)
            candidates: list[_Import] = []
            if over or epoch != self._swept:  # all of these are stale by now
                candidates = [i for i in self._imports if over or i.epoch != epoch]
                self._swept = epoch
            for _ in range(len(self._dropped)):
                candidates.append(self._dropped.popleft())
            for candidate in dict.fromkeys(candidates):
                uses = self._try(candidate)
                if uses == []:
                    gone.append(candidate)
                elif uses:
                    open_.append((candidate, uses[0]))
                wanted = candidate.named and candidate.epoch == epoch and not over
                if uses or (candidate in self._imports and not wanted):  # else it is lent
                    self._dropped.append(candidate)
        return gone, open_

    def _release(self, gone: _Import) -> None:
        """Drop the owner: at once, or when the worker has closed a mapping that nobody uses any more."""
        owner, gone.owner = gone.owner, None
        self.segments.unpin(gone.mapping, owner)
        del owner

    def close(self, *, left_behind: bool) -> None:
        """Let go of everything, since no worker is there any more; unless a worker was `left_behind`, which hangs."""
        if left_behind:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._imports))  # for good: it may outlive this interpreter
        else:
            self._ended = True
            self.collect()


def _layout(source: Source) -> Any:
    return layout_from(source.shape, source.strides, dtype_name(source.dtype))


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _has_memory(x: Any) -> bool:
    """Say whether an object shows memory, rather than making an array when it is asked for one."""
    if isinstance(x, bool | int | float | complex | list | tuple | np.generic):
        return False
    if isinstance(x, np.ndarray) or hasattr(x, "__dlpack__") or hasattr(x, "__array_interface__"):
        return True
    with contextlib.suppress(TypeError):
        memoryview(x)
        return True
    return False
