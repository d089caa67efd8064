"""AdamW and SGD with momentum on the host device, by NumPy: each step rounded as the kernels do it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ....builders.context import Built, HostContext
from ....plans.spec import PlanSpec
from ..attributes import AdamWListAttributes, SgdAttributes, SgdListAttributes, ShippedAttributes

__all__ = ["build_adamw", "build_adamw_list", "build_sgd", "build_sgd_list"]

Array = np.ndarray[Any, Any]
Run = Callable[[tuple[Array, ...], tuple[Any, ...]], None]

_BLOCK: Final = 1 << 16  # elements whose temporaries stay in the cache
_F4: Final = np.float32


def _blocks(arrays: tuple[Array, ...]) -> list[list[Array]]:
    """Return blocks of all arrays, which are contiguous."""
    flat = [array.reshape(-1) for array in arrays]
    return [[array[i : i + _BLOCK] for array in flat] for i in range(0, flat[0].size, _BLOCK)]


def _gradient(g: Array) -> Array:
    return g.astype(_F4, copy=False)


def _each(step: Run, arrays: int, masters: tuple[bool, ...]) -> Built:
    """Return the run of a list: steps of one parameter after the other, of so many arrays and master weights."""
    counts = [arrays + master for master in masters]
    starts = [sum(counts[:i]) for i in range(len(counts))]

    def run(operands: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        for start, count in zip(starts, counts, strict=True):
            step(operands[start : start + count], scalars)

    return Built(run)


def build_adamw(_spec: PlanSpec[ShippedAttributes], _context: HostContext) -> Built:
    """Return the run of ``fused.adamw``: grad, param, m, v, master; lr, beta1, beta2, eps, weight_decay, step."""
    return Built(_adamw())


def build_adamw_list(spec: PlanSpec[AdamWListAttributes], _context: HostContext) -> Built:
    """Return the run of ``fused.adamw_list``: the operands of ``fused.adamw`` for each parameter, and its scalars."""
    return _each(_adamw(), 4, spec.attributes.masters)


def _adamw() -> Run:
    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        lr, beta1, beta2, eps, decay, step = scalars
        rate = _F4(lr / (1.0 - math.pow(beta1, float(step))))
        correct = _F4(1.0 / math.sqrt(1.0 - math.pow(beta2, float(step))))
        for grad, param, m, v, *master in _blocks(arrays):
            g, weights = _gradient(grad), master[0] if master else param
            m[...] = _F4(beta1) * m + _F4(1.0 - beta1) * g
            v[...] = _F4(beta2) * v + _F4(1.0 - beta2) * (g * g)
            size = np.sqrt(v) * correct + _F4(eps)
            weights[...] = weights - _F4(lr * decay) * weights - rate * (m / size)
            if master:
                param[...] = weights

    return run


def build_sgd(spec: PlanSpec[SgdAttributes], _context: HostContext) -> Built:
    """Return the run of ``fused.sgd``: operands grad, param, m, master; scalars lr, momentum, weight_decay."""
    return Built(_sgd(spec.attributes.nesterov))


def build_sgd_list(spec: PlanSpec[SgdListAttributes], _context: HostContext) -> Built:
    """Return the run of ``fused.sgd_list``: the operands of ``fused.sgd`` for each parameter, and its scalars."""
    return _each(_sgd(spec.attributes.nesterov), 3, spec.attributes.masters)


def _sgd(nesterov: bool) -> Run:
    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        lr, momentum, decay = scalars
        for grad, param, m, *master in _blocks(arrays):
            g, weights = _gradient(grad), master[0] if master else param
            m[...] = _F4(momentum) * m + g
            d = _F4(momentum) * m + g if nesterov else m
            weights[...] = weights - _F4(lr * decay) * weights - _F4(lr) * d
            if master:
                param[...] = weights

    return run
