"""Messages of cuDNN under NVIDIA's compute-sanitizer: no kernel touches memory that is not its."""

from __future__ import annotations

from pathlib import Path

import pytest
from sanitizer import run_sanitized

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

#: Runs with the device in this very process, as the sanitizer wants it.
PROGRAM = """
import numpy as np
import atomr_native as an

with an.System(isolation="thread", memory_limit=1 << 30) as system:
    device = system.device("cuda:0")
    dnn, results = device.cudnn, []
    x, w, v = device.ones((2, 8, 7, 5), "float16"), device.ones((8, 8, 3, 3), "float16"), device.ones(8, "float16")
    y = dnn.convolution(x, w, v, padding=1, activation="relu")
    results += [y, dnn.convolution_backward_data(y, w, (7, 5), padding=1)]
    results += [dnn.convolution_backward_filter(x, y, 3, padding=1), dnn.softmax(y, 1)]
    pooled, index = dnn.pooling(y, "max", 3, stride=2, padding=1, index=True)
    results += [pooled, dnn.pooling_backward(pooled, (7, 5), "max", 3, stride=2, padding=1, index=index)]
    one, zero = device.ones(8, "float32"), device.zeros(8, "float32")
    for kind in ("batch", "instance"):
        normed, mean, inverse = dnn.norm(kind, x, one, zero)
        results += dnn.norm_backward(kind, normed, x, one, inverse, mean)
    for shape, last in (((2, 8, 7, 5), False), ((2, 7, 5, 8), True)):
        x, how = device.ones(shape, "float16"), {"groups": 2, "channels_last": last}
        normed, mean, inverse = dnn.norm("group", x, one, zero, **how)
        results += dnn.norm_backward("group", normed, x, one, inverse, mean, **how)
    x = device.ones((3, 5, 7, 2), "bfloat16")
    running = {"running_mean": device.zeros(5, "float32"), "running_var": device.ones(5, "float32")}
    normed, mean, inverse = dnn.norm("batch", x, one[:5], zero[:5], **running)
    results += dnn.norm_backward("batch", normed, x, one[:5], inverse, mean)
    q, how = device.ones((2, 4, 33, 64), "float16"), {"mask": "causal"}
    found, statistics = dnn.attention(q, q, q, statistics=True, **how)
    results += dnn.attention_backward(q, q, q, found, statistics, found, **how)
    ends = device.put(np.array([33, 0], "int32"))
    how |= {"q_lengths": ends, "kv_lengths": ends}
    found, statistics = dnn.attention(q, q, q, statistics=True, **how)
    results += dnn.attention_backward(q, q, q, found, statistics, found, **how)
    tokens, offsets = device.ones((40, 4, 64), "float16"), device.put(np.array([0, 7, 7, 40], "int32"))
    packed = {"layout": "thd", "q_offsets": offsets, "kv_offsets": offsets, "max_queries": 33, "max_keys": 33}
    results.append(dnn.attention(tokens, tokens, tokens, **packed))
    codes = device.ones((1, 2, 32, 128), "float8_e4m3fn")
    scales = {f"{name}_scale": device.ones(1, "float32") for name in ("q", "k", "v", "weights", "out")}
    results += dnn.attention_float8(codes, codes, codes, **scales)
    labels, counts = device.ones((2, 3), "int32"), device.put(np.array([3, 1], "int32"))
    steps = device.put(np.array([9, 5], "int32"))
    results += dnn.ctc_loss(device.ones((9, 2, 5), "float32"), labels, steps, counts, gradient=True)
    for result in results:
        result.wait()
print("arrays:", len(results))
"""


def test_kernels_touch_nothing_else(tmp_path: Path) -> None:
    assert "arrays: 33" in run_sanitized(PROGRAM, tmp_path)
