/* The functions of cuBLAS that plans call, spelled as cublas_api.h spells them, so that a test can redeclare each after
 * the real header.  F(name, arguments); every one returns a cublasStatus_t. */
#ifndef ATOMR_CUBLAS_FUNCTIONS_H
#define ATOMR_CUBLAS_FUNCTIONS_H

/* Those of one type: `p` is its letter, `T` its elements. */
#define ATOMR_CUBLAS_TYPED(F, p, T)                                                                                   \
    F(cublas##p##axpy_v2, (cublasHandle_t handle, int n, const T *alpha, const T *x, int incx, T *y, int incy))       \
    F(cublas##p##scal_v2, (cublasHandle_t handle, int n, const T *alpha, T *x, int incx))                             \
    F(cublas##p##gemv_v2, (cublasHandle_t handle, cublasOperation_t trans, int m, int n, const T *alpha, const T *A,  \
                           int lda, const T *x, int incx, const T *beta, T *y, int incy))                             \
    F(cublas##p##symm_v2, (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, int m, int n,         \
                           const T *alpha, const T *A, int lda, const T *B, int ldb, const T *beta, T *C, int ldc))   \
    F(cublas##p##syrk_v2, (cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans, int n, int k,       \
                           const T *alpha, const T *A, int lda, const T *beta, T *C, int ldc))                        \
    F(cublas##p##trmm_v2, (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,                       \
                           cublasOperation_t trans, cublasDiagType_t diag, int m, int n, const T *alpha, const T *A,  \
                           int lda, const T *B, int ldb, T *C, int ldc))                                              \
    F(cublas##p##trsm_v2, (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,                       \
                           cublasOperation_t trans, cublasDiagType_t diag, int m, int n, const T *alpha, const T *A,  \
                           int lda, T *B, int ldb))                                                                   \
    F(cublas##p##geam, (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,      \
                        const T *alpha, const T *A, int lda, const T *beta, const T *B, int ldb, T *C, int ldc))      \
    F(cublas##p##gemvStridedBatched, (cublasHandle_t handle, cublasOperation_t trans, int m, int n, const T *alpha,   \
                                      const T *A, int lda, long long int strideA, const T *x, int incx,               \
                                      long long int stridex, const T *beta, T *y, int incy, long long int stridey,    \
                                      int batchCount))                                                                \
    F(cublas##p##gemmStridedBatched, (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,\
                                      int n, int k, const T *alpha, const T *A, int lda, long long int strideA,       \
                                      const T *B, int ldb, long long int strideB, const T *beta, T *C, int ldc,       \
                                      long long int strideC, int batchCount))                                         \
    F(cublas##p##trsmBatched, (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,                   \
                               cublasOperation_t trans, cublasDiagType_t diag, int m, int n, const T *alpha,          \
                               const T *const A[], int lda, T *const B[], int ldb, int batchCount))

#define ATOMR_CUBLAS_DOT(F, name, T)                                                                                  \
    F(name, (cublasHandle_t handle, int n, const T *x, int incx, const T *y, int incy, T *result))
#define ATOMR_CUBLAS_NRM2(F, name, T, R)                                                                              \
    F(name, (cublasHandle_t handle, int n, const T *x, int incx, R *result))
#define ATOMR_CUBLAS_GER(F, name, T)                                                                                  \
    F(name, (cublasHandle_t handle, int m, int n, const T *alpha, const T *x, int incx, const T *y, int incy, T *A,   \
             int lda))

#define ATOMR_CUBLAS_FUNCTIONS(F)                                                                                     \
    F(cublasCreate_v2, (cublasHandle_t * handle))                                                                     \
    F(cublasDestroy_v2, (cublasHandle_t handle))                                                                      \
    F(cublasGetVersion_v2, (cublasHandle_t handle, int *version))                                                     \
    F(cublasSetStream_v2, (cublasHandle_t handle, cudaStream_t streamId))                                             \
    F(cublasSetWorkspace_v2, (cublasHandle_t handle, void *workspace, size_t workspaceSizeInBytes))                   \
    F(cublasSetPointerMode_v2, (cublasHandle_t handle, cublasPointerMode_t mode))                                     \
    ATOMR_CUBLAS_TYPED(F, S, float)                                                                                   \
    ATOMR_CUBLAS_TYPED(F, D, double)                                                                                  \
    ATOMR_CUBLAS_TYPED(F, C, cuComplex)                                                                               \
    ATOMR_CUBLAS_TYPED(F, Z, cuDoubleComplex)                                                                         \
    ATOMR_CUBLAS_DOT(F, cublasSdot_v2, float)                                                                         \
    ATOMR_CUBLAS_DOT(F, cublasDdot_v2, double)                                                                        \
    ATOMR_CUBLAS_DOT(F, cublasCdotu_v2, cuComplex)                                                                    \
    ATOMR_CUBLAS_DOT(F, cublasCdotc_v2, cuComplex)                                                                    \
    ATOMR_CUBLAS_DOT(F, cublasZdotu_v2, cuDoubleComplex)                                                              \
    ATOMR_CUBLAS_DOT(F, cublasZdotc_v2, cuDoubleComplex)                                                              \
    ATOMR_CUBLAS_NRM2(F, cublasSnrm2_v2, float, float)                                                                \
    ATOMR_CUBLAS_NRM2(F, cublasDnrm2_v2, double, double)                                                              \
    ATOMR_CUBLAS_NRM2(F, cublasScnrm2_v2, cuComplex, float)                                                           \
    ATOMR_CUBLAS_NRM2(F, cublasDznrm2_v2, cuDoubleComplex, double)                                                    \
    ATOMR_CUBLAS_GER(F, cublasSger_v2, float)                                                                         \
    ATOMR_CUBLAS_GER(F, cublasDger_v2, double)                                                                        \
    ATOMR_CUBLAS_GER(F, cublasCgeru_v2, cuComplex)                                                                    \
    ATOMR_CUBLAS_GER(F, cublasCgerc_v2, cuComplex)                                                                    \
    ATOMR_CUBLAS_GER(F, cublasZgeru_v2, cuDoubleComplex)                                                              \
    ATOMR_CUBLAS_GER(F, cublasZgerc_v2, cuDoubleComplex)

/* Those that are used where the library has them: from 12.5. */
#define ATOMR_CUBLAS_OPTIONAL(F)                                                                                      \
    F(cublasGemmGroupedBatchedEx,                                                                                     \
      (cublasHandle_t handle, const cublasOperation_t transa_array[], const cublasOperation_t transb_array[],         \
       const int m_array[], const int n_array[], const int k_array[], const void *alpha_array,                        \
       const void *const Aarray[], cudaDataType_t Atype, const int lda_array[], const void *const Barray[],           \
       cudaDataType_t Btype, const int ldb_array[], const void *beta_array, void *const Carray[],                     \
       cudaDataType_t Ctype, const int ldc_array[], int group_count, const int group_size[],                          \
       cublasComputeType_t computeType))

#endif
