"""Direct solves of sparse systems beside CuPy's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.harness import Case, Setup, gpu_peers
from bench.harness.common import device, repeat, timed
from bench.harness.gpu import add_peer
from bench.libraries.sparse._matrices import stencil

__all__ = ["CASES"]

#: Points along each side of the cube of the stencil.
SIDE = 40
STEPS = ("refactor and solve", "solve")


def _system() -> Any:
    """Return the stencil in float64, with a part that is not symmetric."""
    import scipy.sparse

    return (stencil(SIDE).astype("f8") + 0.1 * scipy.sparse.eye_array(SIDE**3, k=1)).tocsr()


def _steps(dev: Any) -> dict[str, Callable[[], Any]]:
    a = _system()
    solver = dev.sparse.direct(dev.sparse.matrix(a), columns=1)
    solver.factor()
    b, values = dev.ones(a.shape[0], "float64"), dev.put(a.data)

    def again() -> None:
        solver.refactor(values)
        solver.solve(b).wait()

    return {STEPS[0]: again, STEPS[1]: lambda: solver.solve(b).wait()}


def _peer(ordinal: int) -> gpu_peers.Calls:
    cupy = gpu_peers.cupy(ordinal)
    import cupyx.scipy.sparse
    from cupyx.scipy.sparse.linalg import splu

    theirs = cupyx.scipy.sparse.csc_matrix(_system().tocsc())
    b = cupy.ones(theirs.shape[0])
    factors = splu(theirs)
    calls = {STEPS[0]: lambda: splu(theirs).solve(b), STEPS[1]: partial(factors.solve, b)}
    return gpu_peers.Calls(calls, cupy.cuda.Device(ordinal).synchronize)


def direct(setup: Setup) -> None:
    """Factorizations of new values, and solves, of a 7-point stencil on a GPU in float64, by cuDSS: each is waited for.

    CuPy: SuperLU on the host, and solves with its factors on the GPU.
    """
    for step in STEPS:
        name, peer = (f"{whose} {step}, 7-point stencil of {SIDE}^3" for whose in ("atomr", "CuPy"))
        with setup.attempt(name):
            setup.add(name, timed(repeat(_steps(device(setup, "process"))[step]), setup.count(20)))
        add_peer(setup, peer, _peer, step, setup.count(5), every=1)
        setup.ratio(name, peer)


CASES = (Case("gpu_direct", "Direct solves of sparse systems on a GPU", direct, devices=("cuda",)),)
