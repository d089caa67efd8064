"""Linear layers with two numbers in each four, beside dense ones and torch's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.harness import Case, Setup, gpu_peers
from bench.harness.calls import Operation, add_calls
from bench.harness.gpu import add_peer

__all__ = ["CASES"]

#: Layers of language models: outputs, inputs and tokens.
LAYERS = (
    (4096, 4096, 256), (4096, 4096, 2048), (14336, 4096, 2048), (4096, 14336, 2048), (8192, 8192, 8192),
    (28672, 8192, 8192),
)  # fmt: skip
DTYPES = ("float16", "int8", "float8_e4m3fn")
_TILE = 256


def _layer(extents: tuple[int, int, int], dtype: str, route: str) -> Callable[[Any], Operation]:
    m, k, n = extents

    def make(dev: Any) -> Operation:
        import ml_dtypes
        import numpy as np

        import atomr_native as an

        rng = np.random.default_rng(0)
        kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
        tile = rng.integers(-8, 8, (_TILE, _TILE)) if dtype == "int8" else rng.standard_normal((_TILE, _TILE))
        w, x = (dev.put(np.tile(tile.astype(kind), (rows // _TILE, k // _TILE))) for rows in (m, n))
        a = dev.sparse.structured(w, prune="strip")
        out = dev.sparse.linear_24(x, a, route=route)
        call = partial(dev.sparse.linear_24, x, a, route=route, tune=True, out=out)
        if route == "dense":
            plan = dev.blas_lt.plan(x, a.dense, trans_b=True, out=out, tune=True)
            return Operation(plan, {"a": x, "b": a.dense, "out": out}, call, out)
        request = an.StructuredProductRequest(
            compressed=a.compressed, shape=a.shape, dtype=a.dtype, x=x, out=out, tune=True
        )
        return Operation(dev.sparse.plan(request), {"compressed": a.compressed, "x": x, "out": out}, call, out)

    return make


def _torch(extents: tuple[int, int, int], ordinal: int) -> gpu_peers.Calls:
    m, k, n = extents
    torch = gpu_peers.torch(ordinal)
    from torch.sparse import to_sparse_semi_structured

    w = torch.randn((m, k), device="cuda", dtype=torch.float16)
    w *= torch.tensor([1, 1, 0, 0], device="cuda", dtype=torch.float16).tile(k // 4)
    x = torch.randn((n, k), device="cuda", dtype=torch.float16)
    linear = torch.nn.functional.linear
    compressed = to_sparse_semi_structured(w)
    return gpu_peers.Calls(
        {"structured": partial(linear, x, compressed), "dense": partial(linear, x, w)}, torch.cuda.synchronize
    )


def structured(setup: Setup) -> None:
    """Linear layers of language models on a GPU, with two numbers in each four and dense: outputs x inputs x tokens.

    Algorithms of both are tuned.  torch: its semi-structured matrices, and its dense product, in float16.
    """
    for dtype in DTYPES:
        for extents in LAYERS:
            size = " x ".join(map(str, extents))
            rows = {}
            for route in ("structured", "dense"):
                what = f"{route} layer {size}, {dtype}"
                rows[route] = f"atomr {what}, sustained, process"
                add_calls(setup, what, _layer(extents, dtype, route), many=200, few=50)
                if dtype == "float16":
                    peer = f"torch {what}, sustained"
                    add_peer(setup, peer, partial(_torch, extents), route, setup.count(100), every=20)
                    setup.ratio(rows[route], peer)
            setup.ratio(rows["structured"], rows["dense"])


CASES = (Case("gpu_structured", "Two numbers in each four on a GPU", structured, devices=("cuda",)),)
