"""Sparse matrices: what their messages cost beside SciPy, and beside CuPy and torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.harness import Case, Setup, gpu_peers
from bench.harness.bars import Bar
from bench.harness.calls import Operation, add_calls, add_sustained
from bench.harness.common import repeat, timed
from bench.harness.gpu import add_peer
from bench.libraries.sparse._calls import add_call
from bench.libraries.sparse._matrices import stencil

__all__ = ["BARS", "CASES"]

#: Points along each side of the cubes of the stencils, on the host device and on a GPU.
HOST_SIDE = 12
SIDES = (32, 128)
#: Columns of the dense matrices.
COLUMNS = 16
#: Calls of a peer between two waits.
EVERY = 100
ROUTINES = ("spmv", "spmm")


def _operation(routine: str, side: int) -> Callable[[Any], Operation]:
    def make(dev: Any) -> Operation:
        import atomr_native as an

        a = dev.sparse.matrix(stencil(side))
        n = a.shape[0]
        shape = (n,) if routine == "spmv" else (n, COLUMNS)
        x, out = dev.ones(shape), dev.zeros(shape)
        request = an.SparseProductRequest(
            routine=routine, format="csr", shape=a.shape, longest=a.longest, **a.arrays, x=x, out=out
        )
        call = partial(getattr(dev.sparse, routine), a, x, out=out)
        return Operation(dev.sparse.plan(request), {**a.arrays, "x": x, "out": out}, call, out)

    return make


def _title(routine: str, side: int) -> str:
    dense = "a vector" if routine == "spmv" else f"{COLUMNS} columns"
    return f"{routine}, 7-point stencil of {side}^3 times {dense}"


def host(setup: Setup) -> None:
    """Products of a 7-point stencil on the host device, float32 CSR: told, called, asked and sustained.

    SciPy does the work at once, in the caller.
    """
    for routine in ROUTINES:
        add_calls(setup, _title(routine, HOST_SIDE), _operation(routine, HOST_SIDE))
        with setup.attempt(peer := f"SciPy {_title(routine, HOST_SIDE)}", kind="peer"):
            import numpy as np

            a = stencil(HOST_SIDE)
            x = np.ones(a.shape[1] if routine == "spmv" else (a.shape[1], COLUMNS), np.float32)
            setup.add(peer, timed(repeat(partial(a.__matmul__, x)), setup.count(500)))


def _peer(library: str, side: int, ordinal: int) -> gpu_peers.Calls:
    a = stencil(side)
    if library == "torch":
        torch = gpu_peers.torch(ordinal)
        parts = [torch.from_numpy(part).to("cuda") for part in (a.indptr, a.indices, a.data)]
        matrix = torch.sparse_csr_tensor(*parts, a.shape)
        x, wide = torch.ones(a.shape[1], device="cuda"), torch.ones((a.shape[1], COLUMNS), device="cuda")
        calls = {"spmv": partial(torch.mv, matrix, x), "spmm": partial(torch.mm, matrix, wide)}
        return gpu_peers.Calls(calls, torch.cuda.synchronize)
    cupy = gpu_peers.cupy(ordinal)
    import cupyx.scipy.sparse

    theirs = cupyx.scipy.sparse.csr_matrix(a)
    x, wide = cupy.ones(a.shape[1], "f4"), cupy.ones((a.shape[1], COLUMNS), "f4")
    calls = {"spmv": partial(theirs.__matmul__, x), "spmm": partial(theirs.__matmul__, wide)}
    return gpu_peers.Calls(calls, cupy.cuda.Device(ordinal).synchronize)


def _bytes(side: int) -> int:
    """Return what a product with a vector reads and writes at least."""
    a = stencil(side)
    return int(8 * a.nnz + 12 * a.shape[0])


def gpu(setup: Setup) -> None:
    """Products of 7-point stencils on a GPU, float32 CSR.

    The smaller as on the host device. torch and CuPy: their products, which call cuSPARSE and allocate results. C call:
    ``cusparseSpMV`` through ctypes.  A copy moves as many bytes as the product with a vector must.
    """
    for side in SIDES:
        makers = {library: partial(_peer, library, side) for library in ("torch", "CuPy")}
        for routine in ROUTINES:
            what = _title(routine, side)
            ours = f"atomr {what}, sustained, process"
            if side == min(SIDES):
                add_calls(setup, what, _operation(routine, side), many=500, few=100)
            else:
                add_sustained(setup, what, _operation(routine, side), many=200)
            for library, make in makers.items():
                add_peer(setup, f"{library} {what}, sustained", make, routine, setup.count(200), every=EVERY)
                setup.ratio(ours, f"{library} {what}, sustained")
            if routine == "spmv":
                count = setup.count(500)
                add_call(setup, f"C call {what}", lambda library, n=side: library.spmv(stencil(n)), count, of=ours)
                if side == max(SIDES):
                    copy = f"copy of the bytes of {what}"
                    add_call(setup, copy, lambda library, n=side: library.copy(_bytes(n)), count, of=ours)


CASES = (
    Case("sparse", "Sparse matrices", host),
    Case("gpu_sparse", "Sparse matrices on a GPU", gpu, devices=("cuda",)),
)
#: As fast as peers and within 1.15 of the C call; the product with a vector at 75 % of the bandwidth of a copy.
BARS = (
    *(
        Bar(
            "sparse products over peers", "gpu_sparse", f"atomr {_title(routine, side)}, sustained, process", 1.0, "x",
            f"{library} {_title(routine, side)}, sustained", f"{_title(routine, side)}, beside {library}",
        )
        for side in SIDES
        for routine in ROUTINES
        for library in ("torch", "CuPy")
    ),
    *(
        Bar(
            "sparse products over C", "gpu_sparse", f"atomr {_title('spmv', side)}, sustained, process", 1.15, "x",
            f"C call {_title('spmv', side)}", _title("spmv", side),
        )
        for side in SIDES
    ),
    Bar(
        "7-point product over a copy of its bytes", "gpu_sparse",
        f"atomr {_title('spmv', max(SIDES))}, sustained, process", 1 / 0.75, "x",
        f"copy of the bytes of {_title('spmv', max(SIDES))}",
    ),
)  # fmt: skip
