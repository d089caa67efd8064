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
    int routine, job, uplo, side, trans, host_mark, adjoint; /* `adjoint`: C is V, and not its adjoint */
    cudaDataType type;
    int64_t m, n, k, lda, ldb, ldc;
    void *a, *values, *b, *c, *work;
    unsigned char *host;
    size_t work_bytes;
    int *info;
    int64_t first, last; /* of the eigenvalues that stay, from 0 */
    double above, up_to; /* or these bounds */
    int64_t *found;
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
            for (int64_t i = 0; i < n; i++) {
                const number x = v[order[j] * n + i];
                if (c->adjoint) set_element(c->type, c->c, j * c->ldc + i, x);
                else set_element(c->type, c->c, i * c->ldc + j, conj(x));
            }
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

/* All eigenvalues, and those of the range in front; what is behind them means nothing. */
static void syevdx(const noted *c) {
    syevd(c);
    const cudaDataType real = size_of(c->type) == 4 || c->type == CUDA_C_32F ? CUDA_R_32F : CUDA_R_64F;
    int64_t put = 0;
    for (int64_t j = 0; j < c->n; j++) {
        const double value = creal(element(real, c->values, j));
        if (c->last < 0 ? value <= c->above || value > c->up_to : j < c->first || j > c->last) continue;
        set_value(c, put, value);
        for (int64_t i = 0; i < c->n; i++) set(c, i, put, at(c, i, j));
        put++;
    }
    *c->found = put;
    for (int64_t j = put; j < c->n; j++) {
        set_value(c, j, -777);
        for (int64_t i = 0; i < c->n; i++) set(c, i, j, -777);
    }
}

/* Rows i and i + 1 of x are turned so that x[i + 1, at] is 0; returns whether they were. */
static int zeroing(const number *x, int64_t n, int64_t i, int64_t at, double *cosine, number *sine) {
    const number a = x[at * n + i], b = x[at * n + i + 1];
    const double size = sqrt(creal(a * conj(a)) + creal(b * conj(b)));
    if (cabs(b) == 0) return 0;
    *cosine = cabs(a) / size;
    *sine = cabs(a) == 0 ? conj(b) / size : a / cabs(a) * conj(b) / size;
    return 1;
}

static void turn_rows(number *x, int64_t n, int64_t i, int64_t from, double cosine, number sine) {
    for (int64_t j = from; j < n; j++) {
        const number one = x[j * n + i], other = x[j * n + i + 1];
        x[j * n + i] = cosine * one + sine * other;
        x[j * n + i + 1] = cosine * other - conj(sine) * one;
    }
}

static void turn_columns(number *x, int64_t n, int64_t i, int64_t to, double cosine, number sine) {
    for (int64_t j = 0; j < to; j++) {
        const number one = x[i * n + j], other = x[(i + 1) * n + j];
        x[i * n + j] = cosine * one + conj(sine) * other;
        x[(i + 1) * n + j] = cosine * other - sine * one;
    }
}

