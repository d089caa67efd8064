"""Transforms under NVIDIA's compute-sanitizer: no kernel, cuFFT's or ours, touches memory that is not its."""

from __future__ import annotations

from pathlib import Path

import pytest
from sanitizer import run_sanitized

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

#: Runs with the device in this very process, as the sanitizer wants it.
PROGRAM = """
import numpy as np
import atomr_native as an
from fft_reference import random_array

rng = np.random.default_rng(0)

def put(shape, dtype="complex64"):
    return device.put(random_array(rng, shape, dtype))

with an.System(isolation="thread", memory_limit=1 << 30) as system:
    device = system.device("cuda:0")
    fft, results = device.fft, []
    for n in (1, 2, 13, 64, 997):
        results += [fft.fft(put((3, n))), fft.rfft(put((3, n), "float32")), fft.irfft(put((3, n // 2 + 1)), n)]
        results += [fft.fft(put((n, 3)), axis=0), fft.fft(put((3, n)), n + 5), fft.rfft(put((3, n), "int16"))]
    results += [fft.fftn(put((3, 4, 5, 6))), fft.irfft2(put((4, 33))[::-1, ::2]), fft.convolve(put((7,)), put((4,)))]
    results += [fft.half("rfft", put((3, 64), "float16")), fft.half("fft", put((3, 12, 2), "bfloat16"))]
    results += [fft.stft(put((2, 100), "float32"), 16), fft.istft(put((2, 9, 30)), 16), fft.fftshift(put((3, 5)))]
    results.append(fft.dct(put((3, 17), "float32")))
    results.append(fft.transform("rfft", put((3, 30), "float32"), load="2 * value", store="conj(value)"))
    results += [fft.rfft(put((2048, 140), "int16")), fft.irfft(put((2048, 66))), fft.ifft(put((40, 130, 60)), axis=1)]
    results += [fft.half("rfft", put((4096, 130), "float16")), fft.stft(put((4, 8192), "float32"), 64)]
    for one in results:
        one.wait()
print("transforms:", len(results))
"""


def test_transforms_touch_nothing_else(tmp_path: Path) -> None:
    assert "transforms: 45" in run_sanitized(PROGRAM, tmp_path)
