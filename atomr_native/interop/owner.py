"""The interface of a device that imports and exports use; see `atomr_native.arrays.owner`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..runtime.owner import ServedDevice, ServedMemory

if TYPE_CHECKING:
    from .._lib.sender import Core, Layout
    from ..arrays.gpu_ref import GpuRef
    from ..device import Device
    from .exports import Exports
    from .imports import Imports
    from .quick_copies import QuickCopy

__all__ = ["SharedMemory", "SharingDevice"]


class SharedMemory(ServedMemory, Protocol):
    """The device's memory."""

    def copy(self, source: GpuRef, out: GpuRef | None, dtype: object, pool: int) -> GpuRef:
        """Send a copy, with conversion where dtypes differ."""

    def put(self, array: object, dtype: object, out: GpuRef | None, pool: int) -> GpuRef:
        """Copy an array of this process to the device."""

    def shared(self, array: np.ndarray[Any, Any]) -> GpuRef | None:
        """Return a handle for an array inside a host array of this device, or None."""


class SharingDevice(ServedDevice, Protocol):
    """A device that lends memory, or uses memory of other libraries."""

    @property
    def abandoned(self) -> bool:
        """Whether this process is a fork of the one that opened the device."""

    @property
    def memory(self) -> SharedMemory:
        """The memory actor."""

    @property
    def exports(self) -> Exports:
        """Loans to other libraries."""

    def pair(self, other: Device) -> Any:
        """Return the communicator of this device and another one of its System, made on first use."""

    @property
    def imports(self) -> Imports:
        """Memory of other libraries."""

    @property
    def quick_copies(self) -> dict[tuple[Layout, Core], QuickCopy]:
        """Copies from other devices, by layout and the other device's native part."""
