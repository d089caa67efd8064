/* A cuSOLVER without a GPU, and cuBLAS's batched LU: each call is noted, and computed in plain loops in the order of
 * its stream.
 *
 * As documented: memory of the device and of the host belongs to the library until its work is done, and what is in the
 * triangle that is not named means nothing afterwards; both are made use of here, so that who relies on more fails. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fake_blas.h"
#include "fake_solver.h"

struct cusolverDnParams {
    int alive;
};

enum { POTRF = 0, POTRS, GETRF, GETRS };

typedef struct {
    int routine, uplo, trans, wide, by_address, scribbles;
    cudaDataType type;
    int64_t m, n, k, lda, ldb, at; /* `at`: which of a batch */
    void *a, *b, *pivots, *scratch, *host;
    size_t scratch_bytes;
    unsigned char mark;
    int *info;
} noted;

static number get(const noted *c, const void *p, int64_t i) { return element(c->type, p, i); }

static void put(const noted *c, void *p, int64_t i, number x) { set_element(c->type, p, i, x); }

/* Element (i, j) of the lower factor, or of the adjoint of the upper one. */
static number factor(const noted *c, int64_t i, int64_t j) {
    return c->uplo ? conj(get(c, c->a, i * c->lda + j)) : get(c, c->a, j * c->lda + i);
}

static void potrf(const noted *c) {
    *c->info = 0;
    for (int64_t j = 0; j < c->n && !*c->info; j++) {
        double pivot = creal(factor(c, j, j));
        for (int64_t p = 0; p < j; p++) pivot -= creal(factor(c, j, p) * conj(factor(c, j, p)));
        if (!(pivot > 0)) *c->info = (int)j + 1;
        pivot = sqrt(pivot);
        put(c, c->a, j * c->lda + j, pivot);
        for (int64_t i = j + 1; i < c->n; i++) {
            number sum = factor(c, i, j);
            for (int64_t p = 0; p < j; p++) sum -= factor(c, i, p) * conj(factor(c, j, p));
            sum /= pivot;
            put(c, c->a, c->uplo ? i * c->lda + j : j * c->lda + i, c->uplo ? conj(sum) : sum);
        }
    }
    for (int64_t j = 0; c->scribbles && j < c->n; j++)
        for (int64_t i = 0; i < j; i++) put(c, c->a, c->uplo ? i * c->lda + j : j * c->lda + i, -777);
}

static void potrs(const noted *c) {
    for (int64_t q = 0; q < c->k; q++) {
        for (int64_t i = 0; i < c->n; i++) {
            number sum = get(c, c->b, q * c->ldb + i);
            for (int64_t p = 0; p < i; p++) sum -= factor(c, i, p) * get(c, c->b, q * c->ldb + p);
            put(c, c->b, q * c->ldb + i, sum / factor(c, i, i));
        }
        for (int64_t i = c->n; i-- > 0;) {
            number sum = get(c, c->b, q * c->ldb + i);
            for (int64_t p = i + 1; p < c->n; p++) sum -= conj(factor(c, p, i)) * get(c, c->b, q * c->ldb + p);
            put(c, c->b, q * c->ldb + i, sum / conj(factor(c, i, i)));
        }
    }
    *c->info = 0;
}

static int64_t pivot_of(const noted *c, int64_t i) {
    return (c->wide ? ((const int64_t *)c->pivots)[i] : ((const int *)c->pivots)[i]) - 1;
}

static void exchange(const noted *c, void *p, int64_t ld, int64_t columns, int64_t i, int64_t other) {
    for (int64_t j = 0; j < columns && i != other; j++) {
        const number x = get(c, p, j * ld + i);
        put(c, p, j * ld + i, get(c, p, j * ld + other));
        put(c, p, j * ld + other, x);
    }
}

