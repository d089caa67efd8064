"""Copies between arrays of this process and a device: small, in one piece, or pipelined through staging memory.

The processor writes staging memory without a ticket, so a piece of it is used again only when the message that was
given it is resolved.  Whoever uses an array meanwhile must see a copy as one message: a large `put` therefore writes
memory that nobody else knows yet, and a large `get` that was overtaken by a writer begins anew, from a copy on the
device.
"""

from __future__ import annotations

import contextlib
import reprlib
import time
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ._lib.copies import COPY, FRESH, HostCopy, SmallCopies
from ._lib.sender import DURABLE, STAGING, VOLATILE, Layout
from ._pace import Pace
from ._signature import Signature
from ._staging import (
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
from .dtypes import DTYPES, as_dtype, dtype_name
from .errors import DeviceLost, GpuRefStale, InvalidRequest, OutOfMemory
from .gpu_ref import GpuRef, layout_of
from .interop import view_as_numpy
from .plan_spec import HOST, OVERWRITE, READ, WRITE, OperandSpec, PlanSpec

if TYPE_CHECKING:
    from .memory import DeviceMemory
    from .plan import Plan
    from .reply import Reply

__all__ = ["Transfers", "check_ref"]

SMALL = 64 << 10  # bytes up to which one native call does it all
PIPELINE = 4 << 20  # bytes from which on an array is cut into pieces
PIECE = 8 << 20  # bytes of the largest piece: 150 us of a fast link, against some us for a message
SMALLEST_PIECE = 1 << 20
PIECES = 8  # an array is cut into so many at least, if they are not too small
WINDOW = 6  # pieces of staging memory in use at once, by all copies of a device: so that one segment is enough
_FEW = 2  # pieces that the processor works at, so that its threads need not wait for each other

_BYTE = np.dtype(np.uint8)
_KNOWN = frozenset(DTYPES.values())
_PLAIN = (bool, int, float, complex, list, tuple)  # without a type of their own


class _Overtaken(Exception):
    """A writer came between the pieces of a get."""


class Transfers:
    """What `Device.put` and `Device.get` do.

    Parameters
    ----------
    memory : DeviceMemory
        Whose memory, and through whose mailbox.
    """

    def __init__(self, memory: DeviceMemory) -> None:
        self._memory = memory
        self._core = memory._core
        self.window = Window(self._core, WINDOW)
        self.small = SmallCopies(self._core, GpuRef, np.ndarray, np.empty, SMALL)
        self._paces = Pace(self._core), Pace(self._core)  # to the device, and to the host

    @cached_property
    def plans(self) -> tuple[Plan, Plan]:
        """Plans that copy bytes, to the device and to memory that the host sees."""
        return self._plan(WRITE | OVERWRITE, staged=True), self._plan(WRITE | OVERWRITE | HOST, staged=True)

    @cached_property
    def within(self) -> Plan:
        """The plan that copies bytes within the device's memory."""
        return self._plan(WRITE | OVERWRITE, staged=False)

    def _plan(self, access: int, *, staged: bool) -> Plan:
        operands = tuple(
            OperandSpec(name, "uint8", (1,), (1,), use) for name, use in (("source", READ), ("out", access))
        )
        spec = PlanSpec("memory.copy", operands, ("int64",), (("raw", True), ("staged", staged)))
        signature = Signature(("source", "out"), ("source",), ("out",), ("nbytes",), (None,))
        return self._memory._plan(spec, signature, any_layout=True)

    def _check(self, ref: GpuRef) -> None:
        """Refuse what is no handle of this device."""
        check_ref(ref)
        if ref.allocation.core is not self._core:
            raise InvalidRequest(
                f"{ref!r} lives on another device or in another System than this {self._memory.device!r}; "
                f"device.copy(ref) makes a copy on this one"
            )

    # ---- put

    def put(self, array: object, dtype: object, out: GpuRef | None, pool: int, *, blocking: bool) -> GpuRef:
        """Copy an array of this process to the device; see `Device.put`."""
        found: GpuRef | None = self.small.put(array, dtype, out, pool)
        return found if found is not None else drive(self._put(array, dtype, out, pool, blocking=blocking))

    async def put_async(self, array: object, dtype: object, out: GpuRef | None, pool: int) -> GpuRef:
        """Copy an array of this process to the device; see `Device.put_async`."""
        return await drive_async(self._put(array, dtype, out, pool, blocking=True))

    def _put(self, array: object, dtype: object, out: GpuRef | None, pool: int, *, blocking: bool) -> Steps[GpuRef]:
        if out is not None:
            self._check(out)
        host, target = _accept(array, dtype, out)
        layout = layout_of(host.shape, target)
        shared = self._memory._shared(host) if host.dtype == target else None
        if shared is None and layout.nbytes >= PIPELINE:
            return (yield from self._put_pieces(host, layout, out, pool))
        made = out if out is not None else (yield Allocate(self._memory, layout, pool))
        if shared is not None:
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
        """Put by several messages, to memory that is not known to anybody else until it is complete."""
        if out is not None:
            pool = DURABLE if out.durable else VOLATILE  # it survives whatever `out` survives
            if not self._memory.has_room(pool, layout.nbytes):
                yield from self._put_whole(host, layout, out)
                return out
        try:
            made: GpuRef = yield Allocate(self._memory, layout, pool)
        except OutOfMemory:  # somebody else was faster, or the device has less than it says
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
        limit = self._memory.device.system.config.timeout
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
        """Write part of an array to staging memory: a copy that has begun, or work to be done."""
        if host.dtype == layout.dtype and host.flags.c_contiguous:
            return HostCopy(COPY, piece.allocation.address, _address_of(host) + at, nbytes, (host, piece))
        source = host[index] if index else host
        target = self._memory.host_view(piece, layout_of(source.shape, layout.dtype))

        def convert() -> None:
            with np.errstate(all="ignore"):
                np.copyto(target, source, casting="unsafe")

        return Call(self._memory, convert)

    def _copy(self, source: GpuRef, target: GpuRef, *, want_reply: bool) -> Send:
        plan, scalars = self._memory._copy_plan(source, target)
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
        shared = self._memory._shared(_check_out(ref, out))
        if not ref.size:
            return cast("Reply", self._memory._probe_plan.send((ref,), (), True, out))
        if shared is None:
            raise InvalidRequest(
                f"get_into copies to a host_array of this device, or a view of one whose strides are multiples of the "
                f"element from 0 on, not to other memory with strides {list(out.strides)}; use get or get_async"
            )
        plan, scalars = self._memory._copy_plan(ref, shared)
        return cast("Reply", plan.send((ref, shared), scalars, True, out))

    def _get(self, ref: GpuRef, out: np.ndarray[Any, Any] | None) -> Steps[np.ndarray[Any, Any]]:
        self._check(ref)
        if out is not None:
            shared = self._memory._shared(_check_out(ref, out))
            if shared is not None:
                began = time.monotonic()
                reply = yield self._ask(ref, shared)
                yield self._arrival(reply, ref.nbytes, began, self._paces[1])
                ref._settle(reply)
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
        """Send a copy to memory that the host sees, with a reply."""
        if ref.layout.contiguous and shared.layout.contiguous:
            return SendBytes(self.plans[1], ref, 0, shared, 0, ref.nbytes, want_reply=True)
        return self._copy(ref, shared, want_reply=True)

    def _get_whole(self, ref: GpuRef, array: np.ndarray[Any, Any], kind: int) -> Steps[None]:
        """Get by one message."""
        staging = yield Allocate(self._memory, layout_of(ref.shape, ref.dtype), STAGING)
        reply = yield self._ask(ref, staging)
        yield Arrival(reply)
        ref._settle(reply)
        job = self._land(array, kind, staging, 0, ref.nbytes, ())
        yield Finish(self._memory, job) if isinstance(job, HostCopy) else job

    def _get_large(self, ref: GpuRef, array: np.ndarray[Any, Any], kind: int) -> Steps[None]:
        if ref.layout.contiguous:
            with contextlib.suppress(_Overtaken):
                yield from self._get_pieces(ref, array, kind, shared=True)
                return
        layout = layout_of(ref.shape, ref.dtype)
        while self._memory.has_room(VOLATILE, layout.nbytes):
            try:
                taken = yield Allocate(self._memory, layout, VOLATILE)
            except OutOfMemory:  # somebody else was faster, or the device has less than it says
                break
            try:
                # Its reply is kept, since what it may say is said by the pieces as well.
                _reply = yield self._copy(ref, taken, want_reply=True)
                yield from self._get_pieces(taken, array, kind, shared=False)
                return
            except GpuRefStale:
                if not ref.valid:
                    raise
                # A restart took the copy, and `ref` has survived it.
        yield from self._get_whole(ref, array, kind)

    def _get_pieces(self, ref: GpuRef, array: np.ndarray[Any, Any], kind: int, *, shared: bool) -> Steps[None]:
        """Get by several messages.  If others may write `ref`, raises `_Overtaken` when one did meanwhile."""
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
                    piece.sent(reply.lane, reply.ticket)  # from here on its failure is told, or a dead letter
                    yield Arrival(reply)
                    piece.arrived()
                    ref._settle(reply)
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
        """Return what changes when anybody sends a message that writes the allocation, or the device restarts."""
        return (self._core.epoch, *ref.allocation.last_write())

    def _land(
        self, array: np.ndarray[Any, Any], kind: int, staging: GpuRef, at: int, nbytes: int, index: tuple[Any, ...]
    ) -> HostCopy | Call:
        """Read part of an array from staging memory: a copy that has begun, or work to be done."""
        if array.flags.c_contiguous:
            return HostCopy(kind, _address_of(array) + at, staging.allocation.address, nbytes, (array, staging))
        target = array[index] if index else array
        source = self._memory.host_view(staging, layout_of(target.shape, array.dtype))
        return Call(self._memory, lambda: np.copyto(target, source))


def _give_up(jobs: Iterable[HostCopy | None]) -> None:
    """End copies in host memory, which is about to be used for something else."""
    for job in jobs:
        if job is not None:
            with contextlib.suppress(DeviceLost):
                job.finish()


def _put_back(*pieces: Piece | None) -> None:
    for piece in pieces:
        if piece is not None:
            piece.put_back()


def _address_of(array: np.ndarray[Any, Any]) -> int:
    """Return where the first element lies."""
    address: int = array.__array_interface__["data"][0]
    return address


def _piece_bytes(nbytes: int) -> int:
    return min(PIECE, max(SMALLEST_PIECE, -(-nbytes // PIECES // SMALLEST_PIECE) * SMALLEST_PIECE))


def _pieces(layout: Layout, whole: bool) -> Iterator[tuple[int, int, tuple[Any, ...]]]:
    """Cut an array: (first byte, bytes, index) of each piece, in row-major order; no index if it is consecutive."""
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


def _accept(array: object, dtype: object, out: GpuRef | None) -> tuple[np.ndarray[Any, Any], np.dtype[Any]]:
    """Return what `put` was given as an array, and the element type that it gets."""
    host = _as_array(array)
    target = as_dtype(dtype) if dtype is not None else as_dtype(host.dtype)
    if out is not None:
        if dtype is not None and target != out.dtype:
            raise InvalidRequest(f"dtype {dtype_name(target)} and an out of {out.layout!r}; give one of them")
        if out.shape != host.shape:
            raise InvalidRequest(f"out has shape {out.shape}, the array {host.shape}; they must be equal")
        target = out.dtype
    _check_range(array, host, target)
    if host.dtype.kind == "c" and target.kind != "c":
        raise InvalidRequest(f"complex values cannot become {dtype_name(target)}; take .real or .imag first")
    return host, target


def _check_range(array: object, host: np.ndarray[Any, Any], target: np.dtype[Any]) -> None:
    """Refuse plain numbers that the integers of a type do not hold; those of an array wrap, as in NumPy."""
    if not isinstance(array, _PLAIN) or isinstance(array, np.generic) or target.kind not in "iu":
        return
    if host.dtype == target or host.dtype.kind not in "iuf" or not host.size:
        return
    low, high = np.iinfo(target).min, np.iinfo(target).max
    least, most = host.min().item(), host.max().item()
    if not (low - 1 < least and most < high + 1):  # floats become integers by truncation; NaN is none
        raise InvalidRequest(
            f"{reprlib.repr(array)} does not fit {dtype_name(target)}; allowed: integers from {low} to {high}"
        )


def _as_array(array: object) -> np.ndarray[Any, Any]:
    if isinstance(array, GpuRef):
        raise InvalidRequest(f"put takes an array of this process, not {array!r}; device.copy() copies a GpuRef")
    if isinstance(array, _PLAIN):
        try:
            found = np.asarray(array)
        except (ValueError, TypeError, OverflowError) as error:
            raise InvalidRequest(f"{reprlib.repr(array)} is no numeric array: {error}") from None
        if found.dtype not in _KNOWN:
            raise InvalidRequest(
                f"{reprlib.repr(array)} is no numeric array: NumPy makes it one of {found.dtype}; "
                f"allowed: {', '.join(DTYPES)}"
            )
        return found
    return view_as_numpy(array)


def _check_out(ref: GpuRef, out: object) -> np.ndarray[Any, Any]:
    if not isinstance(out, np.ndarray) or out.shape != ref.shape or out.dtype != ref.dtype:
        what = f"{out.dtype}{list(out.shape)}" if isinstance(out, np.ndarray) else type(out).__name__
        raise InvalidRequest(f"out is {what}; it must be a NumPy array of {ref.layout!r}")
    if not out.flags.writeable:
        raise InvalidRequest("out is read-only; it must be a NumPy array that can be written")
    return out


def check_ref(ref: object) -> None:
    """Refuse what is no handle."""
    if not isinstance(ref, GpuRef):
        raise InvalidRequest(f"expected a GpuRef, got {type(ref).__name__}; device.put() makes one from an array")
