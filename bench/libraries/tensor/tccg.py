"""The contractions of TCCG, in three types, tuned, and in any order, beside torch, CuPy and nvmath."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from bench.harness import Bar, Case, Setup
from bench.harness.gpu import add_peer, ordinal
from bench.harness.unavailable import Unavailable
from bench.libraries.tensor._expressions import (
    ANY_ORDER,
    PEERS,
    Expression,
    add_ours,
    cupy_cutensor,
    name_cutensor,
    shapes_of,
)
from bench.libraries.tensor.cases import CONTRACTIONS

__all__ = ["BARS", "CASES"]

#: Calls of a sample, with one wait at its end; and of contractions of more multiplications than that, which take
#: milliseconds.
CALLS, FEW, LARGE = 50, 10, 1 << 34
#: Seconds for tuning, after which no further contraction is tuned.
TUNING = 18.0


def _contraction(text: str, dtype: str) -> Expression:
    """Return a contraction with equal extents of all its modes, multiples of 4 where they are 16 or more."""
    result, a, b = text.split("-")
    extent = round((1 << 24) ** (1 / max(map(len, (result, a, b)))))
    extent -= extent % 4 if extent >= 16 else 0
    return f"{text}", f"{a},{b}->{result}", dtype, dict.fromkeys({*a, *b}, extent)


def _in_turn(count: int, step: int) -> list[int]:
    """Return numbers below `count`, every `step`-th first, so that the first ones are of all kinds."""
    return [i for start in range(step) for i in range(start, count, step)]


def tccg(setup: Setup, dtype: str, *, tuned: bool = False, order: str = "C") -> None:
    """The 48 contractions of TCCG, with 2^24 elements in the largest tensor: as planned, and by the peers.

    Results lie as in C, and go into an array, which torch alone does not do.  *In any order*: as the library chooses,
    where nvmath is given no array.  The means are geometric, over all contractions.  Beside rounds: how a step is
    computed.  Tuning tries ways of a contraction for 0.8 seconds, mostly without a kernel that is compiled for it.  Of
    tuned plans there are as many as are measured within 18 seconds; a further run goes on with what this one has left
    in the cache.
    """
    full = setup.count(CALLS) == CALLS
    chosen = [CONTRACTIONS[i] for i in (_in_turn(48, 7) if tuned else range(48))][:: 1 if full or setup.dry else 12]
    kinds: dict[str, dict[str, Any]] = {
        "atomr": {"order": order}, **({"atomr tuned": {"tune": 0.8}} if tuned else {})
    }  # fmt: skip
    with setup.attempt("cuTENSOR found", kind="peer"):
        name_cutensor(setup)
    peers = dict(PEERS if order == "C" else ANY_ORDER)
    if "CuPy" in peers:
        with setup.attempt("CuPy found", kind="peer"):  # once, since it may take long to fail
            setup.need()
            try:
                cupy_cutensor(ordinal(setup), dtype)
            except Unavailable:
                peers.pop("CuPy")
                raise
    began = time.monotonic()
    names: dict[str, list[str]] = {}
    for text in chosen:
        if tuned and time.monotonic() - began > TUNING:
            break
        expression = _contraction(text, dtype)
        _, subscripts, _, extents = expression
        turns = setup.count(CALLS if math.prod(extents.values()) < LARGE else FEW)
        for kind, options in kinds.items():
            add_ours(setup, name := f"{kind} {text}", expression, turns, every=turns, **options)
            names.setdefault(kind, []).append(name)
        shapes = shapes_of(setup, subscripts, extents)
        for peer, make in peers.items():
            made = partial(make, subscripts, dtype, shapes)
            add_peer(setup, name := f"{peer} {text}", made, "run", turns, every=turns)
            names.setdefault(peer, []).append(name)
            for kind in kinds:
                setup.ratio(f"{kind} {text}", name)
    for kind, members in names.items():
        count = f"of {len(members)} contractions"
        setup.mean(f"{kind}, mean", members, "atomr" if kind.startswith("atomr") else "peer", remark=count)
    for peer in peers:
        for kind in kinds:
            setup.ratio(f"{kind}, mean", f"{peer}, mean")


#: Types by the ends of their cases' names, and their peers.
_PEERS: Mapping[str, tuple[str, ...]] = {
    "": tuple(PEERS), "_float64": tuple(PEERS), "_bfloat16": ("torch", "nvmath")
}  # fmt: skip
BARS = (
    *(
        Bar("TCCG over torch, CuPy and nvmath, mean", f"gpu_tccg{suffix}", "atomr, mean", 1.0, "x", f"{peer}, mean",
            part=f"{suffix.lstrip('_') or 'float32'}, {peer}")
        for suffix, peers in _PEERS.items()
        for peer in peers
    ),
    *(
        Bar(f"TCCG over torch, CuPy and nvmath, {suffix.lstrip('_') or 'float32'}", f"gpu_tccg{suffix}",
            f"atomr {text}", 1 / 0.95, "x", f"{peer} {text}", part=f"{text}, {peer}")
        for suffix, peers in _PEERS.items()
        for text in CONTRACTIONS
        for peer in peers
    ),
    *(
        Bar("TCCG tuned over torch, CuPy and nvmath, mean", "gpu_tccg_tuned", "atomr tuned, mean", 1 / 1.05, "x",
            f"{peer}, mean", part=peer)
        for peer in PEERS
    ),
    Bar("TCCG in any order over nvmath, mean", "gpu_tccg_any", "atomr, mean", 1.0, "x", "nvmath, mean"),
)  # fmt: skip
CASES = (
    *(
        Case(
            f"gpu_tccg{suffix}", f"Contractions of TCCG on a GPU, {dtype}", partial(tccg, dtype=dtype),
            devices=("cuda",),
        )
        for dtype, suffix in (("float32", ""), ("float64", "_float64"), ("bfloat16", "_bfloat16"))
    ),
    Case(
        "gpu_tccg_any", "Contractions of TCCG on a GPU, float32, with results in any order",
        partial(tccg, dtype="float32", order="any"), devices=("cuda",),
    ),
    Case(
        "gpu_tccg_tuned", "Tuned contractions of TCCG on a GPU, float32", partial(tccg, dtype="float32", tuned=True),
        devices=("cuda",),
    ),
)  # fmt: skip
