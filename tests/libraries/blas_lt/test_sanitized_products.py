"""Products under NVIDIA's compute-sanitizer: no kernel, the library's or ours, touches memory that it was not given."""

from __future__ import annotations

from pathlib import Path

import pytest
from sanitizer import run_sanitized

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

#: Runs with the device in this very process; memory of each array is an allocation's own range, so that reads beyond
#: it are seen at least where they leave the segment.
PROGRAM = """
import numpy as np
import atomr_native as an
from matmul_reference import block_scales, random

rng = np.random.default_rng(0)

def put(shape, dtype="float32"):
    return device.put(random(rng, shape, dtype))

with an.System(isolation="thread", memory_limit=1 << 30) as system:
    device = system.device("cuda:0")
    lt, results = device.blas_lt, []

    def matmul(a, b, **options):
        results.append(lt.matmul(a, b, **options))
        return results[-1]

    for dtype in ("float32", "bfloat16", "float64"):
        x, w, bias = put((13, 37), dtype), put((37, 131), dtype), put((131,), dtype)
        forward = {name: matmul(x, w, bias=bias, epilogue=f"{name}_aux_bias") for name in ("relu", "gelu")}
        for name, stored in forward.items():
            matmul(x, w, aux=stored.aux, epilogue=f"d{name}_bgrad")
    matmul(put((7, 13), "int8"), put((13, 5), "int8"), out_dtype="int8", alpha=0.01)
    matmul(put((3, 1, 16, 48), "complex64"), put((2, 48, 8), "complex64"))  # by addresses
    matmul(put((0, 4, 8)), put((8, 5)), epilogue="gelu_aux")
    matmul(put((4, 0)), put((0, 5)), amax=True)
    a, b = put((128, 256), "float8_e4m3fn"), put((64, 256), "float8_e4m3fn")
    for of_a, of_b in (("tensor", "tensor"), ("outer", "outer"), ("vec128", "vec128")):
        scales = [block_scales(rng, *one, 256) for one in (("a", of_a, 128), ("b", of_b, 64))]
        placed = [device.put(s) if s.flags.c_contiguous else device.put(s.T.copy()).T for s in scales]
        matmul(a, b, trans_b=True, a_scale=placed[0], b_scale=placed[1])
    results += lt.grouped([put((m, 16)) for m in (5, 8)], [put((16, 24)) for _ in range(2)])
    results.append(device.blas.trsm(device.put(np.stack([np.eye(16)] * 4)), put((4, 16, 3), "float64")))
    for result in results:
        for one in result if isinstance(result, tuple) else (result,):
            if one is not None:
                one.wait()
print("products:", len(results))
"""


def test_products_touch_nothing_else(tmp_path: Path) -> None:
    assert "products: 22" in run_sanitized(PROGRAM, tmp_path)
