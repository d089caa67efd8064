"""Fourier transforms on every kind of device: results, layouts, refusals, plans."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import crash
import ml_dtypes
import numpy as np
import pytest
import scipy.fft
from fft_reference import assert_close, exact, random_array, reference, relative_error

import atomr_native as an

RNG = np.random.default_rng(19)
COMPLEX = ("fft", "ifft")
TO_REAL = ("irfft", "hfft")
FROM_REAL = ("rfft", "ihfft")
DTYPES = ("float32", "float64", "complex64", "complex128")


@pytest.fixture(scope="module", autouse=True)
def scipy_threads() -> None:
    """Start the threads of SciPy's transforms, which the process keeps."""
    scipy.fft.fft(np.zeros((64, 1 << 12)), workers=2)


def check(device: an.Device, transform: str, x: np.ndarray, placed: Any = None, **options: Any) -> np.ndarray:
    """Hold three runs of a plan against the reference, and x against its copy; returns the last result."""
    given = device.put(x) if placed is None else placed
    want = reference(transform, x, options.get("s"), options.get("axes"), options.get("norm"))
    points = max(2, 2 * want.size)
    for _ in range(3):
        got = device.fft.tell(an.FftRequest(transform=transform, x=given, **options)).numpy()
        assert_close(got, want, points)
    np.testing.assert_array_equal(given.numpy(), x)
    return got


@pytest.mark.fake_only(dtype=["float32", "complex64"], norm=["backward", "ortho"])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward", "none"])
@pytest.mark.parametrize(
    ("transform", "dtype"),
    [(t, d) for t in (*COMPLEX, *FROM_REAL, *TO_REAL) for d in DTYPES if t not in FROM_REAL or d.startswith("f")],
)
def test_transforms_along_one_axis(device: an.Device, transform: str, dtype: str, norm: str) -> None:
    x = random_array(RNG, (3, 12), dtype)
    got = check(device, transform, x, axes=-1, norm=norm)
    wide = dtype in ("float64", "complex128")
    kind = "float" if transform in TO_REAL else "complex"
    assert got.dtype == np.dtype(f"{kind}{(64 if wide else 32) * (1 if kind == 'float' else 2)}")
    if norm == "backward":
        plain = getattr(np.fft, transform)(x)
        np.testing.assert_allclose(got, plain, atol=1e-12 if wide else 1e-4)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 13, 30, 37])
@pytest.mark.parametrize("transform", ["fft", "ifft", "rfft", "irfft"])
def test_sums_of_forty_digits(device: an.Device, transform: str, n: int) -> None:
    """A definition that shares no code with any library: float64, and the same numbers in float32."""
    count = n // 2 + 1 if transform == "irfft" else n
    x = random_array(RNG, (count,), "float32" if transform == "rfft" else "complex64")
    want = exact(transform, x, n)
    for dtype in (x.dtype, np.result_type(x.dtype, np.float64)):
        got = getattr(device.fft, transform)(device.put(x.astype(dtype)), n=n).numpy()
        assert_close(got, want, max(2, n))


@pytest.mark.fake_only(axes=[(0, 1), (2, 0), (0, 1, 2, 3)])
@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (2, 0), (1, 2, 3), (0, 1, 2, 3), (3, 1, 2, 0)])
@pytest.mark.parametrize("transform", ["fft", "rfft", "irfft"])
def test_transforms_along_several_axes(device: an.Device, transform: str, axes: tuple[int, ...]) -> None:
    x = random_array(RNG, (3, 4, 5, 6), "float32" if transform == "rfft" else "complex64")
    check(device, transform, x, axes=axes)


