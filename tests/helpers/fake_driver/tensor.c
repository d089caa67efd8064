/* A cuTENSOR without a GPU: each call is noted, and computed in plain loops in the order of its stream.
 *
 * As documented: extents and strides are above 0, and elements do not overlap; a tensor has a mode once; scalars lie on the
 * host and have the operation's scalar type, which is float32 for narrow floats; the tensor that is added has the result's
 * descriptor, and is not transformed; inputs are read although their factor is 0, but for the tensor that beta scales;
 * a workspace belongs to the library until its work is done, and starts at a multiple of 256 bytes.  The best kernel of a
 * contraction, which only a rank names, copies all tensors into the workspace if it may; any other does with less.
 * Kernels are compiled for contractions alone. */
#include <complex.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_blocks.h"
#include "fake_driver.h"
#include "libraries/cutensor/plan.h"

typedef double complex number;

enum { MODES = ATOMR_TENSOR_MODES, TENSORS = ATOMR_TENSORS, LEAST = 256, USUAL = 1024, KERNELS = 3, LOADED = 16 };

typedef struct {
    int n;
    int64_t extent[MODES], stride[MODES];
    int32_t mode[MODES];
    cudaDataType_t type;
    uint32_t alignment;
} tensor;

struct cutensorHandle {
    int alive;
};
struct cutensorTensorDescriptor {
    tensor as;
};
struct cutensorComputeDescriptor {
    const char *name;
};
struct cutensorOperationDescriptor {
    int operation, n;
    tensor t[TENSORS];
    cutensorOperator_t unary[4], binary[2];
    cudaDataType_t scalar;
    fake_blocks *blocks; /* of a contraction of these */
    int32_t repeats;
};
struct cutensorPlanPreference {
    cutensorAlgo_t algo;
    cutensorJitMode_t jit;
    int32_t rank;
};
struct cutensorPlan {
    struct cutensorOperationDescriptor as;
    uint64_t workspace;
};
typedef struct {
    struct cutensorPlan plan;
    void *at[TENSORS];
    number factor[3];
    void *workspace;
} noted;

/* What is alive, for tests in this process. */
_Atomic unsigned fake_tensor_handles, fake_tensor_plans;

#define COMPUTE(name)                                                                                                  \
    static struct cutensorComputeDescriptor compute_##name = {#name};                                                  \
    extern const cutensorComputeDescriptor_t CUTENSOR_COMPUTE_DESC_##name;                                             \
    const cutensorComputeDescriptor_t CUTENSOR_COMPUTE_DESC_##name = &compute_##name;
COMPUTE(16F)
COMPUTE(16BF)
COMPUTE(TF32)
COMPUTE(3XTF32)
COMPUTE(32F)
COMPUTE(64F)
COMPUTE(9X16BF)
static struct cutensorComputeDescriptor compute_8XINT8 = {"8XINT8"};
cutensorComputeDescriptor_t CUTENSOR_COMPUTE_DESC_8XINT8 = &compute_8XINT8; /* NULL with $FAKE_CUDA_TENSOR_OLD */

static float bits(uint32_t b) {
    float x;
    memcpy(&x, &b, 4);
    return x;
}
static uint32_t bits_of(float x) {
    uint32_t b;
    memcpy(&b, &x, 4);
    return b;
}
static int is_complex(cudaDataType_t type) { return type == CUDA_C_32F || type == CUDA_C_64F; }
static unsigned size_of(cudaDataType_t type) {
    switch (type) {
    case CUDA_R_16F:
    case CUDA_R_16BF: return 2;
    case CUDA_R_32F: return 4;
    case CUDA_R_64F:
    case CUDA_C_32F: return 8;
    case CUDA_C_64F: return 16;
    default: return 0;
    }
}

static number get(cudaDataType_t type, const void *p, int64_t i) {
    switch (type) {
    case CUDA_R_16F: return (double)((const _Float16 *)p)[i];
    case CUDA_R_16BF: return bits((uint32_t)((const uint16_t *)p)[i] << 16);
    case CUDA_R_32F: return ((const float *)p)[i];
    case CUDA_R_64F: return ((const double *)p)[i];
    case CUDA_C_32F: return CMPLX(((const float *)p)[2 * i], ((const float *)p)[2 * i + 1]);
    default: return CMPLX(((const double *)p)[2 * i], ((const double *)p)[2 * i + 1]);
    }
}
static void put(cudaDataType_t type, void *p, int64_t i, number x) {
    const float narrow = (float)creal(x);
    switch (type) {
    case CUDA_R_16F: ((_Float16 *)p)[i] = (_Float16)narrow; break;
    case CUDA_R_16BF:
        ((uint16_t *)p)[i] = narrow != narrow ? 0x7fc0 : (uint16_t)((bits_of(narrow) + 0x7fffu + (bits_of(narrow) >> 16 & 1u)) >> 16);
        break;
    case CUDA_R_32F: ((float *)p)[i] = narrow; break;
    case CUDA_R_64F: ((double *)p)[i] = creal(x); break;
    case CUDA_C_32F:
        ((float *)p)[2 * i] = narrow;
        ((float *)p)[2 * i + 1] = (float)cimag(x);
        break;
    default:
        ((double *)p)[2 * i] = creal(x);
        ((double *)p)[2 * i + 1] = cimag(x);
    }
}

