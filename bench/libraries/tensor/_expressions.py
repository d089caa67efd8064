"""Expressions as contenders: ours, and those of torch, CuPy and nvmath, of zeros."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from bench.harness import Setup, gpu_peers
from bench.harness.common import device
from bench.harness.gpu import add_peer, waited
from bench.harness.unavailable import Unavailable

__all__ = [
    "ANY_ORDER",
    "EVERY",
    "PEERS",
    "TURNS",
    "Expression",
    "add_expressions",
    "add_ours",
    "cupy_cutensor",
    "name_cutensor",
    "shapes_of",
]

#: Calls between two waits, and calls of a sample.
EVERY, TURNS = 20, 100
#: Name, subscripts, dtype, and extents of the modes.
Expression = tuple[str, str, str, Mapping[str, int]]
#: Subscripts of a step in the notes of a plan.
_SUBSCRIPTS = re.compile(r"^[a-zA-Z,]*->[a-zA-Z]*: |(?<=does not take )\S+: ")


def shapes_of(setup: Setup, subscripts: str, extents: Mapping[str, int]) -> list[tuple[int, ...]]:
    """Return the shapes of the operands, small ones in a quick run."""
    quick = setup.count(TURNS) != TURNS
    terms = subscripts.partition("->")[0].split(",")
    return [tuple(min(extents[m], 3) if quick else extents[m] for m in term) for term in terms]


def name_cutensor(setup: Setup) -> None:
    """Tell the C program and CuPy where the library is that the messages call."""
    setup.need()
    from atomr_native.builders.cuda.context import library_file  # type: ignore[import-untyped,unused-ignore]

    if found := library_file("cutensor"):
        os.environ.setdefault("ATOMR_NATIVE_CUTENSOR", found)


def torch_einsum(subscripts: str, dtype: str, shapes: list[tuple[int, ...]], index: int) -> gpu_peers.Calls:
    """``torch.einsum``, which allocates its result; it is made contiguous."""
    torch = gpu_peers.torch(index)
    operands = [torch.zeros(shape, dtype=getattr(torch, dtype), device="cuda") for shape in shapes]

    def run() -> Any:
        return torch.einsum(subscripts, *operands).contiguous()

    return gpu_peers.Calls({"run": run}, torch.cuda.synchronize)


def cupy_cutensor(index: int, dtype: str) -> Any:
    """CuPy, and its module of contractions; `Unavailable` for bfloat16, and where it finds no whole cuTENSOR."""
    if dtype == "bfloat16":
        raise Unavailable("CuPy has no contractions of bfloat16: cuTENSOR answers CUTENSOR_STATUS_INVALID_VALUE")
    cupy = gpu_peers.cupy(index)
    try:
        from cupyx import cutensor  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise Unavailable(f"cupyx.cutensor does not import: {error}") from error
    return cupy, cutensor


def cupy_contraction(subscripts: str, dtype: str, shapes: list[tuple[int, ...]], index: int) -> gpu_peers.Calls:
    """``cupyx.cutensor.contraction`` of two tensors into an array."""
    cupy, cutensor = cupy_cutensor(index, dtype)
    inputs, output = subscripts.split("->")
    modes = inputs.split(",")
    a, b = (cupy.zeros(shape, dtype) for shape in shapes)
    extents = {m: n for term, shape in zip(modes, shapes, strict=True) for m, n in zip(term, shape, strict=True)}
    out = cupy.zeros([extents[m] for m in output], dtype)
    run = partial(cutensor.contraction, 1.0, a, tuple(modes[0]), b, tuple(modes[1]), 0.0, out, tuple(output))
    return gpu_peers.Calls({"run": run}, cupy.cuda.Device(index).synchronize)


def nvmath_contraction(
    subscripts: str, dtype: str, shapes: list[tuple[int, ...]], index: int, *, any_order: bool = False
) -> gpu_peers.Calls:
    """A planned contraction of nvmath-python into an array, executed again and again.

    Without one, as with `any_order`, nvmath allocates each result, and chooses the order in which it lies.
    """
    torch = gpu_peers.torch(index)
    from nvmath import tensor  # type: ignore[import-not-found,import-untyped,unused-ignore]

    a, b = (torch.zeros(shape, dtype=getattr(torch, dtype), device="cuda") for shape in shapes)
    inputs, output = subscripts.split("->")
    extents = dict(zip(inputs.replace(",", ""), (*a.shape, *b.shape), strict=True))
    out = None if any_order else torch.zeros([extents[m] for m in output], dtype=a.dtype, device="cuda")
    planned = tensor.BinaryContraction(subscripts, a, b, out=out)
    planned.plan()
    return gpu_peers.Calls({"run": planned.execute}, torch.cuda.synchronize)


#: Peers by name, and those whose results lie in any order.
Peers: TypeAlias = Mapping[str, Callable[[str, str, list[tuple[int, ...]], int], gpu_peers.Calls]]
PEERS: Peers = {"torch": torch_einsum, "CuPy": cupy_contraction, "nvmath": nvmath_contraction}
ANY_ORDER: Peers = {"nvmath": partial(nvmath_contraction, any_order=True)}


def route_in(notes: Sequence[str]) -> str:
    """Return how the steps of a plan are computed, in the notes without their subscripts."""
    return "; ".join(dict.fromkeys(_SUBSCRIPTS.sub("", note) for note in notes))


def add_ours(
    setup: Setup, name: str, expression: Expression, turns: int, *, every: int = EVERY, order: str = "C", **options: Any
) -> None:
    """Add an expression of ours, planned, with its result in an array that exists and lies so; beside it, its route."""
    import atomr_native as an

    _, subscripts, dtype, extents = expression
    with setup.attempt(name):
        dev = device(setup, "process")
        operands = [dev.zeros(shape, dtype) for shape in shapes_of(setup, subscripts, extents)]
        out = dev.tensor.einsum(subscripts, *operands, order=order).wait()
        request = an.EinsumRequest(subscripts=subscripts, operands=operands, out=out, **options)
        plan = dev.tensor.plan(request).wait(120.0)
        sample = waited(partial(plan.tell, *operands, out=out), out.wait, turns, min(every, turns))
        setup.add(name, sample, remark=route_in(plan.notes))


def add_expressions(setup: Setup, expressions: Sequence[Expression], turns: int) -> None:
    """Add expressions: ours, those of torch, and their ratios."""
    for expression in expressions:
        name, subscripts, dtype, extents = expression
        add_ours(setup, ours := f"atomr {name}", expression, turns)
        shapes = shapes_of(setup, subscripts, extents)
        make = partial(torch_einsum, subscripts, dtype, shapes)
        add_peer(setup, peer := f"torch {name}", make, "run", turns, every=EVERY)
        setup.ratio(ours, peer)
