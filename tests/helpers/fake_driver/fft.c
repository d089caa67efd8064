/* A cuFFT without a GPU: each call is noted, and computed in the order of its stream, in double precision.
 *
 * Functions of elements are shared libraries here.  They are set before a plan is made, at most one of a kind, and of the
 * types of the plan; with them the output may be written before the last element is stored, as by plans of several
 * kernels.
 *
 * It follows the documented rules, the unpleasant ones, too: types of 16 bits have powers of two and dense real lines; plans do not allocate where that is switched off, and then
 * refuse to run without a work area; they write all over that area; C2R overwrites its input, and is wrong for imaginary
 * parts at the first and the middle element of 2^13 and 2^14; addresses are aligned to a complex element. */
#include <complex.h>
#include <dlfcn.h>
#include <elf.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fake_driver.h"
#include "libraries/cufft/table.h"

typedef double complex number;

enum { PLANS = 4096, AXES = 3 };

typedef struct {
    int made, allocates, rank, direction;
    long long n[AXES], embed[2][AXES], stride[2], dist[2], batch;
    cudaDataType type[2];
    size_t work;
    CUstream stream;
    int placed;
    void *area;
    void *at[2]; /* of a call */
    struct {
        void *library, *function, *info;
        cufftXtCallbackType type;
    } callback[2]; /* on load and on store */
} plan;

static plan *plans[PLANS];
/* Plans that are alive, for tests in this process. */
_Atomic unsigned fake_fft_plans;

static int is_double(cudaDataType type) { return type == CUDA_R_64F || type == CUDA_C_64F; }
static int is_half(cudaDataType type) { return type == CUDA_R_16F || type == CUDA_C_16F; }
static int is_bfloat(cudaDataType type) { return type == CUDA_R_16BF || type == CUDA_C_16BF; }
static int family(cudaDataType type) { return is_double(type) + 2 * is_half(type) + 3 * is_bfloat(type); }
static int is_complex(cudaDataType type) {
    return type == CUDA_C_32F || type == CUDA_C_64F || type == CUDA_C_16F || type == CUDA_C_16BF;
}
static size_t size_of(cudaDataType type) {
    return (is_double(type) ? 8u : family(type) ? 2u : 4u) * (is_complex(type) ? 2u : 1u);
}

static double wide(uint16_t bits, cudaDataType type) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    if (is_bfloat(type)) {
        const uint32_t word = (uint32_t)bits << 16;
        float x;
        memcpy(&x, &word, sizeof x);
        return x;
    }
    const double x = exponent == 31 ? (mantissa ? NAN : INFINITY)
                                    : exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return bits >> 15 ? -x : x;
}

static uint16_t narrow(double x, cudaDataType type) {
    if (is_bfloat(type)) {
        const float value = (float)x;
        uint32_t word;
        memcpy(&word, &value, sizeof word);
        return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
    }
    const double size = fabs(x);
    const unsigned sign = signbit(x) ? 0x8000u : 0;
    if (isnan(x)) return 0x7e00;
    if (size >= 65520) return (uint16_t)(sign | 0x7c00);
    const int exponent = size < ldexp(1, -14) ? -14 : ilogb(size);
    return (uint16_t)(sign | (unsigned)((exponent + 14) * 1024 + (int)lrint(ldexp(size, 10 - exponent))));
}

typedef struct {
    float x, y;
} float2;
typedef struct {
    double x, y;
} double2;

/* Elements of a call, by functions if there are any. */
static number load(const plan *p, void *data, int64_t i);
static void store(const plan *p, void *data, int64_t i, number x);

static number get(const void *p, cudaDataType type, int64_t i) {
    const uint16_t *const h = p;
    if (family(type) > 1 && !is_complex(type)) return wide(h[i], type);
    if (family(type) > 1) return CMPLX(wide(h[2 * i], type), wide(h[2 * i + 1], type));
    if (type == CUDA_R_32F) return ((const float *)p)[i];
    if (type == CUDA_R_64F) return ((const double *)p)[i];
    if (type == CUDA_C_32F) return CMPLX(((const float *)p)[2 * i], ((const float *)p)[2 * i + 1]);
    return CMPLX(((const double *)p)[2 * i], ((const double *)p)[2 * i + 1]);
}

static void put(void *p, cudaDataType type, int64_t i, number x) {
    const int k = is_complex(type);
    if (family(type) > 1) {
        ((uint16_t *)p)[k ? 2 * i : i] = narrow(creal(x), type);
        if (k) ((uint16_t *)p)[2 * i + 1] = narrow(cimag(x), type);
    } else if (is_double(type)) {
        ((double *)p)[k ? 2 * i : i] = creal(x);
        if (k) ((double *)p)[2 * i + 1] = cimag(x);
    } else {
        ((float *)p)[k ? 2 * i : i] = (float)creal(x);
        if (k) ((float *)p)[2 * i + 1] = (float)cimag(x);
    }
}

