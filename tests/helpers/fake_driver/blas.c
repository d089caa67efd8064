/* A cuBLAS without a GPU: each call is noted, and computed in plain loops in the order of its stream.
 *
 * A handle is for one thread at a time, as the real one's.  A call that would go to another stream than the one that
 * its thread has set, since a second thread has set another one meanwhile, is refused; FAKE_CUDA_MEET makes sure that
 * they meet. */
#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libraries/cublas/call.h"
#include "fake_blas.h"
#include "fake_cublaslt.h"
#include "fake_driver.h"

struct cublasContext {
    CUstream stream;
    int on_device;
    size_t workspace;
};

typedef struct {
    int routine, type, conjugated, side, uplo, ta, tb, diag, m, n, k, step[3];
    int by_address; /* `at` are where the addresses are, once it runs */
    void *at[3];
    double alpha[2], beta[2];
} noted;

typedef double complex number;

static number get(const noted *c, int which, int64_t i) {
    const void *p = c->at[which];
    switch (c->type) {
    case 0: return ((const float *)p)[i];
    case 1: return ((const double *)p)[i];
    case 2: return ((const float *)p)[2 * i] + ((const float *)p)[2 * i + 1] * I;
    default: return ((const double *)p)[2 * i] + ((const double *)p)[2 * i + 1] * I;
    }
}

static void put(const noted *c, int which, int64_t i, number x) {
    void *p = c->at[which];
    switch (c->type) {
    case 0: ((float *)p)[i] = (float)creal(x); break;
    case 1: ((double *)p)[i] = creal(x); break;
    case 2:
        ((float *)p)[2 * i] = (float)creal(x);
        ((float *)p)[2 * i + 1] = (float)cimag(x);
        break;
    default:
        ((double *)p)[2 * i] = creal(x);
        ((double *)p)[2 * i + 1] = cimag(x);
    }
}

/* op(matrix)[i, j]. */
static number of(const noted *c, int which, int op, int i, int j) {
    const number x = op ? get(c, which, (int64_t)i * c->step[which] + j) : get(c, which, (int64_t)j * c->step[which] + i);
    return op == 2 ? conj(x) : x;
}

static int inside(const noted *c, int i, int j) { return c->uplo ? i <= j : i >= j; }

/* op(A)[i, j] of a triangular or symmetric A. */
static number triangular(const noted *c, int i, int j) {
    const int row = c->ta ? j : i, column = c->ta ? i : j;
    if (c->routine == ATOMR_BLAS_SYMM) return inside(c, i, j) ? of(c, 0, 0, i, j) : of(c, 0, 0, j, i);
    if (row == column && c->diag) return 1;
    return inside(c, row, column) ? of(c, 0, c->ta, i, j) : 0;
}

static void solve(const noted *c, number alpha) {
    const int size = c->side ? c->n : c->m, count = c->side ? c->m : c->n;
    const int forward = c->side ? !inside(c, 1, 0) ^ (c->ta != 0) : inside(c, 1, 0) ^ (c->ta != 0);
    for (int q = 0; q < count; q++)
        for (int s = 0; s < size; s++) {
            const int i = forward ? s : size - 1 - s;
            const int64_t here = c->side ? (int64_t)i * c->step[1] + q : (int64_t)q * c->step[1] + i;
            number sum = alpha * get(c, 1, here);
            for (int d = 0; d < s; d++) {
                const int j = forward ? d : size - 1 - d;
                const int64_t there = c->side ? (int64_t)j * c->step[1] + q : (int64_t)q * c->step[1] + j;
                sum -= (c->side ? triangular(c, j, i) : triangular(c, i, j)) * get(c, 1, there);
            }
            put(c, 1, here, sum / triangular(c, i, i));
        }
}

