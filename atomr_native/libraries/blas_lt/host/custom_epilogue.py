"""Matmuls with an epilogue of the user's on the host device: the product, then the function, compiled by Numba."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from ....arrays.operands import contiguous_strides
from ....builders.blocks import blocks
from ....dtypes import as_dtype
from ....errors import InvalidRequest
from ....plans.spec import PlanSpec
from ..attributes import CustomAttributes, MatmulAttributes

__all__ = ["build_custom"]

Array = np.ndarray[Any, Any]
Run = Callable[[tuple[Array, ...], tuple[Any, ...]], None]

#: Elements of a block, so that its temporaries stay in the second-level cache.
_BLOCK: Final = 1 << 15


@functools.lru_cache(maxsize=256)
def _compiled(function: bytes, arguments: int, results: int, dtype: str) -> tuple[Callable[..., Any], ...]:
    from ....compile.numba import compiler

    python = pickle.loads(function)  # noqa: S301 - from the parent
    return compiler.on_processor(python, (dtype,) * arguments, (dtype,) * results)


def _spread(array: Array, kind: str, shape: tuple[int, ...]) -> Array:
    """Return an operand with D's shape."""
    if kind == "scalar":
        array = array.reshape(())
    elif kind == "row":
        array = array[..., None, :]
    elif kind == "column":
        array = array[..., :, None]
    return np.broadcast_to(array, shape)


def build_custom(
    spec: PlanSpec[MatmulAttributes],
    custom: CustomAttributes,
    build: Callable[[PlanSpec[MatmulAttributes]], Run],
) -> Run:
    """Return the run of ``blas_lt.matmul`` with a custom epilogue; `build` makes that of the product.

    Products are kept in the accumulator's dtype, whole; the function is applied block by block.

    Raises
    ------
    InvalidRequest
        If it comes without its Python function, which the host device needs.
    """
    if custom.function is None:
        raise InvalidRequest(f"{spec.op} with a custom epilogue comes without its function, which the host needs")
    operands, at = spec.operands, {operand.name: i for i, operand in enumerate(spec.operands)}
    kinds = dict(custom.operands)
    acc, out = as_dtype(custom.acc), operands[at["out"]]
    shape = out.shape
    outputs = ["out", *(["aux"] if "aux" in at and "aux" not in kinds else [])]
    functions = _compiled(custom.function.data, 1 + len(kinds), len(outputs), custom.acc)

    places = [i for i, operand in enumerate(operands[: at["out"]]) if operand.name not in kinds]
    inner, added = [operands[i] for i in places], spec.attributes.added
    if added == "out":
        added = "c"
        inner.append(replace(out, name="c"))
        places.append(at["out"])
    inner.append(replace(out, dtype=custom.acc, strides=contiguous_strides(shape, acc.itemsize)))
    attributes = replace(spec.attributes, added=added, custom=None)
    product = build(replace(spec, operands=tuple(inner), attributes=attributes))

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
