"""Matrix products on a GPU, square and of a language model's shapes, beside torch, nvmath-python and CuPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.harness import Bar, Case, Setup
from bench.libraries.blas_lt._gemm import Product, add_atomr, add_cupy, add_nvmath, add_torch, add_torch_graph

__all__ = ["BARS", "CASES"]

SQUARES = (256, 1024, 2048, 4096, 8192, 16384)
#: Squares that the bars are about, and those of the means: below, torch waits for its own code on the host.
LARGE = SQUARES[1:]
COUNTED = SQUARES[2:]
#: What the means are called: those of fewer squares, in older results, say so.
MEAN, LAYERS_MEAN = "mean of squares from 2048", "mean of layers"
#: M, N, K of layers of Llama-70B: the widest of its feed-forward block, its other one, and attention's.
LAYERS = (
    *((m, 28672, 8192) for m in (1, 16, 128, 4096)),
    (16, 8192, 28672),
    (16, 8192, 8192),
)
#: Layers that are tuned.
TUNED_LAYERS = ((16, 28672, 8192), (128, 28672, 8192))
FLOAT8 = "float8_e4m3fn"
#: What cases and tables call the dtypes with bars.
_KINDS = ("bfloat16", "float16", "float8")


def _products(
    setup: Setup,
    products: Sequence[Product],
    tuned: Sequence[Product],
    cupy: Sequence[Product],
    nvmath: Sequence[Product] = (),
    graphs: Sequence[Product] = (),
) -> None:
    """Add contenders of each product, and their ratios."""
    for product in products:
        options: dict[str, Any] = {"fast_accum": True} if product.kind == FLOAT8 else {}
        torch = f"torch, {product.label}"
        add_atomr(setup, f"atomr, {product.label}", product, **options)
        add_torch(setup, torch, product)
        setup.ratio(f"atomr, {product.label}", torch)
        if product in graphs:
            add_torch_graph(setup, f"torch graph, {product.label}", product)
            setup.ratio(f"atomr, {product.label}", f"torch graph, {product.label}")
        if product in tuned:
            add_atomr(setup, f"atomr tuned, {product.label}", product, tune=True, **options)
            setup.ratio(f"atomr tuned, {product.label}", torch)
        if product in cupy:
            add_cupy(setup, f"cupy, {product.label}", product)
            setup.ratio(f"atomr, {product.label}", f"cupy, {product.label}")
        if product in nvmath:
            add_nvmath(setup, f"nvmath, {product.label}", product)
            setup.ratio(f"atomr, {product.label}", f"nvmath, {product.label}")
            if product in tuned:
                add_nvmath(setup, f"nvmath tuned, {product.label}", product, tuned=True)
                setup.ratio(f"atomr tuned, {product.label}", f"nvmath tuned, {product.label}")


def _means(setup: Setup, products: Sequence[Product], mean: str, *ours: str, graphs: bool = False) -> None:
    """Add the means of `ours`, and their ratios over torch's, and over those of its graphs."""
    theirs = ("torch", "torch graph") if graphs else ("torch",)
    counted = "of " + ", ".join(product.label.partition(" ")[2] for product in products)
    for who in (*ours, *theirs):
        members = [f"{who}, {product.label}" for product in products]
        setup.mean(f"{who}, {mean}", members, "peer" if who in theirs else "atomr", remark=counted)
    for who in ours:
        for other in theirs:
            setup.ratio(f"{who}, {mean}", f"{other}, {mean}")


def _dense(setup: Setup, kind: str, *, layers: bool, cupy: Sequence[int] = ()) -> None:
    """The cases of one dtype with bars."""
    squares = {n: Product(n, n, n, kind, turned=kind == FLOAT8) for n in SQUARES}
    large, counted = [squares[n] for n in LARGE], [squares[n] for n in COUNTED]
    shapes = [Product(*extents, kind, turned=True) for extents in LAYERS] if layers else []
    tuned = [*large, *(shape for shape in shapes if (shape.m, shape.n, shape.k) in TUNED_LAYERS)]
    nvmath = [squares[4096], *shapes[:1]] if layers else []
    _products(setup, [*squares.values(), *shapes], tuned, [squares[n] for n in cupy], nvmath, [*large, *shapes])
    _means(setup, counted, MEAN, "atomr", "atomr tuned", graphs=True)
    if layers:
        _means(setup, shapes, LAYERS_MEAN, "atomr", graphs=True)


