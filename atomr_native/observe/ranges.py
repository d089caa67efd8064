"""A range of NVTX for each message, for Nsight Systems."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import observers
from .optional import need
from .snapshot import check_system

if TYPE_CHECKING:
    from ..actors.cell import Cell
    from ..plans.plan import Plan
    from ..plans.reply import Reply
    from ..system import System

__all__ = ["ranges"]


class _Range:
    """The range of one message, possibly across threads, since coroutines suspend."""

    __slots__ = ("_name", "_nvtx", "_range")

    def __init__(self, nvtx: Any, name: str) -> None:
        self._nvtx, self._name, self._range = nvtx, name, None

    def begin(self, cell: Cell) -> None:
        self._range = self._nvtx.start_range(message=f"{cell.path} {self._name}", domain="atomr_native")

    def leave(self) -> None:
        pass

    def end(self, failed: bool) -> None:  # noqa: ARG002 - of the protocol
        self._nvtx.end_range(self._range)


class _Ranges:
    def __init__(self, system: System) -> None:
        self._system = system
        self._nvtx = need("nvtx", "nvtx", "NVTX ranges")

    def sent(self, cell: Cell, envelope: Any) -> _Range | None:
        if cell.tree.system is not self._system:
            return None
        return _Range(self._nvtx, type(envelope.message).__name__)

    def sent_to_device(self, plan: Plan, reply: Reply | None, ticket: int) -> None:
        if reply is None or plan.device.system is not self._system:
            return
        lane = plan.core.lane_names.get(plan.lane, str(plan.lane))
        found = self._nvtx.start_range(message=f"{plan.device.name}/{lane} {plan.spec.op}", domain="atomr_native")
        observers.when_resolved(plan, ticket, lambda: self._nvtx.end_range(found))


@contextlib.contextmanager
def ranges(system: System) -> Iterator[None]:
    """Make an NVTX range for each message that an actor handles, and for each ask of a device until it is resolved.

    Active for the duration of a ``with`` block; ranges are in the domain ``atomr_native``.

    Raises
    ------
    Unsupported
        If nvtx is not installed.
    """
    observer = _Ranges(check_system(system))
    observers.add(observer)
    try:
        yield
    finally:
        observers.remove(observer)
