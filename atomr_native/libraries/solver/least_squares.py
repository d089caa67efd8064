"""The solver's methods that are several messages: least squares, pseudo-inverses and ranks, by singular values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..._support.checks import check_flag
from ..._support.public import public
from ...arrays.gpu_ref import GpuRef
from ...arrays.operands import broadcast_shapes, check_input
from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest
from .checks import check_size, matrix_dtype
from .decompositions import Decompositions
from .ranges import adjoint
from .spec import real_of

__all__ = ["LeastSquares", "LstsqResult"]


@public
class LstsqResult(NamedTuple):
    """The solution of a least squares problem.

    Attributes
    ----------
    x : GpuRef
        Of all X with the least norm of ``B - A X`` that of the least norm.
    rank : GpuRef
        int64, of the batch's shape: how many singular values count.
    s : GpuRef
        The singular values of A, in descending order.

    Examples
    --------
    >>> a, b = device.put(np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])), device.put(np.array([1.0, 3.0, 5.0]))
    >>> found = device.solver.lstsq(a, b)
    >>> found.x.numpy().round(6), int(found.rank)
    (array([1., 2.]), 2)
    """

    x: GpuRef
    rank: GpuRef
    s: GpuRef


def _cutoff(a: GpuRef, rtol: Any) -> Any:
    """Return the fraction of the largest singular value up to which others count as zero: a number or an array."""
    size, dtype = check_size("a", a), matrix_dtype(a)
    if rtol is None:
        return float(np.finfo(real_of(dtype)).eps) * max(size)
    if isinstance(rtol, GpuRef):
        fractions = rtol if rtol.dtype == real_of(dtype) else a.device.copy(rtol, dtype=real_of(dtype))
        return fractions[..., None]
    if isinstance(rtol, bool) or not isinstance(rtol, int | float | np.integer | np.floating) or not rtol >= 0:
        raise InvalidRequest(f"rtol={rtol!r}; allowed: a number of 0 or more, an array, or None")
    return float(rtol)


class LeastSquares(Decompositions):
    """Least squares by the singular value decomposition.

    An error of the decomposition arrives as an error of the results; with ``check=False`` its info numbers are the last
    result of a plain tuple: ``x, rank, s, info = device.solver.lstsq(a, b, check=False)``.
    """

    def matrix_rank(self, a: GpuRef, *, rtol: float | GpuRef | None = None, check: bool = True) -> Any:
        """Send the ranks of matrices, int64: how many singular values are above `rtol` times the largest.

        Two messages or three.  By default `rtol` is the spacing of the dtype at 1, times the larger of m and n.  With
        ``check=False`` the rank of a matrix without singular values is 0.
        """
        cutoff = _cutoff(a, rtol)
        check_flag("check", check, bool | np.bool)
        if check:
            return self._rank(self.svdvals(a), cutoff)
        s, info = self.svdvals(a, check=False)
        return self._rank(s, cutoff), info

    def _rank(self, s: GpuRef, rtol: Any) -> GpuRef:
        elementwise = self.device.elementwise
        if not s.shape[-1]:
            return self.device.zeros(s.shape[:-1], "int64")
        counts = elementwise.run("s > rtol * m", s=s, m=s[..., :1], rtol=rtol)
        made: GpuRef = elementwise.reduce("sum", counts, counts.ndim - 1)
        return made

    def _reciprocals(self, s: GpuRef, rtol: Any) -> GpuRef:
        """Send the reciprocals of the singular values that count, and zeros for the others; NaN stays."""
        made: GpuRef = self.device.elementwise.run("where(s <= rtol * m, 0.0, 1.0 / s)", s=s, m=s[..., :1], rtol=rtol)
        return made

    def pinv(self, a: GpuRef, *, rtol: float | GpuRef | None = None, check: bool = True) -> Any:
        """Send the pseudo-inverses of matrices of any shape and rank: ``(..., n, m)``.

        Singular values up to `rtol` times the largest count as zero, by default as in `matrix_rank`.  Four messages, of
        complex matrices six.
        """
        cutoff = _cutoff(a, rtol)
        check_flag("check", check, bool | np.bool)
        if 0 in a.shape:
            found = self.device.zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
            return found if check else (found, self.device.zeros(a.shape[:-2], "int32"))
        u, s, vh, *info = self.svd(a, check=check)
        scaled = self.device.elementwise.run("v * r", v=adjoint(vh), r=self._reciprocals(s, cutoff)[..., None, :])
        made: GpuRef = self.device.blas_lt.matmul(scaled, adjoint(u))
        return made if check else (made, *info)

    def lstsq(self, a: GpuRef, b: GpuRef, *, rtol: float | GpuRef | None = None, check: bool = True) -> Any:
        """Send the X of the least norm that minimises the norm of ``B - A X``, for A of any shape and rank.

        Parameters
        ----------
        a : GpuRef
            (..., m, n)
        b : GpuRef
            (m,) or (..., m, k), of A's dtype; batches broadcast.
        rtol : float or GpuRef, optional
            A number, or an array of the batch's shape: singular values up to `rtol` times the largest count as zero; by
            default as in `matrix_rank`.
        check : bool
            True: an SVD that does not converge raises `NotConverged` where a result is read.  False: the result is
            ``x, rank, s, info``, with the info numbers of the batch of A.

        Returns
        -------
        LstsqResult

        Notes
        -----
        Seven messages, of complex matrices nine.  For an A of full rank with many more rows than columns,
        ``qr_factor``, ``qr_multiply`` and ``solve_triangular`` take less work.

        Raises
        ------
        InvalidRequest
            For other shapes, dtypes and numbers, before anything is sent.
        """
        cutoff = _cutoff(a, rtol)
        check_flag("check", check, bool | np.bool)
        shape = tuple(check_input("b", b).shape)
        vector, rows = len(shape) == 1, a.shape[-2]
        if shape[0 if vector else -2 :][:1] != (rows,):
            raise InvalidRequest(
                f"b has shape {shape}; allowed: ({rows},) or (..., {rows}, any), since a has {rows} rows"
            )
        if as_dtype(b.dtype) != as_dtype(a.dtype):
            raise InvalidRequest(
                f"b has dtype {dtype_name(as_dtype(b.dtype))}; allowed: {dtype_name(as_dtype(a.dtype))}"
            )
        batch = broadcast_shapes([("a", a.shape[:-2]), ("b", () if vector else shape[:-2])], "batch axes")
        columns = b[:, None] if vector else b
        whole = (*batch, a.shape[-1], columns.shape[-1])
        if 0 in a.shape or 0 in whole:
            s, *info = (self.svdvals(a),) if check else self.svdvals(a, check=False)
            x = self.device.zeros(whole, a.dtype)
            return self._found(x[..., 0] if vector else x, s, cutoff, info)
        u, s, vh, *info = self.svd(a, check=check)
        product = self.device.blas_lt.matmul
        parts = product(adjoint(u), columns)
        parts = self.device.elementwise.run("c * r", c=parts, r=self._reciprocals(s, cutoff)[..., None])
        x = product(adjoint(vh), parts)
        return self._found(x[..., 0] if vector else x, s, cutoff, info)

    def _found(self, x: GpuRef, s: GpuRef, cutoff: Any, info: list[GpuRef]) -> Any:
        found = LstsqResult(x, self._rank(s, cutoff), s)
        return (*found, *info) if info else found
