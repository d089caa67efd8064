"""Choices among the ways of a step, and a step as a plan of its own, which can be measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec import structs

from ....dtypes import as_dtype
from ....plans.spec import OVERWRITE, READ, WRITE, OperandSpec, PlanSpec
from ..attributes import EinsumAttributes
from ..path import Contraction
from .arrays import Array

if TYPE_CHECKING:
    from .einsum import Einsum

__all__ = ["Choice", "step_spec"]

#: Routes by their number in a choice that is kept; the first is the plan's own.
_ROUTES: Final = ("", "kernel", "blas_lt", "cutensor")
#: How many words say what a library does; none leaves it to the library.
_WORDS: Final = {"": (0,), "kernel": (0,), "blas_lt": (0, 8), "cutensor": (2, 3)}


@dataclass(frozen=True, slots=True)
class Choice:
    """How a step is computed.

    Attributes
    ----------
    route : str
        ``"kernel"``, ``"blas_lt"``, ``"cutensor"``; empty: as without tuning.
    algo : tuple of int
        Of cuBLASLt an algorithm, or nothing, which leaves it to its heuristic; of cuTENSOR an algorithm and its kernel,
        and `cutensor.COMPILED` for a kernel that is compiled for the step, or `cutensor.WITHIN`.
    """

    route: str = ""
    algo: tuple[int, ...] = ()

    @property
    def words(self) -> tuple[int, ...]:
        """The choice in numbers."""
        return (_ROUTES.index(self.route), *self.algo)

    @staticmethod
    def of(words: Sequence[int]) -> Choice | None:
        """Return the choice of these numbers, or None if they are none."""
        if not words or not 0 <= words[0] < len(_ROUTES) or not all(-(2**63) <= word < 2**64 for word in words):
            return None
        route = _ROUTES[words[0]]
        return Choice(route, tuple(words[1:])) if len(words) - 1 in _WORDS[route] else None


def step_spec(
    builder: Einsum, step: Contraction, operands: Sequence[tuple[Array, bool]], into: Array | None
) -> PlanSpec[EinsumAttributes]:
    """Return the plan of one step: its operands as they lie, and its result where it goes, else contiguous.

    Its modes are numbered as they appear, so that equal steps of different plans are one.
    """
    extents = builder.extents
    inputs = [tuple(dict.fromkeys(modes)) for modes in step.inputs]
    number = {mode: i for i, mode in enumerate(dict.fromkeys(m for modes in inputs for m in modes))}
    parts = []
    for i, ((array, _), modes) in enumerate(zip(operands, inputs, strict=True)):
        size = as_dtype(array.dtype).itemsize
        shape = tuple(extents[m] if m in array.modes else 1 for m in modes)
        parts.append(OperandSpec(f"x{i}", array.dtype, shape, tuple(array.stride(m) * size for m in modes), READ))
    dtype = builder.dtype if into is None else into.dtype
    size = as_dtype(dtype).itemsize
    shape = tuple(extents[m] for m in step.output)
    steps = []
    for place, mode in enumerate(step.output):
        dense = 1
        for n in shape[place + 1 :]:
            dense *= n
        steps.append((dense if into is None else into.stride(mode)) * size)
    parts.append(OperandSpec("out", dtype, shape, tuple(steps), WRITE | OVERWRITE))
    attributes = structs.replace(
        builder.how,
        inputs=tuple(tuple(number[m] for m in modes) for modes in inputs),
        output=tuple(number[m] for m in step.output),
        conj=tuple(flag for _, flag in operands),
        steps=((0, 1),),
        added="none",
        zero=False,
        tail=(),
        tune="",
        tune_seconds=0.0,
    )
    return PlanSpec("tensor.einsum", tuple(parts), (), attributes)
