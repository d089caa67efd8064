"""cuTENSOR: every operation against NumPy in float64, on the fake library and on a GPU that has the real one."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_wheels import find
from fake_cuda import using
from hypothesis import given, settings
from hypothesis import strategies as st
from lt_emulator import source

import atomr_native as an
from atomr_native.dtypes import as_dtype
from atomr_native.libraries.tensor.cuda import cutensor as native
from atomr_native.libraries.tensor.cuda.arrays import Array
from bench.libraries.tensor.cases import CONTRACTIONS

RNG = np.random.default_rng(11)
EPS = {"float64": 2.0**-52, "complex128": 2.0**-52, "float32": 2.0**-23, "complex64": 2.0**-23, "float16": 2.0**-10,
       "bfloat16": 2.0**-7}  # fmt: skip


@pytest.fixture(scope="module")
def device(cuda_system: an.System) -> an.Device:
    made = cuda_system.device("cuda:0")
    x = made.zeros((2, 2), "float32")
    try:
        made.tensor.einsum("ij,jk->ik", x, x, route="cutensor").wait()
    except an.Unsupported as error:
        pytest.skip(str(error))
    return made


def random(shape: tuple[int, ...], dtype: str = "float64") -> np.ndarray:
    x = RNG.standard_normal(shape)
    return (x + 1j * RNG.standard_normal(shape) if as_dtype(dtype).kind == "c" else x).astype(as_dtype(dtype))


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(complex if x.dtype.kind == "c" else np.float64)


def close(found: np.ndarray, want: np.ndarray, size: np.ndarray, eps: float, inner: int) -> None:
    assert found.shape == want.shape
    assert np.all(np.abs(wide(found) - want) <= (4 + inner) * eps * size + 1e-300)


def told(plan: an.Plan, *operands: an.GpuRef, out: an.GpuRef, **numbers: float) -> np.ndarray:
    plan.tell(*operands, out=out, **numbers)
    return out.numpy()


def verify(device: an.Device, subscripts: str, arrays: list[np.ndarray], **options: Any) -> tuple[str, ...]:
    """Send an expression, hold its result, and return the notes of its plan."""
    refs = [device.put(x) for x in arrays]
    found = device.tensor.einsum(subscripts, *refs, **options).numpy()
    want = np.einsum(subscripts, *map(wide, arrays), optimize=True)
    size = np.einsum(subscripts, *(np.abs(wide(x)) for x in arrays), optimize=True)
    inner = math.ceil(math.prod(x.size for x in arrays) ** 0.25)
    close(found, want, size, max(EPS[x.dtype.name] for x in (*arrays, found)), inner)
    return device.tensor.plan(an.EinsumRequest(subscripts=subscripts, operands=refs, **options)).notes


@pytest.mark.abi
@pytest.mark.plain
def test_every_function_and_compute_type_is_exported() -> None:
    found = find("libcutensor.so.2")
    if not found:
        pytest.skip("libcutensor not found; pip install cutensor-cu13, or set ATOMR_NATIVE_CUDA_WHEELS")
    names = re.findall(r"\bF\([^,()]+, (cutensor\w+),", source("libraries/cutensor/names.h").read_text())
    assert len(names) == 34
    plan = source("libraries/cutensor/plan.c").read_text()
    types = set(re.findall(r"CUTENSOR_COMPUTE_DESC_\w+", plan))
    later = {f"CUTENSOR_COMPUTE_DESC_{name}" for name in ("9X16BF", "8XINT8", "4X16F")}  # than 2.2.0
    for path in found:
        listed = subprocess.run(["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True)
        exported = {name.partition("@")[0] for name in re.findall(r" [TD] (\S+)", listed.stdout)}
        assert [name for name in names if name not in exported] == []
        assert types - later <= exported


@pytest.mark.parametrize("family", CONTRACTIONS)
def test_contractions_of_the_benchmark(device: an.Device, family: str) -> None:
    result, a, b = family.split("-")
    extents = dict(zip("abcdefg", (3, 5, 4, 2, 6, 3, 8), strict=True))
    arrays = [random(tuple(extents[m] for m in term)) for term in (a, b)]
    assert verify(device, f"{a},{b}->{result}", arrays, route="cutensor")[0].endswith(": cuTENSOR")


def test_routes_of_one_request_agree(device: an.Device) -> None:
    for subscripts, shapes in (("abc,cdb->ad", ((5, 6, 7), (7, 8, 6))), ("aib,ciab->abc", ((5, 4, 3), (6, 4, 5, 3)))):
        arrays = [random(shape, "float32") for shape in shapes]
        notes = [verify(device, subscripts, arrays, route=route)[0] for route in ("cutensor", "blas_lt", "kernel")]
        assert [re.search("cuTENSOR|cuBLASLt|a kernel", note)[0] for note in notes] == [
            "cuTENSOR",
            "cuBLASLt",
            "a kernel",
        ]


def test_the_library_is_first_where_the_other_needs_copies(device: an.Device) -> None:
    a, b = random((30, 20, 10)), random((20, 10, 40))
    assert verify(device, "ijk,jkl->il", [a, b]) == ("abc,bcd->ad: cuBLASLt",)
    assert verify(device, "ijk,kjl->il", [a, random((10, 20, 40))]) == ("abc,cbd->ad: cuTENSOR",)


@pytest.mark.parametrize(
    ("dtype", "columns", "note"),
    [("float64", 1024, "cuBLASLt, after copies of A"), ("float64", 1023, "cuTENSOR"), ("float32", 1024, "cuTENSOR")],
)
def test_a_copy_is_worth_a_long_product_of_float64(device: an.Device, dtype: str, columns: int, note: str) -> None:
    """And not where there is no room for it beside the library's workspace."""
    arrays = [random((2, 4, 2), dtype), random((2, 2, columns), dtype)]
    assert verify(device, "cad,cdb->ab", arrays) == (f"abc,acd->bd: {note}",)


