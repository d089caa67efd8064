"""Theorems about Fourier transforms, on the host device."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from fft_reference import random_array
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import atomr_native as an

pytestmark = [pytest.mark.plain, pytest.mark.alike]


@pytest.fixture(scope="module")
def host_device() -> Iterator[an.Device]:
    with an.System(isolation="thread") as system:
        yield system.device("host")


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_properties(host_device: an.Device, data: st.DataObject) -> None:
    """Parseval's theorem, the shift theorem, and back again."""
    shape = tuple(data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=3)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    norm = data.draw(st.sampled_from(["backward", "ortho", "forward"]))
    n = shape[axis]
    x = random_array(np.random.default_rng(data.draw(st.integers(0, 99))), shape, "complex128")
    fft = host_device.fft
    spectrum = fft.fft(host_device.put(x), axis=axis, norm=norm)
    bound = 1e-13 * max(1.0, math.log2(n))
    np.testing.assert_allclose(fft.ifft(spectrum, axis=axis, norm=norm).numpy(), x, atol=30 * bound)
    size = {"backward": n, "ortho": 1, "forward": 1 / n}[norm]
    np.testing.assert_allclose(np.sum(np.abs(spectrum.numpy()) ** 2), size * np.sum(np.abs(x) ** 2), rtol=bound)
    shifted = fft.fft(host_device.put(np.roll(x, 1, axis)), axis=axis, norm=norm).numpy()
    turn = np.exp(-2j * np.pi * np.arange(n) / n).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    np.testing.assert_allclose(shifted, spectrum.numpy() * turn, atol=100 * bound * max(1.0, math.sqrt(size)))
