/* The decompositions of the fake cuSOLVER, in plain loops in the order of their stream: Householder's reflectors, and
 * Jacobi's rotations for singular values and eigenvalues.
 *
 * As documented: what a routine overwrites means nothing afterwards, gesvd takes m >= n, and XsyevBatched takes matrices
 * without gaps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libraries/cusolver/decompose.h"
#include "fake_solver.h"

/* A matrix with this first element does not converge. */
static const double STUBBORN = 12345678.0;

typedef struct {
    int routine, job, uplo, side, trans, host_mark;
    cudaDataType type;
    int64_t m, n, k, lda, ldb, ldc;
    void *a, *values, *b, *c, *work;
    unsigned char *host;
    size_t work_bytes;
    int *info;
} noted;

static number at(const noted *c, int64_t i, int64_t j) { return element(c->type, c->a, j * c->lda + i); }

static void set(const noted *c, int64_t i, int64_t j, number x) { set_element(c->type, c->a, j * c->lda + i, x); }

static void set_value(const noted *c, int64_t i, double x) {
    set_element(size_of(c->type) == 4 || c->type == CUDA_C_32F ? CUDA_R_32F : CUDA_R_64F, c->values, i, x);
}

static void geqrf(const noted *c) {
    const int64_t least = c->m < c->n ? c->m : c->n;
    for (int64_t j = 0; j < least; j++) {
        double rest = 0;
        for (int64_t i = j + 1; i < c->m; i++) rest += creal(at(c, i, j) * conj(at(c, i, j)));
        const number alpha = at(c, j, j);
        const double beta = copysign(sqrt(rest + creal(alpha * conj(alpha))), -creal(alpha));
        const int none = rest == 0 && cimag(alpha) == 0;
        const number tau = none ? 0 : (beta - alpha) / beta;
        set_element(c->type, c->values, j, tau);
        if (none) continue;
        for (int64_t i = j + 1; i < c->m; i++) set(c, i, j, at(c, i, j) / (alpha - beta));
        set(c, j, j, beta);
        for (int64_t q = j + 1; q < c->n; q++) {
            number dot = at(c, j, q);
            for (int64_t i = j + 1; i < c->m; i++) dot += conj(at(c, i, j)) * at(c, i, q);
            dot *= conj(tau);
            set(c, j, q, at(c, j, q) - dot);
            for (int64_t i = j + 1; i < c->m; i++) set(c, i, q, at(c, i, q) - at(c, i, j) * dot);
        }
    }
}

/* Element i of reflector j. */
static number reflector(const noted *c, int64_t i, int64_t j) { return i < j ? 0 : i == j ? 1 : at(c, i, j); }

/* X becomes H X, X of `rows` rows; or with `right` X H. */
static void reflect(const noted *c, number *x, int64_t rows, int64_t columns, int64_t j, int right, int adjoint) {
    number tau = element(c->type, c->values, j);
    if (adjoint) tau = conj(tau);
    for (int64_t q = 0; q < (right ? rows : columns); q++) {
        number dot = 0;
        for (int64_t i = j; i < (right ? columns : rows); i++)
            dot += right ? x[i * rows + q] * reflector(c, i, j) : conj(reflector(c, i, j)) * x[q * rows + i];
        for (int64_t i = j; i < (right ? columns : rows); i++) {
            if (right) x[i * rows + q] -= tau * dot * conj(reflector(c, i, j));
            else x[q * rows + i] -= tau * reflector(c, i, j) * dot;
        }
    }
}

static void orgqr(const noted *c) {
    number *const x = calloc((size_t)(c->m * c->n), sizeof *x);
    for (int64_t j = 0; j < c->n; j++) x[j * c->m + j] = 1;
    for (int64_t j = c->k; j-- > 0;) reflect(c, x, c->m, c->n, j, 0, 0);
    for (int64_t j = 0; j < c->n; j++)
        for (int64_t i = 0; i < c->m; i++) set(c, i, j, x[j * c->m + i]);
    free(x);
}

