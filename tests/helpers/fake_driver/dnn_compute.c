/* Graphs of the fake cuDNN, a node after the other, in double precision.  Intermediate results are rounded to their
 * types, as they would be in memory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fake_dnn.h"
#include "fake_floats.h"

size_t dnn_size_of(int dtype) {
    switch (dtype) {
    case CUDNN_DATA_DOUBLE:
    case CUDNN_DATA_INT64: return 8;
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_INT32: return 4;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16: return 2;
    default: return 1;
    }
}

/* The magnitude of a float8's lower seven bits; beyond the largest number it is NaN. */
static double float8_of(int code, int dtype) {
    const int bits = dtype == CUDNN_DATA_FP8_E4M3 ? 3 : 2, bias = dtype == CUDNN_DATA_FP8_E4M3 ? 7 : 15;
    const int exponent = code >> bits, mantissa = code & ((1 << bits) - 1);
    if (code > (dtype == CUDNN_DATA_FP8_E4M3 ? 0x7e : 0x7b)) return NAN;
    return exponent ? ldexp(1 + ldexp(mantissa, -bits), exponent - bias) : ldexp(mantissa, 1 - bias - bits);
}

/* The nearest float8, of two the even one; what is too large is the largest. */
static uint8_t float8_from(double x, int dtype) {
    const int most = dtype == CUDNN_DATA_FP8_E4M3 ? 0x7e : 0x7b;
    int best = 0;
    if (x != x) return 0x7f;
    for (int code = 1; code <= most; code++) {
        const double own = fabs(float8_of(code, dtype) - fabs(x)), other = fabs(float8_of(best, dtype) - fabs(x));
        if (own < other || (own == other && !(code & 1))) best = code;
    }
    return (uint8_t)(best | (signbit(x) ? 0x80 : 0));
}

double dnn_get(const void *p, int dtype) {
    switch (dtype) {
    case CUDNN_DATA_DOUBLE: return *(const double *)p;
    case CUDNN_DATA_FLOAT: return *(const float *)p;
    case CUDNN_DATA_HALF: return half_float(*(const uint16_t *)p);
    case CUDNN_DATA_BFLOAT16: return from_bits((uint32_t)*(const uint16_t *)p << 16);
    case CUDNN_DATA_INT32: return *(const int32_t *)p;
    case CUDNN_DATA_INT64: return (double)*(const int64_t *)p;
    case CUDNN_DATA_INT8: return *(const int8_t *)p;
    case CUDNN_DATA_FP8_E4M3:
    case CUDNN_DATA_FP8_E5M2: {
        const uint8_t code = *(const uint8_t *)p;
        return code & 0x80 ? -float8_of(code & 0x7f, dtype) : float8_of(code, dtype);
    }
    default: return *(const uint8_t *)p;
    }
}

void dnn_put(void *p, int dtype, double x) {
    switch (dtype) {
    case CUDNN_DATA_DOUBLE: *(double *)p = x; return;
    case CUDNN_DATA_FLOAT: *(float *)p = (float)x; return;
    case CUDNN_DATA_HALF: *(uint16_t *)p = float_half((float)x); return;
    case CUDNN_DATA_BFLOAT16: *(uint16_t *)p = float_bfloat((float)x); return;
    case CUDNN_DATA_INT32: *(int32_t *)p = (int32_t)x; return;
    case CUDNN_DATA_INT64: *(int64_t *)p = (int64_t)x; return;
    case CUDNN_DATA_INT8: *(int8_t *)p = (int8_t)fmax(-128, fmin(127, nearbyint(x))); return;
    case CUDNN_DATA_FP8_E4M3:
    case CUDNN_DATA_FP8_E5M2: *(uint8_t *)p = float8_from(x, dtype); return;
    default: *(uint8_t *)p = (uint8_t)(x != 0); return;
    }
}

/* The index of element `i` in C order. */
static void index_of(const dnn_tensor *t, int64_t i, int64_t *index) {
    for (int64_t axis = t->rank; axis-- > 0; i /= t->shape[axis]) index[axis] = i % t->shape[axis];
}

/* Where a tensor has the element that goes with one of another tensor: extents of 1 are repeated, and axis 1
 * of four by groups. */
