"""The namespace of a device, function by function, against NumPy's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import atomr_native as an
from atomr_native import array_api

RNG = np.random.default_rng(3)
X = RNG.standard_normal((3, 4, 5))
M = RNG.integers(-5, 6, (4, 5)).astype(np.int32)
B = M > 0
Z = (X + 1j * X[::-1]).astype(np.complex64)

#: Uses of a namespace `xp` with arrays that it made: of NumPy, and of the device.
CASES: dict[str, Callable[[Any, Any, Any, Any, Any], Any]] = {
    "arange": lambda xp, x, m, b, z: xp.arange(3, 20, 4),
    "arange down": lambda xp, x, m, b, z: xp.arange(2.5, -1.0, -0.5),
    "arange uint8": lambda xp, x, m, b, z: xp.arange(250, 255, dtype=xp.uint8),
    "linspace": lambda xp, x, m, b, z: xp.linspace(-1, 2, 7),
    "linspace open": lambda xp, x, m, b, z: xp.linspace(0.5, 3, 4, endpoint=False, dtype=xp.float32),
    "eye": lambda xp, x, m, b, z: xp.eye(3, 5, k=1),
    "eye below": lambda xp, x, m, b, z: xp.eye(4, k=-2, dtype=xp.int8),
    "ones": lambda xp, x, m, b, z: xp.ones((2, 3), dtype=xp.int16),
    "full": lambda xp, x, m, b, z: xp.full((2,), 3),
    "zeros_like": lambda xp, x, m, b, z: xp.zeros_like(m),
    "tril": lambda xp, x, m, b, z: xp.tril(m, k=1),
    "triu": lambda xp, x, m, b, z: xp.triu(b),
    "meshgrid": lambda xp, x, m, b, z: xp.meshgrid(m[0], m[:, 0])[1],
    "concat": lambda xp, x, m, b, z: xp.concat([m, b, x[0]], axis=1),
    "concat flat": lambda xp, x, m, b, z: xp.concat([m, b], axis=None),
    "stack": lambda xp, x, m, b, z: xp.stack([m, m], axis=-1),
    "unstack": lambda xp, x, m, b, z: xp.unstack(x, axis=1)[2] if hasattr(xp, "unstack") else x[:, 2],
    "reshape": lambda xp, x, m, b, z: xp.reshape(x.T, (5, 12)),
    "squeeze": lambda xp, x, m, b, z: xp.squeeze(xp.expand_dims(m, axis=1), axis=1),
    "permute_dims": lambda xp, x, m, b, z: xp.permute_dims(x, (2, 0, 1)) + 0,
    "moveaxis": lambda xp, x, m, b, z: xp.moveaxis(x, 0, -1) + 0,
    "broadcast_to": lambda xp, x, m, b, z: xp.broadcast_to(m[0], (3, 5)) + 0,
    "flip": lambda xp, x, m, b, z: xp.flip(x, axis=(0, 2)),
    "roll": lambda xp, x, m, b, z: xp.roll(m, (1, -2), axis=(0, 1)),
    "roll flat": lambda xp, x, m, b, z: xp.roll(m, 7),
    "tile": lambda xp, x, m, b, z: xp.tile(m, (2, 1, 3)),
    "repeat": lambda xp, x, m, b, z: xp.repeat(m, 3, axis=1),
    "diff": lambda xp, x, m, b, z: xp.diff(x, n=2, axis=1),
    "take": lambda xp, x, m, b, z: xp.take(x, xp.asarray([3, -1, 0, 3]), axis=1),
    "take_along_axis": lambda xp, x, m, b, z: xp.take_along_axis(m, xp.argmax(m, axis=0, keepdims=True), axis=0),
    "index": lambda xp, x, m, b, z: x[:, xp.asarray([[1, 0], [2, 3]])],
    "index pairs": lambda xp, x, m, b, z: x[
        :, xp.asarray([1, -2]), xp.asarray([[-1], [3]], dtype=xp.int8)
    ],
    "where": lambda xp, x, m, b, z: xp.where(b, m, 2.5),
    "clip": lambda xp, x, m, b, z: xp.clip(m, -1, 3),
    "sum": lambda xp, x, m, b, z: xp.sum(m, axis=0),
    "sum all": lambda xp, x, m, b, z: xp.sum(b),
    "sum of views": lambda xp, x, m, b, z: xp.sum(x[::-1, 1:], axis=(0, 2), keepdims=True),
    "sum complex": lambda xp, x, m, b, z: xp.sum(z, axis=1),
    "sum dtype": lambda xp, x, m, b, z: xp.sum(m, dtype=xp.float64),
    "prod": lambda xp, x, m, b, z: xp.prod(m, axis=1),
    "mean": lambda xp, x, m, b, z: xp.mean(m, axis=-1),
    "var": lambda xp, x, m, b, z: xp.var(x, axis=(0, 1), correction=1),
    "std": lambda xp, x, m, b, z: xp.std(x, keepdims=True),
    "min": lambda xp, x, m, b, z: xp.min(m, axis=0, keepdims=True),
    "max": lambda xp, x, m, b, z: xp.max(x, axis=(0, 2)),
    "argmin": lambda xp, x, m, b, z: xp.argmin(m),
    "argmax": lambda xp, x, m, b, z: xp.argmax(m, axis=1, keepdims=True),
    "any": lambda xp, x, m, b, z: xp.any(m, axis=1),
    "all": lambda xp, x, m, b, z: xp.all(b, axis=0),
    "any of none": lambda xp, x, m, b, z: xp.any(x[:0]),
    "count_nonzero": lambda xp, x, m, b, z: xp.count_nonzero(m, axis=0),
    "vecdot": lambda xp, x, m, b, z: xp.vecdot(z, z),
    "tensordot": lambda xp, x, m, b, z: xp.tensordot(x, x, axes=((0, 1), (0, 1))),
    "matrix_transpose": lambda xp, x, m, b, z: xp.matrix_transpose(x) + 0,
    "logical_and": lambda xp, x, m, b, z: xp.logical_and(b, xp.logical_not(b[::-1])),
    "shift": lambda xp, x, m, b, z: xp.bitwise_left_shift(m, xp.asarray(40, dtype=xp.int32)),
    "number first": lambda xp, x, m, b, z: xp.less(2, m) ^ xp.greater_equal(-1, m),
    "complex": lambda xp, x, m, b, z: xp.real(xp.conj(z)) + xp.imag(z),
    "sort": lambda xp, x, m, b, z: xp.sort(m, axis=0),
    "sort flags": lambda xp, x, m, b, z: xp.sort(b[:, ::-1]),
    "argsort": lambda xp, x, m, b, z: xp.argsort(m, axis=-2, stable=True),
    "searchsorted": lambda xp, x, m, b, z: xp.searchsorted(xp.sort(m[0]), m, side="right"),
    "searchsorted mixed": lambda xp, x, m, b, z: xp.searchsorted(m[0], x, sorter=xp.argsort(m[0])),
    "cumulative_sum": lambda xp, x, m, b, z: xp.cumulative_sum(m, axis=0, include_initial=True),
    "cumulative_sum flags": lambda xp, x, m, b, z: xp.cumulative_sum(b, axis=1),
    "cumulative_sum dtype": lambda xp, x, m, b, z: xp.cumulative_sum(x[:, 1], axis=0, dtype=xp.float32),
    "cumulative_prod": lambda xp, x, m, b, z: xp.cumulative_prod(z[0, 0], include_initial=True),
    "nonzero": lambda xp, x, m, b, z: xp.nonzero(m)[1],
    "mask": lambda xp, x, m, b, z: x[:, 0][b[:3]],
    "mask of rows": lambda xp, x, m, b, z: m[b[:, 0]],
    "mask of none": lambda xp, x, m, b, z: m[m > 99],
    "repeat each": lambda xp, x, m, b, z: xp.repeat(m, xp.asarray([2, 0, 1, 3]), axis=0),
    "repeat by one": lambda xp, x, m, b, z: xp.repeat(m, xp.asarray([2])),
    "unique_all indices": lambda xp, x, m, b, z: xp.unique_all(m).indices,
    "unique_inverse": lambda xp, x, m, b, z: xp.unique_inverse(m).inverse_indices,
    "unique_counts": lambda xp, x, m, b, z: xp.unique_counts(m).counts,
    "unique_values": lambda xp, x, m, b, z: xp.unique_values(xp.real(xp.round(z))),
    "unique complex": lambda xp, x, m, b, z: xp.unique_all(xp.round(z)).values,
    "round": lambda xp, x, m, b, z: xp.round(x * 4),
}  # fmt: skip
#: Those that show on the fake driver what programs of other tests do not.
ON_FAKE = (
    "arange",
    "eye below",
    "take",
    "take_along_axis",
    "prod",
    "all",
    "argmin",
    "sum complex",
    "shift",
    "sort",
    "searchsorted",
    "cumulative_sum",
    "mask of rows",
    "unique_inverse",
)


@pytest.mark.fake_only(name=ON_FAKE)
@pytest.mark.parametrize("name", CASES)
def test_functions_are_numpys(device: an.Device, name: str) -> None:
    """Values, dtype and shape."""
    xp = device.empty(0).__array_namespace__()
    expected = np.asarray(CASES[name](np, X, M, B, Z))
    made = CASES[name](xp, *map(device.put, (X, M, B, Z)))
    assert isinstance(made, an.GpuRef)
    assert (made.dtype, made.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(made.numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.host_only
def test_functions_of_numpy_are_dispatched(device: an.Device) -> None:
    x, m = device.put(X), device.put(M)
    pairs: list[Callable[[Any, Any], Any]] = [
        lambda x, m: np.sum(x, 1), lambda x, m: np.concatenate([m, m], axis=1), lambda x, m: np.transpose(x, (1, 0, 2)),
        lambda x, m: np.clip(m, 0, 2), lambda x, m: np.reshape(m, (2, 10)), lambda x, m: np.argmax(x, axis=0),
        lambda x, m: np.where(m > 0, m, 0), lambda x, m: np.take(m, 2 + 0 * m[0, :2], 1), lambda x, m: np.min(x),
        lambda x, m: np.expand_dims(m, 0), lambda x, m: np.power(m, 2), lambda x, m: np.arctan2(x, 2.0),
        lambda x, m: np.sort(m, 0), lambda x, m: np.cumsum(m, 1), lambda x, m: np.nonzero(m)[0],
        lambda x, m: np.copy(x), lambda x, m: np.moveaxis(x, 0, 1),
        lambda x, m: np.float64(2) * x, lambda x, m: np.matmul(x, x[0].T), lambda x, m: np.roll(m, 1, 0),
    ]  # fmt: skip
    for use in pairs:
        made, expected = use(x, m), np.asarray(use(X, M))
        assert isinstance(made, an.GpuRef)
        assert made.dtype == expected.dtype
        np.testing.assert_allclose(made.numpy(), expected)


def test_an_index_out_of_bounds_fails_its_message(device: an.Device) -> None:
    """On a GPU, too, where a kernel cannot look before it computes: never a wrong element."""
    x = device.put(np.arange(5.0))
    with pytest.raises(an.AtomrError):
        x.take(device.put(np.array([0, 5]))).numpy()
    with pytest.raises(an.AtomrError):
        x.take(device.put(np.array([-6]))).wait()
    with pytest.raises(an.AtomrError):  # within the flat array, and not within its own axis
        x.reshape(5, 1)[device.put(np.array([1])), device.put(np.array([1]))].numpy()
    assert x.take(device.put(np.array([-5, 4], np.int8))).numpy().tolist() == [0.0, 4.0]


@pytest.mark.host_only
def test_a_namespace_has_the_device_of_its_array(device: an.Device) -> None:
    x = device.zeros(3)
    xp = x.__array_namespace__(api_version="2023.12")
    assert xp is device.zeros(1).__array_namespace__()
    assert xp.zeros(2).device is device
    assert xp.__array_api_version__ == "2024.12"
    info = xp.__array_namespace_info__()
    assert (info.default_device(), info.devices()) == (device, [device])
    assert info.dtypes(kind="bool") == {"bool": np.dtype(bool)}
    assert all(info.capabilities()[name] for name in ("boolean indexing", "data-dependent shapes"))
    assert set(array_api.__all__) <= set(dir(xp))
    assert array_api.ones(2, device=device).numpy().tolist() == [1.0, 1.0]
    with pytest.raises(an.InvalidRequest, match="device="):
        array_api.ones(2)
    with pytest.raises(an.InvalidRequest, match=r"2019\.12"):
        x.__array_namespace__(api_version="2019.12")
    assert xp.linalg.det(xp.eye(2)).item() == 1.0


@pytest.mark.host_only
def test_types_need_no_device() -> None:
    assert array_api.result_type(np.int8, np.uint8, 1.0) == np.float64
    assert array_api.result_type("bfloat16", 2.0) == "bfloat16"
    assert array_api.result_type("bfloat16", "float16") == np.float32
    assert array_api.can_cast(np.int8, np.int16)
    assert not array_api.can_cast(np.int64, np.int32)
    assert array_api.isdtype(np.float32, ("bool", "real floating"))
    assert not array_api.isdtype(np.float32, "integral")
    assert array_api.finfo("bfloat16").bits == 16
    assert array_api.finfo(np.complex64).eps == 2.0**-23
    assert array_api.iinfo(np.uint8).max == 255
    assert math.isnan(array_api.nan)
    with pytest.raises(an.InvalidRequest, match="'float'"):
        array_api.isdtype(np.float32, "float")


@pytest.mark.host_only
def test_wrong_arguments_are_refused_at_once(device: an.Device) -> None:
    x, m = device.put(X), device.put(M)
    xp = x.__array_namespace__()
    refused: list[Callable[[], Any]] = [
        lambda: xp.sum(x, axis=3), lambda: xp.sum(x, axis=(0, 0)), lambda: xp.concat([]), lambda: xp.concat([m, x]),
        lambda: xp.stack([m, m[1:]]), lambda: xp.reshape(m, (3, 7)), lambda: xp.take(x, m, axis=9),
        lambda: xp.take(x, x, axis=0), lambda: xp.arange(0, 1, 0), lambda: xp.linspace(0, 1, -1),
        lambda: xp.broadcast_to(m, (4, 6)), lambda: xp.squeeze(m, axis=0), lambda: xp.max(x[:0]),
        lambda: xp.repeat(m, m), lambda: xp.permute_dims(m, (0, 0)), lambda: xp.eye(3, k=0.5), lambda: xp.tril(m[0]),
        lambda: x.var(correction=x), lambda: xp.full((2,), "a"), lambda: xp.zeros(2, device="cpu"), lambda: xp.max(z),
        lambda: xp.matmul(x, m[0, 0]), lambda: xp.arange(x), lambda: xp.roll(m, (1, 2, 3), axis=(0, 1)),
        lambda: xp.sort(z), lambda: xp.sort(m, axis=2), lambda: xp.argsort(m, descending=1),
        lambda: xp.nonzero(m[0, 0]),
        lambda: xp.searchsorted(m, m), lambda: xp.searchsorted(m[0], m, side="top"),
        lambda: xp.searchsorted(z[0, 0], m),
        lambda: xp.cumulative_sum(m), lambda: xp.cumulative_prod(m, axis=0, include_initial=2), lambda: m[m > 0, :1],
        lambda: m[m[:3] > 0], lambda: xp.repeat(m, x[0, 0], axis=0), lambda: xp.repeat(m, 0 * m[0] - 1, axis=1),
    ]  # fmt: skip
    z = device.put(Z)
    for use in refused:
        with pytest.raises(an.InvalidRequest):
            use()
    with pytest.raises(IndexError, match=r"axis=2 for an array of 2 axes; allowed: integers from -2 to 1"):
        xp.sort(m, axis=2)
    for use in (lambda: xp.sum(X), lambda: xp.sin(1.0), lambda: xp.where(B, x, x), lambda: xp.concat([m, M])):
        with pytest.raises(an.NoArrayOperator, match=r"device\.put"):
            use()


@pytest.mark.host_only
def test_devices_make_sequences(device: an.Device) -> None:
    assert device.arange(4).numpy().tolist() == [0, 1, 2, 3]
    assert device.arange(1, 2, 0.25, dtype="float32").dtype == np.float32
    assert device.linspace(0, 1, 3).numpy().tolist() == [0.0, 0.5, 1.0]
    assert device.eye(2, dtype="int8").numpy().tolist() == [[1, 0], [0, 1]]
    assert device.ones((2,)).dtype == np.float32
