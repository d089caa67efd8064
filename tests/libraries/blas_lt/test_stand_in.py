"""Products that a kernel of CUTLASS computes for the matmul actor: by request, and by rules that were measured."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator
from typing import Any

import fake_cuda
import fake_cutlass
import numpy as np
import pytest

import atomr_native as an
from atomr_native.libraries.blas_lt import epilogues, stand_in
from atomr_native.libraries.cutlass import code
from atomr_native.plans.lowering import Target

pytest.importorskip("cuda.bindings.nvrtc", reason="cuda.bindings is not installed")
RNG = np.random.default_rng(6)
BY_REQUEST = ("one kernel of CUTLASS, since route='cutlass'",)


@pytest.fixture(scope="module")
def device(fake_environment: dict[str, str]) -> Iterator[an.Device]:
    with pytest.MonkeyPatch.context() as patch, fake_cuda.using(fake_environment):
        fake_cutlass.install(patch)
        with an.System() as system:
            yield system.device("cuda:0")


def values(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("f4")


def both(device: an.Device, **how: Any) -> tuple[Any, Any]:
    """Return the results of CUTLASS's kernel, as it is given, and of the host device."""
    host = device.system.device("host")
    mirrored = {name: host.put(one.numpy()) if isinstance(one, an.GpuRef) else one for name, one in how.items()}
    if how.get("c") is not None and how.get("c") is how.get("out"):
        mirrored["c"] = mirrored["out"]
    expected = host.blas_lt.matmul(**mirrored)
    plan = device.blas_lt.plan(route="cutlass", **how)
    assert plan.notes == BY_REQUEST
    return device.blas_lt.matmul(route="cutlass", **how), expected


def same(found: Any, expected: Any) -> None:
    pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    for one, other in pairs:
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("epilogue", "trans_a", "trans_b"),
    [("default", False, False), ("relu", True, True), ("bias", False, True), ("relu_bias", True, False),
     ("gelu", False, False), ("gelu_bias", False, True)],
)  # fmt: skip
def test_epilogues_and_transposes(device: an.Device, epilogue: str, trans_a: bool, trans_b: bool) -> None:
    a = device.put(values(*((24, 6) if trans_a else (6, 24))))
    b = device.put(values(*((10, 24) if trans_b else (24, 10))))
    bias = device.put(values(10)) if "bias" in epilogue else None
    for alpha in (1.0, -2.0):
        same(*both(device, a=a, b=b, trans_a=trans_a, trans_b=trans_b, epilogue=epilogue, bias=bias, alpha=alpha))


def test_sums_with_c_in_place_and_factors_of_the_device(device: an.Device) -> None:
    a, b, c, d = (device.put(values(*shape)) for shape in ((2, 6, 24), (24, 10), (2, 6, 10), (2, 6, 10)))
    same(*both(device, a=a, b=b, c=c, alpha=0.5, beta=-2.0, epilogue="relu"))
    same(*both(device, a=a, b=b, c=d, out=d, beta=3.0))
    alpha, beta = (device.put(np.array([x], "f4")) for x in (2.0, -1.0))
    same(*both(device, a=a, b=b, c=c, alpha=alpha, beta=beta))


@pytest.mark.parametrize("bias", [False, True])
def test_a_stored_aux_and_its_gradient(device: an.Device, bias: bool) -> None:
    a, b, dy = device.put(values(6, 24)), device.put(values(24, 10)), device.put(values(6, 24))
    more = {"bias": device.put(values(10))} if bias else {}
    found, expected = both(device, a=a, b=b, epilogue="gelu_aux_bias" if bias else "gelu_aux", **more)
    assert found.aux is not None
    same(found, expected)
    same(*both(device, a=dy, b=b, epilogue="dgelu", aux=found.aux))


def everything(acc: Any, bias: Any, per_row: Any, gate: Any, full: Any) -> Any:
    return (acc + bias) * per_row * gate + full


def pair(acc: Any, bias: Any, full: Any) -> Any:
    y = acc + bias
    return y * full, y


