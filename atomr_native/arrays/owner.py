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
    from ..interop.shared import SharedArray
    from ..plans.reply import Reply
    from .gpu_ref import GpuRef

__all__ = ["ArrayArithmetic", "ArrayExports", "ArrayFunctions", "ArrayImports", "ArrayMemory", "ArrayOwner", "owner_of"]


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

    def share(self, ref: GpuRef) -> SharedArray:
        """Let other programs open an array by a name."""


class ArrayImports(Protocol):
    """Memory of other libraries."""

    def freed(self, ref: GpuRef) -> None:
        """Record that a handle has freed imported memory."""


class ArrayArithmetic(Protocol):
    """What operators send: expressions over ``x``, ``y`` and ``z``."""

    def unary(self, program: str, x: GpuRef) -> GpuRef:
        """Send an expression over an array."""

    def binary(self, program: str, x: GpuRef, y: Any) -> GpuRef:
        """Send an expression over an array and an array or number."""

    def reflected(self, program: str, x: Any, y: GpuRef) -> GpuRef:
        """Send an expression over a number and an array."""

    def update(self, program: str, x: GpuRef, y: Any) -> GpuRef:
        """Send an expression that is assigned to `x`."""

    def ternary(self, program: str, x: Any, y: Any, z: Any) -> GpuRef:
        """Send an expression over three arrays or numbers."""

    def assign_where(self, target: GpuRef, mask: GpuRef, value: Any) -> None:
        """Write a number or an array without axes where a mask is not zero."""

    def operand(self, program: str, x: GpuRef, value: Any) -> Any:
        """Return what stands for a number beside an array."""

    def take(self, x: GpuRef, indices: GpuRef, axis: int, *, along: bool) -> GpuRef:
        """Send a gather."""

    def sequence(self, start: float, step: float, count: int, dtype: str) -> GpuRef:
        """Send the numbers from `start` on, `step` apart."""

    def sort(self, x: GpuRef, *, descending: bool, places: bool) -> GpuRef:
        """Send the sort of rows, to elements or their places."""

    def scan(self, op: str, x: GpuRef, dtype: str) -> GpuRef:
        """Send the running sums or products of rows."""

    def search(self, row: GpuRef, values: GpuRef, *, right: bool) -> GpuRef:
        """Send a search for values in a sorted row."""


class ArrayFunctions(Protocol):
    """`atomr_native.array_api`, as far as handles use it."""

    def __getattr__(self, name: str) -> Any:
        """Return a function."""


class ArrayOwner(Protocol):
    """The device of a handle."""

    @property
    def elementwise(self) -> ArrayArithmetic:
        """The elementwise actor."""

    @property
    def array_functions(self) -> ArrayFunctions:
        """Functions of arrays."""

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