static void matrices(const noted *c, number alpha, number beta) {
    const int target = c->routine == ATOMR_BLAS_SYRK ? 1 : 2, inner = c->side ? c->n : c->m;
    const int rows = c->routine == ATOMR_BLAS_SYRK ? c->n : c->m;
    number *const made = malloc(((size_t)rows * (size_t)c->n + 1) * sizeof *made);
    if (!made) fake_raise(ERROR_LAUNCH_FAILED);
    for (int j = 0; j < c->n; j++)
        for (int i = 0; i < rows; i++) {
            const int64_t at = (int64_t)j * c->step[target] + i;
            number sum = 0;
            if (c->routine == ATOMR_BLAS_GEAM) {
                sum = alpha * of(c, 0, c->ta, i, j) + (beta != 0 ? beta * of(c, 1, c->tb, i, j) : 0);
            } else if (c->routine == ATOMR_BLAS_SYRK) {
                for (int p = 0; p < c->k; p++) sum += of(c, 0, c->ta, i, p) * of(c, 0, c->ta, j, p);
            } else if (c->routine == ATOMR_BLAS_GEMM) {
                for (int p = 0; p < c->k; p++) sum += of(c, 0, c->ta, i, p) * of(c, 1, c->tb, p, j);
            } else {
                for (int p = 0; p < inner; p++)
                    sum += c->side ? of(c, 1, 0, i, p) * triangular(c, p, j) : triangular(c, i, p) * of(c, 1, 0, p, j);
            }
            if (c->routine != ATOMR_BLAS_GEAM) {
                sum *= alpha;
                if (beta != 0) sum += beta * get(c, target, at);
            }
            made[(size_t)j * (size_t)rows + (size_t)i] = sum;
        }
    for (int j = 0; j < c->n; j++)
        for (int i = 0; i < rows; i++)
            if (c->routine != ATOMR_BLAS_SYRK || inside(c, i, j))
                put(c, target, (int64_t)j * c->step[target] + i, made[(size_t)j * (size_t)rows + (size_t)i]);
    free(made);
}

static void run(void *argument) {
    noted *const c = argument;
    for (int i = 0; i < 2 && c->by_address; i++) memcpy(&c->at[i], c->at[i], sizeof c->at[i]);
    c->by_address = 0;
    const number alpha = c->alpha[0] + c->alpha[1] * I, beta = c->beta[0] + c->beta[1] * I;
    number sum = 0;
    switch (c->routine) {
    case ATOMR_BLAS_AXPY:
        for (int64_t i = 0; i < c->n; i++)
            put(c, 1, i * c->step[1], get(c, 1, i * c->step[1]) + alpha * get(c, 0, i * c->step[0]));
        return;
    case ATOMR_BLAS_SCAL:
        for (int64_t i = 0; i < c->n; i++) put(c, 0, i * c->step[0], alpha * get(c, 0, i * c->step[0]));
        return;
    case ATOMR_BLAS_DOT:
        for (int64_t i = 0; i < c->n; i++) {
            const number x = get(c, 0, i * c->step[0]);
            sum += (c->conjugated ? conj(x) : x) * get(c, 1, i * c->step[1]);
        }
        put(c, 2, 0, sum);
        return;
    case ATOMR_BLAS_NRM2: {
        double squares = 0;
        for (int64_t i = 0; i < c->n; i++) squares += pow(cabs(get(c, 0, i * c->step[0])), 2);
        if (c->type == 0 || c->type == 2) *(float *)c->at[1] = (float)sqrt(squares);
        else *(double *)c->at[1] = sqrt(squares);
        return;
    }
    case ATOMR_BLAS_GEMV: {
        const int rows = c->ta ? c->n : c->m, columns = c->ta ? c->m : c->n;
        for (int i = 0; i < rows; i++) {
            sum = 0;
            for (int j = 0; j < columns; j++) sum += of(c, 0, c->ta, i, j) * get(c, 1, (int64_t)j * c->step[1]);
            const int64_t at = (int64_t)i * c->step[2];
            put(c, 2, at, alpha * sum + (beta != 0 ? beta * get(c, 2, at) : 0));
        }
        return;
    }
    case ATOMR_BLAS_GER:
        for (int j = 0; j < c->n; j++)
            for (int i = 0; i < c->m; i++) {
                const number y = get(c, 1, (int64_t)j * c->step[1]);
                const int64_t at = (int64_t)j * c->step[2] + i;
                put(c, 2, at, get(c, 2, at) + alpha * get(c, 0, (int64_t)i * c->step[0]) * (c->conjugated ? conj(y) : y));
            }
        return;
    case ATOMR_BLAS_TRSM: solve(c, alpha); return;
    default: matrices(c, alpha, beta);
    }
}