@pytest.mark.parametrize(
    ("shapes", "out_dtype"),
    [(((), (1,)), "float32"), (((6, 1), (1, 10)), "int8"), ((None, (1, 10)), "float32")],
    ids=["one", "outer", "of b"],
)
def test_scales(device: an.Device, shapes: tuple[Any, Any], out_dtype: str) -> None:
    a, b = (device.put(RNG.integers(-9, 9, shape).astype("i1")) for shape in ((6, 64), (10, 64)))
    of_a, of_b = (None if shape is None else device.put(RNG.uniform(0.01, 0.1, shape).astype("f4")) for shape in shapes)
    how = {"a": a, "b": b, "trans_b": True, "a_scale": of_a, "b_scale": of_b, "out_dtype": out_dtype, "alpha": -0.5}
    same(*both(device, **how))
    bias = device.put(values(10))
    c = device.put(values(6, 10) if out_dtype == "float32" else RNG.integers(-9, 9, (6, 10)).astype("i1"))
    c_scale, d_scale = (device.put(np.array(x, "f4")) for x in (0.25, 3.0))
    how |= {"bias": bias, "c": c, "beta": 2.0, "c_scale": c_scale, "d_scale": d_scale, "epilogue": "relu_bias"}
    same(*both(device, **how))
    amax = device.put(np.array([7], "f4"))
    for given in (True, amax):
        found, expected = both(device, **how, amax=given)
        same(found, expected)
        assert found.amax.numpy().item() > 1


def test_the_largest_magnitude_is_that_of_what_is_stored_apart_from_aux(device: an.Device) -> None:
    a, b, d_scale = device.put(values(6, 24)), device.put(values(24, 10)), device.put(np.array([0.5], "f4"))
    found, expected = both(device, a=a, b=b, epilogue="gelu_aux", amax=True, d_scale=d_scale)
    same(found, expected)
    assert found.amax.numpy() == np.abs(found.out.numpy()).max() * 2
    found, expected = both(device, a=device.put(-np.abs(a.numpy())), b=device.put(np.abs(b.numpy())), amax=True)
    same(found, expected)
    assert found.amax.numpy() == -found.out.numpy().min()


def test_a_scale_in_front_of_an_epilogue_of_ones_own(device: an.Device) -> None:
    pytest.importorskip("numba.cuda", reason="numba-cuda is not installed")
    a, b = (RNG.integers(-9, 9, shape).astype("i1") for shape in ((6, 64), (64, 10)))
    of_b, bias = RNG.uniform(0.01, 0.1, (1, 10)).astype("f4"), values(10)
    found = device.blas_lt.matmul(
        device.put(a), device.put(b.T.copy()), trans_b=True, b_scale=device.put(of_b), out_dtype="float32",
        epilogue=an.CustomEpilogue(moved, {"by": "row"}), operands={"by": device.put(bias)},
        route="cutlass",
    )  # fmt: skip
    np.testing.assert_allclose(found.numpy(), (a.astype("f4") @ b) * of_b + bias, rtol=1e-5, atol=1e-5)


def test_a_bias_for_each_matrix(device: an.Device) -> None:
    a, b, bias = (device.put(values(*shape)) for shape in ((2, 6, 24), (2, 24, 10), (2, 10)))
    same(*both(device, a=a, b=b, bias=bias, epilogue="relu_bias"))


def moved(acc: Any, by: Any) -> Any:
    return acc + by


moved.in_c = "x0 + x1"  # type: ignore[attr-defined]
everything.in_c = "(x0 + x1) * x2 * x3 + x4"  # type: ignore[attr-defined]
pair.in_c = "(x0 + x1) * x2", "x0 + x1"  # type: ignore[attr-defined]
KINDS = {"bias": "row", "per_row": "column", "gate": "scalar", "full": "matrix"}