static void ormqr(const noted *c) {
    number *const x = malloc(sizeof *x * (size_t)(c->m * c->n));
    for (int64_t j = 0; j < c->n; j++)
        for (int64_t i = 0; i < c->m; i++) x[j * c->m + i] = element(c->type, c->b, j * c->ldb + i);
    for (int64_t t = 0; t < c->k; t++)
        reflect(c, x, c->m, c->n, (c->trans != 0) == (c->side != 0) ? c->k - 1 - t : t, c->side, c->trans);
    for (int64_t j = 0; j < c->n; j++)
        for (int64_t i = 0; i < c->m; i++) set_element(c->type, c->b, j * c->ldb + i, x[j * c->m + i]);
    free(x);
}

/* Columns p and q of x, of `rows` rows, are turned by an angle, after q has been turned by a phase. */
static void rotate(number *x, int64_t rows, int64_t p, int64_t q, double cosine, double sine, number phase) {
    for (int64_t i = 0; i < rows; i++) {
        const number one = x[p * rows + i], other = conj(phase) * x[q * rows + i];
        x[p * rows + i] = cosine * one - sine * other;
        x[q * rows + i] = sine * one + cosine * other;
    }
}

static void angle(double first, double second, double between, double *cosine, double *sine) {
    const double zeta = (second - first) / (2 * between);
    const double tangent = copysign(1, zeta) / (fabs(zeta) + sqrt(1 + zeta * zeta));
    *cosine = 1 / sqrt(1 + tangent * tangent);
    *sine = *cosine * tangent;
}

/* Columns from `known` on become an orthonormal basis with those before. */
static void complete(number *u, int64_t m, int64_t known, int64_t columns) {
    for (int64_t j = known, e = 0; j < columns && e < m; e++) {
        number *const x = u + j * m;
        memset(x, 0, sizeof *x * (size_t)m);
        x[e] = 1;
        double norm = 0;
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t q = 0; q < j; q++) {
                number dot = 0;
                for (int64_t i = 0; i < m; i++) dot += conj(u[q * m + i]) * x[i];
                for (int64_t i = 0; i < m; i++) x[i] -= dot * u[q * m + i];
            }
            norm = 0;
            for (int64_t i = 0; i < m; i++) norm += creal(x[i] * conj(x[i]));
        }
        if (sqrt(norm) < 0.01 / sqrt((double)m)) continue;
        for (int64_t i = 0; i < m; i++) x[i] /= sqrt(norm);
        j++;
    }
}

static void gesvd(const noted *c) {
    const int64_t m = c->m, n = c->n;
    number *const a = calloc((size_t)(m * (m + 1)), sizeof *a), *const v = calloc((size_t)(n * n + 1), sizeof *v);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < m; i++) a[j * m + i] = at(c, i, j);
        v[j * n + j] = 1;
    }
    int turned = 1;
    for (int sweep = 0; sweep < 60 && turned; sweep++) {
        turned = 0;
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                double first = 0, second = 0;
                number between = 0;
                for (int64_t i = 0; i < m; i++) {
                    first += creal(a[p * m + i] * conj(a[p * m + i]));
                    second += creal(a[q * m + i] * conj(a[q * m + i]));
                    between += conj(a[p * m + i]) * a[q * m + i];
                }
                const double size = cabs(between);
                if (size == 0 || size <= 1e-15 * sqrt(first) * sqrt(second)) continue;
                double cosine, sine;
                angle(first, second, size, &cosine, &sine);
                rotate(a, m, p, q, cosine, sine, between / size);
                rotate(v, n, p, q, cosine, sine, between / size);
                turned = 1;
            }
    }
    double *const s = calloc((size_t)n + 1, sizeof *s);
    int64_t *const order = calloc((size_t)n + 1, sizeof *order);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < m; i++) s[j] += creal(a[j * m + i] * conj(a[j * m + i]));
        s[j] = sqrt(s[j]);
        int64_t place = j;
        for (; place > 0 && s[order[place - 1]] < s[j]; place--) order[place] = order[place - 1];
        order[place] = j;
    }
    number *const u = calloc((size_t)(m * m + 1), sizeof *u);
    int64_t known = 0;
    for (int64_t j = 0; j < n; j++) {
        set_value(c, j, s[order[j]]);
        if (s[order[j]] <= 1e-14 * s[order[0]] || known < j) continue;
        for (int64_t i = 0; i < m; i++) u[j * m + i] = a[order[j] * m + i] / s[order[j]];
        known++;
    }
    const int64_t columns = c->job == ATOMR_DECOMPOSE_ALL ? m : n;
    if (c->job != ATOMR_DECOMPOSE_NOTHING) {
        complete(u, m, known, columns);
        for (int64_t j = 0; j < columns; j++)
            for (int64_t i = 0; i < m; i++) set_element(c->type, c->b, j * c->ldb + i, u[j * m + i]);
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < n; i++) set_element(c->type, c->c, i * c->ldc + j, conj(v[order[j] * n + i]));
    }
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++) set(c, i, j, -777);
    free(a), free(v), free(s), free(order), free(u);
}