/* Complex eigenvalues w, and eigenvectors v of norm 1, of a, which is destroyed: QR with Wilkinson's shifts. */
static void schur(number *a, number *z, number *v, number *w, int64_t n) {
    double scale = 0;
    for (int64_t i = 0; i < n * n; i++) scale += creal(a[i] * conj(a[i]));
    scale = sqrt(scale);
    for (int64_t j = 0; j < n; j++) z[j * n + j] = 1;
    for (int64_t j = 0; j + 2 < n; j++) /* to Hessenberg's form */
        for (int64_t i = n - 2; i > j; i--) {
            double cosine;
            number sine;
            if (!zeroing(a, n, i, j, &cosine, &sine)) continue;
            turn_rows(a, n, i, 0, cosine, sine);
            turn_columns(a, n, i, n, cosine, sine);
            turn_columns(z, n, i, n, cosine, sine);
        }
    double *const cosines = calloc((size_t)n + 1, sizeof *cosines);
    number *const sines = calloc((size_t)n + 1, sizeof *sines);
    for (int64_t last = n - 1, turns = 0; last > 0 && turns < 200 * n; turns++) {
        int64_t first = last;
        while (first > 0 && cabs(a[(first - 1) * n + first]) > 1e-16 * scale) first--;
        if (first > 0) a[(first - 1) * n + first] = 0;
        if (first == last) {
            last--;
            continue;
        }
        const number p = a[(last - 1) * n + last - 1], q = a[last * n + last];
        const number r = a[last * n + last - 1] * a[(last - 1) * n + last], half = (p - q) / 2;
        const number root = csqrt(half * half + r);
        number shift = q + half + (cabs(half + root) > cabs(half - root) ? -root : root);
        if (turns % 11 == 10) shift += cabs(a[(last - 1) * n + last]); /* it may turn in a circle */
        for (int64_t i = first; i <= last; i++) a[i * n + i] -= shift;
        for (int64_t i = first; i < last; i++) {
            cosines[i] = 1, sines[i] = 0;
            if (zeroing(a, n, i, i, &cosines[i], &sines[i])) turn_rows(a, n, i, 0, cosines[i], sines[i]);
        }
        for (int64_t i = first; i < last; i++) {
            turn_columns(a, n, i, n, cosines[i], sines[i]);
            turn_columns(z, n, i, n, cosines[i], sines[i]);
        }
        for (int64_t i = first; i <= last; i++) a[i * n + i] += shift;
    }
    for (int64_t k = 0; k < n; k++) { /* of the triangle, and back */
        number *const x = v + k * n, *const y = calloc((size_t)n + 1, sizeof *y);
        w[k] = a[k * n + k];
        y[k] = 1;
        for (int64_t i = k; i-- > 0;) {
            number sum = 0, gap = w[k] - a[i * n + i];
            for (int64_t j = i + 1; j <= k; j++) sum += a[j * n + i] * y[j];
            if (cabs(gap) < 1e-16 * scale) gap = 1e-16 * scale;
            y[i] = sum / gap;
        }
        double norm = 0;
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j <= k; j++) x[i] += z[j * n + i] * y[j];
            norm += creal(x[i] * conj(x[i]));
        }
        for (int64_t i = 0; i < n; i++) x[i] /= sqrt(norm);
        free(y);
    }
    free(cosines), free(sines);
}

/* As documented, vectors of a real A are pairs of real columns, and a pair's first value has the positive part. */
static void geev(const noted *c) {
    const int64_t n = c->n;
    const cudaDataType complex_type = c->type == CUDA_R_32F || c->type == CUDA_C_32F ? CUDA_C_32F : CUDA_C_64F;
    const int is_real = c->type == CUDA_R_32F || c->type == CUDA_R_64F;
    number *const a = calloc((size_t)(n * n + 1), sizeof *a), *const z = calloc((size_t)(n * n + 1), sizeof *z);
    number *const v = calloc((size_t)(n * n + 1), sizeof *v), *const w = calloc((size_t)n + 1, sizeof *w);
    double scale = 0;
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < n; i++) {
            a[j * n + i] = at(c, i, j);
            scale += cabs(a[j * n + i]);
        }
    schur(a, z, v, w, n);
    int *const used = calloc((size_t)n + 1, sizeof *used);
    for (int64_t k = 0, put = 0; k < n; k++) {
        if (used[k]) continue;
        used[k] = 1;
        const int alone = !is_real || fabs(cimag(w[k])) <= 1e-7 * scale; /* those of defective matrices are split */
        number value = alone && is_real ? creal(w[k]) : w[k];
        number phase = 1;
        if (is_real && alone) { /* its largest element is real */
            double most = 0;
            for (int64_t i = 0; i < n; i++)
                if (cabs(v[k * n + i]) > most) most = cabs(v[k * n + i]), phase = conj(v[k * n + i]) / most;
        }
        const int flips = is_real && !alone && cimag(value) < 0;
        if (flips) value = conj(value);
        set_element(complex_type, c->values, put, value);
        for (int64_t i = 0; i < n && c->job; i++) {
            const number x = flips ? conj(v[k * n + i]) : phase * v[k * n + i];
            set_element(c->type, c->b, put * c->ldb + i, is_real ? creal(x) : x);
            if (is_real && !alone) set_element(c->type, c->b, (put + 1) * c->ldb + i, cimag(x));
        }
        put++;
        if (!is_real || alone) continue;
        int64_t partner = -1;
        for (int64_t q = 0; q < n; q++)
            if (!used[q] && (partner < 0 || cabs(w[q] - conj(w[k])) < cabs(w[partner] - conj(w[k])))) partner = q;
        if (partner >= 0) used[partner] = 1;
        set_element(complex_type, c->values, put++, conj(value));
    }
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < n; i++) set(c, i, j, -777);
    free(a), free(z), free(v), free(w), free(used);
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
    case ATOMR_DECOMPOSE_GEEV: geev(c); break;
    case ATOMR_DECOMPOSE_SYEVDX: syevdx(c); break;
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

