"""Products of `device.cutlass`: what their messages cost, and how fast their kernels are beside cuBLASLt and torch."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.harness import Bar, Case, Effort, Setup, gpu_peers
from bench.harness.calls import Operation, add_calls
from bench.harness.common import PLACES, repeat, timed
from bench.harness.gpu import add_peer

__all__ = ["BARS", "BIAS", "CASES", "SIZES"]

#: Extents of the products, on the host device (and in a quick run), and on a GPU, with how many messages a sample has
#: there: told, and asked.
HOST_SIZE = 64
SIZES = {128: (2000, 500), 2048: (400, 100), 8192: (20, 10)}
BIAS = "relu(acc + bias)"
#: Calls of a peer between two waits.
EVERY = 20


def _operation(size: int, dtype: str, dev: Any) -> Operation:
    a, b, out = (dev.zeros((size, size), dtype) for _ in range(3))
    bias = dev.zeros((size,), dtype)
    options = {"epilogue": BIAS, "operands": {"bias": bias}, "out": out}
    plan = dev.cutlass.plan(a, b, **options)
    return Operation(plan, {"a": a, "b": b, "bias": bias, "out": out}, partial(dev.cutlass.gemm, a, b, **options), out)


def _title(size: int, dtype: str) -> str:
    return f"{BIAS}, {size}^3, {dtype}"


def host(setup: Setup) -> None:
    """A product of 64^3 with bias and ReLU on the host device, float32; NumPy does the work at once, in the caller."""
    title = _title(HOST_SIZE, "float32")
    add_calls(setup, title, partial(_operation, HOST_SIZE, "float32"))
    peer = f"NumPy {title}"
    with setup.attempt(peer, kind="peer"):
        import numpy as np

        a, b = (np.zeros((HOST_SIZE, HOST_SIZE), np.float32) for _ in range(2))
        bias = np.zeros(HOST_SIZE, np.float32)
        setup.add(peer, timed(repeat(lambda: np.maximum(a @ b + bias, 0)), setup.count(2000)))
    for place in PLACES:
        setup.ratio(f"atomr {title}, sustained, {place}", peer)


def _torch(ordinal: int) -> gpu_peers.Calls:
    torch = gpu_peers.torch(ordinal)

    def call(size: int) -> Any:
        a, b = (torch.zeros((size, size), device="cuda", dtype=torch.bfloat16) for _ in range(2))
        bias = torch.zeros(size, device="cuda", dtype=torch.bfloat16)
        return lambda: torch.relu_(torch.addmm(bias, a, b))

    return gpu_peers.Calls({str(size): call(size) for size in SIZES}, torch.cuda.synchronize)


def gpu(setup: Setup) -> None:
    """Products of bfloat16 with bias and ReLU on a GPU: told, called, asked and sustained; torch's two calls beside.

    The smallest one, sustained, is what a message costs in the lane, if the GPU needs less.
    """
    for size, (many, few) in SIZES.items():
        title = _title(size, "bfloat16")
        extent = size if setup.effort is Effort.FULL else HOST_SIZE
        add_calls(setup, title, partial(_operation, extent, "bfloat16"), many=many, few=few)
        add_peer(setup, f"torch {title}, sustained", _torch, str(size), setup.count(EVERY), every=EVERY)
        setup.ratio(f"atomr {title}, sustained, process", f"torch {title}, sustained")


BARS = (
    Bar(
        "message of a CUTLASS product, sustained",
        "gpu_cutlass",
        f"atomr {_title(min(SIZES), 'bfloat16')}, sustained, process",
        5.0,
        "us",
    ),
)
CASES = (
    Case("cutlass", "products with epilogues by CUTLASS", host),
    Case("gpu_cutlass", "products with epilogues by CUTLASS on a GPU", gpu, devices=("cuda",)),
)