def test_there_is_no_copy_without_room_for_it(fake_environment: dict[str, str]) -> None:
    with using(fake_environment), an.System(standby="off", workspace_limit=1 << 20) as system:
        arrays = [random((2, 4, 2)), random((2, 2, 1024))]
        assert verify(system.device("cuda:0"), "cad,cdb->ab", arrays) == ("abc,acd->bd: cuTENSOR",)


@pytest.mark.parametrize("dtype", EPS)
def test_types_conjugates_and_factors(device: an.Device, dtype: str) -> None:
    a, b, c = random((6, 5, 4), dtype), random((4, 7, 5), dtype), random((6, 7), dtype)
    alpha, beta = (2 - 1j, 0.5j) if dtype.startswith("complex") else (3, -2)
    refs = [device.put(x) for x in (a, b)]
    product = np.einsum("ijk,kmj->im", wide(a).conj(), wide(b))
    size = np.einsum("ijk,kmj->im", np.abs(wide(a)), np.abs(wide(b)))
    scale = {"float16": "float32", "bfloat16": "float32"}.get(dtype, dtype)
    factors = {name: device.put(np.array(value, scale)) for name, value in (("alpha", alpha), ("beta", beta))}
    turned = device.put(np.ascontiguousarray(c.T)).T
    for added, factor in ((device.put(c), {"alpha": alpha, "beta": beta}), (turned, {"alpha": alpha, "beta": beta}),
                         (device.put(c), factors)):  # fmt: skip
        out = device.tensor.contract("ijk,kmj->im", *refs, c=added, conj=(True, False), route="cutensor", **factor)
        close(out.numpy(), alpha * product + beta * wide(c), 9 * (size + np.abs(wide(c))), EPS[dtype], 20)
    plain = device.tensor.contract("ijk,kmj->im", *refs, conj=(True, False), route="cutensor")
    close(plain.numpy(), product, size, EPS[dtype], 20)


def test_results_of_another_type_are_rounded_once(device: an.Device) -> None:
    a, b = random((6, 5, 4), "bfloat16"), random((4, 7, 5), "bfloat16")
    refs = [device.put(x) for x in (a, b)]
    found = device.tensor.einsum("ijk,kmj->im", *refs, out_dtype="float32", route="cutensor").numpy()
    size = np.einsum("ijk,kmj->im", np.abs(wide(a)), np.abs(wide(b)))
    close(found, np.einsum("ijk,kmj->im", wide(a), wide(b)), size, EPS["float32"], 20)