static void syevd(const noted *c) {
    const int64_t n = c->n;
    number *const a = calloc((size_t)(n * n + 1), sizeof *a), *const v = calloc((size_t)(n * n + 1), sizeof *v);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = j + 1; i < n; i++) {
            a[j * n + i] = c->uplo ? conj(at(c, j, i)) : at(c, i, j);
            a[i * n + j] = conj(a[j * n + i]);
        }
        a[j * n + j] = creal(at(c, j, j));
        v[j * n + j] = 1;
    }
    double whole = 0;
    for (int64_t i = 0; i < n * n; i++) whole += creal(a[i] * conj(a[i]));
    int turned = 1;
    for (int sweep = 0; sweep < 60 && turned; sweep++) {
        turned = 0;
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                const number between = a[q * n + p];
                const double size = cabs(between);
                if (size == 0 || size <= 1e-17 * sqrt(whole)) continue;
                double cosine, sine;
                angle(creal(a[p * n + p]), creal(a[q * n + q]), size, &cosine, &sine);
                const number phase = between / size;
                rotate(a, n, p, q, cosine, sine, phase);
                for (int64_t j = 0; j < n; j++) { /* the rows, by the adjoint */
                    const number one = a[j * n + p], other = phase * a[j * n + q];
                    a[j * n + p] = cosine * one - sine * other;
                    a[j * n + q] = sine * one + cosine * other;
                }
                rotate(v, n, p, q, cosine, sine, phase);
                turned = 1;
            }
    }
    int64_t *const order = calloc((size_t)n + 1, sizeof *order);
    for (int64_t j = 0; j < n; j++) {
        int64_t place = j;
        for (; place > 0 && creal(a[order[place - 1] * (n + 1)]) > creal(a[j * (n + 1)]); place--)
            order[place] = order[place - 1];
        order[place] = j;
    }
    for (int64_t j = 0; j < n; j++) {
        set_value(c, j, creal(a[order[j] * (n + 1)]));
        for (int64_t i = 0; i < n; i++) set(c, i, j, c->job ? v[order[j] * n + i] : -777);
    }
    free(a), free(v), free(order);
}

static void run(void *argument) {
    const noted *const c = argument;
    for (int i = 0; c->host && i < HOST_BYTES; i++) /* it was changed, or given to another call */
        if (c->host[i] != c->host_mark) fake_raise(ERROR_LAUNCH_FAILED);
    memset(c->work, 0xff, c->work_bytes);
    *c->info = c->routine >= ATOMR_DECOMPOSE_GESVD && creal(at(c, 0, 0)) == STUBBORN ? 3 : 0;
    switch (c->routine) {
    case ATOMR_DECOMPOSE_GEQRF: geqrf(c); break;
    case ATOMR_DECOMPOSE_ORGQR: orgqr(c); break;
    case ATOMR_DECOMPOSE_ORMQR: ormqr(c); break;
    case ATOMR_DECOMPOSE_GESVD: gesvd(c); break;
    default: syevd(c);
    }
}

/* Check and enqueue. */
static cusolverStatus_t enqueue(cusolverDnHandle_t handle, noted c, size_t device, size_t host_bytes) {
    static _Atomic unsigned char marks;
    if (!handle->stream || c.work_bytes < device || !c.work || !c.info || !c.values)
        return CUSOLVER_STATUS_INVALID_VALUE;
    if (host_bytes) {
        if (!c.host || host_bytes < HOST_BYTES) return CUSOLVER_STATUS_INVALID_VALUE;
        c.host_mark = ++marks;
        memset(c.host, c.host_mark, HOST_BYTES);
    }
    return fake_enqueue(handle->stream, run, &c, sizeof c, 0) ? CUSOLVER_STATUS_EXECUTION_FAILED : 0;
}

