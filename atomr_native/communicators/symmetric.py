"""Symmetric arrays: memory of all ranks, with each array at one offset, that NCCL knows as windows.

Each worker makes a segment of its own, since only the process that makes memory can export it.  A message has all ranks
register theirs as one window; arrays are carved from it alike, and a range is used again when no rank uses it any more.
Windows end with NCCL's connection, and memory with its worker: both are made anew by the next call after that.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from .._lib import foreign as native
from .._lib.guard import Lock, shielded
from .._lib.sender import send_ranks
from ..arrays.layout import as_shape, layout_of
from ..dtypes import as_dtype
from ..errors import (
    AtomrError,
    DependencyFailed,
    GpuRefStale,
    InvalidRequest,
    LibraryError,
    OutOfMemory,
    Unsupported,
)
from ..libraries.collective.attributes import Step
from ..memory.growth import ROUND, SEGMENT
from .reply import CollectiveReply
from .request import Lowered, Use

if TYPE_CHECKING:
    from .._lib.seats import Page
    from .._lib.sender import Layout
    from ..arrays.gpu_ref import GpuRef
    from ..interop.segments import Mapping
    from ..plans.plan import Plan
    from .communicator import Communicator

__all__ = ["SymmetricMemory", "why_plain"]

_SEGMENTS: Final = 64  # of a communicator, as connection.c has it
_ALIGNMENT: Final = 512
#: Collectives whose arrays must lie at one offset on all ranks: those that windows, or copy engines, may serve.
_AT_ONE_OFFSET: Final = ("all_reduce", "reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all")
_numbers = itertools.count(1)  # of segments, in this program


class _Moved(Exception):
    """A rank's worker has changed meanwhile: try again."""


class _Range:
    """Bytes of a segment, the same on all ranks.  Imports keep it as their owner until nothing uses the bytes."""

    __slots__ = ("end", "segment", "start")

    def __init__(self, segment: _Segment, start: int, end: int) -> None:
        self.segment, self.start, self.end = segment, start, end

    def __del__(self) -> None:
        self.segment.returned.append((self.start, self.end))  # in any thread


class _Segment:
    """Memory of all ranks.

    Attributes
    ----------
    number : int
        Unique in this program.
    mappings : list of Mapping
        Of each rank, in the worker that it has.
    wholes : list of GpuRef
        All bytes, of each rank.
    connection : int
        That which knows it as a window; 0: none.
    returned : deque of (int, int)
        Ranges that were given back.
    """

    def __init__(self, nbytes: int) -> None:
        self.number = next(_numbers)
        self.nbytes = nbytes
        self.mappings: list[Mapping] = []
        self.wholes: list[GpuRef] = []
        self.connection = 0
        self.returned: deque[tuple[int, int]] = deque()
        self._free = [(0, nbytes)]

    def take(self, nbytes: int) -> _Range | None:
        """Take a range, the first that is large enough."""
        while self.returned:
            self._free.append(self.returned.popleft())
        self._free.sort()
        merged: list[tuple[int, int]] = []
        for start, end in self._free:
            if merged and merged[-1][1] == start:
                merged[-1] = (merged[-1][0], end)
            else:
                merged.append((start, end))
        self._free = merged
        size = -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        for i, (start, end) in enumerate(merged):
            if end - start >= size:
                merged[i : i + 1] = [(start + size, end)] if end - start > size else []
                return _Range(self, start, start + size)
        return None