def test_layouts(device: an.Device) -> None:
    """Backwards and broadcast operands are copied; offsets of one element are another alignment."""
    a, b = random((9, 8), "float32"), random((8, 7), "float32")
    ref_a, ref_b = device.put(a), device.put(b)
    for view, copied in ((np.s_[:, ::-1], True), (np.s_[1:, 1:], False), (np.s_[:, ::2], False), (np.s_[:1], False)):
        x, y = a[view], b[: a[view].shape[1]]
        refs = [ref_a[view], ref_b[: x.shape[1]]]
        found = device.tensor.einsum("ij,jk->ik", *refs, route="cutensor").numpy()
        close(found, wide(x) @ wide(y), np.abs(wide(x)) @ np.abs(wide(y)), EPS["float32"], 9)
        notes = device.tensor.plan(an.EinsumRequest(subscripts="ij,jk->ik", operands=refs, route="cutensor")).notes
        assert ("copies of A" in notes[0]) == copied
    row, many = device.put(random((9, 1), "float32")), device.put(b)
    want = row.numpy().astype(float) * b.astype(float).sum(0)
    found = device.tensor.einsum("ij,jk->ik", row, many, route="cutensor").numpy()
    assert np.allclose(found, want, rtol=1e-4, atol=1e-4)
    wide_out = device.zeros((9, 2, 7), "float32")
    device.tensor.einsum("ij,jk->ik", ref_a, ref_b, out=wide_out[:, 1], route="cutensor")
    assert np.allclose(wide_out.numpy()[:, 1], a @ b, atol=1e-4)
    assert not wide_out.numpy()[:, 0].any()


def test_eight_actors_have_the_bits_of_one(device: an.Device) -> None:
    """They have one handle of the library, and its plans at the same time; from threads of their own."""
    arrays = [random(shape, "float32") for shape in ((6, 50, 9), (9, 50, 7), (7, 5))]
    refs = [device.put(x) for x in arrays]
    given = {"subscripts": "ijk,kjl,lm->im", "operands": refs, "optimize": "left"}
    requests = [an.EinsumRequest(**given, route=route) for route in ("auto", "cutensor", "blas_lt", "kernel")]
    requests.append(an.TensorReduceRequest(op="max", subscripts="ijk->k", x=refs[0]))
    want = [device.tensor.tell(request).numpy().tobytes() for request in requests]
    actors = [an.Tensor(device, f"tensor {i}") for i in range(8)]

    def send(actor: an.Tensor) -> list[bytes]:
        results = [actor.tell(request) for _ in range(3) for request in requests]
        return [made.numpy().tobytes() for made in results]

    with ThreadPoolExecutor(len(actors)) as pool:
        for found in pool.map(send, actors):
            assert found == want * 3


def test_three_tensors_are_one_call(device: an.Device) -> None:
    arrays = [random(shape) for shape in ((4, 5, 6), (5, 7), (6, 3))]
    assert verify(device, "ijk,jl,km->lmi", arrays, route="cutensor") == ("three tensors: cuTENSOR",)
    refs, c = [device.put(x) for x in arrays], random((7, 3, 4))
    made = device.tensor.contract("ijk,jl,km->lmi", *refs, c=device.put(c), alpha=2.0, beta=-1.0, route="cutensor")
    assert np.allclose(made.numpy(), 2 * np.einsum("ijk,jl,km->lmi", *arrays) - c)
    assert len(verify(device, "ijk,jl,km->lm", arrays, route="cutensor")) > 1  # one operand alone sums over i


def test_a_network_is_sent_as_one_message(device: an.Device) -> None:
    arrays = [random(shape) for shape in ((4, 5), (5, 6, 3), (3, 7), (7, 6, 2))]
    assert all("cuTENSOR" in note for note in verify(device, "ab,bcd,de,ecf->af", arrays, route="cutensor"))