static int64_t place(const dnn_tensor *t, const dnn_tensor *of, const int64_t *index) {
    int64_t at = 0;
    for (int64_t axis = 0; axis < t->rank; axis++) {
        int64_t own = index[axis];
        if (t->shape[axis] == 1) own = 0;
        else if (axis == 1 && t->rank == 4 && t->shape[1] != of->shape[1]) own = own * t->shape[1] / of->shape[1];
        at = at * t->shape[axis] + own;
    }
    return at;
}

static int64_t offset(const dnn_tensor *t, int64_t i) {
    int64_t index[DNN_RANK], at = 0;
    index_of(t, i, index);
    for (int64_t axis = 0; axis < t->rank; axis++) at += index[axis] * t->strides[axis];
    return at;
}

typedef struct {
    const dnn_run *run;
    const dnn_graph *g;
    double *values[DNN_TENSORS]; /* in C order */
} work;

/* The place of an element in memory; -1: a packed sequence has ended before it. */
static int64_t element(const work *w, const dnn_tensor *t, int64_t i) {
    if (t->ragged < 0) return offset(t, i);
    int64_t index[DNN_RANK];
    index_of(t, i, index);
    const int32_t *const begins = w->run->pointers[t->ragged];
    const int64_t token = t->strides[3] == 1 ? 2 : 3, batch = index[0];
    if (index[token] * t->strides[token] >= begins[batch + 1] - begins[batch]) return -1;
    index[0] = 0;
    int64_t at = begins[batch];
    for (int64_t axis = 1; axis < t->rank; axis++) at += index[axis] * t->strides[axis];
    return at;
}

static int port_tensor(const dnn_node *n, int port) {
    for (int i = 0; i < n->n_ports; i++)
        if (n->ports[i] == port) return n->port_tensors[i];
    return -1;
}

const dnn_tensor *dnn_at(const dnn_graph *g, const dnn_node *n, int port) {
    const int at = port_tensor(n, port);
    return at < 0 ? NULL : &g->tensors[at];
}

/* Whether a node writes the tensor at a port. */
static bool is_written(int port) {
    static const int written[] = {
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
        CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_ATTR_OPERATION_REDUCTION_YDESC,
        CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC,
        CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC,
        CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC,
        CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC,
        CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC,
        CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, CUDNN_ATTR_OPERATION_RESHAPE_YDESC,
        CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_YDESC, CUDNN_ATTR_OPERATION_RNG_YDESC};
    for (unsigned i = 0; i < sizeof written / sizeof *written; i++)
        if (written[i] == port) return true;
    return false;
}

static double *value_of(work *w, const dnn_node *n, int port) {
    const int at = port_tensor(n, port);
    return at < 0 ? NULL : w->values[at];
}

static double rounded(const work *w, const dnn_tensor *t, double x) {
    return w->run->rounds && t->dtype == CUDNN_DATA_FLOAT ? tensor_float((float)x) : x;
}

/* Convolutions: for each element of dy, each place in the filter, each channel of the group. */
static void convolution(work *w, const dnn_node *n) {
    const int forward = n->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
    const int data = n->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
    const int px = forward ? CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X
                   : data  ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX
                           : CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X;
    const int pw = forward ? CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W
                   : data  ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W
                           : CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW;
    const int py = forward ? CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y
                   : data  ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY
                           : CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY;
    const dnn_tensor *const tx = dnn_at(w->g, n, px), *const tw = dnn_at(w->g, n, pw), *const ty = dnn_at(w->g, n, py);
    double *const x = value_of(w, n, px), *const f = value_of(w, n, pw), *const y = value_of(w, n, py);
    double *const into = forward ? y : data ? x : f;
    const dnn_tensor *const made = forward ? ty : data ? tx : tw;
    double *const sums = calloc((size_t)made->total, sizeof *sums);
    if (!sums) fake_raise(ERROR_LAUNCH_FAILED);
    const int64_t channels = tw->shape[1], groups = tx->shape[1] / channels, filters = ty->shape[1] / groups;
    int64_t window = 1;
    for (int64_t a = 2; a < tw->rank; a++) window *= tw->shape[a];
    for (int64_t i = 0; i < ty->total; i++) {
        int64_t at[DNN_RANK];
        index_of(ty, i, at);
        const int64_t group = at[1] / filters;
        for (int64_t k = 0; k < window; k++) {
            int64_t inside = 1, pixel = 0, rest = k, k_at[DNN_RANK];
            for (int64_t a = tw->rank; a-- > 2; rest /= tw->shape[a]) k_at[a] = rest % tw->shape[a];
            for (int64_t a = 2; a < tw->rank; a++) {
                const int64_t p = at[a] * n->stride[a - 2] + k_at[a] * n->dilation[a - 2] - n->before[a - 2];
                inside = inside && p >= 0 && p < tx->shape[a];
                pixel = pixel * tx->shape[a] + p;
            }
            if (!inside) continue;
            const int64_t image = tx->total / tx->shape[0] / tx->shape[1];
            for (int64_t c = 0; c < channels; c++) {
                const int64_t ix = (at[0] * tx->shape[1] + group * channels + c) * image + pixel;
                const int64_t iw = (at[1] * channels + c) * window + k;
                if (forward) sums[i] += rounded(w, tx, x[ix]) * rounded(w, tw, f[iw]);
                else if (data) sums[ix] += rounded(w, ty, y[i]) * rounded(w, tw, f[iw]);
                else sums[iw] += rounded(w, tx, x[ix]) * rounded(w, ty, y[i]);
            }
        }
    }
    for (int64_t i = 0; i < made->total; i++) into[i] = n->alpha * sums[i] + (n->beta != 0 ? n->beta * into[i] : 0);
    free(sums);
}

