"""Actors that watch devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lib.actor_cell import BEYOND, Envelope
from .messages import DeviceEnded, DeviceRestarted

if TYPE_CHECKING:
    from ..device import Device
    from .cell import Cell

__all__ = ["DeviceWatch"]

_DEVICE = 3


class DeviceWatch:
    """The devices that one actor watches."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._watched: dict[Device, _Watch] = {}

    def watch(self, device: Device, *, escalate: bool) -> None:
        """Have messages sent when it restarts or ends; with `escalate`, fail with its error when it ends."""
        if device in self._watched:
            self._watched[device].escalate = escalate
            return
        watch = self._watched[device] = _Watch(self._cell, device, escalate)
        device.on_generation(watch.restarted)
        device.on_end(watch.ended)

    def unwatch(self, device: Device) -> None:
        """Have no message about it delivered from here on."""
        watch = self._watched.pop(device, None)
        if watch is not None:
            watch.release()

    def unwatch_all(self) -> None:
        """Watch none any more."""
        for device in list(self._watched):
            self.unwatch(device)

    def admit(self, envelope: Envelope) -> bool:
        """Whether a message is still wanted; raises the error of a device whose end is to be a failure."""
        watch: _Watch = envelope.extra
        if self._watched.get(watch.device) is not watch:
            return False
        if watch.escalate and isinstance(envelope.message, DeviceEnded):
            raise envelope.message.error
        return True


class _Watch:
    """One actor that watches one device; its methods are called in the device's thread."""

    def __init__(self, cell: Cell, device: Device, escalate: bool) -> None:
        self.cell, self.device, self.escalate = cell, device, escalate

    def restarted(self, generation: int) -> None:
        self._send(DeviceRestarted(self.device, generation))

    def ended(self, error: BaseException) -> None:
        self._send(DeviceEnded(self.device, error))

    def _send(self, message: object) -> None:
        self.cell._put(Envelope(message, None, None, _DEVICE, self), BEYOND)

    def release(self) -> None:
        self.device.forget(self.restarted)
        self.device.forget(self.ended)
