"""Products with epilogue trees on the host device: NumPy's product, then the tree, block by block."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ...builders.blocks import blocks
from ...builders.context import Built, HostContext
from ...dtypes import as_dtype
from ...errors import InvalidRequest
from ...plans.spec import PlanSpec
from .attributes import GemmAttributes
from .functors import FUNCTIONS

__all__ = ["build_gemm", "evaluation", "product_of"]

Array = np.ndarray[Any, Any]

#: Elements of a block, so that its temporaries stay in the second-level cache.
_BLOCK: Final = 1 << 15


@functools.lru_cache(maxsize=256)
def _compiled(function: bytes, arguments: int, dtype: str) -> Callable[..., Any]:
    from ...compile.numba import compiler

    python = pickle.loads(function)  # noqa: S301 - from the parent
    return compiler.on_processor(python, (dtype,) * arguments, (dtype,))[0]


def product_of(a: Array, b: Array, mode: str) -> Array:
    """Return the product in the accumulator's dtype.

    Sums of int8 products are exact in float64, whose products BLAS makes; like a GPU's they wrap around in int32.
    """
    made: Array
    if mode == "int32":
        wide: Array = np.matmul(a.astype(np.float64), b.astype(np.float64))
        made = wide.astype(np.int64).astype(np.int32)
        return made
    acc = np.float64 if mode == "float64" else np.float32
    made = np.matmul(a.astype(acc, copy=False), b.astype(acc, copy=False))
    return made


def _narrowed(value: Array, dtype: np.dtype[Any]) -> Array:
    """Return numbers in the dtype of an output; integers are rounded to even and saturate."""
    if dtype.kind != "i" or value.dtype.kind == "i":
        return value.astype(dtype, copy=False)
    info = np.iinfo(dtype)
    whole = np.nan_to_num(np.rint(value.astype(np.float64)), nan=0.0)
    made: Array = np.clip(whole, info.min, info.max).astype(dtype)
    return made


def build_gemm(spec: PlanSpec[GemmAttributes], _context: HostContext) -> Built:
    """Return ``run(arrays, scalars)`` for ``cutlass.gemm``.

    Raises
    ------
    InvalidRequest
        If it comes without its Python functions.
    """
    how = spec.attributes

    def product(at: dict[str, Array]) -> Array:
        a, b = at["a"], at["b"]
        if b.dtype.itemsize < a.dtype.itemsize:  # it is converted, and scaled, in a's dtype
            b = b.astype(a.dtype)
            if "b_scale" in at:
                scale = at["b_scale"]
                b = b * np.repeat(scale, b.shape[-2] // scale.shape[-2], axis=-2)
        return product_of(a, b, how.mode)

    return evaluation(spec, product)


def evaluation(spec: PlanSpec[GemmAttributes], product_in: Callable[[dict[str, Array]], Array]) -> Built:
    """Return ``run(arrays, scalars)``, which evaluates a plan's tree.

    Parameters
    ----------
    spec : PlanSpec
    product_in : function
        Returns the product in the accumulator's dtype, of the arrays by name, which it may replace by others; ``"out"``
        has the shape of D.

    Raises
    ------
    InvalidRequest
        If it comes without its Python functions.
    """
    how = spec.attributes
    names = [operand.name for operand in spec.operands]
    compute = as_dtype(how.compute)
    kind = compute.type
    if how.mode == "int32" and how.nodes == (("acc",),):
        compute = np.dtype(np.int32)
    wanted = {int(node[1]): len(node) - 2 for node in how.nodes if node[0] == "function"}
    if len(how.functions) != len(wanted):
        raise InvalidRequest(f"{spec.op} comes with {len(how.functions)} functions, and its tree has {len(wanted)}")
    functions = [_compiled(one.data, wanted[at], how.compute) for at, one in enumerate(how.functions)]

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        at = dict(zip(names, arrays, strict=True))
        numbers = dict(zip(how.scalars, map(kind, scalars), strict=True))
        made = product_in(at)
        shape = at["out"].shape
        product = np.broadcast_to(made, shape)
        at["c"] = at["out"] if how.in_place else at.get("c", product)
        spread = {
            node[1]: np.broadcast_to(at[str(node[1])], shape)
            for node in how.nodes
            if node[0] == "name" and node[1] not in numbers
        }
        whole = {str(node[1]): np.empty(shape, compute) for node in how.nodes if node[0] == "reduce"}
        for index in blocks(shape[:-1], max(1, _BLOCK // max(shape[-1], 1))):
            values: list[Any] = []
            for op, *rest in how.nodes:
                if op == "acc":
                    value = product[index].astype(compute, copy=False)
                elif op == "number":
                    value = kind(float.fromhex(str(rest[0])))
                elif op == "name":
                    found = numbers.get(str(rest[0]))
                    value = spread[rest[0]][index].astype(compute) if found is None else found
                elif op == "reduce":
                    value = values[int(rest[1])]
                    whole[str(rest[0])][index] = value
                elif op == "store":
                    value = values[int(rest[1])]
                    at[str(rest[0])][index] = _narrowed(np.asarray(value), at[str(rest[0])].dtype)
                else:
                    function = functions[int(rest[0])] if op == "function" else FUNCTIONS[str(rest[0])]
                    value = function(*(values[int(one)] for one in rest[1:]))
                values.append(value)
            at["out"][index] = _narrowed(np.asarray(values[-1]), at["out"].dtype)
        for _, name, _, reduction, axis in (node for node in how.nodes if node[0] == "reduce"):
            axes = {0: -2, 1: -1}.get(int(axis), (-2, -1))
            value = whole[str(name)]
            if reduction == "sum":
                at[str(name)][...] = value.sum(axes, dtype=np.float64).reshape(at[str(name)].shape)
            else:
                at[str(name)][...] = value.max(axes, initial=-np.inf).reshape(at[str(name)].shape)

    return Built(run)