static double sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }

static double apply(int mode, double x, double b, double t, double number) {
    const double c = 0.7978845608028654, u = c * (x + 0.044715 * x * x * x);
    switch (mode) {
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_ADD_SQUARE: return x + b * b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_MAX: return fmax(x, b);
    case CUDNN_POINTWISE_MIN: return fmin(x, b);
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_POW: return pow(x, b);
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_ABS: return fabs(x);
    case CUDNN_POINTWISE_CEIL: return ceil(x);
    case CUDNN_POINTWISE_COS: return cos(x);
    case CUDNN_POINTWISE_EXP: return exp(x);
    case CUDNN_POINTWISE_FLOOR: return floor(x);
    case CUDNN_POINTWISE_LOG: return log(x);
    case CUDNN_POINTWISE_NEG: return -x;
    case CUDNN_POINTWISE_RSQRT: return 1 / sqrt(x);
    case CUDNN_POINTWISE_SIN: return sin(x);
    case CUDNN_POINTWISE_SQRT: return sqrt(x);
    case CUDNN_POINTWISE_TAN: return tan(x);
    case CUDNN_POINTWISE_ERF: return erf(x);
    case CUDNN_POINTWISE_IDENTITY: return x;
    case CUDNN_POINTWISE_RECIPROCAL: return 1 / x;
    case CUDNN_POINTWISE_RELU_FWD: return x > 0 || x != x ? x : 0;
    case CUDNN_POINTWISE_TANH_FWD: return tanh(x);
    case CUDNN_POINTWISE_SIGMOID_FWD: return sigmoid(x);
    case CUDNN_POINTWISE_ELU_FWD: return x > 0 ? x : number * expm1(x);
    case CUDNN_POINTWISE_GELU_FWD: return 0.5 * x * (1 + erf(x * M_SQRT1_2));
    case CUDNN_POINTWISE_SOFTPLUS_FWD: return (fmax(number * x, 0) + log1p(exp(-fabs(number * x)))) / number;
    case CUDNN_POINTWISE_SWISH_FWD: return x * sigmoid(number * x);
    case CUDNN_POINTWISE_GELU_APPROX_TANH_FWD: return 0.5 * x * (1 + tanh(u));
    case CUDNN_POINTWISE_RELU_BWD: return x > 0;
    case CUDNN_POINTWISE_TANH_BWD: return 1 - tanh(x) * tanh(x);
    case CUDNN_POINTWISE_SIGMOID_BWD: return sigmoid(x) * sigmoid(-x);
    case CUDNN_POINTWISE_ELU_BWD: return x > 0 ? 1 : number * exp(x);
    case CUDNN_POINTWISE_GELU_BWD:
        return 0.5 * (1 + erf(x * M_SQRT1_2)) + x * exp(-0.5 * x * x) / 2.5066282746310002;
    case CUDNN_POINTWISE_SOFTPLUS_BWD: return sigmoid(number * x);
    case CUDNN_POINTWISE_SWISH_BWD: return sigmoid(number * x) * (1 + number * x * sigmoid(-number * x));
    case CUDNN_POINTWISE_GELU_APPROX_TANH_BWD:
        return 0.5 * (1 + tanh(u)) + 0.5 * x * (1 - tanh(u) * tanh(u)) * c * (1 + 3 * 0.044715 * x * x);
    case CUDNN_POINTWISE_CMP_EQ: return x == b;
    case CUDNN_POINTWISE_CMP_NEQ: return x != b;
    case CUDNN_POINTWISE_CMP_GT: return x > b;
    case CUDNN_POINTWISE_CMP_GE: return x >= b;
    case CUDNN_POINTWISE_CMP_LT: return x < b;
    case CUDNN_POINTWISE_CMP_LE: return x <= b;
    case CUDNN_POINTWISE_LOGICAL_AND: return x != 0 && b != 0;
    case CUDNN_POINTWISE_LOGICAL_OR: return x != 0 || b != 0;
    case CUDNN_POINTWISE_LOGICAL_NOT: return x == 0;
    case CUDNN_POINTWISE_BINARY_SELECT: return t != 0 ? x : b;
    default: fake_raise(ERROR_ILLEGAL_ADDRESS);
    }
}

