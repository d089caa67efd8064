"""BLAS routines against float64, on the host and on CUDA devices, the fake one included."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plan_builds import received

import atomr_native as an
from atomr_native._lib.cublas import CONSTANTS
from atomr_native.errors import InvalidRequest, Unsupported
from atomr_native.libraries.blas.cuda import blas_call
from atomr_native.libraries.blas.request import BlasRequest
from atomr_native.libraries.blas.spec import ROUTINES

DTYPES = ("float32", "float64", "complex64", "complex128")
UNIT = {"float32": 2.0**-20, "float64": 2.0**-49, "complex64": 2.0**-19, "complex128": 2.0**-48}


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def op(x: np.ndarray, trans: bool, conj: bool) -> np.ndarray:
    x = x.T if trans else x
    return x.conj() if conj else x


def expected(r: BlasRequest) -> np.ndarray:
    """Return a routine's result in float64."""
    v = {n: wide(getattr(r, n)) for n in ("a", "b", "x", "y", "out") if getattr(r, n) is not None}
    a = v.get("a")
    if r.routine in ("symm", "trmm", "trsm"):
        half = np.tril(a) if r.lower else np.triu(a)
        if r.routine == "symm":
            a = half + half.T - np.diag(np.diag(a))
        else:
            if r.unit:
                np.fill_diagonal(half, 1)
            a = op(half, r.trans, r.conj)
    elif a is not None:
        a = op(a, r.trans, r.conj)
    old = r.beta * v["out"] if r.beta != 0 and r.routine != "geam" else 0
    left = r.side == "left"
    match r.routine:
        case "axpy":
            return v["out"] + r.alpha * v["x"]
        case "scal":
            return r.alpha * v["out"]
        case "dot":
            return np.asarray((v["x"].conj() if r.conj else v["x"]) @ v["y"])
        case "nrm2":
            return np.asarray(np.linalg.norm(v["x"]))
        case "gemv":
            return r.alpha * (a @ v["x"]) + old
        case "ger":
            return v["out"] + r.alpha * np.outer(v["x"], v["y"].conj() if r.conj else v["y"])
        case "syrk":
            full = r.alpha * (a @ a.T) + old
            keep = np.tri(len(full), dtype=bool)
            return np.where(keep if r.lower else keep.T, full, v["out"])
        case "gemm":
            return r.alpha * (a @ op(v["b"], r.trans_b, r.conj_b)) + old
        case "trsm":
            b = r.alpha * v["out"]
            return np.linalg.solve(a, b) if left else np.linalg.solve(a.T, b.T).T
        case "geam":
            return r.alpha * a + (r.beta * op(v["b"], r.trans_b, r.conj_b) if r.beta != 0 else 0)
    return r.alpha * (a @ v["b"] if left else v["b"] @ a) + old


def random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else x).astype(dtype)


def put(device: an.Device, x: np.ndarray) -> an.GpuRef:
    """Return a handle with the array's order: C, Fortran, or every second element of a vector."""
    if x.ndim == 2 and not x.flags.c_contiguous:
        return device.put(np.ascontiguousarray(x.T)).T
    if x.ndim == 1 and x.size > 1 and x.strides[0] > x.itemsize:
        return device.put(np.repeat(x, 2))[::2]
    return device.put(x)


def send(device: an.Device, request: BlasRequest) -> None:
    names = ("a", "b", "x", "y", "out")
    want = expected(request)
    options = {n: getattr(request, n) for n in BlasRequest.__slots__ if n not in names}
    refs = {n: put(device, getattr(request, n)) for n in names if getattr(request, n) is not None}
    got = device.blas.tell(BlasRequest(**options, **refs)).numpy()
    dtype = str(next(getattr(request, n) for n in names if getattr(request, n) is not None).dtype)
    size = max(1.0, float(np.max(abs(want), initial=0)))
    assert got.shape == want.shape
    assert np.max(abs(got - want), initial=0) <= 64 * UNIT[dtype] * size, request.routine


