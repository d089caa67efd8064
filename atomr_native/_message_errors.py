"""The typed errors of one device's messages and handles, from what C, the worker and the supervisor have noted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import (
    ActorStopped,
    AtomrError,
    DependencyFailed,
    DeviceFault,
    DeviceLost,
    GpuRefStale,
    InvalidRequest,
    LibraryError,
    OutOfMemory,
    PlanQuarantined,
    Unsupported,
)

if TYPE_CHECKING:
    from .device import Device

__all__ = ["MessageErrors"]

_REFUSED = {
    "device restarted": "not run: {name} restarted while the message was queued, and it uses memory that was not "
    "durable",
    "torn": "not run: an operand was being written when the worker of {name} died; write it whole, or accept its "
    "bytes with clear_error()",
    "rolled back": "not run: {name} restarted while the message was queued, and a durable group that it uses went "
    "back to its last commit; go on from there",
}


class MessageErrors:
    """Makes errors, a fresh one each time: an error that is raised keeps frames.

    Parameters
    ----------
    device : Device
        Whose messages.
    """

    def __init__(self, device: Device) -> None:
        self._device = device

    def closed(self, reason: str) -> AtomrError:
        """Return why nothing can be sent any more: ``"device lost"`` or ``"device closed"``."""
        if reason == "device lost":
            loss = self._device._supervisor.loss
            return DeviceLost(str(loss), loss.cause)
        return ActorStopped(f"{self._device.name} is closed; nothing can be sent to it any more")

    def stale(self, allocation: object, reason: str) -> AtomrError:
        """Return the error of a use of a handle that is not valid; `allocation` None: of a device that has ended."""
        if allocation is None or reason == "device lost":
            return self.closed(reason)
        name = self._device.name
        advice = {
            "freed": "it was freed; messages sent before that are unaffected",
            "device restarted": f"{name} has restarted (generation {self._device.generation}) and it was not durable; "
            f"put the data again, or allocate with durable=True",
            "device closed": f"{name} is closed",
            "rolled back": f"{name} has restarted, and its durable group went back to the last commit; go on from "
            f"there with group.restore(), or accept the bytes with clear_error()",
            "torn": "a message was writing it when the worker died; write it whole, or accept its bytes with "
            "clear_error()",
        }.get(reason, reason)
        return GpuRefStale(f"this handle is stale: {advice}", reason)

    def make(
        self, code: int, status: int, lib: str, name: str, text: str, inherited: bool, lane: int, ticket: int,
        fault: int,
    ) -> AtomrError:  # fmt: skip
        """Build the typed error of a failed message from what the worker or the supervisor noted."""
        error = self._base(code, status, lib, name, text, fault)
        if not inherited:
            return error
        return DependencyFailed(
            f"not run, since an operand was to be written by message {ticket} of {self._device._lane_name(lane)!r}, "
            f"which failed: {error}",
            error,
        )

    def _base(self, code: int, status: int, lib: str, name: str, text: str, fault: int) -> AtomrError:
        if code in (2, 3):
            refusal = PlanQuarantined if name == "PlanQuarantined" else Unsupported
            return (refusal if code == 2 else InvalidRequest)(text or name)
        if code == 4:
            return OutOfMemory(text or "the worker ran out of memory", 0, 0, 0, self._device._memory.limit)
        if code in (6, 7, 8):
            reason = {6: "device restarted", 7: "torn", 8: "rolled back"}[code]
            return GpuRefStale(_REFUSED[reason].format(name=self._device.name), reason)
        if code == 9:
            found = self._device._supervisor.fault(fault)
            if isinstance(found, DeviceFault):
                return DeviceFault(str(found), found.suspects, found.restarted, found.code, found.name)
            return DeviceFault(str(found), restarted=False)
        if code == 10:
            loss = self._device._supervisor.fault(fault)
            return DeviceLost(str(loss), getattr(loss, "cause", None))
        if code == 11:
            return ActorStopped(text)
        return LibraryError(lib or "worker", status, name or "failure", self._device.name, text)
