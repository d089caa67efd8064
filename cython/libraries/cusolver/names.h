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
typedef int cusolverEigRange_t;
typedef struct gesvdjInfo *gesvdjInfo_t;
typedef struct syevjInfo *syevjInfo_t;
typedef struct cusolverDnIRSParams *cusolverDnIRSParams_t;
typedef int cusolverIRSRefinement_t;
typedef int cusolverPrecType_t;
typedef int cusolver_int_t;
typedef struct cusolverDnIRSInfos *cusolverDnIRSInfos_t;

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
    C(CUSOLVER_STATUS_INVALID_LICENSE, 11)                                                                            \
    C(CUSOLVER_STATUS_IRS_PARAMS_NOT_INITIALIZED, 12)                                                                 \
    C(CUSOLVER_STATUS_IRS_PARAMS_INVALID, 13)                                                                         \
    C(CUSOLVER_STATUS_IRS_PARAMS_INVALID_PREC, 14)                                                                    \
    C(CUSOLVER_STATUS_IRS_PARAMS_INVALID_REFINE, 15)                                                                  \
    C(CUSOLVER_STATUS_IRS_PARAMS_INVALID_MAXITER, 16)                                                                 \
    C(CUSOLVER_STATUS_IRS_INTERNAL_ERROR, 20)                                                                         \
    C(CUSOLVER_STATUS_IRS_NOT_SUPPORTED, 21)                                                                          \
    C(CUSOLVER_STATUS_IRS_OUT_OF_RANGE, 22)                                                                           \
    C(CUSOLVER_STATUS_IRS_NRHS_NOT_SUPPORTED_FOR_REFINE_GMRES, 23)                                                    \
    C(CUSOLVER_STATUS_IRS_INFOS_NOT_INITIALIZED, 25)                                                                  \
    C(CUSOLVER_STATUS_IRS_MATRIX_SINGULAR, 30)                                                                        \
    C(CUSOLVER_EIG_RANGE_I, 1002)                                                                                     \
    C(CUSOLVER_EIG_RANGE_V, 1003)                                                                                     \
    C(CUSOLVER_IRS_REFINE_CLASSICAL, 1102)                                                                            \
    C(CUSOLVER_IRS_REFINE_GMRES, 1104)                                                                                \
    C(CUSOLVER_R_64F, 1203)                                                                                           \
    C(CUSOLVER_R_32F, 1204)                                                                                           \
    C(CUSOLVER_R_16F, 1205)                                                                                           \
    C(CUSOLVER_R_16BF, 1206)                                                                                          \
    C(CUSOLVER_R_TF32, 1207)                                                                                          \
    C(CUSOLVER_C_64F, 1213)                                                                                           \
    C(CUSOLVER_C_32F, 1214)                                                                                           \
    C(CUSOLVER_C_16F, 1215)                                                                                           \
    C(CUSOLVER_C_16BF, 1216)                                                                                          \
    C(CUSOLVER_C_TF32, 1217)

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
    F(cusolverStatus_t, cusolverDnXsyevdx_bufferSize,                                                                 \
      (cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t jobz, cusolverEigRange_t range,        \
       cublasFillMode_t uplo, int64_t n, cudaDataType dataTypeA, const void *A, int64_t lda, void *vl, void *vu,      \
       int64_t il, int64_t iu, int64_t *h_meig, cudaDataType dataTypeW, const void *W, cudaDataType computeType,      \
       size_t *workspaceInBytesOnDevice, size_t *workspaceInBytesOnHost))                                             \
    F(cusolverStatus_t, cusolverDnXsyevdx,                                                                            \
      (cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t jobz, cusolverEigRange_t range,        \
       cublasFillMode_t uplo, int64_t n, cudaDataType dataTypeA, void *A, int64_t lda, void *vl, void *vu,            \
       int64_t il, int64_t iu, int64_t *meig64, cudaDataType dataTypeW, void *W, cudaDataType computeType,            \
       void *bufferOnDevice, size_t workspaceInBytesOnDevice, void *bufferOnHost, size_t workspaceInBytesOnHost,      \
       int *info))                                                                                                    \
    F(cusolverStatus_t, cusolverDnXsyevBatched_bufferSize,                                                            \
      (cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t jobz, cublasFillMode_t uplo,           \
       int64_t n, cudaDataType dataTypeA, const void *A, int64_t lda, cudaDataType dataTypeW, const void *W,          \
       cudaDataType computeType, size_t *workspaceInBytesOnDevice, size_t *workspaceInBytesOnHost,                    \
       int64_t batchSize))                                                                                            \
    F(cusolverStatus_t, cusolverDnXsyevBatched,                                                                       \
      (cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t jobz, cublasFillMode_t uplo,           \
       int64_t n, cudaDataType dataTypeA, void *A, int64_t lda, cudaDataType dataTypeW, void *W,                      \
       cudaDataType computeType, void *bufferOnDevice, size_t workspaceInBytesOnDevice, void *bufferOnHost,           \
       size_t workspaceInBytesOnHost, int *info, int64_t batchSize))                                                  \
    F(cusolverStatus_t, cusolverDnCreateGesvdjInfo, (gesvdjInfo_t *info))                                             \
    F(cusolverStatus_t, cusolverDnDestroyGesvdjInfo, (gesvdjInfo_t info))                                             \
    F(cusolverStatus_t, cusolverDnSgesvdj_bufferSize,                                                                 \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, int econ, int m, int n, const float *A, int lda,            \
       const float *S, const float *U, int ldu, const float *V, int ldv, int *lwork, gesvdjInfo_t params))            \
    F(cusolverStatus_t, cusolverDnDgesvdj_bufferSize,                                                                 \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, int econ, int m, int n, const double *A, int lda,           \
       const double *S, const double *U, int ldu, const double *V, int ldv, int *lwork, gesvdjInfo_t params))         \
    F(cusolverStatus_t, cusolverDnCgesvdj_bufferSize,                                                                 \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, int econ, int m, int n, const cuComplex *A, int lda,        \
       const float *S, const cuComplex *U, int ldu, const cuComplex *V, int ldv, int *lwork, gesvdjInfo_t params))    \
    F(cusolverStatus_t, cusolverDnZgesvdj_bufferSize,                                                                 \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, int econ, int m, int n, const cuDoubleComplex *A, int lda,  \
       const double *S, const cuDoubleComplex *U, int ldu, const cuDoubleComplex *V, int ldv, int *lwork,             \
       gesvdjInfo_t params))                                                                                          \
    F(cusolverStatus_t, cusolverDnSgesvdj,                                                                            \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, int econ, int m, int n, float *A, int lda, float *S,        \
       float *U, int ldu, float *V, int ldv, float *work, int lwork, int *info, gesvdjInfo_t params))                 \
    F(cusolverStatus_t, cusolverDnDgesvdj,                                                                            \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, int econ, int m, int n, double *A, int lda, double *S,      \
       double *U, int ldu, double *V, int ldv, double *work, int lwork, int *info, gesvdjInfo_t params))              \
    F(cusolverStatus_t, cusolverDnCgesvdj,                                                                            \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, int econ, int m, int n, cuComplex *A, int lda, float *S,    \
       cuComplex *U, int ldu, cuComplex *V, int ldv, cuComplex *work, int lwork, int *info, gesvdjInfo_t params))     \
    F(cusolverStatus_t, cusolverDnZgesvdj,                                                                            \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, int econ, int m, int n, cuDoubleComplex *A, int lda,        \
       double *S, cuDoubleComplex *U, int ldu, cuDoubleComplex *V, int ldv, cuDoubleComplex *work, int lwork,         \
       int *info, gesvdjInfo_t params))                                                                               \
    F(cusolverStatus_t, cusolverDnSgesvdaStridedBatched_bufferSize,                                                   \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, int rank, int m, int n, const float *d_A, int lda,          \
       long long int strideA, const float *d_S, long long int strideS, const float *d_U, int ldu,                     \
       long long int strideU, const float *d_V, int ldv, long long int strideV, int *lwork, int batchSize))           \
    F(cusolverStatus_t, cusolverDnDgesvdaStridedBatched_bufferSize,                                                   \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, int rank, int m, int n, const double *d_A, int lda,         \
       long long int strideA, const double *d_S, long long int strideS, const double *d_U, int ldu,                   \
       long long int strideU, const double *d_V, int ldv, long long int strideV, int *lwork, int batchSize))          \
    F(cusolverStatus_t, cusolverDnCgesvdaStridedBatched_bufferSize,                                                   \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, int rank, int m, int n, const cuComplex *d_A, int lda,      \
       long long int strideA, const float *d_S, long long int strideS, const cuComplex *d_U, int ldu,                 \
       long long int strideU, const cuComplex *d_V, int ldv, long long int strideV, int *lwork, int batchSize))       \
    F(cusolverStatus_t, cusolverDnZgesvdaStridedBatched_bufferSize,                                                   \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, int rank, int m, int n, const cuDoubleComplex *d_A,         \
       int lda, long long int strideA, const double *d_S, long long int strideS, const cuDoubleComplex *d_U, int ldu, \
       long long int strideU, const cuDoubleComplex *d_V, int ldv, long long int strideV, int *lwork, int batchSize)) \
    F(cusolverStatus_t, cusolverDnSgesvdaStridedBatched,                                                              \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, int rank, int m, int n, const float *d_A, int lda,          \
       long long int strideA, float *d_S, long long int strideS, float *d_U, int ldu, long long int strideU,          \
       float *d_V, int ldv, long long int strideV, float *d_work, int lwork, int *d_info, double *h_R_nrmF,           \
       int batchSize))                                                                                                \
    F(cusolverStatus_t, cusolverDnDgesvdaStridedBatched,                                                              \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, int rank, int m, int n, const double *d_A, int lda,         \
       long long int strideA, double *d_S, long long int strideS, double *d_U, int ldu, long long int strideU,        \
       double *d_V, int ldv, long long int strideV, double *d_work, int lwork, int *d_info, double *h_R_nrmF,         \
       int batchSize))                                                                                                \
    F(cusolverStatus_t, cusolverDnCgesvdaStridedBatched,                                                              \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, int rank, int m, int n, const cuComplex *d_A, int lda,      \
       long long int strideA, float *d_S, long long int strideS, cuComplex *d_U, int ldu, long long int strideU,      \
       cuComplex *d_V, int ldv, long long int strideV, cuComplex *d_work, int lwork, int *d_info, double *h_R_nrmF,   \
       int batchSize))                                                                                                \
    F(cusolverStatus_t, cusolverDnZgesvdaStridedBatched,                                                              \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, int rank, int m, int n, const cuDoubleComplex *d_A,         \
       int lda, long long int strideA, double *d_S, long long int strideS, cuDoubleComplex *d_U, int ldu,             \
       long long int strideU, cuDoubleComplex *d_V, int ldv, long long int strideV, cuDoubleComplex *d_work,          \
       int lwork, int *d_info, double *h_R_nrmF, int batchSize))                                                      \
    F(cusolverStatus_t, cusolverDnXgesvdp_bufferSize,                                                                 \
      (cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t jobz, int econ, int64_t m, int64_t n,  \
       cudaDataType dataTypeA, const void *A, int64_t lda, cudaDataType dataTypeS, const void *S,                     \
       cudaDataType dataTypeU, const void *U, int64_t ldu, cudaDataType dataTypeV, const void *V, int64_t ldv,        \
       cudaDataType computeType, size_t *workspaceInBytesOnDevice, size_t *workspaceInBytesOnHost))                   \
    F(cusolverStatus_t, cusolverDnXgesvdp,                                                                            \
      (cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t jobz, int econ, int64_t m, int64_t n,  \
       cudaDataType dataTypeA, void *A, int64_t lda, cudaDataType dataTypeS, void *S, cudaDataType dataTypeU,         \
       void *U, int64_t ldu, cudaDataType dataTypeV, void *V, int64_t ldv, cudaDataType computeType,                  \
       void *bufferOnDevice, size_t workspaceInBytesOnDevice, void *bufferOnHost, size_t workspaceInBytesOnHost,      \
       int *d_info, double *h_err_sigma))                                                                             \
    F(cusolverStatus_t, cusolverDnCreateSyevjInfo, (syevjInfo_t *info))                                               \
    F(cusolverStatus_t, cusolverDnDestroySyevjInfo, (syevjInfo_t info))                                               \
    F(cusolverStatus_t, cusolverDnSsyevj_bufferSize,                                                                  \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, cublasFillMode_t uplo, int n, const float *A, int lda,      \
       const float *W, int *lwork, syevjInfo_t params))                                                               \
    F(cusolverStatus_t, cusolverDnDsyevj_bufferSize,                                                                  \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, cublasFillMode_t uplo, int n, const double *A, int lda,     \
       const double *W, int *lwork, syevjInfo_t params))                                                              \
    F(cusolverStatus_t, cusolverDnSsyevj,                                                                             \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, cublasFillMode_t uplo, int n, float *A, int lda, float *W,  \
       float *work, int lwork, int *info, syevjInfo_t params))                                                        \
    F(cusolverStatus_t, cusolverDnDsyevj,                                                                             \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, cublasFillMode_t uplo, int n, double *A, int lda,           \
       double *W, double *work, int lwork, int *info, syevjInfo_t params))                                            \
    F(cusolverStatus_t, cusolverDnCheevj_bufferSize,                                                                  \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, cublasFillMode_t uplo, int n, const cuComplex *A, int lda,  \
       const float *W, int *lwork, syevjInfo_t params))                                                               \
    F(cusolverStatus_t, cusolverDnZheevj_bufferSize,                                                                  \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, cublasFillMode_t uplo, int n, const cuDoubleComplex *A,     \
       int lda, const double *W, int *lwork, syevjInfo_t params))                                                     \
    F(cusolverStatus_t, cusolverDnCheevj,                                                                             \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, cublasFillMode_t uplo, int n, cuComplex *A, int lda,        \
       float *W, cuComplex *work, int lwork, int *info, syevjInfo_t params))                                          \
    F(cusolverStatus_t, cusolverDnZheevj,                                                                             \
      (cusolverDnHandle_t handle, cusolverEigMode_t jobz, cublasFillMode_t uplo, int n, cuDoubleComplex *A, int lda,  \
       double *W, cuDoubleComplex *work, int lwork, int *info, syevjInfo_t params))                                   \
    F(cusolverStatus_t, cusolverDnXgeev_bufferSize,                                                                   \
      (cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t jobvl, cusolverEigMode_t jobvr,        \
       int64_t n, cudaDataType dataTypeA, const void *A, int64_t lda, cudaDataType dataTypeW, const void *W,          \
       cudaDataType dataTypeVL, const void *VL, int64_t ldvl, cudaDataType dataTypeVR, const void *VR, int64_t ldvr,  \
       cudaDataType computeType, size_t *workspaceInBytesOnDevice, size_t *workspaceInBytesOnHost))                   \
    F(cusolverStatus_t, cusolverDnXgeev,                                                                              \
      (cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t jobvl, cusolverEigMode_t jobvr,        \
       int64_t n, cudaDataType dataTypeA, void *A, int64_t lda, cudaDataType dataTypeW, void *W,                      \
       cudaDataType dataTypeVL, void *VL, int64_t ldvl, cudaDataType dataTypeVR, void *VR, int64_t ldvr,              \
       cudaDataType computeType, void *bufferOnDevice, size_t workspaceInBytesOnDevice, void *bufferOnHost,           \
       size_t workspaceInBytesOnHost, int *info))                                                                     \
    F(cusolverStatus_t, cusolverDnSsytrf_bufferSize,                                                                  \
      (cusolverDnHandle_t handle, int n, float *A, int lda, int *lwork))                                              \
    F(cusolverStatus_t, cusolverDnDsytrf_bufferSize,                                                                  \
      (cusolverDnHandle_t handle, int n, double *A, int lda, int *lwork))                                             \
    F(cusolverStatus_t, cusolverDnCsytrf_bufferSize,                                                                  \
      (cusolverDnHandle_t handle, int n, cuComplex *A, int lda, int *lwork))                                          \
    F(cusolverStatus_t, cusolverDnZsytrf_bufferSize,                                                                  \
      (cusolverDnHandle_t handle, int n, cuDoubleComplex *A, int lda, int *lwork))                                    \
    F(cusolverStatus_t, cusolverDnSsytrf,                                                                             \
      (cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, float *A, int lda, int *ipiv, float *work, int lwork, \
       int *info))                                                                                                    \
    F(cusolverStatus_t, cusolverDnDsytrf,                                                                             \
      (cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, double *A, int lda, int *ipiv, double *work,          \
       int lwork, int *info))                                                                                         \
    F(cusolverStatus_t, cusolverDnCsytrf,                                                                             \
      (cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, cuComplex *A, int lda, int *ipiv, cuComplex *work,    \
       int lwork, int *info))                                                                                         \
    F(cusolverStatus_t, cusolverDnZsytrf,                                                                             \
      (cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, cuDoubleComplex *A, int lda, int *ipiv,               \
       cuDoubleComplex *work, int lwork, int *info))                                                                  \
    F(cusolverStatus_t, cusolverDnIRSParamsCreate, (cusolverDnIRSParams_t *params_ptr))                               \
    F(cusolverStatus_t, cusolverDnIRSParamsDestroy, (cusolverDnIRSParams_t params))                                   \
    F(cusolverStatus_t, cusolverDnIRSParamsSetRefinementSolver,                                                       \
      (cusolverDnIRSParams_t params, cusolverIRSRefinement_t refinement_solver))                                      \
    F(cusolverStatus_t, cusolverDnIRSParamsSetSolverPrecisions,                                                       \
      (cusolverDnIRSParams_t params, cusolverPrecType_t solver_main_precision,                                        \
       cusolverPrecType_t solver_lowest_precision))                                                                   \
    F(cusolverStatus_t, cusolverDnIRSParamsSetMaxIters, (cusolverDnIRSParams_t params, cusolver_int_t maxiters))      \
    F(cusolverStatus_t, cusolverDnIRSInfosCreate, (cusolverDnIRSInfos_t *infos_ptr))                                  \
    F(cusolverStatus_t, cusolverDnIRSInfosDestroy, (cusolverDnIRSInfos_t infos))                                      \
    F(cusolverStatus_t, cusolverDnIRSXgesv_bufferSize,                                                                \
      (cusolverDnHandle_t handle, cusolverDnIRSParams_t params, cusolver_int_t n, cusolver_int_t nrhs,                \
       size_t *lwork_bytes))                                                                                          \
    F(cusolverStatus_t, cusolverDnIRSXgesv,                                                                           \
      (cusolverDnHandle_t handle, cusolverDnIRSParams_t gesv_irs_params, cusolverDnIRSInfos_t gesv_irs_infos,         \
       cusolver_int_t n, cusolver_int_t nrhs, void *dA, cusolver_int_t ldda, void *dB, cusolver_int_t lddb, void *dX, \
       cusolver_int_t lddx, void *dWorkspace, size_t lwork_bytes, cusolver_int_t *niters, cusolver_int_t *d_info))

#endif