@st.composite
def requests(draw: st.DrawFn) -> BlasRequest:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    routine, dtype = draw(st.sampled_from(list(ROUTINES))), draw(st.sampled_from(DTYPES))
    reads, adds, flags = ROUTINES[routine]
    m, n, k = (draw(st.sampled_from([1, 2, 7, 16, 33])) for _ in range(3))
    options: dict[str, Any] = {flag: draw(st.booleans()) for flag in flags if flag != "side"}
    if "side" in flags:
        options["side"] = draw(st.sampled_from(["left", "right"]))
    if not dtype.startswith("complex"):
        options |= {flag: False for flag in ("conj", "conj_b") if flag in options}
    factor = (0.5 - 2j) if dtype.startswith("complex") else -1.5
    if routine not in ("dot", "nrm2"):
        options["alpha"] = factor

    def vector(length: int) -> np.ndarray:
        return random(rng, (length * 2,), dtype)[::2] if draw(st.booleans()) else random(rng, (length,), dtype)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return random(rng, (columns, rows), dtype).T if draw(st.booleans()) else random(rng, (rows, columns), dtype)

    square = m if options.get("side", "left") == "left" else n
    flip, flip_b = options.get("trans", False), options.get("trans_b", False)
    shapes: dict[str, dict[str, tuple[int, ...]]] = {
        "axpy": {"x": (n,), "out": (n,)}, "scal": {"out": (n,)}, "dot": {"x": (n,), "y": (n,)}, "nrm2": {"x": (n,)},
        "gemv": {"a": (n, m) if flip else (m, n), "x": (n,), "out": (m,)}, "ger": {"x": (m,), "y": (n,), "out": (m, n)},
        "symm": {"a": (square, square), "b": (m, n), "out": (m, n)},
        "syrk": {"a": (k, n) if flip else (n, k), "out": (n, n)},
        "trmm": {"a": (square, square), "b": (m, n), "out": (m, n)},
        "trsm": {"a": (square, square), "out": (m, n)},
        "geam": {"a": (n, m) if flip else (m, n), "b": (n, m) if flip_b else (m, n), "out": (m, n)},
        "gemm": {"a": (k, m) if flip else (m, k), "b": (n, k) if flip_b else (k, n), "out": (m, n)},
    }  # fmt: skip
    for name, shape in shapes[routine].items():
        options[name] = vector(*shape) if len(shape) == 1 else matrix(*shape)
    if routine in ("trsm", "trmm"):
        options["a"] = options["a"] / 8 + np.eye(square, dtype=dtype) * 2  # well conditioned
        if draw(st.booleans()):
            options["a"] = np.asfortranarray(options["a"])
    if adds or routine == "geam":
        options["beta"] = draw(st.sampled_from([0.0, factor]))
    if routine == "geam" and options["beta"] == 0 and draw(st.booleans()):
        options |= {"b": None, "trans_b": False, "conj_b": False}
    assert set(reads) <= {*shapes[routine]}
    return BlasRequest(routine=routine, **options)


@given(request=requests())
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_routines(device: an.Device, request: BlasRequest) -> None:
    refused: Unsupported | None = None
    try:
        send(device, request)
    except Unsupported as error:
        refused = error
    assert refused is None or device.name != "host"
    assert refused is None or any(word in str(refused) for word in ("conj", "one order")), refused


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_routine_of_every_type(device: an.Device, dtype: str) -> None:
    rng = np.random.default_rng(0)
    a, b, c = (random(rng, (5, 5), dtype) for _ in range(3))
    a = a / 8 + 2 * np.eye(5, dtype=dtype)
    x, y = random(rng, (5,), dtype), random(rng, (5,), dtype)
    operands = {"a": a, "b": b, "x": x, "y": y}
    for routine, (reads, adds, _) in ROUTINES.items():
        out = {"axpy": y, "scal": y, "ger": c, "trsm": c, "syrk": c}.get(routine)
        if adds and out is None:
            out = y if routine == "gemv" else c
        beta = 0.5 if adds or routine == "geam" else 0.0
        given_operands = {n: operands[n] for n in reads}
        send(device, BlasRequest(routine=routine, beta=beta, out=None if out is None else out.copy(), **given_operands))


SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "axpy": {"x": (5,), "out": (5,)}, "scal": {"out": (5,)}, "dot": {"x": (5,), "y": (5,)}, "nrm2": {"x": (5,)},
    "gemv": {"a": (4, 5), "x": (5,), "out": (4,)}, "ger": {"x": (4,), "y": (5,), "out": (4, 5)},
    "symm": {"a": (4, 4), "b": (4, 5), "out": (4, 5)}, "syrk": {"a": (4, 3), "out": (4, 4)},
    "trmm": {"a": (4, 4), "b": (4, 5), "out": (4, 5)}, "trsm": {"a": (4, 4), "out": (4, 5)},
    "geam": {"a": (4, 5), "b": (4, 5), "out": (4, 5)}, "gemm": {"a": (4, 3), "b": (3, 5), "out": (4, 5)},
}  # fmt: skip