def test_methods_are_those_of_numpy(device: an.Device) -> None:
    fft = device.fft
    real, whole = random_array(RNG, (3, 4, 6), "float64"), random_array(RNG, (3, 4, 6), "complex128")
    x, z = device.put(real), device.put(whole)

    def close(got: an.GpuRef, want: np.ndarray) -> None:
        np.testing.assert_allclose(got.numpy(), want, atol=1e-12)

    close(fft.fft(z, 5, 1, "ortho"), np.fft.fft(whole, 5, 1, "ortho"))
    close(fft.ifft(z), np.fft.ifft(whole))
    close(fft.rfft(x, axis=0), np.fft.rfft(real, axis=0))
    close(fft.irfft(z, 9), np.fft.irfft(whole, 9))
    close(fft.hfft(z, 7), np.fft.hfft(whole, 7))
    close(fft.ihfft(x), np.fft.ihfft(real))
    close(fft.fft2(z, [4, 4]), np.fft.fft2(whole, (4, 4)))
    close(fft.ifft2(z, axes=[0, 1]), np.fft.ifft2(whole, axes=(0, 1)))
    close(fft.rfft2(x), np.fft.rfft2(real))
    close(fft.irfft2(z, (4, 7)), np.fft.irfft2(whole, (4, 7)))
    close(fft.fftn(z, (2, 8), norm="forward"), np.fft.fftn(whole, (2, 8), axes=(1, 2), norm="forward"))
    close(fft.ifftn(z), np.fft.ifftn(whole))
    close(fft.rfftn(x, (-1, 4, -1), (0, 1, 2)), np.fft.rfftn(real))
    close(fft.irfftn(z, axes=(2, 0)), np.fft.irfftn(whole, axes=(2, 0)))
    half = fft.ihfftn(x)
    close(fft.hfftn(half, (3, 4, 6)), real)


# ---------------------------------------------------------------------------------------------- awkward lengths


@pytest.mark.fake_only(n=[1, 2, 97, 1009])
@pytest.mark.parametrize("n", [1, 2, 97, 1009, 65537, 1000003])
@pytest.mark.parametrize("transform", ["fft", "rfft", "irfft"])
def test_awkward_lengths(device: an.Device, transform: str, n: int) -> None:
    """Primes, for which cuFFT has another algorithm, whose plans once gave wrong results from the second run on."""
    m = n // 2 + 1 if transform == "irfft" else n
    x = random_array(RNG, (1 if n > 1 << 17 else 2, m), "float32" if transform == "rfft" else "complex64")
    check(device, transform, x, s=n, axes=-1)


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (6, 1), (3, 1, 2)])
@pytest.mark.parametrize("transform", ["fft", "rfft", "irfft", "ihfft"])
def test_one_point_along_an_axis(device: an.Device, transform: str, shape: tuple[int, ...]) -> None:
    x = random_array(RNG, shape, "complex64" if transform in ("fft", "irfft") else "float32")
    lengths = shape if transform != "irfft" else (*shape[:-1], 1)
    check(device, transform, x, s=lengths, norm="forward")