@pytest.mark.parametrize(("batch", "spread"), [((), ()), ((2,), ()), ((2,), (2,))])
def test_an_epilogue_of_ones_own(device: an.Device, batch: tuple[int, ...], spread: tuple[int, ...]) -> None:
    pytest.importorskip("numba.cuda", reason="numba-cuda is not installed")
    a, b, c = values(*batch, 6, 24), values(*batch, 10, 24), values(*batch, 6, 10)
    own = {"bias": values(*spread, 10), "per_row": values(*spread, 6), "gate": np.array(1.5, "f4"),
           "full": values(*batch, 6, 10)}  # fmt: skip
    bias, per_row, full = own["bias"][..., None, :], own["per_row"][..., None], own["full"]
    given: dict[str, Any] = {"a": device.put(a), "b": device.put(b), "trans_b": True, "alpha": -2.0}
    operands = {name: device.put(one) for name, one in own.items()}
    for sums in (False, True):
        how = given | {"epilogue": an.CustomEpilogue(everything, KINDS, bias_grad=sums), "operands": operands}
        for more in ({}, {"c": device.put(c), "beta": 0.5}):
            assert device.blas_lt.plan(route="cutlass", **how, **more).notes == BY_REQUEST
            found = device.blas_lt.matmul(route="cutlass", **how, **more)
            want = (-2 * (a @ b.swapaxes(-1, -2)) + 0.5 * c * bool(more) + bias) * per_row * 1.5 + full
            np.testing.assert_allclose((found.out if sums else found).numpy(), want, rtol=1e-4, atol=1e-4)
            if sums:
                np.testing.assert_allclose(found.bias_grad.numpy(), want.sum(-2), rtol=1e-4, atol=1e-4)
    kinds = {name: KINDS[name] for name in ("bias", "full")}
    how = given | {"epilogue": an.CustomEpilogue(pair, kinds, aux=True), "operands": {n: operands[n] for n in kinds}}
    out, aux, *_ = device.blas_lt.matmul(route="cutlass", **how)
    x = -2 * (a @ b.swapaxes(-1, -2)) + bias
    np.testing.assert_allclose(aux.numpy(), x, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(out.numpy(), x * full, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"epilogue": "relu_aux"}, "epilogue='relu_aux'; allowed: default, bias"),
        ({"epilogue": "bgradb"}, "epilogue='bgradb'"),
        ({"tune": True}, "tune='measure'"),
        ({"compute": "float32_pedantic"}, "compute='float32_pedantic'; allowed: float32"),
        ({"dtype": "complex64"}, "route='cutlass'"),
        ({"dtype": "int8", "out_dtype": "int32"}, "D of int32"),
        ({"batched": True, "amax": True}, r"amax of a batch \(2,\); allowed: without it"),
        ({"dtype": "float8_e4m3fn", "blocks": True}, r"a_scale of shape \(6, 2\), of blocks of K; allowed: one"),
    ],
)
def test_refusals(device: an.Device, how: dict[str, Any], words: str) -> None:
    how = dict(how)
    dtype, lead = how.pop("dtype", "float32"), (2,) if how.pop("batched", False) else ()
    a, b = device.zeros((*lead, 6, 256), dtype), device.zeros((*lead, 256, 10), dtype)
    if how.pop("blocks", False):
        how |= {"a_scale": device.zeros((6, 2), "float32"), "b_scale": device.zeros((2, 10), "float32")}
    for call in (device.blas_lt.plan, device.blas_lt.matmul):
        with pytest.raises(an.Unsupported, match=words):
            call(a, b, route="cutlass", **how)
    with pytest.raises(an.InvalidRequest, match="route"):
        device.blas_lt.matmul(a, b, route="nvcc", **how)


