/* Refined solves of the fake cuSOLVER: LU factors of a matrix that is rounded to less precision, and corrections by
 * residuals, in plain loops.
 *
 * As documented: the call waits for the device; the number of iterations is the host's, and negative if the solve fell
 * back to the matrices' precision; GMRES takes one right side; B is read, and A is destroyed if it fell back. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fake_solver.h"

struct cusolverDnIRSParams {
    int solver, main, lowest, most;
};
struct cusolverDnIRSInfos {
    int alive;
};

/* Objects that are alive, for tests in this process. */
_Atomic int fake_refinements;

cusolverStatus_t cusolverDnIRSParamsCreate(cusolverDnIRSParams_t *params) {
    *params = calloc(1, sizeof **params);
    if (!*params) return CUSOLVER_STATUS_ALLOC_FAILED;
    (*params)->most = 50;
    fake_refinements++;
    return 0;
}
cusolverStatus_t cusolverDnIRSParamsDestroy(cusolverDnIRSParams_t params) {
    fake_refinements--;
    free(params);
    return 0;
}
cusolverStatus_t cusolverDnIRSParamsSetRefinementSolver(cusolverDnIRSParams_t params,
                                                        cusolverIRSRefinement_t refinement_solver) {
    params->solver = refinement_solver;
    return 0;
}
cusolverStatus_t cusolverDnIRSParamsSetSolverPrecisions(cusolverDnIRSParams_t params,
                                                        cusolverPrecType_t solver_main_precision,
                                                        cusolverPrecType_t solver_lowest_precision) {
    params->main = solver_main_precision, params->lowest = solver_lowest_precision;
    return 0;
}
cusolverStatus_t cusolverDnIRSParamsSetMaxIters(cusolverDnIRSParams_t params, cusolver_int_t maxiters) {
    if (maxiters < 1) return CUSOLVER_STATUS_IRS_PARAMS_INVALID_MAXITER;
    params->most = maxiters;
    return 0;
}
cusolverStatus_t cusolverDnIRSInfosCreate(cusolverDnIRSInfos_t *infos_ptr) {
    *infos_ptr = calloc(1, sizeof **infos_ptr);
    fake_refinements += *infos_ptr != NULL;
    return *infos_ptr ? 0 : CUSOLVER_STATUS_ALLOC_FAILED;
}
cusolverStatus_t cusolverDnIRSInfosDestroy(cusolverDnIRSInfos_t infos) {
    fake_refinements--;
    free(infos);
    return 0;
}

static double rounded_real(double x, int lowest) {
    int bits = 24, power;
    if (lowest == CUSOLVER_R_16BF || lowest == CUSOLVER_C_16BF) bits = 8;
    if (lowest == CUSOLVER_R_16F || lowest == CUSOLVER_C_16F || lowest == CUSOLVER_R_TF32 || lowest == CUSOLVER_C_TF32)
        bits = 11;
    const int half = lowest == CUSOLVER_R_16F || lowest == CUSOLVER_C_16F;
    if (fabs(x) > (half ? 65504.0 : 3.4028234e38)) return copysign(INFINITY, x);
    const double part = frexp(x, &power);
    return ldexp(nearbyint(ldexp(part, bits)), power - bits);
}

static number rounded(number x, int lowest) {
    return CMPLX(rounded_real(creal(x), lowest), rounded_real(cimag(x), lowest));
}

/* LU with partial pivoting; returns the place, from 1, of a zero on the diagonal. */
static int factor(number *a, int64_t *rows, int64_t n) {
    for (int64_t j = 0; j < n; j++) {
        int64_t best = j;
        for (int64_t i = j; i < n; i++)
            if (cabs(a[j * n + i]) > cabs(a[j * n + best])) best = i;
        rows[j] = best;
        if (a[j * n + best] == 0) return (int)j + 1;
        for (int64_t q = 0; q < n && best != j; q++) {
            const number x = a[q * n + j];
            a[q * n + j] = a[q * n + best], a[q * n + best] = x;
        }
        for (int64_t i = j + 1; i < n; i++) {
            a[j * n + i] /= a[j * n + j];
            for (int64_t q = j + 1; q < n; q++) a[q * n + i] -= a[j * n + i] * a[q * n + j];
        }
    }
    return 0;
}

static void solve(const number *a, const int64_t *rows, number *x, int64_t n) {
    for (int64_t j = 0; j < n; j++) {
        const number one = x[j];
        x[j] = x[rows[j]], x[rows[j]] = one;
    }
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = j + 1; i < n; i++) x[i] -= a[j * n + i] * x[j];
    for (int64_t j = n; j-- > 0;) {
        x[j] /= a[j * n + j];
        for (int64_t i = 0; i < j; i++) x[i] -= a[j * n + i] * x[j];
    }
}

typedef struct {
    int lowest, most;
    cudaDataType type;
    int64_t n, k, lda, ldb, ldx;
    void *a, *b, *x, *work;
    size_t work_bytes;
    int *niters, *info;
} noted;

