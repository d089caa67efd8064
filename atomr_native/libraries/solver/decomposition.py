"""The request of orthogonal decompositions, and its results."""

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
from .algorithms import AUTO, call_of
from .attributes import DecompositionAttributes
from .decomposition_rules import DECOMPOSITIONS, Parts, resolve
from .layouts import layout_in_batch, new_matrix
from .routes import choose_route
from .spec import column_major

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = [
    "WORK",
    "DecompositionRequest",
    "EigResult",
    "EighResult",
    "QRFactors",
    "QRResult",
    "SVDResult",
    "TwoSidedEigResult",
]

#: Arrays that a message may need besides those of its request: a copy of A, and the places of outputs in which the
#: library cannot work.
WORK: Final = ("factor", "q_work", "packed_work", "out_work", "u_work", "vh_work", "v_work")


@public
class QRResult(NamedTuple):
    """The QR decomposition of A, ``A = Q R``.

    Attributes
    ----------
    Q : GpuRef
        Orthonormal columns.
    R : GpuRef
        Upper triangular, zeros below.

    Examples
    --------
    >>> q, r = device.solver.qr(device.put(np.array([[3.0, 0.0], [4.0, 5.0]])))
    >>> abs(r.numpy()).round(3)
    array([[5., 4.],
           [0., 3.]])
    """

    Q: GpuRef
    R: GpuRef


@public
class QRFactors(NamedTuple):
    """A QR factorisation as LAPACK has it, for `Solver.qr_multiply`.

    Attributes
    ----------
    packed : GpuRef
        R in the upper triangle, and below it the reflectors of which Q is the product; of A's shape, column-major where
        it is new.
    tau : GpuRef
        (..., min(m, n)): the factors of the reflectors.

    Examples
    --------
    >>> factors = device.solver.qr_factor(device.put(np.array([[3.0, 0.0], [4.0, 5.0]])))
    >>> factors.packed.shape, factors.tau.shape
    ((2, 2), (2,))
    """

    packed: GpuRef
    tau: GpuRef


@public
class SVDResult(NamedTuple):
    """The singular value decomposition of A, ``A = U diag(S) Vh``.

    Attributes
    ----------
    U : GpuRef
        Orthonormal columns.
    S : GpuRef
        Singular values, real, in descending order.
    Vh : GpuRef
        Orthonormal rows.

    Examples
    --------
    >>> found = device.solver.svd(device.put(np.diag([2.0, -3.0])))
    >>> found.S.numpy()
    array([3., 2.])
    """

    U: GpuRef
    S: GpuRef
    Vh: GpuRef


@public
class EighResult(NamedTuple):
    """Eigenvalues and eigenvectors of a Hermitian matrix.

    Attributes
    ----------
    eigenvalues : GpuRef
        Real, in ascending order.
    eigenvectors : GpuRef
        Columns, orthonormal.

    Examples
    --------
    >>> found = device.solver.eigh(device.put(np.diag([2.0, -3.0])))
    >>> found.eigenvalues.numpy()
    array([-3.,  2.])
    """

    eigenvalues: GpuRef
    eigenvectors: GpuRef


@public
class EigResult(NamedTuple):
    """Eigenvalues and eigenvectors of a matrix, complex also where A is real.

    Attributes
    ----------
    eigenvalues : GpuRef
        In LAPACK's order.
    eigenvectors : GpuRef
        Columns of norm 1.

    Examples
    --------
    >>> device.solver.eig(device.put(np.array([[0.0, 1.0], [-1.0, 0.0]]))).eigenvalues.numpy()
    array([0.+1.j, 0.-1.j])
    """

    eigenvalues: GpuRef
    eigenvectors: GpuRef


