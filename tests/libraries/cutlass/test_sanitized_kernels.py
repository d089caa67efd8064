"""A kernel of each family under NVIDIA's compute-sanitizer: none touches memory that it was not given."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from sanitizer import run_sanitized

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("cutlass_library") is None, reason="nvidia-cutlass is not installed"),
]

#: Runs with the device in this very process; extents are no multiples of a tile.
PROGRAM = """
import numpy as np
import atomr_native as an

rng = np.random.default_rng(0)

with an.System(isolation="thread", memory_limit=1 << 30) as system:
    device = system.device("cuda:0")
    send, results = device.cutlass, []

    def put(*shape, dtype="float16"):
        return device.put(rng.standard_normal(shape).astype("f4"), dtype=dtype)

    for arch in ("sm_80", "sm_90a"):
        for how in ({}, {"splits": 3}):
            config = an.GemmConfig(arch=arch, **how)
            a, b, row = put(137, 328), put(328, 200), put(200, dtype="float32")
            results.append(send.gemm(a, b, epilogue="relu(acc + row)", operands={"row": row}, config=config))
        ends = device.put(np.array([0, 5, 5, 131, 137], "i4"))
        results.append(send.grouped_gemm(put(137, 72), put(5, 72, 136), ends, config=an.GemmConfig(arch=arch)))
    weights, scale = device.put(rng.integers(-9, 9, (200, 256)).astype("i1")).T, put(4, 200)
    text = "pre = acc + row; most = max(pre, 0); rows = sum(pre, 1); out = relu(pre)"
    stores = {"pre": "float16", "most": "float32", "rows": "float32"}
    results += send.gemm(put(137, 256), weights, b_scale=scale, epilogue=text, operands={"row": row}, outputs=stores)
    x, w = put(3, 13, 11, 24), put(40, 3, 3, 24)
    for how in ({"padding": 1}, {"stride": 2}):
        y = send.convolution(x, w, **how)
        results += [y, send.convolution_backward_data(y, w, (13, 11), **how)]
        results.append(send.convolution_backward_filter(x, y, (3, 3), config=an.GemmConfig(splits=3), **how))
    for result in results:
        result.wait()
print("kernels:", len(results))
"""


def test_kernels_touch_nothing_else(tmp_path: Path) -> None:
    assert "kernels: 16" in run_sanitized(PROGRAM, tmp_path, timeout=580)
