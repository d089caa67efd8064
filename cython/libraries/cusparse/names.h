/* The parts of cusparse.h that names.toml lists; written by `make tables`. */
#ifndef ATOMR_LIBRARIES_CUSPARSE_NAMES_H
#define ATOMR_LIBRARIES_CUSPARSE_NAMES_H

#include "cuda/fields.h"

typedef int libraryPropertyType;
typedef int cusparseStatus_t;
typedef struct cusparseContext *cusparseHandle_t;
typedef struct CUstream_st *cudaStream_t;
typedef int cusparsePointerMode_t;
typedef struct cusparseSpMatDescr *cusparseSpMatDescr_t;
typedef int cusparseIndexType_t;
typedef int cusparseIndexBase_t;
typedef int cudaDataType;
typedef const struct cusparseSpMatDescr *cusparseConstSpMatDescr_t;
typedef struct cusparseDnVecDescr *cusparseDnVecDescr_t;
typedef const struct cusparseDnVecDescr *cusparseConstDnVecDescr_t;
typedef struct cusparseDnMatDescr *cusparseDnMatDescr_t;
typedef int cusparseOrder_t;
typedef const struct cusparseDnMatDescr *cusparseConstDnMatDescr_t;
typedef int cusparseOperation_t;
typedef int cusparseSpMVAlg_t;
typedef int cusparseSDDMMAlg_t;

#define ATOMR_CUSPARSE_CONSTANTS(C)                                                                                   \
    C(CUSPARSE_STATUS_SUCCESS, 0)                                                                                     \
    C(CUSPARSE_STATUS_NOT_INITIALIZED, 1)                                                                             \
    C(CUSPARSE_STATUS_ALLOC_FAILED, 2)                                                                                \
    C(CUSPARSE_STATUS_INVALID_VALUE, 3)                                                                               \
    C(CUSPARSE_STATUS_ARCH_MISMATCH, 4)                                                                               \
    C(CUSPARSE_STATUS_MAPPING_ERROR, 5)                                                                               \
    C(CUSPARSE_STATUS_EXECUTION_FAILED, 6)                                                                            \
    C(CUSPARSE_STATUS_INTERNAL_ERROR, 7)                                                                              \
    C(CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED, 8)                                                                   \
    C(CUSPARSE_STATUS_ZERO_PIVOT, 9)                                                                                  \
    C(CUSPARSE_STATUS_NOT_SUPPORTED, 10)                                                                              \
    C(CUSPARSE_STATUS_INSUFFICIENT_RESOURCES, 11)                                                                     \
    C(CUSPARSE_OPERATION_NON_TRANSPOSE, 0)                                                                            \
    C(CUSPARSE_OPERATION_TRANSPOSE, 1)                                                                                \
    C(CUSPARSE_OPERATION_CONJUGATE_TRANSPOSE, 2)                                                                      \
    C(CUSPARSE_POINTER_MODE_HOST, 0)                                                                                  \
    C(CUSPARSE_POINTER_MODE_DEVICE, 1)                                                                                \
    C(CUSPARSE_INDEX_BASE_ZERO, 0)                                                                                    \
    C(CUSPARSE_INDEX_32I, 2)                                                                                          \
    C(CUSPARSE_INDEX_64I, 3)                                                                                          \
    C(CUSPARSE_ORDER_COL, 1)                                                                                          \
    C(CUSPARSE_ORDER_ROW, 2)                                                                                          \
    C(CUSPARSE_SPMV_ALG_DEFAULT, 0)                                                                                   \
    C(CUSPARSE_SDDMM_ALG_DEFAULT, 0)                                                                                  \
    C(CUDA_R_16F, 2)                                                                                                  \
    C(CUDA_R_16BF, 14)                                                                                                \
    C(CUDA_R_32F, 0)                                                                                                  \
    C(CUDA_R_64F, 1)                                                                                                  \
    C(CUDA_C_32F, 4)                                                                                                  \
    C(CUDA_C_64F, 5)                                                                                                  \
    C(CUDA_R_8I, 3)                                                                                                   \
    C(CUDA_R_32I, 10)                                                                                                 \
    C(MAJOR_VERSION, 0)                                                                                               \
    C(MINOR_VERSION, 1)                                                                                               \
    C(PATCH_LEVEL, 2)