static number load(const plan *p, void *data, int64_t i) {
    void *const f = p->callback[0].function, *const info = p->callback[0].info;
    const unsigned long long at = (unsigned long long)i;
    if (!f) return get(data, p->type[0], i);
    if (p->type[0] == CUDA_R_32F) return ((float (*)(void *, unsigned long long, void *, void *))f)(data, at, info, NULL);
    if (p->type[0] == CUDA_R_64F) return ((double (*)(void *, unsigned long long, void *, void *))f)(data, at, info, NULL);
    if (p->type[0] == CUDA_C_32F) {
        const float2 x = ((float2 (*)(void *, unsigned long long, void *, void *))f)(data, at, info, NULL);
        return CMPLX(x.x, x.y);
    }
    const double2 x = ((double2 (*)(void *, unsigned long long, void *, void *))f)(data, at, info, NULL);
    return CMPLX(x.x, x.y);
}

static void store(const plan *p, void *data, int64_t i, number x) {
    void *const f = p->callback[1].function, *const info = p->callback[1].info;
    const unsigned long long at = (unsigned long long)i;
    if (!f)
        put(data, p->type[1], i, x);
    else if (p->type[1] == CUDA_R_32F)
        ((void (*)(void *, unsigned long long, float, void *, void *))f)(data, at, (float)creal(x), info, NULL);
    else if (p->type[1] == CUDA_R_64F)
        ((void (*)(void *, unsigned long long, double, void *, void *))f)(data, at, creal(x), info, NULL);
    else if (p->type[1] == CUDA_C_32F)
        ((void (*)(void *, unsigned long long, float2, void *, void *))f)(
            data, at, (float2){(float)creal(x), (float)cimag(x)}, info, NULL);
    else
        ((void (*)(void *, unsigned long long, double2, void *, void *))f)(data, at, (double2){creal(x), cimag(x)}, info,
                                                                          NULL);
}

/* out[0 .. n) = the transform of in[0], in[step], ...; by the least prime factor of n. */
static void transform(const number *in, int64_t step, number *out, int64_t n, const number *roots, int64_t jump) {
    int64_t p = 2;
    while (p * p <= n && n % p) p++;
    if (n % p) p = n;
    const int64_t m = n / p;
    if (n == 1) {
        out[0] = in[0];
        return;
    }
    number *const part = malloc((size_t)n * sizeof *part);
    if (!part) fake_raise(ERROR_LAUNCH_FAILED);
    for (int64_t r = 0; r < p; r++) transform(in + r * step, step * p, part + r * m, m, roots, jump * p);
    for (int64_t k = 0; k < n; k++) {
        number sum = 0;
        for (int64_t r = 0, at = 0; r < p; r++, at = (at + k) % n) sum += roots[at * jump] * part[r * m + k % m];
        out[k] = sum;
    }
    free(part);
}

/* Transform `count` lines of an array, `step` apart within a line. */
static void along(number *x, int64_t total, int64_t n, int64_t step, int sign) {
    number *const roots = malloc(2 * (size_t)n * sizeof *roots), *const line = roots + n;
    if (!roots) fake_raise(ERROR_LAUNCH_FAILED);
    for (int64_t k = 0; k < n; k++) roots[k] = cexp(CMPLX(0, sign * 2 * M_PI * (double)k / (double)n));
    for (int64_t i = 0; i < total; i++) {
        if (i / step % n) continue;
        transform(x + i, step, line, n, roots, 1);
        for (int64_t k = 0; k < n; k++) x[i + k * step] = line[k];
    }
    free(roots);
}

static int64_t place(const plan *p, int side, const int64_t *index) {
    int64_t at = 0;
    for (int i = 0; i < p->rank; i++) at = (i ? at * p->embed[side][i] : 0) + index[i];
    return at * p->stride[side];
}

/* Add one to an index of extents; 0 after the last one. */
static int next(int64_t *index, const int64_t *extents, int rank) {
    for (int i = rank - 1; i >= 0; i--) {
        if (++index[i] < extents[i]) return 1;
        index[i] = 0;
    }
    return 0;
}

