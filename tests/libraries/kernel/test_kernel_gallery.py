"""Kernels as Numba's users write them, unchanged: on every device, and compiled for GPUs with and without checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import atomr_native as an

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda.bindings is not installed")

from numba.cuda.random import init_xoroshiro128p_states_cpu, xoroshiro128p_dtype
from numba_kernels import TILE, block_sum, evolve, heat, jacobi, pi, tiled_matmul

from atomr_native.compile import linker
from atomr_native.compile.numba import api, compiler

GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)


@pytest.fixture(scope="module", params=["host", GPU])
def device(request: Any) -> Iterator[an.Device]:
    with an.System() as system:
        yield system.device(request.param)


def test_a_matmul_by_tiles(device: an.Device) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((7, 9), np.float32), rng.random((9, 5), np.float32)
    out = device.zeros((7, 5))
    device.kernel(tiled_matmul)[(2, 2), (TILE, TILE)](device.put(a), device.put(b), out).result(60)
    np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-5)


def test_a_sum_by_blocks(device: an.Device) -> None:
    x, total = device.put(np.arange(100.0)), device.zeros(1, "float64")
    device.kernel(block_sum)[4, 32](x, total).result(60)
    assert total.numpy()[0] == 4950


def test_a_relaxation_that_says_how_far_it_is(device: an.Device) -> None:
    before = np.random.default_rng(0).random((12, 10))
    after, error = device.put(before), device.zeros(1, "float64")
    device.kernel(jacobi)[(2, 2), (8, 8)](device.put(before), after, error).result(60)
    expected = before.copy()
    expected[1:-1, 1:-1] = (before[:-2, 1:-1] + before[2:, 1:-1] + before[1:-1, :-2] + before[1:-1, 2:]) / 4
    np.testing.assert_allclose(after.numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(error.numpy()[0], np.abs(expected - before).max())


def test_the_game_of_life(device: an.Device) -> None:
    cells = np.random.default_rng(0).integers(0, 2, (9, 11), np.uint8)
    one, other = device.put(cells), device.zeros(cells.shape, "uint8")
    plan = device.kernel(evolve)[(2, 2), (8, 8)].plan(one, other)
    for _ in range(2):
        plan.tell(one, other)
        plan.tell(other, one)
    for _ in range(4):
        shifts = [np.roll(cells, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
        around = sum(shift.astype(int) for shift in shifts)
        cells = ((around == 3) | ((around == 2) & (cells == 1))).astype(np.uint8)
    np.testing.assert_array_equal(one.numpy(), cells)


def test_pi_by_chance(device: an.Device) -> None:
    seeds = np.empty(32, xoroshiro128p_dtype)
    init_xoroshiro128p_states_cpu(seeds, np.uint64(1), 0)
    states = an.Records(device.put(seeds.view(np.uint8).reshape(32, -1)), xoroshiro128p_dtype)
    out = device.zeros(32)
    device.kernel(pi)[2, 16](states, 60, out).result(60)
    assert abs(out.numpy().mean() - np.pi) < 0.2


def test_steps_in_one_launch(device: an.Device) -> None:
    """With a barrier of the whole grid after each; the host device runs one block."""
    start = np.zeros(64)
    start[32] = 100
    one, other = device.put(start), device.zeros(64, "float64")
    device.kernel(heat)[1 if device.name == "host" else 4, 64 if device.name == "host" else 16](one, other, 4).result(
        60
    )
    for _ in range(4):
        start[1:-1] = start[1:-1] + 0.25 * (start[:-2] - 2 * start[1:-1] + start[2:])
    np.testing.assert_allclose(one.numpy(), start, rtol=1e-12)


@pytest.mark.parametrize("checks", [False, True])  # each kernel for one capability with, for the other without
def test_they_compile(tools: None, checks: bool) -> None:
    def array(dtype: str, ndim: int) -> Any:
        return api.array_type(np.dtype(dtype), ndim, "C")

    states, number = api.record_array_type(xoroshiro128p_dtype, 1), api.scalar_type("int64")
    kernels: list[tuple[Any, list[Any]]] = [
        (tiled_matmul, [array("f4", 2)] * 3),
        (block_sum, [array("f8", 1)] * 2),
        (jacobi, [array("f8", 2), array("f8", 2), array("f8", 1)]),
        (evolve, [array("u1", 2)] * 2),
        (pi, [states, number, array("f4", 1)]),
        (heat, [array("f8", 1), array("f8", 1), number]),
    ]
    for i, (kernel, types) in enumerate(kernels):
        capability = ((8, 0), (10, 0))[(i + checks) % 2]
        options = compiler.jit_options(kernel)
        made = linker.machine_code(kernel.py_func, tuple(types), capability, options, checks=checks)
        assert made.cooperative == (kernel is heat)
        assert bool(made.sites) == checks
