#include "libraries/cudnn/rnn.h"

#include <stdlib.h>

#include "libraries/cudnn/private.h"

const atomr_field atomr_cudnn_rnn_fields[] = {
    ATOMR_CUDNN_RNN_FIELDS(ATOMR_MEMBER_NAME, ATOMR_ARRAY_NAME) ATOMR_LAST_FIELD};

typedef atomr_cudnn_rnn_spec rnn_spec;
typedef const atomr_cudnn_table table;

/* What a call is described by.  One set for each call: lengths and seeds are part of it, and lanes share nothing. */
typedef struct {
    cudnnDropoutDescriptor_t dropout;
    cudnnRNNDescriptor_t rnn;
    cudnnRNNDataDescriptor_t x, y;
    cudnnTensorDescriptor_t h;
} description;

static double probability(const rnn_spec *s) {
    double p;
    memcpy(&p, &s->dropout, sizeof p);
    return p;
}

static int drops(const rnn_spec *s) { return s->training && probability(s) > 0; }

static size_t size_of(const rnn_spec *s) {
    return s->dtype == CUDNN_DATA_DOUBLE ? 8 : s->dtype == CUDNN_DATA_FLOAT ? 4 : 2;
}

static void end(table *t, description *d) {
    if (d->h) t->cudnnDestroyTensorDescriptor(d->h);
    if (d->y) t->cudnnDestroyRNNDataDescriptor(d->y);
    if (d->x) t->cudnnDestroyRNNDataDescriptor(d->x);
    if (d->rnn) t->cudnnDestroyRNNDescriptor(d->rnn);
    if (d->dropout) t->cudnnDestroyDropoutDescriptor(d->dropout);
}

/* The generator's state: made of the seed, or `kept` as it is, where nothing is drawn. */
static cudnnStatus_t describe_dropout(table *t, cudnnHandle_t handle, const rnn_spec *s, void *states, uint64_t bytes,
                                      uint64_t seed, int kept, cudnnDropoutDescriptor_t d) {
    if (!drops(s)) return t->cudnnSetDropoutDescriptor(d, handle, 0, NULL, 0, 0);
    const float p = (float)probability(s);
    if (kept) return t->cudnnRestoreDropoutDescriptor(d, handle, p, states, bytes, seed);
    return t->cudnnSetDropoutDescriptor(d, handle, p, states, bytes, seed);
}

static cudnnStatus_t describe(table *t, cudnnHandle_t handle, const rnn_spec *s, const int *lengths, void *states,
                              uint64_t bytes, uint64_t seed, int kept, description *d) {
    static const uint64_t zero = 0; /* of every dtype: what stands behind the end of a sequence */
    const int layers = (int)(s->layers * s->directions), width = (int)(s->directions * s->hidden);
    const int shape[3] = {layers, (int)s->batch, (int)s->hidden};
    const int strides[3] = {(int)(s->batch * s->hidden), (int)s->hidden, 1};
    const int bias = s->biased ? CUDNN_RNN_DOUBLE_BIAS : CUDNN_RNN_NO_BIAS;
    const int way = s->directions == 2 ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL;
    const unsigned padded =
        s->layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED ? CUDNN_RNN_PADDED_IO_DISABLED : CUDNN_RNN_PADDED_IO_ENABLED;
    cudnnStatus_t status = t->cudnnCreateDropoutDescriptor(&d->dropout);
    if (status == CUDNN_STATUS_SUCCESS) status = describe_dropout(t, handle, s, states, bytes, seed, kept, d->dropout);
    if (status == CUDNN_STATUS_SUCCESS) status = t->cudnnCreateRNNDescriptor(&d->rnn);
    if (status == CUDNN_STATUS_SUCCESS)
        status = t->cudnnSetRNNDescriptor_v8(d->rnn, CUDNN_RNN_ALGO_STANDARD, (int)s->cell, bias, way, CUDNN_LINEAR_INPUT,
                                             (int)s->dtype, (int)s->compute, (int)s->math, (int)s->inputs, (int)s->hidden,
                                             (int)s->hidden, (int)s->layers, d->dropout, padded);
    if (status == CUDNN_STATUS_SUCCESS) status = t->cudnnCreateRNNDataDescriptor(&d->x);
    if (status == CUDNN_STATUS_SUCCESS)
        status = t->cudnnSetRNNDataDescriptor(d->x, (int)s->dtype, (int)s->layout, (int)s->steps, (int)s->batch,
                                              (int)s->inputs, lengths, (void *)&zero);
    if (status == CUDNN_STATUS_SUCCESS) status = t->cudnnCreateRNNDataDescriptor(&d->y);
    if (status == CUDNN_STATUS_SUCCESS)
        status = t->cudnnSetRNNDataDescriptor(d->y, (int)s->dtype, (int)s->layout, (int)s->steps, (int)s->batch, width,
                                              lengths, (void *)&zero);
    if (status == CUDNN_STATUS_SUCCESS) status = t->cudnnCreateTensorDescriptor(&d->h);
    if (status == CUDNN_STATUS_SUCCESS)
        status = t->cudnnSetTensorNdDescriptor(d->h, (int)s->dtype, 3, shape, strides);
    return status;
}

