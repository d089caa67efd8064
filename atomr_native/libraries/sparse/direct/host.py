"""Direct solvers on the host device: SuperLU, by SciPy.

SciPy frees the memory of factors only in the thread that made them (its ``SuperLUGlobal`` keeps a table a thread):
elsewhere their last reference leaks them.  So one thread makes factors, solves by them and drops them.
"""

from __future__ import annotations

import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final

import numpy as np

from ....builders.context import Built, HostContext
from ....errors import NotPositiveDefinite, SingularMatrix
from ....plans.spec import PlanSpec
from ..attributes import DirectAttributes

__all__ = ["build_direct"]

Array = np.ndarray[Any, Any]
#: Up to this many rows it is looked up which pivot is 0.
_DENSE: Final = 2000


class _Solver:
    """The factors of a solver's matrices; its phases keep it alive."""

    def __init__(self) -> None:
        self.factors: list[Any] = []
        weakref.finalize(self, _drop, self.factors).atexit = False


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "superlu")


def _drop(factors: list[Any]) -> None:
    _thread().submit(factors.clear)


_solvers: weakref.WeakValueDictionary[int, _Solver] = weakref.WeakValueDictionary()


def _matrix(how: DirectAttributes, offsets: Array, indices: Array, values: Array) -> Any:
    import scipy.sparse

    shape = (how.n, how.n)
    given = scipy.sparse.csr_array((values, indices, offsets), shape=shape)
    if how.triangle == "full":
        return given.tocsc()
    part = (scipy.sparse.tril if how.triangle == "lower" else scipy.sparse.triu)(given)
    other = part.T if how.kind == "symmetric" else part.conj().T
    return (part + other - scipy.sparse.diags_array(part.diagonal())).tocsc()


def _zero_pivot(matrix: Any) -> int:
    import scipy.linalg

    n = matrix.shape[0]
    if n > _DENSE:
        return int(n)
    zeros = np.flatnonzero(np.diag(scipy.linalg.lu_factor(matrix.toarray(), check_finite=False)[0]) == 0)
    return int(zeros[0]) + 1 if zeros.size else int(n)


def _factored(how: DirectAttributes, matrix: Any, index: tuple[int, ...]) -> Any:
    from scipy.sparse.linalg import splu

    positive = how.kind == "positive"
    options: dict[str, Any] = {"SymmetricMode": True} if positive else {}
    pivots = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0} if positive else {}
    try:
        found = splu(matrix, options=options, **pivots)
    except RuntimeError:
        error = NotPositiveDefinite if positive else SingularMatrix
        raise error("sparse.direct", index, _zero_pivot(matrix), 1) from None
    if positive and how.check:
        bad, moved = np.flatnonzero(~(found.U.diagonal().real > 0)), (found.perm_r != found.perm_c).any()
        if bad.size or moved:
            del found  # the error is looked at in other threads
            raise NotPositiveDefinite("sparse.direct", index, int(bad[0]) + 1 if bad.size else how.n, 1)
    return found


def build_direct(spec: PlanSpec[DirectAttributes], _context: HostContext) -> Built:
    """Return ``run(arrays, scalars)`` for ``sparse.direct``."""
    how = spec.attributes
    solver = _solvers.get(how.number)
    if solver is None:
        solver = _solvers[how.number] = _Solver()

    def factor(offsets: Array, indices: Array, values: Array) -> None:
        solver.factors.clear()
        each = values if how.batch is not None else values[None]
        for i, one in enumerate(each):
            index = (i,) if how.batch is not None else ()
            solver.factors.append(_factored(how, _matrix(how, offsets, indices, one), index))

    @np.errstate(all="ignore")
    def solve(arrays: tuple[Array, ...]) -> None:
        if how.phase != "solve" or not solver.factors:  # a new worker has none
            factor(*arrays[:3])
        if how.phase == "solve":
            b, x = arrays[5:]
            sides = b if how.batch is not None else b[None]
            made = np.stack(
                [lu.solve(np.asfortranarray(side.T)).T for lu, side in zip(solver.factors, sides, strict=True)]
            )
            x[...] = made if how.batch is not None else made[0]

    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        if how.phase == "analyse":
            arrays[-1][...] = 0
            return
        _thread().submit(solve, arrays).result()

    return Built(run)