number fake_tensor_get(cudaDataType_t type, const void *p, int64_t i) { return get(type, p, i); }
void fake_tensor_put(cudaDataType_t type, void *p, int64_t i, number x) { put(type, p, i, x); }

static number unary(cutensorOperator_t op, number z) {
    const double x = creal(z), soft = x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
    switch (op) {
    case CUTENSOR_OP_CONJ: return conj(z);
    case CUTENSOR_OP_NEG: return -z;
    case CUTENSOR_OP_SQRT: return sqrt(x);
    case CUTENSOR_OP_RELU: return x < 0 ? 0 : x;
    case CUTENSOR_OP_RCP: return 1 / x;
    case CUTENSOR_OP_SIGMOID: return 1 / (1 + exp(-x));
    case CUTENSOR_OP_TANH: return tanh(x);
    case CUTENSOR_OP_EXP: return exp(x);
    case CUTENSOR_OP_LOG: return log(x);
    case CUTENSOR_OP_ABS: return fabs(x);
    case CUTENSOR_OP_SIN: return sin(x);
    case CUTENSOR_OP_COS: return cos(x);
    case CUTENSOR_OP_TAN: return tan(x);
    case CUTENSOR_OP_SINH: return sinh(x);
    case CUTENSOR_OP_COSH: return cosh(x);
    case CUTENSOR_OP_ASIN: return asin(x);
    case CUTENSOR_OP_ACOS: return acos(x);
    case CUTENSOR_OP_ATAN: return atan(x);
    case CUTENSOR_OP_ASINH: return asinh(x);
    case CUTENSOR_OP_ACOSH: return acosh(x);
    case CUTENSOR_OP_ATANH: return atanh(x);
    case CUTENSOR_OP_CEIL: return ceil(x);
    case CUTENSOR_OP_FLOOR: return floor(x);
    case CUTENSOR_OP_MISH: return x * tanh(soft);
    case CUTENSOR_OP_SWISH: return x / (1 + exp(-x));
    case CUTENSOR_OP_SOFT_PLUS: return soft;
    case CUTENSOR_OP_SOFT_SIGN: return x / (1 + fabs(x));
    default: return z;
    }
}
static number binary(cutensorOperator_t op, number a, number b) {
    switch (op) {
    case CUTENSOR_OP_MUL: return a * b;
    case CUTENSOR_OP_MAX: return creal(a) != creal(a) || creal(a) > creal(b) ? a : b;
    case CUTENSOR_OP_MIN: return creal(a) != creal(a) || creal(a) < creal(b) ? a : b;
    default: return a + b;
    }
}

static int64_t place(const tensor *t, const int64_t *index) {
    int64_t at = 0;
    for (int i = 0; i < t->n; i++) at += t->stride[i] * index[t->mode[i]];
    return at;
}
static number input(const noted *c, int i, const int64_t *index) {
    const tensor *const t = &c->plan.as.t[i];
    return unary(c->plan.as.unary[i], get(t->type, c->at[i], place(t, index)));
}
/* Whether there is another index of these modes. */
static int next(int64_t *index, const int32_t *modes, const int64_t *extents, int n) {
    for (int i = n; i-- > 0;) {
        if (++index[modes[i]] < extents[modes[i]]) return 1;
        index[modes[i]] = 0;
    }
    return 0;
}

