"""The kernels of these cases, to compile ahead of a run, which then measures from its beginning.

``python -m atomr_native cutlass precompile bench.libraries.cutlass._kernels:requests`` fills the cache on disk.
"""

from __future__ import annotations

from typing import Any

from bench.libraries.cutlass import cases, figures

__all__ = ["requests"]


def _numpy(dtype: str) -> Any:
    from atomr_native.dtypes import DTYPES

    return DTYPES[dtype]


def requests() -> list[Any]:
    """Return a request of each product."""
    import numpy as np

    import atomr_native as an

    def pair(m: int, n: int, k: int, dtype: str) -> dict[str, Any]:
        return {"a": np.empty((m, k), _numpy(dtype)), "b": np.empty((n, k), _numpy(dtype)).T}

    found: list[Any] = []
    for dtype, shapes in figures.SHAPES.items():
        short: dict[str, Any] = {"fast_accum": True, "out_dtype": "bfloat16"} if dtype.startswith("float8") else {}
        found += [an.GemmRequest(**pair(*shape, dtype), epilogue="acc", **short) for shape in shapes]
    square = pair(*(figures.SQUARE,) * 3, "bfloat16")
    gate = np.empty((figures.SQUARE,) * 2, _numpy("bfloat16"))
    for epilogue, reads, schedule in figures.EPILOGUES.values():
        operands = {"gate": gate} if reads else None
        found.append(an.GemmRequest(**square, epilogue=epilogue, operands=operands, config=figures.config_of(schedule)))
    for size in cases.SIZES:
        plain = np.empty((size, size), _numpy("bfloat16"))
        bias = np.empty(size, _numpy("bfloat16"))
        found.append(an.GemmRequest(a=plain, b=plain, epilogue=cases.BIAS, operands={"bias": bias}))
    tokens, experts, n, k = figures.GROUPS
    x, w = np.empty((tokens, k), _numpy("bfloat16")), np.empty((experts, n, k), _numpy("bfloat16"))
    ends = np.empty(experts, np.int32)
    found.append(an.GroupedGemmRequest(a=x, b=w.swapaxes(1, 2), offsets=ends, epilogue="acc"))
    return found
