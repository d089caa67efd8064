/* The older interface of the fake cuDNN: softmax and local response norms of dense tensors with four axes, in double
 * precision, in the order of the handle's stream. */
#include <math.h>
#include <stdlib.h>

#include "fake_dnn.h"

struct cudnnContext {
    CUstream stream;
};

struct cudnnTensorStruct {
    int dtype;
    int64_t outer, channels, inner;
};

struct cudnnLRNStruct {
    unsigned size;
    double scale, power, k;
};

extern _Atomic unsigned fake_dnn_descriptors;

#define MAY_FAIL()                                                                                                    \
    do {                                                                                                              \
        const CUresult refusal_ = fake_refusal(__func__);                                                             \
        if (refusal_) return (cudnnStatus_t)refusal_;                                                                 \
    } while (0)

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *made) {
    MAY_FAIL();
    *made = calloc(1, sizeof **made);
    fake_dnn_descriptors++;
    return *made ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR;
}

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t t, cudnnDataType_t dtype, int n, const int shape[],
                                         const int strides[]) {
    MAY_FAIL();
    int step = 1;
    if (n != 3 && n != 4) return CUDNN_STATUS_BAD_PARAM;
    for (int i = n; i-- > 0; step *= shape[i])
        if (shape[i] < 1 || strides[i] != step) return CUDNN_STATUS_NOT_SUPPORTED;
    *t = (struct cudnnTensorStruct){dtype, shape[0], shape[1], (int64_t)shape[2] * (n == 4 ? shape[3] : 1)};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t t) {
    fake_dnn_descriptors--;
    free(t);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateLRNDescriptor(cudnnLRNDescriptor_t *made) {
    MAY_FAIL();
    *made = calloc(1, sizeof **made);
    fake_dnn_descriptors++;
    return *made ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR;
}

/* The ranges of the manual: a window of 1 to 16, k of 1e-5 at least, and beta of 0.01. */
cudnnStatus_t cudnnSetLRNDescriptor(cudnnLRNDescriptor_t d, unsigned size, double scale, double power, double k) {
    MAY_FAIL();
    if (size < 1 || size > 16 || k < 1e-5 || power < 0.01) return CUDNN_STATUS_BAD_PARAM;
    *d = (struct cudnnLRNStruct){size, scale, power, k};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyLRNDescriptor(cudnnLRNDescriptor_t d) {
    fake_dnn_descriptors--;
    free(d);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t enqueue(cudnnHandle_t handle, const struct cudnnTensorStruct *t, dnn_call call) {
    call.dtype = t->dtype;
    call.outer = t->outer;
    call.channels = t->channels;
    call.inner = t->inner;
    return fake_enqueue(handle->stream, dnn_compute_call, &call, sizeof call, 0) ? CUDNN_STATUS_EXECUTION_FAILED
                                                                              : CUDNN_STATUS_SUCCESS;
}

/* Factors of dense results, which are 1 and 0. */
static bool plain(const struct cudnnTensorStruct *t, const void *alpha, const void *beta) {
    return t->dtype == CUDNN_DATA_DOUBLE ? *(const double *)alpha == 1 && *(const double *)beta == 0
                                         : *(const float *)alpha == 1 && *(const float *)beta == 0;
}

static bool fits(const struct cudnnTensorStruct *t, int mode) {
    return mode == CUDNN_SOFTMAX_MODE_CHANNEL || t->inner == 1;
}

cudnnStatus_t cudnnSoftmaxForward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algorithm, cudnnSoftmaxMode_t mode,
                                  const void *alpha, const cudnnTensorDescriptor_t t, const void *x, const void *beta,
                                  const cudnnTensorDescriptor_t ty, void *y) {
    MAY_FAIL();
    if (!plain(t, alpha, beta) || t != ty || !fits(t, mode)) return CUDNN_STATUS_NOT_SUPPORTED;
    return enqueue(handle, t, (dnn_call){.algorithm = algorithm, .x = x, .to = y});
}

cudnnStatus_t cudnnSoftmaxBackward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algorithm, cudnnSoftmaxMode_t mode,
                                   const void *alpha, const cudnnTensorDescriptor_t t, const void *y,
                                   const cudnnTensorDescriptor_t tdy, const void *dy, const void *beta,
                                   const cudnnTensorDescriptor_t tdx, void *dx) {
    MAY_FAIL();
    if (!plain(t, alpha, beta) || t != tdy || t != tdx || !fits(t, mode)) return CUDNN_STATUS_NOT_SUPPORTED;
    return enqueue(handle, t, (dnn_call){.backward = 1, .algorithm = algorithm, .y = y, .dy = dy, .to = dx});
}

cudnnStatus_t cudnnLRNCrossChannelForward(cudnnHandle_t handle, cudnnLRNDescriptor_t d, cudnnLRNMode_t mode,
                                          const void *alpha, const cudnnTensorDescriptor_t t, const void *x,
                                          const void *beta, const cudnnTensorDescriptor_t ty, void *y) {
    MAY_FAIL();
    if (!plain(t, alpha, beta) || t != ty || mode != CUDNN_LRN_CROSS_CHANNEL_DIM1) return CUDNN_STATUS_NOT_SUPPORTED;
    return enqueue(handle, t,
                   (dnn_call){.norm = 1, .size = d->size, .scale = d->scale, .power = d->power, .k = d->k, .x = x, .to = y});
}

cudnnStatus_t cudnnLRNCrossChannelBackward(cudnnHandle_t handle, cudnnLRNDescriptor_t d, cudnnLRNMode_t mode,
                                           const void *alpha, const cudnnTensorDescriptor_t t, const void *y,
                                           const cudnnTensorDescriptor_t tdy, const void *dy,
                                           const cudnnTensorDescriptor_t tx, const void *x, const void *beta,
                                           const cudnnTensorDescriptor_t tdx, void *dx) {
    MAY_FAIL();
    if (!plain(t, alpha, beta) || t != tdy || t != tx || t != tdx || mode != CUDNN_LRN_CROSS_CHANNEL_DIM1)
        return CUDNN_STATUS_NOT_SUPPORTED;
    return enqueue(handle, t,
                   (dnn_call){.norm = 1, .backward = 1, .size = d->size, .scale = d->scale, .power = d->power, .k = d->k,
                              .x = x, .y = y, .dy = dy, .to = dx});
}

/* Element `c` of the channels from `first` on. */
static double at(const dnn_call *o, const void *p, int64_t first, int64_t c) {
    return dnn_get((const char *)p + (size_t)(first + c * o->inner) * dnn_size_of(o->dtype), o->dtype);
}

static void store(const dnn_call *o, int64_t first, int64_t c, double value) {
    dnn_put((char *)o->to + (size_t)(first + c * o->inner) * dnn_size_of(o->dtype), o->dtype, value);
}

static void softmax(const dnn_call *o, int64_t first) {
    const int log_of = o->algorithm == CUDNN_SOFTMAX_LOG;
    double most = -INFINITY, sum = 0;
    for (int64_t c = 0; !o->backward && c < o->channels; c++) most = fmax(most, at(o, o->x, first, c));
    for (int64_t c = 0; c < o->channels; c++) {
        if (!o->backward) sum += exp(at(o, o->x, first, c) - most);
        else sum += at(o, o->dy, first, c) * (log_of ? 1 : at(o, o->y, first, c));
    }
    for (int64_t c = 0; c < o->channels; c++) {
        if (!o->backward) {
            const double x = at(o, o->x, first, c) - most;
            store(o, first, c, log_of ? x - log(sum) : exp(x) / sum);
        } else {
            const double y = at(o, o->y, first, c), dy = at(o, o->dy, first, c);
            store(o, first, c, log_of ? dy - exp(y) * sum : y * (dy - sum));
        }
    }
}

static double scale_at(const dnn_call *o, int64_t first, int64_t c) {
    const int64_t before = (o->size - 1) / 2, after = o->size - 1 - before;
    double sum = 0;
    for (int64_t i = c - before; i <= c + after; i++)
        if (i >= 0 && i < o->channels) sum += at(o, o->x, first, i) * at(o, o->x, first, i);
    return o->k + o->scale / o->size * sum;
}

static void norm(const dnn_call *o, int64_t first) {
    const int64_t before = (o->size - 1) / 2, after = o->size - 1 - before;
    for (int64_t c = 0; c < o->channels; c++) {
        const double x = at(o, o->x, first, c), power = pow(scale_at(o, first, c), -o->power);
        double shared = 0;
        for (int64_t i = c - after; o->backward && i <= c + before; i++)
            if (i >= 0 && i < o->channels)
                shared += at(o, o->dy, first, i) * at(o, o->y, first, i) / scale_at(o, first, i);
        const double slope = o->backward ? at(o, o->dy, first, c) * power - 2 * o->scale * o->power / o->size * x * shared : 0;
        store(o, first, c, o->backward ? slope : x * power);
    }
}

void dnn_compute_call(void *given) {
    const dnn_call *const o = given;
    for (int64_t i = 0; i < o->outer * o->inner; i++) {
        const int64_t first = i / o->inner * o->channels * o->inner + i % o->inner;
        if (o->norm) norm(o, first);
        else softmax(o, first);
    }
}
