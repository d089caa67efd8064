"""What the fused operations are, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import erf

__all__ = [
    "activation",
    "adamw",
    "close",
    "dropout_words",
    "norm",
    "norm_gradients",
    "norm_size",
    "philox",
    "rope",
    "sgd",
]

Array = np.ndarray[Any, Any]
#: Distance of neighbouring numbers at 1.
EPS = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}


def close(got: Array, want: Array, dtype: str, ulps: float, size: float | None = None) -> None:
    """Compare with a bound for each element: an ulp of the dtype for the rounding, and `ulps` of what is computed in.

    The latter are of the largest element, since sums cancel, or of `size`.
    """
    assert got.shape == want.shape
    least = {"float16": 2.0**-24}.get(dtype, 0.0)
    computed = EPS["float64" if dtype == "float64" else "float32"]
    size = np.max(np.abs(want), initial=0.0) if size is None else size
    bound = EPS[dtype] * np.abs(want) + ulps * computed * size + least
    np.testing.assert_array_less(np.abs(got.astype(np.float64) - want), bound + 1e-300)


def activation(curve: str, x: Array) -> tuple[Array, Array]:
    """Return values and derivatives."""
    x = x.astype(np.float64)
    if curve == "silu":
        s = 1 / (1 + np.exp(-x))
        return x * s, s + x * s * (1 - s)
    if curve == "squared_relu":
        return np.maximum(x, 0) ** 2, 2 * np.maximum(x, 0)
    if curve == "gelu":
        whole = 0.5 * (1 + erf(x / np.sqrt(2)))
        return x * whole, whole + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    t = np.tanh(inner)
    slope = 0.5 * x * (1 - t * t) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x * x)
    return 0.5 * x * (1 + t), 0.5 * (1 + t) + slope


def norm(x: Array, weight: Array, bias: Array | None, eps: float, layer: bool) -> Array:
    """Return the norm of rows."""
    x = x.astype(np.float64)
    x = x - x.mean(-1, keepdims=True) if layer else x
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight.astype(np.float64)
    return y if bias is None else y + bias.astype(np.float64)


def norm_size(x: Array, weight: Array, dy: Array, eps: float, layer: bool) -> float:
    """Return the size of what is added up in a norm and its gradients, of which results may be a small rest."""
    x = x.astype(np.float64)
    if x.size == 0:
        return 0.0
    centred = x - x.mean(-1, keepdims=True) if layer else x
    steep = 1 / np.sqrt((centred * centred).mean(-1, keepdims=True) + eps)
    largest = np.max(np.abs(weight.astype(np.float64))) * max(1.0, float(np.max(np.abs(dy.astype(np.float64)))))
    far = np.max(np.abs(x) * steep) if layer else np.max(np.abs(centred) * steep)
    return float(largest * (1 + far) * max(1.0, float(np.max(steep))) * max(1, x.size // x.shape[-1]))


def norm_gradients(dy: Array, x: Array, weight: Array, eps: float, layer: bool) -> tuple[Array, Array, Array]:
    """Return the gradients by x, weight and bias, from the chain rule step by step."""
    dy, x = dy.astype(np.float64), x.astype(np.float64)
    count = x.shape[-1]
    centred = x - x.mean(-1, keepdims=True) if layer else x
    square = (centred * centred).mean(-1, keepdims=True) + eps
    hat = centred / np.sqrt(square)
    by_hat = dy * weight.astype(np.float64)
    by_square = (by_hat * centred).sum(-1, keepdims=True) * -0.5 * square**-1.5
    by_centred = by_hat / np.sqrt(square) + by_square * 2 * centred / count
    dx = by_centred - by_centred.mean(-1, keepdims=True) if layer else by_centred
    axes = tuple(range(x.ndim - 1))
    return dx, (dy * hat).sum(axes), dy.sum(axes)


def adamw(p: Array, g: Array, m: Array, v: Array, step: int, **n: float) -> tuple[Array, Array, Array]:
    """Return parameters and both means after a step: Algorithm 2 of Loshchilov and Hutter, with its alpha 1."""
    p, g, m, v = (a.astype(np.float64) for a in (p, g, m, v))
    m = n["beta1"] * m + (1 - n["beta1"]) * g
    v = n["beta2"] * v + (1 - n["beta2"]) * g * g
    m_hat, v_hat = m / (1 - n["beta1"] ** step), v / (1 - n["beta2"] ** step)
    return p - n["lr"] * (m_hat / (np.sqrt(v_hat) + n["eps"]) + n["weight_decay"] * p), m, v


def sgd(p: Array, g: Array, m: Array, nesterov: bool, **n: float) -> tuple[Array, Array]:
    """Return parameters and momentum after a step."""
    p, g, m = (a.astype(np.float64) for a in (p, g, m))
    m = n["momentum"] * m + g
    d = g + n["momentum"] * m if nesterov else m
    return p - n["lr"] * n["weight_decay"] * p - n["lr"] * d, m


def rope(x: Array, positions: Array, theta: float, interleaved: bool) -> Array:
    """Return pairs as complex numbers, turned; angles are those of float32."""
    pairs = x.shape[-1] // 2
    steps = (float(theta) ** (-np.arange(pairs) / pairs)).astype(np.float32)
    angles = (positions.astype(np.float32)[..., None, None] * steps).astype(np.float64)
    x = x.astype(np.float64)
    z = x[..., 0::2] + 1j * x[..., 1::2] if interleaved else x[..., :pairs] + 1j * x[..., pairs:]
    z = z * np.exp(1j * angles)
    return np.stack([z.real, z.imag], -1 if interleaved else -2).reshape(x.shape)


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Return four words of Philox4x32-10, by Python's integers: a round and the next key, as the paper has them."""
    full = 2**32
    for i in range(10):
        left, right = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        first, second = (key[0] + i * 0x9E3779B9) % full, (key[1] + i * 0xBB67AE85) % full
        counter = [right // full ^ counter[1] ^ first, right % full, left // full ^ counter[3] ^ second, left % full]
    return counter


def dropout_words(size: int, seed: int, offset: int) -> Array:
    """Return the words that decide which of so many elements are kept: see docs/libraries/fused.md."""
    words = []
    for n in range(offset, offset + -(-size // 8)):
        upper, lower = (philox([n % 2**32, n // 2**32, 0, last], [seed % 2**32, seed // 2**32]) for last in (0, 1))
        for a, b in zip(upper, lower, strict=True):
            words += [a % 2**16 << 16 | b % 2**16, a >> 16 << 16 | b >> 16]
    return np.array(words[:size], np.uint64)