def test_nothing_is_routed_without_a_figure(device: an.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = device.put(values(6, 24)), device.put(values(24, 10))
    monkeypatch.setattr(code, "compiled_kernel", None)
    unmeasured = tuple(dataclasses.replace(one, gain=None) for one in stand_in.RULES)
    monkeypatch.setattr(stand_in, "RULES", unmeasured)
    for how in ({"epilogue": "gelu_aux"}, {"epilogue": "dgelu", "aux": device.put(values(6, 10))}):
        assert not any("CUTLASS" in note for note in device.blas_lt.plan(a, b, **how).notes)


LARGE = (4096, 2048, 1024)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(
    ("shape", "dtype", "how", "capability", "routed"),
    [
        (LARGE, "f2", {"epilogue": "gelu_aux"}, (9, 0), True),
        (LARGE, "f2", {"epilogue": "gelu_aux_bias", "bias": np.empty(2048, "f2")}, (9, 0), True),
        (LARGE, "f2", {"epilogue": "gelu_aux"}, (8, 0), False),  # on which nothing was measured
        (LARGE, "f2", {"epilogue": "gelu_aux", "route": "cublaslt"}, (9, 0), False),
        (LARGE, "f2", {"epilogue": "gelu"}, (9, 0), False),
        (LARGE, "f2", {"epilogue": "dgelu", "aux": np.empty((4096, 2048), "f2")}, (9, 0), False),  # hardly faster
        (LARGE, "f2", {"epilogue": "gelu_aux", "out_dtype": "float32"}, (9, 0), False),
        (LARGE, "f4", {"epilogue": "gelu_aux"}, (9, 0), False),
        ((4096, 2048, 1023), "f2", {"epilogue": "gelu_aux"}, (9, 0), False),
        ((4096, 2048, 512), "f2", {"epilogue": "gelu_aux"}, (9, 0), False),
    ],
)
def test_large_products_that_store_aux_are_routed(
    shape: tuple[int, int, int], dtype: str, how: dict[str, Any], capability: tuple[int, int], routed: bool
) -> None:
    m, n, k = shape
    request = an.MatmulRequest(a=np.empty((m, k), dtype), b=np.empty((n, k), dtype), trans_b=True, **how)
    found = stand_in.stand_in(request.lowered, lambda: Target(capability, 1 << 25))
    assert (found is not None) == routed
    if found is not None:
        attributes: Any = found.attributes
        assert attributes.notes == ("one kernel of CUTLASS, since it stores aux",)
        assert found.op == "cutlass.gemm"


def shifted(acc: Any, bias: Any, full: Any) -> Any:
    return acc + bias + full


shifted.in_c = "x0 + x1 + x2"  # type: ignore[attr-defined]


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(
    ("shape", "how", "routed"),
    [
        (LARGE, {}, True),
        (LARGE, {"route": "cublaslt"}, False),
        (LARGE, {"tune": True}, False),
        (LARGE, {"out_dtype": "float32"}, False),
        ((4096, 2048, 512), {}, False),
    ],
)
def test_large_products_with_an_epilogue_of_ones_own_are_routed(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int], how: dict[str, Any], routed: bool
) -> None:
    pytest.importorskip("numba.cuda", reason="numba-cuda is not installed")
    m, n, k = shape
    own = an.CustomEpilogue(shifted, {"bias": "row", "full": "matrix"})
    operands = {"bias": np.empty(n, "f4"), "full": np.empty((m, n), how.get("out_dtype", "f2"))}
    a, b = np.empty((m, k), "f2"), np.empty((n, k), "f2")
    request = an.MatmulRequest(a=a, b=b, trans_b=True, epilogue=own, operands=operands, **how)

    def found() -> Any:
        return stand_in.stand_in(request.lowered, lambda: Target((9, 0), 1 << 25))

    attributes: Any = found() and found().attributes
    assert (attributes and attributes.notes) == (
        ("one kernel of CUTLASS, since it has an epilogue of its own",) if routed else None
    )

    def refuse(*_: object) -> None:
        raise an.LibraryError("nvrtc", 6, "COMPILATION", "compiling", "line 7 is wrong")

    monkeypatch.setattr(code, "compiled_kernel", refuse)
    assert found() is None