static void factor(double into[2], int type, const void *from) {
    if (!from) return;
    if (type == 0 || type == 2) {
        float parts[2] = {0, 0};
        memcpy(parts, from, type == 0 ? 4 : 8);
        into[0] = parts[0];
        into[1] = parts[1];
    } else {
        memcpy(into, from, type == 1 ? 8 : 16);
    }
}

CUstream fake_blas_stream(cublasHandle_t h) { return h->stream; }

/* Handles that are alive, for tests in this process. */
_Atomic unsigned fake_blas_handles;

static __thread struct {
    cublasHandle_t handle;
    CUstream stream;
} mine; /* that this thread has set last */

static int taken_over(cublasHandle_t h) { return mine.handle == h && mine.stream != h->stream; }

/* Wait until as many threads have come as are to meet: a minute at most. */
static void meet(void) {
    static _Atomic unsigned come;
    static __thread int counted;
    const struct timespec nap = {0, 1000000};
    if (!counted) come++;
    counted = 1;
    for (int i = 0; i < 60000 && come < options.meet; i++) nanosleep(&nap, NULL);
}

static cublasStatus_t note(cublasHandle_t h, noted c, const void *alpha, const void *beta) {
    if (taken_over(h)) return 14;
    const int result = c.routine == ATOMR_BLAS_DOT || c.routine == ATOMR_BLAS_NRM2;
    if (h->on_device != result || c.m < 0 || c.n < 0 || c.k < 0) return 7;
    factor(c.alpha, c.type, alpha);
    factor(c.beta, c.type, beta);
    return fake_enqueue(h->stream, run, &c, sizeof c, 0) ? 13 : 0;
}

cublasStatus_t cublasCreate_v2(cublasHandle_t *h) {
    const CUresult captures = fake_unsafe(); /* it allocates memory */
    const CUresult refusal = captures ? captures : fake_refusal(__func__);
    *h = refusal ? NULL : calloc(1, sizeof **h);
    fake_blas_handles += *h != NULL;
    return refusal ? (cublasStatus_t)refusal : *h ? 0 : 3;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t h) {
    fake_blas_handles--;
    free(h);
    return 0;
}
cublasStatus_t cublasGetProperty(libraryPropertyType type, int *value) {
    static const int parts[] = {13, 1, 2};
    if (type < 0 || type > 2) return 7;
    *value = parts[type];
    return 0;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t stream) {
    h->stream = mine.stream = stream;
    h->workspace = 0;
    mine.handle = h;
    meet();
    return 0;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void *workspace, size_t size) {
    h->workspace = size;
    return size && ((uintptr_t)workspace & 255) == 0 ? 0 : 7;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t mode) {
    (void)h;
    return mode == CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION ? 0 : 7; /* without it products round twice */
}
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t h, cublasPointerMode_t mode) {
    h->on_device = mode;
    return 0;
}

