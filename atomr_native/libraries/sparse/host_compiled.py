"""Products with functions that Numba compiles, on the host device."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import numpy as np

from ...builders.context import Built, HostContext
from ...dtypes import as_dtype
from ...plans.spec import PlanSpec
from .attributes import CompiledAttributes
from .host import folded

__all__ = ["build_compiled"]


@functools.lru_cache(maxsize=256)
def _compiled(function: bytes, dtype: str, inputs: int) -> Any:
    from ...compile.numba import compiler

    python = pickle.loads(function)  # noqa: S301 - from the parent
    return compiler.on_processor(python, (dtype,) * inputs, (dtype,))[0]


def build_compiled(spec: PlanSpec[CompiledAttributes], _context: HostContext) -> Built:
    """Return ``run(arrays, scalars)`` for ``sparse.semiring_compiled``.  Waits for Numba's compiler.

    Raises
    ------
    LibraryError
        If a function does not compile.
    """
    how = spec.attributes
    names = [operand.name for operand in spec.operands]
    compute = as_dtype(how.compute)
    pickled = {name: binary.data for name, binary in how.functions}
    multiply, add = (_compiled(pickled[name], how.compute, 2) for name in ("multiply", "add"))
    on_sum = _compiled(pickled["on_sum"], how.compute, 1)

    @np.errstate(all="ignore")
    def run(arrays: tuple[np.ndarray[Any, Any], ...], _scalars: tuple[Any, ...]) -> None:
        at = dict(zip(names, arrays, strict=True))
        folded(how.shape, compute, float.fromhex(how.start), at, multiply, add, on_sum)

    return Built(run)
