"""Raw layouts of many transforms in flat buffers, on every kind of device."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from fft_reference import assert_close, random_array, reference

import atomr_native as an

RNG = np.random.default_rng(41)


def elements(flat: np.ndarray, n: tuple[int, ...], batch: int, embed: Any, stride: int, dist: int) -> np.ndarray:
    """Return what a layout reads, by the formula of cuFFT's manual."""
    made = np.empty((batch, *n), flat.dtype)
    for b, *index in np.ndindex(batch, *n):
        at = 0
        for axis, i in enumerate(index):
            at = at * embed[axis] + i if axis else i
        made[(b, *index)] = flat[b * dist + at * stride]
    return made


@pytest.mark.parametrize(
    ("transform", "layout"),
    [("fft", {"n": 6, "batch": 4, "istride": 4, "idist": 1, "ostride": 2, "odist": 13}),
     ("ifft", {"n": (3, 4), "batch": 2, "inembed": (9, 5), "idist": 20, "onembed": (3, 6), "ostride": 2, "odist": 50}),
     ("rfft", {"n": (3, 5), "batch": 2, "inembed": (3, 7), "istride": 2, "idist": 46, "onembed": (3, 4), "odist": 12}),
     ("irfft", {"n": (2, 8), "batch": 3, "inembed": (2, 6), "idist": 14, "ostride": 3, "odist": 49}),
     ("fft", {"n": 8, "batch": 5, "idist": 3, "odist": 8})],
)  # fmt: skip
def test_layouts(device: an.Device, transform: str, layout: dict[str, Any]) -> None:
    """Strides, embeddings and distances mean what they say; what lies between elements stays as it is."""
    given = an.FftLayout(**layout)
    n, batch = given.n, given.batch
    half = (*n[:-1], n[-1] // 2 + 1)
    sides = (half, n) if transform == "irfft" else (n, half if transform == "rfft" else n)
    kinds = ("float32" if transform == "rfft" else "complex64", "float32" if transform == "irfft" else "complex64")
    x, before = random_array(RNG, (160,), kinds[0]), random_array(RNG, (160,), kinds[1])
    buffer, out = device.put(x), device.put(before)
    for _ in range(3):
        assert device.fft.many(transform, given, buffer, out) is out
    np.testing.assert_array_equal(buffer.numpy(), x)
    got = out.numpy()
    own = []
    for side, extents, embed, stride, dist in (
        (x, sides[0], given.inembed, given.istride, given.idist), (got, sides[1], given.onembed, given.ostride,
                                                                   given.odist),
    ):  # fmt: skip
        assert dist is not None
        own.append((extents, batch, embed or extents, stride, dist))
        assert side.size == 160
    want = reference(transform, elements(x, *own[0]), n, tuple(range(1, len(n) + 1)), "none")
    assert_close(elements(got, *own[1]), want, 64)
    places = elements(np.arange(160), *own[1])
    untouched = np.setdiff1d(np.arange(160), places)
    np.testing.assert_array_equal(got[untouched], before[untouched])
    np.testing.assert_array_equal(buffer.numpy(), x)


def test_defaults_are_dense(device: an.Device) -> None:
    x = random_array(RNG, (3, 4, 5), "float64")
    out = device.zeros((3, 4, 3), "complex128")
    device.fft.many("rfft", an.FftLayout(n=(4, 5), batch=3), device.put(x), out)
    assert_close(out.numpy(), reference("rfft", x, axes=(1, 2)), 20)


def test_in_place_and_planned(device: an.Device) -> None:
    x = random_array(RNG, (24,), "complex128")
    buffer = device.put(x)
    layout = an.FftLayout(n=4, batch=6, istride=6, idist=1, ostride=6, odist=1)
    device.fft.many("fft", layout, buffer, buffer, "ortho")
    assert_close(buffer.numpy().reshape(4, 6), reference("fft", x.reshape(4, 6), axes=0, norm="ortho"), 4)
    source, target = layout.views("ifft", buffer, buffer)
    plan = device.fft.plan(an.FftRequest(transform="ifft", x=source, axes=1, norm="ortho", out=target))
    plan.ask(source, out=target).result(60)
    np.testing.assert_allclose(buffer.numpy(), x, atol=1e-12)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"n": 0}, "n=0; allowed: an integer, or integers, of 1 or more"),
    ({"n": 1.5}, "n=1.5; allowed: an integer"),
    ({"n": 4, "batch": 0}, "batch=0; allowed: integers from 1"),
    ({"n": 4, "istride": 0}, "istride=0; allowed: integers from 1"),
    ({"n": 4, "odist": -1}, "odist=-1; allowed: integers from 1"),
    ({"n": (4, 4), "inembed": 4}, "inembed=4; allowed: an integer, or integers, of 1 or more, 2 of them"),
    ({"n": (2, 4), "inembed": (2, 3)}, "inembed=(2, 3): 3 elements along axis 1; allowed: 4 or more, which fft has"),
    ({"n": 4, "batch": 5}, "x has 16 elements, and the layout reaches element 19; allowed: 20 or more"),
    ({"n": 4, "batch": 2, "odist": 13}, "out has 16 elements, and the layout reaches element 16; allowed: 17"),
    ({"n": 4, "batch": 3, "odist": 2}, "overlaps itself"),
]


@pytest.mark.host_only
@pytest.mark.parametrize(("options", "text"), REFUSED)
def test_refusals(device: an.Device, options: dict[str, Any], text: str) -> None:
    x, out = device.zeros((16,), "complex64"), device.zeros((16,), "complex64")
    with pytest.raises(an.InvalidRequest, match=re.escape(text)):
        device.fft.many("fft", an.FftLayout(**options), x, out)


@pytest.mark.host_only
def test_buffers_are_contiguous(device: an.Device) -> None:
    x = device.zeros((16,), "complex64")
    with pytest.raises(an.InvalidRequest, match="allowed: C-contiguous buffers"):
        device.fft.many("fft", an.FftLayout(n=4), x[::2], x)
