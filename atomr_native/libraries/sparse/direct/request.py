"""The request of a phase of a direct solver, which only `DirectSolver` sends."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from ....arrays.operands import Fresh
from ....dtypes import as_dtype, dtype_name
from ....plans.lowering import Lowered, Operand, Request, read, written
from ..attributes import DirectAttributes

__all__ = ["DirectRequest"]


def _given(name: str, array: Any, *, updated: bool = False) -> Operand:
    return written(name, array, Fresh(tuple(array.shape), as_dtype(array.dtype)), updated=updated)


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectRequest(Request[Any]):
    """A phase of a direct solver; all arrays belong to the solver, but for those of a solve.

    Parameters
    ----------
    phase : str
        ``"analyse"``, ``"factor"``, ``"refactor"`` or ``"solve"``.
    number : int
        Of the solver: its phases share what the worker keeps.
    offsets, indices, values
        A, in csr; values (nnz,) or (batch, nnz).
    memory, factors
        uint8: device memory for analyses, and for factors.  An analysis has no `factors`.
    sizes : (4,) int64
        Of an analysis: bytes that it takes, bytes that the solver takes in the end and at most, and bytes for which
        there was no room, or 0.
    b, x
        Of a solve: (columns, n) or (batch, columns, n).
    """

    phase: str
    number: int
    n: int
    kind: str
    triangle: str
    room: int
    check: bool
    deterministic: bool
    offsets: Any
    indices: Any
    values: Any
    memory: Any
    factors: Any = None
    sizes: Any = None
    b: Any = None
    x: Any = None

    def lowering(self) -> Lowered:
        """Return the message."""
        phase = self.phase
        operands = [read(name, getattr(self, name)) for name in ("offsets", "indices", "values")]
        if phase == "analyse":
            operands += [_given("memory", self.memory), _given("sizes", self.sizes)]
        else:
            operands += [read("memory", self.memory), _given("factors", self.factors, updated=phase != "factor")]
        if phase == "solve":
            operands += [read("b", self.b), _given("x", self.x)]
        values = self.values
        return Lowered(
            op="sparse.direct",
            operands=tuple(operands),
            collect=itemgetter(operands[-1].name),
            attributes=DirectAttributes(
                number=self.number,
                phase=phase,
                n=self.n,
                batch=values.shape[0] if len(values.shape) == 2 else None,
                dtype=dtype_name(as_dtype(values.dtype)),
                kind=self.kind,
                triangle=self.triangle,
                room=self.room,
                check=self.check,
                deterministic=self.deterministic,
            ),
        )