#define TYPED(p, T, number_of)                                                                                        \
    cublasStatus_t cublas##p##axpy_v2(cublasHandle_t h, int n, const T *alpha, const T *x, int incx, T *y, int incy) { \
        const noted c = {.routine = ATOMR_BLAS_AXPY, .type = number_of, .n = n, .step = {incx, incy},                 \
                         .at = {(void *)x, y}};                                                                       \
        return note(h, c, alpha, NULL);                                                                               \
    }                                                                                                                 \
    cublasStatus_t cublas##p##scal_v2(cublasHandle_t h, int n, const T *alpha, T *x, int incx) {                      \
        const noted c = {.routine = ATOMR_BLAS_SCAL, .type = number_of, .n = n, .step = {incx}, .at = {x}};           \
        return note(h, c, alpha, NULL);                                                                               \
    }                                                                                                                 \
    cublasStatus_t cublas##p##gemv_v2(cublasHandle_t h, cublasOperation_t trans, int m, int n, const T *alpha,        \
                                      const T *A, int lda, const T *x, int incx, const T *beta, T *y, int incy) {     \
        const noted c = {.routine = ATOMR_BLAS_GEMV, .type = number_of, .ta = trans, .m = m, .n = n,                  \
                         .step = {lda, incx, incy}, .at = {(void *)A, (void *)x, y}};                                 \
        return lda < m || !incx || !incy ? 7 : note(h, c, alpha, beta);                                               \
    }                                                                                                                 \
    cublasStatus_t cublas##p##symm_v2(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t uplo, int m, int n,   \
                                      const T *alpha, const T *A, int lda, const T *B, int ldb, const T *beta, T *C,  \
                                      int ldc) {                                                                      \
        const noted c = {.routine = ATOMR_BLAS_SYMM, .type = number_of, .side = side, .uplo = uplo, .m = m, .n = n,   \
                         .step = {lda, ldb, ldc}, .at = {(void *)A, (void *)B, C}};                                   \
        return lda < (side ? n : m) || ldb < m || ldc < m ? 7 : note(h, c, alpha, beta);                              \
    }                                                                                                                 \
    cublasStatus_t cublas##p##syrk_v2(cublasHandle_t h, cublasFillMode_t uplo, cublasOperation_t trans, int n, int k, \
                                      const T *alpha, const T *A, int lda, const T *beta, T *C, int ldc) {            \
        const noted c = {.routine = ATOMR_BLAS_SYRK, .type = number_of, .uplo = uplo, .ta = trans, .n = n, .k = k,    \
                         .step = {lda, ldc}, .at = {(void *)A, C}};                                                   \
        return lda < (trans ? k : n) || ldc < n ? 7 : note(h, c, alpha, beta);                                        \
    }                                                                                                                 \
    cublasStatus_t cublas##p##trmm_v2(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t uplo,                 \
                                      cublasOperation_t trans, cublasDiagType_t diag, int m, int n, const T *alpha,   \
                                      const T *A, int lda, const T *B, int ldb, T *C, int ldc) {                      \
        const noted c = {.routine = ATOMR_BLAS_TRMM, .type = number_of, .side = side, .uplo = uplo, .ta = trans,      \
                         .diag = diag, .m = m, .n = n, .step = {lda, ldb, ldc}, .at = {(void *)A, (void *)B, C}};     \
        return lda < (side ? n : m) || ldb < m || ldc < m ? 7 : note(h, c, alpha, NULL);                              \
    }                                                                                                                 \
    cublasStatus_t cublas##p##trsm_v2(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t uplo,                 \
                                      cublasOperation_t trans, cublasDiagType_t diag, int m, int n, const T *alpha,   \
                                      const T *A, int lda, T *B, int ldb) {                                           \
        const noted c = {.routine = ATOMR_BLAS_TRSM, .type = number_of, .side = side, .uplo = uplo, .ta = trans,      \
                         .diag = diag, .m = m, .n = n, .step = {lda, ldb}, .at = {(void *)A, B}};                     \
        return lda < (side ? n : m) || ldb < m ? 7 : note(h, c, alpha, NULL);                                         \
    }                                                                                                                 \
    cublasStatus_t cublas##p##geam(cublasHandle_t h, cublasOperation_t transa, cublasOperation_t transb, int m,       \
                                   int n, const T *alpha, const T *A, int lda, const T *beta, const T *B, int ldb,    \
                                   T *C, int ldc) {                                                                   \
        const noted c = {.routine = ATOMR_BLAS_GEAM, .type = number_of, .ta = transa, .tb = transb, .m = m, .n = n,   \
                         .step = {lda, ldb, ldc}, .at = {(void *)A, (void *)B, C}};                                   \
        return lda < (transa ? n : m) || ldb < (transb ? n : m) || ldc < m ? 7 : note(h, c, alpha, beta);             \
    }                                                                                                                 \
    cublasStatus_t cublas##p##gemvStridedBatched(cublasHandle_t h, cublasOperation_t trans, int m, int n,             \
                                                 const T *alpha, const T *A, int lda, long long int strideA,          \
                                                 const T *x, int incx, long long int stridex, const T *beta, T *y,    \
                                                 int incy, long long int stridey, int batchCount) {                   \
        cublasStatus_t status = 0;                                                                                    \
        for (int i = 0; i < batchCount && !status; i++)                                                               \
            status = cublas##p##gemv_v2(h, trans, m, n, alpha, A + i * strideA, lda, x + i * stridex, incx, beta,     \
                                        y + i * stridey, incy);                                                       \
        return status;                                                                                                \
    }                                                                                                                 \
    cublasStatus_t cublas##p##gemmStridedBatched(cublasHandle_t h, cublasOperation_t transa,                          \
                                                 cublasOperation_t transb, int m, int n, int k, const T *alpha,       \
                                                 const T *A, int lda, long long int strideA, const T *B, int ldb,     \
                                                 long long int strideB, const T *beta, T *C, int ldc,                 \
                                                 long long int strideC, int batchCount) {                             \
        if (lda < (transa ? k : m) || ldb < (transb ? n : k) || ldc < m) return 7;                                    \
        cublasStatus_t status = 0;                                                                                    \
        for (int i = 0; i < batchCount && !status; i++) {                                                             \
            const noted c = {.routine = ATOMR_BLAS_GEMM, .type = number_of, .ta = transa, .tb = transb, .m = m,       \
                             .n = n, .k = k, .step = {lda, ldb, ldc},                                                 \
                             .at = {(void *)(A + i * strideA), (void *)(B + i * strideB), C + i * strideC}};          \
            status = note(h, c, alpha, beta);                                                                         \
        }                                                                                                             \
        return status;                                                                                                \
    }                                                                                                                 \
    cublasStatus_t cublas##p##trsmBatched(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t uplo,             \
                                          cublasOperation_t trans, cublasDiagType_t diag, int m, int n,               \
                                          const T *alpha, const T *const A[], int lda, T *const B[], int ldb,         \
                                          int batchCount) {                                                           \
        if (lda < (side ? n : m) || ldb < m) return 7;                                                                \
        cublasStatus_t status = 0;                                                                                    \
        for (int i = 0; i < batchCount && !status; i++) {                                                             \
            const noted c = {.routine = ATOMR_BLAS_TRSM, .type = number_of, .side = side, .uplo = uplo, .ta = trans,  \
                             .diag = diag, .m = m, .n = n, .step = {lda, ldb}, .by_address = 1,                       \
                             .at = {(void *)(A + i), (void *)(B + i)}};                                               \
            status = note(h, c, alpha, NULL);                                                                         \
        }                                                                                                             \
        return status;                                                                                                \
    }