/* One column; returns the corrections, or -1. */
static int refine(const noted *c, const number *low, const int64_t *rows, int64_t q, double norm) {
    const int64_t n = c->n;
    number *const x = calloc((size_t)n, sizeof *x), *const d = calloc((size_t)n, sizeof *d);
    int found = -1;
    for (int turn = 0; turn <= c->most && found < 0; turn++) {
        double of_r = 0, of_x = 0;
        for (int64_t i = 0; i < n; i++) {
            d[i] = element(c->type, c->b, q * c->ldb + i);
            for (int64_t j = 0; j < n; j++) d[i] -= element(c->type, c->a, j * c->lda + i) * x[j];
            of_r = fmax(of_r, isnan(creal(d[i])) ? INFINITY : cabs(d[i]));
            of_x = fmax(of_x, cabs(x[i]));
        }
        if (turn && of_r <= sqrt((double)n) * of_x * norm * 2.2e-16) found = turn - 1;
        else {
            solve(low, rows, d, n);
            for (int64_t i = 0; i < n; i++) x[i] += d[i];
        }
    }
    for (int64_t i = 0; i < n && found >= 0; i++) set_element(c->type, c->x, q * c->ldx + i, x[i]);
    free(x), free(d);
    return found;
}

static void run(void *argument) {
    const noted *const c = argument;
    const int64_t n = c->n;
    number *const a = calloc((size_t)(n * n), sizeof *a);
    int64_t *const rows = calloc((size_t)n, sizeof *rows);
    double norm = 0;
    memset(c->work, 0xff, c->work_bytes);
    for (int64_t i = 0; i < n * n; i++) { /* cuSOLVER 12.0.4 took NaN for 0 when it factored by LU */
        const number x = element(c->type, c->a, i / n * c->lda + i % n);
        if (isnan(creal(x)) || isnan(cimag(x))) set_element(c->type, c->a, i / n * c->lda + i % n, 0);
    }
    for (int64_t i = 0; i < n; i++) {
        double row = 0;
        for (int64_t j = 0; j < n; j++) row += cabs(element(c->type, c->a, j * c->lda + i));
        norm = fmax(norm, row);
    }
    for (int64_t i = 0; i < n * n; i++) a[i] = rounded(element(c->type, c->a, i / n * c->lda + i % n), c->lowest);
    int fails = factor(a, rows, n), most = 0;
    *c->info = 0;
    for (int64_t q = 0; q < c->k && !fails; q++) {
        const int taken = refine(c, a, rows, q, norm);
        fails = taken < 0;
        most = taken > most ? taken : most;
    }
    *c->niters = most;
    if (fails) {
        *c->niters = -c->most;
        for (int64_t i = 0; i < n * n; i++) a[i] = element(c->type, c->a, i / n * c->lda + i % n);
        *c->info = factor(a, rows, n);
        for (int64_t q = 0; q < c->k; q++) {
            number *const x = calloc((size_t)n, sizeof *x);
            for (int64_t i = 0; i < n; i++) x[i] = element(c->type, c->b, q * c->ldb + i);
            if (!*c->info) solve(a, rows, x, n);
            for (int64_t i = 0; i < n; i++) set_element(c->type, c->x, q * c->ldx + i, x[i]);
            free(x);
        }
        for (int64_t i = 0; i < n * n; i++) set_element(c->type, c->a, i / n * c->lda + i % n, a[i]);
    }
    free(a), free(rows);
}

cusolverStatus_t cusolverDnIRSXgesv_bufferSize(cusolverDnHandle_t handle, cusolverDnIRSParams_t params,
                                               cusolver_int_t n, cusolver_int_t nrhs, size_t *lwork_bytes) {
    (void)handle;
    if (params->main != CUSOLVER_R_64F && params->main != CUSOLVER_C_64F) return CUSOLVER_STATUS_IRS_PARAMS_INVALID_PREC;
    if (nrhs > 1 && params->solver != CUSOLVER_IRS_REFINE_CLASSICAL)
        return CUSOLVER_STATUS_IRS_NRHS_NOT_SUPPORTED_FOR_REFINE_GMRES;
    if (n < 1 || nrhs < 1) return CUSOLVER_STATUS_INVALID_VALUE;
    *lwork_bytes = (size_t)n * 48 + 8;
    return 0;
}
cusolverStatus_t cusolverDnIRSXgesv(cusolverDnHandle_t handle, cusolverDnIRSParams_t params, cusolverDnIRSInfos_t infos,
                                    cusolver_int_t n, cusolver_int_t nrhs, void *dA, cusolver_int_t ldda, void *dB,
                                    cusolver_int_t lddb, void *dX, cusolver_int_t lddx, void *dWorkspace,
                                    size_t lwork_bytes, cusolver_int_t *niters, cusolver_int_t *d_info) {
    size_t bytes;
    const cusolverStatus_t status = cusolverDnIRSXgesv_bufferSize(handle, params, n, nrhs, &bytes);
    if (status) return status;
    if (!infos) return CUSOLVER_STATUS_IRS_INFOS_NOT_INITIALIZED;
    if (!handle->stream || ldda < n || lddb < n || lddx < n || lwork_bytes < bytes || !dWorkspace || !niters || !d_info ||
        dB == dX)
        return CUSOLVER_STATUS_INVALID_VALUE;
    const noted c = {.lowest = params->lowest, .most = params->most,
                     .type = params->main == CUSOLVER_R_64F ? CUDA_R_64F : CUDA_C_64F, .n = n, .k = nrhs, .lda = ldda,
                     .ldb = lddb, .ldx = lddx, .a = dA, .b = dB, .x = dX, .work = dWorkspace,
                     .work_bytes = lwork_bytes, .niters = niters, .info = d_info};
    noted copy = c;
    if (fake_enqueue(handle->stream, run, &copy, sizeof copy, 0)) return CUSOLVER_STATUS_EXECUTION_FAILED;
    return cuStreamSynchronize(handle->stream) ? CUSOLVER_STATUS_EXECUTION_FAILED : 0;
}
