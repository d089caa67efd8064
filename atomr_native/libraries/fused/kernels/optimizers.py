"""AdamW and SGD with momentum on CUDA, in place: see docs/libraries/fused.md for the formulas.

Numbers of a message are combined in float64 by one thread of a block, and rounded once.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from ....compile.numba.api import cuda, inlined, types
from ....compile.numba.device.elements import aligned, element, mapped

__all__ = ["adamw", "sgd"]

Kernel = tuple[Any, tuple[str, ...]]
_NUMBER: Final = ("int64",)
_NUMBERS: Final = 8


@inlined
def _narrow(value: Any) -> Any:
    return np.float32(value)


#: Gradients of float64 are rounded first.
_narrowed = mapped(_narrow, 1)


def adamw(dtype: str, gradient: str, *, master: bool) -> Kernel:
    """Return the kernel of a step of AdamW; with `master`, of float32 weights that are then rounded to `dtype`."""
    pointer, itemsize, _, get, put, *_ = element(dtype)
    gradient_pointer, gradient_size, _, gradient_get, *_ = element(gradient)
    _, _, _, state_get, state_put, *_ = element("float32")

    @inlined
    def moved(new: Any, old: Any, keep: Any, add: Any) -> Any:
        return (
            keep * old[0] + add * new[0], keep * old[1] + add * new[1], keep * old[2] + add * new[2],
            keep * old[3] + add * new[3], keep * old[4] + add * new[4], keep * old[5] + add * new[5],
            keep * old[6] + add * new[6], keep * old[7] + add * new[7],
        )  # fmt: skip

    @inlined
    def squares(g: Any) -> Any:
        return (
            g[0] * g[0], g[1] * g[1], g[2] * g[2], g[3] * g[3], g[4] * g[4], g[5] * g[5], g[6] * g[6], g[7] * g[7],
        )  # fmt: skip

    @inlined
    def stepped(p: Any, m: Any, v: Any, rate: Any, correct: Any, eps: Any, decay: Any) -> Any:
        size = np.float32(math.sqrt(v)) * correct + eps
        return p - decay * p - rate * (m / size)

    def adamw(
        g: Any, param: Any, m: Any, v: Any, weights: Any, lr: Any, beta1: Any, beta2: Any, eps: Any, decay: Any,
        step: Any, count: Any,
    ) -> None:  # fmt: skip
        shared = cuda.shared.array(_NUMBERS, types.float32)
        if cuda.threadIdx.x == 0:
            shared[0], shared[1] = np.float32(beta1), np.float32(1.0 - beta1)
            shared[2], shared[3] = np.float32(beta2), np.float32(1.0 - beta2)
            shared[4] = np.float32(lr / (1.0 - math.pow(beta1, np.float64(step))))
            shared[5] = np.float32(1.0 / math.sqrt(1.0 - math.pow(beta2, np.float64(step))))
            shared[6], shared[7] = np.float32(eps), np.float32(lr * decay)
        cuda.syncthreads()
        keep1, add1, keep2, add2 = shared[0], shared[1], shared[2], shared[3]
        rate, correct, least, lost = shared[4], shared[5], shared[6], shared[7]
        fast = aligned(g, 0, 0, gradient_size) and aligned(param, 0, 0, itemsize) and aligned(m, 0, 0, 4)
        fast = fast and aligned(v, 0, 0, 4) and aligned(weights, 0, 0, 4)
        at = (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) * 8
        while at < count:
            left = count - at
            dp = _narrowed(gradient_get(g, at, left, fast))
            m8 = moved(dp, state_get(m, at, left, fast), keep1, add1)
            v8 = moved(squares(dp), state_get(v, at, left, fast), keep2, add2)
            p = state_get(weights, at, left, fast) if master else get(param, at, left, fast)
            p = (
                stepped(p[0], m8[0], v8[0], rate, correct, least, lost),
                stepped(p[1], m8[1], v8[1], rate, correct, least, lost),
                stepped(p[2], m8[2], v8[2], rate, correct, least, lost),
                stepped(p[3], m8[3], v8[3], rate, correct, least, lost),
                stepped(p[4], m8[4], v8[4], rate, correct, least, lost),
                stepped(p[5], m8[5], v8[5], rate, correct, least, lost),
                stepped(p[6], m8[6], v8[6], rate, correct, least, lost),
                stepped(p[7], m8[7], v8[7], rate, correct, least, lost),
            )
            state_put(m, at, m8, left, fast)
            state_put(v, at, v8, left, fast)
            if master:
                state_put(weights, at, p, left, fast)
            put(param, at, p, left, fast)
            at += cuda.gridDim.x * cuda.blockDim.x * 8

    words = "*uint32"
    return adamw, (gradient_pointer, pointer, words, words, words, *("float64",) * 5, *_NUMBER * 2)


def sgd(dtype: str, gradient: str, *, master: bool, nesterov: bool) -> Kernel:
    """Return the kernel of a step of SGD with momentum; `master` as for `adamw`."""
    pointer, itemsize, _, get, put, *_ = element(dtype)
    gradient_pointer, gradient_size, _, gradient_get, *_ = element(gradient)
    _, _, _, state_get, state_put, *_ = element("float32")

    @inlined
    def moved(g: Any, m: Any, keep: Any) -> Any:
        return (
            keep * m[0] + g[0], keep * m[1] + g[1], keep * m[2] + g[2], keep * m[3] + g[3],
            keep * m[4] + g[4], keep * m[5] + g[5], keep * m[6] + g[6], keep * m[7] + g[7],
        )  # fmt: skip

    @inlined
    def stepped(p: Any, d: Any, rate: Any, decay: Any) -> Any:
        return p - decay * p - rate * d

    def sgd(g: Any, param: Any, m: Any, weights: Any, lr: Any, momentum: Any, decay: Any, count: Any) -> None:
        rate, keep, lost = np.float32(lr), np.float32(momentum), np.float32(lr * decay)
        fast = aligned(g, 0, 0, gradient_size) and aligned(param, 0, 0, itemsize) and aligned(m, 0, 0, 4)
        fast = fast and aligned(weights, 0, 0, 4)
        at = (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) * 8
        while at < count:
            left = count - at
            dp = _narrowed(gradient_get(g, at, left, fast))
            d = moved(dp, state_get(m, at, left, fast), keep)
            state_put(m, at, d, left, fast)
            if nesterov:
                d = moved(dp, d, keep)
            p = state_get(weights, at, left, fast) if master else get(param, at, left, fast)
            p = (
                stepped(p[0], d[0], rate, lost), stepped(p[1], d[1], rate, lost), stepped(p[2], d[2], rate, lost),
                stepped(p[3], d[3], rate, lost), stepped(p[4], d[4], rate, lost), stepped(p[5], d[5], rate, lost),
                stepped(p[6], d[6], rate, lost), stepped(p[7], d[7], rate, lost),
            )  # fmt: skip
            if master:
                state_put(weights, at, p, left, fast)
            put(param, at, p, left, fast)
            at += cuda.gridDim.x * cuda.blockDim.x * 8

    words = "*uint32"
    return sgd, (gradient_pointer, pointer, words, words, *("float64",) * 3, *_NUMBER)
