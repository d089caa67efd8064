"""Expressions against NumPy's einsum in float64, on the host and on CUDA devices, the fake one included."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fake_cuda import using
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import atomr_native as an
from atomr_native.dtypes import as_dtype
from bench.libraries.tensor.cases import CONTRACTIONS

RNG = np.random.default_rng(3)
#: Bits of the mantissa with which operands and intermediate results are rounded.
EPS = {
    "float64": 2.0**-52, "complex128": 2.0**-52, "float32": 2.0**-23, "complex64": 2.0**-23, "float16": 2.0**-10,
    "bfloat16": 2.0**-7, "float8_e4m3fn": 2.0**-23,
}  # fmt: skip
DTYPES = [*EPS, "int32", "int8", "uint64", "bool"]


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def random(shape: tuple[int, ...], dtype: str, rng: np.random.Generator = RNG) -> np.ndarray:
    """Return values of a dtype."""
    found = as_dtype(dtype)
    if found.kind in "iub":
        return rng.integers(0, 4, shape).astype(found)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if found.kind == "c" else x).astype(found)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(complex if x.dtype.kind == "c" else np.float64)


def check(found: np.ndarray, subscripts: str, arrays: list[np.ndarray], *, steps: int = 1, eps: float = 0.0) -> None:
    """Hold a result against float64: the error is at most a multiple of the sum of magnitudes."""
    if found.dtype.kind in "iu":
        assert np.array_equal(found, np.einsum(subscripts, *(x.astype(found.dtype) for x in arrays)))
        return
    if found.dtype == bool:
        assert np.array_equal(found, np.einsum(subscripts, *(x.astype(int) for x in arrays)) > 0)
        return
    want = np.einsum(subscripts, *map(wide, arrays), optimize=True)
    size = np.einsum(subscripts, *(np.abs(wide(x)) for x in arrays), optimize=True)
    inner = math.prod(max(x.size, 1) for x in arrays) ** 0.25
    bound = max(EPS.get(found.dtype.name, 0.0), eps, *(EPS.get(x.dtype.name, 0.0) for x in arrays))
    assert found.shape == want.shape
    assert np.all(np.abs(wide(found) - want) <= (4 * steps + inner) * bound * size + 1e-300)


def verify(device: an.Device, subscripts: str, arrays: list[np.ndarray], **options: Any) -> tuple[str, ...]:
    """Send an expression, hold its result, and return the notes of its plan."""
    refs = [device.put(x) for x in arrays]
    check(device.tensor.einsum(subscripts, *refs, **options).numpy(), subscripts, arrays, steps=len(arrays))
    return device.tensor.plan(an.EinsumRequest(subscripts=subscripts, operands=refs, **options)).notes


@pytest.mark.parametrize(
    ("dtype", "route"),
    [*((dtype, "auto") for dtype in DTYPES), ("bfloat16", "blas_lt"), ("float32", "kernel"), ("complex64", "kernel")],
)
def test_products(device: an.Device, dtype: str, route: str) -> None:
    a, b = random((3, 20, 30), dtype), random((3, 30, 25), dtype)
    notes = verify(device, "bij,bjk->bik", [a, b], route=route)
    if device.name.startswith("cuda"):
        products = route != "kernel" and as_dtype(dtype).kind in "fcV"
        assert ("cuBLASLt" in notes[0]) == products


@pytest.mark.parametrize(
    ("subscripts", "shapes", "native"),
    [
        ("ij,jk->ki", ((20, 30), (30, 40)), "cuBLASLt"),
        ("ji,jk->ik", ((30, 20), (30, 40)), "cuBLASLt"),
        ("ijkl,klmn->ijmn", ((3, 4, 5, 6), (5, 6, 7, 8)), "cuBLASLt"),
        ("ijkl,lkmn->ijmn", ((3, 4, 5, 6), (6, 5, 7, 8)), "cuTENSOR"),
        ("ijkl,klmn->imjn", ((3, 4, 5, 6), (5, 6, 7, 8)), "cuTENSOR"),
        ("ibk,bkj->bij", ((9, 4, 30), (4, 30, 20)), "cuBLASLt"),
        ("xij,jk->k", ((3, 14, 25), (25, 30)), "a kernel"),
        ("i,j->ij", ((70,), (80,)), "a kernel"),
        ("ij,ij->ij", ((70, 3), (70, 3)), "a kernel"),
        ("ij,ij->", ((70, 90), (70, 90)), "a kernel"),
        ("ijk->", ((11, 13, 17),), "a kernel"),
        ("ijk->k", ((11, 13, 17),), "a kernel"),
        ("ijk->kji", ((11, 13, 17),), "a kernel"),
        ("iij->j", ((5, 5, 3),), "a kernel"),
        ("ii->i", ((5, 5),), "a kernel"),
        (",ij->ji", ((), (3, 4)), "a kernel"),
        ("->", ((),), "a kernel"),
        ("bhqd,bhkd->bhqk", ((2, 3, 17, 16), (2, 3, 19, 16)), "cuBLASLt"),
        ("ij,jk->ik", ((20, 1), (30, 40)), "cuBLASLt, after copies of A"),
        ("ij,jk->ik", ((5, 0), (0, 7)), "no products"),
        ("ij,jk->ik", ((0, 5), (5, 7)), ""),
    ],
)
def test_routes(device: an.Device, subscripts: str, shapes: Any, native: str) -> None:
    notes = verify(device, subscripts, [random(shape, "float64") for shape in shapes])
    if device.name.startswith("cuda"):
        assert native in " ".join(notes)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize(
    ("subscripts", "note"),
    [
        ("bda,dc->abc", "abc,bd->cad: cuBLASLt"),  # for each b the transposed matrix, and one matrix of the other
        ("ad,bdc->abc", "ab,cbd->acd: cuBLASLt"),
        ("adc,bd->abc", "abc,db->adc: cuBLASLt"),
        ("ec,abed->abcd", "ab,cdae->cdbe: cuBLASLt"),
        ("abed,ec->abcd", "abcd,ce->abed: cuBLASLt"),
    ],
)
def test_modes_of_one_operand_are_a_batch(device: an.Device, subscripts: str, note: str, dtype: str) -> None:
    extents = {"a": 64, "b": 96, "c": 65, "d": 3, "e": 3}
    extents |= {"a": 2, "b": 48, "d": 66} if "e" in subscripts else {"a": 96, "b": 66} if "bd->" in subscripts else {}
    terms, output = subscripts.split("->")
    x, y = (random(tuple(extents[m] for m in term), dtype) for term in terms.split(","))
    notes = verify(device, subscripts, [x, y])
    if device.name.startswith("cuda"):
        assert notes == (note,)
    refs, c = [device.put(x), device.put(y)], random(tuple(extents[m] for m in output), dtype)
    made = device.tensor.contract(subscripts, *refs, c=device.put(c), alpha=2, beta=-3, conj=(False, True)).numpy()
    assert np.allclose(made, 2 * np.einsum(subscripts, x, y.conj()) - 3 * c, atol=1e-3)


def test_a_batch_that_the_library_refuses_is_one_product_with_copies(fake_environment: dict[str, str]) -> None:
    with using({**fake_environment, "FAKE_CUDA_LT_APART": "1"}), an.System(standby="off") as system:
        arrays = [random(shape, "float32") for shape in ((96, 2, 64), (2, 65))]
        notes = verify(system.device("cuda:0"), "bda,dc->abc", arrays, route="blas_lt")
    assert "does not take" in notes[0]
    assert notes[1:] == ("abc,bd->cad: cuBLASLt, after copies of A",)


@pytest.mark.parametrize("family", CONTRACTIONS)
def test_families_of_contractions(cuda_system: an.System, family: str) -> None:
    result, a, b = family.split("-")
    extents = dict(zip("abcdefg", (3, 5, 4, 2, 6, 3, 8), strict=True))
    arrays = [random(tuple(extents[m] for m in term), "float64") for term in (a, b)]
    verify(cuda_system.device("host"), f"{a},{b}->{result}", arrays)
    if family in CONTRACTIONS[::7]:
        verify(cuda_system.device("cuda:0"), f"{a},{b}->{result}", arrays, route="blas_lt")


@pytest.mark.parametrize("path", ["left", "auto"])
def test_a_chain_reuses_its_workspace(cuda_system: an.System, path: str) -> None:
    """Of six intermediate results at most two exist at once, however long the chain is."""
    device, side = cuda_system.device("cuda:0"), 16
    matrices = [device.put(random((side, side), "float64")) for _ in range(8)]
    subscripts = ",".join(f"{a}{b}" for a, b in zip("abcdefgh", "bcdefghi", strict=True)) + "->ai"
    request = an.EinsumRequest(subscripts=subscripts, operands=matrices, optimize=path, route="kernel")
    plan = device.tensor.plan(request).wait(60)
    assert 0 < plan.record.workspace <= 2 * 8 * side**2
    found = device.tensor.tell(request).numpy()
    check(found, subscripts, [x.numpy() for x in matrices], steps=7)


def test_modes_of_size_two(device: an.Device) -> None:
    """28 modes, of which neighbours merge to one matrix product."""
    n = 10
    a, b = random((2,) * (n + 4), "float32"), random((2,) * (n + 4), "float32")
    left, inner, right = list(range(4)), list(range(4, 4 + n)), list(range(50, 54))
    refs = [device.put(a), device.put(b)]
    found = device.tensor.einsum([[*left, *inner], [*inner, *right], [*left, *right]], *refs).numpy()
    want = a.reshape(16, -1).astype(float) @ b.reshape(-1, 16)
    assert np.allclose(found.reshape(16, 16), want, atol=1e-3)


def test_layouts(device: an.Device) -> None:
    """Broadcast, backwards, diagonal, and offset operands, and a strided output."""
    a, b = random((40, 30), "float32"), random((30, 50), "float32")
    ref_a, ref_b = device.put(a), device.put(b)
    for view in (np.s_[::-1], np.s_[:, ::-1], np.s_[3::2, 1:], np.s_[:, 5:8]):
        x, y = a[view], b[: a[view].shape[1]]
        found = device.tensor.einsum("ij,jk->ik", ref_a[view], ref_b[: a[view].shape[1]]).numpy()
        check(found, "ij,jk->ik", [x, y])
    wide_out = device.zeros((40, 2, 50), "float32")
    device.tensor.einsum("ij,jk->ik", ref_a, ref_b, out=wide_out[:, 1])
    check(wide_out.numpy()[:, 1], "ij,jk->ik", [a, b])
    assert not wide_out.numpy()[:, 0].any()
    row = device.put(a[0]).reshape((1, 30))
    check(device.tensor.einsum("ij,ij->i", ref_a, row).numpy(), "ij,ij->i", [a, np.broadcast_to(a[:1], a.shape)])


@pytest.mark.parametrize(
    ("dtype", "route"),
    [("float32", "auto"), ("float16", "auto"), ("complex128", "auto"), ("int64", "auto"), ("complex128", "kernel")],
)
def test_factors(device: an.Device, dtype: str, route: str) -> None:
    a, b, c = random((20, 30), dtype), random((30, 40), dtype), random((20, 40), dtype)
    refs = [device.put(x) for x in (a, b)]
    alpha, beta = (2 - 1j, 0.5j) if dtype == "complex128" else (3, -2)
    want = alpha * wide(a) @ wide(b) + beta * wide(c)
    size = 9 * (np.abs(wide(a)) @ np.abs(wide(b)) + np.abs(wide(c)))

    def hold(found: an.GpuRef) -> None:
        error = np.abs(wide(found.numpy()) - want)
        assert np.all(error <= 20 * EPS.get(dtype, 0) * size)

    ref = device.put(c)
    hold(device.tensor.contract("ij,jk->ik", *refs, c=ref, alpha=alpha, beta=beta, route=route))
    turned = device.put(np.ascontiguousarray(c.T)).T
    hold(device.tensor.contract("ij,jk->ik", *refs, c=turned, alpha=alpha, beta=beta, route=route))
    scale = {"float16": "float32", "complex128": "complex128"}.get(dtype, dtype)
    factors = {"alpha": device.put(np.array(alpha, scale)), "beta": device.put(np.array([beta], scale))}
    hold(device.tensor.contract("ij,jk->ik", *refs, c=ref, **factors, route=route))
    out = device.tensor.contract("ij,jk->ik", *refs, c=ref, out=ref, alpha=alpha, beta=beta, route=route)
    assert out is ref
    hold(ref)
    request = an.EinsumRequest(subscripts="ij,jk->ik", operands=refs, c=device.put(c), alpha=7, beta=5, route=route)
    out = device.zeros((20, 40), dtype)
    device.tensor.plan(request).tell(*refs, device.put(c), out=out, alpha=alpha, beta=beta)
    hold(out)


@pytest.mark.parametrize("subscripts", ["ij,jk->ik", "ji,kj->ik", "ji,kj->ki"])
@pytest.mark.parametrize("route", ["auto", "kernel"])
def test_conjugates(device: an.Device, route: str, subscripts: str) -> None:
    """As they lie, and transposed, which cuBLASLt conjugates without a copy."""
    extents = {"i": 20, "j": 30, "k": 40}
    a, b = (random(tuple(extents[m] for m in term), "complex64") for term in subscripts[:5].split(","))
    refs = [device.put(x) for x in (a, b)]
    for conj, x, y in (((True, False), a.conj(), b), ((False, True), a, b.conj()), (True, a.conj(), b.conj())):
        found = device.tensor.contract(subscripts, *refs, conj=conj, route=route).numpy()
        check(found, subscripts, [x, y])


@pytest.mark.parametrize("route", ["auto", "kernel"])
def test_a_factor_of_zero_stops_nan(device: an.Device, route: str) -> None:
    nan, b, c = (
        device.full(shape, fill, "float32") for shape, fill in (((20, 30), np.nan), ((30, 40), 1), ((20, 40), 2))
    )
    tensor = device.tensor
    assert (tensor.contract("ij,jk->ik", nan, b, c=c, alpha=0, beta=3, route=route).numpy() == 6).all()
    poisoned = device.full((20, 40), np.nan, "float32")
    one = device.full((20, 30), 1, "float32")
    assert (tensor.contract("ij,jk->ik", one, b, c=poisoned, out=poisoned, beta=0, route=route).numpy() == 30).all()
    assert (tensor.contract("ij,jk->ik", nan, b, alpha=0.0, route=route).numpy() == 0).all()
    zero, two = (device.put(np.array(value, "float32")) for value in (0, 2))
    assert (tensor.contract("ij,jk->ik", nan, b, c=c, alpha=zero, beta=two, route=route).numpy() == 4).all()
    poisoned = device.full((20, 40), np.nan, "float32")
    assert (tensor.contract("ij,jk->ik", one, b, c=poisoned, alpha=two, beta=zero, route=route).numpy() == 60).all()


def test_a_result_over_an_operand(device: an.Device) -> None:
    a = random((30, 30), "float64")
    ref = device.put(a)
    device.tensor.einsum("ij,jk->ki", ref, ref, out=ref)
    check(ref.numpy(), "ij,jk->ki", [a, a])
    by_kernel = device.put(a)
    device.tensor.einsum("ij,jk->ik", by_kernel, by_kernel, out=by_kernel, route="kernel")
    check(by_kernel.numpy(), "ij,jk->ik", [a, a])
    x = device.put(a)
    device.tensor.permute("ij->ji", x, out=x)
    assert np.array_equal(x.numpy(), a.T)
    y = device.put(a)
    device.tensor.reduce("sum", "ij->j", y, out=y[3])
    assert np.allclose(y.numpy()[3], a.sum(0))


def test_results_of_another_dtype(device: an.Device) -> None:
    a, b = random((20, 30), "bfloat16"), random((30, 40), "bfloat16")
    refs = [device.put(x) for x in (a, b)]
    exact = wide(a) @ wide(b)
    size = np.abs(wide(a)) @ np.abs(wide(b))
    for dtype in ("float32", "float64"):
        found = device.tensor.einsum("ij,jk->ik", *refs, out_dtype=dtype).numpy()
        assert found.dtype == dtype
        assert np.all(np.abs(found - exact) <= 40 * 2.0**-24 * size)  # not rounded to bfloat16 in between
    ints = [device.put(np.full((2, 3), 100, "int8")), device.put(np.full((3, 2), 100, "int8"))]
    assert (device.tensor.einsum("ij,jk->ik", *ints, out_dtype="int32").numpy() == 30000).all()
    mixed = device.tensor.einsum("ij,jk->ik", refs[0], device.put(random((30, 4), "complex64")))
    assert mixed.dtype == "complex64"


def test_a_chain_is_one_message(device: an.Device) -> None:
    arrays = [random(shape, "float64") for shape in ((13, 24), (24, 30), (30, 21), (21, 19), (19, 3))]
    refs = [device.put(x) for x in arrays]
    device.tensor.einsum("ab,bc,cd,de,ef->af", *refs).wait()
    before = device.stats()["actors"]["tensor"]["messages"]
    found = device.tensor.einsum("ab,bc,cd,de,ef->af", *refs)
    check(found.numpy(), "ab,bc,cd,de,ef->af", arrays, steps=5)
    assert device.stats()["actors"]["tensor"]["messages"] == before + 1


def test_more_workspace_than_the_limit_is_refused(cuda_engine: str) -> None:
    arrays = [np.ones(shape) for shape in ((16, 90, 2), (2, 900), (900, 2))]
    with an.System(watchdog=60.0, workspace_limit=8 << 20) as system:
        device = system.device("cuda:0")
        refs = [device.put(x) for x in arrays]
        with pytest.raises(an.Unsupported, match="or set memory_limit=, which slices modes") as refused:
            device.tensor.einsum("xij,jk,kl->xil", *refs, optimize="left")
        assert refused.value.rule == "tensor.workspace_limit"
        found = device.tensor.einsum("xij,jk,kl->xil", *refs, optimize="left", memory_limit=2 << 20)
        assert (found.numpy() == 1800).all()


@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_slices(device: an.Device, dtype: str) -> None:
    arrays = [random(shape, dtype) for shape in ((4, 5), (5, 6), (6, 4))]
    limit = 8 * arrays[0].itemsize
    for subscripts, optimize in (("ij,jk,kl->il", "left"), ("ij,jk,kl->ijl", [(1, 2), (0, 1)])):
        path = device.tensor.einsum_path(subscripts, *arrays, optimize=optimize, memory_limit=limit)
        assert path.slices
        assert path.peak <= limit
        route = "blas_lt" if dtype == "float32" else "auto"
        verify(device, subscripts, arrays, optimize=optimize, memory_limit=limit, route=route)


def test_gradients(device: an.Device) -> None:
    shapes = ((4, 5), (5, 6, 3), (3, 3), (7,), (4, 1))  # the last is broadcast along l
    arrays = [random(shape, "complex128") for shape in shapes]
    subscripts = "ij,jkl,ll,m,il->il"
    conj = (False, True, False, False, True)
    grad = random((4, 3), "complex128")
    refs = [device.put(x) for x in arrays]
    requests = device.tensor.einsum_gradient(subscripts, *refs, grad=device.put(grad), alpha=2 - 1j, conj=conj)

    def value(*operands: np.ndarray) -> float:
        flipped = [x.conj() if c else x for x, c in zip(operands, conj, strict=True)]
        made = (2 - 1j) * np.einsum(subscripts, *flipped)
        return float((grad.conj() * made).sum().real)

    for number, request in enumerate(requests):
        found = device.tensor.tell(request).numpy()
        assert found.shape == arrays[number].shape
        for index in list(np.ndindex(found.shape))[:: max(1, found.size // 5)]:
            parts = []
            for step in (1e-5, 1e-5j):
                moved = [[x.copy() for x in arrays] for _ in range(2)]
                moved[0][number][index] += step
                moved[1][number][index] -= step
                parts.append((value(*moved[0]) - value(*moved[1])) / 2e-5)
            assert abs(found[index] - complex(*parts)) < 1e-6 * (1 + abs(found[index]))


@st.composite
def expressions(draw: st.DrawFn) -> tuple[str, list[np.ndarray], dict[str, Any]]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = draw(st.integers(1, 4))
    terms = ["".join(draw(st.lists(st.sampled_from("abcdef"), max_size=3))) for _ in range(count)]
    extents = {m: draw(st.sampled_from([0, 1, 2, 3, 7, 16])) for m in "abcdef"}
    every = sorted(set("".join(terms)))
    output = "".join(draw(st.permutations(every))[: draw(st.integers(0, len(every)))])
    arrays = []
    for term in terms:
        dtype = draw(st.sampled_from(["float32", "float64", "float64", "complex64", "bfloat16", "int32"]))
        shape = tuple(1 if term.count(m) == 1 and draw(st.integers(0, 5)) == 0 else extents[m] for m in term)
        x = random(tuple(n + draw(st.integers(0, 1)) for n in shape), dtype, rng)
        x = x[tuple(slice(x.shape[i] - n, None) for i, n in enumerate(shape))]
        if term and draw(st.booleans()):
            x = x[::-1]
        if len(term) == 2 and draw(st.booleans()):
            x = np.ascontiguousarray(x.T).T
        arrays.append(x)
    options = {
        "route": draw(st.sampled_from(["auto", "blas_lt", "kernel", "cutensor"])),
        "before": [draw(st.sampled_from([0, 1, 4])) for _ in terms],
        "factors": draw(st.none() | st.tuples(st.sampled_from([0, 1, -2, 3]), st.sampled_from([0, 1, 2]))),
    }
    return ",".join(terms) + "->" + output, arrays, options


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(expressions())
def test_any_expression(device: an.Device, expression: tuple[str, list[np.ndarray], dict[str, Any]]) -> None:
    """Of any extents, strides, broadcast axes, dtypes, first bytes, factors and routes."""
    subscripts, arrays, options = expression
    before, factors = options.pop("before"), options.pop("factors")
    refs = []
    for x, skipped in zip(arrays, before, strict=True):  # as it lies
        base = x if x.base is None else x.base
        lies = base.size and x.size and base.dtype == x.dtype and all(s % x.itemsize == 0 for s in x.strides)
        if lies and base.flags.c_contiguous and any(s < 0 for s in x.strides):
            ref = device.put(np.ascontiguousarray(x[::-1]))[::-1]
        elif lies and x.ndim == 2 and x.strides[0] < x.strides[1]:
            ref = device.put(np.ascontiguousarray(x.T)).T
        else:
            ref = device.put(np.concatenate([np.zeros(skipped, x.dtype), x.ravel()]))[skipped:].reshape(x.shape)
        refs.append(ref)
    made = device.tensor.einsum(subscripts, *refs, **options)
    found = made.numpy()
    want = np.einsum(subscripts, *map(wide, arrays), optimize=True)
    size = np.einsum(subscripts, *(np.abs(wide(x)) for x in arrays), optimize=True)
    eps = EPS.get(found.dtype.name, 0.0)
    wraps = found.dtype.kind in "iu"
    want = want.astype(found.dtype) if wraps else want
    assert np.all(np.abs(wide(found) - wide(want)) <= 60 * len(arrays) * eps * size + 1e-300)
    if factors is not None:
        alpha, beta = factors
        c = device.put(found)
        more = device.tensor.contract(subscripts, *refs, alpha=alpha, beta=beta, c=c, **options).numpy()
        want = alpha * want + beta * (found if wraps else wide(found))
        size = 60 * len(arrays) * eps * (abs(alpha) * size + beta * np.abs(wide(found))) + 1e-300
        assert np.all(np.abs(wide(more) - wide(want)) <= size)