/* `begin` and `end`: the first elements of a transform of the batch, in input and output. */
static void one(const plan *p, void *in, int64_t begin, void *out, int64_t end) {
    const int rank = p->rank, to_real = !is_complex(p->type[1]), from_real = !is_complex(p->type[0]);
    const int sign = to_real ? 1 : from_real ? -1 : p->direction;
    int64_t full[AXES], half[AXES], index[AXES] = {0}, total = 1, last = p->n[rank - 1];
    for (int i = 0; i < rank; i++) total *= full[i] = half[i] = p->n[i];
    half[rank - 1] = last / 2 + 1;
    number *const x = malloc((size_t)total * sizeof *x);
    if (!x) fake_raise(ERROR_LAUNCH_FAILED);
    int64_t i = 0;
    do { /* the other half of a Hermitian array is read from the one half */
        int64_t from[AXES];
        memcpy(from, index, sizeof from);
        const int other = to_real && index[rank - 1] > last / 2;
        for (int a = 0; other && a < rank; a++) from[a] = (p->n[a] - index[a]) % p->n[a];
        const number value = load(p, in, begin + place(p, 0, from));
        x[i++] = other ? conj(value) : value;
    } while (next(index, full, rank));
    const int wrong = to_real && rank == 1 && (last == 8192 || last == 16384);
    const double lost = wrong ? cimag(x[0]) + cimag(x[last / 2]) : 0;
    int64_t step = 1;
    for (int a = rank - 1; a >= 0; a--) {
        along(x, total, p->n[a], step, sign);
        step *= p->n[a];
    }
    memset(index, 0, sizeof index);
    i = 0;
    do {
        if (from_real && index[rank - 1] > last / 2) {
            i++;
            continue;
        }
        if (p->callback[1].function) put(out, p->type[1], end + place(p, 1, index), CMPLX(-55, 55));
        store(p, out, end + place(p, 1, index), x[i++] + lost);
    } while (next(index, full, rank));
    memset(index, 0, sizeof index);
    if (to_real && in != out)
        do put(in, p->type[0], begin + place(p, 0, index), CMPLX(-77, 77));
        while (next(index, half, rank));
    free(x);
}

static void run(void *argument) {
    plan *const p = argument;
    if (p->area) memset(p->area, 0xa5, p->work);
    for (long long b = 0; b < p->batch; b++)
        one(p, p->at[0], b * p->dist[0], p->at[1], b * p->dist[1]);
}

static plan *find(cufftHandle h) { return h >= 0 && h < PLANS ? plans[h] : NULL; }

#define MAY_FAIL()                                                                                                    \
    do {                                                                                                              \
        const CUresult refusal_ = fake_refusal(__func__);                                                             \
        if (refusal_) return (cufftResult)refusal_;                                                                   \
    } while (0)

cufftResult cufftGetVersion(int *version) {
    *version = 12000;
    return CUFFT_SUCCESS;
}
cufftResult cufftCreate(cufftHandle *h) {
    MAY_FAIL();
    CUcontext context;
    if (fake_enter(&context)) return CUFFT_SETUP_FAILED;
    pthread_mutex_lock(&fake_lock);
    int at = 0;
    while (at < PLANS && plans[at]) at++;
    if (at < PLANS) plans[at] = calloc(1, sizeof **plans);
    const int made = at < PLANS && plans[at];
    pthread_mutex_unlock(&fake_lock);
    if (!made) return CUFFT_ALLOC_FAILED;
    plans[at]->allocates = 1;
    fake_fft_plans++;
    *h = at;
    return CUFFT_SUCCESS;
}
cufftResult cufftDestroy(cufftHandle h) {
    pthread_mutex_lock(&fake_lock);
    plan *const p = find(h);
    if (p) plans[h] = NULL;
    pthread_mutex_unlock(&fake_lock);
    if (!p) return CUFFT_INVALID_PLAN;
    fake_fft_plans--;
    for (int i = 0; i < 2; i++)
        if (p->callback[i].library) dlclose(p->callback[i].library);
    free(p);
    return CUFFT_SUCCESS;
}
cufftResult cufftSetAutoAllocation(cufftHandle h, int allocates) {
    plan *const p = find(h);
    if (!p) return CUFFT_INVALID_PLAN;
    p->allocates = allocates;
    return CUFFT_SUCCESS;
}
cufftResult cufftSetStream(cufftHandle h, cudaStream_t stream) {
    plan *const p = find(h);
    if (!p) return CUFFT_INVALID_PLAN;
    p->stream = stream;
    return CUFFT_SUCCESS;
}
cufftResult cufftSetWorkArea(cufftHandle h, void *area) {
    plan *const p = find(h);
    if (!p) return CUFFT_INVALID_PLAN;
    if ((uintptr_t)area & 255 || (p->work && !area)) return CUFFT_INVALID_VALUE;
    p->area = area;
    p->placed = 1;
    return CUFFT_SUCCESS;
}

