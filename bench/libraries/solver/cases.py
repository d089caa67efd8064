"""The solver: what its messages cost beside SciPy's LAPACK, and beside CuPy and torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import Any

from bench.harness import Case, Effort, Setup, Unavailable, gpu_peers
from bench.harness.calls import Operation, add_calls
from bench.harness.common import device, repeat, timed
from bench.harness.gpu import add_peer, ordinal
from bench.libraries.solver._library import Library

__all__ = ["CASES"]

#: Rows of the matrices of the host's case.
ROWS = 32
ROUTINES = ("cholesky", "inv", "qr", "eigh")
#: Rows of the matrix whose messages are short beside what it costs to send them.
SHORT = 64
#: On a GPU, routines with the rows of one matrix, and how many calls are waited for at once: short ones, and long ones.
ALONE: tuple[tuple[str, int, int], ...] = (("qr", SHORT, 10), ("eigh", SHORT, 4))
LARGE: tuple[tuple[str, int, int], ...] = (
    ("cholesky", 512, 10), ("lu_factor", 512, 10), ("inv", 512, 4), ("cholesky", 4096, 2), ("lu_factor", 4096, 2),
    ("inv", 4096, 1), ("eigh", 2048, 1), ("cholesky", 16384, 1), ("lu_factor", 16384, 1),
)  # fmt: skip
#: Seconds until a message whose reply does not come is a failure of its row, and not of the whole case.
WAIT = 20.0
#: Routes of batches: routines, rows, the elements of a batch, of slow routines a quarter of them, and matrices of the
#: largest batch that is computed one by one.
ROUTED = ("cholesky", "lu_factor", "solve", "inv", "qr", "svd", "eigh")
ROUTED_ROWS = (8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
ROUTED_ELEMENTS = 2**22
ROUTED_SLOW = ("qr", "svd", "eigh")
ONE_BY_ONE = 4096
#: Rows of a refined solve in float64.
REFINED_ROWS = 8192
REFINED = ("tf32", "bfloat16", "float16")
#: Batches of matrices that are small, and their rows; a peer that computes one matrix after the other has a tenth.
MANY = 100_000
SMALL = (4, 16, 32)
SLOW = ("qr", "eigh")


@lru_cache(maxsize=2)  # contenders of a row follow each other
def _matrices(count: int, rows: int) -> Any:
    """Return diagonally dominant, symmetric matrices."""
    import numpy as np

    few = min(count, 1000)
    a = np.random.default_rng(0).standard_normal((few, rows, rows), np.float32)
    a = a + a.swapaxes(1, 2)
    a[:, range(rows), range(rows)] += 4 * rows
    return a[0] if count == 1 else np.resize(a, (count, rows, rows))  # the same ones again


def _operation(routine: str, count: int, rows: int) -> Callable[[Any], Operation]:
    def make(dev: Any) -> Operation:
        import atomr_native as an

        a = dev.put(_matrices(count, rows))
        if routine in ("qr", "eigh"):
            return _decomposition(dev, routine, a)
        out = dev.zeros(a.shape, "float32") if routine == "cholesky" else dev.zeros(a.shape, "float32").mT
        outputs = {"out": out}
        if routine == "lu_factor":
            outputs["pivots_out"] = dev.zeros(a.shape[:-1], "int32")
        request = an.SolverRequest(routine=routine, a=a, **outputs)
        operands = {"a": a, **outputs, **dev.solver.scratch(request)}
        return Operation(dev.solver.plan(request), operands, partial(getattr(dev.solver, routine), a, **outputs), out)

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
            "lu_factor": partial(torch.linalg.lu_factor_ex, a),
        }  # fmt: skip
        return gpu_peers.Calls(calls, torch.cuda.synchronize)
    cupy = gpu_peers.cupy(ordinal)
    a = cupy.asarray(_matrices(count, rows))
    calls = {routine: partial(getattr(cupy.linalg, routine), a) for routine in ROUTINES}
    if count == 1:

        def lu_factor() -> Any:
            from cupyx.scipy.linalg import lu_factor as function

            return function(a, check_finite=False)

        calls["lu_factor"] = lu_factor
    return gpu_peers.Calls(calls, cupy.cuda.Device(ordinal).synchronize)


def _sustained(operation: Operation, calls: int) -> Callable[[], float]:
    """Sample: `calls` messages, until the last has been answered; microseconds each."""
    sends = operation.sends()

    def sample() -> float:
        sends.ask().result(WAIT)
        start = time.perf_counter_ns()
        sends.tells(calls - 1)
        sends.ask().result(WAIT)
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
    """Factorisations of one float32 matrix of 64 rows on a GPU, and eigenvectors.

    As on the host device. torch: ``cholesky_ex`` and
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
        _beside_peers(setup, routine, 1, rows, calls)


