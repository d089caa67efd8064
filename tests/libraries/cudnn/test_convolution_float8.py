"""Convolutions of float8 arrays against the definition in float64, on every kind of device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cudnn_reference import assert_close, convolved

import atomr_native as an
from atomr_native.dtypes import DTYPES

RNG = np.random.default_rng(21)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("out_dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("channels_last", [True, False])
def test_convolution(device: an.Device, dtype: str, out_dtype: str, channels_last: bool) -> None:
    """With scales, bias and ReLU; channels first are copied on a GPU."""
    x, w = (RNG.standard_normal(shape).astype(DTYPES[dtype]) for shape in ((2, 32, 6, 5), (16, 32, 3, 3)))
    bias = RNG.standard_normal(16).astype("float32")
    wanted = convolved(x.astype(np.float64), w.astype(np.float64), padding=1) * (0.5 * 0.25) + bias.reshape(-1, 1, 1)

    def put(a: Any) -> an.GpuRef:
        return device.put(np.ascontiguousarray(np.moveaxis(a, 1, -1)) if channels_last else a)

    x_scale, w_scale = (device.put(np.array([value], "float32")) for value in (0.5, 0.25))
    out = put(np.zeros(wanted.shape, DTYPES[out_dtype]))
    how = {"padding": 1, "activation": "relu", "channels_last": channels_last, "x_scale": x_scale, "w_scale": w_scale}
    y = device.cudnn.convolution(put(x), put(w), device.put(bias), out=out, **how)
    found = np.moveaxis(y.numpy(), -1, 1) if channels_last else y.numpy()
    assert_close(found, np.maximum(wanted, 0), out_dtype, 8.0)


def test_without_scales(device: an.Device) -> None:
    """The result is bfloat16, and the codes are the values."""
    x = device.put(np.ones((1, 4, 4, 16), DTYPES["float8_e4m3fn"]))
    w = device.put(np.ones((16, 1, 1, 16), DTYPES["float8_e4m3fn"]))
    y = device.cudnn.convolution(x, w, channels_last=True)
    assert y.dtype == DTYPES["bfloat16"]
    assert (y.numpy().astype(float) == 16).all()


@pytest.mark.plain
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"x_scale": np.zeros(2, "float32")}, r"x_scale has shape \(2,\); allowed: \(1,\)"),
        ({"w_scale": np.zeros(1)}, "w_scale has dtype float64; allowed: float32"),
        ({"out": np.zeros((1, 4, 4, 16), DTYPES["float8_e4m3fn"])}, "out has dtype float8_e4m3fn; allowed: bfloat16"),
        ({"bias": np.zeros(16, "float16")}, "bias has dtype float16; allowed: float32"),
    ],
)
def test_bad_input(options: dict[str, Any], text: str) -> None:
    x, w = np.zeros((1, 4, 4, 16), DTYPES["float8_e4m3fn"]), np.zeros((16, 1, 1, 16), DTYPES["float8_e4m3fn"])
    with pytest.raises(an.InvalidRequest, match=text):
        an.ConvolutionRequest(x=x, w=w, channels_last=True, **options)


@pytest.mark.plain
def test_scales_are_of_float8() -> None:
    x, w, one = np.zeros((1, 2, 4, 4), "float32"), np.zeros((2, 2, 1, 1), "float32"), np.ones(1, "float32")
    with pytest.raises(an.InvalidRequest, match="x_scale is given for float32; allowed: for float8_e4m3fn"):
        an.ConvolutionRequest(x=x, w=w, x_scale=one)
