"""Whether a step of an expression is a matrix product, and which of its modes are rows, columns and sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .modes import Modes
from .path import Contraction
from .types import EMULATED

__all__ = ["Groups", "first_library", "groups_of", "route_of"]

#: Dtypes of products of cuBLASLt here.
_PRODUCTS: Final = ("float64", "float32", "float16", "bfloat16", "complex64", "complex128")
#: Multiplications below which a kernel of one launch is as fast as a call of cuBLASLt, with its copies.
_LEAST: Final = 1 << 12
#: Extents of M, N and K below which products are bound by memory, and a kernel reads operands in place.
_NARROWEST: Final = 2


#: Multiplications for each element that cuBLASLt would need to have copied, from which on it takes less time with the
#: copies than cuTENSOR without, by dtype.  On an H100 a float64 product of 4096 x 4096 x 4096 takes 2.2 ms, a copy 0.1,
#: and cuTENSOR (2.8) 2.4 to 2.9, by the order of modes; of other dtypes it takes less than copies and product.
_WORTH_COPIES: Final = {"float64": 1 << 10}


def first_library(dtype: str, products: int, copied: int) -> str:
    """Return the library that is asked first for a product.

    Parameters
    ----------
    dtype : str
    products : int
        Its multiplications.
    copied : int
        Elements of tensors that cuBLASLt would need copies of.
    """
    least = _WORTH_COPIES.get(dtype, math.inf)
    return "cutensor" if copied and products < least * copied else "blas_lt"


@dataclass(frozen=True, slots=True)
class Groups:
    """Modes of a product ``(batch, m, k) @ (batch, k, n)``, and those that only one operand has, and sums over."""

    batch: Modes
    m: Modes
    n: Modes
    k: Modes
    alone: tuple[Modes, Modes]


def groups_of(step: Contraction) -> Groups | None:
    """Return the groups of modes of a step with two operands, or None of another."""
    if len(step.inputs) != 2:
        return None
    a, b = (tuple(dict.fromkeys(modes)) for modes in step.inputs)
    output = step.output
    return Groups(
        tuple(m for m in a if m in b and m in output),
        tuple(m for m in a if m not in b and m in output),
        tuple(m for m in b if m not in a and m in output),
        tuple(m for m in a if m in b and m not in output),
        (
            tuple(m for m in a if m not in b and m not in output),
            tuple(m for m in b if m not in a and m not in output),
        ),
    )


def route_of(step: Contraction, extents: Sequence[int], dtype: str, wanted: str = "auto", compute: str = "") -> str:
    """Return how a GPU computes a step: ``"blas_lt"``, ``"cutensor"``, ``"cutlass"`` or ``"kernel"``.

    Products whose rows, columns or sums have one element are bound by memory, and tiny ones by their launches: a kernel
    does them.  A caller's wish counts where there is a choice.  With ``"auto"`` a product for which cuBLASLt needs
    copies of tensors is cuTENSOR's where that is installed, see `first_library`.
    """
    groups = groups_of(step)
    if groups is None or dtype not in _PRODUCTS or wanted == "kernel":
        return "kernel"
    m, n, k, batch = (math.prod(extents[i] for i in modes) for modes in (groups.m, groups.n, groups.k, groups.batch))
    if 0 in (m, n, k, batch):
        return "kernel"
    if wanted == "cutensor" or compute in EMULATED:
        return "cutensor"
    if wanted in ("blas_lt", "cutlass"):
        return wanted
    if min(m, n, k) < _NARROWEST or m * n * k * batch < _LEAST:
        return "kernel"
    return "blas_lt"
