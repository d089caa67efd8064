"""What a transform is made of: arrays, calls of cuFFT, copies, functions and kernels, in order."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....arrays.operands import contiguous_strides
from ....builders.cuda.sequence import Source
from ....builders.cuda.target import Launch
from ....dtypes import as_dtype
from ....plans.spec import OperandSpec
from .layouts import Layout, Side

if TYPE_CHECKING:
    from .line_types import Lines

__all__ = ["Apply", "Array", "Axes", "Call", "Custom", "Linked", "Move", "Steps", "in_order", "operand", "order_of"]

Axes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """An operand of the message, or a buffer in the workspace; strides are in elements."""

    source: Source
    dtype: str
    shape: Axes
    strides: Axes

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.shape) * as_dtype(self.dtype).itemsize

    @property
    def side(self) -> Side:
        """The layout."""
        return Side(self.shape, self.strides, as_dtype(self.dtype).itemsize)


@dataclass(frozen=True, slots=True)
class Move:
    """A copy from an array to another, or of one to itself.

    Attributes
    ----------
    source, target : Array
        The target may have other extents: elements that the source lacks are zero.
    scale : float
    conjugated : bool
    symmetric : tuple of (int, int)
        Axes and their points: along the last axis, the first and the middle element of a Hermitian array lose the
        parts that a real result does not have.
    reason : str
    """

    source: Array
    target: Array
    reason: str
    scale: float = 1.0
    conjugated: bool = False
    symmetric: tuple[tuple[int, int], ...] = ()

    @property
    def note(self) -> str:
        """What is copied, and why."""
        if self.source == self.target:
            return f"{self.reason}: a pass over {self.target.nbytes} bytes"
        place = "out" if self.target.source[0] == "operand" else "the workspace"
        return f"{self.target.nbytes} bytes are copied to {place}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Linked:
    """A function of this library that cuFFT calls for each element that it loads, or stores.

    Attributes
    ----------
    which : str
        ``"load"`` or ``"store"``.
    code : str
        CUDA C++, and C for tests.
    note : str
        Its part of the plan's notes.
    block : bool
        Whether it takes addresses of operands from the block of the message's parameters.
    move : Move or None
        The copy in whose place it is.
    """

    which: str
    code: str
    note: str
    block: bool
    move: Move | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """Calls of one plan of cuFFT.

    Attributes
    ----------
    callbacks : tuple of str
        The functions of the user's that cuFFT calls, ``"load"`` and ``"store"``.
    scale : float
    conjugated : bool
        What cuFFT does to each element that it stores, by a function of its own.
    linked : tuple of Linked
        One for loads at most, and one for stores, where there is none of the user's.
    narrow : str
        ``"float16"`` or ``"bfloat16"`` if the arrays have numbers of 16 bits: real ones of that dtype, and complex ones
        that are described as float32.
    """

    source: Array
    target: Array
    layout: Layout
    inverse: bool
    callbacks: tuple[str, ...] = ()
    scale: float = 1.0
    conjugated: bool = False
    linked: tuple[Linked, ...] = ()
    narrow: str = ""

    def dense(self, which: str) -> str:
        """Return the dtype of what cuFFT loads or stores."""
        return self.source.dtype if which == "load" else self.target.dtype

    @property
    def finishes(self) -> bool:
        """Whether cuFFT changes the elements that it stores."""
        return self.scale != 1 or self.conjugated


@dataclass(frozen=True, slots=True)
class Apply:
    """A function of the user's on each element.

    Attributes
    ----------
    which : str
        ``"load"`` or ``"store"``.
    source, target : Array
        The target may have other extents: elements that the source lacks are zero.
    shape : tuple of int
        Of the array whose elements offsets count, in C order.
    scale : float
        Of results of ``"load"``, and of values of ``"store"``.
    """

    which: str
    source: Array
    target: Array
    shape: Axes
    scale: float

    @property
    def note(self) -> str:
        """What the function costs."""
        place = "before" if self.which == "load" else "after"
        array = self.target if self.which == "load" else self.source
        return (
            f"the function {self.which} is a kernel of its own {place} the transform: {array.nbytes} bytes are copied "
            f"{'to' if self.which == 'load' else 'from'} the workspace"
        )


@dataclass(frozen=True, slots=True)
class Custom:
    """A kernel of a source and a target.

    Attributes
    ----------
    code : str
        CUDA C++.
    launch : Launch
    note : str
        Its part of the plan's notes, or nothing.
    others : tuple of Array
        Operands after these two, which it reads.
    """

    source: Array
    target: Array
    code: str
    launch: Launch
    note: str
    others: tuple[Array, ...] = ()


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps in order, and the bytes of their buffers."""

    steps: tuple[Move | Call | Apply | Custom | Lines, ...]
    nbytes: int

    @property
    def linked(self) -> int:
        """How many functions of cuFFT's kernels are in the place of copies."""
        return sum(len(step.linked) for step in self.steps if isinstance(step, Call))

    @property
    def calls(self) -> bool:
        """Whether cuFFT calls functions of this library."""
        return self.linked > 0 or any(isinstance(step, Call) and step.finishes for step in self.steps)

    @property
    def reason(self) -> str:
        """Why there is more than one call of cuFFT, or nothing."""
        found = [step.reason for step in self.steps if isinstance(step, Move)]
        looped = any(isinstance(step, Call) and step.layout.loops for step in self.steps)
        return "; ".join([*dict.fromkeys(found), *(["the batch is uneven"] if looped else [])])

    @property
    def cost(self) -> tuple[int, int]:
        """Copies, and plans of cuFFT."""
        moves = sum(not isinstance(step, Call) for step in self.steps)
        return moves, len(self.steps) - moves

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not one call of cuFFT."""
        found = []
        for step in self.steps:
            if not isinstance(step, Call):
                found += [step.note] if step.note else []
                continue
            if step.layout.loops:
                found.append(f"{math.prod(n for n, *_ in step.layout.loops)} calls of cuFFT, since the batch is uneven")
            found += [f"cuFFT's kernels call the function {which}" for which in step.callbacks]
            found += [function.note for function in step.linked]
            if step.finishes:
                found.append(f"cuFFT's kernels {'conjugate' if step.conjugated else 'multiply by the factor'}")
        return tuple(found)


def operand(place: int, given: OperandSpec) -> Array:
    """Return an operand of the message."""
    size = as_dtype(given.dtype).itemsize
    return Array(("operand", place), given.dtype, given.shape, tuple(step // size for step in given.strides))


def in_order(shape: Axes, order: Iterable[int]) -> Axes:
    """Return the strides of a dense array whose axes lie in this order, the outermost first."""
    axes = list(order)
    steps = contiguous_strides(tuple(shape[a] for a in axes), 1)
    found = dict(zip(axes, steps, strict=True))
    return tuple(found[a] for a in range(len(shape)))


def order_of(array: Array) -> list[int]:
    """Return the axes as they lie in memory, the outermost first."""
    return sorted(range(len(array.shape)), key=lambda a: (-abs(array.strides[a]), a))