static cudnnStatus_t ask_sizes(table *t, cudnnHandle_t handle, const rnn_spec *s, const description *d, size_t *temporary,
                               size_t *reserve) {
    *reserve = 0;
    return t->cudnnGetRNNTempSpaceSizes(handle, d->rnn, s->training ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE,
                                        d->x, temporary, reserve);
}

/* Whether weights lie in their array as `RecurrentWeights` says: first the matrices of all layers, then the biases. */
static cudnnStatus_t ask_weights(table *t, cudnnHandle_t handle, const rnn_spec *s, const description *d, int *good) {
    char *const base = (char *)(uintptr_t)(1 << 20); /* an address to count from, where nothing is read */
    const size_t size = size_of(s), all = (size_t)s->n_weights * size, h = (size_t)s->hidden;
    const int gates = s->cell == CUDNN_LSTM ? 4 : s->cell == CUDNN_GRU ? 3 : 1, n = (int)(s->layers * s->directions);
    size_t bytes = 0, at = 0, bias = 0;
    for (int layer = 0; layer < n; layer++) {
        const size_t width = layer < s->directions ? (size_t)s->inputs : (size_t)s->directions * h;
        bias += (size_t)gates * h * (width + h) * size;
    }
    cudnnTensorDescriptor_t matrix = NULL, vector = NULL;
    cudnnStatus_t status = t->cudnnGetRNNWeightSpaceSize(handle, d->rnn, &bytes);
    *good = bytes == all;
    if (status == CUDNN_STATUS_SUCCESS) status = t->cudnnCreateTensorDescriptor(&matrix);
    if (status == CUDNN_STATUS_SUCCESS) status = t->cudnnCreateTensorDescriptor(&vector);
    for (int layer = 0; *good && layer < n; layer++)
        for (int part = 0; status == CUDNN_STATUS_SUCCESS && *good && part < 2 * gates; part++) {
            const size_t width = part >= gates ? h : layer < s->directions ? (size_t)s->inputs : (size_t)s->directions * h;
            void *matrix_at = NULL, *vector_at = NULL;
            status = t->cudnnGetRNNWeightParams(handle, d->rnn, layer, bytes, base, part, matrix, &matrix_at, vector,
                                                &vector_at);
            *good = matrix_at == base + at && (!s->biased || vector_at == base + bias);
            at += h * width * size;
            bias += h * size;
        }
    if (matrix) t->cudnnDestroyTensorDescriptor(matrix);
    if (vector) t->cudnnDestroyTensorDescriptor(vector);
    return status;
}