@pytest.mark.parametrize("n", [2**13, 2**14])
def test_parts_that_a_real_result_has_not_are_ignored(device: an.Device, n: int) -> None:
    """Imaginary parts at the first and the middle element, which cuFFT gets wrong at these lengths."""
    x = random_array(RNG, (n // 2 + 1,), "complex64")
    clean = x.copy()
    clean.imag[[0, -1]] = 0
    got = check(device, "irfft", x)
    assert_close(got, reference("irfft", clean), n)


@pytest.mark.parametrize("last", [5, 6])
def test_parts_that_a_real_result_of_several_axes_has_not_are_ignored(device: an.Device, last: int) -> None:
    x = random_array(RNG, (3, 4, last // 2 + 1), "complex128")
    check(device, "irfft", x, s=(3, 4, last))
    check(device, "hfft", x, s=(4, last), axes=(1, 2))


# ---------------------------------------------------------------------------------------------- layouts


@pytest.mark.parametrize("transform", ["fft", "rfft", "irfft"])
def test_views(device: an.Device, transform: str) -> None:
    """Gaps, broadcast, backwards, any order of axes, for the input and for the output."""
    dtype = "float32" if transform == "rfft" else "complex64"
    whole = random_array(RNG, (6, 8, 10), dtype)
    placed = device.put(whole)
    for index in [
        (slice(None, None, 2), slice(1, 7, 3), slice(2, 9)),
        (slice(None, None, -1), slice(None), slice(None, None, -2)),
        (slice(1, 2), slice(None), slice(None)),
    ]:
        x = whole[index]
        check(device, transform, x, placed[index], axes=-1)
    turned = placed.transpose(2, 0, 1)
    check(device, transform, whole.transpose(2, 0, 1), turned, axes=(1,))
    wide = np.broadcast_to(device.put(whole[:1]), (3, 8, 10))
    assert wide.strides[0] == 0
    check(device, transform, np.broadcast_to(whole[:1], (3, 8, 10)), wide, axes=(0, 2))


@pytest.mark.parametrize("transform", ["fft", "rfft", "irfft", "ihfft"])
def test_out_of_any_layout(device: an.Device, transform: str) -> None:
    x = random_array(RNG, (4, 6), "complex64" if transform in ("fft", "irfft") else "float32")
    want = reference(transform, x, axes=-1)
    dtype = "float32" if transform == "irfft" else "complex64"
    for view in (lambda a: a[:, ::2], lambda a: a[1::2].transpose(1, 0)):
        host = np.full((2 * want.shape[0] + 40, 2 * want.shape[1] + 40), 7, dtype)
        shape = (want.shape[0], 2 * want.shape[1]) if view(host).strides[0] > view(host).strides[1] else None
        base = device.put(np.full(shape or (2 * want.shape[1], want.shape[0]), 7, dtype))
        out = view(base)
        assert out.shape == want.shape
        assert device.fft.tell(an.FftRequest(transform=transform, x=device.put(x), axes=-1, out=out)) is out
        assert_close(out.numpy(), want, 6)
        left = base.numpy()
        assert np.count_nonzero(left == 7) >= want.size


@pytest.mark.parametrize("shape", [(12,), (3, 10), (2, 3, 4, 5)])
def test_in_place(device: an.Device, shape: tuple[int, ...]) -> None:
    x = random_array(RNG, shape, "complex64")
    placed = device.put(x)
    assert device.fft.fftn(placed, out=placed) is placed
    assert_close(placed.numpy(), reference("fft", x), x.size)
    device.fft.ifftn(placed, out=placed)
    np.testing.assert_allclose(placed.numpy(), x, atol=1e-5)


@pytest.mark.parametrize("transform", ["fft", "rfft", "irfft"])
def test_arrays_that_start_anywhere(device: an.Device, transform: str) -> None:
    """Real arrays that start at odd elements, complex ones in the middle of another's element."""
    real = random_array(RNG, (64,), "float32")
    placed = device.put(real)
    for first in (0, 1, 2, 3):
        if transform == "rfft":
            x, given = real[first : first + 20], placed[first : first + 20]
        else:
            x = real[first : first + 20].view(np.complex64)
            given = placed[first : first + 20].view("complex64")
        check(device, transform, x, given)
    base = device.zeros((64,), "float32")
    if transform == "irfft":
        out = base[3:21]
    else:
        out = base[3:25].view("complex64") if transform == "rfft" else base[3:23].view("complex64")
    x = real[:20] if transform == "rfft" else real[:20].view(np.complex64)
    x = x[:10] if transform == "fft" else x
    device.fft.tell(an.FftRequest(transform=transform, x=device.put(x), out=out))
    assert_close(out.numpy(), reference(transform, x), 20)
    assert not base.numpy()[:3].any()
    assert not base.numpy()[26:].any()


def test_calls_of_one_layout_at_other_addresses(device: an.Device) -> None:
    """A call with the same layout as before, but an odd address, is another call."""
    real = random_array(RNG, (40,), "float32")
    placed = device.put(real)
    for first in (0, 1, 2, 5):
        got = device.fft.rfft(placed[first : first + 16]).numpy()
        assert_close(got, reference("rfft", real[first : first + 16]), 16)


def test_cut_and_padded(device: an.Device) -> None:
    x = random_array(RNG, (5, 6), "complex64")
    for s in [(3, 9), (8, 2), (1, 1), (7, 7)]:
        check(device, "fft", x, s=s)
        check(device, "irfft", x, s=s)
        check(device, "rfft", x.real.copy(), s=s)


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "int8", "int16", "uint8", "uint16", "bool", "int32", "int64", "uint64"]
)
def test_other_dtypes_are_converted(device: an.Device, dtype: str) -> None:
    x = random_array(RNG, (2, 15), "bool" if dtype == "bool" else "int8").astype(an.dtypes.as_dtype(dtype))
    wide = x.astype(np.float64)
    made = np.complex128 if dtype in ("int32", "int64", "uint64") else np.complex64
    for transform in ("fft", "rfft"):
        got = device.fft.tell(an.FftRequest(transform=transform, x=device.put(x), axes=-1)).numpy()
        assert got.dtype == made
        assert_close(got, reference(transform, wide, axes=-1), 15)


@pytest.mark.fake_only(n=[1, 12, 97])
@pytest.mark.parametrize("n", [1, 12, 97, 4096, 65537])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_real_results_of_16_bits(device: an.Device, dtype: str, n: int) -> None:
    """Data of 16 bits there and back, at any length: computed in float32, and rounded once."""
    kind = an.dtypes.as_dtype(dtype)
    x = device.put(random_array(RNG, (2, n), "float32").astype(kind))
    spectrum = device.fft.rfft(x)
    assert spectrum.dtype == np.complex64
    for transform, norm in (("irfft", "backward"), ("irfft", "ortho"), ("hfft", "forward")):
        out = device.full((2, n), 7, dtype)
        given = spectrum.numpy()
        want = reference(transform, given, n, -1, norm)
        request = an.FftRequest(transform=transform, x=spectrum, s=n, axes=-1, norm=norm, out=out)
        assert device.fft.tell(request) is out
        rounding = float(ml_dtypes.finfo(kind).eps) / 2
        assert relative_error(out.numpy(), want) <= rounding * 1.01
        np.testing.assert_array_equal(spectrum.numpy(), given)
    device.fft.irfft(spectrum, n, out=out, overwrite=True, hermitian=True)
    assert relative_error(out.numpy(), x.numpy().astype(float)) <= rounding * 1.1


# ---------------------------------------------------------------------------------------------- nothing, and refusals


def test_arrays_without_elements(device: an.Device) -> None:
    assert device.fft.fft(device.zeros((0, 8), "complex64")).numpy().shape == (0, 8)
    assert device.fft.rfft2(device.zeros((0, 8, 3), "float32")).numpy().shape == (0, 8, 2)
    got = device.fft.fft(device.zeros((2, 0), "complex64"), 4).numpy()
    np.testing.assert_array_equal(got, np.zeros((2, 4)))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"transform": "dct"}, "transform='dct'; allowed: 'fft', 'ifft'"),
    ({"norm": "unitary"}, "norm='unitary'; allowed: 'backward', 'ortho', 'forward', 'none'"),
    ({"axes": 2}, "axes=2 of an x of shape (3, 4); allowed: an integer, or different integers, from -2 to 1"),
    ({"axes": (0, -2)}, "axes=(0, -2): an axis is there twice"),
    ({"axes": ()}, "axes=(); allowed: an integer"),
    ({"axes": 0.5}, "axes=0.5; allowed: an integer"),
    ({"s": 0, "axes": 0}, "s=(0,): 0 points along axis 0; allowed: 1 or more, or -1"),
    ({"s": -2, "axes": 0}, "s=(-2,): -2 points along axis 0"),
    ({"s": (2, 2), "axes": 0}, "s=(2, 2) has 2 lengths for 1 axes; allowed: one for each axis"),
    ({"s": (2, 2, 2)}, "s=(2, 2, 2) has 3 lengths, and x has 2 axes; allowed: 2 or fewer"),
    ({"s": 2.0}, "s=2.0; allowed: an integer, or integers"),
    ({"s": 2**62, "axes": 0}, "the largest array has 9223372036854775807"),
    ({"transform": "rfft"}, "x of rfft has dtype complex64; allowed: float32, float16"),
    ({"overwrite": True}, "overwrite=True of fft; allowed: False, and True for irfft and hfft"),
    ({"hermitian": 1, "transform": "irfft"}, "hermitian=1"),
    (
        {"overwrite": True, "transform": "irfft", "x": np.broadcast_to(np.zeros(4, "complex64"), (3, 4))},
        "x of shape (3, 4) and strides (0, 8) overlaps itself",
    ),
    ({"x": np.zeros((), "complex64")}, "x has no axes; allowed: 1 or more"),
    ({"x": np.zeros((2, 0), "complex64")}, "x of shape (2, 0) has 0 elements along axis 1, which makes 0 points"),
    ({"x": np.zeros((2, 1), "complex64"), "transform": "irfft"}, "has 1 elements along axis 1, which makes 0 points"),
    ({"x": 3}, "x is a int; it must be a GpuRef"),
    ({"out": np.zeros((3, 4), "complex128")}, "out is complex128[3, 4]; allowed: complex64[3, 4]"),
    ({"out": np.zeros((3, 5), "complex64")}, "out is complex64[3, 5]; allowed: complex64[3, 4]"),
    ({"out": np.zeros((3, 4), "float16")}, "out is float16[3, 4]; allowed: complex64[3, 4]"),
    (
        {"out": np.zeros((3, 6), "float64"), "transform": "irfft"},
        "out is float64[3, 6]; allowed: float32[3, 6], float16[3, 6], bfloat16[3, 6]",
    ),
    (
        {"out": np.zeros((3, 6), "float16"), "transform": "irfft", "x": np.zeros((3, 4), "complex128")},
        "out is float16[3, 6]; allowed: float64[3, 6]",
    ),
]


