"""Which of cuBLASLt's numbers stand for our names."""

from __future__ import annotations

from typing import Final

from ...._lib.cublaslt import CONSTANTS

__all__ = ["COMPUTE", "SCALE_MODES", "TYPES"]

#: dtype: (its cudaDataType, bytes of an element).
TYPES: Final[dict[str, tuple[int, int]]] = {
    "float64": (CONSTANTS["CUDA_R_64F"], 8),
    "float32": (CONSTANTS["CUDA_R_32F"], 4),
    "float16": (CONSTANTS["CUDA_R_16F"], 2),
    "bfloat16": (CONSTANTS["CUDA_R_16BF"], 2),
    "int8": (CONSTANTS["CUDA_R_8I"], 1),
    "int32": (CONSTANTS["CUDA_R_32I"], 4),
    "complex64": (CONSTANTS["CUDA_C_32F"], 8),
    "complex128": (CONSTANTS["CUDA_C_64F"], 16),
    "float8_e4m3fn": (CONSTANTS["CUDA_R_8F_E4M3"], 1),
    "float8_e5m2": (CONSTANTS["CUDA_R_8F_E5M2"], 1),
}

#: Compute mode: cublasComputeType_t.  Those of complex matmuls are the ones of their parts.
COMPUTE: Final[dict[str, str]] = {
    "float64": "CUBLAS_COMPUTE_64F",
    "float64_pedantic": "CUBLAS_COMPUTE_64F_PEDANTIC",
    "float32": "CUBLAS_COMPUTE_32F",
    "float32_pedantic": "CUBLAS_COMPUTE_32F_PEDANTIC",
    "tf32": "CUBLAS_COMPUTE_32F_FAST_TF32",
    "bfloat16": "CUBLAS_COMPUTE_32F_FAST_16BF",
    "float16": "CUBLAS_COMPUTE_32F_FAST_16F",
    "bfloat16x9": "CUBLAS_COMPUTE_32F_EMULATED_16BFX9",
    "float16_accumulate": "CUBLAS_COMPUTE_16F",
    "int32": "CUBLAS_COMPUTE_32I",
    "complex64": "CUBLAS_COMPUTE_32F",
    "complex64_pedantic": "CUBLAS_COMPUTE_32F_PEDANTIC",
    "complex128": "CUBLAS_COMPUTE_64F",
    "complex128_pedantic": "CUBLAS_COMPUTE_64F_PEDANTIC",
}

#: Kind of scale: cublasLtMatmulMatrixScale_t.
SCALE_MODES: Final[dict[str, int]] = {
    "none": 0,
    "tensor": CONSTANTS["CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F"],
    "outer": CONSTANTS["CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F"],
    "vec128": CONSTANTS["CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F"],
    "blk128": CONSTANTS["CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F"],
}
