"""Linear layers with two numbers in each four, beside dense ones and torch's."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.harness import Case, Setup, gpu_peers
from bench.harness.bars import Bar
from bench.harness.calls import Operation, add_sustained
from bench.harness.common import device
from bench.harness.gpu import add_peer

__all__ = ["BARS", "CASES"]

#: Layers of language models: outputs, inputs and tokens.
LAYERS = ((4096, 4096, 256), (14336, 4096, 2048), (4096, 14336, 2048), (8192, 8192, 8192), (28672, 8192, 8192))
#: Those that are to gain from sparse tensor cores.
LARGE = LAYERS[1:]
#: The ways of a layer by name: the default is one of the others.
ROUTES = {"structured": "structured", "dense": "dense", "default": "auto"}
#: Cases by the dtype of the operands, and the dtype of the results.
RESULTS = {"float16": "float16", "int8": "int32", "float8_e4m3fn": "bfloat16"}
_TILE = 256
#: Multiplications and additions of a sample, about, and its most messages.
_WORK, _MOST = 2e13, 100


@dataclass(frozen=True)
class _Layer:
    """Operands of a layer on a device: the matrix, in both forms, and x."""

    a: Any
    x: Any


def _layer(dev: Any, extents: tuple[int, int, int], dtype: str) -> _Layer:
    import ml_dtypes
    import numpy as np

    m, k, n = extents
    rng = np.random.default_rng(0)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    numbers = rng.integers(-8, 8, (_TILE, k)) if dtype == "int8" else rng.standard_normal((_TILE, k), np.float32)
    tile = dev.put(numbers.astype(kind))

    def repeated(rows: int) -> Any:
        made = dev.empty((rows, k), dtype)
        for first in range(0, rows, _TILE):
            dev.copy(tile, out=made[first : first + _TILE])
        return made

    return _Layer(dev.sparse.structured(repeated(m), prune="strip"), repeated(n))


def _operation(setup: Setup, extents: tuple[int, int, int], dtype: str, route: str, dev: Any) -> Operation:
    import atomr_native as an

    given: _Layer = setup.shared((extents, dtype), lambda: nullcontext(_layer(dev, extents, dtype)))
    a, x = given.a, given.x
    out = dev.empty((extents[2], extents[0]), RESULTS[dtype])
    call = partial(dev.sparse.linear_24, x, a, route=route, out=out)
    if dev.sparse.route_24(a, x, route=route, out=out).name == "dense":
        plan = dev.blas_lt.plan(x, a.dense, trans_b=True, out=out)
        return Operation(plan, {"a": x, "b": a.dense, "out": out}, call, out)
    request = an.StructuredProductRequest(compressed=a.compressed, shape=a.shape, dtype=a.dtype, x=x, out=out)
    return Operation(dev.sparse.plan(request), {"compressed": a.compressed, "x": x, "out": out}, call, out)


def _torch(extents: tuple[int, int, int], ordinal: int) -> gpu_peers.Calls:
    m, k, n = extents
    torch = gpu_peers.torch(ordinal)
    from torch.sparse import to_sparse_semi_structured

    w = torch.randn((m, k), device="cuda", dtype=torch.float16)
    w *= torch.tensor([1, 1, 0, 0], device="cuda", dtype=torch.float16).tile(k // 4)
    x = torch.randn((n, k), device="cuda", dtype=torch.float16)
    linear = torch.nn.functional.linear
    return gpu_peers.Calls({"structured": partial(linear, x, to_sparse_semi_structured(w))}, torch.cuda.synchronize)


def _title(route: str, extents: tuple[int, int, int], dtype: str) -> str:
    return f"{route} layer {' x '.join(map(str, extents))}, {dtype}"


def _ours(route: str, extents: tuple[int, int, int], dtype: str) -> str:
    return f"atomr {_title(route, extents, dtype)}, sustained, process"


def _build(setup: Setup, dtype: str) -> None:
    if not setup.dry:
        device(setup, "process")
    for extents in LAYERS:
        count = max(10, min(_MOST, int(_WORK / (2.0 * extents[0] * extents[1] * extents[2]))))
        rows = {}
        for name, route in ROUTES.items():
            what = _title(name, extents, dtype)
            rows[name] = add_sustained(setup, what, partial(_operation, setup, extents, dtype, route), many=count)
            if dtype == "float16" and route == "structured":
                peer = f"torch {what}, sustained"
                add_peer(setup, peer, partial(_torch, extents), route, setup.count(count), every=count)
                setup.ratio(rows[route], peer)
        setup.ratio(rows["structured"], rows["dense"])
        setup.ratio(rows["default"], rows["dense"])


def structured(setup: Setup) -> None:
    """Linear layers of language models on a GPU, with two numbers in each four and dense: outputs x inputs x tokens.

    float16, with the algorithms that plans take by themselves.  By default a layer is computed by one of the two ways.
    torch: its semi-structured matrices.
    """
    _build(setup, "float16")


def integers(setup: Setup) -> None:
    """The layers in int8, whose results are int32."""
    _build(setup, "int8")


def float8(setup: Setup) -> None:
    """The layers in float8_e4m3fn, whose results are bfloat16."""
    _build(setup, "float8_e4m3fn")


CASES = (
    Case("gpu_structured", "Two numbers in each four on a GPU", structured, devices=("cuda",)),
    Case("gpu_structured_int8", "Two numbers in each four on a GPU, int8", integers, devices=("cuda",)),
    Case("gpu_structured_float8", "Two numbers in each four on a GPU, float8", float8, devices=("cuda",)),
)
#: As fast as torch's; large ones 1.3 times as fast as dense, and by default none slower.
BARS = (
    *(
        Bar(
            "layers with two numbers in each four over torch's", "gpu_structured", _ours("structured", one, "float16"),
            1.0, "x", f"torch {_title('structured', one, 'float16')}, sustained", _title("structured", one, "float16"),
        )
        for one in LAYERS
    ),
    *(
        Bar(
            f"{work} over dense", case, _ours(route, one, dtype), limit, "x", _ours("dense", one, dtype),
            _title(route, one, dtype),
        )
        for case, dtype in (
            ("gpu_structured", "float16"), ("gpu_structured_int8", "int8"), ("gpu_structured_float8", "float8_e4m3fn"),
        )
        for work, route, layers, limit in (
            ("large layers with two numbers in each four", "structured", LARGE, 1 / 1.3),
            ("layers with two numbers in each four by default", "default", LAYERS, 1.02),
        )
        for one in layers
    ),
)  # fmt: skip
