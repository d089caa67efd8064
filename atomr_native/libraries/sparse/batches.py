"""Batches: matrices of one pattern, whose values have an axis more, in messages of one kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from ...dtypes import as_dtype
from ...errors import InvalidRequest
from ...plans.spec import OperandSpec, PlanSpec

__all__ = ["MOST", "SINGLE", "Batch", "carriers", "check_batch", "refuse_batch", "split"]

#: Matrices of a batch at most: the second extent of a grid.
MOST: Final = 65535


@dataclass(frozen=True, slots=True)
class Batch:
    """How many matrices there are, and how far apart those of an operand are, in elements, 0 for a shared one."""

    count: int = 1
    steps: tuple[tuple[str, int], ...] = ()

    def advance(self, **names: str) -> str:
        """Return the C statements that move pointers to the matrix of a block; names in C, with those of operands."""
        steps = dict(self.steps)
        found = {pointer: steps.get(operand, 0) for pointer, operand in names.items()}
        return " ".join(f"{pointer} += (u64)blockIdx.y * {step}ull;" for pointer, step in found.items() if step)


SINGLE: Final = Batch()


def check_batch(batch: int | None) -> int | None:
    """Return the number of matrices.

    Raises
    ------
    InvalidRequest
        If there are too many.
    """
    if batch is not None and batch > MOST:
        raise InvalidRequest(f"a batch of {batch} matrices; allowed: up to {MOST}")
    return batch


def refuse_batch(name: str, batch: int | None, what: str) -> None:
    """Refuse a batch where a single matrix is needed."""
    if batch is not None:
        raise InvalidRequest(
            f"{name} is a batch of {batch} matrices; {what} takes one: {name}.with_values({name}.values[i])"
        )


def _own_axes(spec: PlanSpec[Any], operand: OperandSpec) -> int:
    """Return the axes of an operand of a single matrix."""
    if operand.name == "values":
        return 3 if getattr(spec.attributes, "format", "csr") == "bsr" else 1
    if spec.op in ("sparse.spmv", "sparse.spmm", "sparse.sddmm"):
        vectors = {"sparse.spmv": ("x", "out"), "sparse.spmm": (), "sparse.sddmm": ("out",)}[spec.op]
        return 1 if operand.name in (*vectors, "indices", "offsets", "rows", "alpha_at", "beta_at") else 2
    return len(operand.shape) - (operand.name in ("b", "out"))


def carriers(spec: PlanSpec[Any]) -> tuple[bool, ...]:
    """Return which operands have an axis of matrices in front."""
    none = spec.attributes.batch is None
    return tuple(not none and len(operand.shape) > _own_axes(spec, operand) for operand in spec.operands)


def split(spec: PlanSpec[Any]) -> tuple[PlanSpec[Any], Batch]:
    """Return the specification for one matrix, and its batch."""
    count = spec.attributes.batch
    if count is None:
        return spec, SINGLE
    operands, steps = [], []
    for operand, carries in zip(spec.operands, carriers(spec), strict=True):
        if carries:
            steps.append((operand.name, operand.strides[0] // as_dtype(operand.dtype).itemsize))
            operand = replace(operand, shape=operand.shape[1:], strides=operand.strides[1:])
        operands.append(operand)
    return replace(spec, operands=tuple(operands)), Batch(count, tuple(steps))
