"""Shifts and frequencies on every kind of device, against NumPy's."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import atomr_native as an

RNG = np.random.default_rng(4)


@pytest.mark.parametrize("name", ["fftshift", "ifftshift"])
def test_shifts(device: an.Device, name: str) -> None:
    """Of even and odd lengths, along any axes, with one element or none."""
    send, plain = getattr(device.fft, name), getattr(np.fft, name)
    for shape, axes in [((5,), None), ((6,), 0), ((3, 4, 5), None), ((3, 4, 5), [2, -3]), ((7, 1), (0,)), ((0, 3), 1)]:
        x = RNG.integers(0, 100, shape)
        given = device.put(x)
        for _ in range(3):
            np.testing.assert_array_equal(send(given, axes).numpy(), plain(x, axes))
    np.testing.assert_array_equal(send(device.put(np.array(2.5))).numpy(), 2.5)


@pytest.mark.parametrize("dtype", ["bool", "int16", "bfloat16", "float8_e4m3fn", "complex128"])
def test_shifts_of_any_dtype_and_layout(device: an.Device, dtype: str) -> None:
    x = RNG.integers(0, 2, (6, 7, 5)).astype(an.dtypes.as_dtype(dtype))
    placed = device.put(x)
    for index in [(slice(None, None, -1), slice(1, 6, 2)), (slice(1, 4), slice(None), slice(None, None, -2))]:
        given, want = placed[index].transpose(2, 0, 1), x[index].transpose(2, 0, 1)
        np.testing.assert_array_equal(device.fft.fftshift(given, (0, 1)).numpy(), np.fft.fftshift(want, (0, 1)))
    np.testing.assert_array_equal(placed.numpy(), x)


def test_shifts_into_out(device: an.Device) -> None:
    x = RNG.standard_normal((4, 5))
    given, whole = device.put(x), device.zeros((5, 8), "float64")
    out = whole[:, ::2].transpose(1, 0)
    assert device.fft.ifftshift(given, out=out) is out
    np.testing.assert_array_equal(out.numpy(), np.fft.ifftshift(x))
    assert not whole.numpy()[:, 1::2].any()
    plan = device.fft.plan(an.FftShiftRequest(x=given, axes=[1]))
    result = device.zeros((4, 5), "float64")
    plan.ask(given, out=result).result(60)
    np.testing.assert_array_equal(result.numpy(), np.fft.fftshift(x, 1))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"axes": 2}, "axes=2 of an x of shape (3, 4); allowed: an integer, or different integers, from -2 to 1"),
    ({"axes": (1, -1)}, "axes=(1, -1): an axis is there twice"),
    ({"axes": ()}, "axes=(); allowed: an integer"),
    ({"axes": 0, "x": np.zeros(())}, "axes=0 of an x without axes; allowed: None"),
    ({"inverse": 1}, "inverse=1 must be True or False"),
    ({"x": 3}, "x is a int; it must be a GpuRef"),
    ({"out": np.zeros((3, 4), "float32")}, "out is float32[3, 4]; allowed: float64[3, 4]"),
    ({"out": np.zeros((4, 3))}, "out is float64[4, 3]; allowed: float64[3, 4]"),
]


@pytest.mark.plain
@pytest.mark.parametrize(("options", "text"), REFUSED)
def test_refusals(options: dict[str, Any], text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=re.escape(text)):
        an.FftShiftRequest(**{"x": np.zeros((3, 4)), **options})


def test_overlaps_are_refused(device: an.Device) -> None:
    x = device.zeros((8,), "float64")
    for out in (x, x[::-1]):
        with pytest.raises(an.InvalidRequest, match=r"out overlaps x|negative stride"):
            device.fft.fftshift(x, out=out)


# ---------------------------------------------------------------------------------------------- frequencies


@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
@pytest.mark.parametrize("dtype", [None, "float32", "bfloat16"])
def test_frequencies(device: an.Device, name: str, dtype: str | None) -> None:
    for n, d in [(1, 1.0), (2, 0.1), (7, 0.3), (8, -2), (1000, np.float64(1 / 44100))]:
        want = getattr(np.fft, name)(n, d)
        got = getattr(device.fft, name)(n, d, dtype=dtype)
        np.testing.assert_array_equal(got.numpy(), want.astype(got.dtype))
        assert got.dtype == an.dtypes.as_dtype(dtype or "float64")


@pytest.mark.host_only
@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
def test_frequencies_that_do_not_exist(device: an.Device, name: str) -> None:
    send = getattr(device.fft, name)
    for n in (0, -3, 2.0, True):
        with pytest.raises(an.InvalidRequest, match=re.escape(f"n={n!r}; allowed: integers from 1 to")):
            send(n)
    for d in (0, 0.0, np.nan, np.inf, 1e-320, "1", True):
        with pytest.raises(an.InvalidRequest, match=re.escape(f"d={d!r} for n=4; allowed: finite real numbers")):
            send(4, d)
    for dtype in ("int32", "complex64"):
        with pytest.raises(an.InvalidRequest, match=f"dtype={dtype}; allowed: float64, float32, float16, bfloat16"):
            send(4, dtype=dtype)