TYPED(S, float, 0)
TYPED(D, double, 1)
TYPED(C, cuComplex, 2)
TYPED(Z, cuDoubleComplex, 3)

#define DOT(name, T, number_of, conjugate)                                                                            \
    cublasStatus_t name(cublasHandle_t h, int n, const T *x, int incx, const T *y, int incy, T *result) {             \
        const noted c = {.routine = ATOMR_BLAS_DOT, .type = number_of, .conjugated = conjugate, .n = n,               \
                         .step = {incx, incy}, .at = {(void *)x, (void *)y, result}};                                 \
        return note(h, c, NULL, NULL);                                                                                \
    }
DOT(cublasSdot_v2, float, 0, 0)
DOT(cublasDdot_v2, double, 1, 0)
DOT(cublasCdotu_v2, cuComplex, 2, 0)
DOT(cublasCdotc_v2, cuComplex, 2, 1)
DOT(cublasZdotu_v2, cuDoubleComplex, 3, 0)
DOT(cublasZdotc_v2, cuDoubleComplex, 3, 1)

#define NRM2(name, T, R, number_of)                                                                                   \
    cublasStatus_t name(cublasHandle_t h, int n, const T *x, int incx, R *result) {                                   \
        const noted c = {.routine = ATOMR_BLAS_NRM2, .type = number_of, .n = n, .step = {incx},                       \
                         .at = {(void *)x, result}};                                                                  \
        return note(h, c, NULL, NULL);                                                                                \
    }
