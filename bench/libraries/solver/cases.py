"""The solver: what its messages cost beside SciPy's LAPACK, and beside CuPy and torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.harness import Case, Effort, Setup, gpu_peers
from bench.harness.calls import Operation, add_calls
from bench.harness.common import device, repeat, timed
from bench.harness.gpu import add_peer

__all__ = ["CASES"]

#: Rows of the matrices of the host's case.
ROWS = 32
ROUTINES = ("cholesky", "inv", "qr", "eigh")
#: Rows of the matrix whose messages are short beside what it costs to send them.
SHORT = 64
#: On a GPU, routines with the rows of one matrix, and how many calls are waited for at once.
ALONE: tuple[tuple[str, int, int], ...] = (
    ("qr", SHORT, 10), ("eigh", SHORT, 4), ("cholesky", 512, 10), ("inv", 512, 4), ("cholesky", 4096, 2),
    ("inv", 4096, 1),
)  # fmt: skip
#: Batches of matrices that are small, and their rows; a peer that computes one matrix after the other has a tenth.
MANY = 100_000
SMALL = (4, 16, 32)
SLOW = ("qr", "eigh")


def _matrices(count: int, rows: int) -> Any:
    """Return diagonally dominant, symmetric matrices."""
    import numpy as np

    few = min(count, 1000)
    a = np.random.default_rng(0).standard_normal((few, rows, rows)).astype("float32")
    a = a + a.swapaxes(1, 2) + 4 * rows * np.eye(rows, dtype="float32")
    return a[0] if count == 1 else np.resize(a, (count, rows, rows))  # the same ones again


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


def _sustained(operation: Operation, calls: int) -> Callable[[], float]:
    """Sample: `calls` messages, until the last has been answered; microseconds each."""
    sends = operation.sends()

    def sample() -> float:
        sends.ask().result()
        start = time.perf_counter_ns()
        sends.tells(calls - 1)
        sends.ask().result()
        return (time.perf_counter_ns() - start) / 1e3 / calls

    return sample


def _beside_peers(setup: Setup, routine: str, count: int, rows: int, calls: int) -> None:
    """Add a routine that takes longer than its messages, beside torch and CuPy."""
    what = _title(routine, count, rows)
    calls = setup.count(calls)
    with setup.attempt(ours := f"atomr {what}, sustained, process"):
        made = _operation(routine, count, rows)(device(setup, "process"))
        made.plan.wait(60.0)
        setup.add(ours, _sustained(made, calls))
    for library in ("torch", "CuPy"):
        add_peer(
            setup, f"{library} {what}, sustained", partial(_peer, library, count, rows), routine, calls, every=calls
        )
        setup.ratio(ours, f"{library} {what}, sustained")


def gpu(setup: Setup) -> None:
    """Factorisations of one float32 matrix on a GPU, and eigenvectors.

    As on the host device; of the smallest, messages are told, called and asked, too. torch: ``cholesky_ex`` and
    ``inv_ex``, which do not wait for info, ``qr`` and ``eigh``. CuPy: the functions of the same names, which check.
    """
    for routine in ("cholesky", "inv"):
        what = _title(routine, 1, SHORT)
        add_calls(setup, what, _operation(routine, 1, SHORT), many=100, few=20)
        for library in ("torch", "CuPy"):
            make, calls = partial(_peer, library, 1, SHORT), setup.count(100)
            add_peer(setup, f"{library} {what}, sustained", make, routine, calls, every=calls)
            setup.ratio(f"atomr {what}, sustained, process", f"{library} {what}, sustained")
    for routine, rows, calls in ALONE:
        if rows == SHORT or setup.effort is Effort.FULL or setup.dry:  # else no figure is wanted
            _beside_peers(setup, routine, 1, rows, calls)


def gpu_small(setup: Setup) -> None:
    """Factorisations of many small float32 matrices in one message, beside one call of torch and of CuPy.

    Of QR and eigenvectors a tenth as many, since the peers compute one matrix after the other, or nearly so.
    """
    many = MANY if setup.effort is Effort.FULL or setup.dry else 200
    for rows in SMALL:
        for routine in ROUTINES:
            slow = routine in SLOW
            if not slow or rows == SMALL[1]:
                _beside_peers(setup, routine, many // 10 if slow else many, rows, 1 if slow else 4)


CASES = (
    Case("solver", "Dense linear algebra", host),
    Case("gpu_solver", "Dense linear algebra on a GPU", gpu, rounds=15, devices=("cuda",)),
    Case("gpu_solver_small", "Many small matrices on a GPU", gpu_small, rounds=7, devices=("cuda",)),
)
