/* The parts of cublas_v2.h that cublas_constants.toml lists; written by `make tables`. */
#ifndef ATOMR_LIBRARIES_CUBLAS_CONSTANTS_H
#define ATOMR_LIBRARIES_CUBLAS_CONSTANTS_H

#include "cuda/fields.h"

#define ATOMR_CUBLAS_SHARED_CONSTANTS(C)                                                                              \
    C(CUBLAS_STATUS_SUCCESS, 0)                                                                                       \
    C(CUBLAS_STATUS_NOT_INITIALIZED, 1)                                                                               \
    C(CUBLAS_STATUS_ALLOC_FAILED, 3)                                                                                  \
    C(CUBLAS_STATUS_INVALID_VALUE, 7)                                                                                 \
    C(CUBLAS_STATUS_ARCH_MISMATCH, 8)                                                                                 \
    C(CUBLAS_STATUS_EXECUTION_FAILED, 13)                                                                             \
    C(CUBLAS_STATUS_INTERNAL_ERROR, 14)                                                                               \
    C(CUBLAS_STATUS_NOT_SUPPORTED, 15)                                                                                \
    C(CUBLAS_OP_N, 0)                                                                                                 \
    C(CUBLAS_OP_T, 1)                                                                                                 \
    C(CUBLAS_OP_C, 2)                                                                                                 \
    C(CUBLAS_COMPUTE_16F, 64)                                                                                         \
    C(CUBLAS_COMPUTE_32F, 68)                                                                                         \
    C(CUBLAS_COMPUTE_32F_PEDANTIC, 69)                                                                                \
    C(CUBLAS_COMPUTE_32F_FAST_16F, 74)                                                                                \
    C(CUBLAS_COMPUTE_32F_FAST_16BF, 75)                                                                               \
    C(CUBLAS_COMPUTE_32F_FAST_TF32, 77)                                                                               \
    C(CUBLAS_COMPUTE_32F_EMULATED_16BFX9, 78)                                                                         \
    C(CUBLAS_COMPUTE_64F, 70)                                                                                         \
    C(CUBLAS_COMPUTE_64F_PEDANTIC, 71)                                                                                \
    C(CUBLAS_COMPUTE_32I, 72)                                                                                         \
    C(CUDA_R_32F, 0)                                                                                                  \
    C(CUDA_R_64F, 1)                                                                                                  \
    C(CUDA_R_16F, 2)                                                                                                  \
    C(CUDA_R_8I, 3)                                                                                                   \
    C(CUDA_C_32F, 4)                                                                                                  \
    C(CUDA_C_64F, 5)                                                                                                  \
    C(CUDA_R_32I, 10)                                                                                                 \
    C(CUDA_R_16BF, 14)                                                                                                \
    C(CUDA_R_8F_E4M3, 28)                                                                                             \
    C(CUDA_R_8F_E5M2, 29)

enum { ATOMR_CUBLAS_SHARED_CONSTANTS(ATOMR_ENUMERATOR) };

#endif
