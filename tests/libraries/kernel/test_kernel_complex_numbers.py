"""Complex numbers of a kernel's plan are told as a whole, or by their parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import atomr_native as an

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from numba import cuda


@pytest.fixture
def device() -> Iterator[an.Device]:
    with an.System() as system:
        yield system.device("host")


@cuda.jit
def scaled(x: Any, z: Any) -> None:
    i = cuda.grid(1)
    if i < x.size:
        x[i] = z.real + 10 * z.imag


def test_complex_arguments_of_kernels(device: an.Device) -> None:
    x = device.zeros(4)
    plan = device.kernel(scaled)[1, 4].plan(x, 1 + 2j)
    told: list[tuple[dict[str, Any], float]] = [
        ({}, 21), ({"z": 3.0}, 3), ({"z": 1j}, 10), ({"z_real": 5.0}, 25), ({"z_imag": 0.0}, 1),
    ]  # fmt: skip
    for numbers, value in told:
        plan.tell(x, **numbers)
        assert (x.numpy() == value).all(), numbers
