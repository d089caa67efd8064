"""The interface of a device that handles use.

`Core.owner` is the device's internal state (`atomr_native.device.state`).  Each layer has its own protocol, with the
members that it uses: this one for arrays, and those in `plans`, `runtime`, `interop` and `memory`.  So no layer imports
a layer above it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ..device import Device
    from ..plans.reply import Reply
    from .gpu_ref import GpuRef

__all__ = ["ArrayExports", "ArrayImports", "ArrayMemory", "ArrayOwner", "owner_of"]


class ArrayMemory(Protocol):
    """Messages of the memory actor that handles send."""

    def probe(self, ref: GpuRef) -> Reply:
        """Send a message whose only effect is to depend on `ref`."""

    async def probe_async(self, ref: GpuRef) -> Reply:
        """Like `probe`, but await room in the mailbox."""

    def fill(self, ref: GpuRef, value: complex) -> GpuRef:
        """Send a fill of every element."""

    def clear_error(self, ref: GpuRef) -> None:
        """Clear poison and torn marks of an allocation."""


class ArrayExports(Protocol):
    """Loans of memory to other libraries."""

    def array(self, ref: GpuRef) -> Any:
        """Lend host memory as a NumPy array."""

    def capsule(
        self,
        ref: GpuRef,
        *,
        stream: object,
        max_version: tuple[int, int] | None,
        dl_device: tuple[int, int] | None,
        copy: bool | None,
    ) -> object:
        """Lend memory as a DLPack capsule."""

    def cuda_array_interface(self, ref: GpuRef) -> dict[str, Any]:
        """Lend GPU memory while the handle lives."""

    def lent(self, ref: GpuRef, stream: object) -> AbstractContextManager[Any]:
        """Lend memory for the duration of a ``with`` block."""


class ArrayImports(Protocol):
    """Memory of other libraries."""

    def freed(self, ref: GpuRef) -> None:
        """Record that a handle has freed imported memory."""


class ArrayOwner(Protocol):
    """The device of a handle."""

    @property
    def device(self) -> Device:
        """The public face."""

    @property
    def memory(self) -> ArrayMemory:
        """The memory actor."""

    @property
    def exports(self) -> ArrayExports:
        """Loans to other libraries."""

    @property
    def imports(self) -> ArrayImports:
        """Memory of other libraries."""


def owner_of(device: Device) -> Any:
    """Return the internal state of a device, for modules of the package; see the protocols of the layers."""
    return device._state  # noqa: SLF001 - the one way from the public face to the state
