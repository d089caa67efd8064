"""Actors that watch devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lib.actor_cell import BEYOND, Envelope
from ._envelopes import DEVICE
from .messages import DeviceEnded, DeviceRestarted

if TYPE_CHECKING:
    from ..device import Device
    from .cell import Cell

__all__ = ["DeviceWatch"]


class DeviceWatch:
    """The devices that one actor watches."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._watched: dict[Device, _Watch] = {}

    def watch(self, device: Device, *, escalate: bool) -> None:
        """Send messages when a device restarts or ends; with `escalate`, fail with its error when it ends."""
        if device in self._watched:
            self._watched[device].escalate = escalate
            return
        watch = self._watched[device] = _Watch(self._cell, device, escalate)
        device.on_generation(watch.restarted)
        device.on_end(watch.ended)

    def unwatch(self, device: Device) -> None:
        """Stop watching a device; no message about it is delivered from now on."""
        watch = self._watched.pop(device, None)
        if watch is not None:
            watch.release()

    def unwatch_all(self) -> None:
        """Stop watching all devices."""
        for device in list(self._watched):
            self.unwatch(device)

    def admit(self, envelope: Envelope) -> bool:
        """Whether a message is still to be delivered; raises the error of an ended device with `escalate`."""
        watch: _Watch = envelope.extra
        if self._watched.get(watch.device) is not watch:
            return False
        if watch.escalate and isinstance(envelope.message, DeviceEnded):
            raise envelope.message.error
        return True


class _Watch:
    """The watch of one device by one actor; its methods are called in the device's thread."""

    def __init__(self, cell: Cell, device: Device, escalate: bool) -> None:
        self.cell, self.device, self.escalate = cell, device, escalate

    def restarted(self, generation: int) -> None:
        self._send(DeviceRestarted(self.device, generation))

    def ended(self, error: BaseException) -> None:
        self._send(DeviceEnded(self.device, error))

    def _send(self, message: object) -> None:
        self.cell.enqueue(Envelope(message, None, None, DEVICE, self), BEYOND)

    def release(self) -> None:
        self.device.forget(self.restarted)
        self.device.forget(self.ended)
