"""Messages of float8 quantisation, for the test that records every operation."""

from __future__ import annotations

from recorded_cases import Case, case

CASES: dict[str, Case] = {
    "quantize": case(lambda d, _, x: d.float8.quantize(x), "x"),
    "dequantize": case(lambda d, _, x: d.float8.dequantize(*d.float8.quantize(x)[:2]), "x"),
}  # fmt: skip
#: Kernels that are compiled for a GPU.
NOT_ON_FAKE = {"quantize", "dequantize"}
