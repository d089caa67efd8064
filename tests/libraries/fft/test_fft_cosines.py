"""Cosine and sine transforms on every kind of device."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import scipy.fft
from fft_reference import assert_close, random_array, relative_error

import atomr_native as an
from atomr_native.dtypes import as_dtype

RNG = np.random.default_rng(31)
TRANSFORMS = ("dct", "idct", "dst", "idst")


def direct(transform: str, kind: int, x: np.ndarray) -> np.ndarray:
    """Return the unscaled transform along the last axis by its definition."""
    n = x.shape[-1]
    j, k = np.arange(n, dtype=np.longdouble), np.arange(n, dtype=np.longdouble)[:, None]
    pi = np.longdouble(np.pi) + np.longdouble(1.2246467991473532e-16)
    kind = {2: 3, 3: 2}.get(kind, kind) if transform.startswith("i") else kind
    if transform.endswith("dct"):
        at = [
            k * j / max(n - 1, 1),
            k * (2 * j + 1) / (2 * n),
            (2 * k + 1) * j / (2 * n),
            (2 * k + 1) * (2 * j + 1) / (4 * n),
        ]
        matrix = 2 * np.cos(pi * at[kind - 1])
        if kind == 1:
            matrix[:, [0, -1]] /= 2
        if kind == 3:
            matrix[:, 0] /= 2
    else:
        at = [(k + 1) * (j + 1) / (n + 1), (k + 1) * (2 * j + 1) / (2 * n), (2 * k + 1) * (j + 1) / (2 * n),
              (2 * k + 1) * (2 * j + 1) / (4 * n)]  # fmt: skip
        matrix = 2 * np.sin(pi * at[kind - 1])
        if kind == 3:
            matrix[:, -1] /= 2
    return x.astype(np.longdouble) @ matrix.T


@pytest.mark.fake_only(n=[1, 2, 9], transform=["dct", "dst"])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 9, 30])
@pytest.mark.parametrize("kind", [1, 2, 3, 4])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_definitions(device: an.Device, transform: str, kind: int, n: int) -> None:
    """Three runs of each plan, unscaled; x stays as it is."""
    if transform.endswith("dct") and kind == 1 and n == 1:
        return
    x = random_array(RNG, (3, n), "float64")
    given = device.put(x)
    for _ in range(3):
        got = device.fft.tell(an.DctRequest(x=given, transform=transform, type=kind, axes=-1, norm="none")).numpy()
        assert_close(got, direct(transform, kind, x), 2 * n + 2)
    np.testing.assert_array_equal(given.numpy(), x)


@pytest.mark.fake_only(norm=["backward", "ortho"])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("kind", [1, 2, 3, 4])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_factors_are_those_of_scipy(device: an.Device, transform: str, kind: int, norm: str) -> None:
    x = random_array(RNG, (4, 6), "float32")
    given, method = device.put(x), getattr(device.fft, transform)
    for orthogonalize in (None, True, False):
        want = getattr(scipy.fft, transform)(x.astype(float), kind, norm=norm, orthogonalize=orthogonalize)
        got = method(given, kind, norm=norm, orthogonalize=orthogonalize).numpy()
        assert got.dtype == np.float32
        assert_close(got, want, 16)
    back = getattr(device.fft, transform[1:] if transform[0] == "i" else f"i{transform}")
    np.testing.assert_allclose(back(method(given, kind, norm=norm), kind, norm=norm).numpy(), x, atol=1e-5)


@pytest.mark.fake_only(transform=["dct", "idst"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_axes_and_layouts(device: an.Device, transform: str) -> None:
    """Any axes in any order, cut and padded, of any strides, in place, and to an out of any strides."""
    whole = random_array(RNG, (4, 6, 5), "float64")
    placed, many = device.put(whole), getattr(device.fft, f"{transform}n")
    plain, turned = lambda a: a, lambda a: a[::2, ::-1].transpose(1, 2, 0)
    for view, kind, s, axes in (
        (plain, 2, None, None), (turned, 3, (3, 8), (2, 1)), (turned, 4, (7,), (0,)), (plain, 1, (5, 4), (1, 0)),
    ):  # fmt: skip
        want = getattr(scipy.fft, f"{transform}n")(view(whole), kind, s, axes)
        assert_close(many(view(placed), kind, s, axes).numpy(), want, 64)
    out = device.zeros((5, 12, 4), "float64")[:, ::2].transpose(2, 1, 0)
    assert many(placed, 2, axes=(0, 2), norm="ortho", out=out) is out
    assert_close(out.numpy(), getattr(scipy.fft, f"{transform}n")(whole, 2, axes=(0, 2), norm="ortho"), 64)
    assert many(placed, 4, axes=[1, 2], out=placed) is placed
    assert_close(placed.numpy(), getattr(scipy.fft, f"{transform}n")(whole, 4, axes=(1, 2)), 64)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "uint16", "bool", "int32"])
def test_dtypes(device: an.Device, dtype: str) -> None:
    x = random_array(RNG, (2, 15), "bool" if dtype == "bool" else "int8").astype(as_dtype(dtype))
    got = device.fft.dct(device.put(x)).numpy()
    assert got.dtype == (np.float64 if dtype == "int32" else np.float32)
    assert_close(got, scipy.fft.dct(x.astype(float)), 32)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_results_of_16_bits_are_rounded_once(device: an.Device, dtype: str) -> None:
    x = random_array(RNG, (6, 7), "float32")
    out = device.zeros((6, 7), dtype)
    device.fft.dctn(device.put(x), out=out, norm="ortho")
    eps = 2.0**-11 if dtype == "float16" else 2.0**-8
    assert relative_error(out.numpy().astype(float), scipy.fft.dctn(x.astype(float), norm="ortho")) <= 1.01 * eps


def test_nothing(device: an.Device) -> None:
    assert device.fft.dct(device.zeros((0, 8))).numpy().shape == (0, 8)
    np.testing.assert_array_equal(device.fft.dst(device.zeros((2, 0)), n=3).numpy(), np.zeros((2, 3)))


def test_plans(device: an.Device) -> None:
    x = random_array(RNG, (3, 9), "float64")
    given, out = device.put(x), device.zeros((3, 9), "float64")
    plan = device.fft.plan(an.DctRequest(x=given, axes=-1))
    plan.ask(given, out=out).result(60)
    assert_close(out.numpy(), scipy.fft.dct(x), 18)
    if device.kind == "cuda":
        assert plan.notes == ("axis 1: 216 and 240 bytes of rows in the workspace",)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"transform": "fft"}, "transform='fft'; allowed: 'dct', 'idct', 'dst', 'idst'"),
    ({"type": 5}, "type=5; allowed: 1, 2, 3, 4"),
    ({"type": True}, "type=True; allowed: 1, 2, 3, 4"),
    ({"norm": "unitary"}, "norm='unitary'; allowed: 'backward'"),
    ({"orthogonalize": 1}, "orthogonalize=1; allowed: None, False, True"),
    ({"x": np.zeros((3, 4), "complex64")}, "x of dct has dtype complex64; allowed: float32, float16"),
    ({"type": 1, "s": 1, "axes": 0}, "dct of type 1 of 1 point; allowed: 2 or more, or another type"),
    ({"axes": (0, 0)}, "axes=(0, 0): an axis is there twice"),
    ({"s": 0, "axes": 0}, "s=(0,): 0 points along axis 0"),
    ({"out": np.zeros((3, 4), "complex64")}, "out is complex64[3, 4]; allowed: float32[3, 4], float16[3, 4]"),
]


@pytest.mark.plain
@pytest.mark.parametrize(("options", "text"), REFUSED)
def test_refusals(options: dict[str, Any], text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=re.escape(text)):
        an.DctRequest(**{"x": np.zeros((3, 4), "float32"), **options})
