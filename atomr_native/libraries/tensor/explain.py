"""What an expression costs: its steps, their routes, operations and bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..._support.public import public
from ...dtypes import DTYPES
from .modes import Subscripts, text_of
from .path import Path, contractions, peak_elements, sliced_extents
from .products import route_of
from .spec import EinsumProblem

__all__ = ["EinsumPath", "EinsumStep", "explain"]


@public
@dataclass(frozen=True, slots=True)
class EinsumStep:
    """One step of an expression.

    Attributes
    ----------
    operands : tuple of int
        Those of the expression are numbered from 0; results of steps follow.
    subscripts : str
        Its modes.
    route : str
        How a GPU computes it: ``"blas_lt"``, ``"cutensor"``, ``"cutlass"`` or ``"kernel"``.
    flops : int
        Multiplications and additions, of all slices; those of complex numbers count as one.
    nbytes : int
        Bytes of its operands and its result, each once for each slice.

    Examples
    --------
    >>> a = np.ones((2, 3))
    >>> device.tensor.einsum_path("ij,kj->ik", a, a).steps[0].flops
    24
    """

    operands: tuple[int, ...]
    subscripts: str
    route: str
    flops: int
    nbytes: int


@public
@dataclass(frozen=True, slots=True)
class EinsumPath:
    """How an expression is computed; `Tensor.einsum_path` returns it.

    Attributes
    ----------
    path : tuple of tuple of int
        Positions of the operands of each step, as ``optimize`` takes them.
    steps : tuple of EinsumStep
    slices : dict of str to int
        Modes that are sliced, and their extents.
    flops : int
        Of all steps.
    naive_flops : int
        Of one sum over all modes at once.
    peak : int
        The most bytes of intermediate results that exist at once.

    Examples
    --------
    >>> a, b, c = np.ones((8, 2)), np.ones((2, 8)), np.ones((8, 2))
    >>> path = device.tensor.einsum_path("ij,jk,kl->il", a, b, c)
    >>> path.path, path.flops, path.naive_flops, path.peak
    (((1, 2), (0, 1)), 128, 768, 32)
    """

    path: tuple[tuple[int, ...], ...]
    steps: tuple[EinsumStep, ...]
    slices: dict[str, int]
    flops: int
    naive_flops: int
    peak: int

    def __str__(self) -> str:
        lines = [f"{'operands':<12}{'subscripts':<28}{'route':<10}{'FLOPs':>14}{'bytes':>14}"]
        lines += [f"{s.operands!s:<12}{s.subscripts:<28}{s.route:<10}{s.flops:>14,}{s.nbytes:>14,}" for s in self.steps]
        sliced = ", ".join(f"{name} ({n})" for name, n in self.slices.items())
        lines.append(
            f"{self.flops:,} FLOPs, {self.naive_flops:,} in one sum; intermediate results: {self.peak:,} bytes"
        )
        return "\n".join([*lines, *([f"sliced: {sliced}"] if sliced else [])])


def _positions(steps: Path, count: int) -> tuple[tuple[int, ...], ...]:
    held, found = list(range(count)), []
    for number, step in enumerate(steps.steps):
        found.append(tuple(sorted(held.index(i) for i in step)))
        held = [i for i in held if i not in step] + [count + number]
    return tuple(found)


def explain(problem: EinsumProblem, route: str) -> EinsumPath:
    """Return the steps of an expression and their costs."""
    subscripts: Subscripts = problem.subscripts
    count = len(subscripts.inputs)
    sliced = sliced_extents(problem.extents, problem.path.slices)
    times = math.prod(problem.extents[m] for m in problem.path.slices)
    size = DTYPES[problem.dtype].itemsize
    found = []
    made = contractions(subscripts, problem.path.steps)
    for step in made:
        elements = sum(math.prod(sliced[m] for m in set(modes)) for modes in (*step.inputs, step.output))
        found.append(
            EinsumStep(
                step.operands,
                text_of(step.inputs, step.output),
                route_of(step, sliced, problem.dtype, route, problem.compute),
                step.flops(sliced) * times,
                elements * size * times,
            )
        )
    whole = math.prod(problem.extents)
    summed = len(problem.extents) > len(subscripts.output)
    more: dict[str, Any] = {subscripts.names[m]: problem.extents[m] for m in problem.path.slices}
    return EinsumPath(
        _positions(problem.path, count),
        tuple(found),
        more,
        sum(step.flops for step in found),
        whole * (count - 1 + summed),
        peak_elements(made, sliced, count) * size,
    )
