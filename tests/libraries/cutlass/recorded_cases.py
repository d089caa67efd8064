"""Messages of CUTLASS, for the test that records every operation."""

from __future__ import annotations

import numpy as np
from recorded_cases import Case, case

CASES: dict[str, Case] = {
    "fused convolution": case(
        lambda d, _, heads, x, s: d.cutlass.convolution(
            heads, x.reshape(8, 1, 1, 8), epilogue="relu(acc * s)", operands={"s": s}
        ),
        "heads x", s=(2.0, 0.5),
    ),
    "gemm with a tree": case(
        lambda d, _, x, y, row, s: d.cutlass.gemm(
            x, y, epilogue="pre = acc + row * s; out = relu(pre)", operands={"row": row, "s": s},
            outputs={"pre": "float32"},
        ),
        "x y row", s=(2.0, 0.5),
    ),
    "grouped gemm": case(
        lambda d, ends, x, group: d.cutlass.grouped_gemm(x, group, ends), "x group",
        lambda d: d.put(np.array([1, 8], "int32")),
    ),
}  # fmt: skip
#: Kernels that are compiled for a GPU.
NOT_ON_FAKE = {"fused convolution", "gemm with a tree", "grouped gemm"}
