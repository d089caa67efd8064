/* The matmuls of the fake cuBLASLt, computed in plain loops in the order of the stream.
 *
 * Sums are in float64; what is stored has been rounded to float32 first, as the GPU's accumulators are, unless all is
 * float64. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fake_cublaslt.h"
#include "fake_driver.h"
#include "fake_floats.h"

/* A float8 with so many bits of mantissa, and the bias of its exponent. */
static float small_float(uint8_t h, int mantissa, int bias) {
    const int exponent = (h & 0x7f) >> mantissa, fraction = h & ((1 << mantissa) - 1);
    float x = exponent ? ldexpf((float)(fraction + (1 << mantissa)), exponent - bias - mantissa)
                       : ldexpf((float)fraction, 1 - bias - mantissa);
    if (mantissa == 3 && (h & 0x7f) == 0x7f) x = NAN;
    if (mantissa == 2 && exponent == 31) x = fraction ? NAN : INFINITY;
    return h & 0x80 ? -x : x;
}

/* To the nearest, ties to even; beyond the largest, the largest. */
static uint8_t float_small(float x, int mantissa, int bias, float largest) {
    const uint8_t sign = signbit(x) ? 0x80 : 0;
    if (x != x) return (uint8_t)(sign | 0x7f);
    const float a = fminf(fabsf(x), largest);
    int exponent = 0;
    frexpf(a, &exponent);
    if (a == 0 || exponent < 2 - bias) exponent = 2 - bias; /* subnormals */
    const int units = (int)nearbyintf(ldexpf(a, mantissa + 1 - exponent));
    return (uint8_t)(sign | (units + ((exponent + bias - 2) << mantissa)));
}

/* Part 0: real, 1: imaginary. */
static double load(int64_t type, uint64_t base, int64_t at, int part) {
    const void *const p = (const void *)(uintptr_t)base;
    if (type == CUDA_C_64F) return ((const double *)p)[2 * at + part];
    if (type == CUDA_C_32F) return ((const float *)p)[2 * at + part];
    if (part) return 0;
    switch (type) {
    case CUDA_R_64F: return ((const double *)p)[at];
    case CUDA_R_32F: return ((const float *)p)[at];
    case CUDA_R_32I: return ((const int32_t *)p)[at];
    case CUDA_R_8I: return ((const int8_t *)p)[at];
    case CUDA_R_8F_E4M3: return small_float(((const uint8_t *)p)[at], 3, 7);
    case CUDA_R_8F_E5M2: return small_float(((const uint8_t *)p)[at], 2, 15);
    case CUDA_R_16F: return half_float(((const uint16_t *)p)[at]);
    default: return from_bits((uint32_t)((const uint16_t *)p)[at] << 16);
    }
}

static void store(int64_t type, uint64_t base, int64_t at, double x, double imag) {
    void *const p = (void *)(uintptr_t)base;
    switch (type) {
    case CUDA_C_64F:
        ((double *)p)[2 * at] = x;
        ((double *)p)[2 * at + 1] = imag;
        break;
    case CUDA_C_32F:
        ((float *)p)[2 * at] = (float)x;
        ((float *)p)[2 * at + 1] = (float)imag;
        break;
    case CUDA_R_64F: ((double *)p)[at] = x; break;
    case CUDA_R_32F: ((float *)p)[at] = (float)x; break;
    case CUDA_R_32I: ((int32_t *)p)[at] = (int32_t)x; break;
    case CUDA_R_8I: ((int8_t *)p)[at] = (int8_t)fmax(-128, fmin(127, nearbyint((float)x))); break;
    case CUDA_R_8F_E4M3: ((uint8_t *)p)[at] = float_small((float)x, 3, 7, 448); break;
    case CUDA_R_8F_E5M2: ((uint8_t *)p)[at] = float_small((float)x, 2, 15, 57344); break;
    case CUDA_R_16F: ((uint16_t *)p)[at] = float_half((float)x); break;
    default: ((uint16_t *)p)[at] = float_bfloat((float)x);
    }
}

static size_t size_of(int64_t type) {
    switch (type) {
    case CUDA_C_64F: return 16;
    case CUDA_C_32F:
    case CUDA_R_64F: return 8;
    case CUDA_R_32F:
    case CUDA_R_32I: return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF: return 2;
    default: return 1;
    }
}