@pytest.mark.parametrize("routine", list(ROUTINES))
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_batches(device: an.Device, routine: str, dtype: str) -> None:
    rng = np.random.default_rng(2)
    reads, adds, _ = ROUTINES[routine]
    for batch, shared in (((3,), False), ((2, 3), False), ((4,), True), ((1, 2), True), ((0,), False)):
        arrays: dict[str, np.ndarray] = {}
        for name, shape in SHAPES[routine].items():
            alone = shared and reads[:1] == (name,)
            arrays[name] = random(rng, shape if alone else (*batch, *shape), dtype)
        if routine in ("trsm", "trmm"):
            arrays["a"] = (arrays["a"] / 8 + 2 * np.eye(4)).astype(dtype)
        if shared and routine == "nrm2":
            continue
        options: dict[str, Any] = {} if routine in ("dot", "nrm2") else {"alpha": 0.5}
        if adds or routine == "geam":
            options["beta"] = -1.5
        want = [
            expected(BlasRequest(routine=routine, **options, **one))
            for index in np.ndindex(*batch)
            for one in [{n: x if x.ndim == len(SHAPES[routine][n]) else x[index] for n, x in arrays.items()}]
        ]
        got = device.blas.tell(
            BlasRequest(routine=routine, **options, **{n: device.put(x) for n, x in arrays.items()})
        ).numpy()
        assert got.shape[: len(batch)] == batch
        for one, value in zip(got.reshape(-1, *got.shape[len(batch) :]), want, strict=True):
            np.testing.assert_allclose(one, value, rtol=1e-4, atol=1e-4)


def test_small_triangles_of_a_batch_are_solved_in_one_call(device: an.Device) -> None:
    rng = np.random.default_rng(3)
    for size, side in ((40, "left"), (7, "right")):
        a = rng.standard_normal((35, size, size)) / 16 + 2 * np.eye(size)
        b = rng.standard_normal((35, size, 3))
        b = b if side == "left" else b.swapaxes(1, 2).copy()
        x, y = device.put(np.ascontiguousarray(a.swapaxes(1, 2))).transpose(0, 2, 1), device.put(b)
        device.blas.trsm(x, y, side=side, lower=False)
        upper = np.triu(a)
        product = upper @ y.numpy() if side == "left" else y.numpy() @ upper
        np.testing.assert_allclose(product, b, rtol=1e-10, atol=1e-10)
        if device.name != "host":
            plan = device.blas.plan("trsm", a=x, out=y, side=side, lower=False)
            assert plan.notes == ("35 calls in one by arrays of addresses",)
    large = device.put(np.stack([np.eye(300)] * 2))
    plan = device.blas.plan("trsm", a=large, out=device.put(np.ones((2, 300, 4))))
    assert plan.notes == ()


def test_batches_that_do_not_step_evenly(cuda_system: an.System) -> None:
    blas, whole = cuda_system.device("cuda:0").blas, cuda_system.device("cuda:0").put(np.ones((2, 4, 4, 4), np.float32))
    with pytest.raises(Unsupported, match="not every operand steps evenly"):
        blas.gemm(whole[:, :3], whole[0, 0])
    assert (blas.gemm(whole[:, 1], whole[0, 0]).numpy() == 4).all()


def test_methods_plans_and_replies(device: an.Device) -> None:
    rng = np.random.default_rng(1)
    a, x, y = random(rng, (4, 3), "float32"), random(rng, (3,), "float32"), random(rng, (4,), "float32")
    refs = [device.put(v) for v in (a, x, y)]
    blas = device.blas
    assert device.blas is blas
    np.testing.assert_allclose(blas.gemv(refs[0], refs[1]).numpy(), a @ x, rtol=1e-5)
    np.testing.assert_allclose(blas.dot(refs[1], refs[1]).numpy(), x @ x, rtol=1e-5)
    np.testing.assert_allclose(blas.nrm2(refs[1]).numpy(), np.linalg.norm(x), rtol=1e-5)
    np.testing.assert_allclose(blas.ger(refs[2], refs[1], device.put(a)).numpy(), a + np.outer(y, x), rtol=1e-5)
    np.testing.assert_allclose(blas.geam(refs[0], alpha=2.0, trans=True).numpy(), 2 * a.T, rtol=1e-6)
    np.testing.assert_allclose(blas.scal(refs[2], 3.0).numpy(), 3 * y, rtol=1e-6)
    plan = blas.plan("gemv", a=refs[0], x=refs[1], out=refs[2], beta=1.0)
    plan.ask(refs[0], refs[1], out=refs[2], alpha=0.0, beta=2.0).result(30)
    np.testing.assert_allclose(refs[2].numpy(), 6 * y, rtol=1e-5)
    reply = blas.ask(BlasRequest(routine="dot", x=refs[1], y=refs[1]))
    np.testing.assert_allclose(reply.result(30).numpy(), x @ x, rtol=1e-5)


def test_no_products_leave_beta_times_out(device: an.Device) -> None:
    a, b = device.put(np.zeros((3, 0), np.float32)), device.put(np.zeros((0, 4), np.float32))
    assert (device.blas.gemm(a, b).numpy() == 0).all()
    out = device.put(np.full((3, 4), 7, np.float32))
    assert (device.blas.gemm(a, b, out=out, beta=2.0).numpy() == 14).all()
    square = device.put(np.full((3, 3), 7, np.float32))
    np.testing.assert_array_equal(device.blas.syrk(a, square, beta=2.0).numpy(), np.where(np.tri(3), 14, 7))


