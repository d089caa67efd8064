"""The typed errors of one device's messages and handles, from records of the native core, worker and supervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lib import sender
from ..errors import (
    ActorStopped,
    AtomrError,
    DependencyFailed,
    DeviceFault,
    DeviceLost,
    GpuRefStale,
    InvalidRequest,
    LibraryError,
    LoopLimitReached,
    MessageCall,
    NotConverged,
    NotPositiveDefinite,
    OutOfMemory,
    PlanQuarantined,
    SingularMatrix,
    Unsupported,
)

if TYPE_CHECKING:
    from .owner import PlanOwner

__all__ = ["MessageErrors", "is_of_another_rank", "mark_of_another_rank"]

#: What has become of an operand, by the code of the failure.
_STALE = {
    sender.STALE_RESTARTED: "device restarted",
    sender.STALE_TORN: "torn",
    sender.STALE_ROLLED_BACK: "rolled back",
}
_REFUSED = {
    "device restarted": "not run: {name} restarted while the message was queued, and it uses memory that was not "
    "durable",
    "torn": "not run: an operand was being written when the worker of {name} died; write it whole, or accept its "
    "bytes with clear_error()",
    "rolled back": "not run: {name} restarted while the message was queued, and a durable group that it uses went "
    "back to its last commit; continue from there",
}


#: Errors of the library "solver", by the names that lanes report.
_OF_MATRICES = {kind.__name__: kind for kind in (SingularMatrix, NotPositiveDefinite, NotConverged)}

#: Set in errors of a rank that could have taken part in a message.
_ELSEWHERE = "of_another_rank"


def is_of_another_rank(error: AtomrError) -> bool:
    """Whether an error says that another rank could not take part in a message."""
    return _ELSEWHERE in vars(error)


def mark_of_another_rank(error: AtomrError) -> AtomrError:
    """Return an error, which from now on says that another rank could not take part in a message."""
    vars(error)[_ELSEWHERE] = True
    return error


class MessageErrors:
    """Builds errors, a new object each time, since a raised error keeps frames.

    Parameters
    ----------
    owner : PlanOwner
        The device of the messages.
    """

    def __init__(self, owner: PlanOwner) -> None:
        self._owner = owner

    def closed(self, reason: str) -> AtomrError:
        """Return the error of a send to a device that has ended: ``"device lost"`` or ``"device closed"``."""
        if reason == "device lost":
            loss = self._owner.supervisor.loss
            return DeviceLost(str(loss), loss.cause)
        return ActorStopped(f"{self._owner.name} is closed; nothing can be sent to it any more")

    def stale(self, allocation: object, reason: str) -> AtomrError:
        """Return the error for the use of an invalid handle; with `allocation` None, of a device that has ended."""
        if allocation is None or reason == "device lost":
            return self.closed(reason)
        name = self._owner.name
        if reason == "recorded":
            return InvalidRequest(
                "this handle was made inside a recording, and no replay has written it yet; allowed: uses by messages "
                "of its recording, and any use after the first message of the plan"
            )
        advice = {
            "freed": "it was freed; earlier messages are unaffected",
            "device restarted": f"{name} has restarted (generation {self._owner.generation}) and it was not durable; "
            f"put the data again, or allocate with durable=True",
            "device closed": f"{name} is closed",
            "rolled back": f"{name} has restarted, and its durable group went back to the last commit; continue from "
            f"there with group.restore(), or accept the bytes with clear_error()",
            "torn": "a message was writing it when the worker died; write it whole, or accept its bytes with "
            "clear_error()",
        }.get(reason, reason)
        return GpuRefStale(f"this handle is stale: {advice}", reason)

    def make(
        self, code: int, status: int, lib: str, name: str, text: str, inherited: bool, lane: int, ticket: int,
        plan: int, cause_lane: int, cause_ticket: int, cause_plan: int, fault: int,
    ) -> AtomrError:  # fmt: skip
        """Build the typed error of a failed message from the record of the worker or supervisor."""
        plans = self._owner.plans
        error = self.base(code, status, lib, name, text, fault)
        _name_call(error, plans.call_of(cause_plan, cause_lane, cause_ticket))
        if not inherited:
            return error
        if isinstance(error, DependencyFailed):  # of a rank that could not take part: the first cause is its cause
            error = error.cause
        found = DependencyFailed(
            f"not run, since an operand was to be written by message {cause_ticket} of "
            f"{self._owner.lane_name(cause_lane)!r}, which failed: {error}",
            error,
        )
        _name_call(found, plans.call_of(plan, lane, ticket))
        return found

    def base(self, code: int, status: int, lib: str, name: str, text: str, fault: int) -> AtomrError:
        """Return the error of a failed message itself."""
        if lib == "rank":
            return mark_of_another_rank(self._of_rank(status, name, text))
        if code == sender.UNSUPPORTED:
            if name == "PlanQuarantined":
                return PlanQuarantined(text or name)
            return Unsupported(text or name, rule=f"{lib}.{name}" if lib and name else "")
        if code == sender.INVALID_REQUEST:
            return InvalidRequest(text or name)
        if code == sender.OUT_OF_MEMORY:
            return OutOfMemory(text or "the worker ran out of memory", limit=self._owner.memory.limit)
        if code in _STALE:
            reason = _STALE[code]
            return GpuRefStale(_REFUSED[reason].format(name=self._owner.name), reason)
        if code == sender.DEVICE_FAULT:
            found = self._owner.supervisor.fault(fault)
            if isinstance(found, DeviceFault):
                return DeviceFault(str(found), found.suspects, found.restarted, found.code, found.name)
            return DeviceFault(str(found), restarted=False)
        if code == sender.DEVICE_LOST:
            loss = self._owner.supervisor.fault(fault)
            return DeviceLost(str(loss), getattr(loss, "cause", None))
        if code == sender.ACTOR_STOPPED:
            return ActorStopped(text)
        if lib == "solver" and (matrix := _of_matrix(status, name, text)):
            return matrix
        if lib == "program" and name == "LoopLimitReached" and text.isdecimal():
            return LoopLimitReached(int(text), status)
        return LibraryError(lib or "worker", status, name or "failure", self._owner.name, text)

    def _of_rank(self, status: int, name: str, text: str) -> AtomrError:
        """Return the error of a message that this device could run, and another rank could not; see meeting.c."""
        device, _, rest = name.partition("\n")
        code, _, rest = rest.partition("\n")
        lib, _, what = rest.partition("\n")
        peer = self._owner.peer(device)
        if peer is None or not code.isdigit():  # a worker that went wild wrote it
            return ActorStopped(f"not run on {self._owner.name}: {text or 'its worker was stopped'}")
        number = int(code)
        if number in (sender.DEVICE_FAULT, sender.DEVICE_LOST):
            return peer.errors.base(number, 0, "", "", text, max(status, 0))
        if number == sender.ACTOR_STOPPED:
            return ActorStopped(f"not run on {self._owner.name}: {device} was closed before it could take part")
        cause = peer.errors.base(number, status, "" if lib == "rank" else lib, what, text, 0)
        return DependencyFailed(f"not run on {self._owner.name}, since {device} could not take part: {cause}", cause)


def _of_matrix(info: int, name: str, text: str) -> AtomrError | None:
    """Return the error of a matrix from `FactorizationError.words`; None if a worker that went wild wrote it."""
    operation, _, rest = text.partition("\n")
    index, _, count = rest.partition("\n")
    places = index.split(",") if index else []
    if name not in _OF_MATRICES or not all(part.isdecimal() for part in (*places, count)):
        return None
    return _OF_MATRICES[name](operation, tuple(map(int, places)), info, int(count))


def _name_call(error: AtomrError, call: MessageCall | None) -> None:
    """Name the call in an error's attributes, and at the end of the first line of its text."""
    if call is not None:
        first, *rest = error.message.splitlines() or [""]
        error.call = call
        error.message = "\n".join((f"{first} [{call}]", *rest))
        error.args = (error.message, *error.args[1:])
