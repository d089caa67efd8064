"""Convolution and correlation on every kind of device, against SciPy's direct sums."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import scipy.signal
from fft_reference import random_array

import atomr_native as an
from atomr_native.libraries.fft.convolution import fast_length

RNG = np.random.default_rng(12)
MODES = ("full", "same", "valid")


def direct(name: str, x: np.ndarray, y: np.ndarray, mode: str) -> np.ndarray:
    """Return the sums over all pairs, in double precision."""
    kind = "complex128" if "c" in x.dtype.kind + y.dtype.kind else "float64"
    made: np.ndarray = getattr(scipy.signal, name)(x.astype(kind), y.astype(kind), mode, method="direct")
    return made


@pytest.mark.fake_only(mode=["same", "valid"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["convolve", "correlate"])
@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("complex128", "complex128"), ("float64", "complex64")])
def test_modes(device: an.Device, name: str, mode: str, dtypes: tuple[str, str]) -> None:
    """Of odd and even lengths, either array the longer one, in one and two axes."""
    for shape, other in [((17,), (6,)), ((5,), (12,)), ((7,), (7,)), ((1,), (4,)), ((6, 9), (3, 4)), ((4, 1), (3, 1))]:
        x, y = random_array(RNG, shape, dtypes[0]), random_array(RNG, other, dtypes[1])
        given = device.put(x), device.put(y)
        got = [getattr(device.fft, name)(*given, mode) for _ in range(3)][2]  # of the same plans
        want = direct(name, x, y, mode)
        wide = any(dtype in ("float64", "complex128") for dtype in dtypes)
        assert got.dtype == want.astype(want.dtype if wide else np.float32).dtype
        assert got.shape == want.shape
        np.testing.assert_allclose(got.numpy(), want, atol=1e-6 if "64" in dtypes[1] else 1e-4)
        for array, host in zip(given, (x, y), strict=True):
            np.testing.assert_array_equal(array.numpy(), host)


@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_along_some_axes(device: an.Device, name: str) -> None:
    """The others are batches, which broadcast from either side."""
    for shape, other in [((3, 10, 2), (3, 4, 2)), ((3, 10, 1), (1, 4, 2)), ((1, 4, 2), (3, 10, 2))]:
        x, y = random_array(RNG, shape, "complex128"), random_array(RNG, other, "complex128")
        got = getattr(device.fft, name)(device.put(x), device.put(y), "same", [1]).numpy()
        assert got.shape == (3, shape[1], 2)
        wide = [np.broadcast_to(a, (3, a.shape[1], 2)) for a in (x, y)]
        for i, j in np.ndindex(3, 2):
            want = direct(name, wide[0][i, :, j], wide[1][i, :, j], "same")
            np.testing.assert_allclose(got[i, :, j], want, atol=1e-12)
    assert device.fft.convolve(device.zeros((0, 4)), device.zeros((0, 3)), axes=1).numpy().shape == (0, 6)


def test_views_and_out(device: an.Device) -> None:
    x, y = random_array(RNG, (8, 12), "float64"), random_array(RNG, (3, 5), "float64")
    given, kernel = device.put(x), device.put(y)
    got = device.fft.convolve(given[::-1, ::2], kernel.transpose(1, 0), "valid").numpy()
    np.testing.assert_allclose(got, direct("convolve", x[::-1, ::2], y.T, "valid"), atol=1e-12)
    assert device.fft.correlate(given, kernel, "same", out=given) is given
    np.testing.assert_allclose(given.numpy(), direct("correlate", x, y, "same"), atol=1e-12)


def test_other_dtypes(device: an.Device) -> None:
    x, y = random_array(RNG, (9,), "int16"), random_array(RNG, (4,), "int32")
    for first, second, dtype in ((x, x, "float32"), (x, y, "float64"), (y.astype("float16"), x, "float32")):
        got = device.fft.convolve(device.put(first), device.put(second))
        assert got.dtype == dtype
        np.testing.assert_allclose(got.numpy(), np.convolve(first.astype(float), second.astype(float)), rtol=1e-4)
    one = device.fft.convolve(device.put(x), device.put(np.array([3], np.int16)))
    assert one.dtype == np.float32
    np.testing.assert_array_equal(one.numpy(), 3.0 * x)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"mode": "wrap"}, "mode='wrap'; allowed: 'full', 'same', 'valid'"),
    ({"mode": ["full"]}, "mode=['full'], axes=None; allowed: full, same, valid; integers"),
    ({"axes": 2}, "axes=2 of an x of shape (3, 4); allowed: an integer, or different integers, from -2 to 1"),
    ({"axes": ()}, "axes=(); allowed: an integer"),
    ({"axes": 0}, "axis 1, which is not among axes=0, does not broadcast; allowed: equal extents, or 1"),
    ({"mode": "valid"}, "mode='valid' of x of shape (3, 4) and y of shape (5, 3); allowed: one of them at least"),
    ({"y": np.zeros(3)}, "x of shape (3, 4) and y of shape (3,); allowed: equally many axes"),
    ({"y": np.zeros((5, 0))}, "x of shape (3, 4) and y of shape (5, 0): axis 1 is empty; allowed: 1 or more"),
    ({"y": np.zeros((5, 3), an.dtypes.as_dtype("float8_e5m2"))}, "y has dtype float8_e5m2; allowed: float32, "),
    ({"out": np.zeros((3, 4))}, "out is float64[3, 4]; allowed: float64[7, 6]"),
]


@pytest.mark.host_only
def test_refusals(device: an.Device) -> None:
    for options, text in REFUSED:
        given = {"x": np.zeros((3, 4)), "y": np.zeros((5, 3)), **options}
        placed = {name: device.put(v) if isinstance(v, np.ndarray) else v for name, v in given.items()}
        for send in (device.fft.convolve, device.fft.correlate):
            with pytest.raises(an.InvalidRequest, match=re.escape(text)):
                send(**placed)
    with pytest.raises(an.InvalidRequest, match="y is a ndarray; a message takes GpuRefs"):
        device.fft.convolve(device.zeros(3), np.zeros(3))


@pytest.mark.plain
def test_fast_lengths() -> None:
    smooth = sorted(2**a * 3**b * 5**c for a in range(13) for b in range(8) for c in range(6))
    assert [fast_length(n) for n in range(1, 3000)] == [next(m for m in smooth if m >= n) for n in range(1, 3000)]
