/* The parts of cublas_v2.h that names.toml lists; written by `make tables`. */
#ifndef ATOMR_LIBRARIES_CUBLAS_NAMES_H
#define ATOMR_LIBRARIES_CUBLAS_NAMES_H

#include "cuda/fields.h"

typedef struct cublasContext *cublasHandle_t;
typedef int cublasStatus_t;
typedef int libraryPropertyType;
typedef struct CUstream_st *cudaStream_t;
typedef int cublasPointerMode_t;
typedef int cublasMath_t;
typedef int cublasOperation_t;
typedef int cublasSideMode_t;
typedef int cublasFillMode_t;
typedef int cublasDiagType_t;
typedef int cudaDataType_t;
typedef int cublasComputeType_t;

#define ATOMR_CUBLAS_CONSTANTS(C)                                                                                     \
    C(CUBLAS_SIDE_LEFT, 0)                                                                                            \
    C(CUBLAS_SIDE_RIGHT, 1)                                                                                           \
    C(CUBLAS_FILL_MODE_LOWER, 0)                                                                                      \
    C(CUBLAS_FILL_MODE_UPPER, 1)                                                                                      \
    C(CUBLAS_DIAG_NON_UNIT, 0)                                                                                        \
    C(CUBLAS_DIAG_UNIT, 1)                                                                                            \
    C(CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION, 16)                                                           \
    C(CUBLAS_POINTER_MODE_HOST, 0)                                                                                    \
    C(CUBLAS_POINTER_MODE_DEVICE, 1)                                                                                  \
    C(MAJOR_VERSION, 0)                                                                                               \
    C(MINOR_VERSION, 1)                                                                                               \
    C(PATCH_LEVEL, 2)

enum { ATOMR_CUBLAS_CONSTANTS(ATOMR_ENUMERATOR) };

#define ATOMR_CUBLAS_STRUCTS(S)                                                                                       \
    S(cuComplex, 8)                                                                                                   \
    S(cuDoubleComplex, 16)

