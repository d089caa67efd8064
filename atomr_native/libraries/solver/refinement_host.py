"""Refined solves on the host device: factors of rounded matrices in float32, and residuals in float64."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ...builders.context import Built, HostContext
from ...dtypes import DTYPES
from ...errors import SingularMatrix
from ...plans.spec import PlanSpec
from .attributes import RefinementAttributes
from .refinement_request import NARROW

__all__ = ["build_refinement", "rounded"]

Array = np.ndarray[Any, Any]
#: Bits that float32 has and tf32 has not.
_TF32_LOST: Final = 13


@np.errstate(all="ignore")
def rounded(a: Array, precision: str) -> Array:
    """Return float32, or complex64, with a matrix's values in a precision; infinite where they are beyond it."""
    if a.dtype.kind == "c":
        made = np.empty(a.shape, np.complex64)
        made.real, made.imag = rounded(a.real, precision), rounded(a.imag, precision)
        return made
    narrow = a.astype(np.float32)
    if precision == "tf32":
        bits = narrow.view(np.uint32)
        odd = (bits >> _TF32_LOST) & 1  # ties to even
        near = (bits + odd + np.uint32((1 << _TF32_LOST - 1) - 1)) & np.uint32(~((1 << _TF32_LOST) - 1) & 0xFFFFFFFF)
        return np.where(np.isfinite(narrow), near.view(np.float32), narrow)
    return narrow if precision == "float32" else narrow.astype(DTYPES[precision]).astype(np.float32)


def _refined(a: Array, b: Array, how: RefinementAttributes) -> tuple[Array, int, int]:
    """Return X, the corrections or a negative number, and info."""
    from scipy.linalg import get_lapack_funcs

    if np.isnan(a).any():  # no matter what LAPACK makes of it
        return np.full_like(b, np.nan), 0, 0
    n, narrow = len(a), NARROW[how.dtype]
    factor, apply = get_lapack_funcs(("getrf", "getrs"), dtype=np.dtype(narrow))
    low = rounded(a, how.factor)
    lu, pivots, info = factor(low) if np.isfinite(low).all() else (low, None, 1)
    x, norm = np.zeros_like(b), abs(a).sum(1).max()
    for turn in range(how.iterations + 1 if info == 0 else 0):
        residual = b - a @ x
        within = abs(residual).max(0) <= abs(x).max(0) * norm * np.finfo(a.dtype).eps * np.sqrt(n)
        if turn and within.all():
            return x, turn - 1, 0
        found, _ = apply(lu, pivots, residual.astype(narrow))
        x = x + found
        if not np.isfinite(x).all():
            break
    factor, apply = get_lapack_funcs(("getrf", "getrs"), dtype=a.dtype)
    lu, pivots, info = factor(a)
    return (np.full_like(b, np.nan) if info else apply(lu, pivots, b)[0]), -how.iterations, int(info)


def build_refinement(spec: PlanSpec[RefinementAttributes], _context: HostContext) -> Built:
    """Return ``run(arrays, scalars)`` for a plan specification of a refined solve."""
    how = spec.attributes
    names = [operand.name for operand in spec.operands]

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        at = dict(zip(names, arrays, strict=True))
        b, out = (at[name][..., None] if how.vector else at[name] for name in ("b", "out"))
        a = np.broadcast_to(at["a"], (*how.batch, *at["a"].shape[-2:]))
        b = np.broadcast_to(b, (*how.batch, *b.shape[-2:]))
        first: tuple[tuple[int, ...], int] | None = None
        count = 0
        for index in np.ndindex(*how.batch):
            taken, number = 0, 0
            if a.size and out.size:
                out[index], taken, number = _refined(a[index], b[index], how)
            at["iterations_out"][index] = taken
            if "info" in at:
                at["info"][index] = number
            if number:
                first, count = first or (index, number), count + 1
        if how.check and first is not None:
            raise SingularMatrix(spec.op, first[0], first[1], count)

    return Built(run)
