"""The memory of a device: segments, allocation, copies on the device, memory shared with the program."""

from __future__ import annotations

import bisect
import weakref
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from .._lib.copies import ZERO, HostCopy
from .._lib.dlpack import array_at
from .._lib.guard import Lock, shielded
from .._lib.sender import STAGING, VOLATILE, Allocation, CallForm, Layout
from .._support.threads import WaitPool
from ..arrays.gpu_ref import GpuRef
from ..arrays.layout import as_shape, layout_from, layout_of
from ..arrays.operands import check_disjoint
from ..dtypes import as_dtype, dtype_name
from ..errors import InvalidRequest
from ..libraries.memory import spec as memory_ops
from ..plans.actor import LibraryActor
from ..plans.calls import LoweredCall, NewArray
from ..plans.plan import Plan
from ..plans.spec import OVERWRITE, READ, WRITE, OperandSpec, PlanSpec
from .segments import MemorySegments
from .transfers import Transfers, check_ref

if TYPE_CHECKING:
    from ..plans.reply import Reply
    from ..plans.signature import Signature
    from .owner import MemoryOwner

__all__ = ["DeviceMemory"]

_ASIDE = 8  # coroutines that convert arrays or create segments at the same time


class _Fill(NamedTuple):
    out: GpuRef


class _Copy(NamedTuple):
    source: GpuRef
    out: GpuRef | None
    dtype: object
    host: bool  # whether the CPU writes the memory of `out`, too
    nbytes: int  # bytes of the source


_FILL: Final = CallForm(lambda values: _Fill(values[0]), tuple, ("out",), b"a", (None,), b"n")
_COPY: Final = CallForm(_Copy._make, tuple, _Copy._fields, b"aaoon", (None, None, None, False, 0))


