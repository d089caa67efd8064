"""Kernels of `device.cutlass` beside cuBLASLt's and torch's: products, epilogues, groups, and what compiling takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

from bench.harness import Bar, Case, Effort, Setup, Unavailable, gpu_peers
from bench.harness.common import device
from bench.harness.gpu import Sends, add_peer, sends_of_product, sustained
from bench.harness.matrices import on_atomr

__all__ = ["BARS", "CASES", "EPILOGUES", "GROUPS", "SHAPES", "SQUARE", "config_of"]

_SQUARES = (2048, 4096, 8192, 16384)
_LAYERS = ((16, 14336, 4096), (16, 4096, 14336), (512, 4096, 14336), (8192, 14336, 4096))
#: M, N and K, by dtype: squares, and layers of language models.
SHAPES = {
    "bfloat16": (*((size,) * 3 for size in _SQUARES), *_LAYERS),
    "float16": ((4096,) * 3, (8192,) * 3),
    "float8_e4m3fn": ((4096,) * 3, (8192,) * 3, (8192, 14336, 4096)),
}
#: Extent of the products with epilogues.
SQUARE = 8192
#: Tokens, experts, N and K of grouped products.
GROUPS = (16384, 16, 4096, 4096)
#: Extent of all in a quick run.
SMALL = 64
#: Calls of a peer between two waits.
EVERY = 20
#: Microseconds that a sample of messages should take, and multiplications in a microsecond.
SPAN, RATE = 30_000, 300e6
#: Seconds after which a kernel that is still being compiled is left out.
_PATIENCE = 70.0
#: Messages of a sample of the largest product.
FEWEST = 5


def gelu(acc: float) -> float:
    """Return an element of the epilogue: GELU by tanh, whose constants are multiplied out."""
    return acc / (1.0 + math.exp(acc * (-1.5957691216 - 0.0713548162726 * acc * acc)))


def gated(acc: float, gate: float) -> float:
    """Return an element of the epilogue: GELU by tanh, times a gate."""
    return acc * gate / (1.0 + math.exp(acc * (-1.5957691216 - 0.0713548162726 * acc * acc)))


class _Contender(NamedTuple):
    name: str
    make: Callable[[Any], Sends]
    count: int


def _add(setup: Setup, contenders: list[_Contender]) -> None:
    """Add the time of a message of each plan, sustained; their kernels compile together."""

    def made() -> tuple[float, dict[str, Future[Sends]]]:
        dev = device(setup, "process")
        pool = ThreadPoolExecutor(len(contenders))
        found = {one.name: pool.submit(one.make, dev) for one in contenders}
        pool.shutdown(wait=False)
        return time.monotonic() + _PATIENCE, found

    for one in contenders:
        with setup.attempt(one.name):
            until, found = setup.shared("sends", lambda: nullcontext(made()))
            try:
                sends = found[one.name].result(max(0.0, until - time.monotonic()))
            except TimeoutError:
                raise Unavailable(f"its kernel was not compiled in {_PATIENCE:.0f} s") from None
            sends.plan.wait(80.0)
            setup.add(one.name, sustained([sends], one.count))


def _count(setup: Setup, products: int) -> int:
    """Return how many messages a sample has."""
    return setup.count(int(max(FEWEST, min(5 * EVERY, SPAN * RATE // products))))


def _product(shape: tuple[int, ...], dtype: str, actor: str, dev: Any) -> Sends:
    m, n, k = shape
    x, w = on_atomr(dev, (m, k), dtype), on_atomr(dev, (n, k), dtype)
    short = {"fast_accum": True} if dtype.startswith("float8") else {}
    out = dev.zeros((m, n), "bfloat16" if short else dtype)
    if actor == "cutlass":
        return sends_of_product(dev.cutlass.plan(x, w.T, epilogue="acc", out=out, **short), x, w.T, out)
    return sends_of_product(dev.blas_lt.plan(x, w, trans_b=True, out_dtype=out.dtype, **short), x, w, out)


def _extents(setup: Setup, *extents: int) -> tuple[int, ...]:
    return extents if setup.effort is Effort.FULL else tuple(min(SMALL, one) for one in extents)


def _torch_products(ordinal: int) -> gpu_peers.Calls:
    torch = gpu_peers.torch(ordinal)

    def call(shape: tuple[int, ...], dtype: str) -> Any:
        m, n, k = shape
        x, w = (torch.randn(one, device="cuda", dtype=torch.bfloat16) for one in ((m, k), (n, k)))
        x, w = (one.to(getattr(torch, dtype)) for one in (x, w))
        if dtype.startswith("float8"):
            scale = torch.ones((), device="cuda")
            return lambda: torch._scaled_mm(
                x, w.T, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16, use_fast_accum=True
            )
        out = torch.empty((m, n), device="cuda", dtype=x.dtype)
        return lambda: torch.mm(x, w.T, out=out)

    calls = {f"{shape} {dtype}": call(shape, dtype) for dtype, shapes in SHAPES.items() for shape in shapes}
    return gpu_peers.Calls(calls, torch.cuda.synchronize)


def products(setup: Setup) -> None:
    """Time per product of M x K with weights (N, K), without an epilogue: by CUTLASS, by cuBLASLt, and torch.mm.

    Operands are random. Sums of float8 are short ones (``fast_accum``).
    """
    wanted = [(shape, dtype) for dtype, shapes in SHAPES.items() for shape in shapes]
    contenders = []
    for shape, dtype in wanted:
        what, small, count = _what(shape, dtype), _extents(setup, *shape), _count(setup, math.prod(shape))
        for name, actor in (("cutlass", "cutlass"), ("cublaslt", "blas_lt")):
            contenders.append(_Contender(f"{name}, {what}", partial(_product, small, dtype, actor), count))
    _add(setup, contenders)
    for shape, dtype in wanted:
        names = [f"{who}, {_what(shape, dtype)}" for who in ("cutlass", "cublaslt", "torch")]
        count = _count(setup, math.prod(shape))
        add_peer(setup, names[2], _torch_products, f"{shape} {dtype}", count, every=EVERY)
        setup.ratio(names[0], names[1])
        setup.ratio(names[0], names[2])


def _what(shape: tuple[int, ...], dtype: str) -> str:
    return f"{shape[0]} x {shape[1]} x {shape[2]}, {dtype}"


def config_of(schedule: str | None) -> Any:
    """Return the configuration of a row with the name of a schedule."""
    import atomr_native as an

    return None if schedule is None else an.GemmConfig(tile=(128, 128, 64), cluster=(2, 1, 1), schedule=schedule)


def _epilogue(size: int, epilogue: Any, reads: bool, schedule: str | None, dev: Any) -> Sends:
    x, w, gate = (on_atomr(dev, (size, size), "bfloat16") for _ in range(3))
    out = dev.zeros((size, size), "bfloat16")
    operands = {"gate": gate} if reads else None
    plan = dev.cutlass.plan(x, w.T, epilogue=epilogue, operands=operands, out=out, config=config_of(schedule))
    given = (x, w.T, gate, out) if reads else (x, w.T, out)

    def tells(count: int) -> None:
        for _ in range(count):
            plan.tell(*given)

    return Sends(plan, given, tells, partial(plan.ask, *given))


def _torch_chain(ordinal: int) -> gpu_peers.Calls:
    torch = gpu_peers.torch(ordinal)
    x, w, gate = (torch.randn((SQUARE, SQUARE), device="cuda", dtype=torch.bfloat16) for _ in range(3))

    def call() -> Any:
        return torch.nn.functional.gelu(torch.mm(x, w.T), approximate="tanh").mul_(gate)

    return gpu_peers.Calls({"chain": call}, torch.cuda.synchronize)


#: Epilogues by name, each with whether it reads a further matrix, and the schedule of its kernel.
EPILOGUES = {
    "plain": ("acc", False, None),
    "plain, pingpong": ("acc", False, "pingpong"),
    "GELU as text": ("gelu_tanh(acc)", False, None),
    "GELU in Python": (gelu, False, None),
    "plain plus a matrix": ("acc + gate", True, None),
    "gated GELU as text": ("gelu_tanh(acc) * gate", True, None),
    "gated GELU as text, pingpong": ("gelu_tanh(acc) * gate", True, "pingpong"),
    "gated GELU in Python": (gated, True, None),
}
#: Pairs whose ratios are shown; all have the same operands but those of the second group, which read a matrix more.
_OVER = (
    ("GELU as text", "plain"), ("GELU in Python", "plain"),
    ("gated GELU as text", "plain plus a matrix"), ("gated GELU in Python", "plain plus a matrix"),
    ("gated GELU as text", "plain"), ("gated GELU in Python", "plain"), ("plain, pingpong", "plain"),
    ("gated GELU as text, pingpong", "gated GELU as text"),
)  # fmt: skip


def epilogues(setup: Setup) -> None:
    """Time per product of 8192^3 in bfloat16: plain; with GELU as text and in Python; and with a gate, by torch, too.

    Operands are random.  Rows without the name of a schedule have cooperative kernels, with 128 x 256 tiles; pingpong
    kernels have 128 x 128.
    """
    (size,) = _extents(setup, SQUARE)
    rows = [
        _Contender(f"{name}, {SQUARE}^3", partial(_epilogue, size, *how), setup.count(EVERY))
        for name, how in EPILOGUES.items()
    ]
    _add(setup, rows)
    peer = f"torch mm, gelu, mul, {SQUARE}^3"
    add_peer(setup, peer, _torch_chain, "chain", setup.count(EVERY), every=EVERY)
    for one, other in _OVER:
        setup.ratio(f"{one}, {SQUARE}^3", f"{other}, {SQUARE}^3")
    for name in ("gated GELU as text", "gated GELU in Python"):
        setup.ratio(f"{name}, {SQUARE}^3", peer)


def _grouped(extents: tuple[int, ...], dev: Any) -> Sends:
    import numpy as np

    tokens, experts, n, k = extents
    x, w = on_atomr(dev, (tokens, k), "bfloat16"), on_atomr(dev, (experts * n, k), "bfloat16").reshape(experts, n, k)
    out = dev.zeros((tokens, n), "bfloat16")
    ends = dev.put(np.linspace(tokens / experts, tokens, experts).astype("int32"))
    plan = dev.cutlass.plan_grouped(x, w.mT, ends, epilogue="acc", out=out)
    given = (x, w.mT, ends, out)

    def tells(count: int) -> None:
        for _ in range(count):
            plan.tell(*given)

    return Sends(plan, given, tells, partial(plan.ask, *given))


def _torch_grouped(ordinal: int) -> gpu_peers.Calls:
    torch = gpu_peers.torch(ordinal)
    tokens, experts, n, k = GROUPS
    x, w, out = (
        torch.randn(one, device="cuda", dtype=torch.bfloat16) for one in ((tokens, k), (experts, n, k), (tokens, n))
    )
    each = tokens // experts
    ends = torch.arange(each, tokens + 1, each, device="cuda", dtype=torch.int32)

    def loop() -> None:
        for g in range(experts):
            torch.mm(x[g * each : (g + 1) * each], w[g].T, out=out[g * each : (g + 1) * each])

    calls: dict[str, Any] = {"loop": loop}
    if hasattr(torch, "_grouped_mm"):
        calls["grouped"] = lambda: torch._grouped_mm(x, w.transpose(1, 2), offs=ends)
    return gpu_peers.Calls(calls, torch.cuda.synchronize)


#: torch's ways to a grouped product.
_GROUPED = {"torch.mm in a loop": "loop", "torch._grouped_mm": "grouped"}


def groups(setup: Setup) -> None:
    """Time per product of 16 groups of 1024 tokens with (4096, 4096) each, bfloat16; torch's loop and `_grouped_mm`."""
    name = "grouped_gemm"
    _add(setup, [_Contender(name, partial(_grouped, _extents(setup, *GROUPS)), setup.count(EVERY))])
    for peer, call in _GROUPED.items():
        add_peer(setup, peer, _torch_grouped, call, setup.count(EVERY), every=EVERY)
        setup.ratio(name, peer)


