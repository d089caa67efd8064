"""Direct solves of sparse systems beside cuDSS itself, and nvmath-python's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, partial
from typing import Any

from bench.harness import Case, Setup, gpu_peers
from bench.harness.bars import Bar
from bench.harness.common import device, repeat, timed
from bench.harness.gpu import add_peer
from bench.harness.unavailable import Unavailable, describe
from bench.libraries.sparse._calls import add_call
from bench.libraries.sparse._library import Call, Library
from bench.libraries.sparse._matrices import stencil

__all__ = ["BARS", "CASES"]

#: Points along each side of the cube of the stencil.
SIDE = 40
#: Steps, and how often a sample takes them.
STEPS = {"refactor and solve": 5, "solve": 20, "solve in a row": 20}
AGAIN, ROW = "refactor and solve", "solve in a row"
#: Solves in a row before the wait.
LONG = 10


@cache
def _system() -> Any:
    """Return the stencil in float64, with a part that is not symmetric."""
    import scipy.sparse

    return (stencil(SIDE).astype("f8") + 0.1 * scipy.sparse.eye_array(SIDE**3, k=1)).tocsr()


def _steps(dev: Any) -> dict[str, Callable[[], Any]]:
    a = _system()
    solver = dev.sparse.direct(dev.sparse.matrix(a), columns=1)
    solver.factor()
    b, out, values = dev.ones(a.shape[0], "float64"), dev.zeros(a.shape[0], "float64"), dev.put(a.data)

    def again() -> None:
        solver.refactor(values)
        solver.solve(b, out=out).wait()

    def row() -> None:
        for _ in range(LONG):
            solver.solve(b, out=out)
        out.wait()

    return {AGAIN: again, "solve": lambda: solver.solve(b, out=out).wait(), ROW: row}


def _called(setup: Setup, step: str, library: Library) -> Call:
    calls = setup.shared(Library.direct, lambda: nullcontext(library.direct(_system())))

    def again() -> None:
        calls["refactor"]()
        calls["solve"]()

    def row() -> None:
        for _ in range(LONG):
            calls["solve"]()

    return {AGAIN: again, ROW: row}.get(step, calls["solve"])


def _nvmath(ordinal: int) -> gpu_peers.Calls:
    cupy = gpu_peers.cupy(ordinal)
    import cupyx.scipy.sparse

    advanced = gpu_peers.nvmath_sparse()
    b = cupy.ones(SIDE**3)
    try:
        solver = advanced.DirectSolver(cupyx.scipy.sparse.csr_matrix(_system()), b)
        solver.plan()
    except Exception as error:  # it takes one version of cuDSS
        raise Unavailable(f"nvmath-python and cuDSS: {describe(error)}") from error
    solver.factorize()

    def again() -> None:
        solver.factorize()
        solver.solve()

    def row() -> None:
        for _ in range(LONG):
            solver.solve()

    return gpu_peers.Calls({AGAIN: again, "solve": solver.solve, ROW: row}, cupy.cuda.Device(ordinal).synchronize)


def direct(setup: Setup) -> None:
    """Factorizations of new values, and solves, of a 7-point stencil on a GPU in float64, by cuDSS.

    Each is waited for, or ten solves in a row are.
    C calls: cuDSS's refactorization and solve, which allocate by themselves.  nvmath-python: factorization and solve.
    """
    for step, count in STEPS.items():
        name, call, peer = (f"{whose} {step}, 7-point stencil of {SIDE}^3" for whose in ("atomr", "C calls", "nvmath"))
        with setup.attempt(name):
            steps = setup.shared(_steps, lambda: nullcontext(_steps(device(setup, "process"))))
            setup.add(name, timed(repeat(steps[step]), setup.count(count)))
        add_call(setup, call, partial(_called, setup, step), setup.count(count), every=1, of=name)
        add_peer(setup, peer, _nvmath, step, setup.count(count), every=1)
        setup.ratio(name, peer)


CASES = (Case("gpu_direct", "Direct solves of sparse systems on a GPU", direct, devices=("cuda",)),)
BARS = tuple(
    Bar(
        "direct solves over nvmath",
        "gpu_direct",
        f"atomr {step}, 7-point stencil of {SIDE}^3",
        1.02,
        "x",
        f"nvmath {step}, 7-point stencil of {SIDE}^3",
        step,
    )
    for step in STEPS
)