static void run(void *argument) {
    noted *const c = argument;
    const struct cutensorOperationDescriptor *const d = &c->plan.as;
    const tensor *const out = &d->t[d->n - 1];
    if (c->workspace) memset(c->workspace, 0xff, c->plan.workspace);
    int64_t extents[MODES], index[MODES] = {0};
    int32_t reduced[MODES];
    int n_reduced = 0;
    for (int m = 0; m < MODES; m++) extents[m] = 0;
    for (int i = 0; i < d->n; i++)
        for (int j = 0; j < d->t[i].n; j++) extents[d->t[i].mode[j]] = d->t[i].extent[j];
    for (int m = 0; m < MODES; m++) {
        int kept = extents[m] == 0;
        for (int j = 0; j < out->n; j++) kept |= out->mode[j] == m;
        if (!kept) reduced[n_reduced++] = m;
    }
    const int last = d->n - 2, adds = d->operation <= ATOMR_TENSOR_REDUCE;
    do {
        number v = 0;
        if (adds) {
            int begun = 0;
            do {
                number x = 1;
                for (int i = 0; i < last; i++) x *= input(c, i, index);
                if (d->operation != ATOMR_TENSOR_REDUCE) v += x;
                else v = begun ? binary(d->binary[0], v, x) : x;
                begun = 1;
            } while (next(index, reduced, extents, n_reduced));
            v *= c->factor[0];
            if (c->factor[1] != 0) v += c->factor[1] * input(c, last, index);
        } else {
            v = c->factor[0] * input(c, 0, index);
            if (last > 0) v = binary(d->binary[0], v, c->factor[1] * input(c, 1, index));
            if (last > 1) v = binary(d->binary[1], v, c->factor[2] * input(c, 2, index));
        }
        put(out->type, c->at[d->n - 1], place(out, index), v);
    } while (next(index, out->mode, extents, out->n));
}

size_t cutensorGetVersion(void) { return 20300; }
size_t cutensorGetCudartVersion(void) { return 13000; }
cutensorStatus_t cutensorCreate(cutensorHandle_t *handle) {
    const CUresult refusal = fake_refusal(__func__);
    if (getenv("FAKE_CUDA_TENSOR_OLD")) CUTENSOR_COMPUTE_DESC_8XINT8 = NULL;
    *handle = refusal ? NULL : calloc(1, sizeof **handle);
    fake_tensor_handles += *handle != NULL;
    return refusal ? (cutensorStatus_t)refusal : *handle ? 0 : CUTENSOR_STATUS_ALLOC_FAILED;
}
cutensorStatus_t cutensorDestroy(cutensorHandle_t handle) {
    fake_tensor_handles--;
    free(handle);
    return 0;
}

cutensorStatus_t cutensorCreateTensorDescriptor(const cutensorHandle_t handle, cutensorTensorDescriptor_t *desc,
                                                const uint32_t numModes, const int64_t extent[], const int64_t stride[],
                                                cudaDataType_t dataType, uint32_t alignmentRequirement) {
    (void)handle;
    const CUresult refusal = fake_refusal(__func__);
    if (refusal) return (cutensorStatus_t)refusal;
    tensor t = {.n = (int)numModes, .type = dataType, .alignment = alignmentRequirement};
    if (!size_of(dataType)) return CUTENSOR_STATUS_NOT_SUPPORTED;
    if (numModes > MODES || alignmentRequirement % size_of(dataType)) return CUTENSOR_STATUS_INVALID_VALUE;
    for (uint32_t i = 0; i < numModes; i++) {
        if (extent[i] <= 0 || stride[i] <= 0) return CUTENSOR_STATUS_INVALID_VALUE;
        t.extent[i] = extent[i];
        t.stride[i] = stride[i];
        for (uint32_t j = 0; j < numModes; j++) { /* in the order of their strides modes do not overlap */
            const int inner = stride[j] < stride[i] || (stride[j] == stride[i] && j < i);
            if (j != i && inner && stride[i] < stride[j] * extent[j]) return CUTENSOR_STATUS_INVALID_VALUE;
        }
    }
    *desc = malloc(sizeof **desc);
    if (!*desc) return CUTENSOR_STATUS_ALLOC_FAILED;
    (*desc)->as = t;
    return 0;
}
cutensorStatus_t cutensorDestroyTensorDescriptor(cutensorTensorDescriptor_t desc) {
    free(desc);
    return 0;
}

/* ---- Operations. */

typedef struct {
    cutensorTensorDescriptor_t desc;
    const int32_t *modes;
} part;