static void pointwise(work *w, const dnn_node *n) {
    const int px = CUDNN_ATTR_OPERATION_POINTWISE_XDESC, pb = CUDNN_ATTR_OPERATION_POINTWISE_BDESC;
    const int pt = CUDNN_ATTR_OPERATION_POINTWISE_TDESC, pdy = CUDNN_ATTR_OPERATION_POINTWISE_DYDESC;
    const int backward = port_tensor(n, pdy) >= 0;
    const int py = backward ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC : CUDNN_ATTR_OPERATION_POINTWISE_YDESC;
    const dnn_tensor *const to = dnn_at(w->g, n, py), *const tx = dnn_at(w->g, n, px), *const tb = dnn_at(w->g, n, pb);
    const dnn_tensor *const tt = dnn_at(w->g, n, pt), *const td = dnn_at(w->g, n, pdy);
    const double *const x = value_of(w, n, px), *const b = value_of(w, n, pb), *const t = value_of(w, n, pt);
    const double *const dy = value_of(w, n, pdy);
    double *const y = value_of(w, n, py);
    for (int64_t i = 0; i < to->total; i++) {
        int64_t at[DNN_RANK];
        index_of(to, i, at);
        if (n->mode == CUDNN_POINTWISE_GEN_INDEX) {
            y[i] = (double)at[n->axis];
            continue;
        }
        const double made = apply(n->mode, x[place(tx, to, at)], b ? b[place(tb, to, at)] : 0,
                                  t ? t[place(tt, to, at)] : 0, n->number);
        y[i] = backward ? made * dy[place(td, to, at)] : made;
    }
}

/* Of a matmul, which on an H200 rounds float32 in memory to TF32, though no note of its engines says so. */
static double factor(const work *w, const dnn_tensor *t, double x) {
    return t->dtype == CUDNN_DATA_FLOAT && !t->is_virtual ? tensor_float((float)x) : rounded(w, t, x);
}

static void matmul(work *w, const dnn_node *n) {
    const int pa = CUDNN_ATTR_OPERATION_MATMUL_ADESC, pb = CUDNN_ATTR_OPERATION_MATMUL_BDESC;
    const int pc = CUDNN_ATTR_OPERATION_MATMUL_CDESC;
    const dnn_tensor *const ta = dnn_at(w->g, n, pa), *const tb = dnn_at(w->g, n, pb), *const tc = dnn_at(w->g, n, pc);
    const double *const a = value_of(w, n, pa), *const b = value_of(w, n, pb);
    double *const c = value_of(w, n, pc);
    const int64_t last = tc->rank - 1, inner = ta->shape[last];
    const double *const rows = value_of(w, n, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC);
    const double *const columns = value_of(w, n, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC);
    const double *const sums = value_of(w, n, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC);
    for (int64_t i = 0; i < tc->total; i++) {
        int64_t at[DNN_RANK], left[DNN_RANK], right[DNN_RANK];
        index_of(tc, i, at);
        memcpy(left, at, sizeof at);
        memcpy(right, at, sizeof at);
        double sum = 0;
        /* Outside is the padding value, which is 0. */
        if ((rows && at[last - 1] >= rows[at[0]]) || (columns && at[last] >= columns[at[0]])) {
            c[i] = 0;
            continue;
        }
        for (int64_t k = 0; k < inner && (!sums || k < sums[at[0]]); k++) {
            left[last] = right[last - 1] = k;
            sum += factor(w, ta, a[place(ta, tc, left)]) * factor(w, tb, b[place(tb, tc, right)]);
        }
        c[i] = sum;
    }
}

