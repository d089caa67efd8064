"""Activations and their gradients against formulas in float64, on every kind of device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cudnn_reference import ACTIVATIONS, assert_close, random_images

import atomr_native as an

RNG = np.random.default_rng(7)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_and_gradients(device: an.Device, activation: str) -> None:
    function: Any = ACTIVATIONS[activation]
    for dtype in ("float32", "bfloat16", "float64") if activation == "gelu" else ("float32",):
        x, dy = (3 * random_images(RNG, (3, 5, 7), dtype)).astype(dtype), random_images(RNG, (3, 5, 7), dtype)
        wide, step = x.astype(np.float64), 1e-6
        slope = (function(wide + step) - function(wide - step)) / (2 * step)
        given = device.put(x)[:, ::2]
        assert_close(device.cudnn.activation(given, activation).numpy(), function(wide)[:, ::2], dtype)
        found = device.cudnn.activation_backward(device.put(dy)[:, ::2], given, activation).numpy()
        np.testing.assert_allclose(
            found.astype(np.float64),
            (slope * dy.astype(np.float64))[:, ::2],
            atol=2e-2 if dtype == "bfloat16" else 2e-6,
        )


def test_nan_stays(device: an.Device) -> None:
    x = device.put(np.array([np.nan, -1.0, 1.0], "float32"))
    np.testing.assert_array_equal(device.cudnn.activation(x, "relu").numpy(), [np.nan, 0, 1])
