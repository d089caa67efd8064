"""The extension `linalg` of the array API standard, by ``device.solver``: ``xp.linalg`` of a namespace.

Every function enqueues and returns handles; a singular matrix, or one that is not positive definite, raises where a
result is read.  Arrays of decompositions, solves and norms are float32, float64, complex64 or complex128.
``device.solver`` has further routines and arguments, such as ``out=``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from .._support.options import named_members
from ..dtypes import dtype_name
from ..errors import InvalidRequest
from ._creation import eye
from ._linear import matmul, outer, tensordot, vecdot
from ._manipulation import broadcast_arrays, broadcast_to, copied, matrix_transpose, moveaxis, reshape, stack
from ._manipulation import view_of as _view_of
from ._operands import as_axes, as_type, cast_to, forward, handle
from ._reductions import count_nonzero
from ._reductions import max as _max
from ._reductions import min as _min
from ._reductions import sum as _sum

if TYPE_CHECKING:
    from ..arrays.gpu_ref import GpuRef

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power",
    "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot",
    "trace", "vecdot", "vector_norm",
]  # fmt: skip

_NORMS: Final = ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf)


class SlogdetResult(NamedTuple):
    """Sign and logarithm of determinants, as the standard has it."""

    sign: GpuRef
    logabsdet: GpuRef


def _matrices(function: str, x: Any) -> GpuRef:
    """Return an array of floating-point matrices, without negative strides."""
    if handle(function, x).ndim < 2:
        raise InvalidRequest(f"{function} of an array of shape {x.shape}; allowed: 2 axes or more")
    if dtype_name(x.dtype) not in ("float32", "float64", "complex64", "complex128"):
        raise InvalidRequest(
            f"{function} of {dtype_name(x.dtype)}; allowed: float32, float64, complex64, complex128, as by "
            f"x.astype('float64')"
        )
    return forward(x)


def _squares(function: str, x: Any) -> GpuRef:
    found = _matrices(function, x)
    if found.shape[-1] != found.shape[-2]:
        raise InvalidRequest(f"{function} of an array of shape {found.shape}; allowed: square matrices")
    return found


def _magnitudes(x: GpuRef) -> GpuRef:
    made: GpuRef = x.device.elementwise.run("abs(x)", x=x)
    return made


def cholesky(x: GpuRef, /, *, upper: bool = False) -> GpuRef:
    """Return L of ``x = L L^H``, or U of ``x = U^H U``, for Hermitian, positive definite matrices."""
    a = _squares("cholesky", x)
    made: GpuRef = a.device.solver.cholesky(a, lower=not upper)
    return made


def cross(x1: GpuRef, x2: GpuRef, /, *, axis: int = -1) -> GpuRef:
    """Return the vector products along an axis of extent 3.  Four messages, and casts where dtypes differ."""
    a, b = handle("cross", x1), handle("cross", x2)
    shared = min(a.ndim, b.ndim)
    if isinstance(axis, bool) or not isinstance(axis, int) or not -shared <= axis < shared:
        raise InvalidRequest(f"cross with axis={axis!r} of shapes {a.shape} and {b.shape}; allowed: -1 to {-shared}")
    if a.shape[axis] != 3 or b.shape[axis] != 3:
        raise InvalidRequest(f"cross with axis={axis!r} of shapes {a.shape} and {b.shape}; allowed: 3 elements there")
    dtype = as_type(a, b)
    if dtype.kind == "b":
        raise InvalidRequest("cross of bool; allowed: numbers")
    a, b = broadcast_arrays(cast_to(moveaxis(a, axis, -1), dtype), cast_to(moveaxis(b, axis, -1), dtype))
    parts = [
        cast_to(a.device.elementwise.run("p * q - r * s", p=a[..., i], q=b[..., j], r=a[..., j], s=b[..., i]), dtype)
        for i, j in ((1, 2), (2, 0), (0, 1))
    ]
    return moveaxis(stack(parts, axis=-1), -1, axis)


def det(x: GpuRef, /) -> GpuRef:
    """Return the determinants of matrices; 0 for singular ones."""
    a = _squares("det", x)
    made: GpuRef = a.device.solver.det(a)
    return made


def diagonal(x: GpuRef, /, *, offset: int = 0) -> GpuRef:
    """Return a view of the diagonals of matrices, `offset` places above the main ones; it can be read only."""
    if isinstance(offset, bool) or not isinstance(offset, int | np.integer):
        raise InvalidRequest(f"diagonal with offset={offset!r}; allowed: integers")
    return _view_of("diagonal", x, lambda image: np.diagonal(image, int(offset), -2, -1))


def eigh(x: GpuRef, /) -> Any:
    """Return eigenvalues, ascending, and eigenvectors of Hermitian matrices, of which the lower triangle is read."""
    a = _squares("eigh", x)
    return a.device.solver.eigh(a)


def eigvalsh(x: GpuRef, /) -> GpuRef:
    """Return the eigenvalues of Hermitian matrices, ascending, of which the lower triangle is read."""
    a = _squares("eigvalsh", x)
    made: GpuRef = a.device.solver.eigvalsh(a)
    return made


def inv(x: GpuRef, /) -> GpuRef:
    """Return the inverses of matrices."""
    a = _squares("inv", x)
    made: GpuRef = a.device.solver.inv(a)
    return made


def matrix_norm(x: GpuRef, /, *, keepdims: bool = False, ord: Any = "fro") -> GpuRef:
    """Return a norm of matrices: ``"fro"``, ``"nuc"``, 1, -1, 2, -2, infinity or its negative; 0 for empty ones."""
    a = _matrices("matrix_norm", x)
    if isinstance(ord, bool) or ord not in _NORMS:
        raise InvalidRequest(f"matrix_norm with ord={ord!r}; allowed: {', '.join(map(repr, _NORMS))}")
    if not math.prod(a.shape[-2:]):
        found = _sum(_magnitudes(a), axis=(-2, -1))
    elif ord == "fro":
        found = vector_norm(a, axis=(-2, -1))
    elif ord in ("nuc", 2, -2):
        values = a.device.solver.svdvals(a)
        found = _sum(values, axis=-1) if ord == "nuc" else values[..., 0 if ord == 2 else -1]
    else:
        sums = _sum(_magnitudes(a), axis=-2 if abs(ord) == 1 else -1)
        found = _max(sums, axis=-1) if ord > 0 else _min(sums, axis=-1)
    return found[..., None, None] if keepdims else found


def matrix_power(x: GpuRef, n: int, /) -> GpuRef:
    """Return the n-th powers of square matrices, by repeated squaring; of their inverses for a negative n."""
    a = _squares("matrix_power", x)
    if isinstance(n, bool) or not isinstance(n, int | np.integer):
        raise InvalidRequest(f"matrix_power with n={n!r}; allowed: integers")
    if n == 0:
        return copied(broadcast_to(eye(a.shape[-1], dtype=a.dtype, device=a.device), a.shape))
    square, left, made = (inv(a) if n < 0 else a), abs(int(n)), None
    while left:
        if left & 1:
            made = square if made is None else matmul(made, square)
        left >>= 1
        square = matmul(square, square) if left else square
    return copied(made) if made is a else made  # type: ignore[return-value]


def matrix_rank(x: GpuRef, /, *, rtol: Any = None) -> GpuRef:
    """Return how many singular values are above `rtol`, a number or an array, times the largest: int64."""
    a = _matrices("matrix_rank", x)
    made: GpuRef = a.device.solver.matrix_rank(a, rtol=rtol)
    return made


def pinv(x: GpuRef, /, *, rtol: Any = None) -> GpuRef:
    """Return the pseudo-inverses; singular values up to `rtol`, a number or an array, times the largest are zeros."""
    a = _matrices("pinv", x)
    made: GpuRef = a.device.solver.pinv(a, rtol=rtol)
    return made


def qr(x: GpuRef, /, *, mode: str = "reduced") -> Any:
    """Return Q and R of ``x = Q R``: ``"reduced"`` or ``"complete"``."""
    a = _matrices("qr", x)
    if mode not in ("reduced", "complete"):
        raise InvalidRequest(f"qr with mode={mode!r}; allowed: 'reduced', 'complete'")
    return a.device.solver.qr(a, mode=mode)


def slogdet(x: GpuRef, /) -> SlogdetResult:
    """Return sign and natural logarithm of the determinants of matrices; 0 and minus infinity for singular ones."""
    a = _squares("slogdet", x)
    found = a.device.solver.slogdet(a)
    return SlogdetResult(found.sign, found.logabsdet)


def solve(x1: GpuRef, x2: GpuRef, /) -> GpuRef:
    """Return X of ``x1 X = x2``; an `x2` of one axis is a vector."""
    a, b = _squares("solve", x1), handle("solve", x2)
    dtype = as_type(a, b)
    made: GpuRef = a.device.solver.solve(cast_to(a, dtype), cast_to(forward(b), dtype))
    return made


def svd(x: GpuRef, /, *, full_matrices: bool = True) -> Any:
    """Return U, S and Vh of ``x = U diag(S) Vh``."""
    a = _matrices("svd", x)
    return a.device.solver.svd(a, mode="complete" if full_matrices else "reduced")


def svdvals(x: GpuRef, /) -> GpuRef:
    """Return the singular values of matrices, descending."""
    a = _matrices("svdvals", x)
    made: GpuRef = a.device.solver.svdvals(a)
    return made


def trace(x: GpuRef, /, *, offset: int = 0, dtype: Any = None) -> GpuRef:
    """Return the sums of the diagonals of matrices, `offset` places above the main ones."""
    return _sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vector_norm(x: GpuRef, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> GpuRef:
    """Return the norm of vectors along axes, by default all: of any real order, 0, infinity and its negative."""
    if handle("vector_norm", x).dtype.kind not in "fc":
        raise InvalidRequest(f"vector_norm of {dtype_name(x.dtype)}; allowed: floating-point dtypes")
    if isinstance(ord, bool) or not isinstance(ord, int | float) or ord != ord:
        raise InvalidRequest(f"vector_norm with ord={ord!r}; allowed: numbers, infinity and its negative")
    axes = as_axes("vector_norm", axis, x.ndim)
    sizes, elementwise = _magnitudes(x), x.device.elementwise
    if not axes:  # each element is a vector
        return elementwise.run("where(x != 0.0, 1.0, 0.0)", x=sizes) if ord == 0 else sizes
    if abs(ord) == math.inf:
        found = (_max if ord > 0 else _min)(sizes, axis=axes)
    elif ord == 0:
        found = cast_to(count_nonzero(sizes, axis=axes), sizes.dtype)
    elif ord == 1:
        found = _sum(sizes, axis=axes)
    elif ord == 2:
        found = elementwise.run("sqrt(x)", x=_sum(elementwise.run("x * x", x=sizes), axis=axes))
    else:
        powers = elementwise.run("x ** p", x=sizes, p=float(ord))
        found = elementwise.run("x ** p", x=_sum(powers, axis=axes), p=1.0 / ord)
    if not keepdims:
        return found
    return reshape(found, tuple(1 if i in axes else n for i, n in enumerate(x.shape)))


named_members(globals(), __all__)
