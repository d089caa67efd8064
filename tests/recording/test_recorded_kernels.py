"""Recorded plans of kernels that Numba compiles: users' and those of libraries, on the host and on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import atomr_native as an

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda.bindings is not installed")

import numba_kernels as kernels

GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)


@pytest.fixture(scope="module", params=["host", GPU])
def device(request: Any) -> Iterator[an.Device]:
    with an.System(standby="off") as system:
        yield system.device(request.param)


def _array(shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype("float32")


def test_users_kernels(device: an.Device) -> None:
    kernel = device.kernel(kernels.scale)

    @device.graph
    def step(y: an.GpuRef, out: an.GpuRef, factor: float) -> None:
        h = device.empty(1000)
        reply = kernel[8, 128](h, y, factor)  # h = y * y * factor
        with pytest.raises(an.InvalidRequest, match="no reply"):
            reply.result()
        kernel.forall(1000)(out, h, 1.0)

    y, out, eager = device.put(_array((1000,))), device.zeros(1000), device.zeros(1000)
    plan = step.plan(y, out, 2.0)
    for factor in (2.0, 0.5, 0.5, 3.0):
        h = device.empty(1000)
        kernel[8, 128](h, y, factor)
        kernel.forall(1000)(eager, h, 1.0)
        plan.tell(y, out=out, factor=factor)
        np.testing.assert_array_equal(out.numpy(), eager.numpy())


def test_kernels_with_checks_are_refused(device: an.Device) -> None:
    kernel = device.kernel(kernels.scale, debug=True)
    x = device.zeros(10)
    with pytest.raises(an.InvalidRequest, match="debug=False"), device.record():
        kernel[1, 32](x, x, 1.0)


def test_float8_and_norms(device: an.Device) -> None:
    weight = device.ones(64)

    def quantised(x: an.GpuRef) -> an.GpuRef:
        normed = device.fused.rms_norm(x, weight)
        return device.float8.dequantize(*device.float8.quantize(normed)[:2])

    @device.graph
    def step(x: an.GpuRef, out: an.GpuRef) -> None:
        device.copy(quantised(x), out=out)

    out = device.zeros((4, 64))
    plan = step.plan(out + 1, out)
    for seed in range(3):
        x = device.put(_array((4, 64), seed))
        plan.tell(x, out=out)
        np.testing.assert_array_equal(out.numpy(), quantised(x).numpy())


def test_converted_numbers_are_converted_for_each_replay(device: an.Device) -> None:
    @device.graph
    def draw(out: an.GpuRef, *, seed: int, offset: int) -> None:
        device.random.normal(out=out, seed=seed, offset=offset)

    out = device.zeros(64)
    plan = draw.plan(out, seed=3, offset=0)
    for seed, offset in ((3, 0), (4, 0), (4, 2**33)):
        plan.tell(out=out, seed=seed, offset=offset)
        np.testing.assert_array_equal(out.numpy(), device.random.normal(64, seed=seed, offset=offset).numpy())
    with pytest.raises(an.InvalidRequest, match="seed"):
        plan.tell(out=out, seed=-1)


def test_an_optimizer_step_counts(device: an.Device) -> None:
    def state() -> list[an.GpuRef]:
        return [device.put(_array((16,), 5)), *(device.zeros(16) for _ in range(2))]

    recorded, eager = state(), state()
    grad = device.put(_array((16,), 6))

    def update(arrays: list[an.GpuRef], lr: Any, step: Any) -> None:
        param, m, v = arrays
        device.fused.adamw(param, grad, m, v, lr=lr, step=step)

    @device.graph
    def train(lr: float, step: int) -> None:
        update(recorded, lr, step)

    plan = train.plan(0.1, 1)
    for step in range(1, 5):
        plan.tell(lr=0.1 / step, step=step)
        update(eager, 0.1 / step, step)
    for one, other in zip(recorded, eager, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
