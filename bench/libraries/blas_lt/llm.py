"""Products of the layers of language models: few rows, weights as (N, K); beside torch at its best, and loops in C."""

from __future__ import annotations

from bench.harness import Bar, Case, Effort, Setup
from bench.harness.common import device
from bench.harness.gpu import Sends, add_loop, sends_of_product, sustained
from bench.harness.matrices import on_atomr
from bench.libraries.blas_lt._gemm import (
    Product,
    add_atomr,
    add_atomr_recorded,
    add_torch,
    add_torch_graph,
)

__all__ = ["BARS", "CASES"]

ROWS = (1, 8, 64, 256, 2048)
#: N and K of the weights.
WEIGHTS = ((4096, 4096), (14336, 4096), (4096, 14336), (128256, 4096))
PRODUCTS = tuple(Product(m, n, k, "bfloat16", turned=True) for n, k in WEIGHTS for m in ROWS)
MEAN = "mean of layers"
#: Rows of the layers that C loops over, whose weights are (14336, 4096), and what the loops are called in twin.c.
LOOPS = {8: "layer-8", 64: "layer-64"}
_N, _K = 14336, 4096
_SMALL = 32
#: Ways of the library, and the one of torch with the same freedom: calls one by one, or all at once.
_PEERS = {
    "atomr": "torch", "atomr tuned": "torch", "atomr recorded": "torch graph", "atomr tuned, recorded": "torch graph",
}  # fmt: skip


def layers(setup: Setup) -> None:
    """Time per product of M rows with weights (N, K) in bfloat16, counted as in the products of squares.

    *tuned*: ``tune=True``, and what it found. *recorded*: all of a sample in one recorded plan. torch:
    ``torch.mm(out=)``, and all in one CUDA graph. Operands are taken in turn from sets that together are larger than
    the L2 cache. The means are geometric ones, of all layers.
    """
    members: dict[str, list[str]] = {who: [] for who in (*_PEERS, "torch", "torch graph")}
    for product in PRODUCTS:
        names = {who: f"{who}, {product.label}" for who in members}
        add_atomr(setup, names["atomr"], product)
        add_atomr(setup, names["atomr tuned"], product, tune=True)
        add_atomr_recorded(setup, names["atomr recorded"], product)
        add_atomr_recorded(setup, names["atomr tuned, recorded"], product, tune=True)
        add_torch(setup, names["torch"], product)
        add_torch_graph(setup, names["torch graph"], product)
        for who, name in names.items():
            members[who].append(name)
        for ours, theirs in _PEERS.items():
            setup.ratio(names[ours], names[theirs])
    for who, names_of in members.items():
        setup.mean(f"{who}, {MEAN}", names_of, "peer" if who.startswith("torch") else "atomr")
    for ours, theirs in _PEERS.items():
        setup.ratio(f"{ours}, {MEAN}", f"{theirs}, {MEAN}")


def _sends(setup: Setup, rows: int, *, tune: bool) -> Sends:
    dev = device(setup, "process")
    n, k = (_N, _K) if setup.effort is Effort.FULL else (_SMALL, _SMALL)
    x, w, out = (on_atomr(dev, shape, "bfloat16") for shape in ((rows, k), (n, k), (rows, n)))
    return sends_of_product(dev.blas_lt.plan(x, w, trans_b=True, tune=tune).wait(80.0), x, w, out)


def stream(setup: Setup) -> None:
    """Time per product of 8 and 64 rows with weights (14336, 4096) in bfloat16, one after the other in one lane.

    The same operands each time; the weights are larger than the L2 cache. 400 planned messages, until the last is done.
    C: `cublasLtMatmul` with the same algorithm, the graph of one such call, and with the fastest of the eight
    algorithms that the library lists (*best*).
    """
    count = setup.count(400)
    for rows, loop in LOOPS.items():
        for who, tune in (("atomr", False), ("atomr tuned", True)):
            with setup.attempt(f"{who}, {rows} rows"):
                setup.add(f"{who}, {rows} rows", sustained([_sends(setup, rows, tune=tune)], count))
        full = setup.effort is Effort.FULL
        add_loop(setup, f"C cublasLtMatmul, {rows} rows", f"{loop}-sustained" if full else "matmul-sustained", count)
        add_loop(
            setup, f"C cuGraphLaunch, {rows} rows", f"{loop}-graph-sustained" if full else "matmul-sustained", count
        )
        add_loop(setup, f"C cublasLtMatmul, best, {rows} rows", f"{loop}-best" if full else "matmul-sustained", count)
        setup.ratio(f"atomr, {rows} rows", f"C cublasLtMatmul, {rows} rows")
        setup.ratio(f"atomr, {rows} rows", f"C cuGraphLaunch, {rows} rows")
        setup.ratio(f"atomr tuned, {rows} rows", f"C cublasLtMatmul, best, {rows} rows")


BARS = (
    *(
        Bar(f"layers of language models over {theirs}, mean", "gpu_llm", f"{who}, {MEAN}",
            0.97 if "tuned" in who else 1.0, "x", f"{theirs}, {MEAN}", part="tuned" if "tuned" in who else "plain")
        for who, theirs in _PEERS.items()
    ),
    *(
        Bar("products of 30 us in a lane over the C loop", "gpu_stream", f"atomr, {rows} rows", 1.01, "x",
            f"C cublasLtMatmul, {rows} rows", part=f"{rows} rows")
        for rows in LOOPS
    ),
    *(
        Bar("tuned products over the fastest of eight algorithms in C", "gpu_stream", f"atomr tuned, {rows} rows", 1.01,
            "x", f"C cublasLtMatmul, best, {rows} rows", part=f"{rows} rows")
        for rows in LOOPS
    ),
)  # fmt: skip
_ON = ("cuda",)
CASES = (
    Case("gpu_llm", "Layers of language models in bfloat16", layers, rounds=25, devices=_ON, share=2.0),
    Case("gpu_stream", "Products of 30 us, one after the other", stream, devices=_ON),
)
