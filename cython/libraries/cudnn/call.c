#include "libraries/cudnn/call.h"

#include <stdlib.h>

#include "libraries/cudnn/private.h"

struct atomr_cudnn_call {
    atomr_cuda *cuda;
    const atomr_cudnn_table *t;
    atomr_cudnn_call_info info;
    cudnnTensorDescriptor_t tensor;
    cudnnLRNDescriptor_t norm;
};

static int is_norm(const atomr_cudnn_call_info *info) { return info->kind >= ATOMR_CUDNN_LRN_FORWARD; }

int atomr_cudnn_call_new(atomr_cuda *cuda, const atomr_cudnn_call_info *info, atomr_cudnn_call **made,
                         atomr_failure *failure) {
    char why[sizeof failure->text];
    const atomr_cudnn_table *const t = atomr_cudnn_load(NULL, why, sizeof why);
    if (!t) return atomr_refused(failure, ATOMR_UNSUPPORTED, "%s", why);
    atomr_cudnn_call *const c = calloc(1, sizeof *c);
    if (!c) return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "no host memory for a call of cuDNN");
    c->cuda = cuda;
    c->t = t;
    c->info = *info;
    const int shape[4] = {info->shape[0], info->shape[1], info->shape[2], 1};
    const int strides[4] = {info->shape[1] * info->shape[2], info->shape[2], 1, 1};
    cudnnStatus_t status = t->cudnnCreateTensorDescriptor(&c->tensor);
    if (status == CUDNN_STATUS_SUCCESS) status = t->cudnnSetTensorNdDescriptor(c->tensor, info->dtype, 4, shape, strides);
    if (status == CUDNN_STATUS_SUCCESS && is_norm(info)) {
        status = t->cudnnCreateLRNDescriptor(&c->norm);
        if (status == CUDNN_STATUS_SUCCESS)
            status = t->cudnnSetLRNDescriptor(c->norm, info->size, info->scale, info->power, info->k);
    }
    if (status == CUDNN_STATUS_SUCCESS) {
        *made = c;
        return ATOMR_OK;
    }
    const int code = atomr_cudnn_fail(t, status, "describing a call", failure);
    atomr_cudnn_call_delete(c);
    return code;
}

void atomr_cudnn_call_delete(atomr_cudnn_call *c) {
    if (!c) return;
    if (c->norm) c->t->cudnnDestroyLRNDescriptor(c->norm);
    if (c->tensor) c->t->cudnnDestroyTensorDescriptor(c->tensor);
    free(c);
}

int atomr_cudnn_call_run(void *context, const atomr_call *call, atomr_failure *failure) {
    const atomr_cudnn_call *const c = context;
    const atomr_cudnn_table *const t = c->t;
    void *handle = NULL;
    const int code = atomr_lane_handle(c->cuda, call->lane, &atomr_cudnn_of_lane, &handle, failure);
    if (code != ATOMR_OK) return code;
    static const float one = 1, zero = 0;
    static const double wide_one = 1, wide_zero = 0;
    const int wide = c->info.dtype == CUDNN_DATA_DOUBLE;
    const void *const alpha = wide ? (const void *)&wide_one : &one, *const beta = wide ? (const void *)&wide_zero : &zero;
    const int algorithm = c->info.log ? CUDNN_SOFTMAX_LOG : CUDNN_SOFTMAX_ACCURATE;
    const int mode = c->info.shape[2] == 1 ? CUDNN_SOFTMAX_MODE_INSTANCE : CUDNN_SOFTMAX_MODE_CHANNEL;
    const int across = CUDNN_LRN_CROSS_CHANNEL_DIM1;
    const cudnnTensorDescriptor_t d = c->tensor;
    void *const *const p = call->pointers;
    cudnnStatus_t status;
    switch (c->info.kind) {
    case ATOMR_CUDNN_SOFTMAX_FORWARD:
        status = t->cudnnSoftmaxForward(handle, algorithm, mode, alpha, d, p[0], beta, d, p[1]);
        break;
    case ATOMR_CUDNN_SOFTMAX_BACKWARD:
        status = t->cudnnSoftmaxBackward(handle, algorithm, mode, alpha, d, p[0], d, p[1], beta, d, p[2]);
        break;
    case ATOMR_CUDNN_LRN_FORWARD:
        status = t->cudnnLRNCrossChannelForward(handle, c->norm, across, alpha, d, p[0], beta, d, p[1]);
        break;
    default:
        status = t->cudnnLRNCrossChannelBackward(handle, c->norm, across, alpha, d, p[1], d, p[2], d, p[0], beta, d, p[3]);
    }
    return status == CUDNN_STATUS_SUCCESS ? ATOMR_OK : atomr_cudnn_fail(t, status, "a call of cuDNN", failure);
}