@pytest.mark.parametrize("route", ["cutensor", "blas_lt", "kernel"])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_a_factor_that_is_told_as_zero_stops_nan(device: an.Device, route: str, dtype: str) -> None:
    shapes = ((20, 30), (30, 40), (20, 40))
    nan, b, c = (device.full(shape, fill, dtype) for shape, fill in zip(shapes, (np.nan, 1, 2), strict=True))
    one, poisoned = device.full((20, 30), 1, dtype), device.full((20, 40), np.nan, dtype)
    request = an.EinsumRequest(subscripts="ij,jk->ik", operands=(one, b), c=c, alpha=2, beta=3, route=route)
    plan = device.tensor.plan(request)
    out = device.zeros((20, 40), dtype)
    for _ in range(4):  # a message that comes again is launched from a record
        assert (told(plan, nan, b, c, out=out, alpha=0, beta=3) == 6).all()
        assert (told(plan, one, b, poisoned, out=out, alpha=2, beta=0) == 60).all()
        assert (told(plan, nan, b, poisoned, out=out, alpha=0, beta=0) == 0).all()
        assert (told(plan, one, b, c, out=out, alpha=2, beta=3) == 66).all()
    updated = an.EinsumRequest(subscripts="ij,jk->ik", operands=(one, b), c=out, out=out, alpha=2, beta=3, route=route)
    plan = device.tensor.plan(updated)
    out.fill(2)
    assert (told(plan, nan, b, out=out, alpha=0, beta=3) == 6).all()


@pytest.mark.parametrize(
    ("op", "dtype"),
    [("sum", "float32"), ("sum", "complex128"), ("prod", "float64"), ("max", "float32"), ("min", "bfloat16"),
     ("norm1", "float64"), ("norm_max", "float16")],
)  # fmt: skip
def test_reductions(device: an.Device, op: str, dtype: str) -> None:
    x, c = random((4, 5, 3, 6), dtype), random((6, 4), dtype)
    axes = (1, 2)
    function = {"norm1": np.sum, "norm_max": np.max}.get(op) or getattr(np, op)
    want = function(np.abs(wide(x)) if "norm" in op else wide(x), axis=axes).T
    ref = device.put(x)
    request = an.TensorReduceRequest(op=op, subscripts="abcd->da", x=ref, route="cutensor")
    assert device.tensor.plan(request).notes == ("cuTENSOR",)
    size = np.abs(wide(x)).sum(axis=axes).T + np.abs(want)
    close(device.tensor.tell(request).numpy(), want, size, EPS[dtype], 15)
    made = device.tensor.reduce(op, "abcd->da", ref, c=device.put(c), alpha=2, beta=3, route="cutensor").numpy()
    close(made, 2 * want + 3 * wide(c), 3 * (size + np.abs(wide(c))), EPS[dtype], 15)
    nan = device.full((4, 5, 3, 6), np.nan, dtype)
    plan = device.tensor.plan(
        an.TensorReduceRequest(op=op, subscripts="abcd->da", x=ref, c=device.put(c), alpha=2, beta=1, route="cutensor")
    )
    out = device.zeros((6, 4), dtype)
    assert np.array_equal(told(plan, nan, device.put(c), out=out, alpha=0, beta=1), c)


@pytest.mark.parametrize("op", ["mean", "any", "norm2"])
def test_reductions_that_it_lacks_are_kernels(device: an.Device, op: str) -> None:
    x = device.put(random((4, 5), "float32"))
    request = an.TensorReduceRequest(op=op, subscripts="ab->a", x=x, route="cutensor")
    assert any("kernel" in note for note in device.tensor.plan(request).notes)
    ours = device.tensor.reduce(op, "ab->a", x).numpy()
    assert np.array_equal(device.tensor.tell(request).numpy(), ours)


@pytest.mark.parametrize(
    ("source_dtype", "dtype"),
    [("float32", "float32"), ("float16", "float32"), ("float64", "float32"), ("complex64", "complex128"),
     ("bfloat16", "bfloat16")],
)  # fmt: skip
def test_permutations(device: an.Device, source_dtype: str, dtype: str) -> None:
    x = random((4, 5, 6), source_dtype)
    ref = device.put(x)
    request = an.TensorElementwiseRequest(
        subscripts="abc->cab",
        operands=(ref,),
        out_dtype=dtype,
        alpha=2,
        route="cutensor",
        padding=((1, 0), (0, 2), (0, 0)),
    )
    assert device.tensor.plan(request).notes == ("a kernel for zeros", "cuTENSOR")
    want = np.zeros((7, 6, 5), as_dtype(dtype))
    want[1:, :4] = (2 * wide(x)).transpose(2, 0, 1).astype(want.dtype)
    assert np.array_equal(device.tensor.tell(request).numpy(), want)