cusolverStatus_t cusolverDnXsyevdx_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                              cusolverEigMode_t jobz, cusolverEigRange_t range, cublasFillMode_t uplo,
                                              int64_t n, cudaDataType dataTypeA, const void *A, int64_t lda, void *vl,
                                              void *vu, int64_t il, int64_t iu, int64_t *h_meig, cudaDataType dataTypeW,
                                              const void *W, cudaDataType computeType, size_t *device, size_t *host) {
    const int by_index = range == CUSOLVER_EIG_RANGE_I;
    if (!h_meig || !vl || !vu || (!by_index && range != CUSOLVER_EIG_RANGE_V) ||
        (by_index && (il < 1 || il > iu || iu > n)))
        return CUSOLVER_STATUS_INVALID_VALUE;
    return cusolverDnXsyevd_bufferSize(handle, params, jobz, uplo, n, dataTypeA, A, lda, dataTypeW, W, computeType,
                                       device, host);
}
cusolverStatus_t cusolverDnXsyevdx(cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t jobz,
                                   cusolverEigRange_t range, cublasFillMode_t uplo, int64_t n, cudaDataType dataTypeA,
                                   void *A, int64_t lda, void *vl, void *vu, int64_t il, int64_t iu, int64_t *meig64,
                                   cudaDataType dataTypeW, void *W, cudaDataType computeType, void *bufferOnDevice,
                                   size_t workspaceInBytesOnDevice, void *bufferOnHost, size_t workspaceInBytesOnHost,
                                   int *info) {
    size_t device, host;
    const cusolverStatus_t status =
        cusolverDnXsyevdx_bufferSize(handle, params, jobz, range, uplo, n, dataTypeA, A, lda, vl, vu, il, iu, meig64,
                                     dataTypeW, W, computeType, &device, &host);
    if (status) return status;
    const int narrow = dataTypeW == CUDA_R_32F, by_index = range == CUSOLVER_EIG_RANGE_I;
    const noted c = {.routine = ATOMR_DECOMPOSE_SYEVDX, .job = jobz, .uplo = uplo, .type = dataTypeA, .m = n, .n = n,
                     .lda = lda, .a = A, .values = W, .work = bufferOnDevice, .work_bytes = workspaceInBytesOnDevice,
                     .host = bufferOnHost, .info = info, .first = il - 1, .last = by_index ? iu - 1 : -1,
                     .above = narrow ? *(float *)vl : *(double *)vl, .up_to = narrow ? *(float *)vu : *(double *)vu,
                     .found = meig64};
    const cusolverStatus_t enqueued = enqueue(handle, c, device, workspaceInBytesOnHost);
    if (enqueued) return enqueued;
    return cuStreamSynchronize(handle->stream) ? CUSOLVER_STATUS_EXECUTION_FAILED : 0;
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

struct gesvdjInfo {
    int alive;
};
struct syevjInfo {
    int alive;
};
cusolverStatus_t cusolverDnCreateGesvdjInfo(gesvdjInfo_t *info) {
    *info = calloc(1, sizeof **info);
    return *info ? 0 : CUSOLVER_STATUS_ALLOC_FAILED;
}
cusolverStatus_t cusolverDnDestroyGesvdjInfo(gesvdjInfo_t info) {
    free(info);
    return 0;
}
cusolverStatus_t cusolverDnCreateSyevjInfo(syevjInfo_t *info) {
    *info = calloc(1, sizeof **info);
    return *info ? 0 : CUSOLVER_STATUS_ALLOC_FAILED;
}
cusolverStatus_t cusolverDnDestroySyevjInfo(syevjInfo_t info) {
    free(info);
    return 0;
}

/* Singular values of which C is V.  Only without vectors may they be missing. */
static cusolverStatus_t with_v(cusolverDnHandle_t handle, noted c, size_t device, size_t host_bytes) {
    if (c.job && (!c.b || !c.c)) return CUSOLVER_STATUS_INVALID_VALUE;
    c.routine = ATOMR_DECOMPOSE_GESVD;
    c.job = c.job ? ATOMR_DECOMPOSE_REDUCED : ATOMR_DECOMPOSE_NOTHING;
    c.adjoint = 1;
    return enqueue(handle, c, device, host_bytes);
}
cusolverStatus_t cusolverDnXgesvdp_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                              cusolverEigMode_t jobz, int econ, int64_t m, int64_t n,
                                              cudaDataType dataTypeA, const void *A, int64_t lda,
                                              cudaDataType dataTypeS, const void *S, cudaDataType dataTypeU,
                                              const void *U, int64_t ldu, cudaDataType dataTypeV, const void *V,
                                              int64_t ldv, cudaDataType computeType, size_t *device, size_t *host) {
    (void)handle, (void)params, (void)jobz, (void)A, (void)S, (void)U, (void)V;
    if (m < n || !econ || dataTypeU != dataTypeA || dataTypeV != dataTypeA || computeType != dataTypeA || ldu < m ||
        ldv < n)
        return CUSOLVER_STATUS_INVALID_VALUE;
    return sizes(dataTypeA, dataTypeS, m, n, lda, device, host);
}
cusolverStatus_t cusolverDnXgesvdp(cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t jobz,
                                   int econ, int64_t m, int64_t n, cudaDataType dataTypeA, void *A, int64_t lda,
                                   cudaDataType dataTypeS, void *S, cudaDataType dataTypeU, void *U, int64_t ldu,
                                   cudaDataType dataTypeV, void *V, int64_t ldv, cudaDataType computeType,
                                   void *bufferOnDevice, size_t workspaceInBytesOnDevice, void *bufferOnHost,
                                   size_t workspaceInBytesOnHost, int *d_info, double *h_err_sigma) {
    size_t device, host;
    const cusolverStatus_t status =
        cusolverDnXgesvdp_bufferSize(handle, params, jobz, econ, m, n, dataTypeA, A, lda, dataTypeS, S, dataTypeU, U,
                                     ldu, dataTypeV, V, ldv, computeType, &device, &host);
    if (status || !h_err_sigma) return CUSOLVER_STATUS_INVALID_VALUE;
    *h_err_sigma = 1e-14;
    const noted c = {.job = jobz, .type = dataTypeA, .m = m, .n = n, .lda = lda, .a = A, .values = S, .b = U,
                     .ldb = ldu, .c = V, .ldc = ldv, .work = bufferOnDevice,
                     .work_bytes = workspaceInBytesOnDevice, .host = bufferOnHost, .info = d_info};
    return with_v(handle, c, device, workspaceInBytesOnHost);
}
cusolverStatus_t cusolverDnXgeev_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                            cusolverEigMode_t jobvl, cusolverEigMode_t jobvr, int64_t n,
                                            cudaDataType dataTypeA, const void *A, int64_t lda, cudaDataType dataTypeW,
                                            const void *W, cudaDataType dataTypeVL, const void *VL, int64_t ldvl,
                                            cudaDataType dataTypeVR, const void *VR, int64_t ldvr,
                                            cudaDataType computeType, size_t *device, size_t *host) {
    (void)handle, (void)params, (void)A, (void)W, (void)VL, (void)VR;
    const int is_double = dataTypeA == CUDA_R_64F || dataTypeA == CUDA_C_64F;
    if (jobvl || (jobvr && ldvr < n) || ldvl < 1 || n < 1 || lda < n || dataTypeVL != dataTypeA ||
        dataTypeVR != dataTypeA || computeType != dataTypeA || dataTypeW != (is_double ? CUDA_C_64F : CUDA_C_32F))
        return CUSOLVER_STATUS_INVALID_VALUE;
    *device = size_of(dataTypeA) * (size_t)n + 8;
    *host = HOST_BYTES;
    return 0;
}
cusolverStatus_t cusolverDnXgeev(cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t jobvl,
                                 cusolverEigMode_t jobvr, int64_t n, cudaDataType dataTypeA, void *A, int64_t lda,
                                 cudaDataType dataTypeW, void *W, cudaDataType dataTypeVL, void *VL, int64_t ldvl,
                                 cudaDataType dataTypeVR, void *VR, int64_t ldvr, cudaDataType computeType,
                                 void *bufferOnDevice, size_t workspaceInBytesOnDevice, void *bufferOnHost,
                                 size_t workspaceInBytesOnHost, int *info) {
    size_t device, host;
    const cusolverStatus_t status =
        cusolverDnXgeev_bufferSize(handle, params, jobvl, jobvr, n, dataTypeA, A, lda, dataTypeW, W, dataTypeVL, VL,
                                   ldvl, dataTypeVR, VR, ldvr, computeType, &device, &host);
    if (status || (jobvr && !VR)) return CUSOLVER_STATUS_INVALID_VALUE;
    const noted c = {.routine = ATOMR_DECOMPOSE_GEEV, .job = jobvr, .type = dataTypeA, .m = n, .n = n, .lda = lda,
                     .a = A, .values = W, .b = VR, .ldb = ldvr, .work = bufferOnDevice,
                     .work_bytes = workspaceInBytesOnDevice, .host = bufferOnHost, .info = info};
    return enqueue(handle, c, device, workspaceInBytesOnHost);
}