static cutensorStatus_t make(cutensorOperationDescriptor_t *made, int operation, int n, const part *parts,
                             const cutensorOperator_t *unaries, const cutensorOperator_t *binaries,
                             cutensorComputeDescriptor_t compute) {
    struct cutensorOperationDescriptor d = {.operation = operation, .n = n};
    if (n > 2 && parts[n - 1].desc != parts[n - 2].desc) return CUTENSOR_STATUS_NOT_SUPPORTED;
    int64_t extents[MODES] = {0};
    for (int i = 0; i < n; i++) {
        d.t[i] = parts[i].desc->as;
        memcpy(d.t[i].mode, parts[i].modes, (size_t)d.t[i].n * sizeof(int32_t));
        for (int j = 0; j < d.t[i].n; j++) {
            const int32_t m = d.t[i].mode[j];
            if (m < 0 || m >= MODES) abort(); /* the real library takes any number */
            if (extents[m] && extents[m] != d.t[i].extent[j]) return CUTENSOR_STATUS_INVALID_VALUE;
            extents[m] = d.t[i].extent[j];
            for (int k = 0; k < j; k++)
                if (d.t[i].mode[k] == m) return CUTENSOR_STATUS_NOT_SUPPORTED;
        }
    }
    for (int i = 0; i < n - 1; i++) {
        d.unary[i] = unaries[i];
        const int plain = d.unary[i] == CUTENSOR_OP_IDENTITY || d.unary[i] == CUTENSOR_OP_NEG;
        if (is_complex(d.t[i].type) ? !plain && d.unary[i] != CUTENSOR_OP_CONJ : 0) return CUTENSOR_STATUS_NOT_SUPPORTED;
        const int adds = operation <= ATOMR_TENSOR_REDUCE;
        if (adds && i == n - 2 && d.unary[i] != CUTENSOR_OP_IDENTITY) return CUTENSOR_STATUS_NOT_SUPPORTED;
        if (adds && operation != ATOMR_TENSOR_REDUCE && d.unary[i] != CUTENSOR_OP_IDENTITY && d.unary[i] != CUTENSOR_OP_CONJ)
            return CUTENSOR_STATUS_NOT_SUPPORTED;
    }
    for (int i = 0; i < 2; i++) d.binary[i] = binaries ? binaries[i] : CUTENSOR_OP_ADD;
    const tensor *const out = &d.t[n - 1];
    for (int m = 0; m < MODES; m++) {
        int seen = 0, kept = 0;
        for (int i = 0; i < n - 1; i++)
            for (int j = 0; j < d.t[i].n; j++) seen += d.t[i].mode[j] == m && !(i == n - 2 && n > 2);
        for (int j = 0; j < out->n; j++) kept |= out->mode[j] == m;
        const int elementwise = operation >= ATOMR_TENSOR_PERMUTE;
        if (elementwise && seen && !kept) return CUTENSOR_STATUS_NOT_SUPPORTED;
        if (!elementwise && kept && !seen) return CUTENSOR_STATUS_NOT_SUPPORTED;
        if (operation <= ATOMR_TENSOR_CONTRACT_TRINARY && seen == 1 && !kept) return CUTENSOR_STATUS_NOT_SUPPORTED;
    }
    /* Types of products and reductions are one, but for real matrices beside complex ones; the compute type fits it. */
    const cudaDataType_t type = out->type;
    int wide = type == CUDA_R_64F || type == CUDA_C_64F;
    for (int i = 0; i < n - 1; i++) {
        if (d.t[i].type != type && operation != ATOMR_TENSOR_PERMUTE) return CUTENSOR_STATUS_NOT_SUPPORTED;
        if (is_complex(d.t[i].type) != is_complex(type)) return CUTENSOR_STATUS_NOT_SUPPORTED;
        wide |= d.t[i].type == CUDA_R_64F || d.t[i].type == CUDA_C_64F;
    }
    const char *const name = compute->name;
    const int for_wide = !strcmp(name, "64F") || !strcmp(name, "8XINT8"), every = !strcmp(name, "32F");
    if (operation <= ATOMR_TENSOR_CONTRACT_TRINARY ? wide != for_wide : wide ? strcmp(name, "64F") != 0 : !every)
        return CUTENSOR_STATUS_NOT_SUPPORTED;
    if (size_of(type) == 2 && !every) return CUTENSOR_STATUS_NOT_SUPPORTED;
    d.scalar = is_complex(type) ? (wide ? CUDA_C_64F : CUDA_C_32F) : wide ? CUDA_R_64F : CUDA_R_32F;
    *made = malloc(sizeof **made);
    if (!*made) return CUTENSOR_STATUS_ALLOC_FAILED;
    **made = d;
    return 0;
}