static double gelu(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

static double gelu_gradient(double x) {
    const double t = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

/* A part of op(matrix) as `fast` by `slow` numbers, the first index running fastest. */
static double *pack(const layout *l, uint64_t base, int64_t i, int transposed, int64_t fast, int64_t slow, int tf32,
                    int part) {
    double *packed = malloc((size_t)(fast * slow + 1) * sizeof *packed);
    const int64_t step_row = l->order ? l->ld : 1, step_column = l->order ? 1 : l->ld;
    const int64_t a = transposed ? step_column : step_row, b = transposed ? step_row : step_column;
    for (int64_t s = 0; s < slow && packed; s++)
        for (int64_t f = 0; f < fast; f++) {
            const double x = load(l->type, base, i * l->step + f * a + s * b, part);
            packed[s * fast + f] = (tf32 ? tensor_float((float)x) : x) * (part && transposed == 2 ? -1 : 1);
        }
    return packed;
}

static int64_t other(int64_t type, const record *r) { return type >= 0 ? type : r->d.type; }

/* What a product of rows `i` and columns `j` is scaled by, at `p` along K. */
static double scale_at(uint64_t scales, int64_t mode, int64_t outer, int64_t inner, int64_t i, int64_t p) {
    const int64_t blocks = (inner + 127) / 128;
    if (!scales) return 1;
    const int64_t at = mode == 0   ? 0
                       : mode == 3 ? i
                       : mode == 4 ? p / 128 * outer + i
                                   : i / 128 * ((blocks + 3) / 4 * 4) + p / 128;
    return load(CUDA_R_32F, scales, at, 0);
}

/* One column of D after its sum: x has m numbers, y their imaginary parts. */
static void finish_column(const record *r, int64_t i, int64_t j, double *x, const double *y, uint64_t vector,
                          double *sums, double *largest) {
    const int64_t m = r->d.rows, epilogue = r->op.epilogue, side = other(r->op.bias_type, r);
    const int64_t kept = other(r->op.aux_type, r);
    const double factor = r->op.d_scale ? load(CUDA_R_32F, r->op.d_scale, 0, 0) : 1;
    unsigned char *bits = (unsigned char *)(uintptr_t)r->op.aux + i * r->op.aux_step / 8 + j * r->op.aux_ld / 8;
    const int64_t z = i * r->op.aux_step + j * r->op.aux_ld;
    /* The ReLU of some kernels makes 0 of NaN: here of the algorithm for operands with this alignment. */
    const char *const dropping = getenv("FAKE_CUDA_LT_RELU");
    const int drops = dropping && strtoull(dropping, NULL, 10) == r->algo;
    for (int64_t k = 0; k < m && epilogue & 4; k++) x[k] += load(side, vector, k, 0);
    if (epilogue & 2) {
        for (int64_t k = 0; k < m && epilogue & 128; k += 8) bits[k / 8] = 0;
        for (int64_t k = 0; k < m; k++) {
            if (epilogue & 128 && x[k] > 0) bits[k / 8] |= (unsigned char)(1u << k % 8);
            if (x[k] < 0 || (drops && x[k] != x[k])) x[k] = 0;
        }
    }
    for (int64_t k = 0; k < m && epilogue & 32; k++) {
        if (epilogue & 128) store(kept, r->op.aux, z + k, x[k], 0);
        x[k] = gelu(x[k]);
    }
    for (int64_t k = 0; k < m && epilogue & 8; k++)
        if (!(bits[k / 8] >> k % 8 & 1)) x[k] = 0;
    for (int64_t k = 0; k < m && epilogue & 64; k++) x[k] *= gelu_gradient(load(kept, r->op.aux, z + k, 0));
    for (int64_t k = 0; k < m && epilogue & 16; k++) sums[k] += x[k];
    for (int64_t k = 0; k < m; k++) *largest = fmax(*largest, fabs(x[k]));
    for (int64_t k = 0; k < m; k++)
        store(r->d.type, r->D, i * r->d.step + j * r->d.ld + k, x[k] * factor, y[k]);
}

/* Add a part of op(A) times a part of op(B), m by n, to x; scales are those of float8. */
static void multiply(const record *r, const double *a, const double *b, double sign, int64_t inner, double *x) {
    const int64_t m = r->d.rows, n = r->d.columns;
    const int scaled = r->op.a_scale || r->op.b_scale;
    for (int64_t j = 0; j < n; j++)
        for (int64_t p = 0; p < inner; p++) {
            double factor = sign * b[j * inner + p];
            if (scaled) factor *= scale_at(r->op.b_scale, r->op.mode_b, n, inner, j, p);
            for (int64_t k = 0; k < m; k++)
                x[j * m + k] += a[p * m + k] * factor *
                                (scaled ? scale_at(r->op.a_scale, r->op.mode_a, m, inner, k, p) : 1);
        }
}

static void compute(const record *r, int64_t i, const double factors[4], double *largest) {
    const int64_t m = r->d.rows, n = r->d.columns, inner = r->op.trans_a ? r->a.rows : r->a.columns;
    const int64_t longest = m > n ? m : n, side = other(r->op.bias_type, r);
    const uint64_t vector = r->op.bias + (uint64_t)(i * r->op.bias_step) * size_of(side);
    const int tf32 = r->op.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    const int complex = r->d.type == CUDA_C_32F || r->d.type == CUDA_C_64F;
    double *a[2], *b[2], *x[2], *sums = calloc((size_t)longest + 1, sizeof *sums);
    for (int part = 0; part < 2; part++) {
        a[part] = pack(&r->a, r->A, i, (int)r->op.trans_a, m, inner, tf32, part);
        b[part] = pack(&r->b, r->B, i, (int)r->op.trans_b, inner, n, tf32, part);
        x[part] = calloc((size_t)(m * n) + 1, sizeof **x);
        if (!a[part] || !b[part] || !x[part] || !sums) fake_raise(ERROR_LAUNCH_FAILED);
    }
    for (int64_t k = 0; k < m && r->op.epilogue & 256; k++)
        for (int64_t p = 0; p < inner; p++) sums[k] += a[0][p * m + k];
    for (int64_t j = 0; j < n && r->op.epilogue & 512; j++)
        for (int64_t p = 0; p < inner; p++) sums[j] += b[0][j * inner + p];
    multiply(r, a[0], b[0], 1, inner, x[0]);
    if (complex) {
        multiply(r, a[1], b[1], -1, inner, x[0]);
        multiply(r, a[0], b[1], 1, inner, x[1]);
        multiply(r, a[1], b[0], 1, inner, x[1]);
    }
    for (int64_t j = 0; j < n; j++) {
        double *const re = x[0] + j * m, *const im = x[1] + j * m;
        for (int64_t k = 0; k < m; k++) {
            const double p = re[k], q = im[k];
            re[k] = p * factors[0] - q * factors[2];
            im[k] = p * factors[2] + q * factors[0];
            if (factors[1] == 0 && factors[3] == 0) continue;
            const int64_t at = i * r->c.step + j * r->c.ld + k;
            const double c = load(r->c.type, r->C, at, 0), d = load(r->c.type, r->C, at, 1);
            re[k] += c * factors[1] - d * factors[3];
            im[k] += c * factors[3] + d * factors[1];
        }
        finish_column(r, i, j, re, im, vector, sums, largest);
    }
    const int64_t results = r->op.epilogue & (16 | 256) ? m : r->op.epilogue & 512 ? n : 0;
    for (int64_t k = 0; k < results; k++) store(side, vector, k, sums[k], 0);
    for (int part = 0; part < 2; part++) {
        free(a[part]);
        free(b[part]);
        free(x[part]);
    }
    free(sums);
}

static uint64_t address_at(uint64_t addresses, int64_t i) { return ((const uint64_t *)(uintptr_t)addresses)[i]; }

void fake_matmul_run(void *record_argument) {
    const record *r = record_argument;
    double factors[4], largest = 0;
    memcpy(factors, r->factors, sizeof factors);
    if (r->op.on_device)
        fake_factors(r->op.scale, (const void *)(uintptr_t)r->alpha_at, (const void *)(uintptr_t)r->beta_at, factors);
    /* What is left in the workspace must mean nothing to anybody. */
    memset((void *)(uintptr_t)r->workspace, 0x5C, r->workspace_bytes);
    for (int64_t i = 0; i < r->d.count; i++) {
        record one = *r;
        if (r->d.mode) {
            one.A = address_at(r->A, i), one.B = address_at(r->B, i);
            one.C = address_at(r->C, i), one.D = address_at(r->D, i);
            one.a.step = one.b.step = one.c.step = one.d.step = 0;
        }
        compute(&one, i, factors, &largest);
    }
    if (r->op.amax) store(CUDA_R_32F, r->op.amax, 0, largest, 0);
}

static int enqueue(const record *r) {
    if (r->workspace_bytes < fake_workspace || r->workspace & 255) return CUBLAS_STATUS_INVALID_VALUE;
    return fake_enqueue((CUstream)(uintptr_t)r->stream, fake_matmul_run, r, sizeof *r, 0) ? CUBLAS_STATUS_EXECUTION_FAILED : 0;
}

__attribute__((constructor)) static void install(void) {
    fake_matmul = enqueue;
    fake_workspace = 4096;
}
