#include <stdlib.h>
#include <string.h>

#include "libraries/cublas/private.h"

static const char *name_of(cublasStatus_t status) {
    static const atomr_constant names[] = {ATOMR_CUBLAS_SHARED_CONSTANTS(ATOMR_CONSTANT) ATOMR_LAST_CONSTANT};
    static const char prefix[] = "CUBLAS_STATUS_";
    for (const atomr_constant *c = names; c->name; c++)
        if (c->value == status && strncmp(c->name, prefix, sizeof prefix - 1) == 0) return c->name;
    return "unknown status";
}

int atomr_blas_fail(cublasStatus_t status, const char *what, atomr_failure *failure) {
    const int refused = status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH;
    const int code = refused ? ATOMR_UNSUPPORTED : ATOMR_LIBRARY_ERROR;
    return atomr_failed(failure, code, "cublas", status, name_of(status), "%s", what);
}

static int create(atomr_cuda *cuda, void **handle, atomr_failure *failure) {
    (void)cuda;
    char why[sizeof failure->text];
    const atomr_cublas_table *const t = atomr_cublas_load(NULL, why, sizeof why); /* it is open: a plan was made */
    if (!t) return atomr_refused(failure, ATOMR_UNSUPPORTED, "%s", why);
    atomr_blas *const b = calloc(1, sizeof *b);
    if (!b) return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "no host memory for a cuBLAS handle");
    b->t = t;
    b->mode = CUBLAS_POINTER_MODE_HOST;
    const cublasStatus_t status = t->cublasCreate_v2(&b->handle);
    if (status != 0) {
        free(b);
        return atomr_blas_fail(status, "cublasCreate", failure);
    }
    /* Parts of a sum over K are added up in the type of the sum, and rounded to the output's once. */
    const cublasStatus_t set = t->cublasSetMathMode(b->handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    if (set != 0) {
        t->cublasDestroy_v2(b->handle);
        free(b);
        return atomr_blas_fail(set, "cublasSetMathMode", failure);
    }
    *handle = b;
    return ATOMR_OK;
}

static cublasStatus_t point(atomr_blas *b, CUstream stream) {
    b->workspace = NULL; /* setting the stream takes the library's own back */
    b->workspace_bytes = 0;
    b->stream = stream;
    return b->t->cublasSetStream_v2(b->handle, stream);
}

static int set_stream(void *handle, CUstream stream, atomr_failure *failure) {
    const cublasStatus_t status = point(handle, stream);
    return status == 0 ? ATOMR_OK : atomr_blas_fail(status, "cublasSetStream", failure);
}

static void destroy(void *handle) {
    atomr_blas *const b = handle;
    b->t->cublasDestroy_v2(b->handle);
    free(b);
}

static const atomr_handle_kind kind = {"cublas", create, set_stream, destroy};

int atomr_blas_take(atomr_cuda *cuda, unsigned lane, void *workspace, uint64_t nbytes, cublasPointerMode_t mode,
                    atomr_blas **taken, atomr_failure *failure) {
    void *handle = NULL;
    const int code = atomr_lane_handle(cuda, lane, &kind, &handle, failure);
    if (code != ATOMR_OK) return code;
    atomr_blas *const b = handle;
    cublasStatus_t status = 0;
    if (nbytes == 0) workspace = NULL;
    if (!workspace && b->workspace) status = point(b, b->stream);
    if (status == 0 && (workspace != b->workspace || nbytes != b->workspace_bytes)) {
        status = b->t->cublasSetWorkspace_v2(b->handle, workspace, (size_t)nbytes);
        b->workspace = status == 0 ? workspace : NULL;
        b->workspace_bytes = status == 0 ? nbytes : 0;
    }
    if (status == 0 && mode != b->mode) {
        status = b->t->cublasSetPointerMode_v2(b->handle, mode);
        if (status == 0) b->mode = mode;
    }
    *taken = b;
    return status == 0 ? ATOMR_OK : atomr_blas_fail(status, "setting up a cuBLAS handle", failure);
}
