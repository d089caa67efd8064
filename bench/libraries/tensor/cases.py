"""Expressions over tensors: cost of their messages on the host device, and time on a GPU beside torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from bench.harness import Case, Setup, gpu_peers
from bench.harness.calls import Operation, add_calls
from bench.harness.common import device
from bench.harness.gpu import add_peer, waited

__all__ = ["CASES", "CONTRACTIONS"]

#: Calls between two waits, and calls of a sample.
EVERY, TURNS = 20, 100
#: What is timed on a GPU: name, subscripts, dtype, extents of the modes, and extents in a quick run.
SIZES: tuple[tuple[str, str, str, dict[str, int]], ...] = (
    ("product, 2048", "ij,jk->ik", "float32", dict.fromkeys("ijk", 2048)),
    ("abcde,efbad->cf", "abcde,efbad->cf", "float32", {"a": 24, "b": 16, "c": 48, "d": 16, "e": 24, "f": 48}),
    ("gdab,efgc->abcdef", "gdab,efgc->abcdef", "float32", dict.fromkeys("abcdefg", 16)),
    ("acd,dbc->ab, float64", "acd,dbc->ab", "float64", {"a": 512, "b": 512, "c": 64, "d": 64}),
    ("scores of attention, bfloat16", "bhqd,bhkd->bhqk", "bfloat16", {"b": 4, "h": 16, "q": 1024, "k": 1024, "d": 64}),
    ("chain of five, 256", "ab,bc,cd,de,ef->af", "float32", dict.fromkeys("abcdef", 256)),
    ("permutation abcd->acbd", "abcd->acbd", "float32", {"a": 64, "b": 128, "c": 32, "d": 256}),
    ("transpose, 8192", "ab->ba", "float32", dict.fromkeys("ab", 8192)),
    ("sum over rows, 8192", "ab->a", "float32", dict.fromkeys("ab", 8192)),
    ("sum over columns, 8192", "ab->b", "float32", dict.fromkeys("ab", 8192)),
    ("inner product, 4096", "ab,ab->", "float32", dict.fromkeys("ab", 4096)),
    ("many modes of 2", "abcdefghijklmn,hijklmnopqrstu->abcdefgopqrstu", "float32",
     dict.fromkeys("abcdefghijklmnopqrstu", 2)),
)  # fmt: skip


def _triples() -> list[str]:
    found = []
    for y in "fed":
        rest = "".join(x for x in "def" if x != y)
        found += [f"abcdef-{rest}g{z}-g{y}{''.join(x for x in 'abc' if x != z)}" for z in "abc"]
    for z in "cba":
        rest = "".join(x for x in "abc" if x != z)
        found += [f"abcdef-g{y}{rest}-{''.join(x for x in 'def' if x != y)}g{z}" for y in "def"]
    return found


#: The 48 contractions of the Tensor Contraction Code Generator's benchmark: the result, and two operands.  They are
#: products of a tensor and a matrix, changes of basis, and steps of coupled-cluster methods.
CONTRACTIONS: tuple[str, ...] = (
    "abc-bda-dc", "abc-dca-bd", "abcd-dbea-ec", "abcd-deca-be", "abcd-ebad-ce", "abcde-efbad-cf", "abcde-ecbfa-fd",
    "abcde-efcad-bf", "abcd-ea-ebcd", "abcd-eb-aecd", "abcd-ec-abed", "ab-ac-cb", "ab-acd-dbc", "ab-cad-dcb",
    "abc-acd-db", "abc-ad-bdc", "abc-adc-bd", "abc-adc-db", "abc-adec-ebd", "abcd-aebf-dfce", "abcd-aebf-fdec",
    "abcd-aecf-bfde", "abcd-aecf-fbed", "abcd-aedf-bfce", "abcd-aedf-fbec", "abcd-aefb-fdce", "abcd-aefc-fbed",
    "abcd-eafb-fdec", "abcd-eafc-bfde", "abcd-eafd-fbec", *_triples(),
)  # fmt: skip


def _product(dev: Any) -> Operation:
    import atomr_native as an

    a, b, out = (dev.zeros((32, 32), "float32") for _ in range(3))
    plan = dev.tensor.plan(an.EinsumRequest(subscripts="ij,jk->ik", operands=(a, b), out=out))
    call = partial(dev.tensor.einsum, "ij,jk->ik", a, b, out=out)
    return Operation(plan, {"x0": a, "x1": b, "out": out}, call, out)


def host(setup: Setup) -> None:
    """A product of 32 x 32 float32 on the host device: told, called, asked and sustained."""
    add_calls(setup, "ij,jk->ik, 32", _product)


def _shapes(setup: Setup, subscripts: str, extents: dict[str, int]) -> list[tuple[int, ...]]:
    quick = setup.count(TURNS) != TURNS
    terms = subscripts.partition("->")[0].split(",")
    return [tuple(min(extents[m], 3) if quick else extents[m] for m in term) for term in terms]


def _torch(subscripts: str, dtype: str, shapes: list[tuple[int, ...]], index: int) -> gpu_peers.Calls:
    torch = gpu_peers.torch(index)
    operands = [torch.zeros(shape, dtype=getattr(torch, dtype), device="cuda") for shape in shapes]

    def run() -> Any:
        return torch.einsum(subscripts, *operands).contiguous()

    return gpu_peers.Calls({"run": run}, torch.cuda.synchronize)


def _add(setup: Setup, sizes: Sequence[tuple[str, str, str, dict[str, int]]], turns: int) -> None:
    """Add expressions: ours, those of torch, and their ratios."""
    import atomr_native as an

    for name, subscripts, dtype, extents in sizes:
        shapes = _shapes(setup, subscripts, extents)
        with setup.attempt(ours := f"atomr {name}"):
            dev = device(setup, "process")
            operands = [dev.zeros(shape, dtype) for shape in shapes]
            out = dev.tensor.einsum(subscripts, *operands).wait()
            request = an.EinsumRequest(subscripts=subscripts, operands=operands, out=out)
            plan = dev.tensor.plan(request).wait(60.0)
            setup.add(ours, waited(partial(plan.tell, *operands, out=out), out.wait, turns, min(EVERY, turns)))
        add_peer(setup, peer := f"torch {name}", partial(_torch, subscripts, dtype, shapes), "run", turns, every=EVERY)
        setup.ratio(ours, peer)


def gpu(setup: Setup) -> None:
    """Time of an expression, of 100 planned messages with a wait after each 20.

    torch computes the same of zeros by `torch.einsum`, and allocates each result; permutations are made contiguous.
    """
    add_calls(setup, "ij,jk->ik, 32", _product)
    _add(setup, SIZES, setup.count(TURNS))


def tccg(setup: Setup) -> None:
    """The 48 contractions of TCCG in float32, with 64 MiB in the largest tensor; `torch.einsum` beside them."""
    turns = setup.count(TURNS)
    _add(setup, [_contraction(text) for text in CONTRACTIONS[:: 1 if turns == TURNS else 12]], turns)


def _contraction(text: str) -> tuple[str, str, str, dict[str, int]]:
    """Return a contraction with equal extents of all its modes, multiples of 4 where they are 16 or more."""
    result, a, b = text.split("-")
    extent = round((1 << 24) ** (1 / max(map(len, (result, a, b)))))
    extent -= extent % 4 if extent >= 16 else 0
    return f"TCCG {text}", f"{a},{b}->{result}", "float32", dict.fromkeys({*a, *b}, extent)


CASES = (
    Case("tensor", "Expressions over tensors", host),
    Case("gpu_tensor", "Expressions over tensors on a GPU", gpu, devices=("cuda",)),
    Case("gpu_tccg", "Contractions of TCCG on a GPU", tccg, devices=("cuda",)),
)