NRM2(cublasSnrm2_v2, float, float, 0)
NRM2(cublasDnrm2_v2, double, double, 1)
NRM2(cublasScnrm2_v2, cuComplex, float, 2)
NRM2(cublasDznrm2_v2, cuDoubleComplex, double, 3)

#define GER(name, T, number_of, conjugate)                                                                            \
    cublasStatus_t name(cublasHandle_t h, int m, int n, const T *alpha, const T *x, int incx, const T *y, int incy,   \
                        T *A, int lda) {                                                                              \
        const noted c = {.routine = ATOMR_BLAS_GER, .type = number_of, .conjugated = conjugate, .m = m, .n = n,       \
                         .step = {incx, incy, lda}, .at = {(void *)x, (void *)y, A}};                                 \
        return lda < m ? 7 : note(h, c, alpha, NULL);                                                                 \
    }
GER(cublasSger_v2, float, 0, 0)
GER(cublasDger_v2, double, 1, 0)
GER(cublasCgeru_v2, cuComplex, 2, 0)
GER(cublasCgerc_v2, cuComplex, 2, 1)
GER(cublasZgeru_v2, cuDoubleComplex, 3, 0)
GER(cublasZgerc_v2, cuDoubleComplex, 3, 1)

cublasStatus_t cublasGemmGroupedBatchedEx(
    cublasHandle_t h, const cublasOperation_t transa_array[], const cublasOperation_t transb_array[], const int m_array[],
    const int n_array[], const int k_array[], const void *alpha_array, const void *const Aarray[], cudaDataType_t Atype,
    const int lda_array[], const void *const Barray[], cudaDataType_t Btype, const int ldb_array[],
    const void *beta_array, void *const Carray[], cudaDataType_t Ctype, const int ldc_array[], int group_count,
    const int group_size[], cublasComputeType_t computeType) {
    const int wide = computeType == CUBLAS_COMPUTE_64F || computeType == CUBLAS_COMPUTE_64F_PEDANTIC;
    int at = 0;
    if (taken_over(h)) return 14;
    if (h->on_device || Atype != Btype || Atype != Ctype || wide != (Atype == CUDA_R_64F)) return 15;
    if (!h->workspace) return 3;
    for (int i = 0; i < group_count; i++) {
        const int m = m_array[i], n = n_array[i], k = k_array[i], ta = transa_array[i], tb = transb_array[i];
        if (lda_array[i] < (ta ? k : m) || ldb_array[i] < (tb ? n : k) || ldc_array[i] < m) return 7;
        record r = {.a = {Atype, ta ? k : m, ta ? m : k, lda_array[i], 0, 1, 0, 1},
                    .b = {Btype, tb ? n : k, tb ? k : n, ldb_array[i], 0, 1, 0, 1},
                    .c = {Ctype, m, n, ldc_array[i], 0, 1, 0, 1}};
        r.d = r.c;
        r.op = (desc){.compute = computeType, .scale = wide ? CUDA_R_64F : CUDA_R_32F, .trans_a = ta, .trans_b = tb,
                      .epilogue = 1, .bias_type = -1, .aux_type = -1};
        r.factors[0] = wide ? ((const double *)alpha_array)[i] : ((const float *)alpha_array)[i];
        r.factors[1] = wide ? ((const double *)beta_array)[i] : ((const float *)beta_array)[i];
        for (int j = 0; j < group_size[i]; j++, at++) {
            r.A = (uint64_t)(Aarray + at), r.B = (uint64_t)(Barray + at), r.C = r.D = (uint64_t)(Carray + at);
            if (fake_enqueue(h->stream, fake_matmul_run, &r, sizeof r, 0)) return 13;
        }
    }
    return 0;
}
