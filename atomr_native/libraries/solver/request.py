"""The request of the solver, and its results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..._support.public import public
from ...arrays.operands import Fresh
from ...dtypes import dtype_name
from ...plans.lowering import Lowered, Operand, Request, read, written
from .attributes import SolverAttributes
from .layouts import layout_in_batch, new_matrix
from .routes import choose_route
from .spec import INDEFINITE, ROUTINES, Problem, column_major, resolve

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["SCRATCH", "LDLFactors", "LUFactors", "SignLogDet", "SolverRequest"]

#: Arrays that a message may need besides those of its request.
SCRATCH: Final = ("factor", "work")


@public
class LUFactors(NamedTuple):
    """An LU factorisation with partial pivoting, as SciPy's ``lu_factor`` has it.

    Attributes
    ----------
    lu : GpuRef
        L below the diagonal, whose diagonal is ones, and U; of A's shape, column-major where it is new.
    pivots : GpuRef
        int32, (..., min(m, n)): row i was exchanged with row ``pivots[i]``, counted from 0.
    info : GpuRef or None
        int32, of the batch's shape, with ``check=False``: 0, or the place, from 1, of the first zero on U's diagonal.

    Examples
    --------
    >>> factors = device.solver.lu_factor(device.put(np.array([[0.0, 2.0], [4.0, 1.0]])))
    >>> factors.lu.numpy(), factors.pivots.numpy()
    (array([[4., 1.],
           [0., 2.]]), array([1, 1], dtype=int32))
    """

    lu: GpuRef
    pivots: GpuRef
    info: GpuRef | None = None


@public
class LDLFactors(NamedTuple):
    """A factorisation of a symmetric or Hermitian matrix that need not be definite, as LAPACK's ``sytrf`` has it.

    Attributes
    ----------
    ldl : GpuRef
        L below the diagonal, whose diagonal is ones, and the blocks of D, which have one row or two: the second element
        of a block of two is below the diagonal.  Zeros above.  Column-major where it is new.
    pivots : GpuRef
        int32, (..., n), LAPACK's, from 1: row i was exchanged with row ``pivots[i]``; of a block of two rows both are
        the negative of the number of the row with which its second was exchanged.
    info : GpuRef or None
        int32, of the batch's shape, with ``check=False``: 0, or the place, from 1, of the first block of D that is 0.

    Examples
    --------
    >>> factors = device.solver.ldl_factor(device.put(np.array([[0.0, 2.0], [2.0, 0.0]])))
    >>> factors.ldl.numpy(), factors.pivots.numpy()
    (array([[0., 0.],
           [2., 0.]]), array([-2, -2], dtype=int32))
    """

    ldl: GpuRef
    pivots: GpuRef
    info: GpuRef | None = None


@public
class SignLogDet(NamedTuple):
    """Sign and logarithm of determinants: ``sign * exp(logabsdet)``.

    Attributes
    ----------
    sign : GpuRef
        Of A's dtype, of the batch's shape: 0 for a singular matrix, else of magnitude 1.
    logabsdet : GpuRef
        The natural logarithm of the determinant's magnitude, real; minus infinity for a singular matrix.
    info : GpuRef or None
        With ``assume="positive_definite"`` and ``check=False``: see `SolverRequest`.

    Examples
    --------
    >>> found = device.solver.slogdet(device.put(np.diag([2.0, -1.0])))
    >>> found.sign.item(), round(found.logabsdet.item(), 6)
    (-1.0, 0.693147)
    """

    sign: GpuRef
    logabsdet: GpuRef
    info: GpuRef | None = None


def _collect(routine: str, checked: bool, arrays: Mapping[str, Any]) -> Any:
    names = (*ROUTINES[routine].writes, *(() if checked else ("info",)))
    found = [arrays[name] for name in names]
    if routine == "lu_factor":
        return LUFactors(*found)
    if routine == "ldl_factor":
        return LDLFactors(*found)
    if routine == "slogdet":
        return SignLogDet(*found)
    return found[0] if len(found) == 1 else tuple(found)


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class SolverRequest(Request[Any]):
    """A call of a solver's routine, checked when it is made.

    Parameters
    ----------
    routine : str
        ``cholesky`` ``A = L L^H``, or with ``lower=False`` ``U^H U``; ``cholesky_solve`` of its factor; ``lu_factor``;
        ``lu_solve`` of its factors, ``op(A) X = B``; ``ldl_factor`` of a symmetric or Hermitian A, ``ldl_solve`` of its
        factors; ``solve`` ``A X = B``; ``inv``; ``det``; ``slogdet``;
        ``solve_triangular`` ``op(A) X = B``; ``inv_triangular``.
    a, b, pivots
        Operands, of one dtype: float32, float64, complex64 or complex128; `pivots` int32.  Matrices with any strides of
        0 or more.  A `b` of one axis is a vector, of more axes matrices.  Axes in front are batches, equal, or
        broadcast where an operand lacks them or has 1.  None is written.
    out, pivots_out, log_out, info
        Outputs, with all axes of batches and any strides; allocated where missing.
    assume : str
        ``"general"``: by LU.  ``"positive_definite"``: Hermitian, by Cholesky, which reads one triangle.
        ``"symmetric"`` and ``"hermitian"``: by LDL^T or LDL^H with pivots, which read one triangle, too; ``ldl_factor``
        and ``ldl_solve`` take these alone.
    lower : bool
        Which triangle of A is read; of ``cholesky``, also which factor is made: the other triangle is zeros.
    trans, conj : bool
        op: the transpose, the conjugate, or both.
    unit : bool
        Whether the diagonal of a triangular A is taken as ones.
    check : bool
        True: a matrix without result raises `SingularMatrix` or `NotPositiveDefinite` at the reply, or where an output
        is read.  False: info, an int32 array of the batch's shape, is one more result: 0, or LAPACK's number.  Either
        way the results of such a matrix are NaN, but for ``lu_factor`` with ``check=False``, which has the factors.
    route : str, optional
        How a GPU computes a batch: ``"kernel"``, in one kernel of this package, up to 32 x 32; ``"batched"``, in one
        call of the library; ``"loop"``, by a call for each matrix.  By default by the table in the guide.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Examples
    --------
    >>> a, b = device.put(np.array([[4.0, 2.0], [2.0, 3.0]])), device.put(np.array([8.0, 8.0]))
    >>> request = an.SolverRequest(routine="solve", a=a, b=b, assume="positive_definite")
    >>> device.solver.tell(request).numpy()
    array([1., 2.])
    """

    routine: str
    a: Any = None
    b: Any = None
    pivots: Any = None
    out: Any = None
    pivots_out: Any = None
    log_out: Any = None
    info: Any = None
    assume: str = "general"
    lower: bool = True
    trans: bool = False
    conj: bool = False
    unit: bool = False
    check: bool = True
    route: str | None = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        problem = resolve(self)
        dtype = dtype_name(problem.dtype)
        route = choose_route(self, dtype, problem.size, math.prod(problem.batch))
        operands = [read(name, getattr(self, name)) for name in ROUTINES[self.routine].reads]
        for name, fresh in problem.fresh.items():
            given = getattr(self, name)
            if given is None and name == "out" and self.routine not in ("cholesky", "det", "slogdet"):
                operands.append(written(name, None, fresh) if problem.vector else new_matrix(name, fresh))
            else:
                operands.append(written(name, given, fresh))
        if route != "kernel" or self.assume in INDEFINITE:
            operands += _scratch(self, problem, operands)
        return Lowered(
            op=f"solver.{self.routine}",
            operands=tuple(operands),
            collect=partial(_collect, self.routine, bool(self.check)),
            attributes=SolverAttributes(
                dtype=dtype,
                batch=problem.batch,
                vector=problem.vector,
                assume=self.assume,
                lower=bool(self.lower),
                trans=bool(self.trans),
                conj=bool(self.conj),
                unit=bool(self.unit),
                check=bool(self.check),
                route=route,
            ),
        )


def _scratch(request: SolverRequest, problem: Problem, operands: list[Operand]) -> list[Operand]:
    """Return the arrays of `SCRATCH` that a message needs: a copy of A to factor, and a place for X to work in.

    A lower triangle in rows is an upper one in columns, so a factor needs no such place in either order.
    """
    named = {operand.name: operand for operand in operands}
    found = []
    factors = request.routine in ("cholesky_solve", "lu_solve", "ldl_solve", "solve_triangular", "inv_triangular")
    if request.routine in ("solve", "inv", "det", "slogdet"):
        copies = True
    elif factors:
        a = layout_in_batch(named["a"], problem.batch, problem.dtype)
        turns = request.routine not in ("lu_solve", "ldl_solve")
        copies = not (column_major(a) or (turns and column_major(a, turned=True)))
    else:
        copies = False
    if copies:
        found.append(new_matrix("factor", Fresh((*problem.batch, *problem.size), problem.dtype)))
    if request.routine in ("det", "slogdet"):
        return found
    out = layout_in_batch(named["out"], problem.batch, problem.dtype, vector=problem.vector)
    turns = request.routine == "cholesky"
    if not (column_major(out) or (turns and column_major(out, turned=True))):
        found.append(new_matrix("work", Fresh(out.shape, problem.dtype)))
    return found
