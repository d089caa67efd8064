"""Matmuls with an epilogue of the user's on the host device: the product, then the function, compiled by Numba."""

from __future__ import annotations

import base64
import functools
import pickle
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ..._operands import contiguous_strides
from ...dtypes import as_dtype
from ._blocks import blocks

__all__ = ["build_custom"]

Array = np.ndarray[Any, Any]
Run = Callable[[tuple[Array, ...], tuple[Any, ...]], None]

#: Elements of a block, so that its temporaries stay in the second-level cache.
_BLOCK: Final = 1 << 15


@functools.lru_cache(maxsize=256)
def _compiled(function: str, arguments: int, results: int, dtype: str) -> tuple[Callable[..., Any], ...]:
    from ... import _numba_compile

    python = pickle.loads(base64.b64decode(function))  # noqa: S301 - from the parent
    return _numba_compile.on_processor(python, arguments, results, dtype)


def _spread(array: Array, kind: str, shape: tuple[int, ...]) -> Array:
    """Return an operand with D's shape."""
    if kind == "scalar":
        array = array.reshape(())
    elif kind == "row":
        array = array[..., None, :]
    elif kind == "column":
        array = array[..., :, None]
    return np.broadcast_to(array, shape)


def build_custom(spec: dict[str, Any], build: Callable[[dict[str, Any]], Run]) -> Run:
    """Return the run of ``blas_lt.matmul`` with a custom epilogue; `build` makes that of the product.

    Products are kept in the accumulator's dtype, whole; the function is applied block by block.
    """
    custom, operands = dict(spec["custom"]), spec["operands"]
    at = {operand["name"]: i for i, operand in enumerate(operands)}
    kinds = dict(custom["operands"])
    acc, shape = as_dtype(custom["acc"]), tuple(operands[at["out"]]["shape"])
    outputs = ["out", *(["aux"] if "aux" in at and "aux" not in kinds else [])]
    functions = _compiled(spec["function"], 1 + len(kinds), len(outputs), custom["acc"])

    inner, places, added = [], [], spec["added"]
    for i, operand in enumerate(operands[: at["out"]]):
        if operand["name"] not in kinds:
            inner.append(operand)
            places.append(i)
    if added == "out":
        added = "c"
        inner.append({**operands[at["out"]], "name": "c"})
        places.append(at["out"])
    strides = list(contiguous_strides(shape, acc.itemsize))
    inner.append({"name": "out", "dtype": custom["acc"], "shape": list(shape), "strides": strides})
    bare = {name: value for name, value in spec.items() if name not in ("custom", "function")}
    product = build({**bare, "operands": inner, "added": added})

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        x = np.empty(shape, acc)
        product((*(arrays[i] for i in places), x), scalars)
        spread = [_spread(arrays[at[name]], kind, shape) for name, kind in kinds.items()]
        for index in blocks(shape[:-1], max(1, _BLOCK // max(shape[-1], 1))):
            values = [x[index], *(one[index].astype(acc) for one in spread)]
            made = [function(*values) for function in functions]
            for name, value in zip(outputs, made, strict=True):
                arrays[at[name]][index] = value.astype(arrays[at[name]].dtype)
        if "bias_grad" in at:
            arrays[at["bias_grad"]][...] = np.add.reduce(arrays[at["out"]], axis=-2, dtype=np.float64)

    return run
