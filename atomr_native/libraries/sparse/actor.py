"""The sparse actor, ``device.sparse``: products and solves with sparse matrices.

Requests and their rules are `SparseProductRequest` and `SparseSolveRequest`; one module serves every kind of device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..._support.public import public
from ...errors import InvalidRequest
from .combine import Combinations
from .direct.solver import DirectSolver
from .factors import SparseFactorRequest
from .forms import FACTOR, FORMS, PRODUCT, SEMIRING, SOLVE
from .iterative import IterativeSolver
from .makers import make_matrix
from .request import SparseProductRequest
from .semiring import SparseSemiringRequest
from .structured.actor import Structures
from .structured.request import StructuredCompressRequest, StructuredProductRequest, StructuredPruneRequest
from .triangular import SparseSolveRequest

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef
    from ...plans.plan import Plan
    from .matrix import SparseMatrix

__all__ = ["Sparse"]


@public
class Sparse(Combinations, Structures):
    """Sparse matrices on one device; messages to it run in order.

    Products and solves enqueue and return their results at once: new handles, which are their own futures, or those
    given as outputs.  None waits for the device, except that the first call of a structure waits for its plan, and that
    a full mailbox blocks or raises as the System was told.  Methods whose result has a size that only the device knows
    wait for it, and say so.

    Examples
    --------
    >>> a = device.sparse.matrix(np.array([[4.0, 0.0], [1.0, 2.0]]))
    >>> device.sparse.spmv(a, device.put(np.ones(2))).numpy()
    array([4., 3.])
    >>> device.sparse.solve_triangular(a, device.put(np.array([4.0, 3.0]))).numpy()
    array([1., 1.])
    """

    _forms = FORMS

    def __init__(self, device: Any, name: str = "sparse") -> None:
        super().__init__(device, name)

    def matrix(
        self,
        source: Any,
        *,
        format: str | None = None,
        dtype: object = None,
        index_dtype: str | None = None,
        durable: bool = False,
    ) -> SparseMatrix:
        """Return a matrix on the device.

        Parameters
        ----------
        source
            A sparse matrix of SciPy or CuPy in csr, csc, coo or bsr, a sparse tensor of PyTorch, or a dense NumPy
            array, whose nonzeros are stored.  Arrays of a GPU are shared where `Device.asarray` shares them, others
            are copied.
        format : str, optional
            By default the source's; ``"csr"`` for a dense array.  SciPy and CuPy convert theirs.
        dtype, index_dtype
            Of the values, and ``"int32"`` or ``"int64"``; by default the source's, int32 for a dense array.
        durable : bool
            Whether the arrays survive a restart of the device.

        Returns
        -------
        SparseMatrix
            At once, as `Device.put` does.

        Raises
        ------
        InvalidRequest
            For other sources, and for indices that do not fit `index_dtype`.

        Examples
        --------
        >>> import scipy.sparse
        >>> device.sparse.matrix(scipy.sparse.eye_array(3, format="csc"), index_dtype="int64")
        <SparseMatrix csc (3, 3) float64, 3 stored>
        """
        return make_matrix(self.device, source, format, dtype, index_dtype, durable)

    def spmv(
        self,
        a: SparseMatrix,
        x: GpuRef,
        *,
        alpha: complex = 1.0,
        beta: complex = 0.0,
        alpha_at: GpuRef | None = None,
        beta_at: GpuRef | None = None,
        trans: bool = False,
        conj: bool = False,
        deterministic: bool = False,
        out: GpuRef | None = None,
    ) -> GpuRef:
        """Send ``alpha op(A) x + beta out`` of a vector x.  Enqueues; see `SparseProductRequest`."""
        made: GpuRef = self._calls.send(
            self,
            PRODUCT,
            (
                a.values, a.indices, a.offsets, a.rows, x, None, out, alpha_at, beta_at, "spmv", a.format, a.shape,
                a.ordered, a.longest, trans, conj, deterministic, alpha, beta,
            ),
        )  # fmt: skip
        return made

    def spmm(
        self,
        a: SparseMatrix,
        x: GpuRef,
        *,
        alpha: complex = 1.0,
        beta: complex = 0.0,
        alpha_at: GpuRef | None = None,
        beta_at: GpuRef | None = None,
        trans: bool = False,
        conj: bool = False,
        deterministic: bool = False,
        out: GpuRef | None = None,
    ) -> GpuRef:
        """Send ``alpha op(A) X + beta out`` of a dense matrix X.  Enqueues; see `SparseProductRequest`."""
        made: GpuRef = self._calls.send(
            self,
            PRODUCT,
            (
                a.values, a.indices, a.offsets, a.rows, x, None, out, alpha_at, beta_at, "spmm", a.format, a.shape,
                a.ordered, a.longest, trans, conj, deterministic, alpha, beta,
            ),
        )  # fmt: skip
        return made

    def sddmm(
        self,
        a: SparseMatrix,
        x: GpuRef,
        y: GpuRef,
        *,
        alpha: complex = 1.0,
        beta: complex = 0.0,
        alpha_at: GpuRef | None = None,
        beta_at: GpuRef | None = None,
        out: GpuRef | None = None,
    ) -> GpuRef:
        """Send ``alpha (X Y) + beta A`` at the stored elements of A; return these values: ``a.with_values(values)``.

        Enqueues; see `SparseProductRequest`.
        """
        made: GpuRef = self._calls.send(
            self,
            PRODUCT,
            (
                a.values, a.indices, a.offsets, a.rows, x, y, out, alpha_at, beta_at, "sddmm", a.format, a.shape,
                a.ordered, a.longest, False, False, False, alpha, beta,
            ),
        )  # fmt: skip
        return made

    def semiring(
        self,
        a: SparseMatrix,
        x: GpuRef,
        *,
        multiply: Callable[[Any, Any], Any],
        add: Callable[[Any, Any], Any],
        start: float,
        on_sum: Callable[[Any], Any] | None = None,
        out: GpuRef | None = None,
    ) -> GpuRef:
        """Send a product with other operations than multiplication and addition, of a csr matrix.  Enqueues.

        The functions are Python's; see `SparseSemiringRequest`.  Functions that are defined once, and not anew for each
        call, spare the caller their tracing.

        Examples
        --------
        >>> a = device.sparse.matrix(np.array([[1.0, -2.0], [0.0, 4.0]]))
        >>> largest = device.sparse.semiring(
        ...     a, device.put(np.ones(2)), multiply=lambda a, x: abs(a) * x, add=np.maximum, start=-np.inf
        ... )
        >>> largest.numpy()
        array([2., 4.])
        """
        if a.format != "csr":
            raise InvalidRequest(f"a is {a.format}; semiring takes csr, which device.sparse.convert makes")
        made: GpuRef = self._calls.send(
            self, SEMIRING, (a.values, a.indices, a.offsets, x, out, a.shape, multiply, add, start, on_sum)
        )
        return made

    def solve_triangular(
        self,
        a: SparseMatrix,
        b: GpuRef,
        *,
        lower: bool = True,
        trans: bool = False,
        conj: bool = False,
        unit: bool = False,
        alpha: complex = 1.0,
        out: GpuRef | None = None,
    ) -> GpuRef:
        """Send X of ``op(A) X = alpha B``, of a vector or matrix B.  Enqueues; see `SparseSolveRequest`."""
        made: GpuRef = self._calls.send(
            self, SOLVE, (a.values, a.indices, a.offsets, b, out, a.format, a.shape, lower, trans, conj, unit, alpha)
        )
        return made

    def ilu0(self, a: SparseMatrix, *, out: GpuRef | None = None) -> SparseMatrix:
        """Send incomplete factors L and U in the pattern of a csr matrix, as one matrix.  Enqueues.

        L is below the diagonal, with ones on it that are not stored.  See `SparseFactorRequest`; new values of A need
        this message again, and nothing more.

        Examples
        --------
        >>> a = device.sparse.matrix(np.array([[2.0, 4.0], [1.0, 5.0]]))
        >>> factors = device.sparse.ilu0(a)
        >>> y = device.sparse.solve_triangular(factors, device.put(np.array([6.0, 6.0])), unit=True)
        >>> device.sparse.solve_triangular(factors, y, lower=False).numpy()
        array([1., 1.])
        """
        return self._factored("ilu0", a, out)

    def ic0(self, a: SparseMatrix, *, out: GpuRef | None = None) -> SparseMatrix:
        """Send the incomplete factor L of a hermitian csr matrix, with its conjugate transpose above.  Enqueues.

        See `SparseFactorRequest`.
        """
        return self._factored("ic0", a, out)

    def _factored(self, routine: str, a: SparseMatrix, out: GpuRef | None) -> SparseMatrix:
        if a.format != "csr":
            raise InvalidRequest(f"a is {a.format}; {routine} takes csr, which device.sparse.convert makes")
        return a.with_values(self._calls.send(self, FACTOR, (a.values, a.indices, a.offsets, out, routine, a.shape)))

    def direct(
        self,
        a: SparseMatrix,
        *,
        kind: str = "general",
        triangle: str = "full",
        columns: int = 16,
        deterministic: bool = False,
        durable: bool = False,
    ) -> DirectSolver:
        """Return a direct solver of ``A X = B`` for the pattern of a matrix; `DirectSolver.factor` comes next.

        Waits for the analysis, which orders the unknowns, and for a check of the pattern.

        Parameters
        ----------
        a : SparseMatrix
            Square, csr, with rows in order and without duplicates, of float32 to complex128; a batch, too.
        kind : str
            ``"general"``, ``"symmetric"``, ``"hermitian"`` or ``"positive"``: symmetric or Hermitian, and positive
            definite.
        triangle : str
            What is read of a matrix that is not general: ``"full"``, ``"lower"`` or ``"upper"``.
        columns : int
            Right sides of a solve that the solver has room for.
        deterministic : bool
            Whether equal messages must give equal bits.  Then a GPU solves for one column at a time, and no batch.
        durable : bool
            Whether its arrays survive a restart of the device.  Then its next message analyses and factors A anew.

        Raises
        ------
        InvalidRequest
            For other values, and for a pattern that is not valid.
        Unsupported
            On a GPU without cuDSS, which the extras ``cudss-cu13`` and ``cudss-cu12`` bring, and there for a batch that
            is to be deterministic.
        OutOfMemory
            If the device has not the memory that the analysis asks for.
        LibraryError
            If cuDSS fails for another reason, with its message.

        Examples
        --------
        >>> solver = device.sparse.direct(device.sparse.matrix(np.array([[0.0, 2.0], [4.0, 1.0]])))
        >>> solver.factor()
        >>> solver.solve(device.put(np.array([2.0, 5.0]))).numpy()
        array([1., 1.])
        """
        return DirectSolver(self, a, kind, triangle, columns, deterministic, durable)

    def solver(
        self,
        a: SparseMatrix,
        *,
        method: str = "cg",
        preconditioner: str = "jacobi",
        limit: int = 1000,
        restart: int | None = None,
        factors: SparseMatrix | None = None,
    ) -> IterativeSolver:
        """Return an iterative solver of ``A x = b``, which is recorded for the arrays of A.

        Waits for the plans of its steps, and not for the device.

        Parameters
        ----------
        a : SparseMatrix
            Square, csr, float32 or float64.
        method : str
            ``"cg"``: conjugate gradients, of a symmetric positive definite A; ``"bicgstab"`` and ``"gmres"``, of any.
        preconditioner : str
            ``"jacobi"``: the diagonal, with ones for zeros; ``"ilu0"``; ``"ic0"``, of a symmetric positive definite A;
            ``"none"``.  Each message computes the preconditioner from the values that A has then.
        limit : int
            Rounds after which a solver ends, solved or not.
        restart : int, optional
            Of ``"gmres"``: rounds after which it begins anew from the solution so far; it holds one vector more.  By
            default 30, or the rows of A if these are fewer.
        factors : SparseMatrix, optional
            Of ``"ilu0"`` and ``"ic0"``: factors that messages take in place of computing them, as `ilu0` and `ic0` make
            them; ``ilu0(a, out=factors.values)`` renews them.

        Raises
        ------
        InvalidRequest
            For other values.
        """
        return IterativeSolver(self, a, method, preconditioner, limit, restart, factors)

    def plan(
        self,
        request: SparseFactorRequest
        | SparseProductRequest
        | SparseSemiringRequest
        | SparseSolveRequest
        | StructuredCompressRequest
        | StructuredProductRequest
        | StructuredPruneRequest,
    ) -> Plan:
        """Return the plan of a request, whose arrays lend their layouts: ``plan.tell(values, indices, ..., out=y)``.

        Does not wait for it to be built.
        """
        return self._plan_of(request, handles=True)
