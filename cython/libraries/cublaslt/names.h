/* The parts of cublasLt.h that names.toml lists; written by `make tables`. */
#ifndef ATOMR_LIBRARIES_CUBLASLT_NAMES_H
#define ATOMR_LIBRARIES_CUBLASLT_NAMES_H

#include "cuda/fields.h"

typedef int cublasStatus_t;
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct cublasLtMatmulDescOpaque_t *cublasLtMatmulDesc_t;
typedef struct cublasLtMatrixLayoutOpaque_t *cublasLtMatrixLayout_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct cublasLtMatmulPreferenceOpaque_t *cublasLtMatmulPreference_t;
typedef int cublasLtMatmulAlgoConfigAttributes_t;
typedef int cublasComputeType_t;
typedef int cudaDataType_t;
typedef int cublasLtMatmulDescAttributes_t;
typedef int cudaDataType;
typedef int cublasLtMatrixLayoutAttribute_t;
typedef int cublasLtMatmulPreferenceAttributes_t;

#define ATOMR_CUBLASLT_CONSTANTS(C)                                                                                   \
    C(CUBLASLT_ORDER_COL, 0)                                                                                          \
    C(CUBLASLT_ORDER_ROW, 1)                                                                                          \
    C(CUBLASLT_MATRIX_LAYOUT_ORDER, 1)                                                                                \
    C(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5)                                                                          \
    C(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6)                                                                 \
    C(CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, 8)                                                                           \
    C(CUBLASLT_BATCH_MODE_POINTER_ARRAY, 1)                                                                           \
    C(CUBLASLT_POINTER_MODE_DEVICE, 1)                                                                                \
    C(CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, 0)                                                                     \
    C(CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F, 3)                                                                  \
    C(CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F, 4)                                                                     \
    C(CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F, 5)                                                                 \
    C(CUBLASLT_MATMUL_DESC_POINTER_MODE, 2)                                                                           \
    C(CUBLASLT_MATMUL_DESC_TRANSA, 3)                                                                                 \
    C(CUBLASLT_MATMUL_DESC_TRANSB, 4)                                                                                 \
    C(CUBLASLT_MATMUL_DESC_EPILOGUE, 7)                                                                               \
    C(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)                                                                           \
    C(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, 10)                                                                     \
    C(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 11)                                                                  \
    C(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 12)                                                                       \
    C(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, 13)                                                             \
    C(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, 17)                                                                       \
    C(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, 18)                                                                       \
    C(CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, 20)                                                                       \
    C(CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, 21)                                                                        \
    C(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, 22)                                                                \
    C(CUBLASLT_MATMUL_DESC_FAST_ACCUM, 25)                                                                            \
    C(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, 26)                                                                        \
    C(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, 31)                                                                          \
    C(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, 32)                                                                          \
    C(CUBLASLT_EPILOGUE_DEFAULT, 1)                                                                                   \
    C(CUBLASLT_EPILOGUE_RELU, 2)                                                                                      \
    C(CUBLASLT_EPILOGUE_BIAS, 4)                                                                                      \
    C(CUBLASLT_EPILOGUE_RELU_BIAS, 6)                                                                                 \
    C(CUBLASLT_EPILOGUE_GELU, 32)                                                                                     \
    C(CUBLASLT_EPILOGUE_GELU_BIAS, 36)                                                                                \
    C(CUBLASLT_EPILOGUE_RELU_AUX, 130)                                                                                \
    C(CUBLASLT_EPILOGUE_RELU_AUX_BIAS, 134)                                                                           \
    C(CUBLASLT_EPILOGUE_DRELU, 136)                                                                                   \
    C(CUBLASLT_EPILOGUE_DRELU_BGRAD, 152)                                                                             \
    C(CUBLASLT_EPILOGUE_GELU_AUX, 160)                                                                                \
    C(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 164)                                                                           \
    C(CUBLASLT_EPILOGUE_DGELU, 192)                                                                                   \
    C(CUBLASLT_EPILOGUE_DGELU_BGRAD, 208)                                                                             \
    C(CUBLASLT_EPILOGUE_BGRADA, 256)                                                                                  \
    C(CUBLASLT_EPILOGUE_BGRADB, 512)                                                                                  \
    C(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)                                                                    \
    C(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3)                                                                  \
    C(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2)                                                                      \
    C(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)                                                                  \
    C(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)                                                                  \
    C(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)                                                                  \
    C(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)                                                                  \
    C(CUBLASLT_ALGO_CONFIG_ID, 0)                                                                                     \
    C(CUBLASLT_ALGO_CONFIG_TILE_ID, 1)                                                                                \
    C(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 2)                                                                             \
    C(CUBLASLT_ALGO_CONFIG_STAGES_ID, 6)                                                                              \
    C(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 8)

