"""Memory of a GPU: allocate and free, and what an eager loop needs at its peak."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.harness import Bar, Case, Setup, gpu_peers
from bench.harness.common import PLACES, Body, device, timed
from bench.harness.gpu import add_loop, ordinal

__all__ = ["BARS", "CASES"]

MIB_SHAPE = (512, 512)
MIB = 2**20
LAYERS = 3
STEPS = 50
ROWS, WIDTH = 16384, 4096
SMALL = 256


def _cycle(empty: Callable[..., Any], dtype: object) -> Body:
    def body(count: int) -> None:
        make, shape, kind = empty, MIB_SHAPE, dtype
        for _ in range(count):
            made = make(shape, kind)
            del made

    return body


def _torch_cycle(empty: Callable[..., Any], dtype: object) -> Body:
    def body(count: int) -> None:
        make, shape, kind = empty, MIB_SHAPE, dtype
        for _ in range(count):
            made = make(shape, dtype=kind, device="cuda")
            del made

    return body


def allocate(setup: Setup) -> None:
    """Allocate 1 MiB on the device, and free it: handle and memory, 10 000 times a sample, the loop included.

    ``x = dev.empty((512, 512), "float32"); del x``, and the same with torch and CuPy. C: `cuMemAllocAsync` and
    `cuMemFreeAsync` on one stream, which is what `cudaMallocAsync` calls.
    """
    count = setup.count(10_000)
    for place in PLACES:
        name = f"atomr empty + del, 1 MiB, {place}"
        with setup.attempt(name):
            setup.add(name, timed(_cycle(device(setup, place).empty, "float32"), count))
    add_loop(setup, "C cuMemAllocAsync + cuMemFreeAsync", "allocate-free", count)
    with setup.attempt("torch.empty + del, 1 MiB", kind="peer"):
        setup.need()
        torch = gpu_peers.torch(ordinal(setup))
        setup.add("torch.empty + del, 1 MiB", timed(_torch_cycle(torch.empty, torch.float32), count))
    with setup.attempt("cupy.empty + del, 1 MiB", kind="peer"):
        setup.need()
        cupy = gpu_peers.cupy(ordinal(setup))
        setup.add("cupy.empty + del, 1 MiB", timed(_cycle(cupy.empty, cupy.float32), count))
    for under in ("C cuMemAllocAsync + cuMemFreeAsync", "torch.empty + del, 1 MiB", "cupy.empty + del, 1 MiB"):
        setup.ratio("atomr empty + del, 1 MiB, process", under)


# ---------------------------------------------------------------------------------------------- an eager loop


def _pools(dev: Any) -> tuple[int, int]:
    """Bytes of segments, and those of them that arrays hold."""
    memory = dev.stats()["memory"]
    held = sum(memory["pools"][name]["in_use"] + memory["pools"][name]["deferred"] for name in ("volatile", "durable"))
    return memory["reserved"], held


def _loop(dev: Any, steps: int, rows: int, width: int) -> Callable[[], dict[str, float]]:
    import numpy as np

    def ones(*shape: int) -> Any:
        return dev.put(np.full(shape, 0.01, np.float32), "bfloat16")

    layers = [(ones(width, width), ones(width)) for _ in range(LAYERS)]
    x = ones(rows, width)
    matmul, run = dev.blas_lt.matmul, dev.elementwise.run

    def sample() -> dict[str, float]:
        dev.trim()
        for _ in range(steps):
            h = x
            for w, b in layers:
                h = matmul(h, w, bias=b, epilogue="bias")
                h = run("relu(h)", h=h)
        h.wait()
        reserved, held = _pools(dev)[0], 0  # segments go back only by `trim`
        for _ in range(2):
            h = x
            for w, b in layers:
                made = matmul(h, w, bias=b, epilogue="bias")
                held = max(held, _pools(dev)[1])
                h = made
                del made
                made = run("relu(h)", h=h)
                held = max(held, _pools(dev)[1])
                h = made
                del made
        return {"reserved": reserved / MIB, "held": held / MIB}

    return sample


def _torch_loop(torch: Any, steps: int, rows: int, width: int) -> Callable[[], dict[str, float]]:
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved(), torch.cuda.memory_allocated()

    def ones(*shape: int) -> Any:
        return torch.full(shape, 0.01, dtype=torch.bfloat16, device="cuda")

    layers = [(ones(width, width), ones(width)) for _ in range(LAYERS)]
    x = ones(rows, width)

    def sample() -> dict[str, float]:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        with torch.no_grad():
            for _ in range(steps):
                h = x
                for w, b in layers:
                    h = torch.addmm(b, h, w)
                    h = torch.relu(h)
        torch.cuda.synchronize()
        return {
            "reserved": (torch.cuda.max_memory_reserved() - before[0]) / MIB,
            "held": (torch.cuda.max_memory_allocated() - before[1]) / MIB,
        }

    return sample


def eager(setup: Setup) -> None:
    """Peak memory of an eager loop: 50 forward passes of three layers, ``h = relu(h @ w + b)``, in bfloat16.

    Input and intermediate results are 16384 x 4096, weights 4096 x 4096. Every intermediate result is a new array,
    dropped when the next one is there, and nothing waits for the device, so that the host is many layers ahead.
    *reserved*: what was taken from the driver, at most; *held*: what arrays held at most, weights and input
    included. atomr: ``dev.stats()`` after the loop, and after each operation of two more passes, before what it read
    is dropped; segments are of 64 MiB or more. torch: ``max_memory_reserved`` and ``max_memory_allocated``. Workspaces
    for cuBLAS count where a library takes them from that memory. The context does not count.
    """
    steps = setup.count(STEPS)
    rows, width = (ROWS, WIDTH) if steps == STEPS else (SMALL, SMALL)
    for place in PLACES:
        name = f"atomr {place}"
        with setup.attempt(name):
            setup.add(name, _loop(device(setup, place), steps, rows, width))
    with setup.attempt("torch", kind="peer"):
        setup.need()
        setup.add("torch", _torch_loop(gpu_peers.torch(ordinal(setup)), steps, rows, width))
    for place in PLACES:
        for what in ("reserved", "held"):
            setup.ratio(f"atomr {place}: {what}", f"torch: {what}")


BARS = (
    *(Bar("allocate + free", "gpu_alloc", f"atomr empty + del, 1 MiB, {p}", 0.3, "us", part=p) for p in PLACES),
    *(
        Bar(f"eager loop, memory {what}", "gpu_eager", f"atomr {p}: {what}", 1.0, "x", f"torch: {what}", p)
        for what in ("reserved", "held")
        for p in PLACES
    ),
)
CASES = (
    Case("gpu_alloc", "Allocate + free on a GPU", allocate, devices=("cuda",)),
    Case("gpu_eager", "Peak memory of an eager loop", eager, unit="MiB", rounds=7, devices=("cuda",)),
)