@public
class TwoSidedEigResult(NamedTuple):
    """Eigenvalues of a matrix with its eigenvectors of both sides.

    Attributes
    ----------
    eigenvalues : GpuRef
        In LAPACK's order.
    eigenvectors : GpuRef
        Columns v of norm 1, ``A v = w v``.
    left_eigenvectors : GpuRef
        Columns u of norm 1, ``u^H A = w u^H``.

    Examples
    --------
    >>> found = device.solver.eig(device.put(np.array([[1.0, 2.0], [0.0, 3.0]])), left=True)
    >>> abs(found.left_eigenvectors.numpy()[:, 0] @ np.array([[1.0, 2.0], [0.0, 3.0]])).round(3)
    array([0.707, 0.707])
    """

    eigenvalues: GpuRef
    eigenvectors: GpuRef
    left_eigenvectors: GpuRef


_RESULTS: Final[dict[str, Any]] = {
    "qr": QRResult, "qr_factor": QRFactors, "svd": SVDResult, "eigh": EighResult, "eig": EigResult,
}  # fmt: skip


def _collect(routine: str, names: tuple[str, ...], arrays: Mapping[str, Any]) -> Any:
    """Return the result; with info numbers it is a plain tuple, of which they are the last."""
    found = [arrays[name] for name in names]
    if "info" in names:
        return tuple(found)
    if "vl" in names:
        return TwoSidedEigResult(*found)
    return found[0] if len(found) == 1 else _RESULTS[routine](*found)


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class DecompositionRequest(Request[Any]):
    """An orthogonal decomposition of matrices, checked when it is made.

    Parameters
    ----------
    routine : str
        ``qr`` ``A = Q R``; ``qr_factor``, the same as reflectors; ``qr_multiply``, the product of Q or its adjoint, by
        these reflectors, and C; ``svd`` ``A = U diag(S) Vh``; ``svdvals``, S alone; ``eigh``
        ``A = V diag(w) V^H`` of a Hermitian A; ``eigvalsh``, w alone; ``eig`` and ``eigvals`` the same of any square A,
        complex.
    a, tau, c
        Operands of one dtype: float32, float64, complex64 or complex128.  Matrices with any strides of 0 or more, and
        of any shape; of eigenproblems square.  Axes in front are batches, equal, or broadcast where an
        operand lacks them or has 1.  None is written.
    q, r, packed, tau_out, out, u, s, vh, w, v, vl, info
        Outputs, with all axes of batches and any strides; allocated where missing.
    mode : str
        Of ``qr`` and ``svd``: ``"reduced"``, with min(m, n) columns of Q and U and rows of Vh, or ``"complete"``, with
        m columns and n rows.  Of ``qr`` also ``"r"``: R alone.
    lower : bool
        Which triangle of a Hermitian A is read.
    right, adjoint : bool
        Of ``qr_multiply``: ``C Q`` instead of ``Q C``; the adjoint of Q instead of Q.
    algorithm : str
        Of singular values ``"qr"``, ``"jacobi"``, ``"polar"``, and for vectors ``"approximate"``; of Hermitian
        eigenvalues ``"divide"`` and ``"jacobi"``.  ``"auto"``: that of the route.  The host has ``"qr"`` of singular
        values, and divide and conquer for all others.
    left : bool
        Of ``eig``: left eigenvectors, too; on the host only.
    check : bool
        True: an iteration that does not converge raises `NotConverged` at the reply, or where an output is read.
        False: info, an int32 array of the batch's shape, is the last result: ``u, s, vh, info``.  Either way
        the results of such a matrix are NaN.  ``qr`` and what belongs to it cannot fail.
    route : str, optional
        As in `SolverRequest`.  ``qr`` and singular values of a batch have no ``"batched"``.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Notes
    -----
    The results of a matrix with NaN or an infinity, in the part that is read, are NaN.

    Examples
    --------
    >>> request = an.DecompositionRequest(routine="svdvals", a=device.put(np.array([[0.0, 2.0], [0.0, 0.0]])))
    >>> device.solver.tell(request).numpy()
    array([2., 0.])
    """

    routine: str
    a: Any = None
    tau: Any = None
    c: Any = None
    q: Any = None
    r: Any = None
    packed: Any = None
    tau_out: Any = None
    out: Any = None
    u: Any = None
    s: Any = None
    vh: Any = None
    w: Any = None
    v: Any = None
    vl: Any = None
    info: Any = None
    mode: str = "reduced"
    lower: bool = True
    right: bool = False
    adjoint: bool = False
    check: bool = True
    route: str | None = None
    algorithm: str = AUTO
    left: bool = False

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        parts = resolve(self)
        dtype = dtype_name(parts.dtype)
        route = choose_route(self, dtype, parts.size, math.prod(parts.batch))
        operands = [read(name, getattr(self, name)) for name in DECOMPOSITIONS[self.routine].reads]
        for name, fresh in parts.fresh.items():
            given = getattr(self, name)
            if given is None and f"{name}_work" in WORK:
                operands.append(_new(self, parts, name, fresh))
            else:
                operands.append(written(name, given, fresh))
        if route != "kernel":
            operands += _scratch(self, parts, operands)
        return Lowered(
            op=f"solver.{self.routine}",
            operands=tuple(operands),
            collect=partial(_collect, self.routine, tuple(parts.fresh)),
            attributes=DecompositionAttributes(
                dtype=dtype,
                batch=parts.batch,
                mode=self.mode,
                lower=bool(self.lower),
                right=bool(self.right),
                adjoint=bool(self.adjoint),
                check=bool(self.check),
                route=route,
                algorithm=self.algorithm,
                left=bool(self.left),
            ),
        )