#define TYPED(p, form, multiply, eigen, T, R, data_type, adjoint)                                                               \
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
    }                                                                                                                 \
    cusolverStatus_t cusolverDn##p##gesvdj_bufferSize(cusolverDnHandle_t handle, cusolverEigMode_t jobz, int econ,    \
                                                      int m, int n, const T *A, int lda, const R *Sigma, const T *U,  \
                                                      int ldu, const T *V, int ldv, int *lwork, gesvdjInfo_t params) {\
        (void)handle, (void)jobz, (void)A, (void)Sigma, (void)U, (void)V;                                             \
        if (m < n || n < 1 || !econ || lda < m || ldu < m || ldv < n || !params) return CUSOLVER_STATUS_INVALID_VALUE;\
        *lwork = n + 7;                                                                                               \
        return 0;                                                                                                     \
    }                                                                                                                 \
    cusolverStatus_t cusolverDn##p##gesvdj(cusolverDnHandle_t handle, cusolverEigMode_t jobz, int econ, int m, int n, \
                                           T *A, int lda, R *Sigma, T *U, int ldu, T *V, int ldv, T *work, int lwork, \
                                           int *info, gesvdjInfo_t params) {                                          \
        int size;                                                                                                     \
        const cusolverStatus_t status = cusolverDn##p##gesvdj_bufferSize(handle, jobz, econ, m, n, A, lda, Sigma, U,  \
                                                                         ldu, V, ldv, &size, params);                 \
        if (status) return status;                                                                                    \
        const noted c = {.job = jobz, .type = data_type, .m = m, .n = n, .lda = lda, .a = A, .values = Sigma, .b = U, \
                         .ldb = ldu, .c = V, .ldc = ldv, .work = work, .work_bytes = (size_t)lwork * sizeof(T),       \
                         .info = info};                                                                               \
        return with_v(handle, c, (size_t)size * sizeof(T), 0);                                                        \
    }                                                                                                                 \
    cusolverStatus_t cusolverDn##p##gesvdaStridedBatched_bufferSize(                                                  \
        cusolverDnHandle_t handle, cusolverEigMode_t jobz, int rank, int m, int n, const T *A, int lda,               \
        long long int strideA, const R *Sigma, long long int strideS, const T *U, int ldu, long long int strideU,     \
        const T *V, int ldv, long long int strideV, int *lwork, int batchSize) {                                      \
        (void)handle, (void)jobz, (void)A, (void)Sigma, (void)U, (void)V;                                             \
        const int bad = strideA < (long long)lda * n || strideS < rank || strideU < (long long)ldu * rank ||          \
                        strideV < (long long)ldv * rank || batchSize < 1;                                             \
        if (m < n || n < 1 || rank != n || lda < m || ldu < m || ldv < n || bad) return CUSOLVER_STATUS_INVALID_VALUE;\
        *lwork = n + 9;                                                                                               \
        return 0;                                                                                                     \
    }                                                                                                                 \
    cusolverStatus_t cusolverDn##p##gesvdaStridedBatched(                                                             \
        cusolverDnHandle_t handle, cusolverEigMode_t jobz, int rank, int m, int n, const T *A, int lda,               \
        long long int strideA, R *Sigma, long long int strideS, T *U, int ldu, long long int strideU, T *V, int ldv,  \
        long long int strideV, T *work, int lwork, int *info, double *norms, int batchSize) {                         \
        int size;                                                                                                     \
        const cusolverStatus_t status = cusolverDn##p##gesvdaStridedBatched_bufferSize(                               \
            handle, jobz, rank, m, n, A, lda, strideA, Sigma, strideS, U, ldu, strideU, V, ldv, strideV, &size,       \
            batchSize);                                                                                               \
        if (status || norms) return CUSOLVER_STATUS_INVALID_VALUE;                                                    \
        for (int i = 0; i < batchSize; i++) {                                                                         \
            const noted c = {.job = jobz, .type = data_type, .m = m, .n = n, .lda = lda, .a = (T *)A + i * strideA,   \
                             .values = Sigma + i * strideS, .b = U + i * strideU, .ldb = ldu, .c = V + i * strideV,   \
                             .ldc = ldv, .work = work, .work_bytes = (size_t)lwork * sizeof(T), .info = info + i};    \
            const cusolverStatus_t one = with_v(handle, c, (size_t)size * sizeof(T), 0);                              \
            if (one) return one;                                                                                      \
        }                                                                                                             \
        return 0;                                                                                                     \
    }                                                                                                                 \
    cusolverStatus_t cusolverDn##p##eigen##_bufferSize(cusolverDnHandle_t handle, cusolverEigMode_t jobz,             \
                                                       cublasFillMode_t uplo, int n, const T *A, int lda, const R *W, \
                                                       int *lwork, syevjInfo_t params) {                              \
        (void)handle, (void)jobz, (void)uplo, (void)A, (void)W;                                                       \
        if (n < 1 || lda < n || !params) return CUSOLVER_STATUS_INVALID_VALUE;                                        \
        *lwork = n + 11;                                                                                              \
        return 0;                                                                                                     \
    }                                                                                                                 \
    cusolverStatus_t cusolverDn##p##eigen(cusolverDnHandle_t handle, cusolverEigMode_t jobz, cublasFillMode_t uplo,   \
                                          int n, T *A, int lda, R *W, T *work, int lwork, int *info,                  \
                                          syevjInfo_t params) {                                                       \
        int size;                                                                                                     \
        const cusolverStatus_t status =                                                                               \
            cusolverDn##p##eigen##_bufferSize(handle, jobz, uplo, n, A, lda, W, &size, params);                       \
        if (status) return status;                                                                                    \
        const noted c = {.routine = ATOMR_DECOMPOSE_SYEVJ, .job = jobz, .uplo = uplo, .type = data_type, .m = n,      \
                         .n = n, .lda = lda, .a = A, .values = W, .work = work,                                       \
                         .work_bytes = (size_t)lwork * sizeof(T), .info = info};                                      \
        return enqueue(handle, c, (size_t)size * sizeof(T), 0);                                                       \
    }

TYPED(S, orgqr, ormqr, syevj, float, float, CUDA_R_32F, CUBLAS_OP_T)
TYPED(D, orgqr, ormqr, syevj, double, double, CUDA_R_64F, CUBLAS_OP_T)
TYPED(C, ungqr, unmqr, heevj, cuComplex, float, CUDA_C_32F, CUBLAS_OP_C)
TYPED(Z, ungqr, unmqr, heevj, cuDoubleComplex, double, CUDA_C_64F, CUBLAS_OP_C)
