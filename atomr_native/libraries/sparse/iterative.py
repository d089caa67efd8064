"""Iterative solvers as recorded programs: the device decides when a system is solved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ..._support.checks import as_integer, check_choice, is_real
from ..._support.public import public
from ...arrays.operands import check_handle, check_input
from ...dtypes import dtype_name
from ...errors import InvalidRequest
from .batches import refuse_batch
from .krylov import Loop, conjugate_gradients, minimal_residuals, stabilized
from .matrix import SparseMatrix
from .preconditioners import PRECONDITIONERS, Preconditioner

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["IterativeResult", "IterativeSolver"]

_METHODS: Final = {"cg": conjugate_gradients, "bicgstab": stabilized, "gmres": minimal_residuals}
#: Rounds of GMRES until it begins anew; its last kernel holds a number for each.
_RESTART: Final = 30
_MOST_ROUNDS: Final = 1024


@public
class IterativeResult(NamedTuple):
    """The result of an iterative solver; handles, which are their own futures.

    Attributes
    ----------
    x : GpuRef
        (n,), the approximate solution.
    rounds : GpuRef
        int64, of one element: rounds that were done.
    residual : GpuRef
        Of x's dtype, of one element: norm of the residual that the recurrence has, relative to that of b; of ``gmres``
        the residual's own.  It is above the tolerance where the limit of rounds ended the solver, and not finite where
        it broke down.

    Examples
    --------
    >>> a = device.sparse.matrix(np.diag([2.0, 4.0]))
    >>> result = device.sparse.solver(a).tell(device.put(np.array([2.0, 8.0])))
    >>> result.x.numpy(), int(result.rounds)
    (array([1., 2.]), 1)
    """

    x: GpuRef
    rounds: GpuRef
    residual: GpuRef


@public
class IterativeSolver:
    """A solver of ``A x = b``, recorded once; each message solves for a right side.

    Made by `Sparse.solver`.  The program reads the arrays of A when it runs: values that are written between messages
    count at once, and so do index arrays.  Messages run one after the other, since they share the arrays in which they
    work.

    Examples
    --------
    >>> a = device.sparse.matrix(np.array([[4.0, 1.0], [1.0, 3.0]]))
    >>> solver = device.sparse.solver(a, method="cg", limit=100)
    >>> solver.tell(device.put(np.array([1.0, 2.0])), tolerance=1e-12).x.numpy().round(4)
    array([0.0909, 0.6364])
    """

    def __init__(
        self,
        actor: Any,
        a: SparseMatrix,
        method: str,
        preconditioner: str,
        limit: int,
        restart: int | None,
        factors: SparseMatrix | None,
    ) -> None:
        check_choice("method", method, _METHODS)
        check_choice("preconditioner", preconditioner, PRECONDITIONERS)
        refuse_batch("a", a.batch, "a solver")
        if a.format != "csr" or a.shape[0] != a.shape[1] or not a.shape[0]:
            raise InvalidRequest(f"a is {a.format} of shape {a.shape}; a solver takes csr with as many rows as "
                                 f"columns, 1 or more")  # fmt: skip
        if dtype_name(a.dtype) not in ("float32", "float64"):
            raise InvalidRequest(f"a has dtype {dtype_name(a.dtype)}; allowed: float32, float64")
        if restart is not None and method != "gmres":
            raise InvalidRequest(f"restart={restart!r} with method={method!r}; allowed: method='gmres'")
        self.a, self.method, self.preconditioner, self.factors = a, method, preconditioner, factors
        self.limit = as_integer("limit", limit, 1, 2**31 - 1)
        most = min(_RESTART, a.shape[0]) if restart is None else as_integer("restart", restart, 1, _MOST_ROUNDS)
        self.restart = most if method == "gmres" else None
        self._before = Preconditioner(actor, a, preconditioner, factors)
        self._actor, self._device = actor, actor.device
        self._plan = self._record()

    def _zeros(self, *shape: int, dtype: str | None = None) -> GpuRef:
        made: GpuRef = self._device.zeros(shape, dtype or dtype_name(self.a.dtype))
        return made

    def _record(self) -> Any:
        n, run = self.a.shape[0], self._device.elementwise.run
        b, x, rounds, residual = self._zeros(n), self._zeros(n), self._zeros(dtype="int64"), self._zeros()
        more = self._zeros(dtype="bool")
        with self._device.record() as g:
            given, found = g.operand("b", b), g.operand("x", x)
            count, left = g.operand("rounds", rounds), g.operand("residual", residual)
            tolerance = g.scalar("tolerance", 1e-6)
            self._before.prepare()
            found.fill(0)
            count.fill(0)
            loop = Loop(
                actor=self._actor, a=self.a, preconditioner=self._before, recording=g, more=more, count=count,
                left=left,
                scale=run("sqrt(s)", s=(given * given).sum()), tolerance=tolerance, limit=self.limit,
                restart=self.restart or 0,
            )  # fmt: skip
            _METHODS[self.method](loop, given, found)
        return g.plan

    def tell(self, b: GpuRef, *, tolerance: float = 1e-6, out: GpuRef | None = None) -> IterativeResult:
        """Send the solution for a right side, from 0 on.  Enqueues; no lane and no program waits between rounds.

        Parameters
        ----------
        b
            (n,), of A's dtype.
        tolerance : float
            The solver ends where the norm of the residual is at most `tolerance` times that of b.
        out
            x; allocated if missing.

        Raises
        ------
        InvalidRequest
            For another shape or dtype, and a tolerance that is not a number of 0 or more.
        """
        if not is_real(tolerance) or not tolerance >= 0:
            raise InvalidRequest(f"tolerance={tolerance!r}; allowed: numbers of 0 or more")
        check_handle("b", b)
        shape, dtype = (self.a.shape[0],), self.a.dtype
        for name, array in (("b", b), ("out", out)):
            if array is not None:
                found = check_input(name, array)
                if tuple(found.shape) != shape or np.dtype(found.dtype) != dtype:
                    raise InvalidRequest(
                        f"{name} has shape {tuple(found.shape)} and dtype {dtype_name(found.dtype)}; allowed: {shape} "
                        f"of {dtype_name(dtype)}"
                    )
        x = self._zeros(*shape) if out is None else out
        result = IterativeResult(x, self._zeros(dtype="int64"), self._zeros())
        self._plan.tell(b=b, x=x, rounds=result.rounds, residual=result.residual, tolerance=float(tolerance))
        return result

    def __repr__(self) -> str:
        return f"<IterativeSolver {self.method} with {self.preconditioner} for {self.a}>"
