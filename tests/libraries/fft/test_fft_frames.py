"""Short-time transforms on every kind of device, held against a loop over frames."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from fft_reference import assert_close, random_array, reference, relative_error

import atomr_native as an
from atomr_native.dtypes import as_dtype
from atomr_native.libraries.fft.cuda.line_types import ONE_KERNEL

RNG = np.random.default_rng(37)


def frames_of(x: np.ndarray, n: int, hop: int, window: np.ndarray | None, center: bool, pad: str) -> np.ndarray:
    """Return the windowed frames of a signal, in extended precision."""
    wide = x.astype(np.clongdouble if np.iscomplexobj(x) else np.longdouble)
    if center:
        wide = np.pad(wide, [(0, 0)] * (x.ndim - 1) + [(n // 2, n // 2)], mode=pad)  # type: ignore[call-overload]
    whole = np.zeros(n)
    width = n if window is None else len(window)
    whole[(n - width) // 2 : (n - width) // 2 + width] = 1 if window is None else window
    count = 1 + (wide.shape[-1] - n) // hop
    return np.stack([wide[..., t * hop : t * hop + n] * whole for t in range(count)], -2)


def spectra_of(x: np.ndarray, n: int, hop: int, window: np.ndarray | None, center: bool, pad: str) -> np.ndarray:
    frames = frames_of(x, n, hop, window, center, pad)
    return np.swapaxes(reference("fft" if np.iscomplexobj(x) else "rfft", frames, axes=-1), -1, -2)


@pytest.mark.fake_only(dtype=["float32", "complex64"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "float16", "int16"])
@pytest.mark.parametrize(
    ("n", "hop", "width", "center", "pad"),
    [(8, 3, 8, True, "reflect"), (9, 4, 6, True, "constant"), (8, 8, 5, False, "reflect"),
     (7, 10, 7, False, "constant"), (6, 2, 0, False, "reflect"), (5, 1, 0, True, "reflect")],
)  # fmt: skip
def test_spectra(device: an.Device, dtype: str, n: int, hop: int, width: int, center: bool, pad: str) -> None:
    """Three runs of a plan; a width of 0 stands for no window."""
    x = random_array(RNG, (2, 31), "int8" if dtype == "int16" else "float32" if dtype == "float16" else dtype)
    x = x.astype(as_dtype(dtype))
    window = random_array(RNG, (width,), "float32") if width else None
    given = device.put(x)
    placed = None if window is None else device.put(window)
    want = spectra_of(x, n, hop, window, center, pad)
    for normalized in (False, True):
        for _ in range(3):
            got = device.fft.stft(
                given, n, hop, width or None, placed, center=center, pad_mode=pad, normalized=normalized
            ).numpy()
            assert_close(got, want / np.sqrt(n) if normalized else want, 8 * n)
    np.testing.assert_array_equal(given.numpy(), x)


def test_frames_without_a_window_are_one_plan(device: an.Device) -> None:
    """By strides, without a copy."""
    x = random_array(RNG, (64,), "complex64")
    given, out = device.put(x), device.zeros((8, 15), "complex64")
    request = an.StftRequest(x=given, n_fft=8, hop_length=4, center=False, onesided=False, out=out)
    plan = device.fft.plan(request)
    plan.ask(given, out=out).result(60)
    assert_close(out.numpy(), spectra_of(x, 8, 4, None, False, ""), 64)
    assert plan.notes == ()


@pytest.mark.parametrize(
    ("dtype", "width", "center", "pad"),
    [("float32", 64, True, "reflect"), ("int16", 50, True, "constant"), ("complex64", 50, False, "reflect"),
     ("float32", 0, False, "reflect")],
)  # fmt: skip
def test_large_spectra(device: an.Device, dtype: str, width: int, center: bool, pad: str) -> None:
    """On a GPU the frames are no array; a result with frames outside, as the method makes it, takes no copy either."""
    x = random_array(RNG, (3, 4, 8192), "int8" if dtype == "int16" else dtype).astype(as_dtype(dtype))
    whole = device.put(np.concatenate([x, x], -1))
    given = whole[..., :8192]
    window = random_array(RNG, (width,), "float32") if width else np.ones(64, np.float32)
    placed = device.put(window) if width else None
    want = spectra_of(x, 64, 16, window, center, pad)
    made = device.fft.stft(given, 64, 16, width or None, placed, center=center, pad_mode=pad)
    assert_close(made.numpy(), want, 8 * 64)
    for out, copies in ((made, 0), (device.zeros(want.shape, "complex64"), 1)):
        request = an.StftRequest(
            x=given, n_fft=64, hop_length=16, win_length=width or None, window=placed, center=center, pad_mode=pad,
            out=out,
        )  # fmt: skip
        plan = device.fft.plan(request)
        for _ in range(3):
            plan.ask(given, *([placed] if width else []), out=out).result(60)
            assert_close(out.numpy(), want, 8 * 64)
        if device.kind == "cuda" and width:
            start = "cuFFT's kernels load frames of x without a copy" if copies else ONE_KERNEL
            assert plan.notes[0].startswith(start), plan.notes
            assert sum("are copied" in note for note in plan.notes) == copies
    np.testing.assert_array_equal(given.numpy(), x)


def test_layouts(device: an.Device) -> None:
    """Any strides of signals, window and result; both sides of a real signal's spectrum."""
    whole, window = random_array(RNG, (40, 3, 2), "float64"), random_array(RNG, (20,), "float64")
    placed = device.put(whole)
    x, given = whole[::-2].transpose(2, 1, 0), placed[::-2].transpose(2, 1, 0)
    want = spectra_of(x.astype(np.complex128), 10, 3, window[::2], True, "reflect")
    out = device.zeros((want.shape[-1], 10, 3, 4), "complex128")[..., ::2].transpose(3, 2, 1, 0)
    got = device.fft.stft(given, 10, 3, window=device.put(window)[::2], onesided=False, out=out)
    assert got is out
    assert_close(out.numpy(), want, 40)
    back = device.fft.istft(out, 10, 3, window=device.put(window)[::2], onesided=False)
    assert back.shape == (2, 3, 18)
    assert_close(back.numpy(), x[..., :18].astype(np.clongdouble), 1 << 20)