static void reduction(work *w, const dnn_node *n) {
    const int px = CUDNN_ATTR_OPERATION_REDUCTION_XDESC, py = CUDNN_ATTR_OPERATION_REDUCTION_YDESC;
    const dnn_tensor *const tx = dnn_at(w->g, n, px), *const ty = dnn_at(w->g, n, py);
    const double *const x = value_of(w, n, px);
    double *const y = value_of(w, n, py);
    const int mode = n->mode, most = mode == CUDNN_REDUCE_TENSOR_MAX, least = mode == CUDNN_REDUCE_TENSOR_MIN;
    for (int64_t i = 0; i < ty->total; i++)
        y[i] = most ? -INFINITY : least ? INFINITY : mode == CUDNN_REDUCE_TENSOR_MUL ? 1 : 0;
    for (int64_t i = 0; i < tx->total; i++) {
        int64_t at[DNN_RANK];
        index_of(tx, i, at);
        double *const to = &y[place(ty, tx, at)];
        if (most) *to = fmax(*to, x[i]);
        else if (least) *to = fmin(*to, x[i]);
        else if (mode == CUDNN_REDUCE_TENSOR_MUL) *to *= x[i];
        else if (mode == CUDNN_REDUCE_TENSOR_AMAX) *to = fmax(*to, fabs(x[i]));
        else if (mode == CUDNN_REDUCE_TENSOR_NORM1) *to += fabs(x[i]);
        else if (mode == CUDNN_REDUCE_TENSOR_NORM2) *to += x[i] * x[i];
        else *to += x[i];
    }
    for (int64_t i = 0; i < ty->total; i++) {
        if (mode == CUDNN_REDUCE_TENSOR_NORM2) y[i] = sqrt(y[i]);
        if (mode == CUDNN_REDUCE_TENSOR_AVG) y[i] /= (double)(tx->total / ty->total);
    }
}

/* Pooling, both ways: for each result, each place in its window. */
static void resample(work *w, const dnn_node *n) {
    const int forward = n->kind == CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR;
    const int px = forward ? CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC : CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC;
    const int py = forward ? CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC : CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC;
    const int pi = forward ? CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC : CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC;
    const dnn_tensor *const tx = dnn_at(w->g, n, px), *const ty = dnn_at(w->g, n, py);
    double *const x = value_of(w, n, px), *const y = value_of(w, n, py), *const index = value_of(w, n, pi);
    int64_t window = 1, image = tx->total / tx->shape[0] / tx->shape[1];
    for (int64_t a = 2; a < tx->rank; a++) window *= n->window[a - 2];
    if (!forward) memset(x, 0, (size_t)tx->total * sizeof *x);
    for (int64_t i = 0; i < ty->total; i++) {
        int64_t at[DNN_RANK], pixels[512], n_inside = 0, first = (i / (ty->total / ty->shape[0] / ty->shape[1])) * image;
        index_of(ty, i, at);
        if (window > 512) fake_raise(ERROR_LAUNCH_FAILED);
        for (int64_t k = 0; k < window; k++) {
            int64_t inside = 1, pixel = 0, rest = k, k_at[DNN_RANK];
            for (int64_t a = tx->rank; a-- > 2; rest /= n->window[a - 2]) k_at[a] = rest % n->window[a - 2];
            for (int64_t a = 2; a < tx->rank; a++) {
                const int64_t p = at[a] * n->stride[a - 2] + k_at[a] - n->before[a - 2];
                inside = inside && p >= 0 && p < tx->shape[a];
                pixel = pixel * tx->shape[a] + p;
            }
            pixels[k] = inside ? first + pixel : -1;
            n_inside += inside;
        }
        const double count = (double)(n->mode == CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING ? n_inside : window);
        if (n->mode == CUDNN_RESAMPLE_MAXPOOL && forward) y[i] = -INFINITY;
        else if (forward) y[i] = 0;
        for (int64_t k = 0; k < window; k++) {
            if (pixels[k] < 0) continue;
            if (n->mode != CUDNN_RESAMPLE_MAXPOOL) {
                if (forward) y[i] += x[pixels[k]] / count;
                else x[pixels[k]] += y[i] / count;
            } else if (!forward) {
                x[pixels[k]] += (int64_t)index[i] == k ? y[i] : 0;
            } else if (x[pixels[k]] > y[i] || (x[pixels[k]] != x[pixels[k]] && y[i] == y[i])) {
                y[i] = x[pixels[k]];
                if (index) index[i] = (double)k;
            }
        }
    }
}

