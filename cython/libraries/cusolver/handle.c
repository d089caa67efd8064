#include <stdlib.h>
#include <string.h>

#include "libraries/cusolver/private.h"

static const char *name_of(cusolverStatus_t status) {
    static const atomr_constant names[] = {ATOMR_CUSOLVER_CONSTANTS(ATOMR_CONSTANT) ATOMR_LAST_CONSTANT};
    for (const atomr_constant *c = names; c->name; c++)
        if (c->value == status) return c->name;
    return "unknown status";
}

int atomr_solver_fail(cusolverStatus_t status, const char *what, atomr_failure *failure) {
    const int refused = status == CUSOLVER_STATUS_NOT_SUPPORTED || status == CUSOLVER_STATUS_ARCH_MISMATCH ||
                        status == CUSOLVER_STATUS_MATRIX_TYPE_NOT_SUPPORTED;
    return atomr_failed(failure, refused ? ATOMR_UNSUPPORTED : ATOMR_LIBRARY_ERROR, "cusolver", status,
                        name_of(status), "%s", what);
}

static void destroy(void *handle) {
    atomr_solver *const s = handle;
    if (s->jacobi_eigen) s->t->cusolverDnDestroySyevjInfo(s->jacobi_eigen);
    if (s->jacobi) s->t->cusolverDnDestroyGesvdjInfo(s->jacobi);
    if (s->params) s->t->cusolverDnDestroyParams(s->params);
    s->t->cusolverDnDestroy(s->handle);
    free(s);
}

static int create(atomr_cuda *cuda, void **handle, atomr_failure *failure) {
    (void)cuda;
    char why[sizeof failure->text];
    const atomr_cusolver_table *const t = atomr_cusolver_load(NULL, why, sizeof why); /* it is open: a plan was made */
    if (!t) return atomr_refused(failure, ATOMR_UNSUPPORTED, "%s", why);
    atomr_solver *const s = calloc(1, sizeof *s);
    if (!s) return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "no host memory for a cuSOLVER handle");
    s->t = t;
    cusolverStatus_t status = t->cusolverDnCreate(&s->handle);
    if (status != 0) {
        free(s);
        return atomr_solver_fail(status, "cusolverDnCreate", failure);
    }
    status = t->cusolverDnCreateParams(&s->params);
    if (status == 0) status = t->cusolverDnCreateGesvdjInfo(&s->jacobi);
    if (status == 0) status = t->cusolverDnCreateSyevjInfo(&s->jacobi_eigen);
    if (status != 0) {
        destroy(s);
        return atomr_solver_fail(status, "making the parameters of a cuSOLVER handle", failure);
    }
    *handle = s;
    return ATOMR_OK;
}

static int set_stream(void *handle, CUstream stream, atomr_failure *failure) {
    const atomr_solver *const s = handle;
    const cusolverStatus_t status = s->t->cusolverDnSetStream(s->handle, stream);
    return status == 0 ? ATOMR_OK : atomr_solver_fail(status, "cusolverDnSetStream", failure);
}

static const atomr_handle_kind of_lane = {"cusolver", create, set_stream, destroy};
static const atomr_handle_kind of_device = {"cusolver", create, NULL, destroy};

int atomr_solver_take(atomr_cuda *cuda, unsigned lane, atomr_solver **taken, atomr_failure *failure) {
    void *handle = NULL;
    const int code = atomr_lane_handle(cuda, lane, &of_lane, &handle, failure);
    *taken = handle;
    return code;
}

int atomr_solver_ask(atomr_cuda *cuda, atomr_solver **taken, atomr_failure *failure) {
    void *handle = NULL;
    const int code = atomr_device_handle(cuda, &of_device, &handle, failure);
    *taken = handle;
    return code;
}
