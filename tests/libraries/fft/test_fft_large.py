"""Transforms with more than 2**31 elements on a GPU: offsets of plans, of copies, and of functions in their place."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from fft_reference import assert_close, random_array, reference

import atomr_native as an

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

ROWS, POINTS = (1 << 21) + 3, 1024  # 3072 elements more than 2**31
RNG = np.random.default_rng(43)
#: Rows that are looked at: the first, those on both sides of 2**31 elements, and the last.
SEEN = (0, (1 << 21) - 1, 1 << 21, ROWS - 1)


@pytest.fixture(scope="module")
def device() -> Iterator[an.Device]:
    with an.System(watchdog=120.0, standby="off") as system:
        yield system.device("cuda:0")


def test_complex_rows_in_place(device: an.Device) -> None:
    x = device.zeros((ROWS, POINTS), "complex64")
    rows = random_array(RNG, (len(SEEN), POINTS), "complex64")
    for place, row in zip(SEEN, rows, strict=True):
        device.copy(device.put(row), out=x[place])
    for _ in range(2):
        device.fft.fft(x, out=x)
        device.fft.ifft(x, out=x)
    device.fft.fft(x, out=x)
    for place, row in zip(SEEN, rows, strict=True):
        assert_close(x[place].numpy(), reference("fft", row), POINTS**5)
    assert not x[5].numpy().any()


@pytest.mark.parametrize("points", [POINTS, POINTS + 6])
def test_rows_of_bytes(device: an.Device, points: int) -> None:
    """Converted as cuFFT loads them, and padded."""
    x = device.zeros((ROWS, POINTS), "int8")
    rows = random_array(RNG, (len(SEEN), POINTS), "int8")
    for place, row in zip(SEEN, rows, strict=True):
        device.copy(device.put(row), out=x[place])
    got = device.fft.rfft(x, points)
    for place, row in zip(SEEN, rows, strict=True):
        assert_close(got[place].numpy(), reference("rfft", row, points), POINTS)
    assert not got[7].numpy().any()
