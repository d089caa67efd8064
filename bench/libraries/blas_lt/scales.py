"""Matrix products in float8 on a GPU with every kind of scales, beside bfloat16 and torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from bench.harness import Case, Setup
from bench.libraries.blas_lt._gemm import Product, add_atomr, add_torch, scaled_mm

__all__ = ["CASES"]

SHAPES = tuple(Product(m, 8192, 8192, "float8_e4m3fn", turned=True) for m in (128, 4096))
#: Kinds of the scales of A and B, and whether accumulation is fast.
SCALES = (
    ("tensor", "tensor", True),
    ("tensor", "tensor", False),
    ("outer", "outer", True),
    ("outer", "outer", False),
    ("vec128", "blk128", False),
    ("blk128", "vec128", False),
    ("vec128", "vec128", False),
)
_BLOCK = 128


def _scale(ones: Callable[[tuple[int, ...]], Any], kind: str, extent: int, k: int) -> Any:
    """Return scales of op(A), or transposed of op(B), in the memory layout that cuBLASLt reads."""
    blocks = -(-k // _BLOCK)
    if kind == "tensor":
        return ones(())
    if kind == "outer":
        return ones((extent, 1))
    if kind == "vec128":
        return ones((blocks, extent)).T
    return ones((-(-extent // _BLOCK), -(-blocks // 4) * 4))[:, :blocks]


def _both(ones: Callable[[tuple[int, ...]], Any], kinds: tuple[str, str], product: Product) -> tuple[Any, Any]:
    a, b = (_scale(ones, kind, extent, product.k) for kind, extent in zip(kinds, (product.m, product.n), strict=True))
    if kinds[1] == "tensor":
        return a, b
    return a, ones((1, product.n)) if kinds[1] == "outer" else b.T


def _options(kinds: tuple[str, str], fast: bool, dev: Any, product: Product) -> dict[str, Any]:
    a, b = _both(lambda shape: dev.full(shape, 1.0), kinds, product)
    return {"a_scale": a, "b_scale": b, "fast_accum": fast}


def _torch(kinds: tuple[str, str], fast: bool, torch: Any, product: Product, a: Any, b: Any) -> Callable[[], object]:
    scale_a, scale_b = _both(lambda shape: torch.ones(shape, dtype=torch.float32, device="cuda"), kinds, product)
    out = torch.empty((product.m, product.n), dtype=torch.bfloat16, device="cuda")
    return scaled_mm(torch, a, b, out, scale_a, scale_b, fast)


def scales(setup: Setup) -> None:
    """Time per product of float8_e4m3fn to bfloat16, M x N x K, B as (N, K), with scales of each kind.

    Counted as in float8 products; *fast*: fast accumulation. torch: ``torch._scaled_mm(out=)`` with scales of the same
    shapes; those of rows and columns it calls rowwise. bfloat16: the plain product.
    """
    for product in SHAPES:
        extents = product.label.partition(" ")[2]
        plain = replace(product, kind="bfloat16")
        add_atomr(setup, f"atomr bfloat16, {extents}", plain)
        add_torch(setup, f"torch bfloat16, {extents}", plain)
        for a, b, fast in SCALES:
            what = f"{a if a == b else f'{a} by {b}'}{', fast' if fast else ''}, {extents}"
            add_atomr(setup, f"atomr {what}", product, partial(_options, (a, b), fast))
            add_torch(setup, f"torch {what}", product, partial(_torch, (a, b), fast))
            setup.ratio(f"atomr {what}", f"atomr bfloat16, {extents}")
            setup.ratio(f"atomr {what}", f"torch {what}")


CASES = (Case("gpu_gemm_scales", "Matrix products in float8, by kind of scale", scales, devices=("cuda",), share=0.8),)