#define PART(X) {desc##X, mode##X}
cutensorStatus_t cutensorCreateContraction(const cutensorHandle_t handle, cutensorOperationDescriptor_t *desc,
                                           const cutensorTensorDescriptor_t descA, const int32_t modeA[], cutensorOperator_t opA,
                                           const cutensorTensorDescriptor_t descB, const int32_t modeB[], cutensorOperator_t opB,
                                           const cutensorTensorDescriptor_t descC, const int32_t modeC[], cutensorOperator_t opC,
                                           const cutensorTensorDescriptor_t descD, const int32_t modeD[],
                                           const cutensorComputeDescriptor_t descCompute) {
    (void)handle;
    const part parts[] = {PART(A), PART(B), PART(C), PART(D)};
    const cutensorOperator_t unaries[] = {opA, opB, opC};
    return make(desc, ATOMR_TENSOR_CONTRACT, 4, parts, unaries, NULL, descCompute);
}
cutensorStatus_t cutensorCreateContractionTrinary(
    const cutensorHandle_t handle, cutensorOperationDescriptor_t *desc, const cutensorTensorDescriptor_t descA,
    const int32_t modeA[], cutensorOperator_t opA, const cutensorTensorDescriptor_t descB, const int32_t modeB[],
    cutensorOperator_t opB, const cutensorTensorDescriptor_t descC, const int32_t modeC[], cutensorOperator_t opC,
    const cutensorTensorDescriptor_t descD, const int32_t modeD[], cutensorOperator_t opD,
    const cutensorTensorDescriptor_t descE, const int32_t modeE[], const cutensorComputeDescriptor_t descCompute) {
    (void)handle;
    const part parts[] = {PART(A), PART(B), PART(C), PART(D), PART(E)};
    const cutensorOperator_t unaries[] = {opA, opB, opC, opD};
    return make(desc, ATOMR_TENSOR_CONTRACT_TRINARY, 5, parts, unaries, NULL, descCompute);
}
cutensorStatus_t cutensorCreateReduction(const cutensorHandle_t handle, cutensorOperationDescriptor_t *desc,
                                         const cutensorTensorDescriptor_t descA, const int32_t modeA[], cutensorOperator_t opA,
                                         const cutensorTensorDescriptor_t descC, const int32_t modeC[], cutensorOperator_t opC,
                                         const cutensorTensorDescriptor_t descD, const int32_t modeD[],
                                         cutensorOperator_t opReduce, const cutensorComputeDescriptor_t descCompute) {
    (void)handle;
    const part parts[] = {PART(A), PART(C), PART(D)};
    const cutensorOperator_t unaries[] = {opA, opC}, binaries[] = {opReduce, CUTENSOR_OP_ADD};
    return make(desc, ATOMR_TENSOR_REDUCE, 3, parts, unaries, binaries, descCompute);
}
cutensorStatus_t cutensorCreatePermutation(const cutensorHandle_t handle, cutensorOperationDescriptor_t *desc,
                                           const cutensorTensorDescriptor_t descA, const int32_t modeA[], cutensorOperator_t opA,
                                           const cutensorTensorDescriptor_t descB, const int32_t modeB[],
                                           const cutensorComputeDescriptor_t descCompute) {
    (void)handle;
    const part parts[] = {PART(A), PART(B)};
    return make(desc, ATOMR_TENSOR_PERMUTE, 2, parts, &opA, NULL, descCompute);
}
cutensorStatus_t cutensorCreateElementwiseBinary(const cutensorHandle_t handle, cutensorOperationDescriptor_t *desc,
                                                 const cutensorTensorDescriptor_t descA, const int32_t modeA[],
                                                 cutensorOperator_t opA, const cutensorTensorDescriptor_t descC,
                                                 const int32_t modeC[], cutensorOperator_t opC,
                                                 const cutensorTensorDescriptor_t descD, const int32_t modeD[],
                                                 cutensorOperator_t opAC, const cutensorComputeDescriptor_t descCompute) {
    (void)handle;
    const part parts[] = {PART(A), PART(C), PART(D)};
    const cutensorOperator_t unaries[] = {opA, opC}, binaries[] = {opAC, CUTENSOR_OP_ADD};
    return make(desc, ATOMR_TENSOR_BINARY, 3, parts, unaries, binaries, descCompute);
}
cutensorStatus_t cutensorCreateElementwiseTrinary(
    const cutensorHandle_t handle, cutensorOperationDescriptor_t *desc, const cutensorTensorDescriptor_t descA,
    const int32_t modeA[], cutensorOperator_t opA, const cutensorTensorDescriptor_t descB, const int32_t modeB[],
    cutensorOperator_t opB, const cutensorTensorDescriptor_t descC, const int32_t modeC[], cutensorOperator_t opC,
    const cutensorTensorDescriptor_t descD, const int32_t modeD[], cutensorOperator_t opAB, cutensorOperator_t opABC,
    const cutensorComputeDescriptor_t descCompute) {
    (void)handle;
    const part parts[] = {PART(A), PART(B), PART(C), PART(D)};
    const cutensorOperator_t unaries[] = {opA, opB, opC}, binaries[] = {opAB, opABC};
    return make(desc, ATOMR_TENSOR_TRINARY, 4, parts, unaries, binaries, descCompute);
}
cutensorStatus_t cutensorDestroyOperationDescriptor(cutensorOperationDescriptor_t desc) {
    fake_blocks_drop(desc->blocks);
    free(desc);
    return 0;
}
cutensorStatus_t fake_blocks_operation(cutensorOperationDescriptor_t *made, fake_blocks *blocks, cudaDataType_t scalar) {
    const struct cutensorOperationDescriptor d = {.operation = -1, .scalar = scalar, .blocks = blocks};
    *made = malloc(sizeof **made);
    if (!*made) return CUTENSOR_STATUS_ALLOC_FAILED;
    **made = d;
    return 0;
}
cutensorStatus_t cutensorOperationDescriptorSetAttribute(const cutensorHandle_t handle, cutensorOperationDescriptor_t desc,
                                                         cutensorOperationDescriptorAttribute_t attr, const void *buf,
                                                         size_t sizeInBytes) {
    (void)handle;
    const CUresult refusal = fake_refusal(__func__);
    if (refusal) return (cutensorStatus_t)refusal;
    if (attr != CUTENSOR_OPERATION_DESCRIPTOR_BLOCKSPARSE_REPRODUCIBLE || sizeInBytes != sizeof desc->repeats || !desc->blocks)
        return CUTENSOR_STATUS_INVALID_VALUE;
    memcpy(&desc->repeats, buf, sizeInBytes);
    return 0;
}
cutensorStatus_t cutensorOperationDescriptorGetAttribute(const cutensorHandle_t handle, cutensorOperationDescriptor_t desc,
                                                         cutensorOperationDescriptorAttribute_t attr, void *buf,
                                                         size_t sizeInBytes) {
    (void)handle;
    if (attr != CUTENSOR_OPERATION_DESCRIPTOR_SCALAR_TYPE || sizeInBytes != sizeof desc->scalar)
        return CUTENSOR_STATUS_INVALID_VALUE;
    memcpy(buf, &desc->scalar, sizeInBytes);
    return 0;
}