static cusolverStatus_t sizes(cudaDataType type, cudaDataType real, int64_t m, int64_t n, int64_t lda, size_t *device,
                              size_t *host) {
    const cudaDataType of_values = type == CUDA_C_32F ? CUDA_R_32F : type == CUDA_C_64F ? CUDA_R_64F : type;
    if (real != of_values || m < 1 || n < 1 || lda < m) return CUSOLVER_STATUS_INVALID_VALUE;
    *device = size_of(type) * (size_t)(m + n) + 8;
    *host = HOST_BYTES;
    return 0;
}

cusolverStatus_t cusolverDnXgeqrf_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m, int64_t n,
                                             cudaDataType dataTypeA, const void *A, int64_t lda,
                                             cudaDataType dataTypeTau, const void *tau, cudaDataType computeType,
                                             size_t *device, size_t *host) {
    (void)handle, (void)params, (void)A, (void)tau;
    if (dataTypeTau != dataTypeA || computeType != dataTypeA || m < 1 || n < 1 || lda < m)
        return CUSOLVER_STATUS_INVALID_VALUE;
    *device = size_of(dataTypeA) * (size_t)(m + n) + 8;
    *host = HOST_BYTES;
    return 0;
}
cusolverStatus_t cusolverDnXgeqrf(cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m, int64_t n,
                                  cudaDataType dataTypeA, void *A, int64_t lda, cudaDataType dataTypeTau, void *tau,
                                  cudaDataType computeType, void *bufferOnDevice, size_t workspaceInBytesOnDevice,
                                  void *bufferOnHost, size_t workspaceInBytesOnHost, int *info) {
    size_t device, host;
    const cusolverStatus_t status = cusolverDnXgeqrf_bufferSize(handle, params, m, n, dataTypeA, A, lda, dataTypeTau,
                                                                tau, computeType, &device, &host);
    if (status) return status;
    const noted c = {.routine = ATOMR_DECOMPOSE_GEQRF, .type = dataTypeA, .m = m, .n = n, .lda = lda, .a = A,
                     .values = tau, .work = bufferOnDevice, .work_bytes = workspaceInBytesOnDevice,
                     .host = bufferOnHost, .info = info};
    return enqueue(handle, c, device, workspaceInBytesOnHost);
}

cusolverStatus_t cusolverDnXgesvd_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params, signed char jobu,
                                             signed char jobvt, int64_t m, int64_t n, cudaDataType dataTypeA,
                                             const void *A, int64_t lda, cudaDataType dataTypeS, const void *S,
                                             cudaDataType dataTypeU, const void *U, int64_t ldu,
                                             cudaDataType dataTypeVT, const void *VT, int64_t ldvt,
                                             cudaDataType computeType, size_t *device, size_t *host) {
    (void)handle, (void)params, (void)A, (void)S, (void)U, (void)VT;
    if (m < n || jobu != jobvt || dataTypeU != dataTypeA || dataTypeVT != dataTypeA || computeType != dataTypeA ||
        ldu < (jobu == 'N' ? 1 : m) || ldvt < (jobvt == 'N' ? 1 : n))
        return CUSOLVER_STATUS_INVALID_VALUE;
    return sizes(dataTypeA, dataTypeS, m, n, lda, device, host);
}
cusolverStatus_t cusolverDnXgesvd(cusolverDnHandle_t handle, cusolverDnParams_t params, signed char jobu,
                                  signed char jobvt, int64_t m, int64_t n, cudaDataType dataTypeA, void *A, int64_t lda,
                                  cudaDataType dataTypeS, void *S, cudaDataType dataTypeU, void *U, int64_t ldu,
                                  cudaDataType dataTypeVT, void *VT, int64_t ldvt, cudaDataType computeType,
                                  void *bufferOnDevice, size_t workspaceInBytesOnDevice, void *bufferOnHost,
                                  size_t workspaceInBytesOnHost, int *info) {
    size_t device, host;
    const cusolverStatus_t status =
        cusolverDnXgesvd_bufferSize(handle, params, jobu, jobvt, m, n, dataTypeA, A, lda, dataTypeS, S, dataTypeU, U,
                                    ldu, dataTypeVT, VT, ldvt, computeType, &device, &host);
    if (status) return status;
    if (jobu != 'N' && (!U || !VT)) return CUSOLVER_STATUS_INVALID_VALUE;
    const noted c = {.routine = ATOMR_DECOMPOSE_GESVD, .job = jobu, .type = dataTypeA, .m = m, .n = n, .lda = lda,
                     .a = A, .values = S, .b = U, .ldb = ldu, .c = VT, .ldc = ldvt, .work = bufferOnDevice,
                     .work_bytes = workspaceInBytesOnDevice, .host = bufferOnHost, .info = info};
    return enqueue(handle, c, device, workspaceInBytesOnHost);
}

