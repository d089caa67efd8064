"""Products with epilogues by the compiled kernels on a GPU, against float64."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import atomr_native as an
from atomr_native.libraries.cutlass.choice import kernel_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(importlib.util.find_spec("cutlass_library") is None, reason="nvidia-cutlass is not installed"),
]
RNG = np.random.default_rng(14)
Array = np.ndarray[Any, Any]
#: Rows, columns and K that are awkward: single ones, no multiples of a tile, huge sums.
SHAPES = [(1, 1, 8), (1, 264, 8), (264, 1, 40), (129, 127, 72), (1000, 776, 520), (256, 256, 16384), (8, 4096, 328)]
#: Bits of a result that are exact, as a part of the sum of the products' magnitudes.
BITS = {"float64": 48, "float32": 20, "float16": 9, "bfloat16": 6, "int32": 40}


@pytest.fixture(scope="module")
def device() -> Iterator[an.Device]:
    with an.System() as system:
        yield system.device("cuda:0")


def values(*shape: int, dtype: str = "float32") -> Array:
    if dtype == "int8":
        return RNG.integers(-128, 128, shape).astype("i1")
    return RNG.standard_normal(shape).astype("f8" if dtype == "float64" else "f4")


def placed(device: an.Device, array: Array, dtype: str, order: str = "C") -> an.GpuRef:
    """Return matrices whose rows (C) or columns (F) are contiguous."""
    if order == "C":
        return device.put(array, dtype=dtype)
    return device.put(np.ascontiguousarray(array.swapaxes(-1, -2)), dtype=dtype).mT


#: Bits of a part of a sum that are kept, by what rounds it: TF32 has 10, and Hopper sums float8 with 14.
KEPT = {"tf32": 10, "float8": 12, "float64": 48}


def compared(found: an.GpuRef, a: an.GpuRef, b: an.GpuRef, want: Array | None = None, kind: str = "") -> None:
    """Compare with float64; no error is larger than roundings of D and of sums explain."""
    wide_a, wide_b = (x.numpy().astype("f8") for x in (a, b))
    want = wide_a @ wide_b if want is None else want
    got = found.numpy().astype("f8")
    assert not np.isnan(got).any()
    most = np.abs(wide_a) @ np.abs(wide_b)
    error, bound = np.abs(got - want), 2.0 ** -BITS[str(found.dtype)] * np.abs(want) + most * 2.0 ** -KEPT.get(kind, 18)
    assert (error <= bound + 1e-6 * (kind != "float64")).all(), f"error {error.max()} of {np.abs(want).max()}"


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_awkward_shapes(device: an.Device, shape: tuple[int, int, int], arch: str) -> None:
    m, n, k = shape
    if arch == "sm_90a" and n % 8:
        pytest.skip("rows of D are no multiples of 16 bytes")
    a = placed(device, values(m, k), "bfloat16")
    b = placed(device, values(k, n), "bfloat16", "F")
    out = device.put(np.full((m, n), np.nan, "f4"), dtype="bfloat16")
    device.cutlass.gemm(a, b, out=out, config=an.GemmConfig(arch=arch))
    compared(out, a, b)


TYPES = [
    ("float64", None, "float64", "CF"), ("float32", None, "float32", "CC"), ("float32", "tf32", "float32", "CF"),
    ("float16", None, "float16", "FC"), ("float16", None, "float32", "CF"), ("bfloat16", None, "bfloat16", "CC"),
    ("float8_e4m3fn", None, "bfloat16", "CF"),
    ("float8_e5m2", None, "float16", "CF"),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "compute", "out", "order"), TYPES)
def test_types_and_orders(device: an.Device, dtype: str, compute: str | None, out: str, order: str) -> None:
    a = placed(device, values(200, 256, dtype=dtype), dtype, order[0])
    b = placed(device, values(256, 144, dtype=dtype), dtype, order[1])
    d = device.put(np.full((200, 144), np.nan), dtype=out)
    device.cutlass.gemm(a, b, out=d, compute=compute, epilogue="acc")
    compared(d, a, b, kind=compute or dtype.partition("_")[0])
    if order == "CC":  # columns of D: the product of the transposes
        d = device.put(np.full((144, 200), np.nan), dtype=out).T
        device.cutlass.gemm(a, b, out=d, epilogue="acc")
        compared(d, a, b)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_products_of_int8_are_exact(device: an.Device, arch: str) -> None:
    a, b = values(72, 320, dtype="int8"), values(320, 144, dtype="int8")
    given_ = device.put(a), placed(device, b, "int8", "F")
    found = device.cutlass.gemm(*given_, epilogue="acc", config=an.GemmConfig(arch=arch)).numpy()
    np.testing.assert_array_equal(found, a.astype("i8") @ b.astype("i8"))
    narrow = device.cutlass.gemm(*given_, alpha=2.0**-9, out_dtype="int8", config=an.GemmConfig(arch=arch)).numpy()
    np.testing.assert_array_equal(narrow, np.clip(np.rint(a.astype("f8") @ b / 512), -128, 127))


def test_odd_products_of_int8_are_exact(device: an.Device) -> None:
    a, b = values(33, 127, dtype="int8"), values(127, 65, dtype="int8")
    given_ = device.put(a), placed(device, b, "int8", "F")
    found = device.cutlass.gemm(*given_, epilogue="acc").numpy()
    np.testing.assert_array_equal(found, a.astype("i8") @ b.astype("i8"))
    narrow = device.cutlass.gemm(*given_, alpha=2.0**-9, out_dtype="int8").numpy()
    np.testing.assert_array_equal(narrow, np.clip(np.rint(a.astype("f8") @ b / 512), -128, 127))


@pytest.mark.parametrize("alignment", [1, 2, 4, 8])
def test_alignments(device: an.Device, alignment: int) -> None:
    wide = 64 + alignment
    a = device.put(values(40, wide), dtype="float16")[:, :64]
    b = device.put(values(64, 48 + alignment), dtype="float16")[:, :48]
    found = device.cutlass.gemm(a, b, config=None if alignment == 8 else an.GemmConfig(arch="sm_80"))
    compared(found, a, b)


@given(
    m=st.integers(2, 300), n=st.integers(2, 40), k=st.integers(1, 40), batch=st.sampled_from([(), (3,)]),
    order=st.sampled_from(["CC", "CF"]), beta=st.sampled_from([0.0, -1.5]),
)  # fmt: skip
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_shapes(device: an.Device, m: int, n: int, k: int, batch: tuple[int, ...], order: str, beta: float) -> None:
    n, k = n * 8, k * 8
    a, b = (placed(device, values(*batch, *shape), "float16", how) for shape, how in
            zip(((m, k), (k, n)), order, strict=True))  # fmt: skip
    own = values(n)
    c = placed(device, values(*batch, m, n), "float16")
    out = device.put(np.full((*batch, m, n), np.nan, "f4"), dtype="float16")
    device.cutlass.gemm(
        a, b, out=out, c=c, alpha=0.5, beta=beta, epilogue="alpha * acc + beta * c + more",
        operands={"more": device.put(own)},
    )  # fmt: skip
    compared(out, a, b, 0.5 * (a.numpy().astype("f8") @ b.numpy().astype("f8")) + beta * c.numpy().astype("f8") + own)


EPILOGUES: dict[str, Any] = {
    "relu": lambda x: np.maximum(x, 0), "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "tanh": np.tanh, "exp": np.exp,
    "silu": lambda x: x / (1 + np.exp(-x)), "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6, "abs": np.abs,
    "softplus": lambda x: np.log1p(np.exp(x)), "erf": np.vectorize(math.erf),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}  # fmt: skip


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_all_functions_in_one_kernel(device: an.Device, arch: str) -> None:
    a, b = (device.put(0.1 * values(*shape), dtype="float16") for shape in ((72, 64), (64, 128)))
    text = " + ".join(f"{name}(acc)" for name in EPILOGUES) + " + leaky_relu(acc, 0.125) + log(rsqrt(acc * acc + 1))"
    found = device.cutlass.gemm(a, b, epilogue=text, out_dtype="float32", config=an.GemmConfig(arch=arch)).numpy()
    x = a.numpy().astype("f8") @ b.numpy().astype("f8")
    np.testing.assert_allclose(
        found,
        sum(function(x) for function in EPILOGUES.values()) + np.where(x < 0, x / 8, x) - 0.5 * np.log(x * x + 1),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_tree_with_everything(device: an.Device, arch: str) -> None:
    m, n, k = 200, 136, 64
    a, b = placed(device, values(2, m, k), "float16"), placed(device, values(2, k, n), "float16")
    c, gate = (device.put(values(2, m, n), dtype="float16") for _ in range(2))
    row, column, scale = values(2, 1, n), values(m, 1), np.array([3.0], "f4")
    operands = {
        "row": device.put(row),
        "column": device.put(column),
        "scale": device.put(scale),
        "gate": gate,
        "s": 2.0,
    }
    x = a.numpy().astype("f8") @ b.numpy().astype("f8")
    for alpha in (0.5, -1.0):
        out, pre = device.cutlass.gemm(
            a, b, c=c, alpha=alpha, operands=operands, outputs={"pre": "float32"}, out_dtype="float32",
            epilogue="pre = alpha * acc + row; out = relu(pre) * gate + column * scale - s * c",
            config=an.GemmConfig(arch=arch),
        )  # fmt: skip
        want = alpha * x + row
        np.testing.assert_allclose(pre.numpy(), want, rtol=1e-4, atol=1e-3)
        gates, sources = (one.numpy().astype("f8") for one in (gate, c))
        want = np.maximum(want, 0) * gates + column * 3 - 2 * sources
        np.testing.assert_allclose(out.numpy(), want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("dtype", "wide", "groups"),
    [("int8", "float16", 4), ("int8", "bfloat16", 0), ("float8_e4m3fn", "bfloat16", 1), ("float8_e5m2", "float16", 8)],
)
def test_mixed_operands(device: an.Device, dtype: str, wide: str, groups: int) -> None:
    scale = np.exp2(RNG.integers(-6, 2, (max(groups, 1), 264)))  # exact factors
    for m in (1, 8, 200, 1000):
        a, row = device.put(values(m, 512), dtype=wide), values(264)
        b = placed(device, values(512, 264, dtype="int8" if dtype == "int8" else "float32"), dtype, "F")
        out = device.put(np.full((m, 264), np.nan, "f4"))
        device.cutlass.gemm(
            a, b, out=out, epilogue="acc + row", operands={"row": device.put(row)},
            b_scale=device.put(scale, dtype=wide) if groups else None,
        )  # fmt: skip
        w = b.numpy().astype("f8") * (np.repeat(scale, 512 // groups, axis=0) if groups else 1)
        x = a.numpy().astype("f8")
        error = np.abs(out.numpy() - (x @ w + row))
        assert (error <= 2.0**-18 * (np.abs(x) @ np.abs(w)) + 1e-5).all(), error.max()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("batch", [(), (3,)], ids=["one", "batch"])
def test_values_are_reduced(device: an.Device, arch: str, batch: tuple[int, ...]) -> None:
    a, b = placed(device, values(*batch, 200, 64), "float16"), placed(device, values(64, 136), "float16")
    x = a.numpy().astype("f8") @ b.numpy().astype("f8")
    for alpha in (0.5, -1.0):
        out, rows, most, columns = device.cutlass.gemm(
            a, b, alpha=alpha, outputs=dict.fromkeys(("rows", "most", "columns"), "float32"), out_dtype="float32",
            epilogue="pre = alpha * acc; rows = sum(pre, 0); most = max(pre); columns = sum(acc, 1);"
            "out = relu(pre) + acc", config=an.GemmConfig(arch=arch),
        )  # fmt: skip
        pre = alpha * x
        np.testing.assert_allclose(out.numpy(), np.maximum(pre, 0) + x, rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(rows.numpy(), pre.sum(-2), rtol=1e-4, atol=1e-2)
        np.testing.assert_allclose(columns.numpy(), x.sum(-1), rtol=1e-4, atol=1e-2)
        np.testing.assert_allclose(most.numpy(), pre.max((-2, -1))[..., None], rtol=1e-4)


def test_few_rows_with_everything_are_those_of_the_transposes(device: an.Device) -> None:
    for m, n, batch in ((16, 264, ()), (8, 136, (2,))):
        a, b = placed(device, values(*batch, m, 72), "float16"), placed(device, values(72, n), "float16", "F")
        x = a.numpy().astype("f8") @ b.numpy().astype("f8")
        given = {"bias": values(n), "factor": values(m, 1), "gate": values(*batch, m, n), "mask": values(*batch, m, n)}
        operands = {name: device.put(one, dtype="float16") for name, one in given.items()}
        bias, factor, gate, mask = (operands[name].numpy().astype("f8") for name in given)
        out, pre, most, rows = device.cutlass.gemm(
            a, b, operands=operands, outputs={"pre": "float16", "most": "float32", "rows": "float32"},
            epilogue="pre = acc + bias; most = max(pre, 0); rows = sum(pre, 1); out = relu(pre) * gate + factor * mask",
        )  # fmt: skip
        x = x + bias
        for found, want in (
            (out, np.maximum(x, 0) * gate + factor * mask), (pre, x), (most, x.max(-2)), (rows, x.sum(-1))
        ):  # fmt: skip
            np.testing.assert_allclose(found.numpy().astype("f8"), want, rtol=2e-3, atol=2e-3 * np.abs(want).max())


def test_few_rows_share_long_sums(device: an.Device) -> None:
    a, b = placed(device, values(16, 8192), "bfloat16"), placed(device, values(8192, 512), "bfloat16", "F")
    for _ in range(2):
        compared(device.cutlass.gemm(a, b), a, b)


@pytest.mark.parametrize(
    ("shape", "tile"),
    [((16, 4104, 264), (64, 16, 128)), ((3, 4104, 136), (64, 16, 128)), ((1304, 1288, 72), (128, 128, 64))],
    ids=str,
)
def test_few_rows_and_short_sums(device: an.Device, shape: tuple[int, int, int], tile: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = placed(device, values(m, k), "bfloat16"), placed(device, values(k, n), "bfloat16", "F")
    out = device.put(np.full((m, n), np.nan, "f4"), dtype="bfloat16")
    request = an.GemmRequest(a=a, b=b, out=out, epilogue="acc")
    assert kernel_of(request.lowered.spec(), (9, 0)).kernel.tile == tile
    device.cutlass.gemm(a, b, out=out, epilogue="acc")
    compared(out, a, b)


def leaky(acc: float, slope: float) -> float:
    return acc if acc > 0 else slope * acc


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_python_function(device: an.Device, arch: str) -> None:
    a, b = placed(device, values(200, 64), "float16"), placed(device, values(64, 136), "float16")
    found = device.cutlass.gemm(
        a, b, epilogue=leaky, operands={"slope": 0.1}, out_dtype="float32", config=an.GemmConfig(arch=arch)
    )
    x = a.numpy().astype("f8") @ b.numpy().astype("f8")
    np.testing.assert_allclose(found.numpy(), np.where(x > 0, x, 0.1 * x), rtol=1e-4, atol=1e-3)


SHARES = [("sm_90a", {"decomposition": "stream_k"}), ("sm_90a", {"splits": 4}), ("sm_90a", {}),
          ("sm_80", {"decomposition": "stream_k"}), ("sm_80", {"splits": 4})]  # fmt: skip


@pytest.mark.parametrize(("arch", "how"), SHARES)
def test_blocks_that_share_sums(device: an.Device, arch: str, how: dict[str, Any]) -> None:
    config = an.GemmConfig(arch=arch, **how)
    for m, n, k in ((128, 128, 8192), (200, 264, 4096), (128, 128, 8192)):
        a, b = placed(device, values(m, k), "bfloat16"), placed(device, values(k, n), "bfloat16", "F")
        bias, out = values(n), device.put(np.full((m, n), np.nan, "f4"))
        for _ in range(3):  # with a workspace that was used before
            device.cutlass.gemm(
                a, b, out=out, epilogue="acc + bias", operands={"bias": device.put(bias)}, config=config
            )
            compared(out, a, b, a.numpy().astype("f8") @ b.numpy().astype("f8") + bias)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("how", [{}, {"splits": 2}], ids=["tiles", "splits"])
def test_a_recorded_program_gives_the_same_bits(device: an.Device, arch: str, how: dict[str, Any]) -> None:
    if arch == "sm_80" and how:
        pytest.skip("sums of multistage kernels that share them have no fixed order")
    a, b = placed(device, values(136, 512), "bfloat16"), placed(device, values(512, 264), "bfloat16")
    out, config = device.zeros((136, 264), "bfloat16"), an.GemmConfig(arch=arch, **how)
    with device.record() as recording:
        device.cutlass.gemm(recording.operand("a", a), b, out=out, epilogue="gelu(acc)", config=config)
    for _ in range(3):
        other = placed(device, values(136, 512), "bfloat16")
        recording.plan.tell(a=other)
        expected = device.cutlass.gemm(other, b, epilogue="gelu(acc)", config=config).numpy()
        np.testing.assert_array_equal(out.numpy().view("u2"), expected.view("u2"))


def test_refits_while_messages_are_in_flight(device: an.Device) -> None:
    x, eye = placed(device, values(512, 512), "bfloat16"), np.eye(512, dtype="f4")
    layer = device.cutlass.bind("layer", x, device.put(eye, dtype="bfloat16"))
    found = []
    for factor in range(1, 9):
        layer.refit(b=device.put(factor * eye, dtype="bfloat16"))
        found.append(layer.tell(x))
    for factor, one in enumerate(found, 1):
        np.testing.assert_allclose(one.numpy().astype("f8"), factor * x.numpy().astype("f8"), rtol=2**-8)