enum { ATOMR_CUSPARSE_CONSTANTS(ATOMR_ENUMERATOR) };

#define ATOMR_CUSPARSE_FUNCTIONS(F)                                                                                   \
    F(cusparseStatus_t, cusparseGetProperty, (libraryPropertyType type, int *value))                                  \
    F(cusparseStatus_t, cusparseCreate, (cusparseHandle_t *handle))                                                   \
    F(cusparseStatus_t, cusparseDestroy, (cusparseHandle_t handle))                                                   \
    F(cusparseStatus_t, cusparseSetStream, (cusparseHandle_t handle, cudaStream_t streamId))                          \
    F(cusparseStatus_t, cusparseSetPointerMode, (cusparseHandle_t handle, cusparsePointerMode_t mode))                \
    F(cusparseStatus_t, cusparseCreateCsr,                                                                            \
      (cusparseSpMatDescr_t *spMatDescr, int64_t rows, int64_t cols, int64_t nnz, void *csrRowOffsets,                \
       void *csrColInd, void *csrValues, cusparseIndexType_t csrRowOffsetsType, cusparseIndexType_t csrColIndType,    \
       cusparseIndexBase_t idxBase, cudaDataType valueType))                                                          \
    F(cusparseStatus_t, cusparseCreateCoo,                                                                            \
      (cusparseSpMatDescr_t *spMatDescr, int64_t rows, int64_t cols, int64_t nnz, void *cooRowInd, void *cooColInd,   \
       void *cooValues, cusparseIndexType_t cooIdxType, cusparseIndexBase_t idxBase, cudaDataType valueType))         \
    F(cusparseStatus_t, cusparseDestroySpMat, (cusparseConstSpMatDescr_t spMatDescr))                                 \
    F(cusparseStatus_t, cusparseCreateDnVec,                                                                          \
      (cusparseDnVecDescr_t *dnVecDescr, int64_t size, void *values, cudaDataType valueType))                         \
    F(cusparseStatus_t, cusparseDestroyDnVec, (cusparseConstDnVecDescr_t dnVecDescr))                                 \
    F(cusparseStatus_t, cusparseCreateDnMat,                                                                          \
      (cusparseDnMatDescr_t *dnMatDescr, int64_t rows, int64_t cols, int64_t ld, void *values,                        \
       cudaDataType valueType, cusparseOrder_t order))                                                                \
    F(cusparseStatus_t, cusparseDestroyDnMat, (cusparseConstDnMatDescr_t dnMatDescr))                                 \
    F(cusparseStatus_t, cusparseSpMV_bufferSize,                                                                      \
      (cusparseHandle_t handle, cusparseOperation_t opA, const void *alpha, cusparseConstSpMatDescr_t matA,           \
       cusparseConstDnVecDescr_t vecX, const void *beta, cusparseDnVecDescr_t vecY, cudaDataType computeType,         \
       cusparseSpMVAlg_t alg, size_t *bufferSize))                                                                    \
    F(cusparseStatus_t, cusparseSpMV,                                                                                 \
      (cusparseHandle_t handle, cusparseOperation_t opA, const void *alpha, cusparseConstSpMatDescr_t matA,           \
       cusparseConstDnVecDescr_t vecX, const void *beta, cusparseDnVecDescr_t vecY, cudaDataType computeType,         \
       cusparseSpMVAlg_t alg, void *externalBuffer))                                                                  \
    F(cusparseStatus_t, cusparseSDDMM_bufferSize,                                                                     \
      (cusparseHandle_t handle, cusparseOperation_t opA, cusparseOperation_t opB, const void *alpha,                  \
       cusparseConstDnMatDescr_t matA, cusparseConstDnMatDescr_t matB, const void *beta, cusparseSpMatDescr_t matC,   \
       cudaDataType computeType, cusparseSDDMMAlg_t alg, size_t *bufferSize))                                         \
    F(cusparseStatus_t, cusparseSDDMM,                                                                                \
      (cusparseHandle_t handle, cusparseOperation_t opA, cusparseOperation_t opB, const void *alpha,                  \
       cusparseConstDnMatDescr_t matA, cusparseConstDnMatDescr_t matB, const void *beta, cusparseSpMatDescr_t matC,   \
       cudaDataType computeType, cusparseSDDMMAlg_t alg, void *externalBuffer))

#endif