enum { ATOMR_CUBLASLT_CONSTANTS(ATOMR_ENUMERATOR) };

#define ATOMR_CUBLASLT_STRUCTS(S)                                                                                     \
    S(cublasLtMatmulAlgo_t, 64)                                                                                       \
    S(cublasLtMatmulHeuristicResult_t, 96)

#define ATOMR_CUBLASLT_FUNCTIONS(F)                                                                                   \
    F(size_t, cublasLtGetVersion, (void))                                                                             \
    F(size_t, cublasLtGetCudartVersion, (void))                                                                       \
    F(const char *, cublasLtGetStatusName, (cublasStatus_t status))                                                   \
    F(const char *, cublasLtGetStatusString, (cublasStatus_t status))                                                 \
    F(cublasStatus_t, cublasLtCreate, (cublasLtHandle_t *lightHandle))                                                \
    F(cublasStatus_t, cublasLtDestroy, (cublasLtHandle_t lightHandle))                                                \
    F(cublasStatus_t, cublasLtMatmul,                                                                                 \
      (cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t computeDesc, const void *alpha, const void *A,              \
       cublasLtMatrixLayout_t Adesc, const void *B, cublasLtMatrixLayout_t Bdesc, const void *beta, const void *C,    \
       cublasLtMatrixLayout_t Cdesc, void *D, cublasLtMatrixLayout_t Ddesc, const cublasLtMatmulAlgo_t *algo,         \
       void *workspace, size_t workspaceSizeInBytes, cudaStream_t stream))                                            \
    F(cublasStatus_t, cublasLtMatmulAlgoGetHeuristic,                                                                 \
      (cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc, cublasLtMatrixLayout_t Adesc,                \
       cublasLtMatrixLayout_t Bdesc, cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,                      \
       cublasLtMatmulPreference_t preference, int requestedAlgoCount,                                                 \
       cublasLtMatmulHeuristicResult_t heuristicResultsArray[], int *returnAlgoCount))                                \
    F(cublasStatus_t, cublasLtMatmulAlgoCheck,                                                                        \
      (cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc, cublasLtMatrixLayout_t Adesc,                \
       cublasLtMatrixLayout_t Bdesc, cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,                      \
       const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result))                                    \
    F(cublasStatus_t, cublasLtMatmulAlgoConfigGetAttribute,                                                           \
      (const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t attr, void *buf, size_t sizeInBytes,    \
       size_t *sizeWritten))                                                                                          \
    F(cublasStatus_t, cublasLtMatmulDescCreate,                                                                       \
      (cublasLtMatmulDesc_t *matmulDesc, cublasComputeType_t computeType, cudaDataType_t scaleType))                  \
    F(cublasStatus_t, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t matmulDesc))                                   \
    F(cublasStatus_t, cublasLtMatmulDescSetAttribute,                                                                 \
      (cublasLtMatmulDesc_t matmulDesc, cublasLtMatmulDescAttributes_t attr, const void *buf, size_t sizeInBytes))    \
    F(cublasStatus_t, cublasLtMatrixLayoutCreate,                                                                     \
      (cublasLtMatrixLayout_t *matLayout, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld))               \
    F(cublasStatus_t, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t matLayout))                                \
    F(cublasStatus_t, cublasLtMatrixLayoutSetAttribute,                                                               \
      (cublasLtMatrixLayout_t matLayout, cublasLtMatrixLayoutAttribute_t attr, const void *buf, size_t sizeInBytes))  \
    F(cublasStatus_t, cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t *pref))                             \
    F(cublasStatus_t, cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t pref))                             \
    F(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute,                                                           \
      (cublasLtMatmulPreference_t pref, cublasLtMatmulPreferenceAttributes_t attr, const void *buf,                   \
       size_t sizeInBytes))

#endif