def bfloat16(setup: Setup) -> None:
    """Time per product in bfloat16, sums in float32: N x N by N x N, and M x N x K with weights as (N, K).

    Planned messages, and ``torch.mm(out=)``, as it comes: as many of both as take about 8 ms (2 at least), one wait.
    *torch graph*: as many of the same calls in one CUDA graph, so that torch does not wait for its own host code.
    Operands are standard normal numbers, taken in turn from sets that together are larger than the L2 cache (16 at
    most). *tuned*: ``tune=True``, and what it found. nvmath-python: ``Matmul.execute`` of what is planned (*tuned*:
    ``autotune``), which allocates its output. The means are geometric ones.
    """
    _dense(setup, "bfloat16", layers=True)


def float16(setup: Setup) -> None:
    """As in bfloat16; CuPy: ``cupy.matmul(out=)``."""
    _dense(setup, "float16", layers=False, cupy=(1024, 4096, 8192))


def float8(setup: Setup) -> None:
    """Time per product of float8_e4m3fn to bfloat16, one scale for each operand, fast accumulation, B as (N, K).

    Counted as in bfloat16. torch: ``torch._scaled_mm(out=)``.
    """
    _dense(setup, FLOAT8, layers=True)


def wide(setup: Setup) -> None:
    """Time per product in float32, in float32 by way of TF32, and in float64, counted as in bfloat16.

    torch: ``torch.mm(out=)`` with ``set_float32_matmul_precision`` "highest" and "high". CuPy: ``cupy.matmul(out=)``.
    """
    extents = {"float32": SQUARES[:-1], "tf32": SQUARES, "float64": SQUARES[:-1]}
    products = [Product(n, n, n, kind) for kind, squares in extents.items() for n in squares]
    cupy = [product for product in products if product.kind != "tf32" and product.n in (1024, 4096)]
    _products(setup, products, [product for product in products if product.n == 4096], cupy)
    for kind in extents:
        _means(setup, [one for one in products if one.kind == kind and one.n in COUNTED], f"{kind} {MEAN}", "atomr")


BARS = (
    *(
        Bar(
            f"{kind} squares over torch",
            f"gpu_gemm_{kind}",
            f"atomr, {kind} {n}",
            1.02,
            "x",
            f"torch, {kind} {n}",
            f"{n}",
        )
        for kind in _KINDS
        for n in LARGE
    ),
    *(
        Bar(
            f"products, {what} over torch",
            f"gpu_gemm_{kind}",
            f"{who}, {mean}",
            limit,
            "x",
            under=f"torch, {mean}",
            part=kind,
        )
        for what, who, mean, limit, kinds in (
            ("mean of squares", "atomr", MEAN, 1.0, _KINDS),
            ("tuned, mean of squares", "atomr tuned", MEAN, 0.971, _KINDS),
            ("mean of layers of Llama-70B", "atomr", LAYERS_MEAN, 1.0, ("bfloat16", "float8")),
        )
        for kind in kinds
    ),
)
#: Means over torch's graphs, which wait for no host code.
BARS += tuple(
    Bar(f"products, {what} over torch's graph", f"gpu_gemm_{kind}", f"{who}, {mean}", limit, "x",
        f"torch graph, {mean}", part=kind)
    for what, who, mean, limit, kinds in (
        ("mean of squares", "atomr", MEAN, 1.0, _KINDS),
        ("tuned, mean of squares", "atomr tuned", MEAN, 0.971, _KINDS),
        ("mean of layers of Llama-70B", "atomr", LAYERS_MEAN, 1.0, ("bfloat16", "float8")),
    )
    for kind in kinds
)  # fmt: skip
_ON = ("cuda",)
CASES = (
    Case("gpu_gemm_bfloat16", "Matrix products in bfloat16", bfloat16, devices=_ON, share=2.0),
    Case("gpu_gemm_float16", "Matrix products in float16", float16, devices=_ON, share=1.7),
    Case("gpu_gemm_float8", "Matrix products in float8", float8, devices=_ON, share=1.7),
    Case("gpu_gemm_wide", "Matrix products in float32, TF32 and float64", wide, rounds=25, devices=_ON, share=1.7),
)
