/* The parts of cufftXt.h that names.toml lists; written by `make tables`. */
#ifndef ATOMR_LIBRARIES_CUFFT_NAMES_H
#define ATOMR_LIBRARIES_CUFFT_NAMES_H

#include "cuda/fields.h"

typedef int cufftHandle;
typedef int cufftResult;
typedef struct CUstream_st *cudaStream_t;
typedef int cudaDataType;
typedef int cufftXtCallbackType;

#define ATOMR_CUFFT_CONSTANTS(C)                                                                                      \
    C(CUFFT_SUCCESS, 0)                                                                                               \
    C(CUFFT_INVALID_PLAN, 1)                                                                                          \
    C(CUFFT_ALLOC_FAILED, 2)                                                                                          \
    C(CUFFT_INVALID_TYPE, 3)                                                                                          \
    C(CUFFT_INVALID_VALUE, 4)                                                                                         \
    C(CUFFT_INTERNAL_ERROR, 5)                                                                                        \
    C(CUFFT_EXEC_FAILED, 6)                                                                                           \
    C(CUFFT_SETUP_FAILED, 7)                                                                                          \
    C(CUFFT_INVALID_SIZE, 8)                                                                                          \
    C(CUFFT_UNALIGNED_DATA, 9)                                                                                        \
    C(CUFFT_INVALID_DEVICE, 11)                                                                                       \
    C(CUFFT_NO_WORKSPACE, 13)                                                                                         \
    C(CUFFT_NOT_IMPLEMENTED, 14)                                                                                      \
    C(CUFFT_NOT_SUPPORTED, 16)                                                                                        \
    C(CUFFT_FORWARD, -1)                                                                                              \
    C(CUFFT_INVERSE, 1)                                                                                               \
    C(CUDA_R_16F, 2)                                                                                                  \
    C(CUDA_R_16BF, 14)                                                                                                \
    C(CUDA_R_32F, 0)                                                                                                  \
    C(CUDA_R_64F, 1)                                                                                                  \
    C(CUDA_C_16F, 6)                                                                                                  \
    C(CUDA_C_16BF, 15)                                                                                                \
    C(CUDA_C_32F, 4)                                                                                                  \
    C(CUDA_C_64F, 5)                                                                                                  \
    C(CUFFT_CB_LD_COMPLEX, 0)                                                                                         \
    C(CUFFT_CB_LD_COMPLEX_DOUBLE, 1)                                                                                  \
    C(CUFFT_CB_LD_REAL, 2)                                                                                            \
    C(CUFFT_CB_LD_REAL_DOUBLE, 3)                                                                                     \
    C(CUFFT_CB_ST_COMPLEX, 4)                                                                                         \
    C(CUFFT_CB_ST_COMPLEX_DOUBLE, 5)                                                                                  \
    C(CUFFT_CB_ST_REAL, 6)                                                                                            \
    C(CUFFT_CB_ST_REAL_DOUBLE, 7)

enum { ATOMR_CUFFT_CONSTANTS(ATOMR_ENUMERATOR) };

#define ATOMR_CUFFT_FUNCTIONS(F)                                                                                      \
    F(cufftResult, cufftCreate, (cufftHandle *handle))                                                                \
    F(cufftResult, cufftDestroy, (cufftHandle plan))                                                                  \
    F(cufftResult, cufftGetVersion, (int *version))                                                                   \
    F(cufftResult, cufftSetAutoAllocation, (cufftHandle plan, int autoAllocate))                                      \
    F(cufftResult, cufftSetStream, (cufftHandle plan, cudaStream_t stream))                                           \
    F(cufftResult, cufftSetWorkArea, (cufftHandle plan, void *workArea))                                              \
    F(cufftResult, cufftXtMakePlanMany,                                                                               \
      (cufftHandle plan, int rank, long long int *n, long long int *inembed, long long int istride,                   \
       long long int idist, cudaDataType inputtype, long long int *onembed, long long int ostride,                    \
       long long int odist, cudaDataType outputtype, long long int batch, size_t *workSize,                           \
       cudaDataType executiontype))                                                                                   \
    F(cufftResult, cufftXtExec, (cufftHandle plan, void *input, void *output, int direction))

#define ATOMR_CUFFT_OPTIONAL(F)                                                                                       \
    F(cufftResult, cufftXtSetJITCallback,                                                                             \
      (cufftHandle plan, const char *lto_callback_symbol_name, const void *lto_callback_fatbin,                       \
       size_t lto_callback_fatbin_size, cufftXtCallbackType type, void **caller_info))

#endif