cusolverStatus_t cusolverDnXsyevd_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                             cusolverEigMode_t jobz, cublasFillMode_t uplo, int64_t n,
                                             cudaDataType dataTypeA, const void *A, int64_t lda, cudaDataType dataTypeW,
                                             const void *W, cudaDataType computeType, size_t *device, size_t *host) {
    (void)handle, (void)params, (void)jobz, (void)uplo, (void)A, (void)W;
    return computeType != dataTypeA ? CUSOLVER_STATUS_INVALID_VALUE
                                    : sizes(dataTypeA, dataTypeW, n, n, lda, device, host);
}
cusolverStatus_t cusolverDnXsyevd(cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t jobz,
                                  cublasFillMode_t uplo, int64_t n, cudaDataType dataTypeA, void *A, int64_t lda,
                                  cudaDataType dataTypeW, void *W, cudaDataType computeType, void *bufferOnDevice,
                                  size_t workspaceInBytesOnDevice, void *bufferOnHost, size_t workspaceInBytesOnHost,
                                  int *info) {
    size_t device, host;
    const cusolverStatus_t status = cusolverDnXsyevd_bufferSize(handle, params, jobz, uplo, n, dataTypeA, A, lda,
                                                                dataTypeW, W, computeType, &device, &host);
    if (status) return status;
    const noted c = {.routine = ATOMR_DECOMPOSE_SYEVD, .job = jobz, .uplo = uplo, .type = dataTypeA, .m = n, .n = n,
                     .lda = lda, .a = A, .values = W, .work = bufferOnDevice, .work_bytes = workspaceInBytesOnDevice,
                     .host = bufferOnHost, .info = info};
    return enqueue(handle, c, device, workspaceInBytesOnHost);
}

cusolverStatus_t cusolverDnXsyevBatched_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                                   cusolverEigMode_t jobz, cublasFillMode_t uplo, int64_t n,
                                                   cudaDataType dataTypeA, const void *A, int64_t lda,
                                                   cudaDataType dataTypeW, const void *W, cudaDataType computeType,
                                                   size_t *device, size_t *host, int64_t batchSize) {
    if (batchSize < 1 || n * lda * batchSize > INT32_MAX) return CUSOLVER_STATUS_INVALID_VALUE;
    const cusolverStatus_t status = cusolverDnXsyevd_bufferSize(handle, params, jobz, uplo, n, dataTypeA, A, lda,
                                                                dataTypeW, W, computeType, device, host);
    *device *= (size_t)batchSize; /* half a megabyte for each 8 x 8 float64 on an H200 */
    return status;
}
cusolverStatus_t cusolverDnXsyevBatched(cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t jobz,
                                        cublasFillMode_t uplo, int64_t n, cudaDataType dataTypeA, void *A, int64_t lda,
                                        cudaDataType dataTypeW, void *W, cudaDataType computeType, void *bufferOnDevice,
                                        size_t workspaceInBytesOnDevice, void *bufferOnHost,
                                        size_t workspaceInBytesOnHost, int *info, int64_t batchSize) {
    size_t device, host;
    const cusolverStatus_t asked = cusolverDnXsyevBatched_bufferSize(
        handle, params, jobz, uplo, n, dataTypeA, A, lda, dataTypeW, W, computeType, &device, &host, batchSize);
    if (asked || workspaceInBytesOnDevice < device) return CUSOLVER_STATUS_INVALID_VALUE;
    for (int64_t i = 0; i < batchSize; i++) { /* the host's memory belongs to the first */
        char *const a = (char *)A + (size_t)(i * lda * n) * size_of(dataTypeA);
        char *const w = (char *)W + (size_t)(i * n) * size_of(dataTypeW);
        const cusolverStatus_t status =
            cusolverDnXsyevd(handle, params, jobz, uplo, n, dataTypeA, a, lda, dataTypeW, w, computeType, bufferOnDevice,
                             workspaceInBytesOnDevice, i ? NULL : bufferOnHost, i ? 0 : workspaceInBytesOnHost, info + i);
        if (status) return status;
    }
    return 0;
}

