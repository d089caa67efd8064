/* cuBLASLt's C interface, declared without its headers and bound at run time.
 *
 * Names and types are those of cublasLt.h, so that a test can redeclare each line below after the real header.  One
 * table serves CUDA 12 and 13.  Descriptors are made by their Create functions and never lie in our memory: their size
 * differs between versions.  The table is complete or loading fails.
 */
#ifndef ATOMR_CUBLASLT_H
#define ATOMR_CUBLASLT_H

#include <stddef.h>
#include <stdint.h>

typedef int cublasStatus_t; /* enums in the headers: int sized */
typedef int cublasComputeType_t;
typedef int cudaDataType;
typedef int cudaDataType_t;
typedef int cublasLtMatmulDescAttributes_t;
typedef int cublasLtMatrixLayoutAttribute_t;
typedef int cublasLtMatmulPreferenceAttributes_t;
typedef int cublasLtMatmulAlgoConfigAttributes_t;
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct atomr_lt_matmul_desc *cublasLtMatmulDesc_t; /* opaque structs in the header */
typedef struct atomr_lt_matrix_layout *cublasLtMatrixLayout_t;
typedef struct atomr_lt_preference *cublasLtMatmulPreference_t;
typedef struct CUstream_st *cudaStream_t; /* a CUstream */

enum {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_ARCH_MISMATCH = 8,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_NOT_SUPPORTED = 15,

    CUBLAS_OP_N = 0,
    CUBLAS_OP_T = 1,
    CUBLAS_OP_C = 2,

    CUBLAS_COMPUTE_16F = 64,
    CUBLAS_COMPUTE_32F = 68,
    CUBLAS_COMPUTE_32F_PEDANTIC = 69,
    CUBLAS_COMPUTE_32F_FAST_16F = 74,
    CUBLAS_COMPUTE_32F_FAST_16BF = 75,
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
    CUBLAS_COMPUTE_32F_EMULATED_16BFX9 = 78, /* from 12.9 */
    CUBLAS_COMPUTE_64F = 70,
    CUBLAS_COMPUTE_64F_PEDANTIC = 71,
    CUBLAS_COMPUTE_32I = 72,

    CUDA_R_32F = 0,
    CUDA_R_64F = 1,
    CUDA_R_16F = 2,
    CUDA_R_8I = 3,
    CUDA_C_32F = 4,
    CUDA_C_64F = 5,
    CUDA_R_32I = 10,
    CUDA_R_16BF = 14,
    CUDA_R_8F_E4M3 = 28,
    CUDA_R_8F_E5M2 = 29,

    CUBLASLT_ORDER_COL = 0,
    CUBLASLT_ORDER_ROW = 1,

    CUBLASLT_MATRIX_LAYOUT_ORDER = 1,
    CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
    CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6,
    CUBLASLT_MATRIX_LAYOUT_BATCH_MODE = 8,

    CUBLASLT_BATCH_MODE_POINTER_ARRAY = 1,

    CUBLASLT_POINTER_MODE_DEVICE = 1,

    CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F = 0,
    CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F = 3, /* from 12.9, as those that follow */
    CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F = 4,
    CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F = 5,

    CUBLASLT_MATMUL_DESC_POINTER_MODE = 2,
    CUBLASLT_MATMUL_DESC_TRANSA = 3,
    CUBLASLT_MATMUL_DESC_TRANSB = 4,
    CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
    CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
    CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE = 10,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER = 11,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD = 12,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE = 13,
    CUBLASLT_MATMUL_DESC_A_SCALE_POINTER = 17,
    CUBLASLT_MATMUL_DESC_B_SCALE_POINTER = 18,
    CUBLASLT_MATMUL_DESC_D_SCALE_POINTER = 20,
    CUBLASLT_MATMUL_DESC_AMAX_D_POINTER = 21,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE = 22,
    CUBLASLT_MATMUL_DESC_FAST_ACCUM = 25,
    CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26,
    CUBLASLT_MATMUL_DESC_A_SCALE_MODE = 31, /* from 12.8 */
    CUBLASLT_MATMUL_DESC_B_SCALE_MODE = 32,

