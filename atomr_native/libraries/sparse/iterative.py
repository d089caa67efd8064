"""Iterative solvers as recorded programs: the device decides when a system is solved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ..._support.checks import as_integer, check_choice, is_real
from ..._support.public import public
from ...arrays.operands import check_handle, check_input
from ...dtypes import dtype_name
from ...errors import InvalidRequest
from .matrix import SparseMatrix
from .places import places_of

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["IterativeResult", "IterativeSolver"]

_METHODS: Final = ("cg", "bicgstab")
_PRECONDITIONERS: Final = ("jacobi", "none")


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
        Of x's dtype, of one element: norm of the residual that the recurrence has, relative to that of b.  It is above
        the tolerance where the limit of rounds ended the solver, and not finite where it broke down.

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

    def __init__(self, actor: Any, a: SparseMatrix, method: str, preconditioner: str, limit: int) -> None:
        check_choice("method", method, _METHODS)
        check_choice("preconditioner", preconditioner, _PRECONDITIONERS)
        if a.format != "csr" or a.shape[0] != a.shape[1] or not a.shape[0]:
            raise InvalidRequest(f"a is {a.format} of shape {a.shape}; a solver takes csr with as many rows as "
                                 f"columns, 1 or more")  # fmt: skip
        if dtype_name(a.dtype) not in ("float32", "float64"):
            raise InvalidRequest(f"a has dtype {dtype_name(a.dtype)}; allowed: float32, float64")
        self.a, self.method, self.preconditioner = a, method, preconditioner
        self.limit = as_integer("limit", limit, 1, 2**31 - 1)
        self._actor, self._device = actor, actor.device
        self._run = self._device.elementwise.run
        self._plan = self._record()

    def _zeros(self, *shape: int, dtype: str | None = None) -> GpuRef:
        made: GpuRef = self._device.zeros(shape, dtype or dtype_name(self.a.dtype))
        return made

    def _inverse_diagonal(self) -> GpuRef | None:
        """Record what residuals are multiplied by."""
        if self.preconditioner == "none" or not self.a.nnz:
            return None
        places = places_of(self.a, self.a.values.__array_namespace__())
        diagonal = self._run("where(i == j, v, 0 * v)", i=places.rows, j=places.columns, v=self.a.values)
        ones = self._device.ones(self.a.shape[1], dtype_name(self.a.dtype))
        found = self._actor.spmv(self.a.with_values(diagonal), ones)
        made: GpuRef = self._run("1 / where(d == 0, 1 + 0 * d, d)", d=found)
        return made

    def _record(self) -> Any:
        n = self.a.shape[0]
        b, x, rounds, residual = self._zeros(n), self._zeros(n), self._zeros(dtype="int64"), self._zeros()
        more = self._zeros(dtype="bool")
        with self._device.record() as g:
            given, found = g.operand("b", b), g.operand("x", x)
            count, left = g.operand("rounds", rounds), g.operand("residual", residual)
            tolerance = g.scalar("tolerance", 1e-6)
            inverse = self._inverse_diagonal()
            found.fill(0)
            count.fill(0)
            scale = self._run("sqrt(s)", s=(given * given).sum())

            def judge(r: Any) -> None:
                """Decide whether to go on, by the norm of a residual."""
                self._run("out = sqrt(s) / where(b == 0, 1 + 0 * b, b)", s=(r * r).sum(), b=scale, out=left)
                self._run(
                    f"out = (e > t) & (n < {self.limit})", e=left, t=tolerance, n=count, out=more
                )  # NaN ends it  # fmt: skip

            step = (self._cg if self.method == "cg" else self._bicgstab)(given, found, inverse, judge)
            with g.while_(more, limit=self.limit + 1):
                self._run("out = n + 1", n=count, out=count)
                step()
        return g.plan

    def _preconditioned(self, r: GpuRef, inverse: GpuRef | None, out: GpuRef) -> None:
        if inverse is None:
            self._device.copy(r, out=out)
        else:
            self._run("out = m * r", m=inverse, r=r, out=out)

    def _cg(self, b: GpuRef, x: GpuRef, inverse: GpuRef | None, judge: Any) -> Any:
        n, run = self.a.shape[0], self._run
        r, z, p, q = (self._zeros(n) for _ in range(4))
        before = self._zeros()
        self._device.copy(b, out=r)
        self._preconditioned(r, inverse, z)
        self._device.copy(z, out=p)
        self._device.copy((r * z).sum(), out=before)
        judge(r)

        def step() -> None:
            self._actor.spmv(self.a, p, out=q)
            length = run("r / s", r=before, s=(p * q).sum())
            run("out = x + a * p", x=x, a=length, p=p, out=x)
            run("out = r - a * q", r=r, a=length, q=q, out=r)
            self._preconditioned(r, inverse, z)
            now = (r * z).sum()
            run("out = z + s / t * p", z=z, s=now, t=before, p=p, out=p)
            self._device.copy(now, out=before)
            judge(r)

        return step

    def _bicgstab(self, b: GpuRef, x: GpuRef, inverse: GpuRef | None, judge: Any) -> Any:
        n, run = self.a.shape[0], self._run
        r, shadow, p, v, y, z, s, t = (self._zeros(n) for _ in range(8))
        before = self._zeros()
        for out in (r, shadow, p):
            self._device.copy(b, out=out)
        self._device.copy((r * shadow).sum(), out=before)
        judge(r)

        def step() -> None:
            self._preconditioned(p, inverse, y)
            self._actor.spmv(self.a, y, out=v)
            alpha = run("r / s", r=before, s=(shadow * v).sum())
            run("out = r - a * v", r=r, a=alpha, v=v, out=s)
            self._preconditioned(s, inverse, z)
            self._actor.spmv(self.a, z, out=t)
            square = (t * t).sum()  # 0 where s is 0: x + alpha y is the solution
            omega = run("where(q == 0, q, p / where(q == 0, 1 + q, q))", q=square, p=(t * s).sum())
            run("out = x + a * y + w * z", x=x, a=alpha, y=y, w=omega, z=z, out=x)
            run("out = s - w * t", s=s, w=omega, t=t, out=r)
            now = (r * shadow).sum()
            run("out = r + n / b * a / w * (p - w * v)", r=r, n=now, b=before, a=alpha, w=omega, p=p, v=v, out=p)
            self._device.copy(now, out=before)
            judge(r)

        return step

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
