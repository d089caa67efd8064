#include "libraries/cudnn/private.h"

static const char *name_of(cudnnStatus_t status) {
    for (const atomr_constant *c = atomr_cudnn_constants; strncmp(c->name, "CUDNN_STATUS_", 13) == 0; c++)
        if (c->value == status) return c->name;
    return "unknown status";
}

int atomr_cudnn_fail(const atomr_cudnn_table *t, cudnnStatus_t status, const char *what, atomr_failure *failure) {
    char said[160] = "";
    t->cudnnGetLastErrorString(said, sizeof said);
    said[sizeof said - 1] = 0;
    if (status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
        return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "%s: no device memory: %s", what, said);
    return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cudnn", status, name_of(status), "%s: %s", what, said);
}

static int create(atomr_cuda *cuda, void **handle, atomr_failure *failure) {
    (void)cuda;
    char why[sizeof failure->text];
    const atomr_cudnn_table *const t = atomr_cudnn_load(NULL, why, sizeof why); /* it is open: a plan was made */
    if (!t) return atomr_refused(failure, ATOMR_UNSUPPORTED, "%s", why);
    cudnnHandle_t made = NULL;
    const cudnnStatus_t status = t->cudnnCreate(&made);
    if (status != CUDNN_STATUS_SUCCESS) return atomr_cudnn_fail(t, status, "cudnnCreate", failure);
    *handle = made;
    return ATOMR_OK;
}

static int set_stream(void *handle, CUstream stream, atomr_failure *failure) {
    char why[sizeof failure->text];
    const atomr_cudnn_table *const t = atomr_cudnn_load(NULL, why, sizeof why);
    if (!t) return atomr_refused(failure, ATOMR_UNSUPPORTED, "%s", why);
    const cudnnStatus_t status = t->cudnnSetStream(handle, stream);
    return status == CUDNN_STATUS_SUCCESS ? ATOMR_OK : atomr_cudnn_fail(t, status, "cudnnSetStream", failure);
}

static void destroy(void *handle) {
    char why[256];
    const atomr_cudnn_table *const t = atomr_cudnn_load(NULL, why, sizeof why);
    if (t) t->cudnnDestroy(handle);
}

const atomr_handle_kind atomr_cudnn_of_lane = {"cudnn", create, set_stream, destroy};
const atomr_handle_kind atomr_cudnn_of_device = {"cudnn", create, NULL, destroy};