static void getrf(const noted *c) {
    const int64_t least = c->m < c->n ? c->m : c->n;
    *c->info = 0;
    for (int64_t j = 0; c->wide && j < c->n; j++) /* cuSOLVER 12.0.4 took NaN for 0; cuBLAS did not */
        for (int64_t i = 0; i < c->m; i++) {
            const number x = get(c, c->a, j * c->lda + i);
            if (isnan(creal(x)) || isnan(cimag(x))) put(c, c->a, j * c->lda + i, 0);
        }
    for (int64_t j = 0; j < least; j++) {
        int64_t best = j;
        double largest = -1;
        for (int64_t i = j; i < c->m; i++) {
            const number x = get(c, c->a, j * c->lda + i);
            const double size = fabs(creal(x)) + fabs(cimag(x));
            if (size > largest) largest = size, best = i;
        }
        largest = largest < 0 ? 0 : largest; /* nothing but NaN */
        if (c->wide) ((int64_t *)c->pivots)[j] = best + 1;
        else ((int *)c->pivots)[j] = (int)best + 1;
        if (largest == 0) {
            if (!*c->info) *c->info = (int)j + 1;
            continue;
        }
        exchange(c, c->a, c->lda, c->n, j, best);
        const number reciprocal = 1 / get(c, c->a, j * c->lda + j); /* infinite for many subnormal pivots, as on a GPU */
        for (int64_t i = j + 1; i < c->m; i++) {
            const number left = get(c, c->a, j * c->lda + i) * reciprocal;
            put(c, c->a, j * c->lda + i, left);
            for (int64_t q = j + 1; q < c->n; q++)
                put(c, c->a, q * c->lda + i, get(c, c->a, q * c->lda + i) - left * get(c, c->a, q * c->lda + j));
        }
    }
}

/* Element (i, j) of op(LU). */
static number of(const noted *c, int64_t i, int64_t j) {
    if (!c->trans) return get(c, c->a, j * c->lda + i);
    const number x = get(c, c->a, i * c->lda + j);
    return c->trans == CUBLAS_OP_C ? conj(x) : x;
}

static void getrs(const noted *c) {
    for (int64_t i = 0; i < c->n; i++)
        if (pivot_of(c, i) < 0 || pivot_of(c, i) >= c->n) fake_raise(ERROR_ILLEGAL_ADDRESS);
    for (int64_t i = 0; i < c->n && !c->trans; i++) exchange(c, c->b, c->ldb, c->k, i, pivot_of(c, i));
    for (int64_t q = 0; q < c->k; q++) {
        for (int64_t i = 0; i < c->n; i++) { /* a lower triangle: L, or the transpose of U */
            number sum = get(c, c->b, q * c->ldb + i);
            for (int64_t p = 0; p < i; p++) sum -= of(c, i, p) * get(c, c->b, q * c->ldb + p);
            put(c, c->b, q * c->ldb + i, c->trans ? sum / of(c, i, i) : sum);
        }
        for (int64_t i = c->n; i-- > 0;) {
            number sum = get(c, c->b, q * c->ldb + i);
            for (int64_t p = i + 1; p < c->n; p++) sum -= of(c, i, p) * get(c, c->b, q * c->ldb + p);
            put(c, c->b, q * c->ldb + i, c->trans ? sum : sum / of(c, i, i));
        }
    }
    for (int64_t i = c->n; i-- > 0 && c->trans;) exchange(c, c->b, c->ldb, c->k, i, pivot_of(c, i));
}

static void run(void *argument) {
    noted *const c = argument;
    if (c->by_address) {
        c->a = ((void **)c->a)[c->at];
        if (c->b) c->b = ((void **)c->b)[c->at];
    }
    for (int i = 0; c->host && i < HOST_BYTES; i++) /* it was changed, or given to another call */
        if (((unsigned char *)c->host)[i] != c->mark) fake_raise(ERROR_LAUNCH_FAILED);
    if (c->scratch_bytes) memset(c->scratch, 0xff, c->scratch_bytes);
    switch (c->routine) {
    case POTRF: potrf(c); break;
    case POTRS: potrs(c); break;
    case GETRF: getrf(c); break;
    default: getrs(c);
    }
}

static int enqueue(CUstream stream, noted c) { return fake_enqueue(stream, run, &c, sizeof c, 0) != 0; }

/* Handles that are alive, for tests in this process. */
_Atomic unsigned fake_solver_handles;

cusolverStatus_t cusolverGetProperty(libraryPropertyType type, int *value) {
    static const int parts[] = {12, 0, 4};
    if (type < 0 || type > 2) return CUSOLVER_STATUS_INVALID_VALUE;
    *value = parts[type];
    return 0;
}
cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t *handle) {
    const CUresult refusal = fake_refusal(__func__);
    *handle = refusal ? NULL : calloc(1, sizeof **handle);
    fake_solver_handles += *handle != NULL;
    return refusal ? (cusolverStatus_t)refusal : *handle ? 0 : CUSOLVER_STATUS_ALLOC_FAILED;
}
cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle) {
    fake_solver_handles--;
    free(handle);
    return 0;
}
cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t streamId) {
    handle->stream = streamId;
    return 0;
}
cusolverStatus_t cusolverDnCreateParams(cusolverDnParams_t *params) {
    *params = calloc(1, sizeof **params);
    return *params ? 0 : CUSOLVER_STATUS_ALLOC_FAILED;
}
cusolverStatus_t cusolverDnDestroyParams(cusolverDnParams_t params) {
    free(params);
    return 0;
}

