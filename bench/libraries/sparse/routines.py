"""Sampled products, triangular solves and products of two sparse matrices beside torch's and CuPy's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from bench.harness import Case, Setup, gpu_peers
from bench.harness.bars import Bar
from bench.harness.calls import Operation, add_sustained
from bench.harness.common import burst, device, repeat
from bench.harness.gpu import add_peer
from bench.libraries.sparse._calls import add_call
from bench.libraries.sparse._library import Call, Library
from bench.libraries.sparse._matrices import from_files, power_law, stencil

__all__ = ["BARS", "CASES"]

#: Matrices by name: those that are made, and all.
GENERATED: Mapping[str, Callable[[], Any]] = {
    "7-point stencil of 64^3": partial(stencil, 64),
    "power law of 2^17 rows": partial(power_law, 1 << 17),
}
MATRICES: Mapping[str, Callable[[], Any]] = {**GENERATED, **from_files()}
#: Columns of sampled products.
INNER = 32
ROUTINES = ("spmv", "sddmm", "solve", "values of A A")
#: Of which cuSPARSE's function is called from C, too.
CALLS = ("spmv", "sddmm")


def _triangle(a: Any) -> Any:
    import scipy.sparse

    low = scipy.sparse.tril(a, k=-1)
    return (low + scipy.sparse.diags_array(abs(low).sum(axis=1) + 1)).tocsr().astype("f4")


def _operation(name: str, routine: str) -> Callable[[Any], Operation]:
    def make(dev: Any) -> Operation:
        import atomr_native as an

        given = MATRICES[name]()
        a = dev.sparse.matrix(_triangle(given) if routine == "solve" else given)
        n, arrays = a.shape[0], a.arrays
        x, out = dev.ones((n,)), dev.zeros((n,))
        if routine == "spmv":
            request = an.SparseProductRequest(
                routine="spmv", format="csr", shape=a.shape, longest=a.longest, **arrays, x=x, out=out
            )
            return Operation(dev.sparse.plan(request), {**arrays, "x": x, "out": out},
                             partial(dev.sparse.spmv, a, x, out=out), out)  # fmt: skip
        if routine == "solve":
            request = an.SparseSolveRequest(format="csr", shape=a.shape, **arrays, b=x, out=out)
            return Operation(dev.sparse.plan(request), {**arrays, "b": x, "out": out},
                             partial(dev.sparse.solve_triangular, a, x, out=out), out)  # fmt: skip
        wide, tall, values = dev.ones((n, INNER)), dev.ones((INNER, n)), dev.zeros((a.nnz,))
        request = an.SparseProductRequest(
            routine="sddmm", format="csr", shape=a.shape, **arrays, x=wide, y=tall, out=values
        )
        return Operation(dev.sparse.plan(request), {**arrays, "x": wide, "y": tall, "out": values},
                         partial(dev.sparse.sddmm, a, wide, tall, out=values), values)  # fmt: skip

    return make


def _torch(name: str, ordinal: int) -> gpu_peers.Calls:
    torch = gpu_peers.torch(ordinal)
    given = MATRICES[name]()

    def there(a: Any) -> Any:
        parts = [torch.from_numpy(part).to("cuda") for part in (a.indptr, a.indices, a.data)]
        return torch.sparse_csr_tensor(*parts, a.shape)

    a, triangle, n = there(given), there(_triangle(given)), given.shape[0]
    x, wide, tall = (torch.ones(shape, device="cuda") for shape in ((n,), (n, INNER), (INNER, n)))
    column = x[:, None]
    calls = {
        "spmv": partial(torch.mv, a, x),
        "sddmm": partial(torch.sparse.sampled_addmm, a, wide, tall, beta=0.0),
        "solve": partial(torch.triangular_solve, column, triangle, upper=False),
        "values of A A": partial(torch.matmul, a, a),
    }
    return gpu_peers.Calls(calls, torch.cuda.synchronize)


def _cupy(name: str, ordinal: int) -> gpu_peers.Calls:
    cupy = gpu_peers.cupy(ordinal)
    import cupyx.scipy.sparse
    from cupyx.scipy.sparse.linalg import spsolve_triangular

    given = MATRICES[name]()
    a, triangle = (cupyx.scipy.sparse.csr_matrix(one) for one in (given, _triangle(given)))
    x = cupy.ones(given.shape[0], "f4")
    calls = {
        "spmv": partial(a.__matmul__, x),
        "solve": partial(spsolve_triangular, triangle, x),
        "values of A A": partial(a.__matmul__, a),
    }
    return gpu_peers.Calls(calls, cupy.cuda.Device(ordinal).synchronize)


def _called(name: str, routine: str, library: Library) -> Call:
    a = MATRICES[name]()
    return library.spmv(a) if routine == "spmv" else library.sddmm(a, INNER)


def routines(setup: Setup) -> None:
    """Sampled products, triangular solves and products of two sparse matrices on a GPU, in float32.

    The values of A A are those of a pattern that is there; torch and CuPy find the pattern each time.  Their triangular
    solves analyse the pattern each time, which atomr's do not need.  C calls: cuSPARSE's, through ctypes.  The variable
    ATOMR_BENCH_MATRICES names a folder of Matrix Market files, whose matrices are measured, too.
    """
    for name in MATRICES:
        makers = {"torch": partial(_torch, name), "CuPy": partial(_cupy, name)}
        for routine in ROUTINES:
            what = f"{routine}, {name}"
            row = f"atomr {what}, sustained, process"
            if routine == "values of A A":
                row = f"atomr {what}, called, process"
                with setup.attempt(row):
                    a = (dev := device(setup, "process")).sparse.matrix(MATRICES[name]())
                    pattern = dev.sparse.matmul_pattern(a, a)
                    out = pattern.tell(a.values, a.values).values
                    call = partial(pattern.tell, a.values, a.values, out=out)
                    setup.add(row, burst(repeat(call), out.wait, setup.count(20)))
            else:
                add_sustained(setup, what, _operation(name, routine), many=200)
            for library, make in makers.items():
                if library == "CuPy" and routine == "sddmm":
                    continue  # it has none
                peer = f"{library} {what}, sustained"
                add_peer(setup, peer, make, routine, setup.count(20), every=10)
                setup.ratio(row, peer)
            if routine in CALLS:
                add_call(setup, f"C call {what}", partial(_called, name, routine), setup.count(200), of=row)


CASES = (Case("gpu_sparse_routines", "Routines with sparse matrices on a GPU", routines, devices=("cuda",)),)
_VALUES = "values of A A"
#: As fast as peers, new values of a product twice as fast as CuPy, and within 1.15 of C calls.
BARS = (
    *(
        Bar(
            "routines with sparse matrices over peers", "gpu_sparse_routines",
            f"atomr {routine}, {name}, {'called' if routine == _VALUES else 'sustained'}, process",
            0.5 if routine == _VALUES else 1.0, "x", f"{library} {routine}, {name}, sustained",
            f"{routine}, {name}, beside {library}",
        )
        for name in GENERATED
        for routine in ROUTINES
        for library in ("torch", "CuPy")
        if (library, routine) != ("CuPy", "sddmm")
    ),
    *(
        Bar(
            "routines with sparse matrices over C", "gpu_sparse_routines",
            f"atomr {routine}, {name}, sustained, process", 1.15, "x", f"C call {routine}, {name}",
            f"{routine}, {name}",
        )
        for name in GENERATED
        for routine in CALLS
    ),
)  # fmt: skip