/* Whether a norm's statistics are over an axis. */
static int summed(const dnn_node *n, const dnn_tensor *x, const dnn_tensor *scale, int64_t axis) {
    if (n->mode == CUDNN_BATCH_NORM) return axis != 1;
    if (n->mode == CUDNN_INSTANCE_NORM) return axis > 1;
    return axis > 0 && scale->shape[axis] == x->shape[axis];
}

/* A tensor with the shape of a norm's statistics. */
static dnn_tensor of_statistics(const dnn_node *n, const dnn_tensor *x, const dnn_tensor *scale) {
    dnn_tensor t = *x;
    t.total = 1;
    for (int64_t axis = 0; axis < x->rank; axis++) {
        if (summed(n, x, scale, axis)) t.shape[axis] = 1;
        t.total *= t.shape[axis];
    }
    return t;
}

#define NORM(name) CUDNN_ATTR_OPERATION_NORM_FWD_##name
#define BACK(name) CUDNN_ATTR_OPERATION_NORM_BWD_##name

static void norm_forward(work *w, const dnn_node *n) {
    const dnn_tensor *const tx = dnn_at(w->g, n, NORM(XDESC)), *const ts = dnn_at(w->g, n, NORM(SCALE_DESC));
    const dnn_tensor *const tb = dnn_at(w->g, n, NORM(BIAS_DESC));
    const dnn_tensor stats = of_statistics(n, tx, ts);
    double *const mean = calloc((size_t)stats.total, 8), *const square = calloc((size_t)stats.total, 8);
    if (!mean || !square) fake_raise(ERROR_LAUNCH_FAILED);
    const double *const x = value_of(w, n, NORM(XDESC)), *const s = value_of(w, n, NORM(SCALE_DESC));
    const double *const b = value_of(w, n, NORM(BIAS_DESC)), *const e = value_of(w, n, NORM(EPSILON_DESC));
    double *const y = value_of(w, n, NORM(YDESC));
    const double count = (double)(tx->total / stats.total);
    int64_t at[DNN_RANK];
    for (int64_t i = 0; i < tx->total; i++) {
        index_of(tx, i, at);
        mean[place(&stats, tx, at)] += n->mode == CUDNN_RMS_NORM ? 0 : x[i] / count;
    }
    for (int64_t i = 0; i < tx->total; i++) {
        index_of(tx, i, at);
        const int64_t p = place(&stats, tx, at);
        square[p] += (x[i] - mean[p]) * (x[i] - mean[p]) / count;
    }
    double *const mean_out = value_of(w, n, NORM(MEAN_DESC)), *const inverse = value_of(w, n, NORM(INV_VARIANCE_DESC));
    double *const rm = value_of(w, n, NORM(OUTPUT_RUNNING_MEAN_DESC)), *const rv = value_of(w, n, NORM(OUTPUT_RUNNING_VAR_DESC));
    const double *const rm_in = value_of(w, n, NORM(INPUT_RUNNING_MEAN_DESC));
    const double *const rv_in = value_of(w, n, NORM(INPUT_RUNNING_VAR_DESC));
    const double *const momentum = value_of(w, n, NORM(EXP_AVG_FACTOR_DESC));
    for (int64_t p = 0; p < stats.total; p++) {
        if (mean_out) mean_out[p] = mean[p];
        if (inverse) inverse[p] = 1 / sqrt(square[p] + e[0]);
        if (!rm || !rv || !momentum) continue;
        rm[p] = (1 - momentum[0]) * rm_in[p] + momentum[0] * mean[p];
        rv[p] = (1 - momentum[0]) * rv_in[p] + momentum[0] * square[p] * count / fmax(count - 1, 1);
    }
    for (int64_t i = 0; i < tx->total; i++) {
        index_of(tx, i, at);
        const int64_t p = place(&stats, tx, at);
        y[i] = (x[i] - mean[p]) / sqrt(square[p] + e[0]) * s[place(ts, tx, at)] + (b ? b[place(tb, tx, at)] : 0);
    }
    free(mean);
    free(square);
}