def test_elementwise_operations(device: an.Device) -> None:
    a, b, c = random((4, 5, 6)), random((5,)), random((6, 4, 5))
    ra, rb, rc = (device.put(x) for x in (a, b, c))
    send = device.tensor
    first = {"operands": (rb, rc), "subscripts": "b,cab->cab", "ab": "mul", "unary": ("exp", "neg")}
    request = an.TensorElementwiseRequest(**first, alpha=2, beta=3, route="cutensor")
    assert send.plan(request).notes == ("cuTENSOR",)
    assert np.allclose(send.tell(request).numpy(), 2 * np.exp(b) * -3 * c)
    turned = send.binary("cab,b->cab", rc, rb, ab="max", unary=("neg", "exp"), alpha=3, beta=2, route="cutensor")
    assert np.allclose(turned.numpy(), np.maximum(-3 * c, 2 * np.exp(b)))
    request = an.TensorElementwiseRequest(
        subscripts="abc,b,cab->cab", operands=(ra, rb, rc), ab="mul", abc="min", unary=("tanh", "identity", "abs"),
        alpha=2, beta=-1, gamma=0.5, route="cutensor",
    )  # fmt: skip
    assert send.plan(request).notes == ("cuTENSOR",)
    want = np.minimum((2 * np.tanh(a)).transpose(2, 0, 1) * -b, 0.5 * np.abs(c))
    assert np.allclose(send.tell(request).numpy(), want)
    out = device.zeros((6, 4, 5), "float64")
    nan = device.full((4, 5, 6), np.nan, "float64")
    found = told(send.plan(request), nan, rb, rc, out=out, alpha=0, beta=-1, gamma=0.5)
    assert np.allclose(found, np.minimum(0 * -b, 0.5 * np.abs(c)))
    other = send.plan(an.TensorElementwiseRequest(subscripts="b,b->b", operands=(rb[:0], rb[:0]), route="cutensor"))
    assert other.notes == ("a kernel",) or not other.notes
    strange = an.TensorElementwiseRequest(subscripts="a,b->ab", operands=(rb, rb), route="cutensor")
    assert "cuTENSOR does not take these tensors" in send.plan(strange).notes
    assert np.allclose(send.tell(strange).numpy(), b[:, None] + b)


@pytest.mark.parametrize(
    ("compute", "dtype"),
    [("3xtf32", "float32"), ("9xbf16", "complex64"), ("8xint8", "float64"), ("tf32", "float32"), ("float16", "float32"),
     ("bfloat16", "float32")],
)  # fmt: skip
def test_compute_types(device: an.Device, compute: str, dtype: str) -> None:
    a, b = random((40, 30), dtype), random((30, 20), dtype)
    refs = [device.put(x) for x in (a, b)]
    emulates = compute[0] in "389"
    try:
        found = device.tensor.einsum("ij,jk->ik", *refs, compute=compute, route="auto" if emulates else "cutensor")
        eps = EPS[dtype] if emulates else 2.0**-7
        close(found.numpy(), wide(a) @ wide(b), np.abs(wide(a)) @ np.abs(wide(b)), eps, 30)
    except an.Unsupported as error:  # an older library or device
        assert error.rule == "tensor.compute" or "cutensor" in str(error)  # noqa: PT017


def test_a_version_without_a_compute_type_names_those_that_have_it(fake_environment: dict[str, str]) -> None:
    with using({**fake_environment, "FAKE_CUDA_TENSOR_OLD": "1"}), an.System(standby="off") as system:
        x = system.device("cuda:0").zeros((8, 8), "float64")
        text = r"cuTENSOR 2\.3\.0 has no compute type CUTENSOR_COMPUTE_DESC_8XINT8; allowed: 2\.4 or later"
        with pytest.raises(an.Unsupported, match=text) as caught:
            x.device.tensor.einsum("ij,jk->ik", x, x, compute="8xint8").wait()
        assert caught.value.rule == "tensor.compute"


