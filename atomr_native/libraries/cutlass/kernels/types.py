"""Types and layouts of CUTLASS's templates, by the names of dtypes."""

from __future__ import annotations

from typing import Final

__all__ = ["BITS", "CPP", "LAYOUTS"]

#: C++ types, by dtype.
CPP: Final = {
    "float64": "double",
    "float32": "float",
    "tfloat32": "cutlass::tfloat32_t",
    "float16": "cutlass::half_t",
    "bfloat16": "cutlass::bfloat16_t",
    "float8_e4m3fn": "cutlass::float_e4m3_t",
    "float8_e5m2": "cutlass::float_e5m2_t",
    "int32": "int32_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
}
#: Size of an element in bits, by dtype.
BITS: Final = {
    "float64": 64, "float32": 32, "tfloat32": 32, "int32": 32, "float16": 16, "bfloat16": 16, "float8_e4m3fn": 8,
    "float8_e5m2": 8, "int8": 8, "uint8": 8,
}  # fmt: skip
LAYOUTS: Final = {"row": "cutlass::layout::RowMajor", "column": "cutlass::layout::ColumnMajor"}
