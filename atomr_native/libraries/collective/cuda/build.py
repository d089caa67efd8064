"""From a plan specification of a collective to a message of NCCL."""

from __future__ import annotations

from ...._lib import nccl
from ...._lib.between import Between, reaches
from ...._lib.nccl import ENGINES_VERSION, FLOAT8_VERSION, WINDOWS_VERSION, NcclConnection, NcclMessage
from ...._lib.seats import Seat
from ....builders.context import Built
from ....builders.cuda.context import CudaContext, library_file
from ....errors import InvalidRequest, Unsupported
from ....plans.spec import PlanSpec
from ..attributes import CollectiveAttributes, Step
from .calls import calls_of, is_even

__all__ = ["build_collective"]

_REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter")
_APART = "GPUs without access to each other's memory: NCCL goes through host memory, which is slower"
_SENT = ("gather", "scatter", "all_to_all")
_WINDOWS = ("open_window", "close_window")


def _check(step: Step, version: int, context: CudaContext) -> None:
    """Refuse windows, and reductions of float8, where the library or the GPU has none."""
    if step.kind in _WINDOWS and version < WINDOWS_VERSION:
        raise Unsupported(
            f"NCCL {nccl.version_text(version)} has no windows; 2.27.3 brings them",
            rule="nccl.windows",
            lifted_by=("library",),
        )
    if step.kind not in _REDUCTIONS or not step.dtype.startswith("float8"):
        return
    if version < FLOAT8_VERSION:
        raise Unsupported(
            f"{step.kind} of {step.dtype} needs NCCL 2.24; loaded is {nccl.version_text(version)}",
            rule="nccl.float8",
            lifted_by=("library", "dtype"),
        )
    major, minor = context.facts["compute_capability"]
    if major < 9:
        raise Unsupported(
            f"{step.kind} of {step.dtype} needs compute capability 9.0; this GPU has {major}.{minor}",
            rule="nccl.float8",
            lifted_by=("device", "dtype"),
        )


def _moves_data(step: Step) -> bool:
    """Whether some rank calls the library: then all ranks connect, also those that have no part in it."""
    return step.kind == "connect" or (step.kind not in ("barrier", "close_window") and step.count > 0)


def _notes(step: Step, version: int) -> tuple[str, ...]:
    """Return the parts of a step that take a longer way."""
    if step.kind not in _SENT or (step.kind == "all_to_all" and version >= ENGINES_VERSION and is_even(step)):
        return ()
    return (f"{step.kind}: sends and receives in one group",)


def _copy(attributes: CollectiveAttributes, context: CudaContext, seat: Seat) -> Built:
    """Return a rank's part of a copy between two devices."""
    step = attributes.steps[0]
    direct = step.kind == "peer_copy"
    notes = () if direct else ("in pieces through host memory: one of the devices does not reach the other's memory",)
    return Built(Between(context.backend, seat, step.root, step.target, step.count, direct), notes=notes)


def build_collective(spec: PlanSpec[CollectiveAttributes], context: CudaContext) -> Built:
    """Return the run of a collective message: operands as its steps say, scalars the key and factors."""
    attributes = spec.attributes
    seat = context.meetings.get(attributes.communicator)
    if seat is None:
        raise InvalidRequest(f"communicator {attributes.communicator} is not open in this worker")
    if spec.op == "collective.copy":
        return _copy(attributes, context, seat)
    version = nccl.load(library_file("nccl"))
    for step in attributes.steps:
        _check(step, version, context)
    if seat.connection is None:
        seat.connection = NcclConnection(context.backend, seat)
    calls = [call for step in attributes.steps for call in calls_of(step, attributes.rank, attributes.size, version)]
    connects = any(_moves_data(step) for step in attributes.steps)
    message = NcclMessage(context.backend, seat.connection, calls, len(spec.operands), len(spec.scalars), connects)
    notes = [note for step in attributes.steps for note in _notes(step, version)]
    if any(uuid and reaches(context.backend, bytes.fromhex(uuid)) is False for uuid in seat.uuids):
        notes.append(_APART)
    return Built(message, notes=tuple(notes))
