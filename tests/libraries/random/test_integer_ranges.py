"""Integers whose bounds are arrays: each element is that of a call with its bounds, at its position."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import atomr_native as an

pytestmark = [pytest.mark.plain, pytest.mark.alike]

CASES: list[tuple[str, Any, Any]] = [
    ("int8", np.array([[-128], [5]], "int32"), np.array([6, 100, 128, 50], "int32")),
    ("uint16", np.arange(4), 2**16),
    ("uint32", 0, np.array([1, 7, 2**32, 3 * 2**30])),
    ("int64", np.array([-(2**63), -5, 2**62, 0]), np.array([2**63 - 1, 2**40, 2**62 + 1, 2**32 - 1])),
    ("int64", np.array([-(2**63), 0, 2**62, 2**63 - 1]), 2**63),
    ("uint64", np.array([0, 1, 2**62, 2**63 - 1]), 2**64),
    ("uint64", 3, np.array([4, 2**62, 2**63 - 1, 9])),
]


@pytest.fixture(scope="module", params=["host", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def device(request: Any) -> Iterator[an.Device]:
    with an.System(standby="off") as system:
        yield system.device(request.param)


def sent(device: an.Device, value: Any) -> Any:
    return device.put(value) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize(("dtype", "low", "high"), CASES)
def test_each_element_has_its_own_bounds(device: an.Device, dtype: str, low: Any, high: Any) -> None:
    shape = np.broadcast_shapes(np.shape(low), np.shape(high))
    got = device.random.integers(None, dtype, sent(device, low), sent(device, high), seed=9, offset=3).numpy()
    assert got.shape == shape
    assert got.dtype == dtype
    lows, highs = (np.broadcast_to(np.array(value, object), shape).flat for value in (low, high))
    want = [
        device.random.integers(1, dtype, int(a), int(b), seed=9, offset=3 + i).numpy()[0]
        for i, (a, b) in enumerate(zip(lows, highs, strict=True))
    ]
    assert got.reshape(-1).tolist() == want


def test_words_that_would_bring_a_bias(device: an.Device) -> None:
    """A quarter of the elements draws again; and `out` has gaps, so that places are computed."""
    out = device.zeros((100, 30), "uint32")
    high = device.put(np.full((100, 1), 3 * 2**30))
    device.random.integers(low=0, high=high, seed=4, out=out[:, ::3])
    want = device.random.integers((100, 10), "uint32", 0, 3 * 2**30, seed=4).numpy()
    np.testing.assert_array_equal(out.numpy()[:, ::3], want)
    assert not out.numpy()[:, 1::3].any()


BAD: list[tuple[str, Any, Any]] = [
    ("int64", np.array([1, 3]), np.array([2, 3])),
    ("int64", np.array([1, 3]), np.array([2, -(2**63)])),
    ("int8", np.array([0, -129]), np.array([1, 1])),
    ("int8", np.array([0, 1]), np.array([1, 129])),
    ("uint64", np.array([0, -1]), 5),
    ("uint64", 2**63, np.array([5, 9])),
    ("int16", np.array([0, 6]), 6),
]


@pytest.mark.parametrize(("dtype", "low", "high"), BAD)
def test_bad_bounds_on_the_device_fail_the_message(device: an.Device, dtype: str, low: Any, high: Any) -> None:
    made = device.random.integers(2, dtype, sent(device, low), sent(device, high), seed=1)
    with pytest.raises(an.LibraryError):
        made.numpy()


REFUSED: list[tuple[Any, Any, str]] = [
    (np.zeros(2), 5, "low has dtype float64; allowed: int32, int64"),
    (0, np.ones(2, "uint64"), "high has dtype uint64; allowed: int32, int64"),
    (np.zeros(2, "int64"), 129, "high=129; allowed for int8: integers from -127 to 128"),
    (128, np.ones(2, "int64"), "low=128; allowed for int8: integers from -128 to 127"),
    (0.5, np.ones(2, "int64"), "low=0.5; it must be an integer, or an array of int32 or int64"),
]


@pytest.mark.parametrize(("low", "high", "message"), REFUSED)
def test_refused(device: an.Device, low: Any, high: Any, message: str) -> None:
    with pytest.raises(an.InvalidRequest, match=message):
        device.random.integers(2, "int8", sent(device, low), sent(device, high), seed=1)


def test_a_plan_takes_other_bounds(device: an.Device) -> None:
    low, out = device.put(np.array([0, 50])), device.zeros(2, "int64")
    plan = device.random.plan(
        an.RandomRequest(distribution="integers", parameters=(low, 60), dtype="int64", seed=2, out=out)
    )
    plan.tell(low, out=out, seed=5, offset=7, most=98)
    assert out.numpy().tolist() == device.random.integers(2, "int64", low, 99, seed=5, offset=7).numpy().tolist()
