"""Operators of handles: short forms of ``device.elementwise`` and ``device.blas_lt`` on the array's own device.

Each enqueues one message and returns the new array.  Python numbers are weak: they adapt to the array that they meet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, cast

from .._lib.sender import Allocation, Layout
from ..errors import InvalidRequest

if TYPE_CHECKING:
    from .gpu_ref import GpuRef
    from .owner import ArrayFunctions

__all__ = ["Operators"]


class Operators:
    """The operators of `GpuRef`.  Handles are hashed by identity, while ``==`` compares elements."""

    __slots__ = ()
    __hash__ = object.__hash__

    allocation: Allocation
    layout: Layout

    @property
    def _functions(self) -> ArrayFunctions:
        found: ArrayFunctions = self.allocation.core.owner.array_functions
        return found

    def __add__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.binary("x + y", self, other)
        return made

    def __radd__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.reflected("x + y", other, self)
        return made

    def __iadd__(self, other: Any) -> Self:
        made: Self = self.allocation.core.owner.elementwise.update("x + y", self, other)
        return made

    def __sub__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.binary("x - y", self, other)
        return made

    def __rsub__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.reflected("x - y", other, self)
        return made

    def __isub__(self, other: Any) -> Self:
        made: Self = self.allocation.core.owner.elementwise.update("x - y", self, other)
        return made

    def __mul__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.binary("x * y", self, other)
        return made

    def __rmul__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.reflected("x * y", other, self)
        return made

    def __imul__(self, other: Any) -> Self:
        made: Self = self.allocation.core.owner.elementwise.update("x * y", self, other)
        return made

    def __truediv__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.binary("x / y", self, other)
        return made

    def __rtruediv__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.reflected("x / y", other, self)
        return made

    def __itruediv__(self, other: Any) -> Self:
        made: Self = self.allocation.core.owner.elementwise.update("x / y", self, other)
        return made

    def __floordiv__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.binary("x // y", self, other)
        return made

    def __rfloordiv__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.reflected("x // y", other, self)
        return made

    def __ifloordiv__(self, other: Any) -> Self:
        made: Self = self.allocation.core.owner.elementwise.update("x // y", self, other)
        return made

    def __mod__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.binary("x % y", self, other)
        return made

    def __rmod__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.reflected("x % y", other, self)
        return made

    def __imod__(self, other: Any) -> Self:
        made: Self = self.allocation.core.owner.elementwise.update("x % y", self, other)
        return made

    def __pow__(self, other: Any) -> GpuRef:
        owner = self.allocation.core.owner
        if other.__class__ is int and other == 2 and self.layout.dtype_name != "bool":
            squared: GpuRef = owner.elementwise.unary("x * x", self)
            return squared
        made: GpuRef = owner.elementwise.binary("x ** y", self, other)
        return made

    def __rpow__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.reflected("x ** y", other, self)
        return made

    def __ipow__(self, other: Any) -> Self:
        made: Self = self.allocation.core.owner.elementwise.update("x ** y", self, other)
        return made

    def __and__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.binary("x & y", self, other)
        return made

    def __rand__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.reflected("x & y", other, self)
        return made

    def __iand__(self, other: Any) -> Self:
        made: Self = self.allocation.core.owner.elementwise.update("x & y", self, other)
        return made

    def __or__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.binary("x | y", self, other)
        return made

    def __ror__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.reflected("x | y", other, self)
        return made

    def __ior__(self, other: Any) -> Self:
        made: Self = self.allocation.core.owner.elementwise.update("x | y", self, other)
        return made

    def __xor__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.binary("x ^ y", self, other)
        return made

    def __rxor__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.reflected("x ^ y", other, self)
        return made

    def __ixor__(self, other: Any) -> Self:
        made: Self = self.allocation.core.owner.elementwise.update("x ^ y", self, other)
        return made

    def __lshift__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.binary("x << y", self, other)
        return made

    def __rlshift__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.reflected("x << y", other, self)
        return made

    def __ilshift__(self, other: Any) -> Self:
        made: Self = self.allocation.core.owner.elementwise.update("x << y", self, other)
        return made

    def __rshift__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.binary("x >> y", self, other)
        return made

    def __rrshift__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.reflected("x >> y", other, self)
        return made

    def __irshift__(self, other: Any) -> Self:
        made: Self = self.allocation.core.owner.elementwise.update("x >> y", self, other)
        return made

    def __eq__(self, other: Any) -> GpuRef:  # type: ignore[override]
        made: GpuRef = self.allocation.core.owner.elementwise.binary("x == y", self, other)
        return made

    def __ne__(self, other: Any) -> GpuRef:  # type: ignore[override]
        made: GpuRef = self.allocation.core.owner.elementwise.binary("x != y", self, other)
        return made

    def __lt__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.binary("x < y", self, other)
        return made

    def __le__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.binary("x <= y", self, other)
        return made

    def __gt__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.binary("x > y", self, other)
        return made

    def __ge__(self, other: Any) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.binary("x >= y", self, other)
        return made

    def __neg__(self) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.unary("-x", self)
        return made

    def __invert__(self) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.unary("~x", self)
        return made

    def __abs__(self) -> GpuRef:
        made: GpuRef = self.allocation.core.owner.elementwise.unary("abs(x)", self)
        return made

    def __pos__(self) -> GpuRef:
        mine = cast("GpuRef", self)
        return mine.device.copy(mine)

    def __divmod__(self, other: Any) -> tuple[GpuRef, GpuRef]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[GpuRef, GpuRef]:
        return other // self, other % self

    def __matmul__(self, other: GpuRef) -> GpuRef:
        made: GpuRef = self._functions.matmul(self, other)
        return made

    def __rmatmul__(self, other: GpuRef) -> GpuRef:
        made: GpuRef = self._functions.matmul(other, self)
        return made

    def __imatmul__(self, other: GpuRef) -> Self:
        mine = cast("GpuRef", self)
        made = self._functions.matmul(mine, other)
        if made.shape != mine.shape:
            raise InvalidRequest(
                f"x @= y of shape {made.shape}, and x has {mine.shape}; allowed: equal shapes, or x = x @ y"
            )
        mine[...] = made
        return self

    # ---- values: each waits for the array's writers, and copies one element to the host

    def item(self) -> Any:
        """Wait, and return the only element as a Python number; `InvalidRequest` for an array of several.

        Examples
        --------
        >>> device.put(np.arange(4.0)).sum().item()
        6.0
        """
        mine = cast("GpuRef", self)
        if mine.size != 1:
            raise InvalidRequest(
                f"an array of shape {mine.shape} is no single number: it has {mine.size} elements, and item(), bool(), "
                f"int() and float() take 1; a.numpy() copies all of them, a.any() and a.all() sum up"
            )
        return mine.numpy().item()

    def __bool__(self) -> bool:
        """Wait, and say whether the only element is not zero; as `item`."""
        return bool(self.item())

    def __int__(self) -> int:
        """Wait, and return the only element as an integer; as `item`."""
        return int(self.item())

    def __float__(self) -> float:
        """Wait, and return the only element as a float; as `item`."""
        return float(self.item())

    def __complex__(self) -> complex:
        """Wait, and return the only element as a complex number; as `item`."""
        return complex(self.item())

    def __index__(self) -> int:
        """Wait, and return the only element, of an integer dtype and without axes; as `item`."""
        mine = cast("GpuRef", self)
        if mine.dtype.kind not in "iu" or mine.ndim:
            raise TypeError(f"only an integer array without axes is an index, not {mine.layout!r}")
        return int(self.item())
