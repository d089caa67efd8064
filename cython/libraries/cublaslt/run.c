#include "libraries/cublaslt/private.h"

#include <string.h>

/* A factor in the type that cuBLASLt wants. */
typedef union {
    double z[2];
    float c[2];
    int32_t i;
    uint16_t h;
} factor;

/* To the nearest float16, ties to even. */
static uint16_t half(double value) {
    const float x = (float)value;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (bits >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
    if (bits < 0x38800000) { /* subnormal: the sum has their place value */
        float magnitude, magic = 0.5f;
        memcpy(&magnitude, &bits, sizeof magnitude);
        magic += magnitude;
        memcpy(&bits, &magic, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    return (uint16_t)(sign | ((bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13));
}

static double scalar(const atomr_call *call, int64_t index) {
    double value = 0;
    if (index >= 0) memcpy(&value, &call->scalars[index], sizeof value);
    return value;
}

static factor convert(int64_t scale, double real, double imag) {
    factor f = {{real, imag}};
    switch (scale) {
    case CUDA_R_32F:
    case CUDA_C_32F:
        f.c[0] = (float)real;
        f.c[1] = (float)imag;
        break;
    case CUDA_R_32I: f.i = (int32_t)real; break;
    case CUDA_R_16F: f.h = half(real); break;
    default: break;
    }
    return f;
}

/* Refuse factors that the plan does not take. */
static int check_factors(const atomr_matmul_spec *s, double alpha, double beta, double imag, atomr_failure *failure) {
    if (s->c < 0 && (beta != 0 || imag != 0))
        return atomr_refused(failure, ATOMR_INVALID_REQUEST,
                             "beta=%g, but the plan was made with beta=0 and has no c; allowed: 0", beta);
    if (s->scale == CUDA_R_32I && ((alpha != 0 && alpha != 1) || (beta != 0 && beta != 1)))
        return atomr_refused(failure, ATOMR_INVALID_REQUEST,
                             "alpha=%g and beta=%g with D of dtype int32; allowed: 0, 1 (or D of float32)", alpha, beta);
    return ATOMR_OK;
}

/* The best algorithm for operands at these addresses, whose bits are ORed in `bits`.  Matrices whose addresses the
 * library reads from arrays start at multiples of 16 bytes, whatever its heuristic answers. */
static const choice *choice_for(const atomr_matmul *p, uint64_t bits) {
    if (p->spec.pointers >= 0 && bits & 15) return NULL;
    for (int i = 0; i < ALIGNMENTS; i++)
        if ((bits & (p->choices[i].alignment - 1)) == 0 && p->choices[i].found) return &p->choices[i];
    return NULL;
}

int atomr_matmul_launch(atomr_matmul *p, const cublasLtMatmulAlgo_t *algo, void *workspace, size_t nbytes,
                        void *const *pointers, const void *alpha, const void *beta, CUstream stream,
                        atomr_failure *failure) {
    const atomr_matmul_spec *s = &p->spec;
    const atomr_cublaslt *lt = p->owner->lt;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (unsigned i = 0; i < p->n_pointers && status == CUBLAS_STATUS_SUCCESS; i++)
        status = point(p, &p->pointers[i], pointers[p->pointers[i].operand]);
    /* C that is not read: D, where it may be D; cuBLASLt refuses C at D's address if their types differ. */
    void *at[] = {pointers[s->a], pointers[s->b], pointers[s->c >= 0 ? s->c : s->d], pointers[s->d]};
    for (unsigned i = 0; i < 4 && s->pointers >= 0; i++)
        at[i] = (char *)pointers[s->pointers] + i * ATOMR_POINTER_RUN(s->batch);
    if (s->c < 0 && s->type_c != s->type_d) at[2] = NULL;
    if (status == CUBLAS_STATUS_SUCCESS)
        status = lt->cublasLtMatmul(p->owner->handle, p->desc, alpha, at[0], p->a, at[1], p->b, beta, at[2], p->c, at[3],
                                    p->d, algo, workspace, nbytes, stream);
    return status == CUBLAS_STATUS_SUCCESS ? ATOMR_OK : atomr_matmul_fail(p, status, "cublasLtMatmul", failure);
}

int atomr_matmul_run(void *context, const atomr_call *call, atomr_failure *failure) {
    atomr_matmul *p = context;
    const atomr_matmul_spec *s = &p->spec;
    atomr_cuda *cuda = p->owner->cuda;
    factor alpha, beta;
    const void *alpha_at = &alpha, *beta_at = &beta;
    if (s->alpha_at >= 0) {
        alpha_at = call->pointers[s->alpha_at];
        beta_at = s->beta_at >= 0 ? call->pointers[s->beta_at] : (const void *)(uintptr_t)s->zero;
    } else {
        const double re = scalar(call, s->alpha), beta_re = scalar(call, s->beta), im = scalar(call, s->beta_imag);
        const int code = check_factors(s, re, beta_re, im, failure);
        if (code != ATOMR_OK) return code;
        alpha = convert(s->scale, re, scalar(call, s->alpha_imag));
        beta = convert(s->scale, beta_re, im);
    }
    if (!p->desc) return ATOMR_OK;

    const int64_t matrices[] = {s->a, s->b, s->c >= 0 ? s->c : s->d, s->d};
    const int64_t members = s->pointers >= 0 ? s->members : 1;
    uint64_t bits = s->pointers >= 0 ? (uint64_t)s->apart : 0;
    for (unsigned i = 0; i < 4; i++)
        for (int64_t j = 0; j < members; j++) bits |= (uint64_t)(uintptr_t)call->pointers[matrices[i] + j];
    for (unsigned i = 0; i < p->n_pointers; i++) {
        const uint64_t at = (uint64_t)(uintptr_t)call->pointers[p->pointers[i].operand];
        if (p->pointers[i].blocks && at & 15)
            return atomr_unsupported(failure, "blas_lt", "alignment",
                                     "scales of blocks start at an address that is not aligned to 16 bytes, which "
                                     "cuBLASLt needs; copy them");
        if (p->pointers[i].aligned) bits |= at;
    }
    const choice *best = choice_for(p, bits);
    if (!best)
        return atomr_unsupported(failure, "blas_lt", "alignment",
                                 "an operand starts at an address aligned to %llu bytes only, and cuBLASLt has no "
                                 "algorithm of this matmul for it; allowed: views that start at multiples of 16 bytes",
                                 (unsigned long long)(bits & (~bits + 1)));
    if (best->workspace > call->workspace_bytes)
        return atomr_refused(failure, ATOMR_INVALID_REQUEST, "the workspace of the lane is too small for this matmul");

    const CUstream stream = atomr_cuda_stream(cuda, call->lane);
    if (!stream) /* NULL would be the default stream, which orders with nothing of ours */
        return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cuda", atomr_cuda_error(cuda), "",
                            "the lane has no stream");
    if (s->clear_aux) {
        const CUresult r = atomr_cuda_driver(cuda)->cuMemsetD8Async((CUdeviceptr)(uintptr_t)call->pointers[s->aux], 0,
                                                                    (size_t)s->clear_aux, stream);
        if (r != CUDA_SUCCESS) {
            const char *name = "unknown error";
            atomr_cuda_driver(cuda)->cuGetErrorName(r, &name);
            return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cuda", r, name, "cuMemsetD8Async");
        }
    }
    return atomr_matmul_launch(p, &best->algo, call->workspace, best->workspace, call->pointers, alpha_at, beta_at, stream,
                               failure);
}
