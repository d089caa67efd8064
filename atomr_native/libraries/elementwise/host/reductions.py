"""Reductions and softmax cross entropy on the host device."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....builders.blocks import blocks
from ....builders.context import Built, HostContext
from ....dtypes import as_dtype
from ....errors import InvalidRequest
from ....plans.spec import PlanSpec
from ..attributes import LossAttributes, ReduceAttributes

__all__ = ["build_reduce", "build_softmax_cross_entropy"]

Array = np.ndarray[Any, Any]
Run = Callable[[tuple[Array, ...], tuple[Any, ...]], None]

#: Elements of a block of softmax rows.
_BLOCK = 1 << 15


def build_reduce(spec: PlanSpec[ReduceAttributes], _context: HostContext) -> Built:
    """Return the run of ``elementwise.reduce``: operands ``x, out``, no scalars."""
    op, axes = spec.attributes.reduction, spec.attributes.axes
    accumulate = as_dtype(spec.attributes.accumulate)
    if accumulate == np.float32:  # in which NumPy adds rows one after the other: a million of them lose a hundredth
        accumulate = np.dtype(np.float64)
    shape = spec.operands[0].shape
    count = math.prod(shape[i] for i in axes)
    one_axis = axes[0] if len(axes) == 1 and len(shape) > 1 else None

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        x, out = arrays
        if op in ("argmax", "argmin"):
            result = (np.argmax if op == "argmax" else np.argmin)(x, axis=one_axis)
        elif op in ("max", "min"):
            result = (np.maximum if op == "max" else np.minimum).reduce(x, axis=axes) if axes else x
        elif op in ("any", "all"):
            truth = x if x.dtype == bool else x != 0
            result = (np.logical_or if op == "any" else np.logical_and).reduce(truth, axis=axes) if axes else truth
        elif op == "prod":
            result = np.multiply.reduce(x, axis=axes, dtype=accumulate) if axes else x
        else:
            result = np.add.reduce(x, axis=axes, dtype=accumulate) if axes else x.astype(accumulate)
            if op == "mean":
                result = np.divide(result, accumulate.type(count))
        np.copyto(out, result, casting="unsafe")

    return Built(run)


def build_softmax_cross_entropy(spec: PlanSpec[LossAttributes], _context: HostContext) -> Built:
    """Return the run of ``elementwise.softmax_cross_entropy``: operands ``logits, labels, grad, loss``, no scalars."""
    acc = as_dtype(spec.attributes.compute)
    n, classes = spec.operands[0].shape

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        logits, labels, grad, loss = arrays
        wrong = np.flatnonzero((labels < 0) | (labels >= classes))
        if wrong.size:
            raise InvalidRequest(f"label {labels[wrong[0]]} in row {wrong[0]}; allowed: 0 to {classes - 1}")
        losses = np.empty(n, acc)
        for index in blocks((n,), max(1, _BLOCK // classes)):
            chosen = labels[index]
            x = logits[index].astype(acc)
            rows = np.arange(len(chosen))
            np.subtract(x, x.max(axis=1, keepdims=True), out=x)
            at_label = x[rows, chosen]
            np.exp(x, out=x)
            total = x.sum(axis=1, keepdims=True)
            losses[index] = np.log(total[:, 0]) - at_label
            np.divide(x, total, out=x)
            x[rows, chosen] -= 1
            np.multiply(x, acc.type(1.0 / n), out=x)
            np.copyto(grad[index], x, casting="unsafe")
        np.copyto(loss, losses.mean(), casting="unsafe")

    return Built(run)
