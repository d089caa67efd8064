"""Convolutions by the compiled kernels on a GPU, against float64 on the host."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import atomr_native as an

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(importlib.util.find_spec("cutlass_library") is None, reason="nvidia-cutlass is not installed"),
]
RNG = np.random.default_rng(13)
#: Spatial extents, filters, and how they meet; channels are 16 and 24.
PROBLEMS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((17, 19), (3, 3), {"padding": 1}),
    "points": ((9, 8), (1, 1), {}),
    "strides": ((18, 15), (3, 2), {"stride": (2, 3), "padding": (1, 0)}),
    "dilated": ((20, 17), (3, 3), {"padding": 2, "dilation": (2, 1)}),
    "volume": ((6, 9, 8), (3, 2, 3), {"padding": (1, 0, 1)}),
    "strided volume": ((7, 9, 8), (2, 3, 3), {"stride": (1, 2, 2), "padding": 1}),
}
TOLERANCES = {"float64": 1e-12, "float32": 1e-4, "float16": 4e-3, "bfloat16": 3e-2}


@pytest.fixture(scope="module")
def device() -> Iterator[an.Device]:
    with an.System() as system:
        yield system.device("cuda:0")


def compared(device: an.Device, name: str, dtype: str, config: an.GemmConfig | None = None, **more: Any) -> None:
    """Compare a convolution and its gradients, each with an epilogue, with those of float64 on the host."""
    size, filters, how = PROBLEMS[name]
    host = device.system.device("host")
    wide = {"x": (3, *size, 16), "w": (24, *filters, 16)}
    placed = {key: device.put(RNG.standard_normal(shape), dtype=dtype) for key, shape in wide.items()}
    exact = {key: host.put(one.numpy().astype("f8")) for key, one in placed.items()}
    y = host.cutlass.convolution(exact["x"], exact["w"], **how)
    placed["dy"] = device.put(RNG.standard_normal(y.shape), dtype=dtype)
    exact["dy"] = host.put(placed["dy"].numpy().astype("f8"))
    compute = "float64" if dtype == "float64" else "float32"
    bias, pixels = RNG.standard_normal(24), RNG.standard_normal((*y.shape[:-1], 1))
    operands = {"bias": bias.astype(compute), "pixels": pixels.astype(compute)}
    results = []
    for one, arrays, kind in ((device, placed, dtype), (host, exact, "float64")):
        send, extra = one.cutlass, {"config": config, **more} if arrays is placed else {}
        outs = {key: one.put(np.full(arrays[key].shape, np.nan), dtype=kind) for key in ("x", "w", "dy")}
        given = {key: one.put(value.astype("f8") if arrays is exact else value) for key, value in operands.items()}
        send.convolution(
            arrays["x"], arrays["w"], out=outs["dy"], c=arrays["dy"], alpha=0.5, operands=given,
            epilogue="relu(alpha * acc + bias) * pixels + c", **how, **extra,
        )  # fmt: skip
        send.convolution_backward_data(
            arrays["dy"], arrays["w"], size, out=outs["x"], c=arrays["x"], beta=-1.0, **how, **extra
        )
        send.convolution_backward_filter(arrays["x"], arrays["dy"], filters, out=outs["w"], alpha=2.0, **how, **extra)
        results.append({key: out.numpy().astype("f8") for key, out in outs.items()})
    for key, want in results[1].items():
        scale = max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(results[0][key], want, rtol=0, atol=TOLERANCES[dtype] * scale, err_msg=key)


@pytest.mark.parametrize("name", PROBLEMS)
def test_convolutions_of_float16(device: an.Device, name: str) -> None:
    compared(device, name, "float16")


@pytest.mark.parametrize(("dtype", "name"), [("bfloat16", "plain"), ("float32", "strides"), ("float64", "volume")])
def test_convolutions_of_other_types(device: an.Device, dtype: str, name: str) -> None:
    compared(device, name, dtype)


@pytest.mark.parametrize("splits", [2, 5])
def test_blocks_that_share_sums(device: an.Device, splits: int) -> None:
    for _ in range(3):  # with a workspace that was used before
        compared(device, "plain", "float16", an.GemmConfig(splits=splits))


def test_shared_sums_have_the_same_bits_again(device: an.Device) -> None:
    x, dy = (device.put(RNG.standard_normal((8, 24, 24, c)), dtype="float16") for c in (16, 24))
    options: dict[str, Any] = {"padding": 1, "config": an.GemmConfig(splits=16), "out_dtype": "float32"}
    first = device.cutlass.convolution_backward_filter(x, dy, (3, 3), **options).numpy()
    for _ in range(20):
        again = device.cutlass.convolution_backward_filter(x, dy, (3, 3), **options).numpy()
        np.testing.assert_array_equal(first, again)


def test_sums_of_int8_are_exact(device: an.Device) -> None:
    x, w = (RNG.integers(-128, 128, shape).astype("i1") for shape in ((2, 9, 11, 32), (48, 3, 3, 32)))
    found = device.cutlass.convolution(device.put(x), device.put(w), padding=1, epilogue="acc").numpy()
    host = device.system.device("host")
    want = host.cutlass.convolution(host.put(x), host.put(w), padding=1, epilogue="acc").numpy()
    np.testing.assert_array_equal(found, want)


def test_channels_of_four_bytes(device: an.Device) -> None:
    x, w = (device.put(RNG.standard_normal(shape), dtype="float16") for shape in ((2, 9, 11, 2), (6, 3, 3, 2)))
    found = device.cutlass.convolution(x, w, padding=1).numpy()
    host = device.system.device("host")
    want = host.cutlass.convolution(host.put(x.numpy()), host.put(w.numpy()), padding=1).numpy()
    np.testing.assert_allclose(found.astype("f8"), want.astype("f8"), rtol=0, atol=2e-2)


def test_a_python_function_in_a_convolution(device: an.Device) -> None:
    def leaky(acc: float, slope: float) -> float:
        return acc if acc > 0 else slope * acc

    x, w = (device.put(RNG.standard_normal(shape), dtype="float16") for shape in ((2, 9, 11, 16), (24, 3, 3, 16)))
    found = device.cutlass.convolution(x, w, epilogue=leaky, operands={"slope": 0.1}).numpy().astype("f8")
    host = device.system.device("host")
    acc = host.cutlass.convolution(*(host.put(one.numpy().astype("f8")) for one in (x, w))).numpy()
    np.testing.assert_allclose(found, np.where(acc > 0, acc, 0.1 * acc), rtol=0, atol=4e-3 * np.abs(acc).max())


def test_a_recorded_convolution_gives_the_same_bits(device: an.Device) -> None:
    x, w = (device.put(RNG.standard_normal(shape), dtype="float16") for shape in ((2, 9, 11, 16), (24, 3, 3, 16)))
    out = device.zeros((2, 9, 11, 24), "float16")
    with device.record() as recording:
        device.cutlass.convolution(recording.operand("x", x), w, padding=1, out=out)
    for _ in range(3):
        other = device.put(RNG.standard_normal((2, 9, 11, 16)), dtype="float16")
        recording.plan.tell(x=other)
        expected = device.cutlass.convolution(other, w, padding=1).numpy()
        np.testing.assert_array_equal(out.numpy().view("u2"), expected.view("u2"))
