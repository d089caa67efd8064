/* Recurrent networks of the fake cuDNN, in double precision, in the order of the handle's stream.
 *
 * It follows the documented rules: weights lie one after the other, first all matrices and then all biases; sequences have
 * one step at least, and packed ones are sorted; the workspace is as large as was asked for, and is written all over; the
 * gradient by the weights adds, and comes behind that by the data, which uses the reserve up; numbers are drawn from the
 * generator's memory, which is made from a seed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fake_dnn.h"

enum { WORKSPACE = 768, STATES = 512, HEAD = 4, KEPT = 7301, USED = 7302 };

struct cudnnContext {
    CUstream stream;
};

struct cudnnDropoutStruct {
    double p;
    void *states;
    size_t bytes;
};

struct cudnnRNNStruct {
    int cell, biased, directions, dtype, inputs, hidden, layers, padded;
    struct cudnnDropoutStruct dropout;
};

struct cudnnRNNDataStruct {
    int dtype, layout, steps, batch, width;
    int *lengths;
};

extern _Atomic unsigned fake_dnn_descriptors;

#define MAY_FAIL()                                                                                                    \
    do {                                                                                                              \
        const CUresult refusal_ = fake_refusal(__func__);                                                             \
        if (refusal_) return (cudnnStatus_t)refusal_;                                                                 \
    } while (0)

#define MAKE(made)                                                                                                    \
    MAY_FAIL();                                                                                                       \
    *(made) = calloc(1, sizeof **(made));                                                                             \
    fake_dnn_descriptors++;                                                                                           \
    return *(made) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR

#define DESTROY(which)                                                                                                \
    fake_dnn_descriptors--;                                                                                           \
    free(which);                                                                                                      \
    return CUDNN_STATUS_SUCCESS

cudnnStatus_t cudnnCreateDropoutDescriptor(cudnnDropoutDescriptor_t *d) { MAKE(d); }
cudnnStatus_t cudnnDestroyDropoutDescriptor(cudnnDropoutDescriptor_t d) { DESTROY(d); }
cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t *d) { MAKE(d); }
cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t d) { DESTROY(d); }
cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t *d) { MAKE(d); }
cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t d) {
    free(d->lengths);
    DESTROY(d);
}

cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t handle, size_t *bytes) {
    MAY_FAIL();
    (void)handle;
    *bytes = STATES;
    return CUDNN_STATUS_SUCCESS;
}

typedef struct {
    uint64_t seed, *states;
} seeding;

static void seed_states(void *given) {
    const seeding *const s = given;
    for (size_t i = 0; i < STATES / 8; i++) s->states[i] = s->seed * 0x9e3779b97f4a7c15u + i;
}

cudnnStatus_t cudnnRestoreDropoutDescriptor(cudnnDropoutDescriptor_t d, cudnnHandle_t handle, float p, void *states,
                                            size_t bytes, unsigned long long seed) {
    MAY_FAIL();
    (void)handle, (void)seed;
    if (p < 0 || p >= 1 || (p > 0 && bytes < STATES)) return CUDNN_STATUS_BAD_PARAM;
    *d = (struct cudnnDropoutStruct){p, states, bytes};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t d, cudnnHandle_t handle, float p, void *states,
                                        size_t bytes, unsigned long long seed) {
    MAY_FAIL();
    const cudnnStatus_t status = cudnnRestoreDropoutDescriptor(d, handle, p, states, bytes, seed);
    if (status || !states) return status;
    const seeding s = {seed, states};
    return fake_enqueue(handle->stream, seed_states, &s, sizeof s, 0) ? CUDNN_STATUS_EXECUTION_FAILED
                                                                      : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t d, cudnnRNNAlgo_t algorithm, cudnnRNNMode_t cell,
                                       cudnnRNNBiasMode_t bias, cudnnDirectionMode_t way, cudnnRNNInputMode_t input,
                                       cudnnDataType_t dtype, cudnnDataType_t compute, cudnnMathType_t math, int32_t inputs,
                                       int32_t hidden, int32_t projected, int32_t layers, cudnnDropoutDescriptor_t dropout,
                                       uint32_t flags) {
    MAY_FAIL();
    if (algorithm != CUDNN_RNN_ALGO_STANDARD || input != CUDNN_LINEAR_INPUT || projected != hidden || layers < 1)
        return CUDNN_STATUS_NOT_SUPPORTED;
    if (compute != (dtype == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT)) return CUDNN_STATUS_NOT_SUPPORTED;
    const int narrow = dtype == CUDNN_DATA_HALF || dtype == CUDNN_DATA_BFLOAT16;
    if (narrow != (math == CUDNN_TENSOR_OP_MATH)) return CUDNN_STATUS_NOT_SUPPORTED;
    *d = (struct cudnnRNNStruct){cell,   bias == CUDNN_RNN_DOUBLE_BIAS, way == CUDNN_BIDIRECTIONAL ? 2 : 1,
                                 dtype,  inputs,
                                 hidden, layers,
                                 (flags & CUDNN_RNN_PADDED_IO_ENABLED) != 0,
                                 *dropout};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t d, cudnnDataType_t dtype, cudnnRNNDataLayout_t layout,
                                        int steps, int batch, int width, const int lengths[], void *padding) {
    MAY_FAIL();
    if (steps < 1 || batch < 1 || width < 1 || !padding) return CUDNN_STATUS_BAD_PARAM;
    for (int i = 0; i < batch; i++)
        if (lengths[i] < 1 || lengths[i] > steps) return CUDNN_STATUS_BAD_PARAM;
    for (int i = 1; layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED && i < batch; i++)
        if (lengths[i] > lengths[i - 1]) return CUDNN_STATUS_BAD_PARAM;
    free(d->lengths);
    *d = (struct cudnnRNNDataStruct){dtype, layout, steps, batch, width, malloc((size_t)batch * sizeof(int))};
    if (!d->lengths) return CUDNN_STATUS_INTERNAL_ERROR;
    memcpy(d->lengths, lengths, (size_t)batch * sizeof(int));
    return CUDNN_STATUS_SUCCESS;
}

static int gates_of(int cell) { return cell == CUDNN_LSTM ? 4 : cell == CUDNN_GRU ? 3 : 1; }

static int width_of(const struct cudnnRNNStruct *d, int layer) {
    return layer < d->directions ? d->inputs : d->directions * d->hidden;
}

/* The first elements of a layer's matrix or bias of a gate, and the elements in all. */
static size_t place_of(const struct cudnnRNNStruct *d, int layer, int part, int is_bias) {
    const size_t gates = (size_t)gates_of(d->cell), h = (size_t)d->hidden;
    size_t matrices = 0, at = 0;
    for (int i = 0; i < d->layers * d->directions; i++) {
        if (i == layer && !is_bias)
            at = matrices + ((size_t)part < gates ? (size_t)part * (size_t)width_of(d, i)
                                                  : gates * (size_t)width_of(d, i) + ((size_t)part - gates) * h) * h;
        matrices += gates * h * ((size_t)width_of(d, i) + h);
    }
    return is_bias ? matrices + ((size_t)layer * 2 * gates + (size_t)part) * h : at;
}

