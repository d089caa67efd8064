"""From a plan's specification to a run for a lane, by the builders in the registry of libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..builders.context import Built, HostContext
from ..errors import Unsupported
from ..libraries import OPERATIONS, attributes_of, builder
from ..plans.spec import PlanSpec
from ..protocol.binaries import Binary

if TYPE_CHECKING:
    from ..builders.cuda.context import CudaContext  # imported where there is a CUDA device

__all__ = ["build", "specification"]


def specification(value: object, find: Callable[[object], Binary]) -> PlanSpec:
    """Return the plan's specification that a request carries, checked; imports the library of its operation.

    `find` returns the bytes that a reference in it refers to.

    Raises
    ------
    InvalidRequest
        For what is no specification of the operation; the message names the field, its value and what is allowed.
    """
    op = value.get("op") if isinstance(value, dict) else None
    return PlanSpec.from_json(value, attributes_of(op if isinstance(op, str) else ""), find, attributes_of)


def build(spec: PlanSpec, context: HostContext | CudaContext) -> Built:
    """Build a plan; may import libraries and wait for a compiler.

    Raises
    ------
    Unsupported
        If the operation is unknown on this kind of device, or a library that it needs is missing.
    InvalidRequest
        If a literal of a program is out of range of the integers that it meets.
    LibraryError
        If a compiler or a library refuses.
    """
    op = spec.op
    found = builder(op, context.kind)
    if found is None:
        known = (name for name, (_, operation) in sorted(OPERATIONS.items()) if getattr(operation, context.kind))
        raise Unsupported(f"unknown operation {op!r} on a {context.kind} device; known: {', '.join(known)}")
    built: Built = found(spec, context)
    return built