def test_emulated_types_have_no_other_route() -> None:
    x = np.zeros((2, 2), "float32")
    for route in ("blas_lt", "kernel"):
        with pytest.raises(an.InvalidRequest, match="allowed: 'auto', 'cutensor'"):
            an.EinsumRequest(subscripts="ij,jk->ik", operands=(x, x), compute="3xtf32", route=route)
    with pytest.raises(an.InvalidRequest, match="allowed: float64, 8xint8"):
        an.EinsumRequest(subscripts="ij,jk->ik", operands=(x.astype("float64"),) * 2, compute="3xtf32")
    with pytest.raises(an.InvalidRequest, match="'auto', 'kernel', 'cutensor'"):
        an.TensorReduceRequest(op="sum", subscripts="ij->i", x=x, route="blas_lt")


@pytest.fixture
def without(fake_environment: dict[str, str]) -> Iterator[an.Device]:
    with using({**fake_environment, "ATOMR_NATIVE_CUTENSOR": "/nowhere/libcutensor.so.2"}), an.System() as system:
        yield system.device("cuda:0")


def test_the_library_is_opened_for_the_first_plan_that_asks_for_it(
    fake_environment: dict[str, str], tmp_path: Path
) -> None:
    copy = shutil.copy(fake_environment["ATOMR_NATIVE_CUTENSOR"], tmp_path / "libcutensor.so.2")
    with using({**fake_environment, "ATOMR_NATIVE_CUTENSOR": str(copy)}), an.System(standby="off") as system:
        device = system.device("cuda:0")
        x = device.put(random((24, 24)))

        def is_open() -> bool:
            return str(copy) in Path(f"/proc/{device.worker_pid}/maps").read_text()

        for found in (
            device.tensor.einsum("ij,jk->ik", x, x), device.tensor.reduce("sum", "ij->j", x),
            device.tensor.permute("ij->ji", x), device.tensor.binary("ij,ji->ij", x, x),
        ):  # fmt: skip
            found.wait()
        assert not is_open()
        device.tensor.plan(an.EinsumRequest(subscripts="ij,jk->ik", operands=(x, x), route="cutensor")).wait(60)
        assert is_open()


def test_without_the_package_its_route_is_refused_and_others_do(without: an.Device) -> None:
    a, b = without.put(random((30, 20, 10))), without.put(random((10, 20, 40)))
    plan = without.tensor.plan(an.EinsumRequest(subscripts="ijk,kjl->il", operands=(a, b)))
    assert "cuBLASLt, after copies of A" in plan.notes[-1]
    for options in ({"route": "cutensor"}, {"compute": "8xint8"}):
        with pytest.raises(an.Unsupported, match="cutensor-cu13"):
            without.tensor.einsum("ijk,kjl->il", a, b, **options).wait()


def test_a_contraction_is_asked_for_again_with_the_workspace_that_it_may_have(refuse: Callable[..., Path]) -> None:
    refuse(cutensorCreatePlan=(15, 1))
    with an.System(standby="off") as system:
        arrays = [random((30, 20, 10)), random((10, 20, 40))]
        assert verify(system.device("cuda:0"), "ijk,kjl->il", arrays) == ("abc,cbd->ad: cuTENSOR",)


@pytest.mark.parametrize(
    ("algo", "fields"),
    [((), (1000, 0, -1)), ((-1, 0), (1000, 0, 0)), ((-1, 3, native.WITHIN), (0, 0, 3)),
     ((-1, -1, native.COMPILED), (1000, 1, -1))],
)  # fmt: skip
def test_calls_say_how_kernels_are_chosen(algo: tuple[int, ...], fields: tuple[int, ...]) -> None:
    arrays = [Array(("operand", i), "float32", modes, (4, 1)) for i, modes in enumerate(((0, 1), (1, 2), (0, 2)))]
    call = native.tensor_call(
        "CONTRACT",
        [*arrays, arrays[-1]],
        (4, 4, 4),
        compute=native.compute_of("float32"),
        limit=10,
        algo=algo,
        asked=1000,
    )
    assert call is not None
    assert (call.asked_bytes, call.jit, call.rank) == fields


