"""The interfaces of native lanes and plan builders for the control loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ..builders.context import Built
from ..plans.spec import PlanSpec

__all__ = ["Builders", "LanesFactory", "LanesLike", "Operand"]

#: Element type, shape, strides in bytes.
Operand = tuple[np.dtype[Any], tuple[int, ...], tuple[int, ...]]


class LanesLike(Protocol):
    """The part of `atomr_native._lib.lanes.Lanes` that control code calls.

    The control thread and the builder thread (`add_plan`, `remove_plan`) call it at the same time.
    """

    @property
    def w_fd(self) -> int:
        """Descriptor of the worker's memory; the lanes keep ownership."""

    @property
    def w_bytes(self) -> int:
        """Its size in bytes."""

    @property
    def faulted(self) -> bool:
        """Whether the device has faulted, in a process that outlives it."""

    def create_segment(self, segment: int, nbytes: int, pool: int) -> int:
        """Create and map device memory; the caller owns the returned descriptor."""

    def map_segment(self, segment: int, fd: int, nbytes: int, pool: int) -> None:
        """Map existing device memory; the caller keeps the descriptor."""

    def unmap_segment(self, segment: int) -> None:
        """Unmap device memory."""

    def open_window(self, segment: int) -> None:
        """Make a segment represent the memory of this process.  Builder thread."""

    def open_shared(self, segment: int, nbytes: int, handle: bytes) -> None:
        """Map an allocation that the driver has exported in another process.  Builder thread."""

    def open_peer(self, segment: int, nbytes: int, fd: int, uuid: bytes) -> None:
        """Map a segment of another device; the caller keeps the descriptor.  Builder thread."""

    def open_own(self, segment: int, nbytes: int) -> None:
        """Make memory that is this worker's own.  Builder thread."""

    def close_foreign(self, segment: int) -> None:
        """Close memory opened by one of these four.  Builder thread."""

    def open_meeting(self, number: int, fd: int, nbytes: int, rank: int, uuids: tuple[str, ...] = ()) -> Any:
        """Take part in a communicator as a rank; the caller keeps the descriptor.  Return what runs meet by."""

    def leave_meetings(self) -> None:
        """End the connections of all communicators, once the lanes have stopped."""

    def close_meeting(self, number: int) -> None:
        """Forget a communicator that no message names any more."""

    def open_lane(self, lane: int) -> None:
        """Create a lane; it waits for `go`."""

    def set_workspace(self, lane: int, segment: int, offset: int, nbytes: int) -> None:
        """Set the initial workspace of a lane; before `go`."""

    def go(self) -> None:
        """Let the lanes run."""

    def add_plan(
        self,
        plan: int,
        run: Callable[..., Any] | str,
        operands: list[Operand],
        scalars: list[str],
        operation: str = "",
    ) -> None:
        """Register the run of a plan; `operation` names it in errors."""

    def remove_plan(self, plan: int) -> None:
        """Remove a plan that no message names any more."""

    def replays(self, plan: int) -> dict[str, Any]:
        """Return how the messages of a program were run, by counts."""

    def be_cautious(self, cautious: bool) -> None:
        """Have runs and builds take turns, so that each suspect runs alone; before `go`, and later to end that."""

    def suspect(self, plan: int) -> None:
        """Have the first message of a plan run alone; before `add_plan`."""

    def begin_build(self, suspect: bool) -> int:
        """Wait for the turn of a build, which is alone for a suspect; return it for `end_build`.  Builder thread."""

    def end_build(self, turn: int) -> None:
        """End the turn of a build."""

    def subscribe(self, index: int, eventfd: int) -> None:
        """Signal `eventfd` on completions that subscriber `index` waits for; the lanes take ownership of it."""

    def set_busy(self, busy: bool) -> None:
        """Record whether control work is in progress, for which the parent's watchdog pauses."""

    def stats(self) -> dict[str, Any]:
        """Return counters for JSON."""

    def abandon(self) -> None:
        """In a forked child: close and unmap, regardless of held locks."""

    def stop(self) -> None:
        """Stop and join the lanes and unmap everything.  Idempotent."""


class LanesFactory(Protocol):
    """Makes the lanes at ``init``."""

    def __call__(self, p_fd: int, p_bytes: int, *, parent_pidfd: int, spin_us: int, fault_fd: int) -> LanesLike:
        """Map the parent's memory; the caller keeps `p_fd`, and `parent_pidfd` must stay open.

        A device fault signals the eventfd `fault_fd`; with -1 it ends the process.
        """


class Builders(Protocol):
    """Builds runs from plan specifications, recovers durable groups, and describes the device."""

    @property
    def facts(self) -> dict[str, Any]:
        """Facts about the device, for JSON; see `atomr_native.runtime.statistics.DeviceFacts`."""

    special: Callable[[PlanSpec], Built | None] | None
    """Builds operations of tests, as steps of programs; None for any other."""

    def memory(self) -> tuple[int, int]:
        """Return (free, total) bytes of the device's memory, for any program.  Control thread."""

    def build(self, spec: PlanSpec, plan: int, workspace: int | None = None, /) -> Built:
        """Build plan number `plan`, with at most so many bytes of workspace; may be slow.  Builder thread."""

    def self_test(self) -> None:
        """Compute a known answer; raises if it is wrong.  Builder thread."""

    def assign(self, lane: int, /) -> Callable[[np.ndarray[Any, Any], float], None]:
        """Return a function that fills contiguous device memory in a lane's order, and waits; for tests."""

    def recover(self, lanes: Any, groups: list[Any]) -> list[Any]:
        """Restore durable groups to their last commits; return one result each, for JSON. Builder thread."""

    def crash(self, how: str) -> None:
        """Make the device fault outside any message, without waiting.  Builder thread."""
