"""Messages of Fourier transforms, for the test that records every operation."""

from __future__ import annotations

import importlib.util

from recorded_cases import Case, case

NUMBA = importlib.util.find_spec("numba_cuda") is not None

CASES: dict[str, Case] = {
    "transform": case(lambda d, _, x: d.fft.irfft(d.fft.rfft(x), n=8), "x"),
    **({"mapped transform": case(lambda d, _, x: d.fft.transform("fft", x, load="value * 2"), "x")} if NUMBA else {}),
    "half transform": case(lambda d, _, half: d.fft.half("fft", half), "half"),
    "cosines": case(lambda d, _, x: d.fft.dct(x), "x"),
    "frames": case(lambda d, _, signal: d.fft.istft(d.fft.stft(signal, 16), 16), "signal"),
    "shift": case(lambda d, _, x: d.fft.fftshift(x), "x"),
}  # fmt: skip
#: Kernels that are compiled for a GPU.
NOT_ON_FAKE = {"mapped transform"}
NEVER = set() if NUMBA else {"fft.mapped"}