def test_sums_in_no_fixed_order_are_only_by_request(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = tuple(dataclasses.replace(one, gain=2.0) for one in stand_in.RULES)
    monkeypatch.setattr(stand_in, "RULES", measured)
    asked: list[bool] = []

    def target() -> Target:
        asked.append(True)
        return Target((8, 0), 1 << 25)

    m, n, k = LARGE
    a, b, x = np.empty((m, k), "f2"), np.empty((k, n), "f2"), np.empty((m, n), "f2")
    for sums in (False, True):
        own = an.CustomEpilogue(lambda acc, x: acc * x, {"x": "matrix"}, bias_grad=sums)
        lowered = an.MatmulRequest(a=a, b=b, epilogue=own, operands={"x": x}).lowered
        assert stand_in.stand_in(lowered, target) is None
        assert len(asked) == 1  # for the first one: sums need no answer


def half(device: an.Device, *shape: int) -> an.GpuRef:
    return device.put(values(*shape), dtype="float16")


@pytest.mark.parametrize(("k", "odd"), [(24, False), (23, True)])
def test_rules_route_where_they_were_measured(
    device: an.Device, monkeypatch: pytest.MonkeyPatch, k: int, odd: bool
) -> None:
    measured = tuple(dataclasses.replace(one, gain=1.5 if "16 bytes" in one.reason else 0.9) for one in stand_in.RULES)
    monkeypatch.setattr(stand_in, "RULES", measured)
    a, b = half(device, 6, k), half(device, 16, k)
    plan = device.blas_lt.plan(a, b, trans_b=True, alpha=2.0)
    since = "one kernel of CUTLASS, since rows of operands are no multiples of 16 bytes"
    assert (since in plan.notes) == odd
    found = device.blas_lt.matmul(a, b, trans_b=True, alpha=2.0).numpy().astype("f8")
    np.testing.assert_allclose(found, 2 * (a.numpy().astype("f8") @ b.numpy().T), rtol=1e-2, atol=1e-2)
    assert since not in device.blas_lt.plan(a, b, trans_b=True, alpha=2.0, route="cublaslt").notes
    assert since not in device.blas_lt.plan(a, b, trans_b=True, epilogue="relu_aux").notes  # which it has no form for

    def missing(*_: object) -> None:
        raise an.Unsupported("nvidia-cutlass is not installed")

    monkeypatch.setattr(code, "compiled_kernel", missing)
    other = half(device, 6, k), half(device, 17, k)
    assert since not in device.blas_lt.plan(*other, trans_b=True).notes
    with pytest.raises(an.Unsupported, match="nvidia-cutlass is not installed"):
        device.blas_lt.matmul(*other, trans_b=True, route="cutlass")


def test_the_host_device_and_empty_results_have_no_routes(device: an.Device) -> None:
    host = device.system.device("host")
    x = host.put(values(3, 3))
    np.testing.assert_array_equal(host.blas_lt.matmul(x, x, route="cutlass").numpy(), host.blas_lt.matmul(x, x).numpy())
    empty = device.blas_lt.matmul(device.zeros((0, 4), "float32"), device.zeros((4, 4), "float32"), route="cutlass")
    assert empty.numpy().shape == (0, 4)


@pytest.mark.gpu
@pytest.mark.skipif(importlib.util.find_spec("cutlass_library") is None, reason="nvidia-cutlass is not installed")
@pytest.mark.parametrize(
    ("m", "n", "k", "epilogue"), [(255, 129, 127, "bias"), (512, 256, 512, "gelu_aux_bias"), (512, 256, 512, "dgelu")]
)
def test_stand_ins_on_a_gpu(m: int, n: int, k: int, epilogue: str) -> None:
    with an.System() as system:
        gpu, host = system.device("cuda:0"), system.device("host")
        given = {"a": values(m, k), "b": values(n, k), "bias": values(n), "aux": values(m, n)}
        used = ("a", "b", "aux") if epilogue == "dgelu" else ("a", "b", "bias")
        arrays = {name: host.put(given[name], dtype="bfloat16") for name in used}
        how: dict[str, Any] = {"trans_b": True, "epilogue": epilogue, "alpha": 0.5}
        expected = host.blas_lt.matmul(**arrays, **how)
        refs = {name: gpu.put(one.numpy()) for name, one in arrays.items()}
        assert gpu.blas_lt.plan(**refs, route="cutlass", **how).notes == BY_REQUEST
        found = gpu.blas_lt.matmul(**refs, route="cutlass", **how)
        pairs = [(found, expected)] if epilogue != "gelu_aux_bias" else [(found[i], expected[i]) for i in (0, 1)]
        for one, other in pairs:
            x, y = (array.numpy().astype("f8") for array in (one, other))
            np.testing.assert_allclose(x, y, rtol=2.0**-6, atol=2.0**-7 * np.abs(y).max())


@pytest.mark.gpu
@pytest.mark.skipif(importlib.util.find_spec("cutlass_library") is None, reason="nvidia-cutlass is not installed")
def test_an_epilogue_of_ones_own_on_a_gpu() -> None:
    with an.System() as system:
        gpu = system.device("cuda:0")
        a, b, bias = (gpu.put(values(*shape), dtype="bfloat16") for shape in ((512, 256), (384, 256), (384,)))
        how: dict[str, Any] = {"trans_b": True, "epilogue": epilogues.silu_forward, "operands": {"bias": bias}}
        assert gpu.blas_lt.plan(a, b, route="cutlass", **how).notes == BY_REQUEST
        made = gpu.blas_lt.matmul(a, b, route="cutlass", **how)
        x, w, row = (one.numpy().astype("f8") for one in (a, b, bias))
        x = x @ w.T + row
        for found, want in ((made.out, x / (1 + np.exp(-x))), (made.aux, x)):
            assert found is not None
            np.testing.assert_allclose(found.numpy().astype("f8"), want, rtol=1e-2, atol=1e-2)
        z = gpu.put(values(512, 384), dtype="bfloat16")
        made = gpu.blas_lt.matmul(a, b.T, route="cutlass", epilogue=epilogues.relu_gradient, operands={"y": z})
        want = (a.numpy().astype("f8") @ w.T) * (z.numpy() > 0)
        np.testing.assert_allclose(made.numpy().astype("f8"), want, rtol=1e-2, atol=1e-2 * np.abs(want).max())
        how = {"epilogue": epilogues.silu_backward, "operands": {"x": z}}
        made = gpu.blas_lt.matmul(a, b.T, route="cutlass", **how)
        y, s = a.numpy().astype("f8") @ w.T, 1 / (1 + np.exp(-z.numpy().astype("f8")))
        want = y * s * (1 + z.numpy().astype("f8") * (1 - s))
        np.testing.assert_allclose(made.out.numpy().astype("f8"), want, rtol=1e-2, atol=1e-2 * np.abs(want).max())
        assert made.bias_grad is not None
        np.testing.assert_allclose(
            made.bias_grad.numpy(), want.sum(0), rtol=1e-3, atol=1e-3 * np.abs(want).sum(0).max()
        )


@pytest.mark.gpu
@pytest.mark.skipif(importlib.util.find_spec("cutlass_library") is None, reason="nvidia-cutlass is not installed")
@pytest.mark.parametrize("outer", [False, True])
def test_scales_and_the_largest_magnitude_on_a_gpu(outer: bool) -> None:
    m, n, k = 264, 144, 256
    with an.System() as system:
        gpu, host = system.device("cuda:0"), system.device("host")
        x, y, bias = values(m, k), values(n, k), values(n)
        shapes = ((m, 1), (1, n)) if outer else ((), (1,))
        of_a, of_b = (RNG.uniform(0.5, 2, shape).astype("f4") for shape in shapes)
        results = []
        for device, how in ((gpu, {"route": "cutlass"}), (host, {})):
            a, b = (device.put(one, dtype="float8_e4m3fn") for one in (x, y))
            results.append(
                device.blas_lt.matmul(
                    a, b, trans_b=True, a_scale=device.put(of_a), b_scale=device.put(of_b), out_dtype="bfloat16",
                    bias=device.put(bias, dtype="bfloat16"), epilogue="relu_bias", amax=True,
                    d_scale=device.put(np.array(0.25, "f4")), **how,
                )
            )  # fmt: skip
        found, expected = ([one.numpy().astype("f8") for one in (result.out, result.amax)] for result in results)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=2.0**-6, atol=2.0**-8 * np.abs(other).max())
