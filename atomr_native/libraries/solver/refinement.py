"""Solves by a factor of half the precision, refined by residuals: the loop of LAPACK's ``dsgesv``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..._support.checks import as_integer, check_choice
from ..._support.public import public
from ...errors import InvalidRequest
from .refinement_request import FACTORS, MOST_ITERATIONS, NARROW, RefinementRequest
from .request import SolverRequest
from .spec import real_of

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["RefinedResult", "solve_refined"]


@public
class RefinedResult(NamedTuple):
    """A solution by a factor of half the precision.

    Attributes
    ----------
    x : GpuRef
        Of the precision of A and B.
    iterations : int
        Corrections that were added; of a batch, the most.
    fell_back : bool
        Whether these did not suffice, so that X is that of a factor in full precision.

    Examples
    --------
    >>> a, b = device.put(np.array([[4.0, 1.0], [2.0, 3.0]])), device.put(np.array([1.0, 2.0]))
    >>> found = device.solver.solve_refined(a, b)
    >>> found.x.numpy().round(12), found.fell_back
    (array([0.1, 0.6]), False)
    """

    x: GpuRef
    iterations: int
    fell_back: bool


def _in_one_message(solver: Any, a: GpuRef, b: GpuRef, iterations: int, factor: str) -> RefinedResult:
    """Solve by factors of less than half the precision, and wait for the numbers of iterations."""
    most = as_integer("iterations", iterations, 1, MOST_ITERATIONS)
    x, taken = solver.tell(RefinementRequest(a=a, b=b, factor=factor, iterations=most))
    counts = taken.numpy()
    fell_back = bool((counts < 0).any())
    return RefinedResult(x, most if fell_back else int(counts.max(initial=0)), fell_back)


def solve_refined(solver: Any, a: GpuRef, b: GpuRef, iterations: int, factor: str) -> RefinedResult:
    """Solve, and wait for each residual."""
    check_choice("factor", factor, FACTORS)
    SolverRequest(routine="solve", a=a, b=b).lowering()  # refuses what `solve` does
    most = as_integer("iterations", iterations, 0, MOST_ITERATIONS)
    if str(a.dtype) not in NARROW:
        raise InvalidRequest(f"a has dtype {a.dtype}; solve_refined takes {', '.join(NARROW)}: others have no half")
    if factor != "float32":
        return _in_one_message(solver, a, b, iterations, factor)
    device, narrow, vector = solver.device, NARROW[str(a.dtype)], b.ndim == 1
    if not a.size or not b.size:
        return RefinedResult(solver.solve(a, b), 0, False)
    run, reduce = device.elementwise.run, device.elementwise.reduce
    columns = b[:, None] if vector else b
    n, eps = a.shape[-1], float(np.finfo(real_of(a.dtype)).eps)
    rows = reduce("sum", run("abs(a)", a=a), a.ndim - 1)
    norm = reduce("max", rows, rows.ndim - 1)[..., None]
    lu, pivots, _ = solver.lu_factor(device.copy(a, dtype=narrow), check=False)

    def correction(residual: GpuRef) -> GpuRef:
        found = solver.lu_solve(lu, pivots, device.copy(residual, dtype=narrow))
        made: GpuRef = device.copy(found, dtype=a.dtype)
        return made

    x = correction(columns)
    for iteration in range(most + 1):
        residual = run("b - p", b=columns, p=device.blas_lt.matmul(a, x))
        of_r, of_x = (reduce("max", run("abs(v)", v=v), v.ndim - 2) for v in (residual, x))
        within = run("r <= x * a * bound", r=of_r, x=of_x, a=norm, bound=eps * float(np.sqrt(n)))
        if bool(reduce("all", within).numpy()):  # waits; a NaN is not within
            return RefinedResult(x[..., 0] if vector else x, iteration, False)
        if iteration < most:
            x = run("x + d", x=x, d=correction(residual))
    return RefinedResult(solver.solve(a, b), most, True)
