"""Requests of the small steps of GMRES, which solve the least squares problem in the basis.

Only the recorded program sends them.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from ...arrays.operands import Fresh
from ...dtypes import as_dtype
from ...plans.calls import form_of
from ...plans.lowering import Lowered, Request, read, written
from .attributes import BasisAttributes

__all__ = ["BASIS", "SOLUTION", "BasisRequest", "SolutionRequest"]

_UPDATED: Final = ("basis", "triangle", "rotations", "rest")


def _given(request: Any, name: str) -> Any:
    array = getattr(request, name)
    updated = name in _UPDATED
    return written(name, array, Fresh(tuple(array.shape), as_dtype(array.dtype)), updated=updated)


@dataclass(frozen=True, slots=True, kw_only=True)
class BasisRequest(Request[Any]):
    """The next vector of the basis, and a column of the triangle; all of one dtype, float32 or float64.

    Parameters
    ----------
    w : (n,)
        The part of the new vector that is orthogonal to the basis.
    parts : (m + 1,)
        Products of the new vector with the basis.
    norm : ()
        Of w.
    place : () int64
        Number of the vector that was multiplied.
    basis : (m + 1, n)
        Row ``place + 1`` becomes w of length 1, or zeros if it is 0.
    v : (n,)
        The same row.
    triangle : (m, m)
        Row `place` becomes a column of the triangle, up to its diagonal.
    rotations : (m, 2)
        Cosines and sines; row `place` is written.
    rest : (m + 1,)
        The rotated right side; elements `place` and the next one are written.
    left : ()
        Norm of the residual.
    """

    w: Any
    parts: Any
    norm: Any
    place: Any
    basis: Any
    v: Any
    triangle: Any
    rotations: Any
    rest: Any
    left: Any

    def lowering(self) -> Lowered:
        """Return the message."""
        reads = (read(name, getattr(self, name)) for name in ("w", "parts", "norm", "place"))
        outputs = ("basis", "v", "triangle", "rotations", "rest", "left")
        return Lowered(
            op="sparse.basis",
            operands=(*reads, *(_given(self, name) for name in outputs)),
            collect=itemgetter("left"),
            attributes=BasisAttributes(rounds=self.triangle.shape[0]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SolutionRequest(Request[Any]):
    """Coefficients of the solution in the basis: those of the first `place` vectors; the others are 0.

    Parameters
    ----------
    triangle, rest, place
        As `BasisRequest` has them.
    weights : (m + 1,)
        The coefficients.
    """

    triangle: Any
    rest: Any
    place: Any
    weights: Any

    def lowering(self) -> Lowered:
        """Return the message."""
        return Lowered(
            op="sparse.solution",
            operands=(
                *(read(name, getattr(self, name)) for name in ("triangle", "rest", "place")),
                _given(self, "weights"),
            ),
            collect=itemgetter("weights"),
            attributes=BasisAttributes(rounds=self.triangle.shape[0]),
        )


BASIS: Final = form_of(BasisRequest, "w parts norm place basis v triangle rotations rest left", "")
SOLUTION: Final = form_of(SolutionRequest, "triangle rest place weights", "")