int atomr_cudnn_rnn_prepare(atomr_cudnn_rnn *r, atomr_failure *failure) {
    char why[sizeof failure->text];
    table *const t = atomr_cudnn_load(NULL, why, sizeof why);
    if (!t) return atomr_refused(failure, ATOMR_UNSUPPORTED, "%s", why);
    const rnn_spec *const s = &r->spec;
    void *handle = NULL;
    const int code = atomr_device_handle(r->cuda, &atomr_cudnn_of_device, &handle, failure);
    if (code != ATOMR_OK) return code;
    int *const lengths = malloc((size_t)s->batch * sizeof *lengths);
    if (!lengths) return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "no host memory for a recurrent network");
    for (int64_t i = 0; i < s->batch; i++) lengths[i] = (int)s->steps;
    description d = {NULL};
    size_t states = 0, temporary = 0, reserve = 0;
    int good = 1;
    cudnnStatus_t status = drops(s) ? t->cudnnDropoutGetStatesSize(handle, &states) : CUDNN_STATUS_SUCCESS;
    void *const nowhere = (void *)(uintptr_t)(1 << 20);
    if (status == CUDNN_STATUS_SUCCESS) status = describe(t, handle, s, lengths, nowhere, states, 0, 1, &d);
    if (status == CUDNN_STATUS_SUCCESS) status = ask_sizes(t, handle, s, &d, &temporary, &reserve);
    if (status == CUDNN_STATUS_SUCCESS) status = ask_weights(t, handle, s, &d, &good);
    char said[160] = "";
    if (status != CUDNN_STATUS_SUCCESS) t->cudnnGetLastErrorString(said, sizeof said);
    end(t, &d);
    free(lengths);
    r->temporary = temporary;
    r->states = states;
    r->reserve = reserve;
    if (status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000 || status / 1000 == CUDNN_STATUS_BAD_PARAM / 1000)
        return atomr_unsupported(failure, "cudnn", "rnn", "cuDNN %zu refuses the description of a recurrent network, status "
                                 "%d: %.150s", t->cudnnGetVersion(), (int)status, said);
    if (status != CUDNN_STATUS_SUCCESS) return atomr_cudnn_fail(t, status, "describing a recurrent network", failure);
    if (!good)
        return atomr_unsupported(failure, "cudnn", "rnn_weights", "cuDNN %zu has weights of a recurrent network in another "
                                 "order than RecurrentWeights", t->cudnnGetVersion());
    return ATOMR_OK;
}

/* The generator's memory begins at a multiple of 256 bytes. */
static uint64_t states_at(const atomr_cudnn_rnn *r) { return (r->temporary + 255) / 256 * 256; }

uint64_t atomr_cudnn_rnn_workspace(const atomr_cudnn_rnn *r) { return r->states ? states_at(r) + r->states : r->temporary; }

/* A seed of two numbers, all of whose bits depend on both (the finalizer of SplitMix64). */
static uint64_t mixed(uint64_t seed, uint64_t offset) {
    for (int round = 0; round < 2; round++) {
        seed += 0x9e3779b97f4a7c15u;
        seed = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9u;
        seed = (seed ^ seed >> 27) * 0x94d049bb133111ebu;
        seed ^= seed >> 31;
        if (!round) seed ^= offset;
    }
    return seed;
}

static void take_lengths(const rnn_spec *s, const uint64_t *words, int *lengths) {
    const int64_t bits = s->length_bits, each = bits ? 64 / bits : 1;
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    for (int64_t i = 0; i < s->batch; i++)
        lengths[i] = bits ? (int)(words[i / each] >> (i % each * bits) & mask) : (int)s->steps;
}

static void *at(const atomr_call *call, int64_t operand) { return operand < 0 ? NULL : call->pointers[operand]; }

static int clear(const atomr_cudnn_rnn *r, const atomr_call *call, int64_t operand, size_t elements, atomr_failure *failure) {
    const atomr_driver *const driver = atomr_cuda_driver(r->cuda);
    const CUstream stream = atomr_cuda_stream(r->cuda, call->lane);
    if (!stream)
        return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cuda", atomr_cuda_error(r->cuda), "", "the lane has no stream");
    const CUresult result =
        driver->cuMemsetD8Async((CUdeviceptr)(uintptr_t)at(call, operand), 0, elements * size_of(&r->spec), stream);
    if (result == CUDA_SUCCESS) return ATOMR_OK;
    const char *name = "unknown error";
    driver->cuGetErrorName(result, &name);
    return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cuda", result, name, "cuMemsetD8Async");
}

static cudnnStatus_t forward(table *t, cudnnHandle_t handle, const atomr_cudnn_rnn *r, const atomr_call *call,
                             const description *d) {
    const rnn_spec *const s = &r->spec;
    return t->cudnnRNNForward(handle, d->rnn, s->training ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE, NULL, d->x,
                              at(call, s->x), d->y, at(call, s->y), d->h, at(call, s->hx), at(call, s->hy), d->h,
                              at(call, s->cx), at(call, s->cy), (size_t)s->n_weights * size_of(s), at(call, s->weights),
                              r->temporary, call->workspace, r->reserve, at(call, s->reserve));
}

