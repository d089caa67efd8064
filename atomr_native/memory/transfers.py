"""Copies between arrays of this process and a device: small, in one piece, or pipelined through staging memory.

The CPU writes staging memory without a ticket, so a piece is reused only when the message that uses it is resolved.  To
other messages a copy must look like one message.  So a large `put` writes memory that no other message knows yet, and a
large `get` that a writer has overtaken begins again, from a copy on the device.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .._lib.copies import COPY, FRESH, HostCopy, SmallCopies
from .._lib.sender import DURABLE, STAGING, VOLATILE, Layout
from ..arrays.gpu_ref import GpuRef, settle
from ..arrays.layout import layout_of
from ..errors import DeviceLost, GpuRefStale, InvalidRequest, OutOfMemory
from ..libraries.memory.attributes import CopyAttributes
from ..plans.signature import Signature
from ..plans.spec import HOST, OVERWRITE, READ, WRITE, OperandSpec, PlanSpec
from .accepting import SAME_KIND, accept
from .pacing import Pace
from .staging import (
    Allocate,
    Arrival,
    Call,
    Finish,
    LongArrival,
    Piece,
    Room,
    Send,
    SendBytes,
    Steps,
    Window,
    drive,
    drive_async,
)

if TYPE_CHECKING:
    from ..plans.plan import Plan
    from ..plans.reply import Reply
    from .device_memory import DeviceMemory

__all__ = ["Transfers", "check_ref"]

SMALL = 64 << 10  # bytes up to which one native call does the whole copy
PIPELINE = 4 << 20  # minimum bytes of an array that is cut into pieces
PIECE = 8 << 20  # bytes of the largest piece: 150 us of a fast link, compared with a few us for a message
SMALLEST_PIECE = 1 << 20
PIECES = 8  # minimum number of pieces of an array, if they are not too small
WINDOW = 6  # pieces of staging memory in use by all copies of a device; one segment is enough for them
_FEW = 2  # pieces in work on the CPU, so its threads need not wait for each other

_BYTE = np.dtype(np.uint8)


class _Overtaken(Exception):
    """A writer ran between the pieces of a get."""


class Transfers:
    """The implementation of `Device.put` and `Device.get`.

    Parameters
    ----------
    memory : DeviceMemory
        The memory actor, whose mailbox the copies use.
    """

    def __init__(self, memory: DeviceMemory) -> None:
        self._memory = memory
        self._core = memory.owner.core
        self.window = Window(self._core, WINDOW)
        self.small = SmallCopies(self._core, GpuRef, np.ndarray, np.empty, settle, SMALL)
        self._paces = Pace(self._core), Pace(self._core)  # to the device, and to the host

    @cached_property
    def plans(self) -> tuple[Plan, Plan]:
        """Plans that copy bytes, to the device and to shared memory."""
        return self._plan(WRITE | OVERWRITE, staged=True), self._plan(WRITE | OVERWRITE | HOST, staged=True)

    @cached_property
    def within(self) -> Plan:
        """The plan that copies bytes within the device's memory."""
        return self._plan(WRITE | OVERWRITE, staged=False)

    def _plan(self, access: int, *, staged: bool) -> Plan:
        operands = tuple(
            OperandSpec(name, "uint8", (1,), (1,), use) for name, use in (("source", READ), ("out", access))
        )
        spec = PlanSpec("memory.copy", operands, ("int64",), CopyAttributes(raw=True, staged=staged))
        signature = Signature(("source", "out"), ("source",), ("out",), ("nbytes",), (None,))
        return self._memory.plan_of(spec, signature, any_layout=True)

    def _check(self, ref: GpuRef) -> None:
        """Refuse objects that are not handles of this device."""
        check_ref(ref)
        if ref.allocation.core is not self._core:
            raise InvalidRequest(
                f"{ref!r} lives on another device or in another System than this {self._memory.device!r}; "
                f"device.copy(ref) makes a copy on this one"
            )
        ref.allocation.refuse_gone()

    # ---- put

    def put(
        self, array: object, dtype: object, out: GpuRef | None, pool: int, casting: str = SAME_KIND, *, blocking: bool
    ) -> GpuRef:
        """Copy an array of this process to the device; see `Device.put`."""
        # What is small needs no cast; a rule that is not the default is looked at in any case.
        found: GpuRef | None = self.small.put(array, dtype, out, pool) if casting is SAME_KIND else None
        return found if found is not None else drive(self._put(array, dtype, out, pool, casting, blocking=blocking))

    async def put_async(
        self, array: object, dtype: object, out: GpuRef | None, pool: int, casting: str = SAME_KIND
    ) -> GpuRef:
        """Copy an array of this process to the device; see `Device.put_async`."""
        return await drive_async(self._put(array, dtype, out, pool, casting, blocking=True))

    def _put(
        self, array: object, dtype: object, out: GpuRef | None, pool: int, casting: str, *, blocking: bool
    ) -> Steps[GpuRef]:
        if out is not None:
            self._check(out)
        host, target = accept(array, dtype, out, casting)
        layout = layout_of(host.shape, target)
        shared = self._memory.shared(host) if host.dtype == target else None
        if shared is None and layout.nbytes >= PIPELINE:
            return (yield from self._put_pieces(host, layout, out, pool))
        made = out if out is not None else (yield Allocate(self._memory, layout, pool))
        if shared is not None:
            if blocking:
                self._core.refuse_recording("waiting for the device to read a host_array (blocking=False does not)")
            began = time.monotonic()
            reply = yield self._copy(shared, made, want_reply=blocking)
            if blocking:
                yield self._arrival(reply, layout.nbytes, began, self._paces[0])
                reply.result()
            return made
        yield from self._put_whole(host, layout, made)
        self.small.learn(layout, *self.plans)
        return made

    def _put_whole(self, host: np.ndarray[Any, Any], layout: Layout, made: GpuRef) -> Steps[None]:
        """Put by one message."""
        staging = yield Allocate(self._memory, layout, STAGING)
        job = self._stage(host, layout, staging, 0, layout.nbytes, ())
        yield Finish(self._memory, job) if isinstance(job, HostCopy) else job
        yield self._copy(staging, made, want_reply=False)

    def _put_pieces(self, host: np.ndarray[Any, Any], layout: Layout, out: GpuRef | None, pool: int) -> Steps[GpuRef]:
        """Put by several messages, to memory that no other message knows until it is complete."""
        if out is not None:
            pool = DURABLE if out.durable else VOLATILE  # it survives the same events as `out`
            if not self._memory.segments.has_room(pool, layout.nbytes):
                yield from self._put_whole(host, layout, out)
                return out
        try:
            made: GpuRef = yield Allocate(self._memory, layout, pool)
        except OutOfMemory:  # another allocation was faster, or the device has less than it reports
            if out is None:
                raise
            yield from self._put_whole(host, layout, out)
            return out
        yield from self._send_pieces(host, layout, made)
        if out is None:
            return made
        yield self._copy(made, out, want_reply=False)
        return out

    def _send_pieces(self, host: np.ndarray[Any, Any], layout: Layout, made: GpuRef) -> Steps[None]:
        whole = bool(host.flags.c_contiguous) and host.dtype == layout.dtype
        limit = self._memory.owner.timeout
        staged: deque[tuple[Piece, HostCopy | None, int, int]] = deque()
        piece = job = None
        try:
            for at, nbytes, index in _pieces(layout, whole):
                while (piece := self.window.take(first=not staged)) is None:
                    if not staged:
                        piece = yield Room(self._memory, self.window, limit)
                        break
                    yield from self._send_staged(staged, made)
                piece.ref = yield Allocate(self._memory, layout_of((nbytes,), _BYTE), STAGING)
                job = self._stage(host, layout, piece.ref, at, nbytes, index)
                staged.append((piece, job if isinstance(job, HostCopy) else None, at, nbytes))
                if isinstance(job, Call):
                    yield job
                job = None  # it keeps memory
                while len(staged) >= _FEW:
                    yield from self._send_staged(staged, made)
            while staged:
                yield from self._send_staged(staged, made)
        finally:
            _give_up(job for _, job, _, _ in staged)
            _put_back(piece, *(each for each, _, _, _ in staged))
            staged.clear()
            piece = job = None

    def _send_staged(self, staged: deque[tuple[Piece, HostCopy | None, int, int]], made: GpuRef) -> Steps[None]:
        """Send the oldest piece."""
        piece, job, at, nbytes = staged[0]
        if job is not None:
            yield Finish(self._memory, job)
        plan = self.plans[0]
        ticket = yield SendBytes(plan, piece.ref, 0, made, at, nbytes, want_reply=False)
        piece.sent(plan.lane, ticket)
        piece.put_back()
        staged.popleft()

    def _stage(
        self, host: np.ndarray[Any, Any], layout: Layout, piece: GpuRef, at: int, nbytes: int, index: tuple[Any, ...]
    ) -> HostCopy | Call:
        """Write part of an array to staging memory; return the started copy, or the work to do."""
        if host.dtype == layout.dtype and host.flags.c_contiguous:
            return HostCopy(COPY, piece.allocation.address, _address_of(host) + at, nbytes, (host, piece))
        source = host[index] if index else host
        target = self._memory.host_view(piece, layout_of(source.shape, layout.dtype))

        def convert() -> None:
            with np.errstate(all="ignore"):
                np.copyto(target, source, casting="unsafe")

        return Call(self._memory, convert)

    def _copy(self, source: GpuRef, target: GpuRef, *, want_reply: bool) -> Send:
        plan, scalars = self._memory.copy_plan(source, target)
        return Send(plan, (source, target), scalars, want_reply=want_reply)

    # ---- get

    def get(self, ref: GpuRef, out: np.ndarray[Any, Any] | None, timeout: float | None) -> np.ndarray[Any, Any]:
        """Copy to a NumPy array, and wait for it; see `Device.get`."""
        found: np.ndarray[Any, Any] | None = self.small.get(ref, out, timeout)
        return found if found is not None else drive(self._get(ref, out), timeout)

    async def get_async(self, ref: GpuRef, out: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any]:
        """Copy to a NumPy array without blocking the event loop; see `Device.get_async`."""
        return await drive_async(self._get(ref, out))

    def get_into(self, ref: GpuRef, out: np.ndarray[Any, Any]) -> Reply:
        """Enqueue a copy into a host array; see `Device.get_into`."""
        self._check(ref)
        shared = self._memory.shared(_check_out(ref, out))
        if not ref.size:
            return cast("Reply", self._memory.probe_plan.send((ref,), (), True, out))
        if shared is None:
            raise InvalidRequest(
                f"get_into copies to a host_array of this device, or a view of one whose strides are multiples of the "
                f"element from 0 on, not to other memory with strides {list(out.strides)}; use get or get_async"
            )
        plan, scalars = self._memory.copy_plan(ref, shared)
        return cast("Reply", plan.send((ref, shared), scalars, True, out))

    def _get(self, ref: GpuRef, out: np.ndarray[Any, Any] | None) -> Steps[np.ndarray[Any, Any]]:
        self._check(ref)
        if out is not None:
            shared = self._memory.shared(_check_out(ref, out))
            if shared is not None:
                began = time.monotonic()
                reply = yield self._ask(ref, shared)
                yield self._arrival(reply, ref.nbytes, began, self._paces[1])
                settle(reply)
                return out
        array = np.empty(ref.shape, ref.dtype) if out is None else out
        kind = FRESH if out is None and ref.nbytes >= PIPELINE else COPY
        if ref.nbytes < PIPELINE:
            yield from self._get_whole(ref, array, kind)
        else:
            yield from self._get_large(ref, array, kind)
        self.small.learn(ref.layout, *self.plans)
        return array

    @staticmethod
    def _arrival(reply: Reply, nbytes: int, began: float, pace: Pace) -> Arrival:
        """Return the wait for a copy by one message."""
        return Arrival(reply) if nbytes < PIPELINE else LongArrival(reply, pace, nbytes, began)

    def _ask(self, ref: GpuRef, shared: GpuRef) -> Send | SendBytes:
        """Send a copy to shared memory, with a reply."""
        if ref.layout.contiguous and shared.layout.contiguous:
            return SendBytes(self.plans[1], ref, 0, shared, 0, ref.nbytes, want_reply=True)
        return self._copy(ref, shared, want_reply=True)

    def _get_whole(self, ref: GpuRef, array: np.ndarray[Any, Any], kind: int) -> Steps[None]:
        """Get by one message."""
        staging = yield Allocate(self._memory, layout_of(ref.shape, ref.dtype), STAGING)
        reply = yield self._ask(ref, staging)
        yield Arrival(reply)
        settle(reply)
        job = self._land(array, kind, staging, 0, ref.nbytes, ())
        yield Finish(self._memory, job) if isinstance(job, HostCopy) else job

    def _get_large(self, ref: GpuRef, array: np.ndarray[Any, Any], kind: int) -> Steps[None]:
        if ref.layout.contiguous:
            with contextlib.suppress(_Overtaken):
                yield from self._get_pieces(ref, array, kind, shared=True)
                return
        layout = layout_of(ref.shape, ref.dtype)
        while self._memory.segments.has_room(VOLATILE, layout.nbytes):
            try:
                taken = yield Allocate(self._memory, layout, VOLATILE)
            except OutOfMemory:  # another allocation was faster, or the device has less than it reports
                break
            try:
                # Its reply is kept: the pieces report its failure as well.
                _reply = yield self._copy(ref, taken, want_reply=True)
                yield from self._get_pieces(taken, array, kind, shared=False)
                return
            except GpuRefStale:
                if not ref.valid:
                    raise
                # A restart took the copy, and `ref` has survived it.
        yield from self._get_whole(ref, array, kind)

    def _get_pieces(self, ref: GpuRef, array: np.ndarray[Any, Any], kind: int, *, shared: bool) -> Steps[None]:
        """Get by several messages.  If other messages may write `ref`, raise `_Overtaken` when one did."""
        plan = self.plans[1]
        version = self._version(ref) if shared else None
        asked: deque[tuple[Piece, Reply, int, int, tuple[Any, ...]]] = deque()
        landing: deque[tuple[Piece, HostCopy]] = deque()
        pieces = _pieces(ref.layout, bool(array.flags.c_contiguous))
        following = next(pieces, None)
        piece = reply = job = None
        try:
            while following or asked or landing:
                while following:
                    piece = self.window.take(first=not asked and not landing)
                    if piece is None:
                        if asked or landing:
                            break
                        piece = yield Room(self._memory, self.window)
                    at, nbytes, index = following
                    piece.ref = yield Allocate(self._memory, layout_of((nbytes,), _BYTE), STAGING)
                    reply = yield SendBytes(plan, ref, at, piece.ref, 0, nbytes, want_reply=True)
                    piece.sent(reply.lane, reply.ticket, reply)
                    asked.append((piece, reply, at, nbytes, index))
                    following = next(pieces, None)
                    if following is None and shared and self._version(ref) != version:
                        raise _Overtaken
                if asked:
                    piece, reply, at, nbytes, index = asked.popleft()
                    piece.sent(reply.lane, reply.ticket)  # from here on its failure is reported, or is a dead letter
                    yield Arrival(reply)
                    piece.arrived()
                    settle(reply)
                    job = self._land(array, kind, piece.ref, at, nbytes, index)
                    if isinstance(job, HostCopy):
                        landing.append((piece, job))
                    else:
                        yield job
                        piece.put_back()
                piece = reply = job = None  # they keep memory
                while landing and (len(landing) >= _FEW or not asked):
                    yield Finish(self._memory, landing[0][1])
                    landing.popleft()[0].put_back()
        finally:
            _give_up(job for _, job in landing)
            _put_back(piece, *(each for each, _ in landing), *(each for each, _, _, _, _ in asked))
            asked.clear()
            landing.clear()
            piece = reply = job = None

    def _version(self, ref: GpuRef) -> tuple[int, int, int]:
        """Return a value that changes when a message writes the allocation, or the device restarts."""
        return (self._core.epoch, *ref.allocation.last_write())

    def _land(
        self, array: np.ndarray[Any, Any], kind: int, staging: GpuRef, at: int, nbytes: int, index: tuple[Any, ...]
    ) -> HostCopy | Call:
        """Read part of an array from staging memory; return the started copy, or the work to do."""
        if array.flags.c_contiguous:
            return HostCopy(kind, _address_of(array) + at, staging.allocation.address, nbytes, (array, staging))
        target = array[index] if index else array
        source = self._memory.host_view(staging, layout_of(target.shape, array.dtype))
        return Call(self._memory, lambda: np.copyto(target, source))