/* ---- Plans. */

cutensorStatus_t cutensorCreatePlanPreference(const cutensorHandle_t handle, cutensorPlanPreference_t *pref,
                                              cutensorAlgo_t algo, cutensorJitMode_t jitMode) {
    (void)handle;
    *pref = malloc(sizeof **pref);
    if (!*pref) return CUTENSOR_STATUS_ALLOC_FAILED;
    (*pref)->algo = algo;
    (*pref)->jit = jitMode;
    (*pref)->rank = -1;
    return 0;
}
cutensorStatus_t cutensorPlanPreferenceSetAttribute(const cutensorHandle_t handle, cutensorPlanPreference_t pref,
                                                    cutensorPlanPreferenceAttribute_t attr, const void *buf, size_t sizeInBytes) {
    (void)handle;
    if (attr != CUTENSOR_PLAN_PREFERENCE_KERNEL_RANK || sizeInBytes != sizeof pref->rank) return CUTENSOR_STATUS_INVALID_VALUE;
    memcpy(&pref->rank, buf, sizeInBytes);
    return 0;
}
cutensorStatus_t cutensorDestroyPlanPreference(cutensorPlanPreference_t pref) {
    free(pref);
    return 0;
}
static uint64_t wants(const struct cutensorOperationDescriptor *d, uint64_t nbytes) {
    return d->operation <= ATOMR_TENSOR_REDUCE ? nbytes : 0;
}
/* The bytes of all tensors, of which the last is the one before it. */
static uint64_t copies(const struct cutensorOperationDescriptor *d) {
    uint64_t nbytes = 0;
    for (int i = 0; i < d->n; i++) {
        uint64_t own = i == d->n - 2 ? 0 : size_of(d->t[i].type);
        for (int j = 0; j < d->t[i].n; j++) own *= (uint64_t)d->t[i].extent[j];
        nbytes += (own + 255) / 256 * 256;
    }
    return nbytes;
}
/* ---- Kernels that are compiled at run time: numbers of the contractions for which they are, and a file of these.  What
 * is compiled is noted in the file $FAKE_CUDA_TENSOR_COMPILED, a number a line. */
enum { COMPILED = 256, HEAD = 0x72656e6b };
static uint32_t compiled[COMPILED];
static int n_compiled;
static pthread_mutex_t compiling = PTHREAD_MUTEX_INITIALIZER;

