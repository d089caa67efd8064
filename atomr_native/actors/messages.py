"""Messages that the library itself sends to actors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..device import Device
    from .ref import ActorRef

__all__ = ["DeviceEnded", "DeviceRestarted", "Terminated"]


@dataclass(frozen=True, slots=True)
class Terminated:
    """A watched actor has stopped for good; comes once, and after everything that it had sent.

    Attributes
    ----------
    ref : ActorRef
        Which.
    error : BaseException or None
        The failure for which it was stopped, if that was the reason.
    """

    ref: ActorRef
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class DeviceRestarted:
    """A watched device has come up again: what was not durable is gone.

    Attributes
    ----------
    device : Device
        Which.
    generation : int
        Its generation now; several restarts may be told as one.
    """

    device: Device
    generation: int


@dataclass(frozen=True, slots=True)
class DeviceEnded:
    """A watched device will not come up again; comes once.

    Attributes
    ----------
    device : Device
        Which.
    error : AtomrError
        `DeviceLost`, or `ActorStopped` when it was closed.
    """

    device: Device
    error: BaseException