@pytest.mark.parametrize(
    ("refusals", "error", "text"),
    [
        ({"cutensorCreate": (18, 1)}, an.LibraryError, r"CUTENSOR_STATUS_CUDA_ERROR \(18\) .*cutensorCreate"),
        ({"cutensorCreateTensorDescriptor": (7, 1)}, an.LibraryError, "CUTENSOR_STATUS_INVALID_VALUE"),
        ({"cutensorCreatePlan": (15, 2)}, an.Unsupported, "cutensorCreatePlan: CUTENSOR_STATUS_NOT_SUPPORTED"),
        ({"cutensorCreatePlan": (3, 1)}, an.OutOfMemory, "no memory"),
        ({"cutensorContract": (13, 1)}, an.LibraryError, r"CUTENSOR_STATUS_EXECUTION_FAILED \(13\)"),
    ],
)
def test_errors_name_function_and_status(
    refuse: Callable[..., Path], refusals: dict[str, tuple[int, int]], error: type[Exception], text: str
) -> None:
    refuse(**refusals)
    with an.System(standby="off") as system:
        device = system.device("cuda:0")
        x = device.put(random((4, 4)))
        with pytest.raises(error, match=text):
            device.tensor.einsum("ij,jk->ik", x, x, compute="8xint8").numpy()
        device.tensor.einsum("ij,kj->ik", x, x, compute="8xint8").numpy()


def test_what_the_library_refuses_is_done_otherwise(refuse: Callable[..., Path]) -> None:
    x = random((4, 5, 6))
    refuse(cutensorCreatePlan=(15, 4))  # a contraction is asked for twice, with more workspace and with less
    with an.System(standby="off") as system:
        device = system.device("cuda:0")
        ref, square = device.put(x), device.put(x[0])
        product = an.EinsumRequest(subscripts="ij,kj->ik", operands=(square, square), route="cutensor")
        reduction = an.TensorReduceRequest(op="sum", subscripts="abc->c", x=ref, route="cutensor")
        permutation = an.TensorElementwiseRequest(subscripts="abc->cab", operands=(ref,), route="cutensor")
        for request, want in (
            (product, x[0] @ x[0].T),
            (reduction, x.sum((0, 1))),
            (permutation, x.transpose(2, 0, 1)),
        ):
            assert np.allclose(device.tensor.tell(request).numpy(), want)
            assert "CUTENSOR_STATUS_NOT_SUPPORTED" in device.tensor.plan(request).notes[0]


def test_a_plan_does_with_the_workspace_that_it_may_have(fake_environment: dict[str, str]) -> None:
    """The fake's plans gain from 1024 bytes, and do with 256."""
    x = random((4, 4))
    for limit in (1 << 20, 512, 128):
        with using(fake_environment), an.System(standby="off", workspace_limit=limit) as system:
            device = system.device("cuda:0")
            ref = device.put(x)
            if limit < 256:
                with pytest.raises(an.Unsupported, match=r"too small; raise System\(workspace_limit=\)"):
                    device.tensor.einsum("ij,jk->ik", ref, ref, compute="8xint8").wait()
            else:
                assert np.allclose(device.tensor.einsum("ij,jk->ik", ref, ref, route="cutensor").numpy(), x @ x)


def test_a_contraction_may_have_copies_of_its_tensors(fake_environment: dict[str, str]) -> None:
    """The fake's best kernel copies them, beyond 32 MiB; the steps of a chain have no more than their tensors take."""
    with using(fake_environment), an.System(standby="off") as system:
        device = system.device("cuda:0")
        x, y = device.zeros((96, 32, 2048), "float64"), device.zeros((96, 32, 3), "float64")
        request = an.EinsumRequest(subscripts="abc,abd->cd", operands=(x, y), route="cutensor")
        nbytes = x.nbytes + y.nbytes + 2048 * 3 * 8
        assert nbytes <= device.tensor.plan(request).wait(60).record.workspace <= nbytes + 3 * 256
        tiny = [device.put(random((8, 8))) for _ in range(3)]
        chain = an.EinsumRequest(subscripts="ab,bc,cd->ad", operands=tiny, optimize="left", route="cutensor")
        assert device.tensor.plan(chain).wait(60).record.workspace <= 5 * 512


