"""BLAS routines on the host device, by NumPy and SciPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..._blas_spec import own_axes
from ...dtypes import as_dtype
from ...errors import InvalidRequest

__all__ = ["build_blas"]

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


def _solve(spec: dict[str, Any], a: Array, out: Array, alpha: Any) -> None:
    from scipy.linalg import get_blas_funcs

    if 0 in out.shape:
        return
    right = spec["side"] == "right"
    trans = {(False, False): 0, (True, False): 1, (True, True): 2}.get((spec["trans"] != right, spec["conj"]))
    matrix = a
    if trans is None:  # conjugation alone
        matrix, trans = a.conj(), 0
    solve = get_blas_funcs("trsm", dtype=out.dtype)  # as a GPU does, it makes infinities of zeros on the diagonal
    b = out.T if right else out
    x = solve(alpha, matrix, b, trans_a=trans, lower=spec["lower"], diag=spec["unit"])
    out[...] = x.T if right else x


def _norm(x: Array) -> Any:
    """Return the Euclidean norm, which overflows only where it is too large itself."""
    from scipy.linalg import get_blas_funcs

    return get_blas_funcs("nrm2", dtype=x.dtype)(x) if x.size else 0


def _product(spec: dict[str, Any], routine: str, given: dict[str, Array], alpha: Any) -> Array:
    a = given["a"]
    if routine == "gemv":
        return np.asarray(alpha * (_op(a, spec["trans"], spec["conj"]) @ given["x"]))
    if routine == "geam":
        return np.asarray(alpha * _op(a, spec["trans"], spec["conj"]))
    if routine == "gemm":
        b = _op(given["b"], spec["trans_b"], spec["conj_b"])
        return np.asarray(alpha * (_op(a, spec["trans"], spec["conj"]) @ b))
    if routine == "syrk":
        wide = _op(a, spec["trans"], False)
        return np.asarray(alpha * (wide @ wide.T))
    if routine == "symm":
        half = _triangle(a, spec["lower"], False)
        a = half + half.T - np.diag(np.diag(a))
    else:
        a = _op(_triangle(a, spec["lower"], spec["unit"]), spec["trans"], spec["conj"])
    b = given["b"]
    return np.asarray(alpha * (a @ b if spec["side"] == "left" else b @ a))


def build_blas(spec: dict[str, Any]) -> Run:
    """Return ``run(arrays, scalars)`` for a plan specification of ``blas.*``."""
    routine, batch = str(spec["op"]).removeprefix("blas."), tuple(spec["batch"])
    once = _build(spec)
    if not batch:
        return once
    axes = [own_axes(routine, o["name"]) for o in spec["operands"]]

    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        *reads, out = arrays
        shapes = [(*batch, *x.shape[x.ndim - own :]) for x, own in zip(reads, axes[:-1], strict=True)]
        every = [np.broadcast_to(x, shape) for x, shape in zip(reads, shapes, strict=True)]
        for index in np.ndindex(*batch):
            once((*(x[index] for x in every), out[(*index, ...)]), scalars)

    return run


def _build(spec: dict[str, Any]) -> Run:
    """Return the run for one matrix of a batch."""
    routine = str(spec["op"]).removeprefix("blas.")
    names = [o["name"] for o in spec["operands"]]
    kind = as_dtype(spec["dtype"]).type

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        given = dict(zip(names, arrays, strict=True))
        out = given["out"]
        alpha, beta = scalars[:2] if len(scalars) == 2 else (
            complex(scalars[0], scalars[2]), complex(scalars[1], scalars[3])
        )  # fmt: skip
        if beta != 0 and not spec["adds"]:
            raise InvalidRequest(f"beta={beta}, but the plan was made with beta=0; allowed: 0")
        alpha, beta = kind(alpha), kind(beta)
        if routine == "axpy":
            out += alpha * given["x"]
        elif routine == "scal":
            out *= alpha
        elif routine == "dot":
            x = given["x"].conj() if spec["conj"] else given["x"]
            out[...] = np.dot(x, given["y"])
        elif routine == "nrm2":
            out[...] = _norm(given["x"])
        elif routine == "ger":
            out += alpha * np.outer(given["x"], given["y"].conj() if spec["conj"] else given["y"])
        elif routine == "trsm":
            _solve(spec, given["a"], out, alpha)
        else:
            result = _product(spec, routine, given, alpha)
            if routine == "geam":
                if beta != 0:
                    result = result + beta * _op(given["b"], spec["trans_b"], spec["conj_b"])
            elif beta != 0:
                result = result + beta * out
            if routine == "syrk":
                keep = np.tri(out.shape[0], dtype=bool)
                np.copyto(out, result, where=keep if spec["lower"] else keep.T)
            else:
                np.copyto(out, result)

    return run
