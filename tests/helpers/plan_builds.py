"""Plans built in this process, as workers build them, without a device."""

from __future__ import annotations

import json

from atomr_native.builders.context import Built, HostContext
from atomr_native.builders.cuda.context import CudaContext
from atomr_native.builders.cuda.target import Target
from atomr_native.plans.spec import PlanSpec
from atomr_native.protocol.binaries import KeptBinaries
from atomr_native.worker.build import build, specification

__all__ = ["build_cuda", "build_host", "received"]


def received(spec: PlanSpec) -> PlanSpec:
    """A specification as a worker gets it: by way of JSON, with its binaries beside it."""
    kept = KeptBinaries()
    kept.take([binary.reference for binary in spec.binaries], b"".join(b.data for b in spec.binaries), ())
    return specification(json.loads(json.dumps(spec.to_json())), kept.find)


def build_host(spec: PlanSpec) -> Built:
    """Build a plan of the host device."""
    return build(received(spec), HostContext())


def build_cuda(spec: PlanSpec, target: Target) -> Built:
    """Build a plan of a CUDA device that need not be there; plans that call a library cannot be built so."""
    return build(received(spec), CudaContext(target))
