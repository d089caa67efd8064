"""Kernels of `device.cutlass` beside cuBLASLt's and torch's: products, epilogues, groups, and what compiling takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.harness import Case, Effort, Setup, gpu_peers
from bench.harness.common import device
from bench.harness.gpu import Sends, add_peer, sends_of_product, sustained

__all__ = ["CASES"]

#: M, N and K: squares, and layers of language models.
SHAPES = ((2048,) * 3, (4096,) * 3, (8192,) * 3, (16, 14336, 4096), (512, 4096, 14336), (8192, 14336, 4096))
DTYPES = ("bfloat16", "float16")
#: Extent of the products with epilogues.
SQUARE = 8192
#: Tokens, experts, N and K of grouped products.
GROUPS = (16384, 16, 4096, 4096)
#: Extent of all in a quick run.
SMALL = 64
#: Calls of a peer between two waits.
EVERY = 20


def gelu(acc: float, gate: float) -> float:
    """Return an element of the epilogue: GELU by tanh, times a gate."""
    inner = 0.7978845608 * acc * (1.0 + 0.044715 * acc * acc)
    return acc * gate / (1.0 + math.exp(-2.0 * inner))


def _add(setup: Setup, name: str, make: Callable[[Any], Sends], count: int) -> None:
    """Add the time of a message of a plan, sustained."""
    with setup.attempt(name):
        sends = make(device(setup, "process"))
        sends.plan.wait(80.0)
        setup.add(name, sustained([sends], count))


def _product(shape: tuple[int, int, int], dtype: str, actor: str, dev: Any) -> Sends:
    m, n, k = shape
    x, w, out = (dev.zeros(one, dtype) for one in ((m, k), (n, k), (m, n)))
    if actor == "cutlass":
        return sends_of_product(dev.cutlass.plan(x, w.T, epilogue="acc", out=out), x, w.T, out)
    return sends_of_product(dev.blas_lt.plan(x, w, trans_b=True), x, w, out)


def _extents(setup: Setup, *extents: int) -> tuple[int, ...]:
    return extents if setup.effort is Effort.FULL else tuple(min(SMALL, one) for one in extents)


def _torch_products(ordinal: int) -> gpu_peers.Calls:
    torch = gpu_peers.torch(ordinal)

    def call(shape: tuple[int, int, int], dtype: str) -> Any:
        m, n, k = shape
        x, w, out = (torch.zeros(one, device="cuda", dtype=getattr(torch, dtype)) for one in ((m, k), (n, k), (m, n)))
        return lambda: torch.mm(x, w.T, out=out)

    calls = {f"{shape} {dtype}": call(shape, dtype) for shape in SHAPES for dtype in DTYPES}
    return gpu_peers.Calls(calls, torch.cuda.synchronize)


def products(setup: Setup) -> None:
    """Time per product of M x K with weights (N, K), without an epilogue: by CUTLASS, by cuBLASLt, and torch.mm."""
    for shape in SHAPES:
        for dtype in DTYPES:
            what, small = f"{shape[0]} x {shape[1]} x {shape[2]}, {dtype}", _extents(setup, *shape)
            names = [f"{who}, {what}" for who in ("cutlass", "cublaslt", "torch")]
            for name, actor in zip(names, ("cutlass", "blas_lt"), strict=False):
                _add(setup, name, partial(_product, small, dtype, actor), setup.count(100))
            add_peer(setup, names[2], _torch_products, f"{shape} {dtype}", setup.count(100), every=EVERY)
            setup.ratio(names[0], names[1])
            setup.ratio(names[0], names[2])


def _epilogue(size: int, epilogue: Any, dev: Any) -> Sends:
    x, w, out, gate = (dev.zeros((size, size), "bfloat16") for _ in range(4))
    operands = None if epilogue == "acc" else {"gate": gate}
    plan = dev.cutlass.plan(x, w.T, epilogue=epilogue, operands=operands, out=out)
    given = (x, w.T, out) if operands is None else (x, w.T, gate, out)

    def tells(count: int) -> None:
        for _ in range(count):
            plan.tell(*given)

    return Sends(plan, given, tells, partial(plan.ask, *given))


def _torch_chain(ordinal: int) -> gpu_peers.Calls:
    torch = gpu_peers.torch(ordinal)
    x, w, gate = (torch.zeros((SQUARE, SQUARE), device="cuda", dtype=torch.bfloat16) for _ in range(3))

    def call() -> Any:
        return torch.nn.functional.gelu(torch.mm(x, w.T), approximate="tanh").mul_(gate)

    return gpu_peers.Calls({"chain": call}, torch.cuda.synchronize)


def epilogues(setup: Setup) -> None:
    """Time per product of 8192^3 in bfloat16: plain; with GELU and a gate as text and in Python; and torch's chain."""
    (size,) = _extents(setup, SQUARE)
    plain = f"plain, {SQUARE}^3"
    for name, epilogue in (
        (plain, "acc"), (f"text, {SQUARE}^3", "gelu_tanh(acc) * gate"), (f"Python function, {SQUARE}^3", gelu)
    ):  # fmt: skip
        _add(setup, name, partial(_epilogue, size, epilogue), setup.count(50))
        if name != plain:
            setup.ratio(name, plain)
    peer = f"torch mm, gelu, mul, {SQUARE}^3"
    add_peer(setup, peer, _torch_chain, "chain", setup.count(50), every=EVERY)
    for name in (f"text, {SQUARE}^3", f"Python function, {SQUARE}^3"):
        setup.ratio(name, peer)


def _grouped(extents: tuple[int, ...], dev: Any) -> Sends:
    import numpy as np

    tokens, experts, n, k = extents
    x, w, out = (dev.zeros(one, "bfloat16") for one in ((tokens, k), (experts, n, k), (tokens, n)))
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
        torch.zeros(one, device="cuda", dtype=torch.bfloat16) for one in ((tokens, k), (experts, n, k), (tokens, n))
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


def groups(setup: Setup) -> None:
    """Time per product of 16 groups of 1024 tokens with (4096, 4096) each, bfloat16; torch's loop and `_grouped_mm`."""
    name = "grouped_gemm"
    _add(setup, name, partial(_grouped, _extents(setup, *GROUPS)), setup.count(50))
    for peer, call in (("torch.mm in a loop", "loop"), ("torch._grouped_mm", "grouped")):
        add_peer(setup, peer, _torch_grouped, call, setup.count(50), every=EVERY)
        setup.ratio(name, peer)


_ON = ("cuda",)
CASES = (
    Case("gpu_cutlass_products", "Products by CUTLASS, cuBLASLt and torch", products, devices=_ON),
    Case("gpu_cutlass_epilogues", "Epilogues of CUTLASS over the plain product", epilogues, devices=_ON),
    Case("gpu_cutlass_groups", "Grouped products by CUTLASS and torch", groups, devices=_ON),
)
