"""Permutations and reductions, by the time in which they go through memory, beside copies and torch."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from bench.harness import Bar, Case, Setup, gpu_peers
from bench.harness.bandwidth import COPY, add_copies, compare_copies, size, swept
from bench.harness.common import device
from bench.harness.gpu import ordinal

__all__ = ["BARS", "CASES"]

#: Name, subscripts, extents, dtype: 12 permutations ...
PERMUTATIONS: tuple[tuple[str, dict[str, int], str], ...] = (
    ("ab->ba", {"a": 8192, "b": 8192}, "float32"),
    ("ab->ba", {"a": 8192, "b": 8192}, "bfloat16"),
    ("ab->ba", {"a": 4096, "b": 8192}, "complex64"),
    ("abc->bac", {"a": 256, "b": 512, "c": 512}, "float32"),
    ("abc->cba", {"a": 384, "b": 384, "c": 384}, "float32"),
    ("abc->acb", {"a": 64, "b": 1024, "c": 1024}, "bfloat16"),
    ("abc->cab", {"a": 384, "b": 384, "c": 384}, "float64"),
    ("abcd->acbd", {"a": 8, "b": 2048, "c": 32, "d": 128}, "bfloat16"),
    ("abcd->dcba", {"a": 64, "b": 96, "c": 64, "d": 96}, "float32"),
    ("abcd->badc", {"a": 64, "b": 96, "c": 64, "d": 96}, "float32"),
    ("abcde->ecadb", {"a": 32, "b": 32, "c": 32, "d": 32, "e": 32}, "float32"),
    ("abcdef->fedcba", {"a": 16, "b": 16, "c": 16, "d": 16, "e": 24, "f": 24}, "float32"),
)
#: ... and 12 reductions.
REDUCTIONS: tuple[tuple[str, dict[str, int], str, str], ...] = (
    ("ab->a", {"a": 8192, "b": 8192}, "float32", "sum"),
    ("ab->b", {"a": 8192, "b": 8192}, "float32", "sum"),
    ("ab->", {"a": 8192, "b": 8192}, "float32", "sum"),
    ("ab->a", {"a": 8192, "b": 8192}, "bfloat16", "max"),
    ("ab->b", {"a": 8192, "b": 8192}, "bfloat16", "sum"),
    ("ab->a", {"a": 65536, "b": 1024}, "float32", "max"),
    ("ab->b", {"a": 65536, "b": 1024}, "float32", "min"),
    ("abc->b", {"a": 256, "b": 512, "c": 512}, "float32", "sum"),
    ("abc->ac", {"a": 256, "b": 512, "c": 512}, "float32", "mean"),
    ("abcd->bd", {"a": 64, "b": 96, "c": 64, "d": 96}, "float32", "sum"),
    ("abcd->ac", {"a": 64, "b": 96, "c": 64, "d": 96}, "float64", "sum"),
    ("ab->a", {"a": 64, "b": 1 << 20}, "float32", "sum"),
)
_TORCH = {"sum": "sum", "max": "amax", "min": "amin", "mean": "mean"}


def _title(subscripts: str, extents: dict[str, int], dtype: str) -> str:
    return f"{subscripts} {'x'.join(map(str, extents.values()))} {dtype}"


def permutations(setup: Setup) -> None:
    """12 permutations: microseconds in which 64 MiB are read or written, beside a copy's.

    torch: ``out.copy_(x.permute(...))``.
    """
    turns, shape = size(setup)
    add_copies(setup, turns, shape)
    names = []
    for subscripts, extents, dtype in PERMUTATIONS:
        what = _title(subscripts, extents, dtype)
        source, output = subscripts.split("->")
        dims = tuple(min(extents[m], 4) if turns != 200 else extents[m] for m in source)
        axes = [source.index(m) for m in output]
        with setup.attempt(ours := f"atomr {what}"):
            import atomr_native as an

            dev = device(setup, "process")
            x, out = dev.zeros(dims, dtype), dev.zeros(tuple(dims[i] for i in axes), dtype)
            request = an.TensorElementwiseRequest(subscripts=subscripts, operands=(x,), out=out)
            plan = dev.tensor.plan(request).wait(60.0)
            nbytes = 2.0 * math.prod(dims) * x.dtype.itemsize
            setup.add(ours, swept(partial(plan.tell, x, out=out), out.wait, turns, nbytes))
        with setup.attempt(peer := f"torch {what}", kind="peer"):
            setup.need()
            torch = gpu_peers.torch(ordinal(setup))
            source_of = torch.zeros(dims, dtype=getattr(torch, dtype), device="cuda")
            target = torch.zeros([dims[i] for i in axes], dtype=source_of.dtype, device="cuda")
            nbytes = 2.0 * source_of.numel() * source_of.element_size()
            run = partial(target.copy_, source_of.permute(axes))
            setup.add(peer, swept(run, torch.cuda.synchronize, turns, nbytes))
        setup.ratio(ours, peer)
        names.append(ours)
    compare_copies(setup, names)
    for name in names:
        setup.ratio(name, COPY)


def reductions(setup: Setup) -> None:
    """12 reductions: microseconds in which 64 MiB are read or written, beside a copy's, which reads half of them.

    torch: ``sum``, ``amax``, ``amin`` and ``mean`` with ``out=``.
    """
    turns, shape = size(setup)
    add_copies(setup, turns, shape)
    names = []
    for subscripts, extents, dtype, op in REDUCTIONS:
        what = f"{op} {_title(subscripts, extents, dtype)}"
        source, output = subscripts.split("->")
        dims = tuple(min(extents[m], 4) if turns != 200 else extents[m] for m in source)
        kept = tuple(dims[source.index(m)] for m in output)
        with setup.attempt(ours := f"atomr {what}"):
            import atomr_native as an

            dev = device(setup, "process")
            x, out = dev.zeros(dims, dtype), dev.zeros(kept, dtype)
            plan = dev.tensor.plan(an.TensorReduceRequest(op=op, subscripts=subscripts, x=x, out=out)).wait(60.0)
            nbytes = 1.0 * (math.prod(dims) + math.prod(kept)) * x.dtype.itemsize
            setup.add(ours, swept(partial(plan.tell, x, out=out), out.wait, turns, nbytes))
        with setup.attempt(peer := f"torch {what}", kind="peer"):
            setup.need()
            torch = gpu_peers.torch(ordinal(setup))
            given = torch.zeros(dims, dtype=getattr(torch, dtype), device="cuda")
            target = torch.zeros(kept, dtype=given.dtype, device="cuda")
            axes = tuple(i for i, m in enumerate(source) if m not in output)
            nbytes = 1.0 * (given.numel() + target.numel()) * given.element_size()
            run: Any = partial(getattr(torch, _TORCH[op]), given, dim=axes, out=target)
            setup.add(peer, swept(run, torch.cuda.synchronize, turns, nbytes))
        setup.ratio(ours, peer)
        names.append(ours)
    compare_copies(setup, names)
    for name in names:
        setup.ratio(name, COPY)


def _bars(work: str, case: str, names: list[str]) -> list[Bar]:
    """Return the bars of what goes through memory: at 85 % of a copy's bandwidth, and as fast as torch."""
    return [
        Bar(f"{work} over {peer}", case, f"atomr {name}", limit, "x", under or f"torch {name}", part=name)
        for peer, limit, under in (("a copy", 1 / 0.85, COPY), ("torch", 1.0, ""))
        for name in names
    ]


BARS = (
    *_bars("permutations", "gpu_tensor_permutations", [_title(*one) for one in PERMUTATIONS]),
    *_bars("reductions", "gpu_tensor_reductions", [f"{op} {_title(*one)}" for *one, op in REDUCTIONS]),
)
CASES = (
    Case("gpu_tensor_permutations", "Permutations on a GPU", permutations, devices=("cuda",)),
    Case("gpu_tensor_reductions", "Reductions on a GPU", reductions, devices=("cuda",)),
)
