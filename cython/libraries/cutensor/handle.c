#include "libraries/cutensor/handle.h"

#include <stdlib.h>
#include <string.h>

#include "libraries/cutensor/plan.h"
#include "runtime/failure.h"

const char *atomr_tensor_status(cutensorStatus_t status) {
    static const char prefix[] = "CUTENSOR_STATUS_";
    for (const atomr_constant *c = atomr_tensor_constants; c->name; c++)
        if (c->value == status && strncmp(c->name, prefix, sizeof prefix - 1) == 0) return c->name;
    return "unknown status";
}

int atomr_tensor_fail(cutensorStatus_t status, const char *what, atomr_failure *failure) {
    if (status == CUTENSOR_STATUS_ALLOC_FAILED)
        return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "%s: no memory", what);
    if (status == CUTENSOR_STATUS_INSUFFICIENT_WORKSPACE)
        return atomr_unsupported(failure, "tensor", "workspace_limit",
                                 "%s: the workspace is too small; raise System(workspace_limit=)", what);
    if (status == CUTENSOR_STATUS_NOT_SUPPORTED || status == CUTENSOR_STATUS_ARCH_MISMATCH ||
        status == CUTENSOR_STATUS_INSUFFICIENT_DRIVER)
        return atomr_unsupported(failure, "tensor", "cutensor", "cuTENSOR does not compute this: %s: %s", what,
                                 atomr_tensor_status(status));
    return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cutensor", status, atomr_tensor_status(status), "%s", what);
}

/* ---- The handle of a device. */

static int create(atomr_cuda *cuda, void **handle, atomr_failure *failure) {
    (void)cuda;
    char why[sizeof failure->text];
    const atomr_cutensor_table *const t = atomr_cutensor_load(NULL, why, sizeof why);
    if (!t) return atomr_refused(failure, ATOMR_UNSUPPORTED, "%s", why);
    atomr_tensor_owner *const made = calloc(1, sizeof *made);
    if (!made) return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "no host memory for a cuTENSOR handle");
    made->t = t;
    const cutensorStatus_t status = t->cutensorCreate(&made->handle);
    if (status != CUTENSOR_STATUS_SUCCESS) {
        free(made);
        return atomr_tensor_fail(status, "cutensorCreate", failure);
    }
    *handle = made;
    return ATOMR_OK;
}

static void destroy(void *handle) {
    atomr_tensor_owner *const o = handle;
    o->t->cutensorDestroy(o->handle);
    free(o);
}

static const atomr_handle_kind of_device = {"cutensor", create, NULL, destroy};

int atomr_tensor_handle(atomr_cuda *cuda, const atomr_tensor_owner **owner, atomr_failure *failure) {
    void *handle = NULL;
    const int code = atomr_device_handle(cuda, &of_device, &handle, failure);
    *owner = handle;
    return code;
}

atomr_tensor_factor atomr_tensor_scaled(cudaDataType_t type, double real, double imag) {
    atomr_tensor_factor f = {{real, imag}};
    if (type == CUDA_R_32F || type == CUDA_C_32F) {
        f.c[0] = (float)real;
        f.c[1] = (float)imag;
    }
    return f;
}
