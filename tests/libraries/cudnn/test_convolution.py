"""Convolutions and their gradients against their definition in float64, on every kind of device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cudnn_reference import ACTIVATIONS, assert_close, convolved, filter_gradient, input_gradient, random_images

import atomr_native as an

RNG = np.random.default_rng(17)

#: Images, filters, options: one to three axes, groups, holes, uneven padding, one channel, primes.
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 4, 6, 5), (3, 4, 3, 2), {}),
    "padded": ((1, 3, 5, 7), (2, 3, 3, 3), {"padding": 1}),
    "uneven": ((2, 2, 5, 6), (4, 2, 3, 2), {"padding": ((2, 0), (0, 1)), "stride": (2, 1)}),
    "dilated": ((1, 2, 9, 8), (2, 2, 3, 2), {"dilation": (2, 3), "padding": (1, 0)}),
    "groups": ((2, 6, 5, 5), (4, 3, 3, 3), {"groups": 2, "padding": 1}),
    "depthwise": ((2, 5, 4, 6), (10, 1, 2, 3), {"groups": 5, "stride": 2}),
    "one axis": ((2, 3, 11), (5, 3, 4), {"stride": 3, "padding": ((1, 2),)}),
    "three axes": ((1, 2, 4, 3, 5), (3, 2, 2, 2, 3), {"padding": (1, 0, 1)}),
    "one element": ((1, 1, 1, 1), (1, 1, 1, 1), {}),
}
BACK = ("uneven", "groups", "one axis", "three axes", "dilated")


def last(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def first(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.moveaxis(x, -1, 1)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_forward(device: an.Device, case: str, channels_last: bool) -> None:
    shape, filters, how = CASES[case]
    for dtype in ("float32", "float16", "float64") if case == "plain" else ("float32",):
        x, w = random_images(RNG, shape, dtype), random_images(RNG, filters, dtype)
        wanted = convolved(x, w, **how)
        given = [device.put(last(a) if channels_last else a) for a in (x, w)]
        found = device.cudnn.convolution(*given, channels_last=channels_last, **how)
        assert str(found.dtype) == dtype
        made = found.numpy()
        assert_close(first(made) if channels_last else made, wanted, dtype, filters[1] * 2.0)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("case", BACK)
def test_gradients(device: an.Device, case: str, channels_last: bool) -> None:
    shape, filters, how = CASES[case]
    x, w = random_images(RNG, shape, "float32"), random_images(RNG, filters, "float32")
    dy = random_images(RNG, convolved(x, w, **how).shape, "float32")
    dx, dw = input_gradient(dy, w, shape, **how), filter_gradient(x, dy, filters[2:], **how)
    gx, gw, gdy = (device.put(last(a) if channels_last else a) for a in (x, w, dy))
    options = {**how, "channels_last": channels_last}
    found = [
        device.cudnn.convolution_backward_data(gdy, gw, shape[2:], **options).numpy(),
        device.cudnn.convolution_backward_filter(gx, gdy, filters[2:], **options).numpy(),
    ]
    for made, wanted in zip(found, (dx, dw), strict=True):
        assert_close(first(made) if channels_last else made, wanted, "float32", 8.0)


def test_factors_and_outputs(device: an.Device) -> None:
    """alpha and beta; a new result lies in memory as x does, and an output that is given is returned."""
    x, w = random_images(RNG, (2, 3, 5, 4), "float32"), random_images(RNG, (4, 3, 2, 2), "float32")
    before = random_images(RNG, (2, 4, 4, 3), "float32")
    out = device.put(before)
    found = device.cudnn.convolution(device.put(x), device.put(w), alpha=2.0, beta=-0.5, out=out)
    assert found is out
    assert_close(out.numpy(), 2 * convolved(x, w) - 0.5 * before, "float32", 4.0)
    turned = device.put(last(x)).transpose(0, 3, 1, 2)
    made = device.cudnn.convolution(turned, device.put(w))
    assert made.strides == np.moveaxis(np.empty((2, 4, 3, 4), "float32"), -1, 1).strides
    assert_close(made.numpy(), convolved(x, w), "float32", 4.0)


@pytest.mark.fake_only(activation=["relu", "gelu_tanh"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_fused_activations(device: an.Device, activation: str) -> None:
    """A convolution, a bias, a residual and an activation in one message, in each memory order."""
    for dtype, channels_last in (("float32", True), ("float32", False), ("float64", True)):
        x, w = random_images(RNG, (2, 4, 4, 5), dtype), random_images(RNG, (8, 4, 3, 3), dtype)
        bias, residual = random_images(RNG, (8,), dtype), random_images(RNG, (2, 8, 4, 5), dtype)
        wanted = ACTIVATIONS[activation](
            1.5 * convolved(x, w, padding=1)
            + 0.5 * residual.astype(np.float64)
            + bias.astype(np.float64)[:, None, None]
        )
        order = last if channels_last else np.asarray
        found = device.cudnn.convolution(
            device.put(order(x)), device.put(order(w)), device.put(bias), residual=device.put(order(residual)),
            padding=1, alpha=1.5, beta=0.5, activation=activation, channels_last=channels_last,
        ).numpy()  # fmt: skip
        assert_close(first(found) if channels_last else found, wanted, dtype, 8.0)


def test_any_strides(device: an.Device) -> None:
    """Stepped and turned operands are copied where cuDNN does not take them."""
    x, w = random_images(RNG, (2, 3, 6, 10), "float32"), random_images(RNG, (4, 3, 2, 2), "float32")
    stepped = device.put(x)[:, :, :, ::2]
    assert_close(device.cudnn.convolution(stepped, device.put(w)).numpy(), convolved(x[..., ::2], w), "float32", 4.0)
    out = device.zeros((2, 9, 5, 4), "float32")
    device.cudnn.convolution(stepped, device.put(w), out=out[:, 4:8])
    assert_close(out.numpy()[:, 4:8], convolved(x[..., ::2], w), "float32", 4.0)
    assert not out.numpy()[:, [0, 1, 2, 3, 8]].any()
    turned = device.put(np.ascontiguousarray(x.transpose(3, 1, 0, 2))).transpose(2, 1, 3, 0)
    wanted = 0.5 * convolved(x, w) + 1
    out = device.put(np.ones((9, 5, 4, 2), "float32")).transpose(3, 2, 1, 0)
    device.cudnn.convolution(turned, device.put(w), out=out, alpha=0.5, beta=1.0)
    assert_close(out.numpy(), wanted, "float32", 4.0)


def test_integers(device: an.Device) -> None:
    """int8 is summed exactly; int8 results saturate."""
    x = RNG.integers(-128, 128, (2, 4, 5, 5)).astype(np.int8)
    w = RNG.integers(-4, 5, (4, 4, 3, 3)).astype(np.int8)
    exact = convolved(x, w)
    given = [device.put(last(a)) for a in (x, w)]
    assert (first(device.cudnn.convolution(*given, channels_last=True).numpy()) == np.clip(exact, -128, 127)).all()
    out = device.zeros((2, 3, 3, 4), "float32")
    device.cudnn.convolution(*given, channels_last=True, out=out)
    assert (first(out.numpy()) == exact).all()


def test_float32_is_exact_unless_tf32_is_asked_for(device: an.Device) -> None:
    x, w = np.full((1, 8, 3, 3), 1 + 2**-12, "float32"), np.ones((8, 8, 1, 1), "float32")
    found = device.cudnn.convolution(device.put(x), device.put(w)).numpy()
    np.testing.assert_allclose(found, 8 * (1 + 2**-12), rtol=1e-6)


def test_empty(device: an.Device) -> None:
    found = device.cudnn.convolution(device.zeros((0, 3, 5, 5), "float32"), device.zeros((4, 3, 2, 2), "float32"))
    assert found.numpy().shape == (0, 4, 4, 4)


def test_plans_and_requests(device: an.Device) -> None:
    x, w = random_images(RNG, (1, 2, 4, 4), "float32"), random_images(RNG, (2, 2, 3, 3), "float32")
    request = an.ConvolutionRequest(x=device.put(x), w=device.put(w), activation="relu")
    plan = device.cudnn.plan(request)
    out = device.zeros((1, 2, 2, 2), "float32")
    plan.ask(request.x, request.w, out=out).result(60)
    wanted = np.maximum(convolved(x, w), 0)
    assert_close(out.numpy(), wanted, "float32", 4.0)
    assert_close(device.cudnn.ask(request).result(60).numpy(), wanted, "float32", 4.0)


@pytest.mark.fake_only
def test_a_message_of_a_recorded_program(device: an.Device) -> None:
    x, w = random_images(RNG, (1, 2, 4, 4), "float32"), random_images(RNG, (2, 2, 3, 3), "float32")
    gx, gw, out = device.put(x), device.put(w), device.zeros((1, 2, 2, 2), "float32")
    with device.record() as recording:
        device.cudnn.convolution(recording.operand("x", gx), gw, out=out)
    for scale in (1, 2):
        recording.plan.tell(x=device.put(x * np.float32(scale)))
        assert_close(out.numpy(), scale * convolved(x, w), "float32", 4.0)
