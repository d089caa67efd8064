#define _GNU_SOURCE
#include "cublas_private.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const packages = "pip install nvidia-cublas (CUDA 13) or nvidia-cublas-cu12 (CUDA 12)";

int atomr_blas_refuse(int code, const char *text, atomr_failure *failure) {
    memset(failure, 0, sizeof *failure);
    snprintf(failure->text, sizeof failure->text, "%s", text);
    return code;
}

static const char *name_of(cublasStatus_t status) {
    switch (status) {
    case 1: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case 3: return "CUBLAS_STATUS_ALLOC_FAILED";
    case 7: return "CUBLAS_STATUS_INVALID_VALUE";
    case 8: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case 13: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case 14: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case 15: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "unknown status";
    }
}

int atomr_blas_fail(cublasStatus_t status, const char *what, atomr_failure *failure) {
    failure->status = status;
    snprintf(failure->lib, sizeof failure->lib, "cublas");
    snprintf(failure->name, sizeof failure->name, "%s", name_of(status));
    snprintf(failure->text, sizeof failure->text, "%s", what);
    return status == 15 || status == 8 ? ATOMR_UNSUPPORTED : ATOMR_LIBRARY_ERROR;
}

static void *open_library(const char *path, char *why, size_t size) {
    static const char *const sonames[] = {"libcublas.so.13", "libcublas.so.12"};
    const char *const forced = getenv("ATOMR_NATIVE_CUBLAS");
    if (forced && *forced) path = forced;
    if (path && *path) {
        void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library) snprintf(why, size, "cuBLAS cannot be opened: %s; %s", dlerror(), packages);
        return library;
    }
    for (unsigned i = 0; i < sizeof sonames / sizeof *sonames; i++) {
        void *const library = dlopen(sonames[i], RTLD_NOW | RTLD_LOCAL);
        if (library) return library;
    }
    snprintf(why, size, "cuBLAS is not installed: tried libcublas.so.13 and libcublas.so.12; %s", packages);
    return NULL;
}

/* Fill the table; what is missing goes into `why`. */
static void bind_all(void *library, atomr_cublas_table *t, char *why, size_t size) {
    static const char *const names[] = {
#define F(name, arguments) #name,
        ATOMR_CUBLAS_FUNCTIONS(F)
        NULL,
        ATOMR_CUBLAS_OPTIONAL(F)
#undef F
    };
    void **const into = (void **)t;
    unsigned bound = 0;
    int needed = 1;
    why[0] = 0;
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        if (!names[i]) { /* those that follow may be missing */
            needed = 0;
            continue;
        }
        void *const found = into[bound++] = dlsym(library, names[i]);
        const size_t used = strlen(why);
        if (!found && needed) snprintf(why + used, size - used, "%s%s", used ? ", " : "cuBLAS lacks ", names[i]);
    }
}

int atomr_blas_open(atomr_cuda *cuda, const char *path, atomr_blas **made, atomr_failure *failure) {
    char why[sizeof failure->text];
    void *const library = open_library(path, why, sizeof why);
    if (!library) return atomr_blas_refuse(ATOMR_UNSUPPORTED, why, failure);
    atomr_blas *b = calloc(1, sizeof *b);
    if (!b) return atomr_blas_refuse(ATOMR_OUT_OF_MEMORY, "no host memory for a cuBLAS handle", failure);
    b->cuda = cuda;
    pthread_mutex_init(&b->busy, NULL);
    bind_all(library, &b->t, why, sizeof why);
    if (why[0]) {
        free(b);
        return atomr_blas_refuse(ATOMR_UNSUPPORTED, why, failure);
    }
    cublasStatus_t status = b->t.cublasCreate_v2(&b->handle);
    if (status == 0) status = b->t.cublasGetVersion_v2(b->handle, &b->version);
    if (status != 0) {
        free(b);
        return atomr_blas_fail(status, "cublasCreate", failure);
    }
    *made = b;
    return ATOMR_OK;
}

int atomr_blas_version(const atomr_blas *b) { return b->version; }

