"""The solver's routines on the host device, by LAPACK as SciPy has it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

from ...builders.context import Built, HostContext
from ...errors import FactorizationError, NotPositiveDefinite, SingularMatrix
from ...plans.spec import PlanSpec
from . import host_indefinite as indefinite
from .attributes import SolverAttributes
from .spec import INDEFINITE, ROUTINES

__all__ = ["build_solver", "scaled_product"]

Array = np.ndarray[Any, Any]
#: One matrix of each operand, to its info number.
Once = Callable[[dict[str, Array]], int]

#: Axes of operands that are not those of batches; of others 2.
_AXES: Final = {"pivots": 1, "pivots_out": 1, "log_out": 0, "info": 0}


@cache
def _lapack(name: str, dtype: str) -> Any:
    from scipy.linalg import get_lapack_funcs

    return get_lapack_funcs(name, dtype=np.dtype(dtype))


def _normalised(values: Array, exponents: Array) -> tuple[Array, Array]:
    """Return numbers near 1 in magnitude, and their powers of two; zeros and what is not finite stay as they are."""
    parts = np.maximum(abs(values.real), abs(values.imag)) if values.dtype.kind == "c" else values
    found = np.frexp(parts)[1].astype(np.int64)
    if values.dtype.kind != "c":
        return np.ldexp(values, -found), exponents + found
    made = np.empty_like(values)
    made.real, made.imag = np.ldexp(values.real, -found), np.ldexp(values.imag, -found)
    return made, exponents + found


def scaled_product(values: Array) -> tuple[complex, int]:
    """Return a number near 1 in magnitude and a power of two, whose product is that of all values."""
    wide = values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)
    found, exponents = _normalised(wide, np.zeros(wide.shape, np.int64))
    while found.size > 1:
        if found.size % 2:
            found, exponents = np.append(found, 1), np.append(exponents, 0)
        found, exponents = _normalised(found[::2] * found[1::2], exponents[::2] + exponents[1::2])
    return (found[0], int(exponents[0])) if found.size else (1.0, 0)


class _Matrix:
    """The routines for one matrix of a batch."""

    def __init__(self, how: SolverAttributes) -> None:
        self.how = how

    def _call(self, name: str, *arguments: Any, **options: Any) -> Any:
        return _lapack(name, self.how.dtype)(*arguments, **options)

    def cholesky(self, at: dict[str, Array]) -> int:
        found, info = self._call("potrf", at["a"], lower=self.how.lower, clean=1)
        at["out"][...] = found if info == 0 else np.nan
        return int(info)

    def cholesky_solve(self, at: dict[str, Array]) -> int:
        found, info = self._call("potrs", at["a"], at["b"], lower=self.how.lower)
        at["out"][...] = found
        return int(info)

    def lu_factor(self, at: dict[str, Array]) -> int:
        found, pivots, info = self._call("getrf", at["a"])
        at["out"][...] = np.nan if info and self.how.check else found
        at["pivots_out"][...] = pivots
        return int(info)

    def lu_solve(self, at: dict[str, Array]) -> int:
        trans, lone = self._op()
        b = at["b"].conj() if lone else at["b"]
        own = np.arange(len(at["pivots"]), dtype=np.int32)  # for what is no row, which LAPACK would not notice
        pivots = np.where((at["pivots"] >= 0) & (at["pivots"] < len(own)), at["pivots"], own)
        found, info = self._call("getrs", at["a"], pivots, b, trans=trans)
        at["out"][...] = found.conj() if lone else found
        return int(info)

    def _op(self) -> tuple[int, bool]:
        """Return LAPACK's number of op, and whether a conjugation is left, which it does not have alone."""
        if self.how.trans:
            return (2 if self.how.conj else 1), False
        return 0, self.how.conj

    def _factor(self, a: Array) -> tuple[Array, Array | None, int]:
        if self.how.assume == "positive_definite":
            found, info = self._call("potrf", a, lower=self.how.lower, clean=0)
            return found, None, int(info)
        found, pivots, info = self._call("getrf", a)
        return found, pivots, int(info)

    @property
    def _hermitian(self) -> bool:
        return self.how.assume == "hermitian"

    def ldl_factor(self, at: dict[str, Array]) -> int:
        found, pivots, info = indefinite.factor(at["a"], hermitian=self._hermitian, lower=self.how.lower)
        at["out"][...] = np.nan if info and self.how.check else found
        at["pivots_out"][...] = pivots
        return info

    def ldl_solve(self, at: dict[str, Array]) -> int:
        pivots = indefinite.safe_pivots(at["pivots"])
        at["out"][...] = indefinite.solve(np.tril(at["a"]), pivots, at["b"], hermitian=self._hermitian)
        return 0

    def _solve_indefinite(self, at: dict[str, Array]) -> int:
        ldl, pivots, info = indefinite.factor(at["a"], hermitian=self._hermitian, lower=self.how.lower)
        found = np.nan if info else indefinite.solve(ldl, pivots, at["b"], hermitian=self._hermitian)
        at["out"][...] = found
        return info

    def solve(self, at: dict[str, Array]) -> int:
        if self.how.assume in INDEFINITE:
            return self._solve_indefinite(at)
        factor, pivots, info = self._factor(at["a"])
        if info:
            at["out"][...] = np.nan
        elif pivots is None:
            at["out"][...] = self._call("potrs", factor, at["b"], lower=self.how.lower)[0]
        else:
            at["out"][...] = self._call("getrs", factor, pivots, at["b"])[0]
        return info

    def inv(self, at: dict[str, Array]) -> int:
        return self.solve(at | {"b": np.eye(at["a"].shape[0], dtype=self.how.dtype)})

    def _indefinite_determinant(self, a: Array) -> tuple[complex, int, int]:
        ldl, pivots, _ = indefinite.factor(a, hermitian=self._hermitian, lower=self.how.lower)
        values, powers = [], 0
        for at, rows, _row in indefinite.blocks(pivots):
            block = ldl[at : at + rows, at : at + rows].astype(np.complex128)
            if rows == 1:
                values.append(block[0, 0].real if self._hermitian else block[0, 0])
                continue
            power = int(np.frexp(max(abs(block[1, 0].real), abs(block[1, 0].imag)))[1])
            block = np.ldexp(block.real, -power) + 1j * np.ldexp(block.imag, -power)
            (d, _), (e, f) = block
            values.append(d.real * f.real - abs(e) ** 2 if self._hermitian else d * f - e * e)
            powers += 2 * power
        found = np.array(values, np.complex128)
        value, exponent = scaled_product(found if self.how.dtype.startswith("complex") else found.real)
        return value, exponent + powers, 0

    def _determinant(self, at: dict[str, Array]) -> tuple[complex, int, int]:
        if self.how.assume in INDEFINITE and at["a"].size:
            return self._indefinite_determinant(at["a"])
        factor, pivots, info = self._factor(at["a"]) if at["a"].size else (at["a"], None, 0)
        positive = self.how.assume == "positive_definite"
        if info and positive:
            return np.nan, 0, info
        value, exponent = scaled_product(np.diagonal(factor))
        if positive:  # the diagonal of a factor is real
            value, more = np.frexp(abs(value) ** 2)
            return value, 2 * exponent + int(more), 0
        exchanges = 0 if pivots is None else np.count_nonzero(pivots != np.arange(len(pivots)))
        return -value if exchanges % 2 else value, exponent, 0

    def det(self, at: dict[str, Array]) -> int:
        value, exponent, info = self._determinant(at)
        exponent = max(-(2**30), min(2**30, exponent))
        if np.iscomplexobj(value):
            at["out"][...] = complex(np.ldexp(value.real, exponent), np.ldexp(value.imag, exponent))
        else:
            at["out"][...] = np.ldexp(value, exponent)
        return info

    def slogdet(self, at: dict[str, Array]) -> int:
        value, exponent, info = self._determinant(at)
        size = abs(value)
        at["out"][...] = value / size if size != 0 else 0
        at["log_out"][...] = np.log(size) + exponent * np.log(2.0)
        return info

    def solve_triangular(self, at: dict[str, Array]) -> int:
        zeros = np.flatnonzero(np.diagonal(at["a"]) == 0)
        if len(zeros) and not self.how.unit:
            at["out"][...] = np.nan
            return int(zeros[0]) + 1
        trans, lone = self._op()
        b = at["b"].conj() if lone else at["b"]
        found, _ = self._call("trtrs", at["a"], b, lower=self.how.lower, trans=trans, unitdiag=self.how.unit)
        at["out"][...] = found.conj() if lone else found
        return 0

    def inv_triangular(self, at: dict[str, Array]) -> int:
        return self.solve_triangular(at | {"b": np.eye(at["a"].shape[0], dtype=self.how.dtype)})


