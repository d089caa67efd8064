"""Faults on demand, for tests of a program's recovery."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from ._signature import Signature
from .control import WorkerGone
from .errors import InvalidRequest, Unsupported
from .plan import Plan
from .plan_spec import PlanSpec
from .worker.faults import FAULTS, GPU_FAULTS, IDLE_GPU_FAULT

if TYPE_CHECKING:
    from .device import Device

__all__ = ["inject_fault"]

_numbers = itertools.count(1)


def inject_fault(device: Device, how: str) -> None:
    """Make a device fault; see `Device.inject_fault`."""
    gpu = (*GPU_FAULTS, IDLE_GPU_FAULT) if device.name.startswith("cuda:") else ()
    config = device.system.config
    if not isinstance(how, str) or how not in (*FAULTS, *gpu):
        raise InvalidRequest(f"unknown fault {how!r}; allowed on {device.name}: {', '.join((*FAULTS, *gpu))}")
    if not config.allow_crash:
        raise Unsupported("faults are injected only on demand: make the System with allow_crash=True")
    if config.isolation == "thread" and how in FAULTS and how not in ("exit", "raise"):
        raise Unsupported(
            f"fault {how!r} would end this very process; with isolation='thread': {', '.join(('raise', 'exit', *gpu))}"
        )
    if how in GPU_FAULTS:
        # A number of its own, so that no plan is found to have killed two workers.
        spec = PlanSpec("test.gpu_fault", (), (), (("how", how), ("demanded", next(_numbers))))
        Plan.make(device, device._memory.lane, spec, Signature((), (), ())).tell()
        return
    supervisor = device._supervisor
    supervisor.demanded = how == IDLE_GPU_FAULT
    try:
        supervisor.links.submit("crash_device" if how == IDLE_GPU_FAULT else "crash", how=how)
    except WorkerGone:
        supervisor.demanded = False  # it has crashed already
