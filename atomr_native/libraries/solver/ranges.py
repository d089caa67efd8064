"""Generalised eigenproblems and ranges of eigenvalues, as messages around `Solver.eigh`."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays.operands import check_input
from ...errors import InvalidRequest
from .decomposition import EighResult

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["adjoint", "check_ranges", "generalised", "within"]

_TYPES = (1, 2, 3)


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
    if by_index is not None and by_value is not None:
        raise InvalidRequest("subset_by_index and subset_by_value are given; allowed: one of them")
    for name, subset, wanted in (
        ("subset_by_index", by_index, numbers.Integral), ("subset_by_value", by_value, numbers.Real),
    ):  # fmt: skip
        if subset is not None and not (
            isinstance(subset, tuple | list) and len(subset) == 2 and all(isinstance(x, wanted) for x in subset)
        ):
            raise InvalidRequest(f"{name}={subset!r}; allowed: a pair of numbers")
    if by_index is not None and not 0 <= by_index[0] <= by_index[1] < shape[-1]:
        raise InvalidRequest(f"subset_by_index={by_index!r}; allowed: 0 <= first <= last < {shape[-1]}")
    if by_value is not None and not by_value[0] < by_value[1]:
        raise InvalidRequest(f"subset_by_value={by_value!r}; allowed: the first below the second")
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


def within(found: Any, by_index: Any, by_value: Any) -> Any:
    """Return a range of eigenvalues as views; waits for them if it is given by value."""
    w, v, *info = found
    if by_index is not None:
        first, last = int(by_index[0]), int(by_index[1]) + 1
    elif by_value is not None:
        values = w.numpy()
        first, last = (int(np.searchsorted(values, x, side="right")) for x in by_value)
    else:
        return found
    part = EighResult(w[..., first:last], v[..., first:last])
    return (*part, *info) if info else part
