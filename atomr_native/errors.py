"""Typed errors.

Every failure that a user can meet is one of these classes.  All of them can be pickled, none keeps
frames or device memory alive, and each message names the offending value and what would be allowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = [
    "ActorStopped",
    "AskTimeout",
    "AtomrError",
    "DependencyFailed",
    "DeviceFault",
    "DeviceLost",
    "GpuRefStale",
    "InvalidRequest",
    "LibraryError",
    "MailboxFull",
    "NoCudaArrayInterface",
    "NoReply",
    "OutOfMemory",
    "PlanQuarantined",
    "Suspect",
    "UnhandledMessage",
    "Unsupported",
]


class AtomrError(Exception):
    """Base class of every error that this library raises."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions pickle as type(*args); ours carry attributes, so rebuild from the state instead.
        return _rebuild, (type(self), self.args, dict(self.__dict__))


def _rebuild(cls: type[AtomrError], args: tuple[Any, ...], state: dict[str, Any]) -> AtomrError:
    base: Any = cls.__base__
    error: AtomrError = base.__new__(cls)  # OutOfMemory needs MemoryError's
    error.args = args
    error.__dict__.update(state)
    return error


class InvalidRequest(AtomrError, ValueError):
    """A request that can never work; raised before anything is enqueued."""


class Unsupported(AtomrError):
    """A valid request that is not possible here.

    The message says which rule failed and which version or device lifts it.
    """


class PlanQuarantined(Unsupported):
    """A plan whose build or run has killed the worker twice; it is not tried again."""


class NoCudaArrayInterface(Unsupported, AttributeError):
    """An array that ``__cuda_array_interface__`` cannot describe; for ``hasattr`` it has none."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.name = "__cuda_array_interface__"  # else Python notes the array itself, and keeps its memory alive


class GpuRefStale(AtomrError):
    """A handle whose memory is gone.

    Attributes
    ----------
    reason : str
        ``"freed"``, ``"device restarted"``, ``"device closed"``, ``"torn"`` or ``"rolled back"``.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class OutOfMemory(AtomrError, MemoryError):
    """Device memory is exhausted; the device stays usable.

    Attributes
    ----------
    requested, free, largest, limit : int
        Bytes asked for, bytes free in all, the largest free block, and the memory limit.
    """

    def __init__(self, message: str, requested: int, free: int, largest: int, limit: int) -> None:
        super().__init__(message)
        self.requested = requested
        self.free = free
        self.largest = largest
        self.limit = limit


class LibraryError(AtomrError):
    """A library refused or failed an operation.

    Attributes
    ----------
    lib, name, operation : str
        The library, the name of its status or exception, and what was being done.
    status : int
        The library's own status number (0 where it has none).
    """

    def __init__(self, lib: str, status: int, name: str, operation: str, detail: str = "") -> None:
        text = f"{lib}: {name} ({status}) in {operation}"
        super().__init__(f"{text}: {detail}" if detail else text)
        self.lib = lib
        self.status = status
        self.name = name
        self.operation = operation


@dataclass(frozen=True)
class Suspect:
    """A message that was claimed and not completed when the worker died."""

    actor: str
    ticket: int
    operation: str


class DeviceFault(AtomrError):
    """The worker of a device died while this message was running.

    Attributes
    ----------
    suspects : tuple of Suspect
        Every message that was claimed and incomplete.  First those that nothing incomplete was ahead of, in their
        mailbox or by their operands: the likeliest to have caused it.
    restarted : bool
        Whether the device comes back (then send again), or is lost.
    code, name : int, str
        What ended the worker: an error of the device (700, ``"CUDA_ERROR_ILLEGAL_ADDRESS"``), a signal (11,
        ``"SIGSEGV"``), a status (3, ``"exit"``), or the watchdog (9, ``"watchdog"``); 0 and ``""`` if nothing is
        known.
    """

    def __init__(
        self,
        message: str,
        suspects: tuple[Suspect, ...] = (),
        restarted: bool = True,
        code: int = 0,
        name: str = "",
    ) -> None:
        super().__init__(message)
        self.suspects = suspects
        self.restarted = restarted
        self.code = code
        self.name = name


class DeviceLost(AtomrError):
    """The device will not come back: its restart budget is spent, or it cannot restart here.

    Attributes
    ----------
    cause : DeviceFault or None
        The fault that ended it, where it was one.
    """

    cause: DeviceFault | None = None

    def __init__(self, message: str, cause: DeviceFault | None = None) -> None:
        super().__init__(message)
        if cause is not None:
            self.cause = cause


class MailboxFull(AtomrError):
    """The mailbox had no room within the time allowed; nothing was sent.

    Attributes
    ----------
    actor : str
        Whose mailbox.
    capacity : int
        Its size: messages for an actor of the program's own, cells of 256 bytes for one of a device.
    """

    def __init__(self, message: str, actor: str, capacity: int) -> None:
        super().__init__(message)
        self.actor = actor
        self.capacity = capacity


class AskTimeout(AtomrError, TimeoutError):
    """A wait ran out of time.  The message itself is not cancelled."""


class DependencyFailed(AtomrError):
    """A message was not run, since an operand was to be written by a message that failed.

    Attributes
    ----------
    cause : AtomrError
        The first failure.
    """

    def __init__(self, message: str, cause: AtomrError) -> None:
        super().__init__(message)
        self.cause = cause


class ActorStopped(AtomrError):
    """The actor or device was closed before the message could run."""


class UnhandledMessage(AtomrError):
    """The actor has no handler for a message of this type."""


class NoReply(AtomrError):
    """The actor took the message to answer it later, and then dropped it."""
