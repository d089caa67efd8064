"""Preconditioners of iterative solvers, as messages of their recorded program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...dtypes import dtype_name
from ...errors import InvalidRequest
from .factors import ROUTINES
from .matrix import SparseMatrix
from .places import places_of

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["PRECONDITIONERS", "Preconditioner"]

PRECONDITIONERS: Final = ("jacobi", *ROUTINES, "none")


class Preconditioner:
    """An approximate inverse of A, which is made anew in each run of the program.

    Parameters
    ----------
    actor
    a : SparseMatrix
    kind : str
    factors : SparseMatrix, optional
        Which the program reads, and does not compute.

    Raises
    ------
    InvalidRequest
        For factors that are not of A's shape and dtype, or of a preconditioner that has none.
    """

    def __init__(self, actor: Any, a: SparseMatrix, kind: str, factors: SparseMatrix | None) -> None:
        if factors is not None:
            if kind not in ROUTINES:
                raise InvalidRequest(f"factors with preconditioner={kind!r}; allowed: {', '.join(map(repr, ROUTINES))}")
            if not isinstance(factors, SparseMatrix):
                raise InvalidRequest(f"factors is a {type(factors).__name__}; allowed: a SparseMatrix")
            if (factors.format, factors.shape, factors.dtype, factors.batch) != (a.format, a.shape, a.dtype, None):
                raise InvalidRequest(f"factors is {factors}; allowed: {a.format} {a.shape} {dtype_name(a.dtype)}, as a")
        self._actor, self._device, self._a, self._kind, self._factors = actor, actor.device, a, kind, factors
        self._inverse: GpuRef | None = None
        self._between: GpuRef | None = None

    def prepare(self) -> None:
        """Record the messages before the first round."""
        if self._kind in ROUTINES:
            self._between = self._device.zeros(self._a.shape[0], dtype_name(self._a.dtype))
            if self._factors is None:
                self._factors = getattr(self._actor, self._kind)(self._a)
        elif self._kind == "jacobi" and self._a.nnz:
            self._inverse = self._inverse_diagonal()

    def _inverse_diagonal(self) -> GpuRef:
        run, a = self._device.elementwise.run, self._a
        places = places_of(a, a.values.__array_namespace__())
        diagonal = run("where(i == j, v, 0 * v)", i=places.rows, j=places.columns, v=a.values)
        found = self._actor.spmv(a.with_values(diagonal), self._device.ones(a.shape[1], dtype_name(a.dtype)))
        made: GpuRef = run("1 / where(d == 0, 1 + 0 * d, d)", d=found)
        return made

    @property
    def plain(self) -> bool:
        """Whether there is none, so that vectors stay as they are; known after `prepare`."""
        return self._factors is None and self._inverse is None

    def apply(self, r: GpuRef, out: GpuRef) -> None:
        """Record the product of the approximate inverse and a vector."""
        if self._factors is not None:
            solve = self._actor.solve_triangular
            solve(self._factors, r, unit=self._kind == "ilu0", out=self._between)
            solve(self._factors, self._between, lower=False, out=out)
        elif self._inverse is not None:
            self._device.elementwise.run("out = m * r", m=self._inverse, r=r, out=out)
        else:
            self._device.copy(r, out=out)