    CUBLASLT_EPILOGUE_DEFAULT = 1,
    CUBLASLT_EPILOGUE_RELU = 2,
    CUBLASLT_EPILOGUE_BIAS = 4,
    CUBLASLT_EPILOGUE_RELU_BIAS = 6,
    CUBLASLT_EPILOGUE_GELU = 32,
    CUBLASLT_EPILOGUE_GELU_BIAS = 36,
    CUBLASLT_EPILOGUE_RELU_AUX = 130,
    CUBLASLT_EPILOGUE_RELU_AUX_BIAS = 134,
    CUBLASLT_EPILOGUE_DRELU = 136,
    CUBLASLT_EPILOGUE_DRELU_BGRAD = 152,
    CUBLASLT_EPILOGUE_GELU_AUX = 160,
    CUBLASLT_EPILOGUE_GELU_AUX_BIAS = 164,
    CUBLASLT_EPILOGUE_DGELU = 192,
    CUBLASLT_EPILOGUE_DGELU_BGRAD = 208,
    CUBLASLT_EPILOGUE_BGRADA = 256,
    CUBLASLT_EPILOGUE_BGRADB = 512,

    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8,

    CUBLASLT_ALGO_CONFIG_ID = 0,
    CUBLASLT_ALGO_CONFIG_TILE_ID = 1,
    CUBLASLT_ALGO_CONFIG_SPLITK_NUM = 2,
    CUBLASLT_ALGO_CONFIG_STAGES_ID = 6,
    CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID = 8
};

typedef struct {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;

typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;

#define ATOMR_CUBLASLT_FUNCTIONS(F)                                                                                   \
    F(size_t, cublasLtGetVersion, (void))                                                                             \
    F(size_t, cublasLtGetCudartVersion, (void))                                                                       \
    F(const char *, cublasLtGetStatusName, (cublasStatus_t status))                                                   \
    F(const char *, cublasLtGetStatusString, (cublasStatus_t status))                                                 \
    F(cublasStatus_t, cublasLtCreate, (cublasLtHandle_t * lightHandle))                                               \
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
      (cublasLtMatmulDesc_t * matmulDesc, cublasComputeType_t computeType, cudaDataType_t scaleType))                 \
    F(cublasStatus_t, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t matmulDesc))                                   \
    F(cublasStatus_t, cublasLtMatmulDescSetAttribute,                                                                 \
      (cublasLtMatmulDesc_t matmulDesc, cublasLtMatmulDescAttributes_t attr, const void *buf, size_t sizeInBytes))    \
    F(cublasStatus_t, cublasLtMatrixLayoutCreate,                                                                     \
      (cublasLtMatrixLayout_t * matLayout, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld))              \
    F(cublasStatus_t, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t matLayout))                                \
    F(cublasStatus_t, cublasLtMatrixLayoutSetAttribute,                                                               \
      (cublasLtMatrixLayout_t matLayout, cublasLtMatrixLayoutAttribute_t attr, const void *buf, size_t sizeInBytes))  \
    F(cublasStatus_t, cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t * pref))                            \
    F(cublasStatus_t, cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t pref))                             \
    F(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute,                                                           \
      (cublasLtMatmulPreference_t pref, cublasLtMatmulPreferenceAttributes_t attr, const void *buf,                   \
       size_t sizeInBytes))

typedef struct {
#define F(result, name, arguments) result(*name) arguments;
    ATOMR_CUBLASLT_FUNCTIONS(F)
#undef F
    size_t version;  /* of the library: 130102 is 13.1.2, and 120900 is 12.9.0 */
    char file[1024]; /* what was opened, as the dynamic loader names it */
} atomr_cublaslt;

/* The table, bound at the first call that succeeds; later calls return it whatever their `path`.
 *
 * What is opened: the environment's ATOMR_NATIVE_CUBLASLT, else `path`, else libcublasLt.so.13, then .12; a file that
 * was named is the only one tried.  NULL, with a reason in `why`, if none can be opened, or if it lacks functions.
 * Thread-safe.  Needs no GPU. */
const atomr_cublaslt *atomr_cublaslt_load(const char *path, char *why, size_t size);

#endif