static void norm_backward(work *w, const dnn_node *n) {
    const dnn_tensor *const tx = dnn_at(w->g, n, BACK(XDESC)), *const ts = dnn_at(w->g, n, BACK(SCALE_DESC));
    const dnn_tensor stats = of_statistics(n, tx, ts);
    double *const plain = calloc((size_t)stats.total, 8), *const along = calloc((size_t)stats.total, 8);
    if (!plain || !along) fake_raise(ERROR_LAUNCH_FAILED);
    const double *const x = value_of(w, n, BACK(XDESC)), *const dy = value_of(w, n, BACK(DYDESC));
    const double *const s = value_of(w, n, BACK(SCALE_DESC)), *const mean = value_of(w, n, BACK(MEAN_DESC));
    const double *const inverse = value_of(w, n, BACK(INV_VARIANCE_DESC));
    double *const dx = value_of(w, n, BACK(DXDESC)), *const ds = value_of(w, n, BACK(DSCALE_DESC));
    double *const db = value_of(w, n, BACK(DBIAS_DESC));
    const double count = (double)(tx->total / stats.total);
    int64_t at[DNN_RANK];
    if (ds) memset(ds, 0, (size_t)ts->total * 8);
    if (db) memset(db, 0, (size_t)ts->total * 8);
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < tx->total; i++) {
            index_of(tx, i, at);
            const int64_t p = place(&stats, tx, at), q = place(ts, tx, at);
            const double unit = (x[i] - (mean ? mean[p] : 0)) * inverse[p], slope = dy[i] * s[q];
            if (pass) {
                dx[i] = inverse[p] * (slope - unit * along[p] - (n->mode == CUDNN_RMS_NORM ? 0 : plain[p]));
                continue;
            }
            plain[p] += slope / count;
            along[p] += slope * unit / count;
            if (ds) ds[q] += dy[i] * unit;
            if (db) db[q] += dy[i];
        }
    free(plain);
    free(along);
}

/* The elements of x as they lie in memory, read by the strides of y. */
static void reshape(work *w, const dnn_node *n) {
    const int px = CUDNN_ATTR_OPERATION_RESHAPE_XDESC, py = CUDNN_ATTR_OPERATION_RESHAPE_YDESC;
    const dnn_tensor *const tx = dnn_at(w->g, n, px), *const ty = dnn_at(w->g, n, py);
    const double *const x = value_of(w, n, px);
    double *const y = value_of(w, n, py);
    int64_t reach = 1;
    for (int64_t axis = 0; axis < tx->rank; axis++) reach += (tx->shape[axis] - 1) * tx->strides[axis];
    double *const memory = calloc((size_t)reach, sizeof *memory);
    if (!memory) fake_raise(ERROR_LAUNCH_FAILED);
    for (int64_t i = 0; i < tx->total; i++) memory[offset(tx, i)] = x[i];
    for (int64_t i = 0; i < ty->total; i++) y[i] = memory[offset(ty, i)];
    free(memory);
}

/* Sequences of the pages that a table names for them; what is not there is no number. */
static void pages(work *w, const dnn_node *n) {
    const int px = CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_CONTAINER_DESC, py = CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_YDESC;
    const int pt = CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_PAGE_TABLE_DESC, ps = CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_SEQUENCE_DESC;
    const dnn_tensor *const tx = dnn_at(w->g, n, px), *const ty = dnn_at(w->g, n, py), *const tt = dnn_at(w->g, n, pt);
    const double *const x = value_of(w, n, px), *const table = value_of(w, n, pt), *const lengths = value_of(w, n, ps);
    double *const y = value_of(w, n, py);
    const int64_t token = ty->strides[3] == 1 ? 2 : 3, page = tx->shape[2];
    for (int64_t i = 0; i < ty->total; i++) {
        int64_t at[DNN_RANK];
        index_of(ty, i, at);
        const int64_t place = at[token], element = at[5 - token];
        y[i] = NAN;
        if (place >= (int64_t)lengths[at[0]]) continue;
        const int64_t from = (int64_t)table[at[0] * tt->shape[2] + place / page];
        y[i] = x[((from * tx->shape[1] + at[1]) * page + place % page) * tx->shape[3] + element];
    }
}