def test_extreme_values_are_those_of_blas(device: an.Device) -> None:
    np.testing.assert_allclose(device.blas.nrm2(device.put(np.full(4, 1e30, np.float32))).numpy(), 2e30, rtol=2**-22)
    singular, b = device.put(np.zeros((3, 3), np.float32)), device.put(np.ones((3, 2), np.float32))
    assert not np.isfinite(device.blas.trsm(singular, b).numpy()).any()


def test_empty_operands(device: an.Device) -> None:
    empty = device.put(np.zeros((0,), np.float32))
    assert device.blas.dot(empty, empty).numpy() == 0
    assert device.blas.axpy(empty, device.put(np.zeros((0,), np.float32))).numpy().shape == (0,)
    y = device.put(np.ones(3, np.float32))
    a = device.put(np.zeros((3, 0), np.float32))
    np.testing.assert_array_equal(device.blas.gemv(a, empty, out=y, beta=2.0).numpy(), [2, 2, 2])


F = np.ones((3, 3), np.float32)
V = np.ones(3, np.float32)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"routine": "gemmm"}, ["'gemmm'", "axpy, scal"]),
        ({"routine": "axpy", "x": V}, ["axpy updates out"]),
        ({"routine": "axpy", "x": V, "out": np.ones(4, "f4")}, ["one length"]),
        ({"routine": "dot", "x": V}, ["dot needs y"]),
        ({"routine": "nrm2", "x": np.ones((), "f4")}, ["vector of 1 axis"]),
        ({"routine": "gemm", "a": F, "b": F[:2]}, [r"allowed: \(3, any\)"]),
        ({"routine": "gemm", "a": np.ones((2, 3, 3), "f4"), "b": F, "out": F.copy()}, [r"allowed: \(2,\)"]),
        ({"routine": "axpy", "x": np.ones((2, 3), "f4"), "out": V}, [r"batch axes \(\); allowed: \(2,\)"]),
        ({"routine": "dot", "x": np.ones((2, 3), "f4"), "y": np.ones((4, 3), "f4")}, ["batch axes do not broadcast"]),
        ({"routine": "nrm2", "x": V, "y": V}, ["does not take y"]),
        ({"routine": "nrm2", "x": V, "alpha": 2.0}, ["no alpha"]),
        ({"routine": "gemv", "a": F, "x": np.ones(4, "f4")}, [r"allowed: \(3,\)"]),
        ({"routine": "gemv", "a": F, "x": V.astype(float)}, ["float64; allowed: float32"]),
        ({"routine": "gemv", "a": F, "x": V, "beta": 1.0}, ["updates out"]),
        ({"routine": "gemv", "a": F, "x": V, "alpha": 1j}, ["real number"]),
        ({"routine": "gemv", "a": F, "x": V, "lower": False}, ["does not take lower"]),
        ({"routine": "trmm", "a": F[:2], "b": F}, [r"allowed: \(3, 3\), on the left"]),
        ({"routine": "trmm", "a": F, "b": F, "side": "up"}, ["'left', 'right'"]),
        ({"routine": "trmm", "a": F, "b": F, "unit": 1}, ["unit=1"]),
        ({"routine": "trmm", "a": F, "b": F, "beta": 1.0}, ["no beta"]),
        ({"routine": "symm", "a": F, "b": F, "out": F}, ["overlaps"]),
        ({"routine": "scal", "out": np.ones(3, "i4")}, ["int32; allowed: float32"]),
        ({"routine": "dot", "x": V, "y": V, "side": "right"}, ["does not take side"]),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        BlasRequest(**options)
    for word in words:
        assert caught.match(word)


def test_every_routine_has_a_number_in_c() -> None:
    numbers = [CONSTANTS[f"ATOMR_BLAS_{routine.upper()}"] for routine in ROUTINES]
    assert sorted(numbers) == list(range(len(ROUTINES)))


def test_matrices_are_taken_where_they_lie() -> None:
    z = np.ones((4, 3), np.complex64)
    for turned, trans in product((False, True), repeat=2):
        a = np.ones((3, 4), np.complex64).T if turned else z
        request = BlasRequest(routine="gemv", a=a, x=np.ones(4 if trans else 3, np.complex64), trans=trans, conj=True)
        spec = received(request.lowered.spec())
        if turned != trans:
            with pytest.raises(Unsupported, match="without a transpose"):
                blas_call(spec)
        else:
            call = blas_call(spec)
            assert call is not None
            assert call.trans_a == CONSTANTS["CUBLAS_OP_C"]
    strided = np.ones((6, 6), np.float32)[::2, ::2]
    with pytest.raises(Unsupported, match="no dense axis"):
        blas_call(received(BlasRequest(routine="geam", a=strided).lowered.spec()))
