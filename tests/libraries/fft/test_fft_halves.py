"""Transforms in float16 and bfloat16: by cuFFT in these types, or in float32; against float64."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from fft_reference import reference

import atomr_native as an
from atomr_native.dtypes import DTYPES
from atomr_native.libraries.fft.half import why_wide

RNG = np.random.default_rng(8)
EPS = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
#: Transform, shape of x without pairs, s, axes, norm; and why cuFFT computes in float32, or nothing.
CASES: list[tuple[str, tuple[int, ...], Any, Any, str | None, str]] = [
    ("fft", (3, 64), None, -1, None, ""),
    ("fft", (8, 4, 5), None, (0, 1), None, ""),
    ("fft", (16, 3), None, 0, None, ""),
    ("ifft", (2, 8, 16), None, (1, 2), "none", ""),
    ("rfft", (3, 256), None, -1, None, ""),
    ("rfft", (2, 4, 8), None, (1, 2), "none", ""),
    ("rfft", (8, 3), None, 0, None, "does not take strides"),
    ("fft", (3, 30), None, -1, None, "a length is 30"),
    ("rfft", (3, 13), None, -1, "ortho", "a length is 13"),
    ("fft", (3, 10), 16, -1, None, "continued by zeros"),
    ("fft", (2, 2, 2, 4), None, None, None, "3 axes at most"),
    ("irfft", (3, 17), None, -1, None, "overwrites the input"),
    ("irfft", (4, 6), (4, 9), (0, 1), "ortho", "overwrites the input"),
]
#: Each case, with both dtypes where cuFFT computes in them, and else with one.
BOTH = [(case, name) for i, case in enumerate(CASES) for j, name in enumerate(EPS) if not case[-1] or i % 2 == j]


def pairs(x: np.ndarray, dtype: str) -> np.ndarray:
    parts = np.stack([x.real, x.imag], -1) if x.dtype.kind == "c" else x
    return parts.astype(DTYPES[dtype])


def joined(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    return wide[..., 0] + 1j * wide[..., 1]


def check(case: tuple[Any, ...], dtype: str, given: np.ndarray, got: np.ndarray) -> None:
    transform, _, s, axes, norm, _ = case
    s, axes = ((value,) if isinstance(value, int) else value for value in (s, axes))
    x = given.astype(np.float64) if transform == "rfft" else joined(given)
    want = reference(transform, x, s, axes, norm or "backward")
    made = got.astype(np.float64) if transform == "irfft" else joined(got)
    assert made.shape == want.shape
    assert got.dtype == DTYPES[dtype]
    error = np.linalg.norm(made - want) / np.linalg.norm(want)
    assert error <= 4 * EPS[dtype] * max(1, np.log2(want.size))


def made_of(case: tuple[Any, ...], dtype: str) -> np.ndarray:
    transform, shape = case[:2]
    x = RNG.standard_normal(shape)
    return pairs(x if transform == "rfft" else x + 1j * RNG.standard_normal(shape), dtype)


@pytest.mark.parametrize(("case", "dtype"), BOTH, ids=str)
def test_transforms_of_16_bits(device: an.Device, case: tuple[Any, ...], dtype: str) -> None:
    """Each runs three times; the notes say why it is computed in float32."""
    transform, _, s, axes, norm, why = case
    given = made_of(case, dtype)
    x = device.put(given)
    out = device.fft.half(transform, x, s, axes, norm)
    check(case, dtype, given, out.numpy())
    plan = device.fft.plan(an.HalfFftRequest(transform=transform, x=x, s=s, axes=axes, norm=norm)).wait(60)
    for _ in range(2):
        out.fill(7)
        plan.ask(x, out=out).result(60)
        check(case, dtype, given, out.numpy())
    np.testing.assert_array_equal(x.numpy().view(np.uint16), given.view(np.uint16))
    if not why or device.kind != "cuda":
        assert plan.notes == ()
    else:
        assert plan.notes[0].startswith("computed in float32: ")
        assert why in plan.notes[0]


@pytest.mark.parametrize("norm", ["backward", "ortho"])
@pytest.mark.parametrize("dtype", EPS)
def test_strides_and_factors(device: an.Device, dtype: str, norm: str) -> None:
    case = ("ifft", (6, 32), None, -1, norm, "")
    given = made_of(case, dtype)
    out = device.zeros((6, 32, 4), dtype)[..., ::2]
    turned = device.put(given.transpose(1, 2, 0).copy()).transpose(2, 0, 1)
    check(case, dtype, given, device.fft.half("ifft", turned, None, -1, norm).numpy())
    whole = device.put(np.repeat(given, 2, 0))
    check(case, dtype, given, device.fft.half("ifft", whole[::2], None, -1, norm).numpy())
    assert device.fft.half("ifft", whole[::2], None, -1, norm, out=out) is out
    check(case, dtype, given, out.numpy())


@pytest.mark.parametrize(("case", "dtype"), BOTH, ids=str)
def test_conversion_is_switched_off(device: an.Device, case: tuple[Any, ...], dtype: str) -> None:
    """What cuFFT does not compute in 16 bits is refused with the rule; the rest has the same results."""
    transform, _, s, axes, norm, why = case
    given = made_of(case, dtype)
    x = device.put(given)
    if why and (device.kind == "cuda" or "strides" not in why):
        with pytest.raises(an.Unsupported, match=re.escape(why)) as caught:
            device.fft.half(transform, x, s, axes, norm, convert=False)
        assert caught.value.rule == "fft.half"
    else:
        check(case, dtype, given, device.fft.half(transform, x, s, axes, norm, convert=False).numpy())


def test_layouts_are_refused_by_the_plan(cuda: an.Device) -> None:
    x = cuda.zeros((8, 32), "float16")[:, ::2]
    with pytest.raises(an.Unsupported, match=r"cuFFT does not take strides .*; convert=True computes it in float32"):
        cuda.fft.half("rfft", x, convert=False).numpy()


@pytest.mark.plain
def test_rules_of_the_library() -> None:
    def reason(dtype: str, architecture: int = 90, **options: Any) -> str:
        x = np.zeros((4, 8, 2), DTYPES[dtype])
        how: Any = an.HalfFftRequest(transform="ifft", x=x, axes=-1, **options).lowered.attributes
        return why_wide(how, dtype, x.shape, architecture)

    assert reason("float16", norm="none") == ""
    assert reason("bfloat16") == ""
    assert reason("float16") == "float16 would overflow before the factor"
    assert reason("bfloat16", 75) == "bfloat16 takes sm_80, and this is sm_75"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"transform": "hfft"}, "transform='hfft'"),
    ({"x": np.zeros((4, 2), "float32")}, "x has dtype float32; allowed: float16, bfloat16"),
    ({"x": np.zeros((4, 3), "float16")}, "x of fft has shape (4, 3); allowed: a last axis of 2, for pairs"),
    ({"x": np.zeros(2, "float16")}, "x has no axes to transform; allowed: 1 or more"),
    ({"axes": 1}, "axes=1 of an x of shape (4,)"),
    ({"hermitian": True}, "hermitian=True of fft; allowed: False, and True for irfft"),
    ({"norm": "both"}, "norm='both'"),
    ({"convert": 0}, "convert=0 must be True or False"),
    ({"out": np.zeros((4, 2), "float32")}, "out is float32[4, 2]; allowed: float16[4, 2]"),
]


@pytest.mark.plain
@pytest.mark.parametrize(("options", "text"), REFUSED)
def test_refusals(options: dict[str, Any], text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=re.escape(text)):
        an.HalfFftRequest(**{"transform": "fft", "x": np.zeros((4, 2), "float16"), **options})


def test_overlaps_are_refused(device: an.Device) -> None:
    x = device.zeros((8, 2), "float16")
    with pytest.raises(an.InvalidRequest, match="out overlaps x"):
        device.fft.half("fft", x, out=x)
