"""cuBLASLt's numbers, and which of them stand for our names."""

from __future__ import annotations

from typing import Final

__all__ = ["COMPUTE", "CONSTANTS", "SCALE_MODES", "TYPES"]

#: cuBLASLt's numbers, by the names of its headers, with which a test compares them.
CONSTANTS: Final[dict[str, int]] = {
    "CUDA_R_32F": 0,
    "CUDA_R_64F": 1,
    "CUDA_R_16F": 2,
    "CUDA_R_8I": 3,
    "CUDA_C_32F": 4,
    "CUDA_C_64F": 5,
    "CUDA_R_32I": 10,
    "CUDA_R_16BF": 14,
    "CUDA_R_8F_E4M3": 28,
    "CUDA_R_8F_E5M2": 29,
    "CUBLAS_COMPUTE_16F": 64,
    "CUBLAS_COMPUTE_32F": 68,
    "CUBLAS_COMPUTE_32F_PEDANTIC": 69,
    "CUBLAS_COMPUTE_64F": 70,
    "CUBLAS_COMPUTE_64F_PEDANTIC": 71,
    "CUBLAS_COMPUTE_32I": 72,
    "CUBLAS_COMPUTE_32F_FAST_16F": 74,
    "CUBLAS_COMPUTE_32F_FAST_16BF": 75,
    "CUBLAS_COMPUTE_32F_FAST_TF32": 77,
    "CUBLAS_COMPUTE_32F_EMULATED_16BFX9": 78,
    "CUBLAS_OP_N": 0,
    "CUBLAS_OP_T": 1,
    "CUBLAS_OP_C": 2,
    "CUBLASLT_ORDER_COL": 0,
    "CUBLASLT_ORDER_ROW": 1,
    "CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F": 0,
    "CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F": 3,
    "CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F": 4,
    "CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F": 5,
    "CUBLASLT_EPILOGUE_DEFAULT": 1,
    "CUBLASLT_EPILOGUE_RELU": 2,
    "CUBLASLT_EPILOGUE_BIAS": 4,
    "CUBLASLT_EPILOGUE_RELU_BIAS": 6,
    "CUBLASLT_EPILOGUE_GELU": 32,
    "CUBLASLT_EPILOGUE_GELU_BIAS": 36,
    "CUBLASLT_EPILOGUE_RELU_AUX": 130,
    "CUBLASLT_EPILOGUE_RELU_AUX_BIAS": 134,
    "CUBLASLT_EPILOGUE_DRELU": 136,
    "CUBLASLT_EPILOGUE_DRELU_BGRAD": 152,
    "CUBLASLT_EPILOGUE_GELU_AUX": 160,
    "CUBLASLT_EPILOGUE_GELU_AUX_BIAS": 164,
    "CUBLASLT_EPILOGUE_DGELU": 192,
    "CUBLASLT_EPILOGUE_DGELU_BGRAD": 208,
    "CUBLASLT_EPILOGUE_BGRADA": 256,
    "CUBLASLT_EPILOGUE_BGRADB": 512,
}

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
