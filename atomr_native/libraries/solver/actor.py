"""The solver, ``device.solver``: factorisations and decompositions of dense matrices, and what is solved by them.

Requests and their rules are `SolverRequest` and `DecompositionRequest`; the same module serves every kind of device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ..._support.public import public
from .decomposition import WORK, DecompositionRequest
from .eigen_range_request import EigenRangeRequest
from .forms import FORMS, ROUTINE
from .functions import matrix_function, polar
from .least_squares import LeastSquares
from .low_rank import svd_low_rank
from .refinement import RefinedResult, solve_refined
from .refinement_request import RefinementRequest
from .request import SCRATCH, LDLFactors, LUFactors, SignLogDet, SolverRequest

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef
    from ...plans.plan import Plan

__all__ = ["Solver"]


@public
class Solver(LeastSquares):
    """Dense linear algebra on one device; messages to it run in order.

    Every method enqueues and returns its results at once: new handles, which are their own futures, or those given as
    outputs.  None waits for the device, except that the first call of a structure waits for its plan, and that a full
    mailbox blocks or raises as the System was told.  No lane waits either to learn whether a matrix was singular: the
    error arrives with the completion.  Parameters, batches, layouts and errors are those of `SolverRequest` and
    `DecompositionRequest`; with ``check=False`` info is the last result of a method.

    Examples
    --------
    >>> a = device.put(np.array([[4.0, 2.0], [2.0, 3.0]]))
    >>> device.solver.cholesky(a).numpy().round(3)
    array([[2.   , 0.   ],
           [1.   , 1.414]])
    >>> device.solver.solve(a, device.put(np.array([8.0, 8.0]))).numpy()
    array([1., 2.])
    >>> device.solver.inv(device.zeros((2, 2))).numpy()
    Traceback (most recent call last):
    atomr_native.SingularMatrix: solver.inv: the matrix is singular: ...
    """

    _forms = FORMS

    def __init__(self, device: Any, name: str = "solver") -> None:
        super().__init__(device, name)

    def cholesky(
        self,
        a: GpuRef,
        *,
        lower: bool = True,
        check: bool = True,
        out: GpuRef | None = None,
        info: GpuRef | None = None,
    ) -> Any:
        """Send the Cholesky factor of a Hermitian, positive definite A: L of ``L L^H``, or U of ``U^H U``.

        Reads the triangle that `lower` names; the other triangle of the result is zeros.
        """
        return self._calls.send(
            self,
            ROUTINE,
            (a, None, None, out, None, None, info, "cholesky", "general", lower, False, False, False, check, None),
        )

    def cholesky_solve(self, factor: GpuRef, b: GpuRef, *, lower: bool = True, out: GpuRef | None = None) -> GpuRef:
        """Send X of ``A X = B`` by the factor of `cholesky`; a zero on its diagonal gives infinities, and no error."""
        made: GpuRef = self._calls.send(
            self,
            ROUTINE,
            (
                factor, b, None, out, None, None, None, "cholesky_solve", "general", lower, False, False, False, True,
                None,
            ),
        )  # fmt: skip
        return made

    def lu_factor(
        self,
        a: GpuRef,
        *,
        check: bool = True,
        out: GpuRef | None = None,
        pivots_out: GpuRef | None = None,
        info: GpuRef | None = None,
    ) -> LUFactors:
        """Send the LU factors of A, square or not, with partial pivoting."""
        made = self._calls.send(
            self,
            ROUTINE,
            (
                a, None, None, out, pivots_out, None, info, "lu_factor", "general", True, False, False, False, check,
                None,
            ),
        )  # fmt: skip
        return cast("LUFactors", made)

    def lu_solve(
        self,
        lu: GpuRef,
        pivots: GpuRef,
        b: GpuRef,
        *,
        trans: bool = False,
        conj: bool = False,
        out: GpuRef | None = None,
    ) -> GpuRef:
        """Send X of ``op(A) X = B`` by the factors of `lu_factor`; a zero on U's diagonal gives infinities or NaN."""
        made: GpuRef = self._calls.send(
            self,
            ROUTINE,
            (lu, b, pivots, out, None, None, None, "lu_solve", "general", True, trans, conj, False, True, None),
        )
        return made

    def ldl_factor(
        self,
        a: GpuRef,
        *,
        assume: str = "hermitian",
        lower: bool = True,
        check: bool = True,
        out: GpuRef | None = None,
        pivots_out: GpuRef | None = None,
        info: GpuRef | None = None,
    ) -> LDLFactors:
        """Send the factors of ``P^T A P = L D L^H``, of a Hermitian A that need not be definite.

        ``assume="symmetric"``: of ``L D L^T``.  Reads the triangle that `lower` names; the factors are those of a
        lower one.
        """
        made = self._calls.send(
            self,
            ROUTINE,
            (a, None, None, out, pivots_out, None, info, "ldl_factor", assume, lower, False, False, False, check, None),
        )
        return cast("LDLFactors", made)

    def ldl_solve(
        self, ldl: GpuRef, pivots: GpuRef, b: GpuRef, *, assume: str = "hermitian", out: GpuRef | None = None
    ) -> GpuRef:
        """Send X of ``A X = B`` by the factors of `ldl_factor` with the same `assume`.

        A block of D that is 0 gives infinities or NaN.
        """
        made: GpuRef = self._calls.send(
            self,
            ROUTINE,
            (ldl, b, pivots, out, None, None, None, "ldl_solve", assume, True, False, False, False, True, None),
        )
        return made

    def solve(
        self,
        a: GpuRef,
        b: GpuRef,
        *,
        assume: str = "general",
        lower: bool = True,
        check: bool = True,
        out: GpuRef | None = None,
        info: GpuRef | None = None,
    ) -> Any:
        """Send X of ``A X = B``: by LU, or with ``assume="positive_definite"`` by Cholesky of one triangle of A.

        ``assume="hermitian"`` and ``"symmetric"``: by `ldl_factor`.
        """
        return self._calls.send(
            self,
            ROUTINE,
            (a, b, None, out, None, None, info, "solve", assume, lower, False, False, False, check, None),
        )

    def inv(
        self,
        a: GpuRef,
        *,
        assume: str = "general",
        lower: bool = True,
        check: bool = True,
        out: GpuRef | None = None,
        info: GpuRef | None = None,
    ) -> Any:
        """Send the inverse of A; `assume` as in `solve`."""
        return self._calls.send(
            self,
            ROUTINE,
            (a, None, None, out, None, None, info, "inv", assume, lower, False, False, False, check, None),
        )

    def det(
        self,
        a: GpuRef,
        *,
        assume: str = "general",
        lower: bool = True,
        check: bool = True,
        out: GpuRef | None = None,
        info: GpuRef | None = None,
    ) -> Any:
        """Send the determinant of A; `assume` as in `solve`.

        The determinant of a singular matrix is 0.  No product overflows on the way: only a determinant that is too
        large itself is infinite.
        """
        return self._calls.send(
            self,
            ROUTINE,
            (a, None, None, out, None, None, info, "det", assume, lower, False, False, False, check, None),
        )

    def slogdet(
        self,
        a: GpuRef,
        *,
        assume: str = "general",
        lower: bool = True,
        check: bool = True,
        out: GpuRef | None = None,
        log_out: GpuRef | None = None,
        info: GpuRef | None = None,
    ) -> SignLogDet:
        """Send sign and logarithm of the determinant of A; `out` takes the sign, `log_out` the logarithm."""
        made = self._calls.send(
            self,
            ROUTINE,
            (a, None, None, out, None, log_out, info, "slogdet", assume, lower, False, False, False, check, None),
        )
        return cast("SignLogDet", made)

    def solve_triangular(
        self,
        a: GpuRef,
        b: GpuRef,
        *,
        lower: bool = True,
        trans: bool = False,
        conj: bool = False,
        unit: bool = False,
        check: bool = True,
        out: GpuRef | None = None,
        info: GpuRef | None = None,
    ) -> Any:
        """Send X of ``op(A) X = B`` with a triangular A, of which only the triangle that `lower` names is read."""
        return self._calls.send(
            self,
            ROUTINE,
            (a, b, None, out, None, None, info, "solve_triangular", "general", lower, trans, conj, unit, check, None),
        )

    def inv_triangular(
        self,
        a: GpuRef,
        *,
        lower: bool = True,
        unit: bool = False,
        check: bool = True,
        out: GpuRef | None = None,
        info: GpuRef | None = None,
    ) -> Any:
        """Send the inverse of a triangular A, of which only the triangle that `lower` names is read."""
        return self._calls.send(
            self,
            ROUTINE,
            (a, None, None, out, None, None, info, "inv_triangular", "general", lower, False, False, unit, check, None),
        )

    def solve_refined(self, a: GpuRef, b: GpuRef, *, iterations: int = 30, factor: str = "float32") -> RefinedResult:
        """Solve ``A X = B`` in float64 or complex128 by LU factors of less precision, refined by residuals.

        ``factor="float32"`` waits for the residual of each correction, in the caller; no lane waits.  ``"tf32"``,
        ``"bfloat16"`` and ``"float16"``, which tensor cores compute, are one `RefinementRequest`, for which its lane
        waits, and the caller for the number of iterations.  Either ends when the residual of each
        column is within ``eps sqrt(n)`` of the norms of A and X, as LAPACK's ``dsgesv``; for a batch when all are.
        After `iterations` corrections, 0 to 1000, X is that of `solve`: the result says so.  That suits large
        matrices that are not too ill-conditioned for the factor: below about 1e7 for float32, 1e3 for 16 bits.

        Raises
        ------
        InvalidRequest
            For other shapes, dtypes and numbers, before anything is sent.
        SingularMatrix
            At the read of X, if A is singular; of factors of less than float32 at once.
        """
        return solve_refined(self, a, b, iterations, factor)

    def svd_low_rank(
        self,
        a: GpuRef,
        rank: int,
        *,
        oversampling: int = 8,
        iterations: int = 2,
        seed: int = 0,
        check: bool = True,
    ) -> Any:
        """Send the `rank` largest singular values of A and their vectors, nearly: an `SVDResult`.

        Random vectors, ``rank + oversampling`` of them, find the part of the range of A that `iterations` of subspace
        iteration enlarge; the singular values of A's projection there are computed in full.  Of a matrix whose singular
        values fall from the ``rank``-th on, they are as exact as those of `svd`, with much less work.  Equal seeds
        give the same random vectors on every device.  Six messages, and four more for each iteration; of complex
        matrices more.

        Parameters
        ----------
        a : GpuRef
            (..., m, n), not empty.
        rank : int
            1 to min(m, n).
        oversampling, iterations : int
            0 or more.
        seed : int
            Of `Random`.
        check : bool
            As in `svd`, of the projection.

        Raises
        ------
        InvalidRequest
            For other shapes, dtypes and numbers, before anything is sent.
        """
        return svd_low_rank(self, a, rank, oversampling, iterations, seed, check)

    def polar(self, a: GpuRef, *, side: str = "right", check: bool = True) -> Any:
        """Send ``A = U P`` of any matrix, or with ``side="left"`` ``A = P U``: a `PolarResult`.

        By the singular values: three messages, of complex matrices four.  With ``check=False`` info is the last result.
        """
        return polar(self, a, side, check)

    def expm(self, a: GpuRef, *, assume: str = "general", lower: bool = True) -> GpuRef:
        """Return the exponential of a square A.

        ``assume="general"``: by scaling and squaring, of a batch as often as its largest norm needs; waits for that
        norm, in the caller.  ``assume="hermitian"``: by the eigenvalues of the triangle that `lower` names, without a
        wait.
        """
        return matrix_function(self, "expm", a, assume, lower)

    def logm(self, a: GpuRef, *, assume: str = "general", lower: bool = True) -> GpuRef:
        """Return the principal logarithm of a square A, complex also where A is real.

        ``assume="general"``: the host computes it, so this waits: A is copied there, and the result is copied back; no
        lane waits.  ``assume="hermitian"``: by the eigenvalues, without a wait, and of A's dtype: NaN where one is
        negative.
        """
        return matrix_function(self, "logm", a, assume, lower)

    def sqrtm(self, a: GpuRef, *, assume: str = "general", lower: bool = True) -> GpuRef:
        """Return the principal square root of a square A; as `logm`."""
        return matrix_function(self, "sqrtm", a, assume, lower)

    def plan(self, request: SolverRequest | DecompositionRequest | EigenRangeRequest | RefinementRequest) -> Plan:
        """Return the plan of a request, whose arrays lend their layouts: ``plan.tell(a, b, out=x, **scratch)``.

        Its messages take all outputs, and the arrays of `scratch`.
        """
        return self._plan_of(request, handles=True)

    def scratch(
        self, request: SolverRequest | DecompositionRequest | EigenRangeRequest | RefinementRequest
    ) -> dict[str, GpuRef]:
        """Allocate the arrays that messages of a request's plan need besides the request's own, by name.

        ``factor`` is the copy of A that is factored, and ``work``, or ``q_work``, ... of a decomposition, the place of
        a result whose output LAPACK cannot work in.  Messages that run one after the other may share them; their
        content means nothing.

        Examples
        --------
        >>> a, x = device.put(2.0 * np.eye(3)), device.zeros((3,), "float64")
        >>> request = an.SolverRequest(routine="solve", a=a, b=device.put(np.ones(3)), out=x, route="loop")
        >>> plan, scratch = device.solver.plan(request), device.solver.scratch(request)
        >>> list(scratch)
        ['factor']
        >>> _ = plan.tell(a, device.put(np.full(3, 8.0)), out=x, **scratch)
        >>> x.numpy()
        array([4., 4., 4.])
        """
        return {o.name: self._allocate(o) for o in request.lowered.operands if o.name in SCRATCH or o.name in WORK}
