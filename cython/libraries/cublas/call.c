#include <string.h>

#include "libraries/cublas/private.h"

const atomr_field atomr_blas_fields[] = {ATOMR_BLAS_FIELDS(ATOMR_MEMBER_NAME, ATOMR_ARRAY_NAME) ATOMR_LAST_FIELD};

const atomr_constant atomr_blas_constants[] = {
    ATOMR_CUBLAS_SHARED_CONSTANTS(ATOMR_CONSTANT) ATOMR_CUBLAS_CONSTANTS(ATOMR_CONSTANT)
    ATOMR_BLAS_CONSTANTS(ATOMR_CONSTANT) ATOMR_LAST_CONSTANT};

int atomr_blas_check(const atomr_blas_spec *s, atomr_failure *failure) {
    const int64_t scalars[] = {s->alpha, s->beta, s->alpha_imag, s->beta_imag};
    const int64_t extents[] = {s->m, s->n, s->k, s->step[0], s->step[1], s->step[2], s->batch};
    int good = s->routine >= 0 && s->routine <= ATOMR_BLAS_GEMM && s->type >= 0 && s->type <= 3;
    for (unsigned i = 0; i < 3; i++) good = good && s->operand[i] >= -1 && s->operand[i] < s->n_operands;
    for (unsigned i = 0; i < 4; i++) good = good && scalars[i] >= -1 && scalars[i] < s->n_scalars;
    for (unsigned i = 0; i < 7; i++) good = good && extents[i] >= 0 && extents[i] <= INT32_MAX;
    good = good && s->pointers < s->n_operands && s->jump[0] >= 0 && s->jump[1] >= 0 && s->jump[2] >= 0;
    good = good && s->scratch >= 0 && s->scratch % 256 == 0 && s->scratch_bytes >= 0;
    return good ? ATOMR_OK : atomr_refused(failure, ATOMR_INVALID_REQUEST, "malformed BLAS specification");
}

double atomr_blas_scalar(const atomr_call *call, int64_t index) {
    double value = 0;
    if (index >= 0) memcpy(&value, &call->scalars[index], sizeof value);
    return value;
}

/* The routines that all types have, called for one of them. */
#define TYPED(p, T)                                                                                                   \
    static cublasStatus_t call_##p(const atomr_blas *o, const atomr_blas_spec *s, void *const *at, const T *alpha,     \
                                   const T *beta) {                                                                   \
        const atomr_cublas_table *t = o->t;                                                                          \
        const cublasHandle_t h = o->handle;                                                                           \
        const int m = (int)s->m, n = (int)s->n, k = (int)s->k, ta = (int)s->trans_a, tb = (int)s->trans_b;            \
        const int a = (int)s->step[0], b = (int)s->step[1], c = (int)s->step[2];                                      \
        const int side = (int)s->side, uplo = (int)s->uplo, diag = (int)s->diag, count = (int)s->batch;               \
        const int64_t size = (int64_t)sizeof(T), u = s->jump[0] / size, v = s->jump[1] / size, w = s->jump[2] / size; \
        switch (s->routine) {                                                                                         \
        case ATOMR_BLAS_AXPY: return t->cublas##p##axpy_v2(h, n, alpha, at[0], a, at[1], b);                          \
        case ATOMR_BLAS_SCAL: return t->cublas##p##scal_v2(h, n, alpha, at[0], a);                                    \
        case ATOMR_BLAS_GEMV:                                                                                         \
            if (count == 1) return t->cublas##p##gemv_v2(h, ta, m, n, alpha, at[0], a, at[1], b, beta, at[2], c);     \
            return t->cublas##p##gemvStridedBatched(h, ta, m, n, alpha, at[0], a, u, at[1], b, v, beta, at[2], c, w,  \
                                                    count);                                                           \
        case ATOMR_BLAS_GEMM:                                                                                         \
            return t->cublas##p##gemmStridedBatched(h, ta, tb, m, n, k, alpha, at[0], a, u, at[1], b, v, beta, at[2], \
                                                    c, w, count);                                                     \
        case ATOMR_BLAS_SYMM:                                                                                         \
            return t->cublas##p##symm_v2(h, side, uplo, m, n, alpha, at[0], a, at[1], b, beta, at[2], c);             \
        case ATOMR_BLAS_SYRK: return t->cublas##p##syrk_v2(h, uplo, ta, n, k, alpha, at[0], a, beta, at[1], b);       \
        case ATOMR_BLAS_TRMM:                                                                                         \
            return t->cublas##p##trmm_v2(h, side, uplo, ta, diag, m, n, alpha, at[0], a, at[1], b, at[2], c);         \
        case ATOMR_BLAS_TRSM: /* with addresses of a batch in `at`, or of one matrix */                                \
            if (s->pointers < 0)                                                                                      \
                return t->cublas##p##trsm_v2(h, side, uplo, ta, diag, m, n, alpha, at[0], a, at[1], b);               \
            return t->cublas##p##trsmBatched(h, side, uplo, ta, diag, m, n, alpha, at[0], a, at[1], b, count);        \
        default: return t->cublas##p##geam(h, ta, tb, m, n, alpha, at[0], a, beta, at[1], b, at[2], c);               \
        }                                                                                                             \
    }

TYPED(S, float)
TYPED(D, double)
TYPED(C, cuComplex)
TYPED(Z, cuDoubleComplex)