cufftResult cufftXtSetJITCallback(cufftHandle h, const char *symbol, const void *code, size_t nbytes,
                                  cufftXtCallbackType type, void **info) {
    MAY_FAIL();
    plan *const p = find(h);
    if (!p || p->made) return CUFFT_INVALID_PLAN;
    const int side = type >= CUFFT_CB_ST_COMPLEX;
    if (p->callback[side].function || type < CUFFT_CB_LD_COMPLEX || type > CUFFT_CB_ST_REAL_DOUBLE)
        return CUFFT_INVALID_VALUE;
    const int ours = nbytes > sizeof(Elf64_Ehdr) && memcmp(code, ELFMAG, SELFMAG) == 0; /* and not for a GPU */
    void *const library = ours ? fake_open_image(code, nbytes) : NULL;
    void *const function = library ? dlsym(library, symbol) : NULL;
    if (library && !function) dlclose(library);
    if (!function) return CUFFT_INTERNAL_ERROR;
    p->callback[side].library = library;
    p->callback[side].function = function;
    p->callback[side].info = info ? *info : NULL;
    p->callback[side].type = type;
    return CUFFT_SUCCESS;
}

cufftResult cufftXtMakePlanMany(cufftHandle h, int rank, long long *n, long long *inembed, long long istride,
                                long long idist, cudaDataType inputtype, long long *onembed, long long ostride,
                                long long odist, cudaDataType outputtype, long long batch, size_t *workSize,
                                cudaDataType executiontype) {
    MAY_FAIL();
    plan *const p = find(h);
    if (!p || p->made) return CUFFT_INVALID_PLAN;
    if (p->allocates) return CUFFT_ALLOC_FAILED; /* this project brings the memory itself */
    const int in = is_complex(inputtype), out = is_complex(outputtype);
    if (rank < 1 || rank > AXES || batch < 1) return CUFFT_INVALID_SIZE;
    if (family(inputtype) != family(outputtype) || !(in || out) || !is_complex(executiontype) ||
        family(executiontype) != family(inputtype))
        return CUFFT_INVALID_TYPE;
    if (family(inputtype) > 1 && ((!in && istride != 1) || (!out && ostride != 1))) return CUFFT_NOT_SUPPORTED;
    for (int i = 0; i < rank; i++)
        if (family(inputtype) > 1 && n[i] & (n[i] - 1)) return CUFFT_NOT_SUPPORTED;
    if (istride < 1 || ostride < 1 || idist < 1 || odist < 1) return CUFFT_INVALID_VALUE;
    const cudaDataType sides[] = {inputtype, outputtype};
    for (int i = 0; i < 2; i++) {
        const int kind = 4 * i + 2 * !is_complex(sides[i]) + is_double(sides[i]);
        if (p->callback[i].function && p->callback[i].type != kind) return CUFFT_INVALID_TYPE;
    }
    plan made = {.made = 1, .rank = rank, .stride = {istride, ostride}, .dist = {idist, odist}, .batch = batch,
                 .type = {inputtype, outputtype}};
    memcpy(made.callback, p->callback, sizeof made.callback);
    *p = made;
    size_t total = 1;
    for (int i = 0; i < rank; i++) {
        const int last = i == rank - 1;
        const long long extent[] = {last && out == 0 ? n[i] / 2 + 1 : n[i], last && in == 0 ? n[i] / 2 + 1 : n[i]};
        if (n[i] < 1) return CUFFT_INVALID_SIZE;
        if (i && (inembed[i] < extent[0] || onembed[i] < extent[1])) return CUFFT_INVALID_VALUE;
        p->n[i] = n[i];
        p->embed[0][i] = inembed[i];
        p->embed[1][i] = onembed[i];
        total *= (size_t)n[i];
    }
    p->work = *workSize = total & (total - 1) ? total * size_of(executiontype) * (size_t)batch : 0;
    return CUFFT_SUCCESS;
}

cufftResult cufftXtExec(cufftHandle h, void *input, void *output, int direction) {
    MAY_FAIL();
    plan *const p = find(h);
    if (!p || !p->made) return CUFFT_INVALID_PLAN;
    if (!p->placed || !p->stream) return CUFFT_EXEC_FAILED;
    const size_t aligned = size_of(is_complex(p->type[0]) ? p->type[0] : p->type[1]);
    if (((uintptr_t)input | (uintptr_t)output) & (aligned - 1)) return CUFFT_UNALIGNED_DATA;
    plan call = *p;
    call.direction = direction;
    call.at[0] = input;
    call.at[1] = output;
    return fake_enqueue(p->stream, run, &call, sizeof call, 0) ? CUFFT_EXEC_FAILED : CUFFT_SUCCESS;
}
