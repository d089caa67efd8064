"""Matmuls beyond the plain floating ones on the host device: 8 bits, complex, scales, amax, chosen precision.

The oracle of the GPU: sums in its accumulation precision (int32 exactly), factors, scales and epilogue in the type in
which it applies them, one rounding when D is stored.  Plain rather than fast: whole arrays at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ....dtypes import DTYPES, as_dtype
from ....errors import InvalidRequest
from ....plans.spec import PlanSpec
from ..._scaling import BLOCK
from ..attributes import MatmulAttributes
from ..types import SATURATE
from .gelu import gelu, times_gelu_gradient
from .threads import sized

__all__ = ["build_general", "is_general", "round_bits"]

Array = np.ndarray[Any, Any]
Run = Callable[[tuple[Array, ...], tuple[Any, ...]], None]

_PLAIN: Final = ("float64", "float32", "float16", "bfloat16")
_EXTRA: Final = frozenset({"a_scale", "b_scale", "c_scale", "d_scale", "alpha", "beta", "amax"})
#: Compute modes whose operands are rounded, and to how many bits of mantissa below the leading one.
_ROUNDED: Final = {"tf32": 10, "bfloat16": 7, "float16": 10}


def is_general(spec: PlanSpec[MatmulAttributes]) -> bool:
    """Whether a specification needs more than the plain path."""
    operands, how = {o.name: o for o in spec.operands}, spec.attributes
    return operands["a"].dtype not in _PLAIN or how.mode != how.compute or not _EXTRA.isdisjoint(operands)


def round_bits(x: Array, bits: int) -> Array:
    """Round float32 (or the parts of complex64) to so many bits of mantissa, ties to even; infinities and NaN stay."""
    wide = np.ascontiguousarray(x).view(np.float32)
    raw = wide.view(np.uint32)
    drop = np.uint32(23 - bits)
    half = np.uint32(1 << (22 - bits))
    odd = (raw >> drop) & np.uint32(1)
    rounded = ((raw + (half - np.uint32(1)) + odd) >> drop) << drop
    finite = np.isfinite(wide)
    return np.where(finite, rounded, raw).astype(np.uint32).view(np.float32).view(x.dtype).reshape(x.shape)


def _load(x: Array, transposed: bool, conjugated: bool, kind: np.dtype[Any], mode: str) -> Array:
    """Return op(x) in the type in which BLAS multiplies."""
    x = x.swapaxes(-1, -2) if transposed else x
    if kind.kind == "i":  # exact: sums of products of 8 bits stay far below 2 to the 53rd
        return x.astype(np.float64)
    wide: Array = x.astype(kind)
    if conjugated:
        wide = wide.conj()
    if mode in _ROUNDED:
        if mode == "float16":
            with np.errstate(over="ignore"):
                return wide.astype(np.float16).astype(wide.dtype)
        return round_bits(wide, _ROUNDED[mode])
    return wide


def _spread(scale: Array, which: str, kind: str, extent: int) -> Array:
    """Return the scales of a block of K as (rows, 1) or (1, columns), for each block: one more axis in front."""
    table = scale if which == "a" else scale.T  # (outer or its blocks, blocks of K)
    if kind == "blk128":
        table = np.repeat(table, BLOCK, axis=0)[:extent]
    columns = table.T
    return columns[:, :, None] if which == "a" else columns[:, None, :]


def _products(how: MatmulAttributes, a: Array, b: Array, scales: dict[str, Array]) -> Array:
    """Return op(A) @ op(B), with scales of blocks applied where they are."""
    kinds = how.scaling
    if kinds[0] not in ("vec128", "blk128"):
        return np.asarray(np.matmul(a, b))
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    of_a, of_b = _spread(scales["a_scale"], "a", kinds[0], m), _spread(scales["b_scale"], "b", kinds[1], n)
    total = np.zeros((m, n), np.float32)
    for i in range(-(-k // BLOCK)):
        part = slice(i * BLOCK, min((i + 1) * BLOCK, k))
        total += (a[:, part] @ b[part]) * (of_a[i] * of_b[i])
    return total


def _store(out: Array, x: Array) -> None:
    name = next(name for name, dtype in DTYPES.items() if dtype == out.dtype)
    if name in SATURATE:
        x = np.clip(x, -SATURATE[name], SATURATE[name])
    elif out.dtype.kind == "i" and x.dtype.kind != "i":
        limits = np.iinfo(out.dtype)
        x = np.nan_to_num(np.clip(np.rint(x), limits.min, limits.max), nan=0.0)
    np.copyto(out, x, casting="unsafe")


def _activate(how: MatmulAttributes, x: Array, arrays: dict[str, Array]) -> Array:
    """Return x after its epilogue's activation, forward or backward; stores what the forward pass keeps."""
    epilogue = how.epilogue
    if epilogue.startswith("dgelu"):
        times_gelu_gradient(x, arrays["aux"].astype(x.dtype))
    elif epilogue.startswith("drelu"):
        bits = np.unpackbits(arrays["aux"], axis=-1, count=x.shape[-1], bitorder="little")
        x = np.where(bits != 0, x, x.dtype.type(0))
    elif "gelu" in epilogue:
        if "aux" in arrays:
            _store(arrays["aux"], x)
        gelu(x)
    elif "relu" in epilogue:
        if "aux" in arrays:
            bits = np.packbits(x > 0, axis=-1, bitorder="little")
            arrays["aux"][..., : bits.shape[-1]] = bits
            arrays["aux"][..., bits.shape[-1] :] = 0
        x = np.maximum(x, x.dtype.type(0))
    return x


