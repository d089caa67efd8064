"""Matmuls of a CUDA device through the public API, against float64: on the fake driver, and on a GPU if there is."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import matmul_requests
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from matmul_device import send
from matmul_reference import (
    COMBINATIONS,
    allows,
    block_scales,
    check,
    epilogue_operands,
    gelu,
    gelu_gradient,
    random,
    reference,
)

import atomr_native as an
from atomr_native.libraries._scaling import COMBINATIONS as SCALINGS
from atomr_native.libraries.blas_lt.epilogue import Epilogue
from atomr_native.libraries.blas_lt.request import MatmulRequest
from atomr_native.libraries.blas_lt.spec import is_array
from atomr_native.libraries.blas_lt.types import FLOAT8, rule_of

AWKWARD = (0, 1, 2, 7, 13, 16, 31, 48)
#: Every epilogue of types that the library has it for in ways of their own, or not at all, and a few of the others;
#: those of float32, float16, bfloat16 and float64 are in test_matmul.py.
FULL = (("float8_e4m3fn",) * 3, ("float8_e4m3fn", "float8_e5m2", "bfloat16"), ("int8",) * 3, ("int8", "int8", "int32"))
FEW = ("default", "bias", "relu_aux_bias", "gelu_aux", "dgelu_bgrad", "drelu", "bgrada", "bgradb")


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


@pytest.mark.parametrize("types", COMBINATIONS, ids="-".join)
def test_every_type(device: an.Device, cuda_engine: str, types: tuple[str, str, str]) -> None:
    rng = np.random.default_rng(COMBINATIONS.index(types))
    m, n, k = 48, 64, 96
    whole = types[2] == "int32"
    wanted = [e for e in Epilogue if allows(types, e) and (types in FULL or e in FEW)]
    if cuda_engine == "fake" and device.name != "host":
        # Most epilogues are a kernel that the fake compiles: every third in turn, so that each type meets some and each
        # epilogue some types.  test_matmul_program.py has each epilogue of each type without a device.
        wanted = wanted[(FULL if types in FULL else COMBINATIONS).index(types) % 3 :: 3]
    for epilogue in wanted:
        extra = epilogue_operands(rng, epilogue, (), m, n, types)
        extra |= {"beta": 1} if whole else {"alpha": 0.003 if types[0] == "int8" else 0.5, "beta": -1.5}
        c = random(rng, (m, n), rule_of(*types[:2]).c(types[2])[0])
        a, b = random(rng, (m, k), types[0]), random(rng, (n, k), types[1])
        send(device, MatmulRequest(a=a, b=b, trans_b=True, c=c, **extra), cuda_engine)


@pytest.mark.parametrize("scaling", SCALINGS, ids="-".join)
@pytest.mark.parametrize("out", ["bfloat16", "float32"])
def test_scales(device: an.Device, cuda_engine: str, scaling: tuple[str, str], out: str) -> None:
    rng = np.random.default_rng(SCALINGS.index(scaling))
    m, n, k = 128, 256, 384  # several blocks of 128 along N and K
    a, b = random(rng, (m, k), "float8_e4m3fn"), random(rng, (n, k), "float8_e4m3fn")
    scales = {
        f"{which}_scale": block_scales(rng, which, kind, outer, k)
        for which, kind, outer in (("a", scaling[0], m), ("b", scaling[1], n))
        if kind != "none"
    }
    send(device, MatmulRequest(a=a, b=b, trans_b=True, out_dtype=out, **scales), cuda_engine)


@pytest.mark.parametrize("fast_accum", [False, True])
@pytest.mark.parametrize("types", [t for t in COMBINATIONS if t[0] in FLOAT8 and t[2] in FLOAT8], ids="-".join)
def test_float8_with_scale_and_amax(
    device: an.Device, cuda_engine: str, types: tuple[str, str, str], fast_accum: bool
) -> None:
    rng = np.random.default_rng(1)
    a, b = random(rng, (64, 128), types[0]), random(rng, (32, 128), types[1])
    one, half = np.asarray(0.5, np.float32), np.asarray([0.25], np.float32)
    request = MatmulRequest(
        a=a, b=b, trans_b=True, out_dtype=types[2], a_scale=one, b_scale=half, d_scale=half, amax=True,
        fast_accum=fast_accum,
    )  # fmt: skip
    send(device, request, cuda_engine)


@st.composite
def requests(draw: st.DrawFn) -> MatmulRequest:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    types = draw(st.sampled_from([t for t in COMBINATIONS if t[0] != "int8" or t[2] != "float16"]))
    epilogue = draw(st.sampled_from([e for e in Epilogue if allows(types, e)]))
    m, n, k = (draw(st.sampled_from(AWKWARD)) for _ in range(3))
    batch = draw(st.sampled_from([(), (), (2,), (0,)]))

    def matrix(rows: int, columns: int, dtype: str, own: tuple[int, ...]) -> np.ndarray:
        before, after = draw(st.sampled_from([(0, 0), (0, 0), (3, 0), (0, 1000)]))
        whole = random(rng, (*own, rows, before + columns + after), dtype)
        return whole[..., before : before + columns]

    extra = epilogue_operands(rng, epilogue, batch, m, n, types)
    b_batch = batch if draw(st.booleans()) else ()
    a, b = matrix(m, k, types[0], batch), matrix(n, k, types[1], b_batch)
    if draw(st.booleans()):
        extra |= {"c": random(rng, (*batch, m, n), rule_of(*types[:2]).c(types[2])[0]), "beta": 1}
    return MatmulRequest(a=a, b=b, trans_b=True, **extra)


@given(request=requests())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_awkward_shapes_and_views(cuda: an.Device, cuda_engine: str, request: MatmulRequest) -> None:
    refused: an.Unsupported | None = None
    try:
        send(cuda, request, cuda_engine)
    except an.Unsupported as error:  # a view that starts where no algorithm can read
        refused = error
    assert refused is None or "aligned" in str(refused), refused


@pytest.mark.slow
def test_hundreds_of_random_products(cuda: an.Device, cuda_engine: str) -> None:
    refused: Counter[str] = Counter()
    sent = 0

    # Sums of integers are beyond float16.
    @given(request=matmul_requests.requests().filter(lambda r: (r.a.dtype, r.out_dtype) != (np.int8, "float16")))
    @settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    def try_them(request: MatmulRequest) -> None:
        nonlocal sent
        sent += 1
        try:
            send(cuda, request, cuda_engine)
        except an.Unsupported as error:
            refused[re.sub(r"0x[0-9a-f]+|\d+", "N", str(error))] += 1

    try_them()
    print(f"{sent} products, of which {refused.total()} refused: {dict(refused)}")  # noqa: T201  (-s shows it)
    assert sent >= 400
    assert all(re.search("aligned|takes multiples of", reason) for reason in refused), refused


def test_sums_over_k_of_row_major_operands(cuda: an.Device, cuda_engine: str) -> None:
    rng = np.random.default_rng(4)
    for epilogue in ("bgrada", "bgradb"):
        for trans in (False, True):
            a = random(rng, (64, 96) if trans else (96, 64), "bfloat16")
            b = random(rng, (128, 64) if trans else (64, 128), "bfloat16")
            request = MatmulRequest(a=a, b=b, trans_a=trans, trans_b=trans, epilogue=epilogue)
            plan = send(cuda, request, cuda_engine)
            assert all("kernel" in note for note in plan.notes)


@pytest.mark.parametrize("types", ["float32", "bfloat16", "complex64", "int8", "float8_e4m3fn", "float64"])
def test_batches_that_do_not_step_evenly(device: an.Device, cuda_engine: str, types: str) -> None:
    """Broadcast along different axes, and slices of a middle axis: read by addresses, and with an epilogue in steps."""
    rng = np.random.default_rng(8)
    out = rule_of(types, types).outputs[0]
    a, b = random(rng, (3, 1, 16, 48), types), random(rng, (2, 40, 48), types)[:, :32]
    c = random(rng, (3, 4, 16, 32), out)[:, :2]
    bias = epilogue_operands(rng, Epilogue.BIAS, (3, 2), 16, 32, (types, types, out))
    for extra in ({}, {"c": c, "beta": 1}, bias):
        plan = send(device, MatmulRequest(a=a, b=b, trans_b=True, **extra), cuda_engine)
        assert device.name == "host" or "addresses of 6 matrices" in plan.notes[0]


@pytest.mark.parametrize("epilogue", ["drelu", "drelu_bgrad", "dgelu_bgrad"])
@pytest.mark.parametrize("size", [(64, 64, 96), (1024, 1024, 8192)])
@pytest.mark.fake_only(size=[(64, 64, 96)])
def test_gradients_in_the_product_and_after_it(
    cuda: an.Device, cuda_engine: str, epilogue: str, size: tuple[int, int, int]
) -> None:
    rng = np.random.default_rng(8)
    m, n, k = size
    extra = epilogue_operands(rng, Epilogue(epilogue), (), m, n, ("bfloat16",) * 3)
    a, b, wide = (random(rng, shape, "bfloat16") for shape in ((m, k), (n, k), (m, n + 8)))
    for out in (None, wide[:, 8:], wide[:, 1 : 1 + n]):
        plan = send(cuda, MatmulRequest(a=a, b=b, trans_b=True, out=out, **extra), cuda_engine)
    x, w, aux = (cuda.put(array) for array in (a, b, extra["aux"]))
    made = [cuda.blas_lt.matmul(x, w, trans_b=True, aux=aux, epilogue=epilogue) for _ in range(2)]
    first, second = (
        {name: ref.numpy() for name, ref in one._asdict().items() if ref is not None}
        if isinstance(one, tuple)
        else {"out": one.numpy()}
        for one in made
    )
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)
    stored = first["out"]
    if plan.notes:  # of Hopper
        if epilogue == "dgelu_bgrad":
            want = cuda.blas_lt.matmul(x, w, trans_b=True, aux=aux, epilogue="dgelu").numpy()
        else:
            keep = np.unpackbits(extra["aux"], axis=-1, count=n, bitorder="little").astype(bool)
            want = np.where(keep, cuda.blas_lt.matmul(x, w, trans_b=True).numpy(), np.zeros((), stored.dtype))
        assert stored.tobytes() == want.tobytes()
        sums = stored.astype(np.float64).sum(0)
        if "bias_grad" in first:
            assert np.max(abs(first["bias_grad"] - sums)) <= 2.0**-8 * np.max(abs(sums))


def test_notes_say_how_it_is_computed(cuda: an.Device) -> None:
    x = cuda.put(np.ones((16, 16), np.float32))
    assert cuda.blas_lt.plan(x, x).notes == ()
    wide = cuda.put(np.ones((16, 16)))
    (note,) = cuda.blas_lt.plan(wide, wide, epilogue="gelu").notes
    assert "computed by a kernel after the matmul" in note
    strided = cuda.put(np.ones((16, 32), np.float32))[:, ::2]
    with pytest.raises(an.Unsupported, match="copies=True"):
        cuda.blas_lt.plan(strided, x, copies=False).wait()
    notes = cuda.blas_lt.plan(strided, x).notes
    assert any("a is copied into the workspace" in note for note in notes)


def test_options_on_the_device(device: an.Device, cuda_engine: str) -> None:
    rng = np.random.default_rng(5)
    a, b, c = (random(rng, s, "float32") for s in ((16, 24), (24, 8), (16, 8)))
    alpha, beta = np.asarray([1.5], np.float32), np.asarray(0.25, np.float32)
    send(device, MatmulRequest(a=a, b=b, c=c, alpha=alpha, beta=beta), cuda_engine)
    send(device, MatmulRequest(a=a, b=b, alpha=alpha), cuda_engine)
    z = random(rng, (16, 16), "complex64")
    request = MatmulRequest(a=z, b=z, trans_a=True, conj_a=True, c=z, alpha=1 - 3j, beta=0.5j)
    send(device, request, cuda_engine)
    assert is_array(alpha)


def reverse_mode(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, seed: Any, activation: str) -> dict[str, np.ndarray]:
    """Return the gradients of ``sum(seed * (act(x @ w1 + b1) @ w2 + b2))`` by reverse mode in float64."""
    wide = [np.asarray(v, np.float64) for v in (x, w1, b1, w2, b2, seed)]
    x, w1, b1, w2, b2, seed = wide
    z = x @ w1 + b1
    if activation == "relu":
        h, slope = np.maximum(z, 0), (z > 0).astype(float)
    else:
        h, slope = gelu(z), gelu_gradient(z)
    dz = (seed @ w2.T) * slope
    return {
        "y": h @ w2 + b2, "w2": h.T @ seed, "b2": seed.sum(0), "w1": x.T @ dz, "b1": dz.sum(0), "x": dz @ w1.T,
    }  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_gradients_of_two_layers_through_the_epilogues(
    device: an.Device, cuda_engine: str, dtype: str, activation: str
) -> None:
    rng = np.random.default_rng(6)
    shapes = {"x": (48, 32), "w1": (32, 64), "b1": (64,), "w2": (64, 16), "b2": (16,), "seed": (48, 16)}
    host = {name: random(rng, shape, dtype) for name, shape in shapes.items()}
    want = reverse_mode(*host.values(), activation)
    lt = device.blas_lt
    p = {name: device.put(array) for name, array in host.items()}
    h, aux, *_ = lt.matmul(p["x"], p["w1"], bias=p["b1"], epilogue=f"{activation}_aux_bias")
    y = lt.matmul(h, p["w2"], bias=p["b2"], epilogue="bias")
    second = lt.matmul(h, p["seed"], trans_a=True, epilogue="bgradb")
    back = lt.matmul(p["seed"], p["w2"], trans_b=True, aux=aux, epilogue=f"d{activation}_bgrad")
    first = lt.matmul(p["x"], back.out, trans_a=True, epilogue="bgradb")
    found = {
        "y": y, "w2": second.out, "b2": second.bias_grad, "w1": first.out, "b1": back.bias_grad,
        "x": lt.matmul(back.out, p["w1"], trans_b=True),
    }  # fmt: skip
    unit = {"float64": 2.0**-47, "float32": 2.0**-19, "float16": 2.0**-9, "bfloat16": 2.0**-6}[dtype]
    if cuda_engine == "gpu" and (activation, dtype) == ("gelu", "float32"):
        unit = 2.0**-17  # the library's tanh
    for name, value in want.items():
        got = found[name].numpy().astype(np.float64)
        # Values that were rounded on the way, and a handful of ReLU's that are nearly 0.
        assert np.max(abs(got - value)) <= unit * np.max(abs(value)), name
    np.testing.assert_array_equal(first.bias_grad.shape, back.bias_grad.shape)


def test_groups_of_different_shapes(device: an.Device, cuda_engine: str) -> None:
    rng = np.random.default_rng(7)
    extents = ((16, 8, 32), (48, 24, 16), (5, 8, 7))
    a = [random(rng, (m, k), "float32") for m, n, k in extents]
    b = [random(rng, (n, k), "float32") for m, n, k in extents]
    c = [random(rng, (m, n), "float32") for m, n, k in extents]
    bias = [random(rng, (n,), "float32") for m, n, k in extents]
    refs = {name: [device.put(x) for x in value] for name, value in (("a", a), ("b", b), ("c", c), ("bias", bias))}
    options = {"trans_b": True, "epilogue": "gelu_bias", "alpha": 0.5, "beta": -1.0}
    got = device.blas_lt.grouped(refs.pop("a"), refs.pop("b"), **refs, **options)
    for i in range(3):
        want = reference(MatmulRequest(a=a[i], b=b[i], c=c[i], bias=bias[i], **options), gpu=cuda_engine == "gpu")
        check({"out": got[i].numpy()}, want, extents[i][1])
    z = [device.put(random(rng, (4, 4), "complex64")) for _ in range(2)]
    one, _ = device.blas_lt.grouped(z, z, alpha=1j)
    np.testing.assert_allclose(one.numpy(), 1j * (z[0].numpy() @ z[0].numpy()), rtol=1e-4, atol=1e-4)
    wide = [device.put(np.ones((4, 4))) for _ in range(2)]
    assert all((x.numpy() == 4).all() for x in device.blas_lt.grouped(wide, wide, epilogue="relu"))
    for bad, words in (
        ({"a": z, "b": z[:1]}, "one length"),
        ({"a": z, "b": [z[0], wide[0]]}, "member 1: "),
        ({"a": [z[0], wide[0]], "b": [z[0], wide[0]]}, "one dtype"),
        ({"a": z[0], "b": z}, "list of arrays"),
        ({"a": wide, "b": wide, "epilogue": "bgrada"}, "without aux"),
        ({"a": wide, "b": wide, "out": wide}, "overlaps"),
        ({"a": [], "b": []}, "at least 1"),
    ):
        with pytest.raises(an.InvalidRequest, match=words):
            device.blas_lt.grouped(bad.pop("a"), bad.pop("b"), **bad)