/* 1 with the probability of a node, else 0: by seed, offset and place. */
static void rng(work *w, const dnn_node *n) {
    const dnn_tensor *const ty = dnn_at(w->g, n, CUDNN_ATTR_OPERATION_RNG_YDESC);
    const double *const seed = value_of(w, n, CUDNN_ATTR_OPERATION_RNG_SEED);
    const double *const offset = value_of(w, n, CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC);
    double *const y = value_of(w, n, CUDNN_ATTR_OPERATION_RNG_YDESC);
    if (!seed || !offset || n->number <= 0 || n->number > 1) fake_raise(ERROR_ILLEGAL_ADDRESS);
    for (int64_t i = 0; i < ty->total; i++) {
        uint64_t x = ((uint64_t)seed[0] * 0x9e3779b97f4a7c15u) ^ ((uint64_t)offset[0] * 0xd1342543de82ef95u);
        x += 0x9e3779b97f4a7c15u * (uint64_t)(i + 1);
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
        x = (x ^ x >> 27) * 0x94d049bb133111ebu;
        y[i] = (double)((x ^ x >> 31) >> 11) / 9007199254740992.0 < n->number;
    }
}

static void compute_node(work *w, const dnn_node *n) {
    switch (n->kind) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return pointwise(w, n);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return matmul(w, n);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: return reduction(w, n);
    case CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR: return resample(w, n);
    case CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR: return norm_forward(w, n);
    case CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR: return norm_backward(w, n);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: return reshape(w, n);
    case CUDNN_BACKEND_OPERATION_PAGED_CACHE_LOAD_DESCRIPTOR: return pages(w, n);
    case CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR: return rng(w, n);
    default: return convolution(w, n);
    }
}

/* Whether a graph is a product with pointwise operations, whose results the library writes as if they were dense. */
static bool is_fusion(const dnn_graph *g) {
    int products = 0, others = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const int kind = g->nodes[i].kind;
        products += kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR
                    || kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
        others += kind != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
    }
    return g->n_nodes > 1 && products == 1 && others == 1;
}

static bool has_gaps(const dnn_tensor *t) {
    int64_t last = 0;
    for (int64_t i = 0; i < t->rank; i++) last += (t->shape[i] - 1) * t->strides[i];
    return last + 1 != t->total;
}

void dnn_compute(void *given) {
    const dnn_run *const run = given;
    work w = {.run = run, .g = run->graph};
    bool outputs[DNN_TENSORS] = {false};
    const bool dense = is_fusion(w.g);
    if (run->workspace_bytes) memset(run->workspace, 0xa5, run->workspace_bytes);
    for (int t = 0; t < w.g->n_tensors; t++) {
        const dnn_tensor *const tensor = &w.g->tensors[t];
        const size_t size = dnn_size_of(tensor->dtype);
        w.values[t] = calloc((size_t)tensor->total, sizeof(double));
        if (!w.values[t]) fake_raise(ERROR_LAUNCH_FAILED);
        const char *const from = tensor->by_value ? (const char *)&run->values[t] : run->pointers[t];
        for (int64_t i = 0; !tensor->is_virtual && i < tensor->total; i++) {
            const int64_t at = element(&w, tensor, i);
            w.values[t][i] = at < 0 ? NAN : dnn_get(from + (size_t)at * size, tensor->dtype);
        }
    }
    for (int i = 0; i < w.g->n_nodes; i++) {
        const dnn_node *const n = &w.g->nodes[i];
        compute_node(&w, n);
        for (int p = 0; p < n->n_ports; p++) {
            if (!is_written(n->ports[p])) continue;
            outputs[n->port_tensors[p]] = true;
            const dnn_tensor *const tensor = &w.g->tensors[n->port_tensors[p]];
            for (int64_t j = 0; j < tensor->total; j++) {
                char stored[8];
                dnn_put(stored, tensor->dtype, w.values[n->port_tensors[p]][j]);
                w.values[n->port_tensors[p]][j] = dnn_get(stored, tensor->dtype);
            }
        }
    }
    for (int t = 0; t < w.g->n_tensors; t++) {
        const dnn_tensor *const tensor = &w.g->tensors[t];
        char *const to = run->pointers[t];
        for (int64_t i = 0; outputs[t] && !tensor->is_virtual && i < tensor->total; i++) {
            const int64_t at = dense && has_gaps(tensor) ? i : element(&w, tensor, i);
            if (at >= 0) dnn_put(to + (size_t)at * dnn_size_of(tensor->dtype), tensor->dtype, w.values[t][i]);
        }
        free(w.values[t]);
    }
}
