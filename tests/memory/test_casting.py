"""Casts of `Device.put`: NumPy's rules, by name."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import atomr_native as an
from atomr_native.dtypes import DTYPES

CASTINGS = ("no", "equiv", "safe", "same_kind", "unsafe")

pytestmark = pytest.mark.host_only  # the program casts, whatever the device


def allowed(source: np.dtype[Any], target: np.dtype[Any], casting: str) -> bool:
    """NumPy's rule, with bfloat16 and float8 as floats."""
    if casting == "same_kind":
        kinds = ["f" if dtype.kind == "V" else dtype.kind for dtype in (source, target)]
        return "buifc".index(kinds[0]) <= "buifc".index(kinds[1])
    return bool(np.can_cast(source, target, casting))  # type: ignore[arg-type]


def numbers(error: Exception) -> str:
    return str(error).partition(";")[2]


@pytest.mark.parametrize("source", DTYPES.values(), ids=str)
def test_the_rules_of_numpy(device: an.Device, source: np.dtype[Any]) -> None:
    x = np.ones(3, source)
    for name, target in DTYPES.items():
        if source.kind == "c" and target.kind != "c":
            with pytest.raises(an.InvalidRequest, match="complex"):
                device.put(x, name, casting="unsafe")
            continue
        for casting in CASTINGS:
            if allowed(source, target, casting):
                assert (device.put(x, name, casting=casting).numpy() == 1).all()
                continue
            with pytest.raises(an.InvalidRequest, match=f"casting='{casting}'") as caught:
                device.put(x, name, casting=casting)
            remedies = [c for c in CASTINGS if f"'{c}'" in numbers(caught.value)]
            assert remedies == [c for c in CASTINGS if allowed(source, target, c)]
            assert f"{source} does not become {name}" in str(caught.value)


def test_same_kind_is_the_default(device: an.Device) -> None:
    out = device.zeros(2, "int8")
    for x in (np.array([300.7, 1.0]), np.array([np.nan, 1.0]), np.array([1.0, 1.0])):
        puts: list[Any] = [
            lambda x=x: device.put(x, "int8"), lambda x=x: device.put(x, out=out),
            lambda x=x: asyncio.run(device.put_async(x, "int8")),
        ]  # fmt: skip
        for put in puts:
            with pytest.raises(an.InvalidRequest, match="float64 does not become int8 with casting='same_kind'"):
                put()
    assert out.numpy().tolist() == [0, 0]
    assert device.put(np.array([1.7, -1.7]), out=out, casting="unsafe").numpy().tolist() == [1, -1]
    assert asyncio.run(device.put_async(np.array([2.7]), "int8", casting="unsafe")).numpy().tolist() == [2]
    assert device.put(np.array([300]), "int8").numpy().tolist() == [44]
    assert device.put(np.array([1e300]), "float32").numpy().tolist() == [np.inf]


def test_an_element_of_numpy_has_a_dtype(device: an.Device) -> None:
    with pytest.raises(an.InvalidRequest, match="casting='same_kind'"):
        device.put(np.float64(2), "int8")
    with pytest.raises(an.InvalidRequest, match="casting='same_kind'"):
        device.put(np.int64(2), "uint8")


def test_numbers_without_a_dtype_take_any_that_holds_them(device: an.Device) -> None:
    held: list[tuple[Any, str]] = [
        (2, "uint8"), ([1, 0], "bool"), ([1.0, -2.0], "int8"), ([2**63], "uint64"), (1, "float16"), (0.1, "bfloat16"),
        (True, "int8"), ([1, 2.5], "complex64"), ([], "int8"), ([-0.0], "uint8"),
    ]  # fmt: skip
    for x, name in held:
        assert device.put(x, name).dtype == DTYPES[name]
    for x, name in (([1.5], "int8"), ([0.5], "bool")):
        with pytest.raises(an.InvalidRequest, match=f"float64 does not become {name} with casting='same_kind'"):
            device.put(x, name)
    for x, name in (([2], "bool"), (-1, "uint8"), ([np.nan], "bool"), ([300.7], "int8")):
        with pytest.raises(an.InvalidRequest, match=f"does not fit {name}"):
            device.put(x, name)
    with pytest.raises(an.InvalidRequest, match="int64 does not become int8 with casting='safe'"):
        device.put(1, "int8", casting="safe")


@pytest.mark.parametrize("casting", ["same-kind", "", None, 1, True, "same_value"])
def test_unknown_rules(device: an.Device, casting: Any) -> None:
    x = np.ones(3, "float32")
    for _ in range(2):
        device.put(x)
        with pytest.raises(an.InvalidRequest, match=r"casting=.*'no', 'equiv', 'safe', 'same_kind', 'unsafe'"):
            device.put(x, casting=casting)