def test_a_plan_is_built_with_less_where_memory_is_short(fake_environment: dict[str, str]) -> None:
    """The library does with another kernel; what needs copies of ours is refused for want of memory, and then built."""
    x, y = random((96, 32, 64)), random((96, 64, 3))
    want = np.einsum("abc,acd->db", x, y)
    with using(fake_environment), an.System(standby="off", memory_limit=6 << 20) as system:
        device = system.device("cuda:0")
        refs = [device.put(x), device.put(y)]
        rest = device.zeros((7 << 19,), "uint8")
        given = {"subscripts": "abc,acd->db", "operands": refs}
        plan = device.tensor.plan(an.EinsumRequest(**given, route="cutensor")).wait(60)
        assert plan.record.workspace == 1024
        assert np.allclose(told(plan, *refs, out=device.zeros((3, 32), "float64")), want)
        copied = an.EinsumRequest(**given, route="blas_lt")
        for _ in range(2):
            with pytest.raises(an.OutOfMemory) as caught:
                device.tensor.tell(copied)
            assert caught.value.limit == 6 << 20
        del rest
        assert np.allclose(device.tensor.tell(copied).numpy(), want)


@pytest.mark.parametrize(
    ("cuda", "version", "text"), [(12000, 20300, "for CUDA 12, .* cutensor-cu13"), (13000, 20100, "2.2 or later")]
)
def test_the_other_cuda_major_and_old_versions_are_refused(
    monkeypatch: pytest.MonkeyPatch, cuda: int, version: int, text: str
) -> None:
    """Both majors' files have the same name."""
    monkeypatch.setenv("ATOMR_NATIVE_CUTENSOR", "/somewhere")
    monkeypatch.setattr(native.cutensor, "load", lambda path: version)
    monkeypatch.setattr(native.cutensor, "cuda_version", lambda: cuda)
    monkeypatch.setattr(native.cublaslt, "load", lambda path: 130002)
    with pytest.raises(an.Unsupported, match=text):
        native.open_library()


@pytest.mark.parametrize(
    ("strides", "offset", "dtype", "taken"),
    [((5, 1), 0, "float32", True), ((1, 4), 2, "float32", True), ((4, 1), 0, "float32", False),
     ((5, 0), 0, "float32", False), ((-5, 1), 0, "float32", False), ((5, 1), 0, "int32", False),
     ((1, 1), 0, "float32", False)],
)  # fmt: skip
def test_strides_are_positive_and_elements_lie_apart(
    strides: tuple[int, int], offset: int, dtype: str, taken: bool
) -> None:
    assert native.is_taken(Array(("operand", 0), dtype, (0, 1), strides, offset), (4, 5)) == taken


@st.composite
def tensors(draw: st.DrawFn) -> tuple[list[Array], tuple[int, ...]]:
    count = draw(st.integers(1, 4))
    extents = tuple(draw(st.sampled_from([3, 2, 1])) for _ in range(count))
    arrays = []
    order = draw(st.permutations(range(count)))
    for number in range(draw(st.integers(1, 2))):
        modes = [m for m in order if draw(st.integers(0, 5))]
        steps, step = {}, 1
        for mode in reversed(modes):
            steps[mode] = step
            step *= extents[mode] + draw(st.integers(0, 1))
        arrays.append(Array(("operand", number), "float32", tuple(modes), tuple(steps[m] for m in modes)))
    return arrays, extents


@settings(max_examples=80, deadline=None)
@given(tensors())
def test_merged_modes_name_the_same_elements(drawn: tuple[list[Array], tuple[int, ...]]) -> None:
    arrays, extents = drawn
    sizes, strides = native.merged(arrays, extents)
    together = lambda shape, steps: sorted(  # noqa: E731
        tuple(sum(i * own.get(m, 0) for m, i in enumerate(index)) for own in steps) for index in np.ndindex(*shape)
    )
    before = [dict(zip(array.modes, array.strides, strict=True)) for array in arrays]
    used = {m for own in before for m in own}
    shape = [n if m in used else 1 for m, n in enumerate(extents)]
    assert together(sizes, strides) == together(shape, before)
    assert len(sizes) <= len(extents)
    assert all(n > 1 for n in sizes)


def test_many_modes_of_size_two_become_a_matrix() -> None:
    order = tuple(range(28))
    arrays = [Array(("operand", i), "float32", modes, tuple(2**k for k in reversed(range(len(modes))))) for i, modes in
              enumerate((order[:18], order[8:], order[:8] + order[18:]))]  # fmt: skip
    sizes, _ = native.merged(arrays, (2,) * 28)
    assert sorted(sizes) == [2**8, 2**10, 2**10]