def check_factors(how: MatmulAttributes, alpha: Any, beta: Any) -> None:
    """Raise `InvalidRequest` for factors that the plan does not take."""
    if how.added == "none" and beta != 0:
        raise InvalidRequest(f"beta={beta}, but the plan was made with beta=0 and has no c; allowed: 0")
    if how.scale == "int32" and (alpha not in (0, 1) or beta not in (0, 1)):
        raise InvalidRequest(f"alpha={alpha} and beta={beta} with D of dtype int32; allowed: 0, 1 (or D of float32)")


def build_general(spec: PlanSpec[MatmulAttributes]) -> Run:
    """Return ``run(arrays, scalars)`` for any plan specification of ``blas_lt.matmul``."""
    names, how = [o.name for o in spec.operands], spec.attributes
    acc, scale = as_dtype(how.compute), as_dtype(how.scale)
    mode, epilogue, added = how.mode, how.epilogue, how.added
    shape = spec.operands[names.index("out")].shape
    k = spec.operands[0].shape[-2 if how.trans_a else -1]

    def factors(arrays: dict[str, Array], scalars: tuple[Any, ...]) -> tuple[Any, Any]:
        if "alpha" in arrays:
            beta = arrays["beta"].reshape(())[()] if "beta" in arrays else scale.type(0)
            return arrays["alpha"].reshape(())[()], beta
        if len(scalars) == 4:
            return complex(scalars[0], scalars[2]), complex(scalars[1], scalars[3])
        return scalars[0], scalars[1]

    @np.errstate(all="ignore")
    def run(given: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        arrays = dict(zip(names, given, strict=True))
        alpha, beta = factors(arrays, scalars)
        check_factors(how, alpha, beta)
        a = _load(arrays["a"], how.trans_a, how.conj_a, acc, mode)
        b = _load(arrays["b"], how.trans_b, how.conj_b, acc, mode)
        total = _products(how, a, b, arrays)
        if acc.kind == "i":
            total = total.astype(np.int64).astype(np.int32)
        x = np.array(np.broadcast_to(total, shape), scale)
        for name, kind in zip(("a_scale", "b_scale"), how.scaling, strict=True):
            if kind in ("tensor", "outer"):
                x = x * (arrays[name].reshape(()) if kind == "tensor" else arrays[name])
        x = (x * scale.type(alpha)).astype(scale, copy=False)
        if added != "none" and beta != 0:
            c = arrays["out" if added == "out" else "c"].astype(scale)
            if "c_scale" in arrays:
                c = c * arrays["c_scale"].reshape(())
            x = x + c * scale.type(beta)
        if "bias" in arrays:
            bias = arrays["bias"].astype(scale)
            x = x + (bias if bias.ndim == 1 else bias[..., None, :])
        x = _activate(how, np.ascontiguousarray(x), arrays)
        if "bias_grad" in arrays:
            wide = np.result_type(acc, np.float64)  # since NumPy adds rows one after the other
            if epilogue == "bgrada":
                full = _load(arrays["a"], how.trans_a, how.conj_a, acc, "")
                total = np.add.reduce(full, axis=-1, dtype=wide)
            elif epilogue == "bgradb":
                full = _load(arrays["b"], how.trans_b, how.conj_b, acc, "")
                total = np.add.reduce(full, axis=-2, dtype=wide)
            else:
                total = np.add.reduce(x, axis=-2, dtype=np.int64 if x.dtype.kind == "i" else np.result_type(x, "f8"))
            _store(arrays["bias_grad"], np.broadcast_to(total, arrays["bias_grad"].shape))
        if "amax" in arrays:
            arrays["amax"][...] = np.max(np.abs(x), initial=0)
        if "d_scale" in arrays:
            x = x * arrays["d_scale"].reshape(())
        _store(arrays["out"], x)

    return sized(run, math.prod(shape) * k)