static size_t weights_of(const struct cudnnRNNStruct *d) {
    return place_of(d, d->biased ? d->layers * d->directions : 0, 0, 1);
}

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t d, size_t *bytes) {
    MAY_FAIL();
    (void)handle;
    *bytes = weights_of(d) * dnn_size_of(d->dtype);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t d, int32_t layer, size_t bytes,
                                      const void *weights, int32_t part, cudnnTensorDescriptor_t matrix, void **matrix_at,
                                      cudnnTensorDescriptor_t bias, void **bias_at) {
    MAY_FAIL();
    (void)handle, (void)matrix, (void)bias;
    const size_t size = dnn_size_of(d->dtype);
    if (bytes < weights_of(d) * size) return CUDNN_STATUS_BAD_PARAM;
    *matrix_at = (char *)(uintptr_t)weights + place_of(d, layer, part, 0) * size;
    *bias_at = d->biased ? (char *)(uintptr_t)weights + place_of(d, layer, part, 1) * size : NULL;
    return CUDNN_STATUS_SUCCESS;
}

/* The reserve has doubles: a head, the input, the factors between layers, the gradient by the weights. */
static size_t kept_of(const struct cudnnRNNStruct *d, const struct cudnnRNNDataStruct *x) {
    return (size_t)x->steps * (size_t)x->batch * (size_t)(d->layers - 1) * (size_t)(d->directions * d->hidden);
}

cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t d, cudnnForwardMode_t mode,
                                        cudnnRNNDataDescriptor_t x, size_t *workspace, size_t *reserve) {
    MAY_FAIL();
    (void)handle;
    *workspace = WORKSPACE;
    *reserve = mode == CUDNN_FWD_MODE_INFERENCE
                   ? 0
                   : 8 * (HEAD + (size_t)x->steps * (size_t)x->batch * (size_t)d->inputs + kept_of(d, x) + weights_of(d));
    return CUDNN_STATUS_SUCCESS;
}

typedef struct {
    struct cudnnRNNStruct d;
    struct cudnnRNNDataStruct x;
    int mode; /* 0: inference, 1: training, 2: gradients */
    const void *in, *hx, *cx, *weights, *dy, *dhy, *dcy;
    void *y, *hy, *cy, *dx, *dhx, *dcx, *dweights, *workspace;
    double *reserve;
} rnn_run;

/* The place of a step of a sequence among those of an array; -1: the sequence has ended. */
static int64_t row_of(const struct cudnnRNNDataStruct *x, int t, int n) {
    if (t >= x->lengths[n]) return -1;
    if (x->layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED) return (int64_t)t * x->batch + n;
    if (x->layout == CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED) return (int64_t)n * x->steps + t;
    int64_t at = n;
    for (int i = 0; i < x->batch; i++) at += x->lengths[i] < t ? x->lengths[i] : t;
    return at;
}

static double *doubles(size_t n) {
    double *const made = calloc(n + 1, sizeof *made);
    if (!made) fake_raise(ERROR_LAUNCH_FAILED);
    return made;
}

static double *widened(const void *from, size_t n, int dtype) {
    double *const made = doubles(n);
    for (size_t i = 0; from && i < n; i++) made[i] = dnn_get((const char *)from + i * dnn_size_of(dtype), dtype);
    return made;
}

