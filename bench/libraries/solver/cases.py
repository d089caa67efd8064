"""The solver: what its messages cost beside SciPy's LAPACK, and beside CuPy and torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.harness import Case, Setup, gpu_peers
from bench.harness.calls import Operation, add_calls
from bench.harness.common import repeat, timed
from bench.harness.gpu import add_peer

__all__ = ["CASES"]

#: Rows of the matrices of the host's case.
ROWS = 32
#: Matrices of a batch and their rows, on a GPU.
SHAPES: tuple[tuple[int, int], ...] = ((1, 64), (1, 512), (1000, 16))
#: Calls of a peer between two waits.
EVERY = 100
ROUTINES = ("cholesky", "inv", "qr", "eigh")


def _matrices(count: int, rows: int) -> Any:
    """Return diagonally dominant, symmetric matrices."""
    import numpy as np

    a = np.random.default_rng(0).standard_normal((count, rows, rows)).astype("float32")
    return (a + a.swapaxes(1, 2) + 4 * rows * np.eye(rows, dtype="float32"))[0 if count == 1 else slice(None)]


def _operation(routine: str, count: int, rows: int) -> Callable[[Any], Operation]:
    def make(dev: Any) -> Operation:
        import atomr_native as an

        a = dev.put(_matrices(count, rows))
        if routine in ("qr", "eigh"):
            return _decomposition(dev, routine, a)
        out = dev.zeros(a.shape, "float32") if routine == "cholesky" else dev.zeros(a.shape, "float32").mT
        request = an.SolverRequest(routine=routine, a=a, out=out)
        operands = {"a": a, "out": out, **dev.solver.scratch(request)}
        return Operation(dev.solver.plan(request), operands, partial(getattr(dev.solver, routine), a, out=out), out)

    return make


def _decomposition(dev: Any, routine: str, a: Any) -> Operation:
    import atomr_native as an

    values = {"w": dev.zeros(a.shape[:-1], "float32")} if routine == "eigh" else {"r": dev.zeros(a.shape, "float32")}
    outputs = {**values, "v" if routine == "eigh" else "q": dev.zeros(a.shape, "float32").mT}
    request = an.DecompositionRequest(routine=routine, a=a, **outputs)
    operands = {"a": a, **outputs, **dev.solver.scratch(request)}
    out = outputs["v" if routine == "eigh" else "q"]
    return Operation(dev.solver.plan(request), operands, partial(getattr(dev.solver, routine), a, **outputs), out)


def _title(routine: str, count: int, rows: int) -> str:
    return f"{routine}, {f'{count} of ' if count > 1 else ''}{rows} x {rows}"


def host(setup: Setup) -> None:
    """Factorisations and eigenvectors of 32 x 32 float32 on the host device: told, called, asked and sustained.

    Cholesky, an inverse, QR, and the eigenvectors of a symmetric matrix.

    SciPy does the work at once, in the caller.
    """
    for routine in ROUTINES:
        add_calls(setup, _title(routine, 1, ROWS), _operation(routine, 1, ROWS))
        with setup.attempt(peer := f"SciPy {_title(routine, 1, ROWS)}", kind="peer"):
            import scipy.linalg

            solve = partial(getattr(scipy.linalg, routine), _matrices(1, ROWS))
            setup.add(peer, timed(repeat(solve), setup.count(500)))


def _peer(library: str, count: int, rows: int, ordinal: int) -> gpu_peers.Calls:
    if library == "torch":
        torch = gpu_peers.torch(ordinal)
        a = torch.from_numpy(_matrices(count, rows)).to("cuda")
        calls = {
            "cholesky": partial(torch.linalg.cholesky_ex, a), "inv": partial(torch.linalg.inv_ex, a),
            "qr": partial(torch.linalg.qr, a), "eigh": partial(torch.linalg.eigh, a),
        }  # fmt: skip
        return gpu_peers.Calls(calls, torch.cuda.synchronize)
    cupy = gpu_peers.cupy(ordinal)
    a = cupy.asarray(_matrices(count, rows))
    calls = {routine: partial(getattr(cupy.linalg, routine), a) for routine in ROUTINES}
    return gpu_peers.Calls(calls, cupy.cuda.Device(ordinal).synchronize)


def gpu(setup: Setup) -> None:
    """Factorisations of float32 matrices on a GPU, alone and in batches; of the smallest also QR and eigenvectors.

    As on the host device. torch: ``cholesky_ex`` and ``inv_ex``, which do not wait for info, ``qr`` and ``eigh``. CuPy:
    the functions of the same names, which check. Peers are waited for 100 calls at a time.
    """
    for count, rows in SHAPES:
        makers = {library: partial(_peer, library, count, rows) for library in ("torch", "CuPy")}
        for routine in ROUTINES if (count, rows) == SHAPES[0] else ROUTINES[:2]:
            what = _title(routine, count, rows)
            add_calls(setup, what, _operation(routine, count, rows))
            for library, make in makers.items():
                add_peer(setup, f"{library} {what}, sustained", make, routine, setup.count(500), every=EVERY)
                setup.ratio(f"atomr {what}, sustained, process", f"{library} {what}, sustained")


CASES = (
    Case("solver", "Dense linear algebra", host),
    Case("gpu_solver", "Dense linear algebra on a GPU", gpu, devices=("cuda",)),
)
