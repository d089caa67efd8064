/* Bunch and Kaufman's factorisation of the fake cuSOLVER, in plain loops in the order of its stream.
 *
 * As documented: symmetric matrices, not Hermitian ones; 32-bit pivots as LAPACK has them; what is in the other triangle
 * means nothing afterwards. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fake_solver.h"

typedef struct {
    int uplo;
    cudaDataType type;
    int64_t n, lda;
    void *a, *work, *pivots;
    size_t work_bytes;
    int *info;
} noted;

/* Row or column i of the lower factor; of the upper one, all is counted from the end. */
static int64_t place(const noted *c, int64_t i) { return c->uplo ? c->n - 1 - i : i; }

static number at(const noted *c, int64_t i, int64_t j) {
    return element(c->type, c->a, place(c, j) * c->lda + place(c, i));
}

static void set(const noted *c, int64_t i, int64_t j, number x) {
    set_element(c->type, c->a, place(c, j) * c->lda + place(c, i), x);
}

static void exchange(const noted *c, int64_t i, int64_t j, int64_t p, int64_t q) {
    const number x = at(c, i, j);
    set(c, i, j, at(c, p, q));
    set(c, p, q, x);
}

static double size(number x) { return fabs(creal(x)) + fabs(cimag(x)); }

static void sytrf(const noted *c) {
    const double alpha = (1 + sqrt(17)) / 8;
    const int64_t n = c->n;
    int *const pivots = c->pivots;
    *c->info = 0;
    for (int64_t k = 0, step; k < n; k += step) {
        const double own = size(at(c, k, k));
        double most = 0, row = 0;
        int64_t best = k, p = k;
        step = 1;
        for (int64_t i = k + 1; i < n; i++)
            if (size(at(c, i, k)) > most) most = size(at(c, i, k)), best = i;
        if (own == 0 && most == 0) {
            /* On an H100 one row that is 0 has info 0; here the last one of any matrix. */
            if (!*c->info && k + 1 < n) *c->info = (int)place(c, k) + 1;
            pivots[place(c, k)] = (int)place(c, k) + 1;
            continue;
        }
        if (own < alpha * most) {
            for (int64_t j = k; j < n; j++)
                if (j != best && size(j < best ? at(c, best, j) : at(c, j, best)) > row)
                    row = size(j < best ? at(c, best, j) : at(c, j, best));
            if (own < alpha * most * (most / row)) {
                p = best;
                if (size(at(c, best, best)) < alpha * row) step = 2;
            }
        }
        const int64_t with = k + step - 1;
        if (p != with) {
            for (int64_t i = p + 1; i < n; i++) exchange(c, i, with, i, p);
            for (int64_t i = with + 1; i < p; i++) exchange(c, i, with, p, i);
            exchange(c, with, with, p, p);
            if (step == 2) exchange(c, k + 1, k, p, k);
        }
        if (step == 1) {
            const number d = 1 / at(c, k, k);
            for (int64_t j = k + 1; j < n; j++)
                for (int64_t i = j; i < n; i++) set(c, i, j, at(c, i, j) - at(c, i, k) * d * at(c, j, k));
            for (int64_t i = k + 1; i < n; i++) set(c, i, k, at(c, i, k) * d);
            pivots[place(c, k)] = (int)place(c, p) + 1;
            continue;
        }
        const number d21 = at(c, k + 1, k), d11 = at(c, k + 1, k + 1) / d21, d22 = at(c, k, k) / d21;
        const number t = 1 / (d11 * d22 - 1) / d21;
        for (int64_t j = k + 2; j < n; j++) {
            const number one = t * (d11 * at(c, j, k) - at(c, j, k + 1));
            const number two = t * (d22 * at(c, j, k + 1) - at(c, j, k));
            for (int64_t i = j; i < n; i++) set(c, i, j, at(c, i, j) - at(c, i, k) * one - at(c, i, k + 1) * two);
            set(c, j, k, one), set(c, j, k + 1, two);
        }
        pivots[place(c, k)] = pivots[place(c, k + 1)] = -(int)place(c, p) - 1;
    }
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < j; i++) set(c, i, j, -777);
}

static void run(void *argument) {
    const noted *const c = argument;
    memset(c->work, 0xff, c->work_bytes);
    sytrf(c);
}

#define TYPED(p, T, data_type)                                                                                        \
    cusolverStatus_t cusolverDn##p##sytrf_bufferSize(cusolverDnHandle_t handle, int n, T *A, int lda, int *lwork) {    \
        (void)handle, (void)A;                                                                                        \
        if (n < 1 || lda < n) return CUSOLVER_STATUS_INVALID_VALUE;                                                   \
        *lwork = n + 13;                                                                                              \
        return 0;                                                                                                     \
    }                                                                                                                 \
    cusolverStatus_t cusolverDn##p##sytrf(cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, T *A, int lda,      \
                                          int *ipiv, T *work, int lwork, int *info) {                                 \
        if (!handle->stream || n < 1 || lda < n || !ipiv || !work || lwork < n + 13 || !info)                          \
            return CUSOLVER_STATUS_INVALID_VALUE;                                                                     \
        noted c = {.uplo = uplo, .type = data_type, .n = n, .lda = lda, .a = A, .pivots = ipiv, .work = work,          \
                   .work_bytes = (size_t)lwork * sizeof(T), .info = info};                                            \
        return fake_enqueue(handle->stream, run, &c, sizeof c, 0) ? CUSOLVER_STATUS_EXECUTION_FAILED : 0;              \
    }

TYPED(S, float, CUDA_R_32F)
TYPED(D, double, CUDA_R_64F)
TYPED(C, cuComplex, CUDA_C_32F)
TYPED(Z, cuDoubleComplex, CUDA_C_64F)