#define ATOMR_CUBLAS_FUNCTIONS(F)                                                                                     \
    F(cublasStatus_t, cublasCreate_v2, (cublasHandle_t *handle))                                                      \
    F(cublasStatus_t, cublasDestroy_v2, (cublasHandle_t handle))                                                      \
    F(cublasStatus_t, cublasGetProperty, (libraryPropertyType type, int *value))                                      \
    F(cublasStatus_t, cublasSetStream_v2, (cublasHandle_t handle, cudaStream_t streamId))                             \
    F(cublasStatus_t, cublasSetWorkspace_v2, (cublasHandle_t handle, void *workspace, size_t workspaceSizeInBytes))   \
    F(cublasStatus_t, cublasSetPointerMode_v2, (cublasHandle_t handle, cublasPointerMode_t mode))                     \
    F(cublasStatus_t, cublasSetMathMode, (cublasHandle_t handle, cublasMath_t mode))                                  \
    F(cublasStatus_t, cublasSaxpy_v2,                                                                                 \
      (cublasHandle_t handle, int n, const float *alpha, const float *x, int incx, float *y, int incy))               \
    F(cublasStatus_t, cublasDaxpy_v2,                                                                                 \
      (cublasHandle_t handle, int n, const double *alpha, const double *x, int incx, double *y, int incy))            \
    F(cublasStatus_t, cublasCaxpy_v2,                                                                                 \
      (cublasHandle_t handle, int n, const cuComplex *alpha, const cuComplex *x, int incx, cuComplex *y, int incy))   \
    F(cublasStatus_t, cublasZaxpy_v2,                                                                                 \
      (cublasHandle_t handle, int n, const cuDoubleComplex *alpha, const cuDoubleComplex *x, int incx,                \
       cuDoubleComplex *y, int incy))                                                                                 \
    F(cublasStatus_t, cublasSscal_v2, (cublasHandle_t handle, int n, const float *alpha, float *x, int incx))         \
    F(cublasStatus_t, cublasDscal_v2, (cublasHandle_t handle, int n, const double *alpha, double *x, int incx))       \
    F(cublasStatus_t, cublasCscal_v2, (cublasHandle_t handle, int n, const cuComplex *alpha, cuComplex *x, int incx)) \
    F(cublasStatus_t, cublasZscal_v2,                                                                                 \
      (cublasHandle_t handle, int n, const cuDoubleComplex *alpha, cuDoubleComplex *x, int incx))                     \
    F(cublasStatus_t, cublasSgemv_v2,                                                                                 \
      (cublasHandle_t handle, cublasOperation_t trans, int m, int n, const float *alpha, const float *A, int lda,     \
       const float *x, int incx, const float *beta, float *y, int incy))                                              \
    F(cublasStatus_t, cublasDgemv_v2,                                                                                 \
      (cublasHandle_t handle, cublasOperation_t trans, int m, int n, const double *alpha, const double *A, int lda,   \
       const double *x, int incx, const double *beta, double *y, int incy))                                           \
    F(cublasStatus_t, cublasCgemv_v2,                                                                                 \
      (cublasHandle_t handle, cublasOperation_t trans, int m, int n, const cuComplex *alpha, const cuComplex *A,      \
       int lda, const cuComplex *x, int incx, const cuComplex *beta, cuComplex *y, int incy))                         \
    F(cublasStatus_t, cublasZgemv_v2,                                                                                 \
      (cublasHandle_t handle, cublasOperation_t trans, int m, int n, const cuDoubleComplex *alpha,                    \
       const cuDoubleComplex *A, int lda, const cuDoubleComplex *x, int incx, const cuDoubleComplex *beta,            \
       cuDoubleComplex *y, int incy))                                                                                 \
    F(cublasStatus_t, cublasSsymm_v2,                                                                                 \
      (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, int m, int n, const float *alpha,         \
       const float *A, int lda, const float *B, int ldb, const float *beta, float *C, int ldc))                       \
    F(cublasStatus_t, cublasDsymm_v2,                                                                                 \
      (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, int m, int n, const double *alpha,        \
       const double *A, int lda, const double *B, int ldb, const double *beta, double *C, int ldc))                   \
    F(cublasStatus_t, cublasCsymm_v2,                                                                                 \
      (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, int m, int n, const cuComplex *alpha,     \
       const cuComplex *A, int lda, const cuComplex *B, int ldb, const cuComplex *beta, cuComplex *C, int ldc))       \
    F(cublasStatus_t, cublasZsymm_v2,                                                                                 \
      (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, int m, int n,                             \
       const cuDoubleComplex *alpha, const cuDoubleComplex *A, int lda, const cuDoubleComplex *B, int ldb,            \
       const cuDoubleComplex *beta, cuDoubleComplex *C, int ldc))                                                     \
    F(cublasStatus_t, cublasSsyrk_v2,                                                                                 \
      (cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans, int n, int k, const float *alpha,       \
       const float *A, int lda, const float *beta, float *C, int ldc))                                                \
    F(cublasStatus_t, cublasDsyrk_v2,                                                                                 \
      (cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans, int n, int k, const double *alpha,      \
       const double *A, int lda, const double *beta, double *C, int ldc))                                             \
    F(cublasStatus_t, cublasCsyrk_v2,                                                                                 \
      (cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans, int n, int k, const cuComplex *alpha,   \
       const cuComplex *A, int lda, const cuComplex *beta, cuComplex *C, int ldc))                                    \
    F(cublasStatus_t, cublasZsyrk_v2,                                                                                 \
      (cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans, int n, int k,                           \
       const cuDoubleComplex *alpha, const cuDoubleComplex *A, int lda, const cuDoubleComplex *beta,                  \
       cuDoubleComplex *C, int ldc))                                                                                  \
    F(cublasStatus_t, cublasStrmm_v2,                                                                                 \
      (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans,                  \
       cublasDiagType_t diag, int m, int n, const float *alpha, const float *A, int lda, const float *B, int ldb,     \
       float *C, int ldc))                                                                                            \
    F(cublasStatus_t, cublasDtrmm_v2,                                                                                 \
      (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans,                  \
       cublasDiagType_t diag, int m, int n, const double *alpha, const double *A, int lda, const double *B, int ldb,  \
       double *C, int ldc))                                                                                           \
    F(cublasStatus_t, cublasCtrmm_v2,                                                                                 \
      (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans,                  \
       cublasDiagType_t diag, int m, int n, const cuComplex *alpha, const cuComplex *A, int lda, const cuComplex *B,  \
       int ldb, cuComplex *C, int ldc))                                                                               \
    F(cublasStatus_t, cublasZtrmm_v2,                                                                                 \
      (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans,                  \
       cublasDiagType_t diag, int m, int n, const cuDoubleComplex *alpha, const cuDoubleComplex *A, int lda,          \
       const cuDoubleComplex *B, int ldb, cuDoubleComplex *C, int ldc))                                               \
    F(cublasStatus_t, cublasStrsm_v2,                                                                                 \
      (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans,                  \
       cublasDiagType_t diag, int m, int n, const float *alpha, const float *A, int lda, float *B, int ldb))          \
    F(cublasStatus_t, cublasDtrsm_v2,                                                                                 \
      (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans,                  \
       cublasDiagType_t diag, int m, int n, const double *alpha, const double *A, int lda, double *B, int ldb))       \
    F(cublasStatus_t, cublasCtrsm_v2,                                                                                 \
      (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans,                  \
       cublasDiagType_t diag, int m, int n, const cuComplex *alpha, const cuComplex *A, int lda, cuComplex *B,        \
       int ldb))                                                                                                      \
    F(cublasStatus_t, cublasZtrsm_v2,                                                                                 \
      (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans,                  \
       cublasDiagType_t diag, int m, int n, const cuDoubleComplex *alpha, const cuDoubleComplex *A, int lda,          \
       cuDoubleComplex *B, int ldb))                                                                                  \
    F(cublasStatus_t, cublasSgeam,                                                                                    \
      (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, const float *alpha,   \
       const float *A, int lda, const float *beta, const float *B, int ldb, float *C, int ldc))                       \
    F(cublasStatus_t, cublasDgeam,                                                                                    \
      (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, const double *alpha,  \
       const double *A, int lda, const double *beta, const double *B, int ldb, double *C, int ldc))                   \
    F(cublasStatus_t, cublasCgeam,                                                                                    \
      (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,                       \
       const cuComplex *alpha, const cuComplex *A, int lda, const cuComplex *beta, const cuComplex *B, int ldb,       \
       cuComplex *C, int ldc))                                                                                        \
    F(cublasStatus_t, cublasZgeam,                                                                                    \
      (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,                       \
       const cuDoubleComplex *alpha, const cuDoubleComplex *A, int lda, const cuDoubleComplex *beta,                  \
       const cuDoubleComplex *B, int ldb, cuDoubleComplex *C, int ldc))                                               \
    F(cublasStatus_t, cublasSgemvStridedBatched,                                                                      \
      (cublasHandle_t handle, cublasOperation_t trans, int m, int n, const float *alpha, const float *A, int lda,     \
       long long int strideA, const float *x, int incx, long long int stridex, const float *beta, float *y, int incy, \
       long long int stridey, int batchCount))                                                                        \
    F(cublasStatus_t, cublasDgemvStridedBatched,                                                                      \
      (cublasHandle_t handle, cublasOperation_t trans, int m, int n, const double *alpha, const double *A, int lda,   \
       long long int strideA, const double *x, int incx, long long int stridex, const double *beta, double *y,        \
       int incy, long long int stridey, int batchCount))                                                              \
    F(cublasStatus_t, cublasCgemvStridedBatched,                                                                      \
      (cublasHandle_t handle, cublasOperation_t trans, int m, int n, const cuComplex *alpha, const cuComplex *A,      \
       int lda, long long int strideA, const cuComplex *x, int incx, long long int stridex, const cuComplex *beta,    \
       cuComplex *y, int incy, long long int stridey, int batchCount))                                                \
    F(cublasStatus_t, cublasZgemvStridedBatched,                                                                      \
      (cublasHandle_t handle, cublasOperation_t trans, int m, int n, const cuDoubleComplex *alpha,                    \
       const cuDoubleComplex *A, int lda, long long int strideA, const cuDoubleComplex *x, int incx,                  \
       long long int stridex, const cuDoubleComplex *beta, cuDoubleComplex *y, int incy, long long int stridey,       \
       int batchCount))                                                                                               \
    F(cublasStatus_t, cublasSgemmStridedBatched,                                                                      \
      (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,                \
       const float *alpha, const float *A, int lda, long long int strideA, const float *B, int ldb,                   \
       long long int strideB, const float *beta, float *C, int ldc, long long int strideC, int batchCount))           \
    F(cublasStatus_t, cublasDgemmStridedBatched,                                                                      \
      (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,                \
       const double *alpha, const double *A, int lda, long long int strideA, const double *B, int ldb,                \
       long long int strideB, const double *beta, double *C, int ldc, long long int strideC, int batchCount))         \
    F(cublasStatus_t, cublasCgemmStridedBatched,                                                                      \
      (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,                \
       const cuComplex *alpha, const cuComplex *A, int lda, long long int strideA, const cuComplex *B, int ldb,       \
       long long int strideB, const cuComplex *beta, cuComplex *C, int ldc, long long int strideC, int batchCount))   \
    F(cublasStatus_t, cublasZgemmStridedBatched,                                                                      \
      (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,                \
       const cuDoubleComplex *alpha, const cuDoubleComplex *A, int lda, long long int strideA,                        \
       const cuDoubleComplex *B, int ldb, long long int strideB, const cuDoubleComplex *beta, cuDoubleComplex *C,     \
       int ldc, long long int strideC, int batchCount))                                                               \
    F(cublasStatus_t, cublasStrsmBatched,                                                                             \
      (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans,                  \
       cublasDiagType_t diag, int m, int n, const float *alpha, const float *const A[], int lda, float *const B[],    \
       int ldb, int batchCount))                                                                                      \
    F(cublasStatus_t, cublasDtrsmBatched,                                                                             \
      (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans,                  \
       cublasDiagType_t diag, int m, int n, const double *alpha, const double *const A[], int lda, double *const B[], \
       int ldb, int batchCount))                                                                                      \
    F(cublasStatus_t, cublasCtrsmBatched,                                                                             \
      (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans,                  \
       cublasDiagType_t diag, int m, int n, const cuComplex *alpha, const cuComplex *const A[], int lda,              \
       cuComplex *const B[], int ldb, int batchCount))                                                                \
    F(cublasStatus_t, cublasZtrsmBatched,                                                                             \
      (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans,                  \
       cublasDiagType_t diag, int m, int n, const cuDoubleComplex *alpha, const cuDoubleComplex *const A[], int lda,  \
       cuDoubleComplex *const B[], int ldb, int batchCount))                                                          \
    F(cublasStatus_t, cublasSgetrfBatched,                                                                            \
      (cublasHandle_t handle, int n, float *const A[], int lda, int *P, int *info, int batchSize))                    \
    F(cublasStatus_t, cublasDgetrfBatched,                                                                            \
      (cublasHandle_t handle, int n, double *const A[], int lda, int *P, int *info, int batchSize))                   \
    F(cublasStatus_t, cublasCgetrfBatched,                                                                            \
      (cublasHandle_t handle, int n, cuComplex *const A[], int lda, int *P, int *info, int batchSize))                \
    F(cublasStatus_t, cublasZgetrfBatched,                                                                            \
      (cublasHandle_t handle, int n, cuDoubleComplex *const A[], int lda, int *P, int *info, int batchSize))          \
    F(cublasStatus_t, cublasSgetrsBatched,                                                                            \
      (cublasHandle_t handle, cublasOperation_t trans, int n, int nrhs, const float *const Aarray[], int lda,         \
       const int *devIpiv, float *const Barray[], int ldb, int *info, int batchSize))                                 \
    F(cublasStatus_t, cublasDgetrsBatched,                                                                            \
      (cublasHandle_t handle, cublasOperation_t trans, int n, int nrhs, const double *const Aarray[], int lda,        \
       const int *devIpiv, double *const Barray[], int ldb, int *info, int batchSize))                                \
    F(cublasStatus_t, cublasCgetrsBatched,                                                                            \
      (cublasHandle_t handle, cublasOperation_t trans, int n, int nrhs, const cuComplex *const Aarray[], int lda,     \
       const int *devIpiv, cuComplex *const Barray[], int ldb, int *info, int batchSize))                             \
    F(cublasStatus_t, cublasZgetrsBatched,                                                                            \
      (cublasHandle_t handle, cublasOperation_t trans, int n, int nrhs, const cuDoubleComplex *const Aarray[],        \
       int lda, const int *devIpiv, cuDoubleComplex *const Barray[], int ldb, int *info, int batchSize))              \
    F(cublasStatus_t, cublasSdot_v2,                                                                                  \
      (cublasHandle_t handle, int n, const float *x, int incx, const float *y, int incy, float *result))              \
    F(cublasStatus_t, cublasDdot_v2,                                                                                  \
      (cublasHandle_t handle, int n, const double *x, int incx, const double *y, int incy, double *result))           \
    F(cublasStatus_t, cublasCdotu_v2,                                                                                 \
      (cublasHandle_t handle, int n, const cuComplex *x, int incx, const cuComplex *y, int incy, cuComplex *result))  \
    F(cublasStatus_t, cublasCdotc_v2,                                                                                 \
      (cublasHandle_t handle, int n, const cuComplex *x, int incx, const cuComplex *y, int incy, cuComplex *result))  \
    F(cublasStatus_t, cublasZdotu_v2,                                                                                 \
      (cublasHandle_t handle, int n, const cuDoubleComplex *x, int incx, const cuDoubleComplex *y, int incy,          \
       cuDoubleComplex *result))                                                                                      \
    F(cublasStatus_t, cublasZdotc_v2,                                                                                 \
      (cublasHandle_t handle, int n, const cuDoubleComplex *x, int incx, const cuDoubleComplex *y, int incy,          \
       cuDoubleComplex *result))                                                                                      \
    F(cublasStatus_t, cublasSnrm2_v2, (cublasHandle_t handle, int n, const float *x, int incx, float *result))        \
    F(cublasStatus_t, cublasDnrm2_v2, (cublasHandle_t handle, int n, const double *x, int incx, double *result))      \
    F(cublasStatus_t, cublasScnrm2_v2, (cublasHandle_t handle, int n, const cuComplex *x, int incx, float *result))   \
    F(cublasStatus_t, cublasDznrm2_v2,                                                                                \
      (cublasHandle_t handle, int n, const cuDoubleComplex *x, int incx, double *result))                             \
    F(cublasStatus_t, cublasSger_v2,                                                                                  \
      (cublasHandle_t handle, int m, int n, const float *alpha, const float *x, int incx, const float *y, int incy,   \
       float *A, int lda))                                                                                            \
    F(cublasStatus_t, cublasDger_v2,                                                                                  \
      (cublasHandle_t handle, int m, int n, const double *alpha, const double *x, int incx, const double *y,          \
       int incy, double *A, int lda))                                                                                 \
    F(cublasStatus_t, cublasCgeru_v2,                                                                                 \
      (cublasHandle_t handle, int m, int n, const cuComplex *alpha, const cuComplex *x, int incx, const cuComplex *y, \
       int incy, cuComplex *A, int lda))                                                                              \
    F(cublasStatus_t, cublasCgerc_v2,                                                                                 \
      (cublasHandle_t handle, int m, int n, const cuComplex *alpha, const cuComplex *x, int incx, const cuComplex *y, \
       int incy, cuComplex *A, int lda))                                                                              \
    F(cublasStatus_t, cublasZgeru_v2,                                                                                 \
      (cublasHandle_t handle, int m, int n, const cuDoubleComplex *alpha, const cuDoubleComplex *x, int incx,         \
       const cuDoubleComplex *y, int incy, cuDoubleComplex *A, int lda))                                              \
    F(cublasStatus_t, cublasZgerc_v2,                                                                                 \
      (cublasHandle_t handle, int m, int n, const cuDoubleComplex *alpha, const cuDoubleComplex *x, int incx,         \
       const cuDoubleComplex *y, int incy, cuDoubleComplex *A, int lda))

#define ATOMR_CUBLAS_OPTIONAL(F)                                                                                      \
    F(cublasStatus_t, cublasGemmGroupedBatchedEx,                                                                     \
      (cublasHandle_t handle, const cublasOperation_t transa_array[], const cublasOperation_t transb_array[],         \
       const int m_array[], const int n_array[], const int k_array[], const void *alpha_array,                        \
       const void *const Aarray[], cudaDataType_t Atype, const int lda_array[], const void *const Barray[],           \
       cudaDataType_t Btype, const int ldb_array[], const void *beta_array, void *const Carray[],                     \
       cudaDataType_t Ctype, const int ldc_array[], int group_count, const int group_size[],                          \
       cublasComputeType_t computeType))

#endif
