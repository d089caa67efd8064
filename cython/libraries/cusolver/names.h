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
typedef int cublasSideMode_t;
typedef int cusolverEigMode_t;

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
       int batchSize))                                                                                                \
    F(cusolverStatus_t, cusolverDnXgeqrf_bufferSize,                                                                  \
      (cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m, int64_t n, cudaDataType dataTypeA,            \
       const void *A, int64_t lda, cudaDataType dataTypeTau, const void *tau, cudaDataType computeType,               \
       size_t *workspaceInBytesOnDevice, size_t *workspaceInBytesOnHost))                                             \
    F(cusolverStatus_t, cusolverDnXgeqrf,                                                                             \
      (cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m, int64_t n, cudaDataType dataTypeA, void *A,   \
       int64_t lda, cudaDataType dataTypeTau, void *tau, cudaDataType computeType, void *bufferOnDevice,              \
       size_t workspaceInBytesOnDevice, void *bufferOnHost, size_t workspaceInBytesOnHost, int *info))                \
    F(cusolverStatus_t, cusolverDnSorgqr_bufferSize,                                                                  \
      (cusolverDnHandle_t handle, int m, int n, int k, const float *A, int lda, const float *tau, int *lwork))        \
    F(cusolverStatus_t, cusolverDnDorgqr_bufferSize,                                                                  \
      (cusolverDnHandle_t handle, int m, int n, int k, const double *A, int lda, const double *tau, int *lwork))      \
    F(cusolverStatus_t, cusolverDnSorgqr,                                                                             \
      (cusolverDnHandle_t handle, int m, int n, int k, float *A, int lda, const float *tau, float *work, int lwork,   \
       int *info))                                                                                                    \
    F(cusolverStatus_t, cusolverDnDorgqr,                                                                             \
      (cusolverDnHandle_t handle, int m, int n, int k, double *A, int lda, const double *tau, double *work,           \
       int lwork, int *info))                                                                                         \
    F(cusolverStatus_t, cusolverDnCungqr_bufferSize,                                                                  \
      (cusolverDnHandle_t handle, int m, int n, int k, const cuComplex *A, int lda, const cuComplex *tau,             \
       int *lwork))                                                                                                   \
    F(cusolverStatus_t, cusolverDnZungqr_bufferSize,                                                                  \
      (cusolverDnHandle_t handle, int m, int n, int k, const cuDoubleComplex *A, int lda, const cuDoubleComplex *tau, \
       int *lwork))                                                                                                   \
    F(cusolverStatus_t, cusolverDnCungqr,                                                                             \
      (cusolverDnHandle_t handle, int m, int n, int k, cuComplex *A, int lda, const cuComplex *tau, cuComplex *work,  \
       int lwork, int *info))                                                                                         \
    F(cusolverStatus_t, cusolverDnZungqr,                                                                             \
      (cusolverDnHandle_t handle, int m, int n, int k, cuDoubleComplex *A, int lda, const cuDoubleComplex *tau,       \
       cuDoubleComplex *work, int lwork, int *info))                                                                  \
    F(cusolverStatus_t, cusolverDnSormqr_bufferSize,                                                                  \
      (cusolverDnHandle_t handle, cublasSideMode_t side, cublasOperation_t trans, int m, int n, int k,                \
       const float *A, int lda, const float *tau, const float *C, int ldc, int *lwork))                               \
    F(cusolverStatus_t, cusolverDnDormqr_bufferSize,                                                                  \
      (cusolverDnHandle_t handle, cublasSideMode_t side, cublasOperation_t trans, int m, int n, int k,                \
       const double *A, int lda, const double *tau, const double *C, int ldc, int *lwork))                            \
    F(cusolverStatus_t, cusolverDnSormqr,                                                                             \
      (cusolverDnHandle_t handle, cublasSideMode_t side, cublasOperation_t trans, int m, int n, int k,                \
       const float *A, int lda, const float *tau, float *C, int ldc, float *work, int lwork, int *devInfo))           \
    F(cusolverStatus_t, cusolverDnDormqr,                                                                             \
      (cusolverDnHandle_t handle, cublasSideMode_t side, cublasOperation_t trans, int m, int n, int k,                \
       const double *A, int lda, const double *tau, double *C, int ldc, double *work, int lwork, int *devInfo))       \
    F(cusolverStatus_t, cusolverDnCunmqr_bufferSize,                                                                  \
      (cusolverDnHandle_t handle, cublasSideMode_t side, cublasOperation_t trans, int m, int n, int k,                \
       const cuComplex *A, int lda, const cuComplex *tau, const cuComplex *C, int ldc, int *lwork))                   \
    F(cusolverStatus_t, cusolverDnZunmqr_bufferSize,                                                                  \
      (cusolverDnHandle_t handle, cublasSideMode_t side, cublasOperation_t trans, int m, int n, int k,                \
       const cuDoubleComplex *A, int lda, const cuDoubleComplex *tau, const cuDoubleComplex *C, int ldc, int *lwork)) \
    F(cusolverStatus_t, cusolverDnCunmqr,                                                                             \
      (cusolverDnHandle_t handle, cublasSideMode_t side, cublasOperation_t trans, int m, int n, int k,                \
       const cuComplex *A, int lda, const cuComplex *tau, cuComplex *C, int ldc, cuComplex *work, int lwork,          \
       int *devInfo))                                                                                                 \
    F(cusolverStatus_t, cusolverDnZunmqr,                                                                             \
      (cusolverDnHandle_t handle, cublasSideMode_t side, cublasOperation_t trans, int m, int n, int k,                \
       const cuDoubleComplex *A, int lda, const cuDoubleComplex *tau, cuDoubleComplex *C, int ldc,                    \
       cuDoubleComplex *work, int lwork, int *devInfo))                                                               \
    F(cusolverStatus_t, cusolverDnXgesvd_bufferSize,                                                                  \
      (cusolverDnHandle_t handle, cusolverDnParams_t params, signed char jobu, signed char jobvt, int64_t m,          \
       int64_t n, cudaDataType dataTypeA, const void *A, int64_t lda, cudaDataType dataTypeS, const void *S,          \
       cudaDataType dataTypeU, const void *U, int64_t ldu, cudaDataType dataTypeVT, const void *VT, int64_t ldvt,     \
       cudaDataType computeType, size_t *workspaceInBytesOnDevice, size_t *workspaceInBytesOnHost))                   \
    F(cusolverStatus_t, cusolverDnXgesvd,                                                                             \
      (cusolverDnHandle_t handle, cusolverDnParams_t params, signed char jobu, signed char jobvt, int64_t m,          \
       int64_t n, cudaDataType dataTypeA, void *A, int64_t lda, cudaDataType dataTypeS, void *S,                      \
       cudaDataType dataTypeU, void *U, int64_t ldu, cudaDataType dataTypeVT, void *VT, int64_t ldvt,                 \
       cudaDataType computeType, void *bufferOnDevice, size_t workspaceInBytesOnDevice, void *bufferOnHost,           \
       size_t workspaceInBytesOnHost, int *info))                                                                     \
    F(cusolverStatus_t, cusolverDnXsyevd_bufferSize,                                                                  \
      (cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t jobz, cublasFillMode_t uplo,           \
       int64_t n, cudaDataType dataTypeA, const void *A, int64_t lda, cudaDataType dataTypeW, const void *W,          \
       cudaDataType computeType, size_t *workspaceInBytesOnDevice, size_t *workspaceInBytesOnHost))                   \
    F(cusolverStatus_t, cusolverDnXsyevd,                                                                             \
      (cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t jobz, cublasFillMode_t uplo,           \
       int64_t n, cudaDataType dataTypeA, void *A, int64_t lda, cudaDataType dataTypeW, void *W,                      \
       cudaDataType computeType, void *bufferOnDevice, size_t workspaceInBytesOnDevice, void *bufferOnHost,           \
       size_t workspaceInBytesOnHost, int *info))                                                                     \
    F(cusolverStatus_t, cusolverDnXsyevBatched_bufferSize,                                                            \
      (cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t jobz, cublasFillMode_t uplo,           \
       int64_t n, cudaDataType dataTypeA, const void *A, int64_t lda, cudaDataType dataTypeW, const void *W,          \
       cudaDataType computeType, size_t *workspaceInBytesOnDevice, size_t *workspaceInBytesOnHost,                    \
       int64_t batchSize))                                                                                            \
    F(cusolverStatus_t, cusolverDnXsyevBatched,                                                                       \
      (cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t jobz, cublasFillMode_t uplo,           \
       int64_t n, cudaDataType dataTypeA, void *A, int64_t lda, cudaDataType dataTypeW, void *W,                      \
       cudaDataType computeType, void *bufferOnDevice, size_t workspaceInBytesOnDevice, void *bufferOnHost,           \
       size_t workspaceInBytesOnHost, int *info, int64_t batchSize))

#endif
