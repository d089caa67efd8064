"""Generalised eigenproblems, as messages around `Solver.eigh`, and ranges of eigenvalues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...arrays.operands import check_input
from ...errors import InvalidRequest
from .algorithms import AUTO
from .decomposition import EighResult
from .eigen_range_request import EigenRangeRequest, check_range

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["WHOLE", "adjoint", "check_ranges", "generalised", "is_partial", "partial_range", "within"]

_TYPES = (1, 2, 3)
#: Rows of the largest matrices of which all eigenvalues are computed for a range of them.  Not measured.
WHOLE: Final = 512


def adjoint(x: GpuRef) -> GpuRef:
    """Return conjugate transposes: a view of a real array."""
    made: GpuRef = x.device.elementwise.run("conj(x)", x=x.mT) if x.dtype.kind == "c" and x.size else x.mT
    return made


def check_ranges(a: GpuRef, b: GpuRef | None, kind: Any, by_index: Any, by_value: Any) -> None:
    """Check a problem and a range before any message is sent."""
    if not isinstance(kind, int) or isinstance(kind, bool) or kind not in _TYPES or (kind != 1 and b is None):
        allowed = "1" if b is None else "1, 2, 3"
        raise InvalidRequest(f"eigh with type={kind!r}; allowed: {allowed}, and 2 and 3 with b")
    shape = tuple(check_input("a", a).shape)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise InvalidRequest(f"a has shape {shape}; eigh takes square matrices")
    if b is not None and (tuple(check_input("b", b).shape) != shape or b.dtype != a.dtype):
        raise InvalidRequest(f"b has shape {tuple(b.shape)} and dtype {b.dtype}; allowed: {shape} and {a.dtype}")
    check_range(by_index, by_value, shape[-1])
    if by_value is not None and len(shape) > 2:
        raise InvalidRequest(
            f"subset_by_value of a with shape {shape}; allowed: one matrix, since those of a batch may have different "
            f"numbers of eigenvalues"
        )


def generalised(solver: Any, a: GpuRef, b: GpuRef, kind: int, lower: bool, check: bool, algorithm: str) -> Any:
    """Send a generalised eigenproblem, reduced by the Cholesky factor L of B."""
    if not a.size:
        return solver._eigh(a, lower, check, algorithm)  # noqa: SLF001
    factor, *of_b = (solver.cholesky(b, lower=lower),) if check else solver.cholesky(b, lower=lower, check=False)
    product = a.device.blas_lt.matmul
    inverse = {"lower": lower, "trans": not lower, "conj": not lower}
    back = {"lower": lower, "trans": lower, "conj": lower}
    if kind == 1:  # C = L^-1 A L^-H
        half = solver.solve_triangular(factor, a, **inverse)
        reduced = solver.solve_triangular(factor, adjoint(half), **inverse)
    else:  # C = L^H A L
        left = factor if lower else adjoint(factor)
        reduced = product(adjoint(left), product(a, left))
    w, y, *of_a = solver._eigh(reduced, True, check, algorithm)  # noqa: SLF001
    found = EighResult(w, product(left, y) if kind == 3 else solver.solve_triangular(factor, y, **back))
    if check:
        return found
    info = a.device.elementwise.run("where(b != 0, b + n, a)", b=of_b[0], a=of_a[0], n=a.shape[-1])
    return (*found, info)


def is_partial(a: GpuRef, b: GpuRef | None, algorithm: str) -> bool:
    """Whether a range of eigenvalues is found without the others."""
    return b is None and a.shape[-1] > WHOLE and algorithm in (AUTO, "divide")


def partial_range(
    solver: Any, a: GpuRef, vectors: bool, lower: bool, check: bool, by_index: Any, by_value: Any
) -> tuple[Any, ...]:
    """Send a range of eigenvalues as one message: values, vectors if they are wanted, and info if it is not checked.

    Waits for the number of eigenvalues if it is given by value.
    """
    index = None if by_index is None else (int(by_index[0]), int(by_index[1]))
    value = None if by_value is None else (float(by_value[0]), float(by_value[1]))
    request = EigenRangeRequest(
        a=a, vectors=vectors, lower=lower, check=check, subset_by_index=index, subset_by_value=value
    )  # fmt: skip
    made = solver.tell(request)
    found = made if isinstance(made, tuple) else (made,)
    if value is None:
        return found
    w, *v = found[: 1 + vectors]
    count, *info = found[1 + vectors :]
    taken = int(count.numpy())
    return (w[..., :taken], *(x[..., :taken] for x in v), *info)


def within(found: tuple[Any, ...], vectors: bool, by_index: Any, by_value: Any) -> tuple[Any, ...]:
    """Return a range of all eigenvalues as views; waits for them if it is given by value."""
    w, *rest = found
    v, info = rest[:vectors], rest[vectors:]
    if by_index is not None:
        first, last = int(by_index[0]), int(by_index[1]) + 1
    elif by_value is not None:
        values = w.numpy()
        first, last = (int(np.searchsorted(values, x, side="right")) for x in by_value)
    else:
        return found
    return (w[..., first:last], *(x[..., first:last] for x in v), *info)
