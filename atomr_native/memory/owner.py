"""The interface of a device that the memory actor uses; see `atomr_native.arrays.owner`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..interop.owner import SharingDevice

if TYPE_CHECKING:
    from .device_memory import DeviceMemory

__all__ = ["MemoryOwner"]


class MemoryOwner(SharingDevice, Protocol):
    """The device that owns the memory."""

    @property
    def memory(self) -> DeviceMemory:
        """The memory actor itself."""

    def give_back(self, segment: int | None) -> None:
        """Make all other devices unmap a segment (None: all segments)."""