static cudnnStatus_t backward(table *t, cudnnHandle_t handle, const atomr_cudnn_rnn *r, const atomr_call *call,
                              const description *d) {
    const rnn_spec *const s = &r->spec;
    const size_t bytes = (size_t)s->n_weights * size_of(s);
    const cudnnStatus_t status = t->cudnnRNNBackwardData_v8(
        handle, d->rnn, NULL, d->y, at(call, s->y), at(call, s->dy), d->x, at(call, s->dx), d->h, at(call, s->hx),
        at(call, s->dhy), at(call, s->dhx), d->h, at(call, s->cx), at(call, s->dcy), at(call, s->dcx), bytes,
        at(call, s->weights), r->temporary, call->workspace, r->reserve, at(call, s->reserve));
    if (status != CUDNN_STATUS_SUCCESS) return status;
    /* It adds: cuDNN has no other mode. */
    return t->cudnnRNNBackwardWeights_v8(handle, d->rnn, CUDNN_WGRAD_MODE_ADD, NULL, d->x, at(call, s->x), d->h,
                                         at(call, s->hx), d->y, at(call, s->y), bytes, at(call, s->dweights), r->temporary,
                                         call->workspace, r->reserve, at(call, s->reserve));
}

int atomr_cudnn_rnn_run(void *context, const atomr_call *call, atomr_failure *failure) {
    const atomr_cudnn_rnn *const r = context;
    const rnn_spec *const s = &r->spec;
    char why[sizeof failure->text];
    table *const t = atomr_cudnn_load(NULL, why, sizeof why);
    if (!t) return atomr_refused(failure, ATOMR_UNSUPPORTED, "%s", why);
    const uint64_t needed = atomr_cudnn_rnn_workspace(r);
    if (needed > call->workspace_bytes)
        return atomr_refused(failure, ATOMR_INVALID_REQUEST,
                             "the lane has a workspace of %llu bytes, and this recurrent network needs %llu",
                             (unsigned long long)call->workspace_bytes, (unsigned long long)needed);
    const int draws = drops(s) && !s->backward;
    /* Lengths and seeds are copied from memory of this call, which a captured copy would read again later. */
    if (call->lane >= ATOMR_CAPTURE_LANE && (s->length_bits || draws))
        return atomr_refused(failure, ATOMR_UNSUPPORTED, "a recurrent network with lengths or dropout is not captured");
    void *handle = NULL;
    int code = atomr_lane_handle(r->cuda, call->lane, &atomr_cudnn_of_lane, &handle, failure);
    if (code != ATOMR_OK) return code;
    const size_t steps = (size_t)(s->steps * s->batch);
    if (s->backward) code = clear(r, call, s->dweights, (size_t)s->n_weights, failure);
    if (code == ATOMR_OK && s->length_bits && s->layout != CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED) {
        if (s->backward) code = clear(r, call, s->dx, steps * (size_t)s->inputs, failure);
        else code = clear(r, call, s->y, steps * (size_t)(s->directions * s->hidden), failure);
    }
    if (code != ATOMR_OK) return code;
    int *const lengths = malloc((size_t)s->batch * sizeof *lengths);
    if (!lengths) return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "no host memory for a recurrent network");
    take_lengths(s, call->scalars + (draws ? 2 : 0), lengths);
    const uint64_t seed = draws ? mixed(call->scalars[0], call->scalars[1]) : 0;
    description d = {NULL};
    size_t temporary = 0, reserve = 0;
    void *const states = r->states ? (char *)call->workspace + states_at(r) : NULL;
    cudnnStatus_t status = describe(t, handle, s, lengths, states, r->states, seed, !draws, &d);
    if (status == CUDNN_STATUS_SUCCESS && s->length_bits) {
        status = ask_sizes(t, handle, s, &d, &temporary, &reserve);
        if (status == CUDNN_STATUS_SUCCESS && (temporary > r->temporary || reserve > r->reserve))
            code = atomr_refused(failure, ATOMR_UNSUPPORTED, "cuDNN needs more memory for these lengths than for the longest");
    }
    if (status == CUDNN_STATUS_SUCCESS && code == ATOMR_OK)
        status = s->backward ? backward(t, handle, r, call, &d) : forward(t, handle, r, call, &d);
    if (status != CUDNN_STATUS_SUCCESS) code = atomr_cudnn_fail(t, status, "a recurrent network", failure);
    end(t, &d);
    free(lengths);
    return code;
}