def _turned(request: DecompositionRequest, parts: Parts) -> bool:
    """Whether the library decomposes the transpose: it has singular values of tall matrices only."""
    return request.routine.startswith("svd") and parts.size[0] < parts.size[1]


def _new(request: DecompositionRequest, parts: Parts, name: str, fresh: Fresh) -> Operand:
    """Return a new output, in the order in which the library makes it."""
    return written(name, None, fresh) if _turned(request, parts) else new_matrix(name, fresh)


def _made_elsewhere(request: DecompositionRequest, parts: Parts) -> dict[str, Fresh]:
    """Return the outputs that the library makes in another form, and the arrays for that form."""
    rows, columns = parts.size
    if request.routine == "eig" and parts.dtype.kind != "c":  # pairs of real columns
        return {"v": Fresh((*parts.batch, rows, rows), parts.dtype)}
    if request.routine == "svd" and call_of("svd", request.algorithm) != "gesvd":  # V, and not its adjoint
        least = min(rows, columns)
        return {"u" if _turned(request, parts) else "vh": Fresh((*parts.batch, least, least), parts.dtype)}
    return {}


def _scratch(request: DecompositionRequest, parts: Parts, operands: list[Operand]) -> list[Operand]:
    """Return the arrays of `WORK` that a message needs."""
    named = {operand.name: operand for operand in operands}
    turned = _turned(request, parts)
    found = []
    rows, columns = parts.size[::-1] if turned else parts.size
    copies = request.routine in ("qr", "svd", "svdvals", "eigvalsh", "eig", "eigvals")
    if request.routine == "qr_multiply":
        copies = not column_major(layout_in_batch(named["a"], parts.batch, parts.dtype))
    if copies:
        found.append(new_matrix("factor", Fresh((*parts.batch, rows, columns), parts.dtype)))
    made = _made_elsewhere(request, parts)
    found += [new_matrix(f"{name}_work", fresh) for name, fresh in made.items()]
    for name in ("q", "packed", "out", "u", "vh", "v"):
        if (
            name in named
            and name not in made
            and not column_major(layout_in_batch(named[name], parts.batch, parts.dtype), turned=turned)
        ):
            *batch, m, n = named[name].spec.shape
            shape = (*batch, n, m) if turned else (*batch, m, n)
            found.append(new_matrix(f"{name}_work", Fresh(shape, parts.dtype)))
    return found
