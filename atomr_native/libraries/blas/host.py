"""BLAS routines on the host device, by NumPy and SciPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ...builders.context import Built, HostContext
from ...dtypes import as_dtype
from ...errors import InvalidRequest
from ...plans.spec import PlanSpec
from .attributes import BlasAttributes
from .spec import own_axes

__all__ = ["build_blas"]

#: Routines without a factor of what they read besides out.
_UNSCALED: Final = ("scal", "dot", "nrm2")

Array = np.ndarray[Any, Any]
Run = Callable[[tuple[Array, ...], tuple[Any, ...]], None]


def _op(x: Array, transposed: bool, conjugated: bool) -> Array:
    x = x.T if transposed else x
    return x.conj() if conjugated else x


def _triangle(a: Array, lower: bool, unit: bool) -> Array:
    part = np.tril(a) if lower else np.triu(a)
    if unit:
        np.fill_diagonal(part, 1)
    return part


def _solve(how: BlasAttributes, a: Array, out: Array, alpha: Any) -> None:
    from scipy.linalg import get_blas_funcs

    if 0 in out.shape:
        return
    right = how.side == "right"
    trans = {(False, False): 0, (True, False): 1, (True, True): 2}.get((how.trans != right, how.conj))
    matrix = a
    if trans is None:  # conjugation alone
        matrix, trans = a.conj(), 0
    solve = get_blas_funcs("trsm", dtype=out.dtype)  # as a GPU does, it makes infinities of zeros on the diagonal
    b = out.T if right else out
    x = solve(alpha, matrix, b, trans_a=trans, lower=how.lower, diag=how.unit)
    out[...] = x.T if right else x


def _norm(x: Array) -> Any:
    """Return the Euclidean norm, which overflows only where it is too large itself."""
    from scipy.linalg import get_blas_funcs

    return get_blas_funcs("nrm2", dtype=x.dtype)(x) if x.size else 0


def _scale(routine: str, how: BlasAttributes, given: dict[str, Array], beta: Any) -> None:
    """Do what is left of a routine with alpha = 0, which reads no operand that alpha is a factor of: as BLAS."""
    out = given["out"]
    if routine in ("axpy", "ger"):
        return
    if routine == "geam":
        rest = beta * _op(given["b"], how.trans_b, how.conj_b) if beta != 0 else out.dtype.type(0)
    else:
        rest = beta * out if beta != 0 else out.dtype.type(0)
    _store(routine, how, out, rest)


def _store(routine: str, how: BlasAttributes, out: Array, result: Any) -> None:
    if routine == "syrk":
        keep = np.tri(out.shape[0], dtype=bool)
        np.copyto(out, result, where=keep if how.lower else keep.T)
    else:
        np.copyto(out, result)


def _product(how: BlasAttributes, routine: str, given: dict[str, Array], alpha: Any) -> Array:
    a = given["a"]
    if routine == "gemv":
        return np.asarray(alpha * (_op(a, how.trans, how.conj) @ given["x"]))
    if routine == "geam":
        return np.asarray(alpha * _op(a, how.trans, how.conj))
    if routine == "gemm":
        b = _op(given["b"], how.trans_b, how.conj_b)
        return np.asarray(alpha * (_op(a, how.trans, how.conj) @ b))
    if routine == "syrk":
        wide = _op(a, how.trans, False)
        return np.asarray(alpha * (wide @ wide.T))
    if routine == "symm":
        half = _triangle(a, how.lower, False)
        a = half + (np.tril(a, -1) if how.lower else np.triu(a, 1)).T  # the diagonal once, however large it is
    else:
        a = _op(_triangle(a, how.lower, how.unit), how.trans, how.conj)
    b = given["b"]
    return np.asarray(alpha * (a @ b if how.side == "left" else b @ a))


def build_blas(spec: PlanSpec[BlasAttributes], _context: HostContext) -> Built:
    """Return ``run(arrays, scalars)`` for a plan specification of ``blas.*``."""
    routine, batch = spec.op.removeprefix("blas."), spec.attributes.batch
    once = _build(spec)
    if not batch:
        return Built(once)
    axes = [own_axes(routine, o.name) for o in spec.operands]

    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        *reads, out = arrays
        shapes = [(*batch, *x.shape[x.ndim - own :]) for x, own in zip(reads, axes[:-1], strict=True)]
        every = [np.broadcast_to(x, shape) for x, shape in zip(reads, shapes, strict=True)]
        for index in np.ndindex(*batch):
            once((*(x[index] for x in every), out[(*index, ...)]), scalars)

    return Built(run)


def _build(spec: PlanSpec[BlasAttributes]) -> Run:
    """Return the run for one matrix of a batch."""
    routine = spec.op.removeprefix("blas.")
    how = spec.attributes
    names = [o.name for o in spec.operands]
    kind = as_dtype(how.dtype).type

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        given = dict(zip(names, arrays, strict=True))
        out = given["out"]
        alpha, beta = scalars[:2] if len(scalars) == 2 else (
            complex(scalars[0], scalars[2]), complex(scalars[1], scalars[3])
        )  # fmt: skip
        if beta != 0 and not how.adds:
            raise InvalidRequest(f"beta={beta}, but the plan was made with beta=0; allowed: 0")
        alpha, beta = kind(alpha), kind(beta)
        if alpha == 0 and routine not in _UNSCALED:
            _scale(routine, how, given, beta)
        elif routine == "axpy":
            out += alpha * given["x"]
        elif routine == "scal":
            out *= alpha
        elif routine == "dot":
            x = given["x"].conj() if how.conj else given["x"]
            out[...] = np.dot(x, given["y"])
        elif routine == "nrm2":
            out[...] = _norm(given["x"])
        elif routine == "ger":
            out += alpha * np.outer(given["x"], given["y"].conj() if how.conj else given["y"])
        elif routine == "trsm":
            _solve(how, given["a"], out, alpha)
        else:
            result = _product(how, routine, given, alpha)
            if routine == "geam":
                if beta != 0:
                    result = result + beta * _op(given["b"], how.trans_b, how.conj_b)
            elif beta != 0:
                result = result + beta * out
            _store(routine, how, out, result)

    return run
