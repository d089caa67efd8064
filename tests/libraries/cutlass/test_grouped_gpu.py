"""Grouped products by the compiled kernels on a GPU, against float64."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import numpy as np
import pytest

import atomr_native as an

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(importlib.util.find_spec("cutlass_library") is None, reason="nvidia-cutlass is not installed"),
]
RNG = np.random.default_rng(12)
#: Ends of groups: ragged, with empty ones at both sides, longer than a warp reads at once, and rows after the last.
ENDS = {
    "ragged": [0, 5, 5, 133, 300, 300, 511, 512, 512],
    "one": [700],
    "none": [0, 0, 0],
    "many": list(np.cumsum(RNG.integers(0, 9, 70))),
}


@pytest.fixture(scope="module")
def device() -> Iterator[an.Device]:
    with an.System() as system:
        yield system.device("cuda:0")


def sent(device: an.Device, ends: np.ndarray, dtype: str, arch: str, schedule: str | None, odd: int) -> None:
    """Compare a grouped product with an epilogue of every kind with float64; rows after the last keep their content."""
    rows, k, n = int(ends[-1]) + 3, 96 + odd, 136 + odd
    put = device.put
    a, c = (put(RNG.standard_normal(shape).astype("f4"), dtype=dtype) for shape in ((rows, k), (rows, n)))
    b = put(RNG.standard_normal((len(ends), n, k)).astype("f4"), dtype=dtype).mT
    each, column = (RNG.standard_normal(shape).astype("f4") for shape in ((len(ends), 1, n), (rows, 1)))
    scale = RNG.standard_normal((len(ends), 1, 1)).astype("f4")
    out = put(np.full((rows, n), np.nan, "f4"), dtype=dtype)
    config = an.GemmConfig(arch=arch, schedule=schedule, tile=(64, 128, 64) if schedule == "pingpong" else None)
    operands = {"each": put(each), "column": put(column), "scale": put(scale)}
    device.cutlass.grouped_gemm(
        a, b, put(ends), c=c, out=out, operands=operands, config=config, alpha=0.5,
        epilogue="relu(alpha * acc + each) * column * scale + c",
    )  # fmt: skip
    wide_a, wide_b, wide_c = (x.numpy().astype("f8") for x in (a, b, c))
    want = np.full((rows, n), np.nan)
    begin = 0
    for g, end in enumerate(ends):
        value = np.maximum(0.5 * wide_a[begin:end] @ wide_b[g] + each[g], 0) * column[begin:end] * scale[g]
        want[begin:end] = value + wide_c[begin:end]
        begin = int(end)
    tolerance = {"float32": 1e-4, "float16": 4e-3, "bfloat16": 3e-2}[dtype]
    np.testing.assert_allclose(out.numpy().astype("f8"), want, rtol=tolerance, atol=tolerance * 8)


@pytest.mark.parametrize("schedule", ["cooperative", "pingpong"])
def test_warp_specialised_kernels(device: an.Device, schedule: str) -> None:
    for ends in ENDS.values():
        sent(device, np.array(ends, "i4"), "bfloat16", "sm_90a", schedule, 0)


@pytest.mark.parametrize(("dtype", "odd"), [("bfloat16", 0), ("float16", 2), ("float32", 1)])
def test_multistage_kernels(device: an.Device, dtype: str, odd: int) -> None:
    for ends in ENDS.values():
        sent(device, np.array(ends, "i8"), dtype, "sm_80", None, odd)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_recorded_program_gives_the_same_bits(device: an.Device, arch: str) -> None:
    a = device.put(RNG.standard_normal((300, 64)).astype("f4"), dtype="bfloat16")
    b = device.put(RNG.standard_normal((4, 64, 128)).astype("f4"), dtype="bfloat16")
    out, config = device.zeros((300, 128), "bfloat16"), an.GemmConfig(arch=arch)
    ends = device.put(np.array([10, 10, 200, 300], "i4"))
    with device.record() as recording:
        device.cutlass.grouped_gemm(a, b, recording.operand("ends", ends), out=out, config=config)
    for given in ([10, 10, 200, 300], [0, 150, 300, 300], [300, 300, 300, 300], [1, 2, 3, 300]):
        placed = device.put(np.array(given, "i4"))
        recording.plan.tell(ends=placed)
        found = out.numpy().view("u2")
        expected = device.cutlass.grouped_gemm(a, b, placed, config=config).numpy().view("u2")
        np.testing.assert_array_equal(found, expected)