class SymmetricMemory:
    """The symmetric arrays of one communicator."""

    def __init__(self, communicator: Communicator, page: Page, owners: list[Any]) -> None:
        self._communicator = communicator
        self._page = page
        self._owners = owners
        self._making = Lock()  # one call at a time
        self._segments: list[_Segment] = []
        self._note: str | None = why_plain(communicator, owners[0].config.isolation)
        self._asked = self._note is not None

    @property
    def notes(self) -> tuple[str, ...]:
        """Why arrays are plain."""
        return () if self._note is None else (f"symmetric: plain arrays, since {self._note}",)

    # ---- making arrays

    def arrays(self, shape: object, dtype: object) -> list[GpuRef]:
        """Serve `Communicator.symmetric`."""
        layout = layout_of(as_shape(shape), as_dtype(dtype))
        nbytes = layout.dtype.itemsize
        for n in layout.shape:
            nbytes *= n
        if any(owner.core.recorder() is not None for owner in self._owners):
            raise InvalidRequest(
                "symmetric arrays inside a recording; allowed: those that were made before it, also as out="
            )
        made = self._arrays(layout, nbytes) if nbytes else None
        return [device.empty(shape, dtype) for device in self._communicator.devices] if made is None else made

    @shielded
    def _arrays(self, layout: Layout, nbytes: int) -> list[GpuRef] | None:
        """Return symmetric arrays; None if there are no windows."""
        with self._making:
            if not self._has_windows():
                return None
            while True:
                try:
                    self._renew()
                    return self._carve(layout, nbytes)
                except _Moved:
                    continue
                except (LibraryError, DependencyFailed) as error:
                    self._do_without(error)
                    return None

    def _do_without(self, error: AtomrError) -> None:
        """Have plain arrays from now on, since the library refuses the memory; connect the ranks anew."""
        self._note = f"NCCL does not register their memory: {error}"
        while self._segments:
            self._drop(self._segments.pop())
        with contextlib.suppress(AtomrError):
            self._communicator.connect()

    def _has_windows(self) -> bool:
        """Whether the library has windows, which its workers say."""
        if not self._asked:
            try:
                for plan in self._plans("open_window", ROUND):
                    plan.wait()
            except Unsupported as error:
                if error.rule != "nccl.windows":
                    raise
                self._note = str(error)
            self._asked = True
        return self._note is None

    def _carve(self, layout: Layout, nbytes: int) -> list[GpuRef]:
        found = self._take(nbytes)
        if found is None:
            with contextlib.suppress(OutOfMemory):
                self._grow(nbytes)
            found = self._take(nbytes)
        if found is None:
            self._settle()
            found = self._take(nbytes)
        while found is None:  # once, or OutOfMemory
            self._grow(nbytes)
            found = self._take(nbytes)
        held = [self._hold(found.segment, rank, found.start, nbytes, found) for rank in range(len(self._owners))]
        return [whole.view_as(layout, 0) for whole in held]

    def _take(self, nbytes: int) -> _Range | None:
        return next((found for segment in self._segments if (found := segment.take(nbytes)) is not None), None)

    def _settle(self) -> None:
        """Wait for the messages sent so far, and release what only they have used."""
        gc.collect()
        for owner in self._owners:
            owner.memory.segments.settle()
            owner.imports.collect()

    def _hold(self, segment: _Segment, rank: int, start: int, nbytes: int, owner: object) -> GpuRef:
        imports = self._owners[rank].imports
        held: GpuRef = imports.hold(partial(self._again, segment, rank), start, nbytes, owner)
        return held

    def _again(self, segment: _Segment, rank: int) -> Mapping:
        """Return a rank's mapping with one more use."""
        mapping, owner = segment.mappings[rank], self._owners[rank]
        if mapping.epoch != owner.core.epoch:
            raise _Moved
        owner.imports.segments.pin(mapping)
        return mapping

    # ---- segments

    def _grow(self, nbytes: int) -> None:
        """Add a segment with room for an array."""
        if len(self._segments) == _SEGMENTS:
            raise OutOfMemory(
                f"no room for {nbytes} bytes in the {_SEGMENTS} segments of symmetric arrays that a communicator has; "
                f"make larger arrays, and views of them",
                requested=nbytes,
            )
        least = -(-nbytes // ROUND) * ROUND
        if least < SEGMENT:
            with contextlib.suppress(OutOfMemory):
                self._make(SEGMENT)
                return
        self._make(least)

    def _make(self, nbytes: int) -> None:
        segment = _Segment(nbytes)
        try:
            for rank in range(len(self._owners)):
                self._open(segment, rank)
            self._register(segment)
        except BaseException:
            self._drop(segment)
            raise
        self._segments.append(segment)

    def _open(self, segment: _Segment, rank: int) -> None:
        """Have a rank's worker make its part."""
        owner = self._owners[rank]
        lent = owner.memory.segments.lend(segment.nbytes)
        mapping = owner.imports.segments.open_own(("symmetric", segment.number), segment.nbytes, segment.number)
        mapping.owners.append(lent)  # until the worker has closed it
        segment.mappings[rank : rank + 1] = [mapping]
        segment.wholes[rank : rank + 1] = [self._hold(segment, rank, 0, segment.nbytes, None)]

    def _renew(self) -> None:
        """Have parts of workers that have ended made anew, and all parts known to the connection that there is now."""
        for owner in self._owners:
            owner.wait_ready(owner.config.timeout)
        for segment in self._segments:
            for rank, owner in enumerate(self._owners):
                gone = segment.mappings[rank]
                if gone.epoch != owner.core.epoch:
                    segment.connection = 0
                    self._open(segment, rank)
                    owner.imports.segments.unpin(gone)  # once: it stays in its place when there is no memory
            if not segment.connection or segment.connection != self._page.connection:
                self._register(segment)

    def _drop(self, segment: _Segment) -> None:
        """Let go of a segment; its memory goes when no array of it is left."""
        segment.wholes.clear()
        while segment.mappings:
            mapping = segment.mappings.pop()
            self._owners[len(segment.mappings)].imports.segments.unpin(mapping)

    # ---- windows

    def _plans(self, kind: str, nbytes: int) -> list[Plan]:
        uses = [[Use("x", writes=False, ref=None, shape=(nbytes,), dtype="uint8")] for _ in self._owners]
        step = Step(kind, "uint8", nbytes)
        return self._communicator.rank_plans.of(Lowered("window", step, uses, lambda _: None))

    def _register(self, segment: _Segment) -> None:
        refs: list[tuple[GpuRef, ...]] = [(whole,) for whole in segment.wholes]
        plans = self._plans("open_window", segment.nbytes)
        try:
            replies = self._communicator.send_plans(plans, refs, [() for _ in refs], want_reply=True)
            CollectiveReply(replies, None).result()
        except GpuRefStale:
            raise _Moved from None
        segment.connection = self._page.connection

    def close_windows(self, deadline: float) -> bool:
        """Have all ranks let go of the windows, while the connection is up; whether that has ended in time.

        For a communicator without messages.
        """
        with self._making:
            for segment in self._segments:
                if not segment.connection or segment.connection != self._page.connection:
                    continue  # it ended with its connection
                refs: list[tuple[GpuRef, ...]] = [(whole,) for whole in segment.wholes]
                try:
                    plans = self._plans("close_window", segment.nbytes)
                    replies = send_ranks(*self._communicator.key, plans, refs, [() for _ in refs], True, True)
                except AtomrError:  # a rank is gone, and with it the connection
                    continue
                if not CollectiveReply(replies, None).wait(max(0.0, deadline - time.monotonic())):
                    return False
        return True

    def release(self) -> None:
        """Give the memory back, once the connection has ended; arrays that are left keep theirs."""
        with self._making:
            while self._segments:
                self._drop(self._segments.pop())

    # ---- rules

    def owns(self, ref: GpuRef) -> bool:
        """Whether an array lies in a window of this communicator."""
        window = native.position(ref)[0]
        return window != 0 and any(segment.number == window for segment in self._segments)

    def check(self, lowered: Lowered) -> bool:
        """Whether the arrays of a message are symmetric ones.

        Raises
        ------
        InvalidRequest
            If some are, and others are not, or lie elsewhere on another rank: NCCL finds windows by address, and ranks
            that find different ones would wait for each other without end.
        """
        inside: list[tuple[int, str, tuple[int, int]]] = []
        outside: list[tuple[int, str]] = []
        for rank, uses in enumerate(lowered.uses):
            for use in uses:
                if use.ref is None or not use.ref.size or use.name == "factor":
                    continue
                # A broadcast in place has its root's array among the outputs.
                name = "out" if lowered.kind == "broadcast" and len(uses) == 1 else use.name
                if self.owns(use.ref):
                    inside.append((rank, name, native.position(use.ref)))
                else:
                    outside.append((rank, name))
        if not inside:
            return False
        if outside:
            raise InvalidRequest(
                f"{lowered.kind}: {inside[0][1]} of rank {inside[0][0]} is a symmetric array, and {outside[0][1]} of "
                f"rank {outside[0][0]} is none of this communicator; allowed: symmetric arrays only, or none"
            )
        if lowered.kind in _AT_ONE_OFFSET and len({n for row in lowered.step.counts for n in row}) < 2:
            _check_places(lowered.kind, inside)
        return True


def _check_places(kind: str, inside: list[tuple[int, str, tuple[int, int]]]) -> None:
    """Refuse arrays that lie elsewhere on another rank."""
    first: dict[str, tuple[int, tuple[int, int]]] = {}
    for rank, name, place in inside:
        other, known = first.setdefault(name, (rank, place))
        if place != known:
            raise InvalidRequest(
                f"{kind}: {name} of rank {rank} is at byte {place[1]} of symmetric memory {place[0]}, and that of rank "
                f"{other} at byte {known[1]} of {known[0]}; allowed: one place on all ranks, as Communicator.symmetric "
                f"returns them"
            )


def why_plain(communicator: Communicator, isolation: str) -> str | None:
    """Return why a communicator has no windows; None: that depends on its library."""
    if communicator.devices[0].kind == "host":
        return "host devices meet in shared memory"
    if communicator.size == 1:
        return "one rank shares its memory with nobody"
    if isolation == "thread":
        return "devices in threads of this process have no memory of their own"
    return None