@pytest.mark.plain
@pytest.mark.parametrize(("options", "text"), REFUSED)
def test_refusals(options: dict[str, Any], text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=re.escape(text)):
        an.FftRequest(**{"transform": "fft", "x": np.zeros((3, 4), "complex64"), **options})


def test_overlaps_are_refused(device: an.Device) -> None:
    x = device.zeros((8,), "complex64")
    for view in (x[::-1], x.reshape((2, 4)).transpose(1, 0)):
        whole = x if view.ndim == 1 else x.reshape((4, 2))
        with pytest.raises(an.InvalidRequest, match=r"out overlaps x|negative stride"):
            device.fft.fft(whole, out=view)
    real = device.zeros((16,), "float32")
    with pytest.raises(an.InvalidRequest, match="input and output of a real transform differ in shape"):
        device.fft.rfft(real[:8], out=real[:10].view("complex64"))


# ---------------------------------------------------------------------------------------------- plans and messages


def test_plans(device: an.Device) -> None:
    x = random_array(RNG, (4, 16), "complex64")
    given, out = device.put(x), device.zeros((4, 16), "complex64")
    plan = device.fft.plan(an.FftRequest(transform="fft", x=given, axes=-1, out=out))
    for _ in range(3):
        plan.ask(given, out=out).result(60)
        assert_close(out.numpy(), reference("fft", x, axes=-1), 16)
    reply = device.fft.ask(an.FftRequest(transform="ifft", x=out, axes=-1))
    np.testing.assert_allclose(reply.result(60).numpy(), x, atol=1e-5)
    with pytest.raises(an.InvalidRequest, match="FftRequest"):
        device.fft.plan("fft")  # type: ignore[arg-type]


