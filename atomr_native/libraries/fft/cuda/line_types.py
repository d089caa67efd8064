"""A transform along one axis by a kernel of this library, as a step of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .lines import Geometry
from .steps import Array

__all__ = ["ONE_KERNEL", "End", "Lines"]

#: How the note of such a transform begins.
ONE_KERNEL: Final = "one kernel of this library transforms"

Axes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class End:
    """One end of a transform.

    Attributes
    ----------
    array : Array
        With the axes of lines, of a function the dense array that it knows places of; complex numbers of 16 bits have a
        last axis of their parts.
    axis : int
        Along which lines lie.
    aligned : bool
        Whether it starts at a multiple of a complex element.
    symbol : str
        The function, or nothing.
    conjugated : bool
    scale : float
        Of elements that are written without a function.
    """

    array: Array
    axis: int
    aligned: bool = True
    symbol: str = ""
    conjugated: bool = False
    scale: float = 1.0

    @property
    def step(self) -> int:
        """Elements from one point to the next."""
        return self.array.strides[self.axis]

    def twos(self, halves: bool) -> bool:
        """Whether two neighbours can be read by one access: the parts of a number, or a real number and the next."""
        if self.symbol or self.array.dtype in ("complex64", "complex128"):
            return False
        steps = self.array.strides[:-1] if halves else [s for a, s in enumerate(self.array.strides) if a != self.axis]
        near = self.array.strides[-1] if halves else self.step
        return self.aligned and near == 1 and not any(step % 2 for step in steps)


@dataclass(frozen=True, slots=True)
class Lines:
    """A transform along one axis by a kernel of this library.

    Attributes
    ----------
    source, target : Array
        Operands of the message.
    load, store : End
        How a line is read and written.
    kind : str
        ``"c2c"``, ``"r2c"`` or ``"c2r"``.
    n, sign : int
        Points, and the sign of the exponent.
    real : str
        In which it is computed.
    geometry : Geometry
    extents, near, far : tuple of int
        Of the lines, the innermost last, and the steps from one to the next at both ends.
    halves : (bool, bool)
        Whether source and target have complex numbers as pairs of 16 bits, along a last axis.
    reason : str
        Why cuFFT does not transform by itself.
    codes : tuple of str
        Functions as text.
    linked : tuple of (str, bytes)
        Functions in LTO-IR.
    """

    source: Array
    target: Array
    load: End
    store: End
    kind: str
    n: int
    sign: int
    real: str
    geometry: Geometry
    extents: Axes
    near: Axes
    far: Axes
    halves: tuple[bool, bool]
    reason: str
    codes: tuple[str, ...] = ()
    linked: tuple[tuple[str, bytes], ...] = ()

    @property
    def functions(self) -> bool:
        """Whether it calls functions, which get addresses and numbers of the message."""
        return bool(self.load.symbol or self.store.symbol)

    @property
    def note(self) -> str:
        """Why cuFFT does not transform by itself."""
        return f"{ONE_KERNEL}: {self.reason}"
