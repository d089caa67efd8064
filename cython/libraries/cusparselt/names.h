/* The parts of cusparseLt.h that names.toml lists; written by `make tables`. */
#ifndef ATOMR_LIBRARIES_CUSPARSELT_NAMES_H
#define ATOMR_LIBRARIES_CUSPARSELT_NAMES_H

#include "cuda/fields.h"

typedef int libraryPropertyType;
typedef int cusparseStatus_t;
typedef int cudaDataType;
typedef int cusparseOrder_t;
typedef int cusparseLtSparsity_t;
typedef int cusparseOperation_t;
typedef int cusparseComputeType;
typedef int cusparseLtMatmulDescAttribute_t;
typedef int cusparseLtMatmulAlg_t;
typedef int cusparseLtMatmulAlgAttribute_t;
typedef struct CUstream_st *cudaStream_t;

#define ATOMR_CUSPARSELT_CONSTANTS(C)                                                                                 \
    C(CUSPARSE_STATUS_SUCCESS, 0)                                                                                     \
    C(CUSPARSE_STATUS_NOT_INITIALIZED, 1)                                                                             \
    C(CUSPARSE_STATUS_ALLOC_FAILED, 2)                                                                                \
    C(CUSPARSE_STATUS_INVALID_VALUE, 3)                                                                               \
    C(CUSPARSE_STATUS_ARCH_MISMATCH, 4)                                                                               \
    C(CUSPARSE_STATUS_MAPPING_ERROR, 5)                                                                               \
    C(CUSPARSE_STATUS_EXECUTION_FAILED, 6)                                                                            \
    C(CUSPARSE_STATUS_INTERNAL_ERROR, 7)                                                                              \
    C(CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED, 8)                                                                   \
    C(CUSPARSE_STATUS_NOT_SUPPORTED, 10)                                                                              \
    C(CUSPARSE_STATUS_INSUFFICIENT_RESOURCES, 11)                                                                     \
    C(CUSPARSE_OPERATION_NON_TRANSPOSE, 0)                                                                            \
    C(CUSPARSE_OPERATION_TRANSPOSE, 1)                                                                                \
    C(CUSPARSE_ORDER_COL, 1)                                                                                          \
    C(CUSPARSE_ORDER_ROW, 2)                                                                                          \
    C(CUSPARSE_COMPUTE_32I, 0)                                                                                        \
    C(CUSPARSE_COMPUTE_32F, 2)                                                                                        \
    C(CUSPARSELT_SPARSITY_50_PERCENT, 0)                                                                              \
    C(CUSPARSELT_MATMUL_ACTIVATION_RELU, 0)                                                                           \
    C(CUSPARSELT_MATMUL_ALPHA_VECTOR_SCALING, 5)                                                                      \
    C(CUSPARSELT_MATMUL_BETA_VECTOR_SCALING, 6)                                                                       \
    C(CUSPARSELT_MATMUL_BIAS_POINTER, 8)                                                                              \
    C(CUSPARSELT_MATMUL_ALG_DEFAULT, 0)                                                                               \
    C(CUSPARSELT_MATMUL_ALG_CONFIG_ID, 0)                                                                             \
    C(CUSPARSELT_MATMUL_ALG_CONFIG_MAX_ID, 1)                                                                         \
    C(CUDA_R_16F, 2)                                                                                                  \
    C(CUDA_R_16BF, 14)                                                                                                \
    C(CUDA_R_32F, 0)                                                                                                  \
    C(CUDA_R_8I, 3)                                                                                                   \
    C(CUDA_R_32I, 10)                                                                                                 \
    C(CUDA_R_8F_E4M3, 28)                                                                                             \
    C(CUDA_R_8F_E5M2, 29)                                                                                             \
    C(MAJOR_VERSION, 0)                                                                                               \
    C(MINOR_VERSION, 1)                                                                                               \
    C(PATCH_LEVEL, 2)

enum { ATOMR_CUSPARSELT_CONSTANTS(ATOMR_ENUMERATOR) };

#define ATOMR_CUSPARSELT_STRUCTS(S)                                                                                   \
    S(cusparseLtHandle_t, 512)                                                                                        \
    S(cusparseLtMatDescriptor_t, 512)                                                                                 \
    S(cusparseLtMatmulDescriptor_t, 512)                                                                              \
    S(cusparseLtMatmulAlgSelection_t, 512)                                                                            \
    S(cusparseLtMatmulPlan_t, 512)