static int know(uint32_t number) {
    for (int i = 0; i < n_compiled; i++)
        if (compiled[i] == number) return 1;
    if (n_compiled < COMPILED) compiled[n_compiled++] = number;
    return 0;
}
static void compile(const struct cutensorOperationDescriptor *d) {
    uint32_t number = 2166136261u;
    for (int i = 0; i < d->n; i++)
        for (int j = 0; j < d->t[i].n; j++)
            number = (number ^ (uint32_t)(d->t[i].extent[j] * 31 + d->t[i].stride[j] * 7 + d->t[i].mode[j])) * 16777619u;
    const char *const log = getenv("FAKE_CUDA_TENSOR_COMPILED");
    pthread_mutex_lock(&compiling);
    FILE *const file = !know(number) && log ? fopen(log, "a") : NULL;
    if (file) {
        fprintf(file, "%u\n", number);
        fclose(file);
    }
    pthread_mutex_unlock(&compiling);
}
cutensorStatus_t cutensorWriteKernelCacheToFile(const cutensorHandle_t handle, const char filename[]) {
    (void)handle;
    const uint32_t head = HEAD;
    FILE *const file = fopen(filename, "wb");
    if (!file) return CUTENSOR_STATUS_IO_ERROR;
    pthread_mutex_lock(&compiling);
    fwrite(&head, sizeof head, 1, file);
    fwrite(compiled, sizeof *compiled, (size_t)n_compiled, file);
    pthread_mutex_unlock(&compiling);
    return fclose(file) ? CUTENSOR_STATUS_IO_ERROR : CUTENSOR_STATUS_SUCCESS;
}
cutensorStatus_t cutensorReadKernelCacheFromFile(cutensorHandle_t handle, const char filename[]) {
    (void)handle;
    const CUresult refusal = fake_refusal(__func__);
    if (refusal) return (cutensorStatus_t)refusal;
    uint32_t word = 0;
    FILE *const file = fopen(filename, "rb");
    if (!file) return CUTENSOR_STATUS_IO_ERROR;
    const int good = fread(&word, sizeof word, 1, file) == 1 && word == HEAD;
    pthread_mutex_lock(&compiling);
    while (good && fread(&word, sizeof word, 1, file) == 1) know(word);
    pthread_mutex_unlock(&compiling);
    fclose(file);
    return good ? CUTENSOR_STATUS_SUCCESS : CUTENSOR_STATUS_INVALID_VALUE;
}

cutensorStatus_t cutensorEstimateWorkspaceSize(const cutensorHandle_t handle, const cutensorOperationDescriptor_t desc,
                                               const cutensorPlanPreference_t planPref,
                                               const cutensorWorksizePreference_t workspacePref,
                                               uint64_t *workspaceSizeEstimate) {
    (void)handle, (void)planPref, (void)workspacePref;
    *workspaceSizeEstimate = desc->blocks ? fake_blocks_workspace(desc->blocks) : wants(desc, USUAL);
    return 0;
}
cutensorStatus_t cutensorCreatePlan(const cutensorHandle_t handle, cutensorPlan_t *plan,
                                    const cutensorOperationDescriptor_t desc, const cutensorPlanPreference_t pref,
                                    uint64_t workspaceSizeLimit) {
    (void)handle;
    const CUresult refusal = fake_refusal(__func__);
    if (refusal) return (cutensorStatus_t)refusal;
    const int is_product = desc->operation == ATOMR_TENSOR_CONTRACT;
    if (pref->algo < CUTENSOR_ALGO_DEFAULT && (!is_product || pref->algo == CUTENSOR_ALGO_TGETT)) return CUTENSOR_STATUS_NOT_SUPPORTED;
    if (pref->rank >= KERNELS) return CUTENSOR_STATUS_NOT_SUPPORTED; /* an algorithm has a few kernels */
    for (int i = 0; is_product && pref->rank >= 0 && i < desc->n; i++)
        if (desc->t[i].alignment < LOADED) return CUTENSOR_STATUS_NOT_SUPPORTED; /* they load so many bytes at once */
    if (desc->blocks && workspaceSizeLimit < fake_blocks_workspace(desc->blocks)) return CUTENSOR_STATUS_INSUFFICIENT_WORKSPACE;
    if (workspaceSizeLimit < wants(desc, LEAST)) return CUTENSOR_STATUS_INSUFFICIENT_WORKSPACE;
    if (pref->jit != CUTENSOR_JIT_MODE_NONE) {
        if (!is_product || pref->algo != CUTENSOR_ALGO_DEFAULT) return CUTENSOR_STATUS_NOT_SUPPORTED;
        compile(desc);
    }
    *plan = malloc(sizeof **plan);
    if (!*plan) return CUTENSOR_STATUS_ALLOC_FAILED;
    (*plan)->as = *desc;
    fake_blocks_share(desc->blocks);
    (*plan)->workspace = wants(desc, workspaceSizeLimit < USUAL ? LEAST : USUAL);
    if (desc->blocks) (*plan)->workspace = fake_blocks_workspace(desc->blocks);
    const uint64_t most = copies(desc);
    if (is_product && pref->rank == 0 && most > USUAL && most <= workspaceSizeLimit) (*plan)->workspace = most;
    fake_tensor_plans++;
    return 0;
}
fake_blocks *fake_plan_blocks(cutensorPlan_t plan) { return plan->as.blocks; }
int fake_plan_repeats(cutensorPlan_t plan) { return plan->as.repeats != 0; }
cutensorStatus_t cutensorDestroyPlan(cutensorPlan_t plan) {
    fake_tensor_plans--;
    fake_blocks_drop(plan->as.blocks);
    free(plan);
    return 0;
}
cutensorStatus_t cutensorPlanGetAttribute(const cutensorHandle_t handle, const cutensorPlan_t plan, cutensorPlanAttribute_t attr,
                                          void *buf, size_t sizeInBytes) {
    (void)handle;
    if (attr != CUTENSOR_PLAN_REQUIRED_WORKSPACE || sizeInBytes != sizeof plan->workspace) return CUTENSOR_STATUS_INVALID_VALUE;
    memcpy(buf, &plan->workspace, sizeInBytes);
    return 0;
}

