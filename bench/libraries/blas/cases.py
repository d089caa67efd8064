"""Routines of `device.blas`: what their messages cost, beside SciPy's BLAS, and beside cuBLAS in C, CuPy and torch."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.harness import Case, Setup, gpu_peers
from bench.harness.calls import Operation, add_calls
from bench.harness.common import PLACES, repeat, timed
from bench.harness.gpu import add_loop, add_peer

__all__ = ["CASES"]

#: Elements of the vectors, rows of the matrices, and columns of the right sides: as in twin.c.
ELEMENTS = 1024
ROWS, COLUMNS = 64, 16
AXPY, TRSM = f"axpy, {ELEMENTS}", f"trsm, {ROWS} x {COLUMNS}"
#: Calls of a peer between two waits.
EVERY = 500


def _axpy(dev: Any) -> Operation:
    x, y = (dev.zeros((ELEMENTS,), "float32") for _ in range(2))
    plan = dev.blas.plan("axpy", x=x, out=y)
    return Operation(plan, {"x": x, "out": y}, partial(dev.blas.axpy, x, y), y)


def _trsm(dev: Any) -> Operation:
    """A unit triangular solve, of zeros: the values change neither the work nor the result."""
    a, b = dev.zeros((ROWS, ROWS), "float32"), dev.zeros((ROWS, COLUMNS), "float32")
    plan = dev.blas.plan("trsm", a=a, out=b, unit=True)
    return Operation(plan, {"a": a, "out": b}, partial(dev.blas.trsm, a, b, unit=True), b)


def host(setup: Setup) -> None:
    """``y += x`` of 1024 float32 on the host device.

    *told*, *called*: cost to the caller, by the plan and by the method, 2000 a sample. *asked*: until the reply, 500.
    *sustained*: 2000 told, until the last is done. SciPy does the work at once, in the caller.
    """
    add_calls(setup, AXPY, _axpy)
    peer = f"SciPy saxpy, {ELEMENTS}"
    with setup.attempt(peer, kind="peer"):
        import numpy as np
        from scipy.linalg import blas

        x, y = (np.zeros(ELEMENTS, np.float32) for _ in range(2))
        setup.add(peer, timed(repeat(partial(blas.saxpy, x, y)), setup.count(2000)))
    for place in PLACES:
        setup.ratio(f"atomr {AXPY}, sustained, {place}", peer)


def _torch(ordinal: int) -> gpu_peers.Calls:
    torch = gpu_peers.torch(ordinal)
    x, y = (torch.zeros(ELEMENTS, device="cuda") for _ in range(2))
    a, b = torch.zeros((ROWS, ROWS), device="cuda"), torch.zeros((ROWS, COLUMNS), device="cuda")
    solve = partial(torch.linalg.solve_triangular, a, b, upper=False, unitriangular=True, out=torch.empty_like(b))
    return gpu_peers.Calls({"axpy": partial(y.add_, x), "trsm": solve}, torch.cuda.synchronize)


def _cupy(ordinal: int) -> gpu_peers.Calls:
    cupy = gpu_peers.cupy(ordinal)
    from cupy import cublas  # type: ignore[import-not-found,import-untyped,unused-ignore]

    x, y = (cupy.zeros(ELEMENTS, "float32") for _ in range(2))
    return gpu_peers.Calls({"axpy": partial(cublas.axpy, 1.0, x, y)}, cupy.cuda.Device(ordinal).synchronize)


def gpu(setup: Setup) -> None:
    """``y += x`` of 1024 float32, and a triangular solve of 64 x 64 with 16 right sides, on a GPU.

    As on the host device. C: `cublasSaxpy` and `cublasStrsm` in a loop, for the caller, until the last of them is done,
    and with a synchronize each. CuPy: ``cupy.cublas.axpy``. torch: ``add_`` and ``linalg.solve_triangular(out=)``; the
    peers' calls are waited for 500 at a time.
    """
    add_calls(setup, AXPY, _axpy)
    add_calls(setup, TRSM, _trsm)
    count, few = setup.count(2000), setup.count(EVERY)
    for what, call in ((AXPY, "saxpy"), (TRSM, "strsm")):
        add_loop(setup, f"C {what}, caller", call, few)
        add_loop(setup, f"C {what}, sustained", f"{call}-sustained", count)
        add_loop(setup, f"C {what}, synchronize", f"{call}-synchronize", few)
        add_peer(setup, f"torch {what}, sustained", _torch, call[1:], few, every=EVERY)
        for place in PLACES:
            setup.ratio(f"atomr {what}, sustained, {place}", f"C {what}, sustained")
            setup.ratio(f"atomr {what}, asked, {place}", f"C {what}, synchronize")
        setup.ratio(f"atomr {what}, sustained, process", f"torch {what}, sustained")
    add_peer(setup, f"CuPy {AXPY}, sustained", _cupy, "axpy", few, every=EVERY)
    setup.ratio(f"atomr {AXPY}, sustained, process", f"CuPy {AXPY}, sustained")


CASES = (
    Case("blas", "BLAS routines", host),
    Case("gpu_blas", "BLAS routines on a GPU", gpu, devices=("cuda",)),
)
