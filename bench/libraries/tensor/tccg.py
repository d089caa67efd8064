"""The contractions of TCCG, in three types, and tuned, beside torch, CuPy and nvmath."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.harness import Case, Setup
from bench.harness.gpu import add_peer, ordinal
from bench.harness.unavailable import Unavailable
from bench.libraries.tensor._expressions import (
    EVERY,
    PEERS,
    Expression,
    add_ours,
    cupy_cutensor,
    name_cutensor,
    shapes_of,
)
from bench.libraries.tensor.cases import CONTRACTIONS

__all__ = ["CASES"]

#: Calls of a sample, since each takes up to some milliseconds.
CALLS = 10


def _contraction(text: str, dtype: str) -> Expression:
    """Return a contraction with equal extents of all its modes, multiples of 4 where they are 16 or more."""
    result, a, b = text.split("-")
    extent = round((1 << 24) ** (1 / max(map(len, (result, a, b)))))
    extent -= extent % 4 if extent >= 16 else 0
    return f"{text}", f"{a},{b}->{result}", dtype, dict.fromkeys({*a, *b}, extent)


def tccg(setup: Setup, dtype: str, *, tuned: bool = False) -> None:
    """The 48 contractions of TCCG, with 2^24 elements in the largest tensor: as planned, and by the peers.

    The means are geometric, over all contractions.  Of tuned plans there are every sixth, since each contraction is
    measured, and kernels are compiled for it, before the first round.
    """
    turns = setup.count(CALLS)
    chosen = CONTRACTIONS[:: 12 if turns != CALLS else 6 if tuned else 1]
    kinds: dict[str, dict[str, Any]] = {"atomr": {}, **({"atomr tuned": {"tune": True}} if tuned else {})}
    with setup.attempt("cuTENSOR found", kind="peer"):
        name_cutensor(setup)
    peers = dict(PEERS)
    with setup.attempt("CuPy found", kind="peer"):  # once, since it may take long to fail
        setup.need()
        try:
            cupy_cutensor(ordinal(setup))
        except Unavailable:
            peers.pop("CuPy")
            raise
    names: dict[str, list[str]] = {}
    for text in chosen:
        expression = _contraction(text, dtype)
        _, subscripts, _, extents = expression
        for kind, options in kinds.items():
            add_ours(setup, name := f"{kind} {text}", expression, turns, **options)
            names.setdefault(kind, []).append(name)
        shapes = shapes_of(setup, subscripts, extents)
        for peer, make in peers.items():
            made = partial(make, subscripts, dtype, shapes)
            add_peer(setup, name := f"{peer} {text}", made, "run", turns, every=min(EVERY, turns))
            names.setdefault(peer, []).append(name)
            for kind in kinds:
                setup.ratio(f"{kind} {text}", name)
    for kind, members in names.items():
        setup.mean(f"{kind}, mean", members, "atomr" if kind.startswith("atomr") else "peer")
    for peer in peers:
        for kind in kinds:
            setup.ratio(f"{kind}, mean", f"{peer}, mean")


CASES = (
    *(
        Case(
            f"gpu_tccg{suffix}", f"Contractions of TCCG on a GPU, {dtype}", partial(tccg, dtype=dtype),
            devices=("cuda",),
        )
        for dtype, suffix in (("float32", ""), ("float64", "_float64"), ("bfloat16", "_bfloat16"))
    ),
    Case(
        "gpu_tccg_tuned", "Tuned contractions of TCCG on a GPU, float32", partial(tccg, dtype="float32", tuned=True),
        devices=("cuda",),
    ),
)  # fmt: skip
