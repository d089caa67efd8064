"""What the control loop needs of the native lanes and of the plan builders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

__all__ = ["Builders", "Built", "LanesFactory", "LanesLike", "Operand"]

#: Element type, shape, strides in bytes.
Operand = tuple[np.dtype[Any], tuple[int, ...], tuple[int, ...]]


class LanesLike(Protocol):
    """The part of `atomr_native._lib.lanes.Lanes` that control code calls.

    The control thread and the builder thread (`add_plan`, `remove_plan`) call it at the same time.
    """

    @property
    def w_fd(self) -> int:
        """The worker's memory; stays the lanes' own."""

    @property
    def w_bytes(self) -> int:
        """Its size in bytes."""

    @property
    def faulted(self) -> bool:
        """Whether the device has faulted, in a process that outlives it."""

    def create_segment(self, segment: int, nbytes: int, pool: int) -> int:
        """Make and map device memory; the descriptor becomes the caller's."""

    def map_segment(self, segment: int, fd: int, nbytes: int, pool: int) -> None:
        """Map device memory that exists; the descriptor stays the caller's."""

    def unmap_segment(self, segment: int) -> None:
        """Unmap device memory."""

    def open_window(self, segment: int) -> None:
        """Let a segment stand for the memory of this process.  Builder thread."""

    def open_shared(self, segment: int, nbytes: int, handle: bytes) -> None:
        """Map an allocation that the device's driver has exported elsewhere.  Builder thread."""

    def open_peer(self, segment: int, nbytes: int, fd: int, uuid: bytes) -> None:
        """Map a segment of another device; the descriptor stays the caller's.  Builder thread."""

    def close_foreign(self, segment: int) -> None:
        """Forget memory that one of these three has opened.  Builder thread."""

    def open_lane(self, lane: int) -> None:
        """Make a lane; it waits for `go`."""

    def set_workspace(self, lane: int, segment: int, offset: int, nbytes: int) -> None:
        """Set the scratch memory with which a lane begins; before `go`."""

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
        """Register what runs for a plan's messages; `operation` names it in errors."""

    def remove_plan(self, plan: int) -> None:
        """Forget a plan that no message names any more."""

    def subscribe(self, index: int, eventfd: int) -> None:
        """Ring `eventfd` on completions that subscriber `index` waits for; it becomes the lanes'."""

    def set_busy(self, busy: bool) -> None:
        """Say whether control work is going on, for which the parent's watchdog pauses."""

    def stats(self) -> dict[str, Any]:
        """Return counters, JSON-able."""

    def abandon(self) -> None:
        """In a forked child: close and unmap, whatever locks were held."""

    def stop(self) -> None:
        """Stop and join the lanes and unmap everything.  Idempotent."""


class LanesFactory(Protocol):
    """Makes the lanes at ``init``."""

    def __call__(self, p_fd: int, p_bytes: int, *, parent_pidfd: int, spin_us: int, fault_fd: int) -> LanesLike:
        """Map the parent's memory; `p_fd` stays the caller's, `parent_pidfd` must stay open.

        A fault of the device rings the eventfd `fault_fd`; with -1 it ends the process.
        """


class Built(Protocol):
    """What a builder returns: see `atomr_native.worker.host`."""

    @property
    def run(self) -> Callable[..., Any] | str:
        """A Python callable, or the name of a native routine."""

    @property
    def workspace(self) -> int:
        """Bytes of scratch memory that the plan wants."""


class Builders(Protocol):
    """Turns plan specifications into something that runs, recovers durable groups, and knows the device."""

    @property
    def facts(self) -> dict[str, Any]:
        """What the device is, JSON-able; see `atomr_native.statistics.DeviceFacts`."""

    def memory(self) -> tuple[int, int]:
        """Return (free, total) bytes of the device's memory, for any program.  Control thread."""

    def build(self, spec: dict[str, Any]) -> Built:
        """Build a plan; may be slow.  Builder thread."""

    def self_test(self) -> None:
        """Compute a known answer; raises if it is wrong.  Builder thread."""

    def assign(self, lane: int, /) -> Callable[[np.ndarray[Any, Any], float], None]:
        """Return what fills contiguous device memory in the order of a lane, for operations of tests; it waits."""

    def recover(self, lanes: Any, groups: list[Any]) -> list[Any]:
        """Bring durable groups back to their last commit; returns one JSON-able result each.  Builder thread."""

    def crash(self, how: str) -> None:
        """Have the device fault, with work of no message, and do not wait for it.  Builder thread."""