class DeviceMemory(LibraryActor):
    """The device's own actor: it owns the segments, and serves put, get, copy and fill.

    Parameters
    ----------
    owner : MemoryOwner
        The device.
    limit : int
        Maximum bytes of volatile and durable segments in total.
    """

    def __init__(self, owner: MemoryOwner, limit: int) -> None:
        super().__init__(owner.device, "memory")
        self._core = owner.core
        self.segments = MemorySegments(owner, limit)
        self._core.grow = self.segments.grow
        self._hosts_lock = Lock(leaf=True)  # of writers
        #: Live host arrays, by the sorted addresses of their first bytes; replaced as a whole.
        self._hosts: tuple[list[int], list[weakref.ref[GpuRef]]] = [], []
        self._probe: Plan | None = None
        self._clear: Plan | None = None
        self.wait_pool = WaitPool(f"atomr_native-{owner.name}-copies", _ASIDE)
        self.transfers = Transfers(self)

    @property
    def limit(self) -> int:
        """Maximum bytes of volatile and durable segments in total."""
        return self.segments.limit

    def plan_of(self, spec: PlanSpec, signature: Signature, *, any_layout: bool = False) -> Plan:
        """Return the plan of a specification, for this actor's mailbox."""
        return self._plan(spec, signature, any_layout=any_layout)

    def close(self) -> None:
        """Close the descriptors.  Memory that other code still holds stays mapped until it is released."""
        self.wait_pool.close()
        self.segments.close()

    def abandon(self) -> None:
        """In a forked child: as `close`."""
        self.wait_pool.abandon()
        self.close()

    # ---- small messages

    def _noop(self, names: tuple[str, ...], access: int) -> Plan:
        spec = PlanSpec(
            "noop", tuple(OperandSpec(name, "uint8", (1,), (1,), access) for name in names),
        )  # fmt: skip
        return self._plan(spec, any_layout=True)

    @property
    def probe_plan(self) -> Plan:
        """The plan of a message whose only effect is to depend on its operand."""
        if self._probe is None:
            self._probe = self._noop(("ref",), READ)
        return self._probe

    def probe(self, ref: GpuRef) -> Reply:
        """Send a message whose only effect is to depend on `ref`."""
        return self.probe_plan.ask(ref)

    async def probe_async(self, ref: GpuRef) -> Reply:
        """Like `probe`, but await room in the mailbox."""
        return await self.probe_plan.send_async(ref)

    def clear_error(self, ref: GpuRef) -> None:
        """Clear poison and torn marks of the allocation of `ref`."""
        if self._clear is None:
            self._clear = self._noop(("ref",), WRITE | OVERWRITE)
        if ref.allocation.status() in ("torn", "rolled back"):
            ref.allocation.untear()
        whole = ref.view_as(layout_of((ref.allocation.nbytes,), np.dtype(np.uint8)), 0)
        self._clear.tell(whole.declared())

    def copy_plan(self, source: GpuRef, target: GpuRef | Layout) -> tuple[Plan, tuple[int, ...]]:
        """Return the plan of a copy and its scalars (none, or the bytes); a Layout stands for a new array."""
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
        """Allocate an uninitialised array."""
        return self.new(layout_of(as_shape(shape), as_dtype(dtype)), pool)

    def new(self, layout: Layout, pool: int) -> GpuRef:
        """Allocate memory for a layout."""
        return self._core.empty(GpuRef, layout, pool)

    def fill(self, ref: GpuRef, value: complex) -> GpuRef:
        """Send a fill."""
        check_ref(ref)
        made: GpuRef = self._calls.send(self, _FILL, (ref, *memory_ops.fill_scalars(ref.layout.dtype, value)))
        return made

    def put(self, array: object, dtype: object, out: GpuRef | None, pool: int) -> GpuRef:
        """Copy an array of this process, with any cast, and wait until the array may change."""
        return self.transfers.put(array, dtype, out, pool, "unsafe", blocking=True)

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

    def _lower(self, request: _Fill | _Copy) -> LoweredCall:
        if isinstance(request, _Fill):
            plan = self._plan(memory_ops.fill_spec(request.out))
            return LoweredCall(plan, (request.out,), request.out, tuple(range(1, 1 + len(plan.spec.scalars))))
        source, out, dtype, *_ = request
        target = source.dtype if dtype is None else as_dtype(dtype)
        if out is not None and dtype is not None and target != out.dtype:
            raise InvalidRequest(f"dtype {dtype_name(target)} and an out of {out.layout!r}; give one of them")
        fresh = layout_of(source.shape, target)
        plan, scalars = self.copy_plan(source, fresh if out is None else out)
        result = NewArray(fresh) if out is None else out
        return LoweredCall(plan, (source, result), result, ("nbytes",) if scalars else ())

    # ---- memory shared with the program

    def host_view(self, ref: GpuRef, layout: Layout) -> np.ndarray[Any, Any]:
        """Return an array with a layout over shared memory, from the first byte of `ref` on."""
        return array_at(ref, ref.allocation.address + ref.offset, layout.shape, layout.strides, layout.dtype)

    def host_array(self, shape: object, dtype: object) -> np.ndarray[Any, Any]:
        """Return a NumPy array in memory that the device reads and writes directly."""
        ref = self.new(layout_of(as_shape(shape), as_dtype(dtype)), STAGING)
        HostCopy(ZERO, ref.allocation.address, 0, ref.nbytes, ref).finish()
        self._note_host(ref)
        return self.host_view(ref, ref.layout)

    @shielded
    def _note_host(self, ref: GpuRef) -> None:
        with self._hosts_lock:
            known = {start: name for start, name in zip(*self._hosts, strict=True) if name() is not None}
            known[ref.allocation.address] = weakref.ref(ref)
            starts = sorted(known)
            self._hosts = starts, [known[start] for start in starts]

    def is_host_array(self, allocation: Allocation) -> bool:
        """Return whether memory is that of a host array, and not of a copy that is under way."""
        starts, names = self._hosts
        at = bisect.bisect_left(starts, allocation.address)
        owner = names[at]() if at < len(starts) else None
        return owner is not None and owner.allocation is allocation

    def shared(self, array: np.ndarray[Any, Any]) -> GpuRef | None:
        """Return a handle for an array inside a host array of this device, or None."""
        itemsize = array.dtype.itemsize
        starts, names = self._hosts
        if not starts or array.size == 0 or any(s < 0 or s % itemsize for s in array.strides):
            return None
        first = array.__array_interface__["data"][0]
        at = bisect.bisect_right(starts, first) - 1
        owner = names[at]() if at >= 0 else None
        if owner is None or first - starts[at] >= owner.allocation.nbytes:
            return None
        layout = layout_from(array.shape, array.strides, dtype_name(array.dtype))
        return owner.view_as(layout, first - owner.allocation.address)