@pytest.mark.fake_only(dtype=["float32", "complex128"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize(("n", "hop", "center"), [(8, 2, True), (9, 4, True), (8, 5, False), (12, 3, False)])
def test_there_and_back(device: an.Device, dtype: str, n: int, hop: int, center: bool) -> None:
    x, window = random_array(RNG, (2, 50), dtype), device.put(np.hanning(n + 2)[1:-1])
    given = device.put(x)
    for normalized in (False, True):
        spectra = device.fft.stft(given, n, hop, window=window, center=center, normalized=normalized)
        options: dict[str, Any] = {"center": center, "normalized": normalized, "onesided": dtype.startswith("f")}
        back = device.fft.istft(spectra, n, hop, window=window, **options).numpy()
        assert back.dtype == dtype
        assert_close(back, x[:, : back.shape[1]].astype(np.clongdouble), 1 << 16)
        longer = device.fft.istft(spectra, n, hop, window=window, length=60, **options).numpy()
        first = min(back.shape[1], 45)
        np.testing.assert_array_equal(longer[:, :first], back[:, :first])
        assert not longer[:, 50 + n :].any()


def test_sums_of_frames(device: an.Device) -> None:
    """Frames that are those of no signal: their windowed sum, divided by that of squared windows; zeros in gaps."""
    x, window = random_array(RNG, (5, 4), "complex128"), random_array(RNG, (6,), "float64")
    whole = np.concatenate([[0], window, [0]])
    frames = np.fft.irfft(x.T, 8) * whole
    total, weight = np.zeros(38), np.zeros(38)
    for t in range(4):
        total[10 * t : 10 * t + 8] += frames[t]
        weight[10 * t : 10 * t + 8] += whole**2
    want = np.divide(total, weight, where=weight > 0, out=np.zeros(38))
    got = device.fft.istft(device.put(x), 8, 10, 6, device.put(window), center=False)
    np.testing.assert_allclose(got.numpy(), want, atol=1e-12 * np.abs(want).max())
    got = device.fft.istft(device.put(x), 8, 10, 6, device.put(window))
    np.testing.assert_allclose(got.numpy(), want[4:34], atol=1e-12 * np.abs(want).max())


def test_a_signal_of_16_bits(device: an.Device) -> None:
    x, out = random_array(RNG, (40,), "float32"), device.zeros((40,), "bfloat16")
    spectra = device.fft.stft(device.put(x), 8)
    assert device.fft.istft(spectra, 8, out=out) is out
    assert relative_error(out.numpy().astype(float), x) <= 1.01 * 2.0**-8


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("StftRequest", {"n_fft": 0}, "n_fft=0; allowed: integers from 1"),
    ("StftRequest", {"hop_length": 0}, "hop_length=0; allowed: integers from 1"),
    ("StftRequest", {"win_length": 9}, "win_length=9; allowed: integers from 1 to 8"),
    ("StftRequest", {"window": np.ones(7)}, "window is float64[7]; allowed: shape (8,) and float64, float32"),
    ("StftRequest", {"window": np.ones(8, "int8")}, "window is int8[8]; allowed: shape (8,)"),
    ("StftRequest", {"pad_mode": "wrap"}, "pad_mode='wrap'; allowed: 'reflect', 'constant'"),
    ("StftRequest", {"center": 1}, "center=1 must be True or False"),
    ("StftRequest", {"x": np.zeros(4)}, "x has 4 samples; allowed: more than 4 for n_fft=8 with center=True"),
    ("StftRequest", {"x": np.zeros(7), "center": False}, "x has 7 samples, and frames have 8; allowed: 8 or more"),
    ("StftRequest", {"x": np.zeros(9, "complex64"), "onesided": True}, "onesided=True of x with dtype complex64"),
    ("StftRequest", {"x": np.zeros(())}, "x has shape (); allowed: 1 axes or more"),
    ("StftRequest", {"out": np.zeros((5, 3), "complex64")}, "out is complex64[5, 3]; allowed: complex128[5, 17]"),
    ("IstftRequest", {"x": np.zeros((5, 3))}, "x has dtype float64; allowed: complex64, complex128"),
    ("IstftRequest", {"x": np.zeros((4, 3), "c8")}, "x has shape (4, 3); allowed: (..., 5, frames) for n_fft=8"),
    ("IstftRequest", {"x": np.zeros((5, 3), "c8"), "length": 0}, "length=0; allowed: integers from 1"),
]


@pytest.mark.plain
@pytest.mark.parametrize(("name", "options", "text"), REFUSED)
def test_refusals(name: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=re.escape(text)):
        getattr(an, name)(**{"x": np.zeros(32), "n_fft": 8, **options})
