"""The extension `fft` of the namespace, against NumPy's; array-api-tests has more of it."""

from __future__ import annotations

import re

import numpy as np
import pytest

import atomr_native as an
from atomr_native import array_api

RNG = np.random.default_rng(8)
REAL = RNG.standard_normal((4, 6)).astype(np.float32)
WHOLE = (REAL + 1j * RNG.standard_normal((4, 6))).astype(np.complex64)


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_transforms_along_an_axis(device: an.Device, name: str) -> None:
    xp = device.empty(0).__array_namespace__()
    x = REAL if name in ("rfft", "ihfft") else WHOLE
    for options in ({}, {"n": 5, "axis": 0, "norm": "ortho"}):
        got = getattr(xp.fft, name)(device.put(x), **options)
        assert got.dtype == (np.float32 if name in ("irfft", "hfft") else np.complex64)
        np.testing.assert_allclose(got.numpy(), getattr(np.fft, name)(x, **options), atol=1e-4)


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
def test_transforms_along_axes(device: an.Device, name: str) -> None:
    xp = device.empty(0).__array_namespace__()
    x = (REAL if name == "rfftn" else WHOLE).astype("float64" if name == "rfftn" else "complex128")
    for options in ({}, {"s": (3, 5), "axes": (1, 0), "norm": "forward"}):
        got = getattr(xp.fft, name)(device.put(x), **options)
        assert got.dtype == (np.float64 if name == "irfftn" else np.complex128)
        np.testing.assert_allclose(got.numpy(), getattr(np.fft, name)(x, **options), atol=1e-12)


def test_frequencies_and_shifts(device: an.Device) -> None:
    """Frequencies are made on the device of the namespace, or on another one that is given."""
    xp = device.empty(0).__array_namespace__()
    for name in ("fftfreq", "rfftfreq"):
        got = getattr(xp.fft, name)(5, d=0.5)
        assert got.device is device
        np.testing.assert_array_equal(got.numpy(), getattr(np.fft, name)(5, d=0.5))
        other = getattr(array_api.fft, name)(5, dtype=xp.float32, device=device)
        assert other.dtype == np.float32
        with pytest.raises(an.InvalidRequest, match="device=None; a new array needs a Device"):
            getattr(array_api.fft, name)(5)
    np.testing.assert_array_equal(xp.fft.fftshift(device.put(REAL), axes=0).numpy(), np.fft.fftshift(REAL, 0))
    np.testing.assert_array_equal(xp.fft.ifftshift(device.put(REAL)).numpy(), np.fft.ifftshift(REAL))
    assert "irfftn" in dir(xp.fft)
    assert repr(xp.fft) == f"<atomr_native.array_api.fft on {device.name}>"
    assert xp.fft is xp.fft


@pytest.mark.host_only
def test_refusals(device: an.Device) -> None:
    xp = device.empty(0).__array_namespace__()
    for x in (device.zeros((4,), "int32"), device.zeros((4,), "bool")):
        with pytest.raises(an.InvalidRequest, match=f"fft of {x.dtype}; allowed: floating-point dtypes"):
            xp.fft.fft(x)
    for norm in ("none", None):
        with pytest.raises(an.InvalidRequest, match=re.escape(f"norm={norm!r}; allowed: 'backward', 'ortho'")):
            xp.fft.rfft(device.zeros(4), norm=norm)
    with pytest.raises(an.NoArrayOperator, match="fftn of"):
        xp.fft.fftn(WHOLE)
    with pytest.raises(an.UnknownOption, match="did you mean 'norm'"):
        xp.fft.fft(device.zeros(4), nrm="ortho")