#define ATOMR_CUSPARSELT_FUNCTIONS(F)                                                                                 \
    F(cusparseStatus_t, cusparseLtGetProperty, (libraryPropertyType propertyType, int *value))                        \
    F(cusparseStatus_t, cusparseLtInit, (cusparseLtHandle_t *handle))                                                 \
    F(cusparseStatus_t, cusparseLtDestroy, (const cusparseLtHandle_t *handle))                                        \
    F(cusparseStatus_t, cusparseLtDenseDescriptorInit,                                                                \
      (const cusparseLtHandle_t *handle, cusparseLtMatDescriptor_t *matDescr, int64_t rows, int64_t cols, int64_t ld, \
       uint32_t alignment, cudaDataType valueType, cusparseOrder_t order))                                            \
    F(cusparseStatus_t, cusparseLtStructuredDescriptorInit,                                                           \
      (const cusparseLtHandle_t *handle, cusparseLtMatDescriptor_t *matDescr, int64_t rows, int64_t cols, int64_t ld, \
       uint32_t alignment, cudaDataType valueType, cusparseOrder_t order, cusparseLtSparsity_t sparsity))             \
    F(cusparseStatus_t, cusparseLtMatDescriptorDestroy, (const cusparseLtMatDescriptor_t *matDescr))                  \
    F(cusparseStatus_t, cusparseLtMatmulDescriptorInit,                                                               \
      (const cusparseLtHandle_t *handle, cusparseLtMatmulDescriptor_t *matmulDescr, cusparseOperation_t opA,          \
       cusparseOperation_t opB, const cusparseLtMatDescriptor_t *matA, const cusparseLtMatDescriptor_t *matB,         \
       const cusparseLtMatDescriptor_t *matC, const cusparseLtMatDescriptor_t *matD,                                  \
       cusparseComputeType computeType))                                                                              \
    F(cusparseStatus_t, cusparseLtMatmulDescSetAttribute,                                                             \
      (const cusparseLtHandle_t *handle, cusparseLtMatmulDescriptor_t *matmulDescr,                                   \
       cusparseLtMatmulDescAttribute_t matmulAttribute, const void *data, size_t dataSize))                           \
    F(cusparseStatus_t, cusparseLtMatmulAlgSelectionInit,                                                             \
      (const cusparseLtHandle_t *handle, cusparseLtMatmulAlgSelection_t *algSelection,                                \
       const cusparseLtMatmulDescriptor_t *matmulDescr, cusparseLtMatmulAlg_t alg))                                   \
    F(cusparseStatus_t, cusparseLtMatmulAlgSelectionDestroy, (const cusparseLtMatmulAlgSelection_t *algSelection))    \
    F(cusparseStatus_t, cusparseLtMatmulAlgSetAttribute,                                                              \
      (const cusparseLtHandle_t *handle, cusparseLtMatmulAlgSelection_t *algSelection,                                \
       cusparseLtMatmulAlgAttribute_t attribute, const void *data, size_t dataSize))                                  \
    F(cusparseStatus_t, cusparseLtMatmulAlgGetAttribute,                                                              \
      (const cusparseLtHandle_t *handle, const cusparseLtMatmulAlgSelection_t *algSelection,                          \
       cusparseLtMatmulAlgAttribute_t attribute, void *data, size_t dataSize))                                        \
    F(cusparseStatus_t, cusparseLtMatmulGetWorkspace,                                                                 \
      (const cusparseLtHandle_t *handle, const cusparseLtMatmulPlan_t *plan, size_t *workspaceSize))                  \
    F(cusparseStatus_t, cusparseLtMatmulPlanInit,                                                                     \
      (const cusparseLtHandle_t *handle, cusparseLtMatmulPlan_t *plan,                                                \
       const cusparseLtMatmulDescriptor_t *matmulDescr, const cusparseLtMatmulAlgSelection_t *algSelection))          \
    F(cusparseStatus_t, cusparseLtMatmulPlanDestroy, (const cusparseLtMatmulPlan_t *plan))                            \
    F(cusparseStatus_t, cusparseLtMatmul,                                                                             \
      (const cusparseLtHandle_t *handle, const cusparseLtMatmulPlan_t *plan, const void *alpha, const void *d_A,      \
       const void *d_B, const void *beta, const void *d_C, void *d_D, void *workspace, cudaStream_t *streams,         \
       int32_t numStreams))                                                                                           \
    F(cusparseStatus_t, cusparseLtSpMMACompressedSize2,                                                               \
      (const cusparseLtHandle_t *handle, const cusparseLtMatDescriptor_t *sparseMatDescr, size_t *compressedSize,     \
       size_t *compressedBufferSize))                                                                                 \
    F(cusparseStatus_t, cusparseLtSpMMACompress2,                                                                     \
      (const cusparseLtHandle_t *handle, const cusparseLtMatDescriptor_t *sparseMatDescr, int isSparseA,              \
       cusparseOperation_t op, const void *d_dense, void *d_compressed, void *d_compressed_buffer,                    \
       cudaStream_t stream))

#endif