#define TYPED(p, form, multiply, T, data_type, adjoint)                                                               \
    cusolverStatus_t cusolverDn##p##form##_bufferSize(cusolverDnHandle_t handle, int m, int n, int k, const T *A,      \
                                                      int lda, const T *tau, int *lwork) {                            \
        (void)handle, (void)A, (void)tau;                                                                             \
        if (m < 1 || n < 1 || n > m || k < 1 || k > n || lda < m) return CUSOLVER_STATUS_INVALID_VALUE;               \
        *lwork = n + 3;                                                                                               \
        return 0;                                                                                                     \
    }                                                                                                                 \
    cusolverStatus_t cusolverDn##p##form(cusolverDnHandle_t handle, int m, int n, int k, T *A, int lda, const T *tau,  \
                                         T *work, int lwork, int *info) {                                             \
        int size;                                                                                                     \
        const cusolverStatus_t status = cusolverDn##p##form##_bufferSize(handle, m, n, k, A, lda, tau, &size);        \
        if (status) return status;                                                                                    \
        const noted c = {.routine = ATOMR_DECOMPOSE_ORGQR, .type = data_type, .m = m, .n = n, .k = k, .lda = lda,      \
                         .a = A, .values = (void *)tau, .work = work, .work_bytes = (size_t)lwork * sizeof(T),        \
                         .info = info};                                                                               \
        return enqueue(handle, c, (size_t)size * sizeof(T), 0);                                                       \
    }                                                                                                                 \
    cusolverStatus_t cusolverDn##p##multiply##_bufferSize(cusolverDnHandle_t handle, cublasSideMode_t side,            \
                                                          cublasOperation_t trans, int m, int n, int k, const T *A,   \
                                                          int lda, const T *tau, const T *C, int ldc, int *lwork) {   \
        (void)handle, (void)A, (void)tau, (void)C;                                                                    \
        const int of_q = side ? n : m;                                                                                \
        if (m < 1 || n < 1 || k < 1 || k > of_q || lda < of_q || ldc < m || (trans && trans != adjoint))              \
            return CUSOLVER_STATUS_INVALID_VALUE;                                                                     \
        *lwork = n + 5;                                                                                               \
        return 0;                                                                                                     \
    }                                                                                                                 \
    cusolverStatus_t cusolverDn##p##multiply(cusolverDnHandle_t handle, cublasSideMode_t side,                        \
                                             cublasOperation_t trans, int m, int n, int k, const T *A, int lda,       \
                                             const T *tau, T *C, int ldc, T *work, int lwork, int *devInfo) {         \
        int size;                                                                                                     \
        const cusolverStatus_t status =                                                                               \
            cusolverDn##p##multiply##_bufferSize(handle, side, trans, m, n, k, A, lda, tau, C, ldc, &size);           \
        if (status) return status;                                                                                    \
        const noted c = {.routine = ATOMR_DECOMPOSE_ORMQR, .side = side, .trans = trans, .type = data_type, .m = m,    \
                         .n = n, .k = k, .lda = lda, .a = (void *)A, .values = (void *)tau, .b = C, .ldb = ldc,       \
                         .work = work, .work_bytes = (size_t)lwork * sizeof(T), .info = devInfo};                     \
        return enqueue(handle, c, (size_t)size * sizeof(T), 0);                                                       \
    }

TYPED(S, orgqr, ormqr, float, CUDA_R_32F, CUBLAS_OP_T)
TYPED(D, orgqr, ormqr, double, CUDA_R_64F, CUBLAS_OP_T)
TYPED(C, ungqr, unmqr, cuComplex, CUDA_C_32F, CUBLAS_OP_C)
TYPED(Z, ungqr, unmqr, cuDoubleComplex, CUDA_C_64F, CUBLAS_OP_C)