static cusolverStatus_t sizes(cudaDataType type, cudaDataType compute, int64_t m, int64_t n, int64_t lda,
                              size_t *device, size_t *host) {
    if (type != compute || m < 0 || n < 0 || lda < (m > 1 ? m : 1)) return CUSOLVER_STATUS_INVALID_VALUE;
    *device = size_of(type) * (size_t)n * 3 + 8;
    *host = HOST_BYTES;
    return 0;
}
cusolverStatus_t cusolverDnXpotrf_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                             cublasFillMode_t uplo, int64_t n, cudaDataType dataTypeA, const void *A,
                                             int64_t lda, cudaDataType computeType, size_t *device, size_t *host) {
    (void)handle, (void)params, (void)uplo, (void)A;
    return sizes(dataTypeA, computeType, n, n, lda, device, host);
}
cusolverStatus_t cusolverDnXgetrf_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m,
                                             int64_t n, cudaDataType dataTypeA, const void *A, int64_t lda,
                                             cudaDataType computeType, size_t *device, size_t *host) {
    (void)handle, (void)params, (void)A;
    return sizes(dataTypeA, computeType, m, n, lda, device, host);
}

/* Check and enqueue a factorisation. */
static cusolverStatus_t factorize(cusolverDnHandle_t handle, noted c, cudaDataType compute, size_t host_bytes) {
    static _Atomic unsigned char marks;
    size_t device, host;
    const cusolverStatus_t status = sizes(c.type, compute, c.m, c.n, c.lda, &device, &host);
    if (status) return status;
    if (!handle->stream || c.scratch_bytes < device || host_bytes < host || !c.host || !c.info)
        return CUSOLVER_STATUS_INVALID_VALUE;
    c.mark = ++marks;
    memset(c.host, c.mark, HOST_BYTES);
    return enqueue(handle->stream, c) ? CUSOLVER_STATUS_EXECUTION_FAILED : 0;
}

cusolverStatus_t cusolverDnXpotrf(cusolverDnHandle_t handle, cusolverDnParams_t params, cublasFillMode_t uplo,
                                  int64_t n, cudaDataType dataTypeA, void *A, int64_t lda, cudaDataType computeType,
                                  void *bufferOnDevice, size_t workspaceInBytesOnDevice, void *bufferOnHost,
                                  size_t workspaceInBytesOnHost, int *info) {
    (void)params;
    const noted c = {.routine = POTRF, .uplo = uplo, .type = dataTypeA, .m = n, .n = n, .lda = lda, .a = A,
                     .scratch = bufferOnDevice, .scratch_bytes = workspaceInBytesOnDevice, .host = bufferOnHost,
                     .info = info, .scribbles = 1};
    return factorize(handle, c, computeType, workspaceInBytesOnHost);
}
cusolverStatus_t cusolverDnXgetrf(cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m, int64_t n,
                                  cudaDataType dataTypeA, void *A, int64_t lda, int64_t *ipiv,
                                  cudaDataType computeType, void *bufferOnDevice, size_t workspaceInBytesOnDevice,
                                  void *bufferOnHost, size_t workspaceInBytesOnHost, int *info) {
    (void)params;
    const noted c = {.routine = GETRF, .wide = 1, .type = dataTypeA, .m = m, .n = n, .lda = lda, .a = A,
                     .pivots = ipiv, .scratch = bufferOnDevice, .scratch_bytes = workspaceInBytesOnDevice,
                     .host = bufferOnHost, .info = info};
    return factorize(handle, c, computeType, workspaceInBytesOnHost);
}

