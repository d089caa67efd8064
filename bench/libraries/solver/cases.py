"""The solver: what its messages cost beside SciPy's LAPACK, and beside CuPy and torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from typing import Any

from bench.harness import Case, Effort, Setup, Unavailable, gpu_peers
from bench.harness.bars import Bar
from bench.harness.calls import Operation, add_calls
from bench.harness.common import device, repeat, timed
from bench.harness.gpu import add_peer, ordinal, waited
from bench.libraries.solver._library import Library

__all__ = ["BARS", "CASES"]

#: Rows of the matrices of the host's case.
ROWS = 32
ROUTINES = ("cholesky", "inv", "qr", "eigh")
#: Rows of the matrix whose messages are short beside what it costs to send them.
SHORT = 64
#: On a GPU, routines with the rows of one matrix, and how many calls are waited for at once: short ones, and long ones.
ALONE: tuple[tuple[str, int, int], ...] = (("qr", SHORT, 10), ("eigh", SHORT, 4))
LARGE: tuple[tuple[str, int, int], ...] = (
    ("cholesky", 512, 20), ("lu_factor", 512, 10), ("inv", 512, 10), ("qr", 512, 10), ("eigh", 512, 4),
    ("cholesky", 2048, 4), ("lu_factor", 2048, 4), ("inv", 2048, 2), ("qr", 2048, 2), ("eigh", 2048, 1),
    ("cholesky", 16384, 1), ("lu_factor", 16384, 1),
)  # fmt: skip
#: Seconds until a message whose reply does not come is a failure of its row, and not of the whole case.
WAIT = 20.0
#: Bytes of scratch memory for large matrices.
SCRATCH = 8 << 30
#: Routes of batches: routines, rows, how many matrices, 0 being as many as the elements of a batch allow, of slow
#: routines a quarter of them; matrices of the largest batch that is computed one by one, and rows cubed times matrices
#: of the largest of slow ones.
ROUTED = ("cholesky", "lu_factor", "solve", "inv", "solve_triangular", "qr", "svd", "eigh")
ROUTED_ROWS = (8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024)
ROUTED_COUNTS = (1, 4, 32, 0)
ROUTED_ELEMENTS = 2**22
ONE_BY_ONE = 64
ROUTED_WORK = 2**30
#: Microseconds of a message of which a sample sends a few more, and how many.
SHORT_US = 2000.0
FEW = 6
#: Rows of refined solves in float64.
REFINED_ROWS = (8192, 16384)
REFINED = ("float32", "tf32", "bfloat16", "float16")
#: Those that are called in C, too: a factor, and how it is refined.
REFINED_IN_C = (("tf32", "GMRES"), ("tf32", "CLASSICAL"))
#: Batches of matrices that are small, and their rows; where peers compute one matrix after the other, a tenth.
MANY = 100_000
SMALL = tuple((routine, MANY, rows) for rows in (4, 32) for routine in ("cholesky", "lu_factor", "solve", "inv"))
SLOW = ("qr", "eigh", "svd")
SMALL_SLOW = tuple((routine, MANY // 10, 16) for routine in SLOW)


@lru_cache(maxsize=2)  # contenders of a row follow each other
def _matrices(count: int, rows: int) -> Any:
    """Return diagonally dominant, symmetric matrices."""
    import numpy as np

    few, block = min(count, 1000), min(rows, 512)
    a = np.random.default_rng(0).standard_normal((few, block, block), np.float32)
    a = np.tile(a + a.swapaxes(1, 2), (1, rows // block, rows // block))  # a large one repeats a block
    a[:, range(rows), range(rows)] += 4 * rows
    return a[0] if count == 1 else np.resize(a, (count, rows, rows))  # the same ones again


def _operation(routine: str, count: int, rows: int) -> Callable[[Any], Operation]:
    def make(dev: Any) -> Operation:
        import atomr_native as an

        a = dev.put(_matrices(count, rows))
        if routine in SLOW:
            return _decomposition(dev, routine, a)
        a = a.mT  # column by column, as the libraries have it
        out = dev.zeros(a.shape, "float32").mT
        given = {}
        if routine == "solve":
            given["b"], out = dev.ones((*a.shape[:-1], 1), "float32"), dev.zeros((*a.shape[:-1], 1), "float32")
        outputs = {"out": out}
        if routine == "lu_factor":
            outputs["pivots_out"] = dev.zeros(a.shape[:-1], "int32")
        request = an.SolverRequest(routine=routine, a=a, **given, **outputs)
        operands = {"a": a, **given, **outputs, **dev.solver.scratch(request)}
        call = partial(getattr(dev.solver, routine), a, *given.values(), **outputs)
        return Operation(dev.solver.plan(request), operands, call, out)

    return make


def _decomposition(dev: Any, routine: str, a: Any) -> Operation:
    import atomr_native as an

    vectors, values = {"qr": (["q"], "r"), "eigh": (["v"], "w"), "svd": (["u", "vh"], "s")}[routine]
    outputs = {values: dev.zeros(a.shape if values == "r" else a.shape[:-1], "float32")}
    outputs |= {name: dev.zeros(a.shape, "float32").mT for name in vectors}
    request = an.DecompositionRequest(routine=routine, a=a, **outputs)
    operands = {"a": a, **outputs, **dev.solver.scratch(request)}
    out = outputs[vectors[0]]
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
            "svd": partial(torch.linalg.svd, a, full_matrices=False),
            "solve": partial(torch.linalg.solve_ex, a, torch.ones(*a.shape[:-1], 1, device="cuda")),
        }  # fmt: skip
        return gpu_peers.Calls(calls, torch.cuda.synchronize)
    cupy = gpu_peers.cupy(ordinal)
    a = cupy.asarray(_matrices(count, rows))
    calls = {routine: partial(getattr(cupy.linalg, routine), a) for routine in ROUTINES}
    calls |= {"svd": partial(cupy.linalg.svd, a, full_matrices=False)}
    calls |= {"solve": partial(cupy.linalg.solve, a, cupy.ones((*a.shape[:-1], 1), cupy.float32))}
    if count == 1:

        def lu_factor() -> Any:
            from cupyx.scipy.linalg import lu_factor as function

            return function(a, check_finite=False)

        calls["lu_factor"] = lu_factor
    return gpu_peers.Calls(calls, cupy.cuda.Device(ordinal).synchronize)


def _opened(library: str, count: int, rows: int, ordinal: int) -> AbstractContextManager[gpu_peers.Calls]:
    return nullcontext(_peer(library, count, rows, ordinal))


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
        made = _operation(routine, count, rows)(device(setup, "process", workspace_limit=SCRATCH))
        made.plan.wait(60.0)
        setup.add(ours, _sustained(made, calls))
    for library in ("torch", "CuPy"):
        name = f"{library} {what}, sustained"
        with setup.attempt(name, kind="peer"):
            peer = setup.shared((library, count, rows), partial(_opened, library, count, rows, ordinal(setup)))
            if routine not in peer.calls:
                raise Unavailable(f"{library} has no {routine} of batches")
            setup.add(name, waited(peer.calls[routine], peer.wait, calls, calls, warm=1))
        setup.ratio(ours, name)


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
    """Add the C functions that a routine calls, after a copy of A."""
    what = f"C call {_title(routine, 1, rows)}, sustained"
    with setup.attempt(what, kind="twin"):
        library = setup.shared("cusolver", lambda: nullcontext(Library(ordinal(setup))))
        call = library.routine(routine, _matrices(1, rows))
        setup.add(what, waited(call, library.wait, calls, calls, warm=1))
    setup.ratio(f"atomr {_title(routine, 1, rows)}, sustained, process", what)


def gpu_large(setup: Setup) -> None:
    """Factorisations of one float32 matrix of 512 to 16384 rows on a GPU, inverses, QR and eigenvectors.

    Beside torch, CuPy, and the C functions of cuSOLVER that the routine calls, after a copy of A, through ctypes.
    """
    for routine, rows, calls in LARGE:
        if setup.effort is not Effort.FULL and not setup.dry:  # no figure is wanted
            if rows > 512:
                continue
            rows = SHORT
        _beside_peers(setup, routine, 1, rows, calls)
        _c_call(setup, routine, rows, setup.count(calls))


def _routed(dev: Any, request: Any) -> Callable[[], float]:
    """Sample of a message with a batch: the shortest of a few, if they are short.  The first one builds the plan."""

    def once() -> float:
        start = time.perf_counter_ns()
        dev.solver.ask(request).result(WAIT)
        return (time.perf_counter_ns() - start) / 1e3

    def sample() -> float:
        first = once()
        return first if first > SHORT_US else min(first, *(once() for _ in range(FEW)))

    return sample


def _batches(routine: str) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Rows, count and routes of batches for which there is more than one route."""
    from atomr_native.libraries.solver.routes import ROUTES  # type: ignore[import-untyped,unused-ignore]

    slow = routine in SLOW
    for rows in ROUTED_ROWS:
        able = (*(n for n, limit in zip(("kernel", "batched"), ROUTES[routine], strict=True) if rows <= limit), "loop")
        most = max(8, ROUTED_ELEMENTS // (4 if slow else 1) // rows**2)
        for count in sorted({count or most for count in ROUTED_COUNTS if count <= most}):
            if slow and rows**3 * count > ROUTED_WORK:
                continue
            single = "batched" if count == 1 and routine == "eigh" else ""  # which is the loop
            one_by_one = count <= ONE_BY_ONE // (4 if slow else 1)
            routes = tuple(name for name in able if name != single and (name != "loop" or one_by_one))
            if len(routes) > 1:
                yield rows, count, routes


def gpu_routes(setup: Setup) -> None:
    """Every route of batches of float32 matrices on a GPU: the table of routes takes the fastest.

    A message with new outputs, waited for.  ``python -m bench.libraries.solver._write_routes`` makes the table.
    """
    import numpy as np

    import atomr_native as an  # type: ignore[import-untyped,unused-ignore]

    for routine in ROUTED:
        for rows, count, routes in _batches(routine):
            if (rows > 32 or count > 4) and setup.effort is not Effort.FULL and not setup.dry:  # no figure is wanted
                continue
            for route in routes:
                with setup.attempt(name := f"atomr {_title(routine, count, rows)} by {route}, process"):
                    dev = device(setup, "process", workspace_limit=SCRATCH)

                    def operands(dev: Any = dev, count: int = count, rows: int = rows) -> Any:
                        a = dev.put(_matrices(count, rows).reshape(count, rows, rows))
                        return nullcontext((a, dev.put(np.ones((count, rows, 1), np.float32))))

                    a, b = setup.shared((count, rows), operands)
                    given = {"b": b} if routine.startswith("solve") else {}
                    kind = an.DecompositionRequest if routine in SLOW else an.SolverRequest
                    setup.add(name, _routed(dev, kind(routine=routine, a=a, route=route, **given)))


def gpu_refined(setup: Setup) -> None:
    """One right side in float64 on a GPU: by LU, and by factors of less precision that are refined.

    Matrices of 8192 and 16384 rows whose diagonal dominates, so that few corrections do; their number is beside the
    figures.  In C: ``cusolverDnIRSXgesv`` after a copy of A and B, through ctypes, with both of its ways to refine.
    """
    for rows in REFINED_ROWS if setup.effort is Effort.FULL or setup.dry else (256,):
        _refined(setup, rows)


def _refined(setup: Setup, rows: int) -> None:
    import numpy as np

    what = f"{rows} x {rows}"
    plain = f"atomr solve, {what} float64, process"

    def operands() -> tuple[Any, Any, Any]:
        dev = device(setup, "process", workspace_limit=SCRATCH)
        a = dev.put(np.asarray(_matrices(1, rows), np.float64)).mT
        return dev, a, dev.put(np.ones(rows))

    def sample(send: Callable[[], Any]) -> float:
        start = time.perf_counter_ns()
        send()
        return (time.perf_counter_ns() - start) / 1e3

    with setup.attempt(plain):
        dev, a, b = setup.shared(("operands", rows), lambda: nullcontext(operands()))
        setup.add(plain, partial(sample, lambda: dev.solver.solve(a, b).wait(WAIT)))
    for factor in REFINED:
        with setup.attempt(name := f"atomr solve_refined by {factor}, {what}, process"):
            dev, a, b = setup.shared(("operands", rows), lambda: nullcontext(operands()))

            def refined(dev: Any = dev, a: Any = a, b: Any = b, factor: str = factor) -> int:
                found = dev.solver.solve_refined(a, b, factor=factor)
                found.x.wait(WAIT)
                if found.fell_back:
                    raise AssertionError(f"{factor} did not suffice")
                return int(found.iterations)

            setup.add(name, partial(sample, refined), remark=f"{refined()} corrections")
        setup.ratio(name, plain)
    for factor, way in REFINED_IN_C:
        with setup.attempt(name := f"C cusolverDnIRSXgesv by {factor}, {way}, {what}", kind="twin"):
            library = setup.shared("cusolver", lambda: nullcontext(Library(ordinal(setup))))
            call = library.refined(np.asarray(_matrices(1, rows), np.float64), factor, way)
            setup.add(name, waited(call, library.wait, 1, 1, warm=0))
        setup.ratio(f"atomr solve_refined by {factor}, {what}, process", name)


def _many_small(setup: Setup, batches: tuple[tuple[str, int, int], ...]) -> None:
    whole = setup.effort is Effort.FULL or setup.dry
    for routine, count, rows in batches:
        _beside_peers(setup, routine, count if whole else 200, rows, 1 if routine in SLOW else 4 if rows > 4 else 20)


def gpu_small(setup: Setup) -> None:
    """Factorisations, solves and inverses of 100,000 small float32 matrices in a message, beside a call of a peer."""
    _many_small(setup, SMALL)


def gpu_small_decompositions(setup: Setup) -> None:
    """QR, eigenvectors and singular vectors of 10,000 float32 matrices in one message, beside one call of peers.

    The peers compute one matrix after the other, or nearly so.
    """
    _many_small(setup, SMALL_SLOW)


CASES = (
    Case("solver", "Dense linear algebra", host),
    Case("gpu_solver", "Dense linear algebra on a GPU", gpu_large, rounds=5, devices=("cuda",)),
    Case("gpu_solver_messages", "Messages of dense linear algebra on a GPU", gpu, rounds=15, devices=("cuda",)),
    Case("gpu_solver_refined", "Refined solves on a GPU", gpu_refined, rounds=5, devices=("cuda",)),
    Case("gpu_solver_routes", "Routes of batches of matrices on a GPU", gpu_routes, rounds=3, devices=("cuda",)),
    Case("gpu_solver_small", "Many small matrices on a GPU", gpu_small, rounds=5, devices=("cuda",)),
    Case(
        "gpu_solver_decompositions", "Decompositions of many small matrices on a GPU", gpu_small_decompositions,
        rounds=5, devices=("cuda",),
    ),
)  # fmt: skip
#: One matrix costs as much as the C calls, and as the best of the peers; small ones a third; a refined solve two thirds
#: of one in float64.
BARS = (
    *(
        Bar(
            "a large matrix", "gpu_solver", f"atomr {_title(routine, 1, rows)}, sustained, process", limit, "x",
            f"{who} {_title(routine, 1, rows)}, sustained", f"{_title(routine, 1, rows)}, beside {who}",
        )
        for routine, rows, _ in LARGE
        for who, limit in (("C call", 1.02), ("torch", 1.0), ("CuPy", 1.0))
    ),
    *(
        Bar(
            "small matrices", case, f"atomr {what}, sustained, process", 1 / 3, "x", f"{who} {what}, sustained",
            f"{what}, beside {who}",
        )
        for case, batches in (("gpu_solver_small", SMALL), ("gpu_solver_decompositions", SMALL_SLOW))
        for what in (_title(routine, count, rows) for routine, count, rows in batches)
        for who in ("torch", "CuPy")
    ),
    *(
        Bar(
            "refined solves", "gpu_solver_refined", f"atomr solve_refined by {factor}, {rows} x {rows}, process", 2 / 3,
            "x", f"atomr solve, {rows} x {rows} float64, process", f"{rows} rows by {factor}",
        )
        for rows in REFINED_ROWS
        for factor in REFINED
    ),
)  # fmt: skip
