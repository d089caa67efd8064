"""Messages from the library to actors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._support.public import public

if TYPE_CHECKING:
    from ..device import Device
    from .ref import ActorRef

__all__ = ["DeviceEnded", "DeviceRestarted", "Terminated"]


@public
@dataclass(frozen=True, slots=True)
class Terminated:
    """A watched actor has stopped for good; sent once, after all messages of that actor.

    Attributes
    ----------
    ref : ActorRef
        Which.
    error : BaseException or None
        The failure that stopped it, if any.
    """

    ref: ActorRef
    error: BaseException | None = None


@public
@dataclass(frozen=True, slots=True)
class DeviceRestarted:
    """A watched device has restarted: its non-durable memory is gone.

    Attributes
    ----------
    device : Device
        Which.
    generation : int
        Its current generation; several restarts may be reported as one.
    """

    device: Device
    generation: int


@public
@dataclass(frozen=True, slots=True)
class DeviceEnded:
    """A watched device has ended for good; sent once.

    Attributes
    ----------
    device : Device
        Which.
    error : AtomrError
        `DeviceLost`, or `ActorStopped` if it was closed.
    """

    device: Device
    error: BaseException
