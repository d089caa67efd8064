"""Tasks of kernels over tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....builders.cuda.codegen import convert
from ..modes import Modes
from .arrays import Array

__all__ = ["Task", "low"]


@dataclass(frozen=True, slots=True)
class Task:
    """A kernel over tensors.

    Attributes
    ----------
    inputs : tuple of Array
        Read for each element that is reduced, as `x0`, `x1`, ...
    finals : tuple of Array
        Read once for each result; their numbers follow.
    output : Array
        Its number follows.
    kept, reduced : tuple of int
        Modes of the result, and those that are reduced.
    dtype : str
        Of values.
    value : tuple of str
        C statements that declare `v`, a value, from the bits of the inputs.
    reduction : str
        ``"sum"``, ``"prod"``, ``"max"``, ``"min"``, ``"any"``, ``"all"``.
    finish : tuple of str
        C statements that change `v`, reduced, by finals.
    scalars : tuple of str
        Kinds of the message's scalars, which statements call `s0`, `s1`, ...
    updated : bool
        Whether the output's bits are read, too.
    """

    inputs: tuple[Array, ...]
    finals: tuple[Array, ...]
    output: Array
    kept: Modes
    reduced: Modes
    dtype: str
    value: tuple[str, ...]
    reduction: str = "sum"
    finish: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()
    updated: bool = False

    @property
    def arrays(self) -> tuple[Array, ...]:
        """Operands of its kernel, in order."""
        return (*self.inputs, *self.finals, self.output)

    @property
    def stored(self) -> str:
        """The bits of the output, of `v`."""
        return convert(self.dtype, self.output.dtype, "v")


def low(shape: Sequence[int], steps: Sequence[int]) -> int:
    """Return how many elements before the first one a tensor begins."""
    return sum((n - 1) * -step for n, step in zip(shape, steps, strict=True) if step < 0)