static void narrowed(void *to, const double *from, size_t n, int dtype) {
    for (size_t i = 0; to && i < n; i++) dnn_put((char *)to + i * dnn_size_of(dtype), dtype, from[i]);
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* What a step of a sequence made: the gates, the recurrent share of a GRU's new gate, the states before it. */
typedef struct {
    double *gates, *shares, *h, *c;
} tape;

/* One step of a layer: reads x (width), h and c, which it replaces. */
static void step(const rnn_run *r, const double *w, int layer, const double *x, double *h, double *c, tape kept) {
    const int H = r->d.hidden, G = gates_of(r->d.cell), width = width_of(&r->d, layer);
    double *const own = doubles((size_t)(2 * G * H)), *const other = own + G * H;
    memcpy(kept.h, h, (size_t)H * 8);
    memcpy(kept.c, c, (size_t)H * 8);
    for (int g = 0; g < G; g++)
        for (int i = 0; i < H; i++) {
            double a = r->d.biased ? w[place_of(&r->d, layer, g, 1) + (size_t)i] : 0;
            double b = r->d.biased ? w[place_of(&r->d, layer, G + g, 1) + (size_t)i] : 0;
            for (int j = 0; j < width; j++) a += w[place_of(&r->d, layer, g, 0) + (size_t)(i * width + j)] * x[j];
            for (int j = 0; j < H; j++) b += w[place_of(&r->d, layer, G + g, 0) + (size_t)(i * H + j)] * kept.h[j];
            own[g * H + i] = a;
            other[g * H + i] = b;
        }
    for (int i = 0; i < H; i++) {
        double *const k = kept.gates + i;
        if (r->d.cell == CUDNN_LSTM) {
            for (int g = 0; g < 4; g++)
                k[g * H] = g == 2 ? tanh(own[g * H + i] + other[g * H + i]) : sigmoid(own[g * H + i] + other[g * H + i]);
            c[i] = k[H] * c[i] + k[0] * k[2 * H];
            h[i] = k[3 * H] * tanh(c[i]);
        } else if (r->d.cell == CUDNN_GRU) {
            for (int g = 0; g < 2; g++) k[g * H] = sigmoid(own[g * H + i] + other[g * H + i]);
            kept.shares[i] = other[2 * H + i];
            k[2 * H] = tanh(own[2 * H + i] + k[0] * other[2 * H + i]);
            h[i] = (1 - k[H]) * k[2 * H] + k[H] * h[i];
        } else {
            const double a = own[i] + other[i];
            h[i] = k[0] = r->d.cell == CUDNN_RNN_RELU ? fmax(a, 0) : tanh(a);
        }
    }
    free(own);
}

/* The gradient of a step: replaces dh and dc by those of the states before it, and adds to dx and the weights'. */
static void back(const rnn_run *r, const double *w, double *dw, int layer, const double *x, double *dx, double *dh,
                 double *dc, tape kept) {
    const int H = r->d.hidden, G = gates_of(r->d.cell), width = width_of(&r->d, layer);
    double *const own = doubles((size_t)((2 * G + 1) * H)), *const other = own + G * H, *const before = other + G * H;
    for (int i = 0; i < H; i++) {
        const double *const k = kept.gates + i;
        if (r->d.cell == CUDNN_LSTM) {
            const double wide = tanh(k[H] * kept.c[i] + k[0] * k[2 * H]), s = dc[i] + dh[i] * k[3 * H] * (1 - wide * wide);
            own[i] = s * k[2 * H] * k[0] * (1 - k[0]);
            own[H + i] = s * kept.c[i] * k[H] * (1 - k[H]);
            own[2 * H + i] = s * k[0] * (1 - k[2 * H] * k[2 * H]);
            own[3 * H + i] = dh[i] * wide * k[3 * H] * (1 - k[3 * H]);
            dc[i] = s * k[H];
        } else if (r->d.cell == CUDNN_GRU) {
            const double n = dh[i] * (1 - k[H]) * (1 - k[2 * H] * k[2 * H]);
            own[i] = n * kept.shares[i] * k[0] * (1 - k[0]);
            own[H + i] = dh[i] * (kept.h[i] - k[2 * H]) * k[H] * (1 - k[H]);
            own[2 * H + i] = n;
            before[i] = dh[i] * k[H];
        } else {
            own[i] = dh[i] * (r->d.cell == CUDNN_RNN_RELU ? k[0] > 0 : 1 - k[0] * k[0]);
        }
        for (int g = 0; g < G; g++)
            other[g * H + i] = own[g * H + i] * (r->d.cell == CUDNN_GRU && g == 2 ? k[0] : 1);
    }
    for (int g = 0; g < G; g++)
        for (int i = 0; i < H; i++) {
            const double a = own[g * H + i], b = other[g * H + i];
            for (int j = 0; j < width; j++) {
                dx[j] += a * w[place_of(&r->d, layer, g, 0) + (size_t)(i * width + j)];
                dw[place_of(&r->d, layer, g, 0) + (size_t)(i * width + j)] += a * x[j];
            }
            for (int j = 0; j < H; j++) {
                before[j] += b * w[place_of(&r->d, layer, G + g, 0) + (size_t)(i * H + j)];
                dw[place_of(&r->d, layer, G + g, 0) + (size_t)(i * H + j)] += b * kept.h[j];
            }
            if (!r->d.biased) continue;
            dw[place_of(&r->d, layer, g, 1) + (size_t)i] += a;
            dw[place_of(&r->d, layer, G + g, 1) + (size_t)i] += b;
        }
    memcpy(dh, before, (size_t)H * 8);
    free(own);
}

static double drawn(uint64_t state) {
    state = (state ^ state >> 30) * 0xbf58476d1ce4e5b9u;
    state = (state ^ state >> 27) * 0x94d049bb133111ebu;
    return (double)((state ^ state >> 31) >> 11) / 9007199254740992.0;
}

static void compute(void *given) {
    rnn_run *const r = given;
    r->x.lengths = (int *)(r + 1);
    const int T = r->x.steps, N = r->x.batch, D = r->d.directions, H = r->d.hidden, L = r->d.layers, G = gates_of(r->d.cell);
    const int wide = D * H, most = r->d.inputs > wide ? r->d.inputs : wide, dtype = r->d.dtype;
    const size_t rows = (size_t)T * (size_t)N, states = (size_t)(L * D) * (size_t)N * (size_t)H, n_weights = weights_of(&r->d);
    const size_t width = (size_t)most, kept_size = (size_t)((G + 3) * H), row_bytes = dnn_size_of(dtype);
    double *const input = doubles((size_t)(L + 1) * rows * width), *const kept = doubles((size_t)(L * D) * rows * kept_size);
    double *const w = widened(r->weights, n_weights, dtype);
    double *const h = widened(r->hx, states, dtype), *const c = widened(r->cx, states, dtype);
    double *const x = r->reserve ? r->reserve + HEAD : NULL;
    double *const factors = x ? x + rows * (size_t)r->d.inputs : NULL, *const dw = x ? factors + kept_of(&r->d, &r->x) : NULL;
    if (r->workspace) memset(r->workspace, 0xa5, WORKSPACE);
    if (r->mode == 2 && r->reserve[0] != KEPT) fake_raise(ERROR_ILLEGAL_ADDRESS); /* used up, or of no training */
    for (int t = 0; t < T; t++)
        for (int n = 0; n < N; n++) {
            const int64_t from = row_of(&r->x, t, n);
            for (int j = 0; j < r->d.inputs; j++) {
                double *const to = &input[((size_t)(t * N + n)) * width + (size_t)j];
                if (r->mode == 2) *to = x[(size_t)((t * N + n) * r->d.inputs + j)];
                else if (from >= 0) *to = dnn_get((const char *)r->in + (size_t)(from * r->d.inputs + j) * row_bytes, dtype);
                if (r->mode == 1) x[(size_t)((t * N + n) * r->d.inputs + j)] = *to;
            }
        }
#define ROW(base, layer, t, n) ((base) + (((size_t)(layer)*rows) + (size_t)((t)*N + (n))) * width)
#define TAPE(layer, t, n)                                                                                             \
    ((tape){kept + ((size_t)(layer)*rows + (size_t)((t)*N + (n))) * kept_size,                                        \
            kept + ((size_t)(layer)*rows + (size_t)((t)*N + (n))) * kept_size + (size_t)(G * H),                      \
            kept + ((size_t)(layer)*rows + (size_t)((t)*N + (n))) * kept_size + (size_t)((G + 1) * H),                \
            kept + ((size_t)(layer)*rows + (size_t)((t)*N + (n))) * kept_size + (size_t)((G + 2) * H)})
    const double p = r->mode ? r->d.dropout.p : 0;
    for (int l = 0; l < L; l++) {
        for (size_t i = 0; l && r->mode && i < rows * (size_t)wide; i++) {
            double *const factor = &factors[(size_t)(l - 1) * rows * (size_t)wide + i];
            if (r->mode == 1)
                *factor = p == 0 ? 1
                          : drawn(((uint64_t *)r->d.dropout.states)[i % (STATES / 8)] + 0x9e3779b97f4a7c15u * (i + 1) +
                                  (uint64_t)l) < p
                              ? 0
                              : 1 / (1 - p);
            input[(size_t)l * rows * width + i / (size_t)wide * width + i % (size_t)wide] *= *factor;
        }
        for (int way = 0; way < D; way++)
            for (int n = 0; n < N; n++)
                for (int s = 0; s < r->x.lengths[n]; s++) {
                    const int t = way ? r->x.lengths[n] - 1 - s : s, layer = l * D + way;
                    double *const state = h + (size_t)((layer * N + n) * H), *const cell = c + (size_t)((layer * N + n) * H);
                    step(r, w, layer, ROW(input, l, t, n), state, cell, TAPE(layer, t, n));
                    memcpy(ROW(input, l + 1, t, n) + way * H, state, (size_t)H * 8);
                }
    }
    if (r->mode < 2) {
        for (int t = 0; t < T; t++)
            for (int n = 0; n < N; n++) {
                const int64_t to = row_of(&r->x, t, n);
                if (to >= 0) narrowed((char *)r->y + (size_t)(to * wide) * row_bytes, ROW(input, L, t, n), (size_t)wide, dtype);
            }
        narrowed(r->hy, h, states, dtype);
        narrowed(r->cy, c, states, dtype);
        if (r->mode) r->reserve[0] = KEPT;
    } else {
        double *const dh = widened(r->dhy, states, dtype), *const dc = widened(r->dcy, states, dtype);
        double *slopes = doubles(rows * width);
        memset(dw, 0, n_weights * 8);
        for (int t = 0; t < T; t++)
            for (int n = 0; n < N; n++) {
                const int64_t from = row_of(&r->x, t, n);
                for (int j = 0; from >= 0 && j < wide; j++)
                    ROW(slopes, 0, t, n)[j] = dnn_get((const char *)r->dy + (size_t)(from * wide + j) * row_bytes, dtype);
            }
        for (int l = L; l-- > 0;) {
            double *const below = doubles(rows * width);
            for (int way = 0; way < D; way++)
                for (int n = 0; n < N; n++)
                    for (int s = r->x.lengths[n]; s-- > 0;) {
                        const int t = way ? r->x.lengths[n] - 1 - s : s, layer = l * D + way;
                        double *const state = dh + (size_t)((layer * N + n) * H);
                        for (int i = 0; i < H; i++) state[i] += ROW(slopes, 0, t, n)[way * H + i];
                        back(r, w, dw, layer, ROW(input, l, t, n), ROW(below, 0, t, n), state,
                             dc + (size_t)((layer * N + n) * H), TAPE(layer, t, n));
                    }
            for (size_t i = 0; l && i < rows * (size_t)wide; i++)
                below[i / (size_t)wide * width + i % (size_t)wide] *= factors[(size_t)(l - 1) * rows * (size_t)wide + i];
            free(slopes);
            slopes = below;
        }
        for (int t = 0; t < T; t++)
            for (int n = 0; n < N; n++) {
                const int64_t to = row_of(&r->x, t, n);
                if (to >= 0)
                    narrowed((char *)r->dx + (size_t)(to * r->d.inputs) * row_bytes, ROW(slopes, 0, t, n),
                             (size_t)r->d.inputs, dtype);
            }
        narrowed(r->dhx, dh, states, dtype);
        narrowed(r->dcx, dc, states, dtype);
        free(slopes);
        free(dh);
        free(dc);
        r->reserve[0] = USED;
    }
    free(input);
    free(kept);
    free(w);
    free(h);
    free(c);
}

static void add_weights(void *given) {
    rnn_run *const r = given;
    const size_t n = weights_of(&r->d), size = dnn_size_of(r->d.dtype);
    const double *const from =
        r->reserve + HEAD + (size_t)r->x.steps * (size_t)r->x.batch * (size_t)r->d.inputs + kept_of(&r->d, &r->x);
    if (r->reserve[0] != USED) fake_raise(ERROR_ILLEGAL_ADDRESS); /* not behind the gradient by the data */
    for (size_t i = 0; i < n; i++) {
        char *const to = (char *)r->dweights + i * size;
        dnn_put(to, r->d.dtype, dnn_get(to, r->d.dtype) + from[i]);
    }
}

static cudnnStatus_t enqueue(cudnnHandle_t handle, void (*run)(void *), cudnnRNNDescriptor_t d, cudnnRNNDataDescriptor_t x,
                             size_t n_weights, size_t workspace, size_t reserve, rnn_run r) {
    size_t needed = 0, kept = 0;
    cudnnGetRNNTempSpaceSizes(handle, d, r.mode ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE, x, &needed, &kept);
    if (n_weights != weights_of(d) * dnn_size_of(d->dtype) || workspace < needed || reserve < kept || x->dtype != d->dtype ||
        d->padded != (x->layout != CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED) || !r.workspace || (r.mode && !r.reserve))
        return CUDNN_STATUS_BAD_PARAM;
    r.d = *d;
    r.x = *x;
    /* Lengths lie behind the run: a graph runs it as often as it is launched. */
    const size_t bytes = (size_t)x->batch * sizeof(int);
    char *const whole = malloc(sizeof r + bytes);
    if (!whole) return CUDNN_STATUS_INTERNAL_ERROR;
    memcpy(whole, &r, sizeof r);
    memcpy(whole + sizeof r, x->lengths, bytes);
    const CUresult result = fake_enqueue(handle->stream, run, whole, sizeof r + bytes, 0);
    free(whole);
    return result ? CUDNN_STATUS_EXECUTION_FAILED : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t d, cudnnForwardMode_t mode, const int32_t lengths[],
                              cudnnRNNDataDescriptor_t tx, const void *x, cudnnRNNDataDescriptor_t ty, void *y,
                              cudnnTensorDescriptor_t th, const void *hx, void *hy, cudnnTensorDescriptor_t tc,
                              const void *cx, void *cy, size_t n_weights, const void *weights, size_t workspace_bytes,
                              void *workspace, size_t reserve_bytes, void *reserve) {
    MAY_FAIL();
    (void)th, (void)tc;
    if (lengths || ty->width != d->directions * d->hidden || tx->width != d->inputs) return CUDNN_STATUS_BAD_PARAM;
    return enqueue(handle, compute, d, tx, n_weights, workspace_bytes, reserve_bytes,
                   (rnn_run){.mode = mode == CUDNN_FWD_MODE_TRAINING, .in = x, .hx = hx, .cx = cx, .weights = weights, .y = y,
                             .hy = hy, .cy = cy, .workspace = workspace, .reserve = reserve});
}

cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t d, const int32_t lengths[],
                                      cudnnRNNDataDescriptor_t ty, const void *y, const void *dy, cudnnRNNDataDescriptor_t tx,
                                      void *dx, cudnnTensorDescriptor_t th, const void *hx, const void *dhy, void *dhx,
                                      cudnnTensorDescriptor_t tc, const void *cx, const void *dcy, void *dcx,
                                      size_t n_weights, const void *weights, size_t workspace_bytes, void *workspace,
                                      size_t reserve_bytes, void *reserve) {
    MAY_FAIL();
    (void)th, (void)tc;
    if (lengths || !y || ty->width != d->directions * d->hidden) return CUDNN_STATUS_BAD_PARAM;
    return enqueue(handle, compute, d, tx, n_weights, workspace_bytes, reserve_bytes,
                   (rnn_run){.mode = 2, .hx = hx, .cx = cx, .weights = weights, .dy = dy, .dhy = dhy, .dcy = dcy, .dx = dx,
                             .dhx = dhx, .dcx = dcx, .workspace = workspace, .reserve = reserve});
}

cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t d, cudnnWgradMode_t mode,
                                         const int32_t lengths[], cudnnRNNDataDescriptor_t tx, const void *x,
                                         cudnnTensorDescriptor_t th, const void *hx, cudnnRNNDataDescriptor_t ty,
                                         const void *y, size_t n_weights, void *dweights, size_t workspace_bytes,
                                         void *workspace, size_t reserve_bytes, void *reserve) {
    MAY_FAIL();
    (void)th, (void)hx, (void)ty;
    if (mode != CUDNN_WGRAD_MODE_ADD || lengths || !x || !y) return CUDNN_STATUS_NOT_SUPPORTED;
    return enqueue(handle, add_weights, d, tx, n_weights, workspace_bytes, reserve_bytes,
                   (rnn_run){.mode = 2, .dweights = dweights, .workspace = workspace, .reserve = reserve});
}