/* Those whose names differ between real and complex types; dot and nrm2 write their result to device memory. */
static cublasStatus_t call_special(const atomr_blas *o, const atomr_blas_spec *s, void *const *at, const void *alpha) {
    const atomr_cublas_table *t = o->t;
    const cublasHandle_t h = o->handle;
    const int m = (int)s->m, n = (int)s->n, a = (int)s->step[0], b = (int)s->step[1], c = (int)s->step[2];
    const int64_t type = s->type;
    if (s->routine == ATOMR_BLAS_DOT) {
        if (type == 0) return t->cublasSdot_v2(h, n, at[0], a, at[1], b, at[2]);
        if (type == 1) return t->cublasDdot_v2(h, n, at[0], a, at[1], b, at[2]);
        if (type == 2)
            return (s->conjugated ? t->cublasCdotc_v2 : t->cublasCdotu_v2)(h, n, at[0], a, at[1], b, at[2]);
        return (s->conjugated ? t->cublasZdotc_v2 : t->cublasZdotu_v2)(h, n, at[0], a, at[1], b, at[2]);
    }
    if (s->routine == ATOMR_BLAS_NRM2) {
        if (type == 0) return t->cublasSnrm2_v2(h, n, at[0], a, at[1]);
        if (type == 1) return t->cublasDnrm2_v2(h, n, at[0], a, at[1]);
        if (type == 2) return t->cublasScnrm2_v2(h, n, at[0], a, at[1]);
        return t->cublasDznrm2_v2(h, n, at[0], a, at[1]);
    }
    if (type == 0) return t->cublasSger_v2(h, m, n, alpha, at[0], a, at[1], b, at[2], c);
    if (type == 1) return t->cublasDger_v2(h, m, n, alpha, at[0], a, at[1], b, at[2], c);
    if (type == 2)
        return (s->conjugated ? t->cublasCgerc_v2 : t->cublasCgeru_v2)(h, m, n, alpha, at[0], a, at[1], b, at[2], c);
    return (s->conjugated ? t->cublasZgerc_v2 : t->cublasZgeru_v2)(h, m, n, alpha, at[0], a, at[1], b, at[2], c);
}

/* Call the routine on the arrays at `at`. */
static cublasStatus_t call_once(const atomr_blas *o, const atomr_blas_spec *s, void *const *at, const double *alpha,
                                const double *beta, int special) {
    const float alpha32[] = {(float)alpha[0], (float)alpha[1]}, beta32[] = {(float)beta[0], (float)beta[1]};
    if (special) return call_special(o, s, at, s->type == 0 || s->type == 2 ? (const void *)alpha32 : alpha);
    if (s->type == 0) return call_S(o, s, at, alpha32, beta32);
    if (s->type == 1) return call_D(o, s, at, alpha, beta);
    if (s->type == 2)
        return call_C(o, s, at, (const cuComplex *)(const void *)alpha32, (const cuComplex *)(const void *)beta32);
    return call_Z(o, s, at, (const cuDoubleComplex *)(const void *)alpha, (const cuDoubleComplex *)(const void *)beta);
}

/* How often the routine is called: once, where the library knows batches of it. */
static int64_t calls(const atomr_blas_spec *s) {
    const int batched = s->routine == ATOMR_BLAS_GEMM || s->routine == ATOMR_BLAS_GEMV || s->pointers >= 0;
    return batched && s->batch ? 1 : s->batch;
}

int atomr_blas_run(void *context, const atomr_call *call, atomr_failure *failure) {
    const atomr_blas_call *one = context;
    const atomr_blas_spec *s = &one->spec;
    const int special = s->routine == ATOMR_BLAS_DOT || s->routine == ATOMR_BLAS_NRM2 || s->routine == ATOMR_BLAS_GER;
    const int result = special && s->routine != ATOMR_BLAS_GER;
    const double alpha[] = {atomr_blas_scalar(call, s->alpha), atomr_blas_scalar(call, s->alpha_imag)};
    const double beta[] = {atomr_blas_scalar(call, s->beta), atomr_blas_scalar(call, s->beta_imag)};
    void *at[3];
    for (int i = 0; i < 3; i++) at[i] = s->operand[i] >= 0 ? call->pointers[s->operand[i]] : NULL;
    for (int i = 0; i < 2 && s->pointers >= 0; i++)
        at[i] = (char *)call->pointers[s->pointers] + (uint64_t)i * ATOMR_POINTER_RUN(s->batch);
    const uint64_t end = (uint64_t)s->scratch + (uint64_t)s->scratch_bytes;
    if (s->scratch_bytes && end > call->workspace_bytes)
        return atomr_refused(failure, ATOMR_INVALID_REQUEST,
                             "the lane has a workspace of %llu bytes, and this call of cuBLAS needs %llu",
                             (unsigned long long)call->workspace_bytes, (unsigned long long)end);
    atomr_blas *o = NULL;
    const int code =
        atomr_blas_take(one->cuda, call->lane, (char *)call->workspace + s->scratch, (uint64_t)s->scratch_bytes,
                        result ? CUBLAS_POINTER_MODE_DEVICE : CUBLAS_POINTER_MODE_HOST, &o, failure);
    if (code != ATOMR_OK) return code;
    cublasStatus_t status = 0;
    for (int64_t i = 0; i < calls(s) && status == 0; i++) {
        status = call_once(o, s, at, alpha, beta, special);
        for (int j = 0; j < 3 && s->pointers < 0; j++)
            if (at[j]) at[j] = (char *)at[j] + s->jump[j];
    }
    return status == 0 ? ATOMR_OK : atomr_blas_fail(status, "a routine of cuBLAS", failure);
}
