"""Expressions over tensors: cost of their messages on the host device, and time on a GPU beside torch."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.harness import Bar, Case, Setup
from bench.harness.calls import Operation, add_calls
from bench.harness.common import PLACES, device
from bench.harness.gpu import add_loop, waited
from bench.libraries.tensor._expressions import EVERY, TURNS, add_expressions, name_cutensor

__all__ = ["BARS", "CASES", "CONTRACTIONS"]

#: Extents of the matrices of a chain, as in twin.c.
CHAIN = 64
#: Rows of the square matrices of products.
SQUARES = (1024, 2048, 4096)
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


def _product(dev: Any, **options: Any) -> Operation:
    import atomr_native as an

    a, b, out = (dev.zeros((32, 32), "float32") for _ in range(3))
    plan = dev.tensor.plan(an.EinsumRequest(subscripts="ij,jk->ik", operands=(a, b), out=out, **options))
    call = partial(dev.tensor.einsum, "ij,jk->ik", a, b, out=out, **options)
    return Operation(plan, {"x0": a, "x1": b, "out": out}, call, out)


def host(setup: Setup) -> None:
    """A product of 32 x 32 float32 on the host device: told, called, asked and sustained."""
    add_calls(setup, "ij,jk->ik, 32", _product)


def _by_cutensor(dev: Any) -> Operation:
    return _product(dev, route="cutensor")


def _chain(dev: Any) -> Operation:
    import atomr_native as an

    operands = [dev.zeros((CHAIN, CHAIN), "float32") for _ in range(5)]
    out = dev.zeros((CHAIN, CHAIN), "float32")
    given = {"optimize": "left", "route": "cutensor"}
    request = an.EinsumRequest(subscripts="ab,bc,cd,de,ef->af", operands=operands, out=out, **given)
    call = partial(dev.tensor.einsum, "ab,bc,cd,de,ef->af", *operands, out=out, **given)
    return Operation(dev.tensor.plan(request), {**{f"x{i}": x for i, x in enumerate(operands)}, "out": out}, call, out)


def gpu(setup: Setup) -> None:
    """Time of an expression, of 100 planned messages with a wait after each 20.

    torch computes the same of zeros by `torch.einsum`, and allocates each result; permutations are made contiguous.
    """
    add_calls(setup, "ij,jk->ik, 32", _product)
    add_expressions(setup, SIZES, setup.count(TURNS))


def lanes(setup: Setup) -> None:
    """What messages cost in the lane: a product of 32 x 32 by cuTENSOR, and a chain of five of 64 x 64 as one message.

    C: `cutensorContract` in a loop, and the four of the chain, with plans that exist.  *sustained*: until the last is
    done.  *synchronize*: each is waited for.
    """
    count = setup.count(2000)
    with setup.attempt("C prepared", kind="twin"):
        name_cutensor(setup)
    for what, call, make in (("ij,jk->ik, 32", "contract", _by_cutensor), (f"chain of five, {CHAIN}", "chain", _chain)):
        add_calls(setup, what, make)
        add_loop(setup, f"C {what}, caller", call, count)
        add_loop(setup, f"C {what}, sustained", f"{call}-sustained", count)
        add_loop(setup, f"C {what}, synchronize", f"{call}-synchronize", setup.count(500))
        for place in PLACES:
            setup.ratio(f"atomr {what}, sustained, {place}", f"C {what}, sustained")
            setup.ratio(f"atomr {what}, asked, {place}", f"C {what}, synchronize")


def products(setup: Setup) -> None:
    """Contractions that are products of matrices, beside the same products by `device.blas_lt`."""
    turns = setup.count(TURNS)
    for dtype in ("bfloat16", "float32"):
        for n in SQUARES if setup.dry or turns == TURNS else (16,):
            names = [f"atomr {kind}, {n}, {dtype}" for kind in ("tensor", "blas_lt")]
            for name in names:
                with setup.attempt(name):
                    dev = device(setup, "process")
                    a, b, out = (dev.zeros((n, n), dtype) for _ in range(3))
                    if "tensor" in name:
                        import atomr_native as an

                        plan = dev.tensor.plan(an.EinsumRequest(subscripts="ij,jk->ik", operands=(a, b), out=out))
                    else:
                        plan = dev.blas_lt.plan(a, b, out=out)
                    plan.wait(60.0)
                    sample = waited(partial(plan.tell, a, b, out=out), out.wait, turns, min(EVERY, turns))
                    setup.add(name, sample, flops=2.0 * n**3)
            setup.ratio(*names)
    float8(setup)


def float8(setup: Setup) -> None:
    """Products of float8_e4m3fn whose sums are the innermost modes, in tensor cores of float8, beside bfloat16."""
    turns = setup.count(TURNS)
    n = 4096 if turns == TURNS else 16
    names = {f"atomr tensor, {n}, {dtype}, rows by rows": dtype for dtype in ("float8_e4m3fn", "bfloat16")}
    for name, dtype in names.items():
        with setup.attempt(name):
            import atomr_native as an

            dev = device(setup, "process")
            a, b, out = dev.zeros((n, n), dtype), dev.zeros((n, n), dtype), dev.zeros((n, n), "bfloat16")
            options = {"compute": "float8", "out_dtype": "bfloat16"} if "float8" in dtype else {}
            request = an.EinsumRequest(subscripts="ij,kj->ik", operands=(a, b), out=out, **options)
            plan = dev.tensor.plan(request).wait(60.0)
            sample = waited(partial(plan.tell, a, b, out=out), out.wait, turns, min(EVERY, turns))
            setup.add(name, sample, flops=2.0 * n**3)
    setup.ratio(*names)


BARS = (
    *(
        Bar(work, "gpu_tensor_lane", f"atomr {what}, sustained, {place}", limit, "x", f"C {what}, sustained",
            part=place)
        for work, what, limit in (
            ("message of a contraction over a C loop", "ij,jk->ik, 32", 1.15),
            ("einsum of five in one message over its C calls", f"chain of five, {CHAIN}", 1.3),
        )
        for place in PLACES
    ),
    *(
        Bar("contractions that are products over blas_lt", "gpu_tensor_products", f"atomr tensor, {n}, {dtype}",
            1 / 0.98, "x", f"atomr blas_lt, {n}, {dtype}", part=f"{n}, {dtype}")
        for dtype in ("bfloat16", "float32")
        for n in SQUARES
    ),
    Bar("contraction with many modes of size 2 over torch", "gpu_tensor", "atomr many modes of 2", 0.5, "x",
        "torch many modes of 2"),
)  # fmt: skip
CASES = (
    Case("tensor", "Expressions over tensors", host),
    Case("gpu_tensor", "Expressions over tensors on a GPU", gpu, devices=("cuda",)),
    Case("gpu_tensor_lane", "Messages with tensors beside C", lanes, devices=("cuda",)),
    Case("gpu_tensor_products", "Contractions that are products", products, devices=("cuda",)),
)
