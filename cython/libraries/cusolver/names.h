/* The parts of cusolverDn.h that names.toml lists; written by `make tables`. */
#ifndef ATOMR_LIBRARIES_CUSOLVER_NAMES_H
#define ATOMR_LIBRARIES_CUSOLVER_NAMES_H

#include "cuda/fields.h"

typedef int libraryPropertyType;
typedef int cusolverStatus_t;
typedef struct cusolverDnContext *cusolverDnHandle_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct cusolverDnParams *cusolverDnParams_t;
typedef int cublasFillMode_t;
typedef int cudaDataType;
typedef int cublasOperation_t;

#define ATOMR_CUSOLVER_CONSTANTS(C)                                                                                   \
    C(CUSOLVER_STATUS_SUCCESS, 0)                                                                                     \
    C(CUSOLVER_STATUS_NOT_INITIALIZED, 1)                                                                             \
    C(CUSOLVER_STATUS_ALLOC_FAILED, 2)                                                                                \
    C(CUSOLVER_STATUS_INVALID_VALUE, 3)                                                                               \
    C(CUSOLVER_STATUS_ARCH_MISMATCH, 4)                                                                               \
    C(CUSOLVER_STATUS_MAPPING_ERROR, 5)                                                                               \
    C(CUSOLVER_STATUS_EXECUTION_FAILED, 6)                                                                            \
    C(CUSOLVER_STATUS_INTERNAL_ERROR, 7)                                                                              \
    C(CUSOLVER_STATUS_MATRIX_TYPE_NOT_SUPPORTED, 8)                                                                   \
    C(CUSOLVER_STATUS_NOT_SUPPORTED, 9)                                                                               \
    C(CUSOLVER_STATUS_ZERO_PIVOT, 10)                                                                                 \
    C(CUSOLVER_STATUS_INVALID_LICENSE, 11)

enum { ATOMR_CUSOLVER_CONSTANTS(ATOMR_ENUMERATOR) };

#define ATOMR_CUSOLVER_STRUCTS(S)                                                                                     \
    S(cuComplex, 8)                                                                                                   \
    S(cuDoubleComplex, 16)

#define ATOMR_CUSOLVER_FUNCTIONS(F)                                                                                   \
    F(cusolverStatus_t, cusolverGetProperty, (libraryPropertyType type, int *value))                                  \
    F(cusolverStatus_t, cusolverDnCreate, (cusolverDnHandle_t *handle))                                               \
    F(cusolverStatus_t, cusolverDnDestroy, (cusolverDnHandle_t handle))                                               \
    F(cusolverStatus_t, cusolverDnSetStream, (cusolverDnHandle_t handle, cudaStream_t streamId))                      \
    F(cusolverStatus_t, cusolverDnCreateParams, (cusolverDnParams_t *params))                                         \
    F(cusolverStatus_t, cusolverDnDestroyParams, (cusolverDnParams_t params))                                         \
    F(cusolverStatus_t, cusolverDnXpotrf_bufferSize,                                                                  \
      (cusolverDnHandle_t handle, cusolverDnParams_t params, cublasFillMode_t uplo, int64_t n,                        \
       cudaDataType dataTypeA, const void *A, int64_t lda, cudaDataType computeType,                                  \
       size_t *workspaceInBytesOnDevice, size_t *workspaceInBytesOnHost))                                             \
    F(cusolverStatus_t, cusolverDnXpotrf,                                                                             \
      (cusolverDnHandle_t handle, cusolverDnParams_t params, cublasFillMode_t uplo, int64_t n,                        \
       cudaDataType dataTypeA, void *A, int64_t lda, cudaDataType computeType, void *bufferOnDevice,                  \
       size_t workspaceInBytesOnDevice, void *bufferOnHost, size_t workspaceInBytesOnHost, int *info))                \
    F(cusolverStatus_t, cusolverDnXpotrs,                                                                             \
      (cusolverDnHandle_t handle, cusolverDnParams_t params, cublasFillMode_t uplo, int64_t n, int64_t nrhs,          \
       cudaDataType dataTypeA, const void *A, int64_t lda, cudaDataType dataTypeB, void *B, int64_t ldb, int *info))  \
    F(cusolverStatus_t, cusolverDnXgetrf_bufferSize,                                                                  \
      (cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m, int64_t n, cudaDataType dataTypeA,            \
       const void *A, int64_t lda, cudaDataType computeType, size_t *workspaceInBytesOnDevice,                        \
       size_t *workspaceInBytesOnHost))                                                                               \
    F(cusolverStatus_t, cusolverDnXgetrf,                                                                             \
      (cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m, int64_t n, cudaDataType dataTypeA, void *A,   \
       int64_t lda, int64_t *ipiv, cudaDataType computeType, void *bufferOnDevice, size_t workspaceInBytesOnDevice,   \
       void *bufferOnHost, size_t workspaceInBytesOnHost, int *info))                                                 \
    F(cusolverStatus_t, cusolverDnXgetrs,                                                                             \
      (cusolverDnHandle_t handle, cusolverDnParams_t params, cublasOperation_t trans, int64_t n, int64_t nrhs,        \
       cudaDataType dataTypeA, const void *A, int64_t lda, const int64_t *ipiv, cudaDataType dataTypeB, void *B,      \
       int64_t ldb, int *info))                                                                                       \
    F(cusolverStatus_t, cusolverDnSpotrfBatched,                                                                      \
      (cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, float *Aarray[], int lda, int *infoArray,             \
       int batchSize))                                                                                                \
    F(cusolverStatus_t, cusolverDnDpotrfBatched,                                                                      \
      (cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, double *Aarray[], int lda, int *infoArray,            \
       int batchSize))                                                                                                \
    F(cusolverStatus_t, cusolverDnCpotrfBatched,                                                                      \
      (cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, cuComplex *Aarray[], int lda, int *infoArray,         \
       int batchSize))                                                                                                \
    F(cusolverStatus_t, cusolverDnZpotrfBatched,                                                                      \
      (cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, cuDoubleComplex *Aarray[], int lda, int *infoArray,   \
       int batchSize))

#endif