def build_solver(spec: PlanSpec[SolverAttributes], _context: HostContext) -> Built:
    """Return ``run(arrays, scalars)`` for a plan specification of ``solver.*``."""
    routine, how = spec.op.removeprefix("solver."), spec.attributes
    names = [operand.name for operand in spec.operands]
    once: Once = getattr(_Matrix(how), routine)
    alone = routine in ("det", "slogdet")  # even an empty matrix has a determinant
    wanted = (*ROUTINES[routine].reads, *ROUTINES[routine].writes)
    kind: type[FactorizationError] = NotPositiveDefinite if _positive(routine, how) else SingularMatrix
    raises = how.check and ROUTINES[routine].checks and not (alone and kind is SingularMatrix)

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        given = dict(zip(names, arrays, strict=True))
        whole = {name: _whole(name, given[name], routine, how) for name in wanted}
        info = given.get("info")
        first: tuple[tuple[int, ...], int] | None = None
        count = 0
        for index in np.ndindex(*how.batch):
            at = {name: array[(*index, ...)] for name, array in whole.items()}
            number = once(at) if alone or (at["out"].size and at["a"].size) else 0
            if info is not None:
                info[index] = number
            if number:
                first, count = first or (index, number), count + 1
        if raises and first is not None:
            raise kind(spec.op, first[0], first[1], count)

    return Built(run)


def _positive(routine: str, how: SolverAttributes) -> bool:
    return routine == "cholesky" or how.assume == "positive_definite"


def _whole(name: str, array: Array, routine: str, how: SolverAttributes) -> Array:
    """Return a view of an operand with all axes of the batch, and of a vector as one column."""
    axes = _AXES.get(name, 2)
    if name == "out" and routine in ("det", "slogdet"):
        axes = 0
    elif how.vector and name in ("b", "out"):
        array, axes = array[..., None], 2
    if name in ROUTINES[routine].writes:
        return array
    return np.broadcast_to(array, (*how.batch, *array.shape[array.ndim - axes :]))
