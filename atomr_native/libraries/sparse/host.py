"""Sparse products and solves on the host device, by SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._support.traced import evaluate
from ...builders.context import Built, HostContext
from ...dtypes import as_dtype
from ...errors import InvalidRequest
from ...plans.spec import PlanSpec
from .attributes import CombineAttributes, ProductAttributes, SemiringAttributes, SolveAttributes
from .batches import carriers
from .padded import PADDED, padded_places

__all__ = ["build_combine", "build_product", "build_semiring", "build_solve", "each", "folded", "scipy_matrix"]

Array = np.ndarray[Any, Any]


def _check_indices(name: str, array: Array, extent: int) -> None:
    """Refuse indices that SciPy would follow out of its memory."""
    if array.size and (array.min() < 0 or array.max() >= extent):
        bad = array[(array < 0) | (array >= extent)][0]
        raise InvalidRequest(f"{name} has {bad}; allowed: 0 to {extent - 1}; device.sparse.validate finds its place")


def scipy_matrix(form: str, shape: tuple[int, int], at: dict[str, Array], dtype: np.dtype[Any] | None = None) -> Any:
    """Return a sparse array of SciPy over the arrays of a message, whose indices are checked.

    Raises
    ------
    InvalidRequest
        For indices out of range, and for offsets that fall.
    """
    import scipy.sparse

    values = at["values"] if dtype is None else at["values"].astype(dtype, copy=False)
    rows, columns = shape
    if form == "coo":
        _check_indices("rows", at["rows"], rows)
        _check_indices("indices", at["indices"], columns)
        return scipy.sparse.coo_array((values, (at["rows"], at["indices"])), shape=shape)
    if form in PADDED:
        return _from_padded(shape, values, at)
    block = values.shape[1] if form == "bsr" else 1
    offsets, indices = at["offsets"], at["indices"]
    if offsets[0] != 0 or offsets[-1] != len(indices) or (np.diff(offsets) < 0).any():
        raise InvalidRequest(
            f"offsets go from {offsets[0]} to {offsets[-1]}; allowed: from 0 to {len(indices)} without falling; "
            f"device.sparse.validate finds the place"
        )
    _check_indices("indices", indices, (rows if form == "csc" else columns) // block)
    kind = getattr(scipy.sparse, f"{form}_array")
    return kind((values, indices, offsets), shape=shape)


def _from_padded(shape: tuple[int, int], values: Array, at: dict[str, Array]) -> Any:
    import scipy.sparse

    indices, offsets, block = at["indices"], at.get("offsets"), values.shape[1]
    if offsets is not None:
        steps = np.diff(offsets)
        if offsets[0] != 0 or offsets[-1] != indices.size or (steps < 0).any() or (steps % block).any():
            raise InvalidRequest(
                f"offsets go from {offsets[0]} to {offsets[-1]}; allowed: from 0 to {indices.size} in multiples of "
                f"{block} without falling; device.sparse.validate finds the place"
            )
    _check_indices("indices", indices[indices != -1], shape[1] if offsets is not None else shape[1] // block)
    rows, columns, stored = padded_places(shape, indices, offsets, block)
    return scipy.sparse.coo_array((values[stored], (rows[stored], columns[stored])), shape=shape)


def _factor(scalars: tuple[Any, ...], at: dict[str, Array], which: int) -> Any:
    name = ("alpha_at", "beta_at")[which]
    if name in at:
        return at[name].reshape(())[()]
    return scalars[which] if len(scalars) == 2 else complex(scalars[which], scalars[which + 2])


def _op(matrix: Any, trans: bool, conj: bool) -> Any:
    matrix = matrix.T if trans else matrix
    return matrix.conj() if conj else matrix


def build_product(spec: PlanSpec[ProductAttributes], _context: HostContext) -> Built:
    """Return ``run(arrays, scalars)`` for ``sparse.spmv``, ``sparse.spmm`` and ``sparse.sddmm``."""
    how, routine = spec.attributes, spec.op.removeprefix("sparse.")
    names = [operand.name for operand in spec.operands]
    compute = as_dtype(how.compute)

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        at = dict(zip(names, arrays, strict=True))
        alpha, beta = (compute.type(_factor(scalars, at, which)) for which in (0, 1))
        if beta != 0 and not how.adds:
            raise InvalidRequest(f"beta={beta}, but the plan was made with beta=0; allowed: 0")
        matrix, out = scipy_matrix(how.format, how.shape, at, compute), at["out"]
        if routine == "sddmm":
            result = _sampled(matrix, at["x"].astype(compute, copy=False), at["y"].astype(compute, copy=False))
            rest = at["values"].astype(compute, copy=False)
        else:
            result = _op(matrix, how.trans, how.conj) @ at["x"].astype(compute, copy=False)
            rest = out.astype(compute, copy=False)
        result = alpha * result + beta * rest if beta != 0 else alpha * result
        out[...] = result.astype(out.dtype, copy=False)

    return Built(each(spec, run))


def each(spec: PlanSpec[Any], run: Any) -> Any:
    """Return a run for every matrix of a batch."""
    if spec.attributes.batch is None:
        return run
    carries = carriers(spec)

    def every(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        for i in range(spec.attributes.batch):
            run(tuple(a[i, ...] if own else a for a, own in zip(arrays, carries, strict=True)), scalars)

    return every


def _sampled(pattern: Any, x: Array, y: Array) -> Array:
    """Return the elements of ``x @ y`` at the stored places of a matrix, in the order in which they are stored."""
    if pattern.format == "coo":
        rows, columns = pattern.row, pattern.col
    else:
        lines = np.repeat(np.arange(len(pattern.indptr) - 1), np.diff(pattern.indptr))
        rows, columns = (lines, pattern.indices) if pattern.format == "csr" else (pattern.indices, lines)
    found: Array = np.einsum("ij,ij->i", x[rows], y.T[columns])
    return found


def build_combine(spec: PlanSpec[CombineAttributes], _context: HostContext) -> Built:
    """Return ``run(arrays, scalars)`` for ``sparse.product`` and ``sparse.sum``."""
    compute = as_dtype(spec.attributes.compute)

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        a, b, left, right, starts, out = arrays
        if not out.size:
            return
        alpha, beta = (compute.type(_factor(scalars, {}, which)) for which in (0, 1))
        a, b = a.astype(compute, copy=False), b.astype(compute, copy=False)
        if spec.op == "sparse.product":
            result = alpha * np.add.reduceat(a[left] * b[right], starts[:-1])
        else:
            terms = np.zeros(len(left), compute)
            terms[left >= 0] = alpha * a[left[left >= 0]]
            terms[right >= 0] = beta * b[right[right >= 0]]
            result = np.add.reduceat(terms, starts[:-1])
        out[...] = result.astype(out.dtype, copy=False)

    return Built(run)


def folded(
    shape: tuple[int, int], compute: np.dtype[Any], start: float, at: dict[str, Array], multiply: Any, add: Any,
    on_sum: Any,
) -> None:  # fmt: skip
    """Compute a product over other operations: the first elements of all rows, then the second, ...

    The functions take arrays of one shape.
    """
    matrix, x = scipy_matrix("csr", shape, at, compute), at["x"].astype(compute, copy=False)
    x = x if x.ndim == 2 else x[:, None]
    sums = np.full((shape[0], x.shape[1]), start, compute)
    lengths = np.diff(matrix.indptr)
    for k in range(lengths.max(initial=0)):
        rows = np.flatnonzero(lengths > k)
        places = matrix.indptr[rows] + k
        a = np.broadcast_to(matrix.data[places, None], (len(rows), x.shape[1]))
        term = multiply(a, x[matrix.indices[places]])
        sums[rows] = add(sums[rows], np.broadcast_to(term, a.shape))
    out = at["out"] if at["out"].ndim == 2 else at["out"][:, None]
    out[...] = on_sum(sums).astype(out.dtype, copy=False)


def build_semiring(spec: PlanSpec[SemiringAttributes], _context: HostContext) -> Built:
    """Return ``run(arrays, scalars)`` for ``sparse.semiring``."""
    how = spec.attributes
    names = [operand.name for operand in spec.operands]
    compute = as_dtype(how.compute)

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        folded(
            how.shape, compute, float.fromhex(how.start), dict(zip(names, arrays, strict=True)),
            lambda a, x: evaluate(how.multiply, {"a": a, "x": x}),
            lambda s, t: evaluate(how.add, {"s": s, "t": t}),
            lambda s: evaluate(how.on_sum, {"s": s}),
        )  # fmt: skip

    return Built(run)


def build_solve(spec: PlanSpec[SolveAttributes], _context: HostContext) -> Built:
    """Return ``run(arrays, scalars)`` for ``sparse.solve``."""
    how = spec.attributes
    names = [operand.name for operand in spec.operands]
    kind = as_dtype(how.dtype).type

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        at = dict(zip(names, arrays, strict=True))
        alpha = kind(complex(*scalars) if len(scalars) == 2 else scalars[0])
        matrix = _op(scipy_matrix(how.format, (how.n, how.n), at), how.trans, how.conj).tocsr()
        lower = how.lower != how.trans  # of op(A)
        _substitute(matrix, lower, how.unit, alpha * at["b"], at["out"])

    return Built(each(spec, run))


def _substitute(a: Any, lower: bool, unit: bool, b: Array, out: Array) -> None:
    """Solve row by row, which gives infinities for zeros on the diagonal where SciPy's solver would refuse."""
    n = len(b)
    x = np.empty_like(b)
    for i in range(n) if lower else range(n - 1, -1, -1):
        part = slice(a.indptr[i], a.indptr[i + 1])
        columns, values = a.indices[part], a.data[part]
        known = columns < i if lower else columns > i
        rest = b[i] - values[known] @ x[columns[known]]
        x[i] = rest if unit else rest / values[columns == i].sum()
    out[...] = x
