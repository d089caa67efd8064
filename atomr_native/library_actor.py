"""What every library actor has: a mailbox, a cache of plans, memory for its outputs."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ._process_bound import ProcessBound
from ._signature import Signature, signature_of
from .gpu_ref import GpuRef, layout_of
from .plan import Plan
from .plan_spec import PlanSpec

if TYPE_CHECKING:
    from ._lib.sender import Layout
    from .device import Device
    from .reply import Reply

__all__ = ["LibraryActor"]

#: Plans remembered by an actor; the least recently used goes first, and stays valid for who holds it.
_PLANS = 256


class LibraryActor(ProcessBound):
    """One mailbox of a device, whose messages run in order.

    Parameters
    ----------
    device : Device
        Where it lives.
    name : str
        Its name in errors, statistics and logs.
    """

    def __init__(self, device: Device, name: str) -> None:
        self.device = device
        self.name = name
        self.lane = device._open_lane(name)
        #: Allocates an output of a layout.
        self._allocate: Callable[[Layout], GpuRef] = functools.partial(device._core.empty, GpuRef)
        self._plans: OrderedDict[tuple[PlanSpec, Signature], Plan] = OrderedDict()
        self._plans_lock = threading.Lock()

    def _plan(
        self, spec: PlanSpec, signature: Signature | None = None, *, any_layout: bool | frozenset[str] = False
    ) -> Plan:
        """Return the plan of a specification; building goes on in the worker."""
        key = (spec, signature or signature_of(spec, tuple(f"_{i}" for i in range(len(spec.scalars))), (0,) * 64))
        with self._plans_lock:
            found = self._plans.get(key)
            if found is not None:
                self._plans.move_to_end(key)
                return found
            made = Plan.make(self.device, self.lane, spec, key[1], any_layout=any_layout)
            self._plans[key] = made
            while len(self._plans) > _PLANS:
                self._plans.popitem(last=False)
            return made

    def _send(
        self, plan: Plan, refs: tuple[GpuRef, ...], scalars: tuple[float | int, ...], reply: bool, value: Any = None
    ) -> Reply | None:
        """Send with operands and scalars in message order."""
        answer: Reply | None = plan.send(refs, scalars, reply, value)
        return answer

    def _empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> GpuRef:
        """Allocate an output."""
        return self._allocate(layout_of(shape, dtype))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.device.name}>"
