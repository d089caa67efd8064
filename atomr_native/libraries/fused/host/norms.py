"""RMS norm and layer norm on the host device, by NumPy, with sums in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....builders.context import Built, HostContext
from ....plans.spec import PlanSpec
from ..attributes import NormAttributes
from .activations import computed, real_of

__all__ = ["build_norm", "build_norm_backward"]

Array = np.ndarray[Any, Any]
Run = Callable[[tuple[Array, ...], tuple[Any, ...]], None]

_BLOCK = 1 << 16  # elements whose temporaries stay in the cache


def _mean(x: Array) -> Array:
    """Return means of rows, rounded to the dtype of the arithmetic."""
    return np.asarray(np.mean(x, axis=-1, keepdims=True, dtype=np.float64), x.dtype)


def _blocks(x: Array) -> list[slice]:
    step = max(1, _BLOCK // max(1, x.shape[1]))
    return [slice(i, i + step) for i in range(0, x.shape[0], step)]


def _rows(x: Array) -> Array:
    """Return an array as rows; always a view, since its leading axes fold."""
    return x.reshape(int(np.prod(x.shape[:-1])), x.shape[-1])


def _scale(x: Array, eps: float) -> Array:
    real = real_of(x.dtype)
    return np.asarray(real(1) / np.sqrt(_mean(x * x) + real(eps)), real)


def build_norm(spec: PlanSpec[NormAttributes], _context: HostContext) -> Built:
    """Return the run of ``fused.norm``: operands x, residual, weight, bias, out, residual_out, scalar eps."""
    names = [operand.name for operand in spec.operands]

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        given = dict(zip(names, arrays, strict=True))
        if given["x"].size == 0:
            return
        rows = {name: _rows(a) for name, a in given.items() if name not in ("weight", "bias")}
        weight, bias = computed(given["weight"]), given.get("bias")
        for index in _blocks(rows["x"]):
            x = computed(rows["x"][index])
            if "residual" in rows:
                rows["residual_out"][index] = x + computed(rows["residual"][index])
                x = computed(rows["residual_out"][index])
            x = x - _mean(x) if spec.attributes.layer else x
            found = x * _scale(x, scalars[0]) * weight
            rows["out"][index] = found if bias is None else found + computed(bias)

    return Built(run)


def build_norm_backward(spec: PlanSpec[NormAttributes], _context: HostContext) -> Built:
    """Return the run of ``fused.norm_backward``: see `atomr_native.libraries.fused.norms`; scalar eps."""
    names = [operand.name for operand in spec.operands]

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        given = dict(zip(names, arrays, strict=True))
        of_weight = np.zeros(given["weight"].shape, np.float64)
        of_bias = np.zeros(given["weight"].shape, np.float64)
        weight = computed(given["weight"])
        if given["x"].size:
            rows = {name: _rows(given[name]) for name in ("dy", "x", "residual", "out") if name in given}
            for index in _blocks(rows["x"]):
                dy, x = computed(rows["dy"][index]), computed(rows["x"][index])
                x = x - _mean(x) if spec.attributes.layer else x
                scale = _scale(x, scalars[0])
                d = dy * weight
                along = _mean(d * x) * scale * scale
                across = _mean(d) if spec.attributes.layer else d.dtype.type(0)
                dx = (d - across - x * along) * scale
                of_weight += np.sum(dy * (x * scale), axis=0, dtype=np.float64)
                of_bias += np.sum(dy, axis=0, dtype=np.float64)
                rows["out"][index] = dx + computed(rows["residual"][index]) if "residual" in rows else dx
        given["weight_out"][...] = of_weight
        if "bias_out" in given:
            given["bias_out"][...] = of_bias

    return Built(run)