@pytest.mark.parametrize("transform", TO_REAL)
@pytest.mark.parametrize("hermitian", [False, True])
def test_an_input_may_be_given_up(device: an.Device, transform: str, hermitian: bool) -> None:
    """With `overwrite` the result is the same, and x may be anything afterwards."""
    x = reference("rfft", random_array(RNG, (3, 8), "float64")).astype("complex128")
    given = device.put(x)
    request = an.FftRequest(transform=transform, x=given, axes=-1, overwrite=True, hermitian=hermitian)
    got = device.fft.tell(request).numpy()
    assert_close(got, reference(transform, x, axes=-1), 8)
    given.numpy()


def test_lanes_give_the_same_bits(device: an.Device) -> None:
    """Also a lane that has a plan, a stream and a work area of its own."""
    x = device.put(random_array(RNG, (7, 30), "complex64"))
    lanes = [device.fft, *(an.Fft(device, f"fft {i}") for i in range(3))]
    made = [lane.fft(x) for lane in lanes for _ in range(4)]
    first = made[0].numpy()
    for other in made:
        np.testing.assert_array_equal(other.numpy(), first)


def test_messages_in_a_chain(device: an.Device) -> None:
    """Results are used before they are there, in another lane as well."""
    x = random_array(RNG, (16, 30), "float32")
    other = an.Fft(device, "chained")
    y = device.put(x)
    for _ in range(5):
        y = device.fft.irfft2(other.rfft2(y))
    np.testing.assert_allclose(y.numpy(), x, atol=1e-4)


def test_after_a_restart(worker_process: Any, make_system: Callable[..., an.System]) -> None:
    device = make_system(**crash.PATIENT).device()
    x = random_array(RNG, (5, 18), "complex64")
    plan = device.fft.plan(an.FftRequest(transform="fft", x=device.put(x), axes=-1))
    for _ in range(2):
        out = device.zeros((5, 18), "complex64")
        plan.ask(device.put(x), out=out).result(60)
        assert_close(out.numpy(), reference("fft", x, axes=-1), 18)
        crash.restart(device)