BARS = (
    *(
        Bar(
            "products of CUTLASS over cuBLASLt's",
            "gpu_cutlass_products",
            f"cutlass, {_what(shape, dtype)}",
            1.053,
            "x",
            f"cublaslt, {_what(shape, dtype)}",
            part=_what(shape, dtype),
        )
        for dtype, shapes in SHAPES.items()
        for shape in shapes
    ),
    *(
        Bar(
            "epilogues of CUTLASS over the plain product",
            "gpu_cutlass_epilogues",
            f"{name}, {SQUARE}^3",
            1.03,
            "x",
            f"plain, {SQUARE}^3",
            part=name,
        )
        for name in ("GELU as text", "GELU in Python")
    ),
    *(
        Bar(
            "grouped products of CUTLASS over torch's",
            "gpu_cutlass_groups",
            "grouped_gemm",
            1.0,
            "x",
            peer,
            part=peer,
        )
        for peer in _GROUPED
    ),
)
_ON = ("cuda",)
CASES = (
    Case("gpu_cutlass_products", "Products by CUTLASS, cuBLASLt and torch", products, devices=_ON),
    Case("gpu_cutlass_epilogues", "Epilogues of CUTLASS over the plain product", epilogues, devices=_ON),
    Case("gpu_cutlass_groups", "Grouped products by CUTLASS and torch", groups, devices=_ON),
)