static cusolverStatus_t substitute(cusolverDnHandle_t handle, noted c, cudaDataType other) {
    const int64_t least = c.n > 1 ? c.n : 1;
    if (other != c.type || c.n < 0 || c.k < 0 || c.lda < least || c.ldb < least || !c.info)
        return CUSOLVER_STATUS_INVALID_VALUE;
    return enqueue(handle->stream, c) ? CUSOLVER_STATUS_EXECUTION_FAILED : 0;
}
cusolverStatus_t cusolverDnXpotrs(cusolverDnHandle_t handle, cusolverDnParams_t params, cublasFillMode_t uplo,
                                  int64_t n, int64_t nrhs, cudaDataType dataTypeA, const void *A, int64_t lda,
                                  cudaDataType dataTypeB, void *B, int64_t ldb, int *info) {
    (void)params;
    const noted c = {.routine = POTRS, .uplo = uplo, .type = dataTypeA, .n = n, .k = nrhs, .lda = lda, .ldb = ldb,
                     .a = (void *)A, .b = B, .info = info};
    return substitute(handle, c, dataTypeB);
}
cusolverStatus_t cusolverDnXgetrs(cusolverDnHandle_t handle, cusolverDnParams_t params, cublasOperation_t trans,
                                  int64_t n, int64_t nrhs, cudaDataType dataTypeA, const void *A, int64_t lda,
                                  const int64_t *ipiv, cudaDataType dataTypeB, void *B, int64_t ldb, int *info) {
    (void)params;
    const noted c = {.routine = GETRS, .trans = trans, .wide = 1, .type = dataTypeA, .n = n, .k = nrhs, .lda = lda,
                     .ldb = ldb, .a = (void *)A, .b = B, .pivots = (void *)ipiv, .info = info};
    return substitute(handle, c, dataTypeB);
}

#define TYPED(p, T, data_type)                                                                                        \
    cusolverStatus_t cusolverDn##p##potrfBatched(cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, T *Aarray[], \
                                                 int lda, int *infoArray, int batchSize) {                            \
        if (n < 0 || lda < (n > 1 ? n : 1) || batchSize < 1) return CUSOLVER_STATUS_INVALID_VALUE;                    \
        for (int i = 0; i < batchSize; i++) {                                                                         \
            const noted c = {.routine = POTRF, .uplo = uplo, .type = data_type, .m = n, .n = n, .lda = lda,           \
                             .a = Aarray, .by_address = 1, .at = i, .info = infoArray + i, .scribbles = 1};           \
            if (enqueue(handle->stream, c)) return CUSOLVER_STATUS_EXECUTION_FAILED;                                  \
        }                                                                                                             \
        return 0;                                                                                                     \
    }                                                                                                                 \
    cublasStatus_t cublas##p##getrfBatched(cublasHandle_t handle, int n, T *const A[], int lda, int *P, int *info,    \
                                           int batchSize) {                                                           \
        if (n < 0 || lda < (n > 1 ? n : 1) || batchSize < 0) return CUBLAS_STATUS_INVALID_VALUE;                      \
        for (int i = 0; i < batchSize; i++) {                                                                         \
            const noted c = {.routine = GETRF, .type = data_type, .m = n, .n = n, .lda = lda, .a = (void *)A,         \
                             .by_address = 1, .at = i, .pivots = P + (int64_t)i * n, .info = info + i};               \
            if (enqueue(fake_blas_stream(handle), c)) return CUBLAS_STATUS_EXECUTION_FAILED;                          \
        }                                                                                                             \
        return 0;                                                                                                     \
    }                                                                                                                 \
    cublasStatus_t cublas##p##getrsBatched(cublasHandle_t handle, cublasOperation_t trans, int n, int nrhs,           \
                                           const T *const Aarray[], int lda, const int *devIpiv, T *const Barray[],   \
                                           int ldb, int *info, int batchSize) {                                       \
        const int least = n > 1 ? n : 1;                                                                              \
        *info = n < 0 ? -2 : nrhs < 0 ? -3 : lda < least ? -5 : ldb < least ? -8 : 0; /* in host memory */             \
        if (*info || batchSize < 0) return CUBLAS_STATUS_INVALID_VALUE;                                               \
        for (int i = 0; i < batchSize; i++) {                                                                         \
            const noted c = {.routine = GETRS, .trans = trans, .type = data_type, .n = n, .k = nrhs, .lda = lda,      \
                             .ldb = ldb, .a = (void *)Aarray, .b = (void *)Barray, .by_address = 1, .at = i,          \
                             .pivots = (void *)(devIpiv + (int64_t)i * n)};                                           \
            if (enqueue(fake_blas_stream(handle), c)) return CUBLAS_STATUS_EXECUTION_FAILED;                          \
        }                                                                                                             \
        return 0;                                                                                                     \
    }

TYPED(S, float, CUDA_R_32F)
TYPED(D, double, CUDA_R_64F)
TYPED(C, cuComplex, CUDA_C_32F)
TYPED(Z, cuDoubleComplex, CUDA_C_64F)
