"""Faults on demand, for tests of a program's recovery."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from ..errors import InvalidRequest, Unsupported
from ..plans.plan import Plan
from ..plans.signature import Signature
from ..plans.spec import PlanSpec
from ..protocol.messages import FAULTS, GPU_FAULTS, IDLE_GPU_FAULT, WorkerGone

if TYPE_CHECKING:
    from .owner import ServedDevice

__all__ = ["inject_fault"]

_numbers = itertools.count(1)


def inject_fault(owner: ServedDevice, how: str) -> None:
    """Inject a fault into a device; see `Device.inject_fault`."""
    gpu = (*GPU_FAULTS, IDLE_GPU_FAULT) if owner.kind == "cuda" else ()
    config = owner.config
    if not isinstance(how, str) or how not in (*FAULTS, *gpu):
        raise InvalidRequest(f"unknown fault {how!r}; allowed on {owner.name}: {', '.join((*FAULTS, *gpu))}")
    if not config.allow_crash:
        raise Unsupported("faults are injected only on demand: make the System with allow_crash=True")
    if config.isolation == "thread" and how in FAULTS and how not in ("exit", "raise"):
        raise Unsupported(
            f"fault {how!r} would end this process; with isolation='thread': {', '.join(('raise', 'exit', *gpu))}"
        )
    if how in GPU_FAULTS:
        # A unique number, so no plan appears to have killed two workers.
        spec = PlanSpec("test.gpu_fault", (), (), (("how", how), ("demanded", next(_numbers))))
        Plan.make(owner, owner.memory.lane, spec, Signature((), (), ())).tell()
        return
    supervisor = owner.supervisor
    supervisor.demanded = how == IDLE_GPU_FAULT
    try:
        owner.links.submit("crash_device" if how == IDLE_GPU_FAULT else "crash", how=how)
    except WorkerGone:
        supervisor.demanded = False  # it has crashed already