int atomr_blas_groups(const atomr_blas *b) { return b->t.cublasGemmGroupedBatchedEx != NULL; }

void atomr_blas_set_workspace(atomr_blas *b, uint64_t address, uint64_t nbytes) {
    b->workspace = address;
    b->workspace_bytes = nbytes;
}

int atomr_blas_check(const atomr_blas_spec *s, atomr_failure *failure) {
    const int64_t scalars[] = {s->alpha, s->beta, s->alpha_imag, s->beta_imag};
    const int64_t extents[] = {s->m, s->n, s->k, s->step[0], s->step[1], s->step[2], s->batch};
    int good = s->routine >= 0 && s->routine <= ATOMR_BLAS_GEMM && s->type >= 0 && s->type <= 3;
    for (unsigned i = 0; i < 3; i++) good = good && s->operand[i] >= -1 && s->operand[i] < s->n_operands;
    for (unsigned i = 0; i < 4; i++) good = good && scalars[i] >= -1 && scalars[i] < s->n_scalars;
    for (unsigned i = 0; i < 7; i++) good = good && extents[i] >= 0 && extents[i] <= INT32_MAX;
    good = good && s->pointers < s->n_operands && s->jump[0] >= 0 && s->jump[1] >= 0 && s->jump[2] >= 0;
    return good ? ATOMR_OK : atomr_blas_refuse(ATOMR_INVALID_REQUEST, "malformed BLAS specification", failure);
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
        const atomr_cublas_table *t = &o->t;                                                                          \
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
        case ATOMR_BLAS_TRSM: /* of a batch, `at` are arrays of addresses */                                           \
            if (count == 1) return t->cublas##p##trsm_v2(h, side, uplo, ta, diag, m, n, alpha, at[0], a, at[1], b);   \
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
    const atomr_cublas_table *t = &o->t;
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
    atomr_blas_call *one = context;
    atomr_blas *o = one->owner;
    const atomr_blas_spec *s = &one->spec;
    const int special = s->routine == ATOMR_BLAS_DOT || s->routine == ATOMR_BLAS_NRM2 || s->routine == ATOMR_BLAS_GER;
    const int result = special && s->routine != ATOMR_BLAS_GER;
    const double alpha[] = {atomr_blas_scalar(call, s->alpha), atomr_blas_scalar(call, s->alpha_imag)};
    const double beta[] = {atomr_blas_scalar(call, s->beta), atomr_blas_scalar(call, s->beta_imag)};
    void *at[3];
    for (int i = 0; i < 3; i++) at[i] = s->operand[i] >= 0 ? call->pointers[s->operand[i]] : NULL;
    for (int i = 0; i < 2 && s->pointers >= 0; i++)
        at[i] = (char *)call->pointers[s->pointers] + (uint64_t)i * ATOMR_POINTER_RUN(s->batch);
    const CUstream stream = atomr_cuda_stream(o->cuda, call->lane);
    if (!stream) return atomr_blas_refuse(ATOMR_LIBRARY_ERROR, "the lane has no stream", failure);
    cublasStatus_t status = 0;
    if (stream != o->stream) {
        status = o->t.cublasSetStream_v2(o->handle, stream); /* which forgets the workspace */
        if (status == 0 && o->workspace_bytes)
            status = o->t.cublasSetWorkspace_v2(o->handle, (void *)(uintptr_t)o->workspace,
                                                (size_t)o->workspace_bytes);
        o->stream = status == 0 ? stream : NULL;
    }
    if (status == 0)
        status = o->t.cublasSetPointerMode_v2(o->handle,
                                              result ? CUBLAS_POINTER_MODE_DEVICE : CUBLAS_POINTER_MODE_HOST);
    for (int64_t i = 0; i < calls(s) && status == 0; i++) {
        status = call_once(o, s, at, alpha, beta, special);
        for (int j = 0; j < 3 && s->pointers < 0; j++)
            if (at[j]) at[j] = (char *)at[j] + s->jump[j];
    }
    return status == 0 ? ATOMR_OK : atomr_blas_fail(status, "a routine of cuBLAS", failure);
}