def _give_up(jobs: Iterable[HostCopy | None]) -> None:
    """End copies in host memory that is about to be reused."""
    for job in jobs:
        if job is not None:
            with contextlib.suppress(DeviceLost):
                job.finish()


def _put_back(*pieces: Piece | None) -> None:
    for piece in pieces:
        if piece is not None:
            piece.put_back()


def _address_of(array: np.ndarray[Any, Any]) -> int:
    """Return the address of the first element."""
    address: int = array.__array_interface__["data"][0]
    return address


def _piece_bytes(nbytes: int) -> int:
    return min(PIECE, max(SMALLEST_PIECE, -(-nbytes // PIECES // SMALLEST_PIECE) * SMALLEST_PIECE))


def _pieces(layout: Layout, whole: bool) -> Iterator[tuple[int, int, tuple[Any, ...]]]:
    """Yield (first byte, bytes, index) of each piece of an array, in row-major order; no index if it is contiguous."""
    most = _piece_bytes(layout.nbytes)
    if whole:
        for at in range(0, layout.nbytes, most):
            yield at, min(most, layout.nbytes - at), ()
        return
    row, axis = layout.nbytes // layout.shape[0], 0  # bytes below one index of the axis
    while row > most and axis + 1 < len(layout.shape):
        axis += 1
        row //= layout.shape[axis]
    step, extent, at = max(1, most // row), layout.shape[axis], 0
    for outer in np.ndindex(layout.shape[:axis]):
        for first in range(0, extent, step):
            n = min(step, extent - first)
            yield at, n * row, (*outer, slice(first, first + n))
            at += n * row


def _check_out(ref: GpuRef, out: object) -> np.ndarray[Any, Any]:
    if not isinstance(out, np.ndarray) or out.shape != ref.shape or out.dtype != ref.dtype:
        what = f"{out.dtype}{list(out.shape)}" if isinstance(out, np.ndarray) else type(out).__name__
        raise InvalidRequest(f"out is {what}; it must be a NumPy array of {ref.layout!r}")
    if not out.flags.writeable:
        raise InvalidRequest("out is read-only; it must be a writable NumPy array")
    return out


def check_ref(ref: object) -> None:
    """Refuse objects that are not handles."""
    if not isinstance(ref, GpuRef):
        raise InvalidRequest(f"expected a GpuRef, got {type(ref).__name__}; device.put() makes one from an array")