def _c_call(setup: Setup, routine: str, rows: int, calls: int) -> None:
    """Add the C function that a routine calls, after a copy of A."""
    what = f"C call {_title(routine, 1, rows)}, sustained"

    def sample(call: Callable[[], None], wait: Callable[[], None]) -> float:
        call()
        wait()
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        wait()
        return (time.perf_counter_ns() - start) / 1e3 / calls

    with setup.attempt(what, kind="twin"):
        library = setup.shared("cusolver", lambda: nullcontext(Library(ordinal(setup))))
        setup.add(what, partial(sample, library.factor(routine, _matrices(1, rows)), library.wait))
    setup.ratio(f"atomr {_title(routine, 1, rows)}, sustained, process", what)


def gpu_large(setup: Setup) -> None:
    """Factorisations of one float32 matrix of 512 to 16384 rows on a GPU, and eigenvectors.

    Beside torch, CuPy, and the C functions ``cusolverDnXpotrf`` and ``Xgetrf`` after a copy of A, through ctypes.
    """
    for routine, rows, calls in LARGE:
        if rows > 512 and setup.effort is not Effort.FULL and not setup.dry:  # no figure is wanted
            continue
        _beside_peers(setup, routine, 1, rows, calls)
        if routine in ("cholesky", "lu_factor"):
            _c_call(setup, routine, rows, setup.count(calls))


def _routed(dev: Any, routine: str, route: str, count: int, rows: int) -> Callable[[], float] | None:
    """Sample of a batch by a route; None where it has none.  The first message builds the plan."""
    import numpy as np

    import atomr_native as an

    a = dev.put(_matrices(count, rows))
    given = {"b": dev.put(np.ones((count, rows, 1), np.float32))} if routine == "solve" else {}
    kind = an.DecompositionRequest if routine in ("qr", "svd", "eigh") else an.SolverRequest
    request = kind(routine=routine, a=a, route=route, **given)
    try:
        _ = request.lowered
    except an.InvalidRequest:
        return None

    def sample() -> float:
        start = time.perf_counter_ns()
        dev.solver.ask(request).result(WAIT)
        return (time.perf_counter_ns() - start) / 1e3

    return sample


def gpu_routes(setup: Setup) -> None:
    """Every route of batches of float32 matrices on a GPU: the table of routes takes the fastest.

    A message with new outputs, waited for; a batch has four million elements, of slow routines one million.
    """
    for routine in ROUTED:
        for rows in ROUTED_ROWS:
            parts = 4 if routine in ROUTED_SLOW else 1
            count = max(8, ROUTED_ELEMENTS // parts // rows**2)
            for route in ("kernel", "batched", "loop"):
                if route == "loop" and count > ONE_BY_ONE // parts**2:  # minutes
                    continue
                with setup.attempt(name := f"atomr {_title(routine, count, rows)} by {route}, process"):
                    sample = _routed(device(setup, "process"), routine, route, count, rows)
                    if sample is None:
                        raise Unavailable("no such route")
                    setup.add(name, sample)


def gpu_refined(setup: Setup) -> None:
    """One right side in float64 on a GPU: by LU, and by factors of less precision that are refined, in 8192 rows."""
    import numpy as np

    rows = REFINED_ROWS if setup.effort is Effort.FULL or setup.dry else 256
    plain = f"atomr solve, {rows} x {rows} float64, process"

    def operands() -> tuple[Any, Any, Any]:
        dev = device(setup, "process")
        a = dev.put(np.asarray(_matrices(1, rows), np.float64))
        return dev, a, dev.put(np.ones(rows))

    def sample(send: Callable[[], Any]) -> float:
        start = time.perf_counter_ns()
        send()
        return (time.perf_counter_ns() - start) / 1e3

    with setup.attempt(plain):
        dev, a, b = setup.shared("operands", lambda: nullcontext(operands()))
        setup.add(plain, partial(sample, lambda: dev.solver.solve(a, b).wait(WAIT)))
    for factor in REFINED:
        with setup.attempt(name := f"atomr solve_refined by {factor}, {rows} x {rows}, process"):
            dev, a, b = setup.shared("operands", lambda: nullcontext(operands()))

            def refined(dev: Any = dev, a: Any = a, b: Any = b, factor: str = factor) -> None:
                found = dev.solver.solve_refined(a, b, factor=factor)
                found.x.wait(WAIT)
                if found.fell_back:
                    raise AssertionError(f"{factor} did not suffice")

            setup.add(name, partial(sample, refined))
        setup.ratio(plain, name)


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
    Case("gpu_solver_large", "Large matrices on a GPU", gpu_large, rounds=5, devices=("cuda",)),
    Case("gpu_solver_refined", "Refined solves on a GPU", gpu_refined, rounds=7, devices=("cuda",)),
    Case("gpu_solver_routes", "Routes of batches of matrices on a GPU", gpu_routes, rounds=3, devices=("cuda",)),
    Case("gpu_solver_small", "Many small matrices on a GPU", gpu_small, rounds=7, devices=("cuda",)),
)