static cutensorStatus_t enqueue(const char *function, cutensorPlan_t plan, int operation, const void *const *factors,
                                const void *const *at, void *workspace, uint64_t nbytes, cudaStream_t stream) {
    const CUresult refusal = fake_refusal(function);
    if (refusal) return (cutensorStatus_t)refusal;
    noted c = {.plan = *plan, .workspace = plan->workspace ? workspace : NULL};
    if (plan->as.operation != operation || !stream) return CUTENSOR_STATUS_INVALID_VALUE;
    if (plan->workspace && (!workspace || nbytes < plan->workspace)) return CUTENSOR_STATUS_INSUFFICIENT_WORKSPACE;
    if ((uintptr_t)c.workspace % 256) return CUTENSOR_STATUS_INVALID_VALUE;
    for (int i = 0; i < plan->as.n; i++) {
        c.at[i] = (void *)(uintptr_t)at[i];
        if ((uintptr_t)at[i] % plan->as.t[i].alignment) return CUTENSOR_STATUS_INVALID_VALUE;
    }
    for (int i = 0; i < 3; i++)
        if (factors[i]) c.factor[i] = get(plan->as.scalar, factors[i], 0);
    return fake_enqueue(stream, run, &c, sizeof c, 0) ? CUTENSOR_STATUS_EXECUTION_FAILED : 0;
}
#define RUN(operation, alpha, beta, gamma, workspace, nbytes, ...)                                                     \
    enqueue(__func__, plan, operation, (const void *const[]){alpha, beta, gamma}, (const void *const[]){__VA_ARGS__},  \
            workspace, nbytes, stream)

cutensorStatus_t cutensorContract(const cutensorHandle_t handle, const cutensorPlan_t plan, const void *alpha, const void *A,
                                  const void *B, const void *beta, const void *C, void *D, void *workspace,
                                  uint64_t workspaceSize, cudaStream_t stream) {
    (void)handle;
    return RUN(ATOMR_TENSOR_CONTRACT, alpha, beta, NULL, workspace, workspaceSize, A, B, C, D);
}
cutensorStatus_t cutensorContractTrinary(const cutensorHandle_t handle, const cutensorPlan_t plan, const void *alpha,
                                         const void *A, const void *B, const void *C, const void *beta, const void *D, void *E,
                                         void *workspace, uint64_t workspaceSize, cudaStream_t stream) {
    (void)handle;
    return RUN(ATOMR_TENSOR_CONTRACT_TRINARY, alpha, beta, NULL, workspace, workspaceSize, A, B, C, D, E);
}
cutensorStatus_t cutensorReduce(const cutensorHandle_t handle, const cutensorPlan_t plan, const void *alpha, const void *A,
                                const void *beta, const void *C, void *D, void *workspace, uint64_t workspaceSize,
                                cudaStream_t stream) {
    (void)handle;
    return RUN(ATOMR_TENSOR_REDUCE, alpha, beta, NULL, workspace, workspaceSize, A, C, D);
}
cutensorStatus_t cutensorPermute(const cutensorHandle_t handle, const cutensorPlan_t plan, const void *alpha, const void *A,
                                 void *B, const cudaStream_t stream) {
    (void)handle;
    return RUN(ATOMR_TENSOR_PERMUTE, alpha, NULL, NULL, NULL, 0, A, B);
}
cutensorStatus_t cutensorElementwiseBinaryExecute(const cutensorHandle_t handle, const cutensorPlan_t plan, const void *alpha,
                                                  const void *A, const void *gamma, const void *C, void *D,
                                                  cudaStream_t stream) {
    (void)handle;
    return RUN(ATOMR_TENSOR_BINARY, alpha, gamma, NULL, NULL, 0, A, C, D);
}
cutensorStatus_t cutensorElementwiseTrinaryExecute(const cutensorHandle_t handle, const cutensorPlan_t plan, const void *alpha,
                                                   const void *A, const void *beta, const void *B, const void *gamma,
                                                   const void *C, void *D, cudaStream_t stream) {
    (void)handle;
    return RUN(ATOMR_TENSOR_TRINARY, alpha, beta, gamma, NULL, 0, A, B, C, D);
}
