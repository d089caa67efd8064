"""Functions after a product of matrices: epilogues of cuBLASLt, kernels after it, and kernels of CUTLASS."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from bench.harness import Bar, Case, Setup
from bench.harness.common import device
from bench.harness.gpu import waited
from bench.libraries.tensor._expressions import EVERY, TURNS, route_in

__all__ = ["BARS", "CASES"]

#: Rows of the matrices, and of the tiles that they consist of.
SIZES = (2048, 4096, 8192)
TILE = 512
#: Routes by what contenders are called.
ROUTES = {"": "auto", ", cuBLASLt": "blas_lt", ", CUTLASS": "cutlass"}


def _bias(result: Any, bias: Any) -> Any:
    return result + bias


def _relu_bias(result: Any, bias: Any) -> Any:
    import numpy as np

    return np.maximum(result + bias, 0)


def _gate(result: Any, gate: Any) -> Any:
    import numpy as np

    return result / (1 + np.exp(-gate))


#: Functions by name; None for the bare product.
FUNCTIONS = {"bare": None, "bias": _bias, "relu of bias": _relu_bias, "gate": _gate}


def _numbers(dev: Any, seed: int, *shape: int) -> Any:
    """Return bfloat16 numbers of ordinary size, since the GPU's clock depends on them: a tile, again and again."""
    import ml_dtypes
    import numpy as np

    tile = np.random.default_rng(seed).standard_normal([min(n, TILE) for n in shape]).astype(ml_dtypes.bfloat16)
    return dev.put(np.tile(tile, [-(-n // TILE) for n in shape]))


def _tailed(dev: Any, n: int, tail: Any, route: str) -> tuple[Any, list[Any]]:
    """Return the request of a product with a function after it, and its operands."""
    import atomr_native as an

    a, b, out = _numbers(dev, 0, n, n), _numbers(dev, 1, n, n), dev.zeros((n, n), "bfloat16")
    more = {} if tail is None else {"bias": _numbers(dev, 2, n)}
    if tail is _gate:
        more = {"gate": _numbers(dev, 3, n, n)}
    request = an.EinsumRequest(
        subscripts="ij,jk->ik", operands=(a, b), out=out, tail=tail, tail_operands=more, route=route
    )
    return request, [a, b, *more.values()]


def _sizes(setup: Setup) -> tuple[int, ...]:
    return SIZES if setup.dry or setup.count(TURNS) == TURNS else (16,)


def _add(setup: Setup, n: int, what: str, library: str = "") -> str:
    """Add a product and its function, by a library or as planned, beside the bare product; return its name."""
    turns, bare, name = setup.count(TURNS), f"atomr bare, {n}", f"atomr {what}, {n}{library}"
    with setup.attempt(name):
        dev = device(setup, "process")
        request, operands = _tailed(dev, n, FUNCTIONS[what], ROUTES[library])
        plan = dev.tensor.plan(request).wait(60.0)
        run = partial(plan.tell, *operands, out=request.out)
        sample = waited(run, request.out.wait, turns, min(EVERY, turns))
        setup.add(name, sample, flops=2.0 * n**3, remark=route_in(plan.notes))
    if name != bare:
        setup.ratio(name, bare)
    return name


def tails(setup: Setup) -> None:
    """A bias, and a ReLU of it, after a product of bfloat16 matrices, as planned, beside the bare product."""
    for n in _sizes(setup):
        for what in ("bare", "bias", "relu of bias"):
            _add(setup, n, what)


def _compiled(setup: Setup, wanted: Sequence[tuple[int, str]]) -> None:
    """Have the kernels of CUTLASS compiled, all at once."""
    with setup.attempt("kernels compiled"):
        setup.need()
        dev = device(setup, "process")
        with ThreadPoolExecutor(len(wanted)) as pool:
            for n, what in wanted:
                pool.submit(dev.tensor.plan, _tailed(dev, n, FUNCTIONS[what], "cutlass")[0])  # contenders show failures


def gates(setup: Setup) -> None:
    """A gate, which reads a matrix, after a product of bfloat16 matrices, beside the bare product.

    As planned; by cuBLASLt, with a kernel after it; and by one kernel of CUTLASS.  Those compile before the
    measurement, which takes half a minute; a ReLU, which cuBLASLt has by itself, is beside them.
    """
    full = setup.dry or setup.count(TURNS) == TURNS
    sizes = _sizes(setup)
    if full:
        _compiled(setup, [(sizes[0], "relu of bias"), *((n, "gate") for n in sizes)])
    for n in sizes:
        _add(setup, n, "bare")
        for what in ("relu of bias", "gate") if n == sizes[0] else ("gate",):
            names = [_add(setup, n, what, library) for library in (ROUTES if full else ("",))]
            if full:
                setup.ratio(*names[1:])


BARS = tuple(
    Bar("function after a product over the bare product", case, f"atomr {what}, {n}", 1.05, "x", f"atomr bare, {n}",
        part=f"{what}, {n}")
    for case, functions in (("gpu_tensor_tails", ("bias", "relu of bias")), ("gpu_tensor_gates", ("gate",)))
    for what in functions
    for n in SIZES
)  # fmt: skip
CASES = (
    Case("gpu_tensor_tails", "Functions after a contraction", tails, devices=("cuda",)),
    Case("gpu_tensor_gates", "Gates after a contraction", gates, devices=("cuda",)),
)
