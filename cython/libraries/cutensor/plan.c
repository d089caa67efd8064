#include "libraries/cutensor/plan.h"

#include "libraries/cutensor/handle.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/failure.h"

const atomr_field atomr_tensor_fields[] = {
    ATOMR_TENSOR_FIELDS(ATOMR_MEMBER_NAME, ATOMR_ARRAY_NAME) ATOMR_LAST_FIELD};

const atomr_constant atomr_tensor_constants[] = {
    ATOMR_CUTENSOR_CONSTANTS(ATOMR_CONSTANT) ATOMR_TENSOR_CONSTANTS(ATOMR_CONSTANT) ATOMR_LAST_CONSTANT};

/* Bytes at whose multiples operands start, as a plan is promised: as the allocator places them, as most parts of them
 * lie, and any others.  With the first the library may choose kernels that load most at once. */
static const uint64_t alignments[] = {256, 16, 1};
enum { ALIGNMENTS = sizeof alignments / sizeof *alignments };

struct atomr_tensor_plan {
    const atomr_cutensor_table *t;
    atomr_cuda *cuda;
    cutensorHandle_t handle;
    atomr_tensor_spec spec;
    cudaDataType_t scale;
    int n; /* tensors */
    struct {
        uint64_t workspace; /* bytes */
        cutensorPlan_t plan;
    } choices[ALIGNMENTS];
};

/* ---- Making plans. */

static int tensors_of(int64_t operation) {
    static const int counts[] = {[ATOMR_TENSOR_CONTRACT] = 4, [ATOMR_TENSOR_CONTRACT_TRINARY] = 5,
                                 [ATOMR_TENSOR_REDUCE] = 3,   [ATOMR_TENSOR_PERMUTE] = 2,
                                 [ATOMR_TENSOR_BINARY] = 3,   [ATOMR_TENSOR_TRINARY] = 4};
    return operation >= ATOMR_TENSOR_CONTRACT && operation <= ATOMR_TENSOR_TRINARY ? counts[operation] : 0;
}

static int malformed(const atomr_tensor_spec *s) {
    const int n = tensors_of(s->operation);
    int good = n > 0 && s->n_modes >= 0 && s->n_modes <= ATOMR_TENSOR_MODES && s->workspace_bytes >= 0 && s->asked_bytes >= 0;
    good = good && s->algo >= CUTENSOR_ALGO_DEFAULT_PATIENT && s->algo <= CUTENSOR_ALGO_DEFAULT && s->rank >= -1;
    good = good && (s->jit == 0 || s->jit == 1);
    good = good && s->rank <= INT32_MAX && s->compute >= ATOMR_TENSOR_16F && s->compute <= ATOMR_TENSOR_4X16F;
    for (int t = 0; good && t < n; t++) {
        good = s->count[t] >= 0 && s->count[t] <= s->n_modes && s->operand[t] >= 0 && s->operand[t] < s->n_operands &&
               s->itemsize[t] >= 1 && s->offset[t] >= 0;
        for (int64_t i = 0; good && i < s->count[t]; i++) {
            const int64_t at = t * ATOMR_TENSOR_MODES + i;
            good = s->mode[at] >= 0 && s->mode[at] < s->n_modes;
        }
    }
    for (int i = 0; i < 6; i++) good = good && s->factor[i] >= -1 && s->factor[i] < s->n_scalars;
    return !good;
}

static const char *const compute_names[] = {
    "CUTENSOR_COMPUTE_DESC_16F",    "CUTENSOR_COMPUTE_DESC_16BF", "CUTENSOR_COMPUTE_DESC_TF32",
    "CUTENSOR_COMPUTE_DESC_3XTF32", "CUTENSOR_COMPUTE_DESC_32F",  "CUTENSOR_COMPUTE_DESC_64F",
    "CUTENSOR_COMPUTE_DESC_9X16BF", "CUTENSOR_COMPUTE_DESC_8XINT8", "CUTENSOR_COMPUTE_DESC_4X16F"};

/* The versions from which on it has them, of those that not all allowed versions have. */
static const char *since(int64_t compute) {
    switch (compute) {
    case ATOMR_TENSOR_9X16BF: return "2.2.1 or later";
    case ATOMR_TENSOR_8XINT8: return "2.4 or later";
    default: return "a later version";
    }
}

/* A tensor's descriptor, and its modes. */
static cutensorStatus_t describe(const atomr_tensor_plan *p, int t, uint64_t alignment, cutensorTensorDescriptor_t *made,
                                 int32_t *modes) {
    const atomr_tensor_spec *const s = &p->spec;
    int64_t extents[ATOMR_TENSOR_MODES], strides[ATOMR_TENSOR_MODES];
    for (int64_t i = 0; i < s->count[t]; i++) {
        const int64_t at = t * ATOMR_TENSOR_MODES + i;
        modes[i] = (int32_t)s->mode[at];
        extents[i] = s->extent[s->mode[at]];
        strides[i] = s->stride[at];
    }
    if (alignment < (uint64_t)s->itemsize[t]) alignment = (uint64_t)s->itemsize[t];
    return p->t->cutensorCreateTensorDescriptor(p->handle, made, (uint32_t)s->count[t], extents, strides,
                                                (cudaDataType_t)s->type[t], (uint32_t)alignment);
}

/* The operation's descriptor.  The last input has the result's. */
static cutensorStatus_t describe_operation(const atomr_tensor_plan *p, const cutensorTensorDescriptor_t *d,
                                           int32_t (*m)[ATOMR_TENSOR_MODES], cutensorComputeDescriptor_t compute,
                                           cutensorOperationDescriptor_t *made) {
    const atomr_cutensor_table *const t = p->t;
    const cutensorHandle_t h = p->handle;
    cutensorOperator_t u[4], b[2];
    for (int i = 0; i < 4; i++) u[i] = (cutensorOperator_t)p->spec.unary[i];
    for (int i = 0; i < 2; i++) b[i] = (cutensorOperator_t)p->spec.binary[i];
    switch (p->spec.operation) {
    case ATOMR_TENSOR_CONTRACT:
        return t->cutensorCreateContraction(h, made, d[0], m[0], u[0], d[1], m[1], u[1], d[3], m[3], u[2], d[3], m[3],
                                            compute);
    case ATOMR_TENSOR_CONTRACT_TRINARY:
        return t->cutensorCreateContractionTrinary(h, made, d[0], m[0], u[0], d[1], m[1], u[1], d[2], m[2], u[2], d[4],
                                                   m[4], u[3], d[4], m[4], compute);
    case ATOMR_TENSOR_REDUCE:
        return t->cutensorCreateReduction(h, made, d[0], m[0], u[0], d[2], m[2], u[1], d[2], m[2], b[0], compute);
    case ATOMR_TENSOR_PERMUTE: return t->cutensorCreatePermutation(h, made, d[0], m[0], u[0], d[1], m[1], compute);
    case ATOMR_TENSOR_BINARY:
        return t->cutensorCreateElementwiseBinary(h, made, d[0], m[0], u[0], d[2], m[2], u[1], d[2], m[2], b[0], compute);
    default:
        return t->cutensorCreateElementwiseTrinary(h, made, d[0], m[0], u[0], d[1], m[1], u[1], d[3], m[3], u[2], d[3],
                                                   m[3], b[0], b[1], compute);
    }
}

/* The plan for operands that start at multiples of `alignments[i]` bytes, by the kernel of this rank among those that do
 * with `limit` bytes of workspace. */
static int choose(atomr_tensor_plan *p, int i, int64_t named, uint64_t limit, cutensorComputeDescriptor_t compute,
                  atomr_failure *failure) {
    const atomr_cutensor_table *const t = p->t;
    cutensorTensorDescriptor_t tensors[ATOMR_TENSORS] = {NULL};
    int32_t modes[ATOMR_TENSORS][ATOMR_TENSOR_MODES];
    cutensorOperationDescriptor_t operation = NULL;
    cutensorPlanPreference_t preference = NULL;
    const char *what = "cutensorCreateTensorDescriptor";
    cutensorStatus_t status = CUTENSOR_STATUS_SUCCESS;
    for (int n = 0; n < p->n && status == CUTENSOR_STATUS_SUCCESS; n++)
        status = describe(p, n, alignments[i], &tensors[n], modes[n]);
    if (status == CUTENSOR_STATUS_SUCCESS) {
        what = "creating an operation";
        status = describe_operation(p, tensors, modes, compute, &operation);
    }
    if (status == CUTENSOR_STATUS_SUCCESS) {
        what = "reading the type of scalars";
        status = t->cutensorOperationDescriptorGetAttribute(p->handle, operation, CUTENSOR_OPERATION_DESCRIPTOR_SCALAR_TYPE,
                                                            &p->scale, sizeof p->scale);
    }
    if (status == CUTENSOR_STATUS_SUCCESS) {
        what = "cutensorCreatePlanPreference";
        status = t->cutensorCreatePlanPreference(p->handle, &preference, (cutensorAlgo_t)p->spec.algo,
                                                 p->spec.jit && i == 0 ? CUTENSOR_JIT_MODE_DEFAULT
                                                                       : CUTENSOR_JIT_MODE_NONE);
    }
    if (status == CUTENSOR_STATUS_SUCCESS && named >= 0) {
        const int32_t rank = (int32_t)named;
        what = "choosing a kernel";
        status = t->cutensorPlanPreferenceSetAttribute(p->handle, preference, CUTENSOR_PLAN_PREFERENCE_KERNEL_RANK, &rank,
                                                       sizeof rank);
    }
    if (status == CUTENSOR_STATUS_SUCCESS) { /* its model weighs all kernels that fit; the estimate would leave some out */
        what = "cutensorCreatePlan";
        status = t->cutensorCreatePlan(p->handle, &p->choices[i].plan, operation, preference, limit);
    }
    if (status == CUTENSOR_STATUS_SUCCESS) {
        what = "reading a plan's workspace";
        status = t->cutensorPlanGetAttribute(p->handle, p->choices[i].plan, CUTENSOR_PLAN_REQUIRED_WORKSPACE,
                                             &p->choices[i].workspace, sizeof p->choices[i].workspace);
    }
    if (preference) t->cutensorDestroyPlanPreference(preference);
    if (operation) t->cutensorDestroyOperationDescriptor(operation);
    for (int n = 0; n < p->n; n++)
        if (tensors[n]) t->cutensorDestroyTensorDescriptor(tensors[n]);
    return status == CUTENSOR_STATUS_SUCCESS ? ATOMR_OK : atomr_tensor_fail(status, what, failure);
}

/* The same by what the library may ask for, and where that is more than the plan may want, by the latter. */
static int choose_within(atomr_tensor_plan *p, int i, int64_t named, cutensorComputeDescriptor_t compute,
                         atomr_failure *failure) {
    const uint64_t limit = (uint64_t)p->spec.workspace_bytes, asked = (uint64_t)p->spec.asked_bytes;
    if (asked > limit) {
        const int code = choose(p, i, named, asked, compute, failure);
        if (code != ATOMR_UNSUPPORTED && (code != ATOMR_OK || p->choices[i].workspace <= limit)) return code;
        if (p->choices[i].plan) p->t->cutensorDestroyPlan(p->choices[i].plan);
        p->choices[i].plan = NULL;
        p->choices[i].workspace = 0;
        memset(failure, 0, sizeof *failure);
    }
    return choose(p, i, named, limit, compute, failure);
}

int atomr_tensor_new(atomr_cuda *cuda, const atomr_tensor_spec *spec, atomr_tensor_plan **made, atomr_failure *failure) {
    if (malformed(spec)) return atomr_refused(failure, ATOMR_INVALID_REQUEST, "a call of cuTENSOR is malformed");
    const atomr_tensor_owner *o = NULL;
    int code = atomr_tensor_handle(cuda, &o, failure);
    if (code != ATOMR_OK) return code;
    const cutensorComputeDescriptor_t compute = atomr_cutensor_compute(compute_names[spec->compute]);
    if (!compute)
        return atomr_unsupported(failure, "tensor", "compute", "cuTENSOR %zu.%zu.%zu has no compute type %s; allowed: %s",
                                 atomr_cutensor_library.version / 10000, atomr_cutensor_library.version / 100 % 100,
                                 atomr_cutensor_library.version % 100, compute_names[spec->compute],
                                 since(spec->compute));
    atomr_tensor_plan *const p = calloc(1, sizeof *p);
    if (!p) return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "no host memory for a plan of cuTENSOR");
    p->t = o->t;
    p->handle = o->handle;
    p->cuda = cuda;
    p->spec = *spec;
    p->n = tensors_of(spec->operation);
    for (int i = 0; i < ALIGNMENTS && code == ATOMR_OK; i++) {
        code = choose_within(p, i, spec->rank, compute, failure);
        if (code == ATOMR_UNSUPPORTED && i > 0 && spec->rank >= 0) { /* a kernel that aligned operands have */
            memset(failure, 0, sizeof *failure);
            code = choose_within(p, i, -1, compute, failure);
        }
    }
    if (code != ATOMR_OK) {
        atomr_tensor_delete(p);
        return code;
    }
    *made = p;
    return ATOMR_OK;
}

uint64_t atomr_tensor_workspace(const atomr_tensor_plan *p) {
    uint64_t most = 0;
    for (int i = 0; i < ALIGNMENTS; i++)
        if (p->choices[i].workspace > most) most = p->choices[i].workspace;
    return most;
}

void atomr_tensor_delete(atomr_tensor_plan *p) {
    if (!p) return;
    if (atomr_cuda_enter(p->cuda) == CUDA_SUCCESS)
        for (int i = 0; i < ALIGNMENTS; i++)
            if (p->choices[i].plan) p->t->cutensorDestroyPlan(p->choices[i].plan);
    free(p);
}

/* ---- Kernels that were compiled for plans; they belong to the library, whatever the handle. */

int atomr_tensor_kernels(atomr_cuda *cuda, const char *path, int write, atomr_failure *failure) {
    const atomr_tensor_owner *o = NULL;
    const int code = atomr_tensor_handle(cuda, &o, failure);
    if (code != ATOMR_OK) return code;
    const cutensorStatus_t status = write ? o->t->cutensorWriteKernelCacheToFile(o->handle, path)
                                          : o->t->cutensorReadKernelCacheFromFile(o->handle, path);
    if (status == CUTENSOR_STATUS_SUCCESS) return ATOMR_OK;
    if (status == CUTENSOR_STATUS_IO_ERROR || status == CUTENSOR_STATUS_INVALID_VALUE)
        return atomr_unsupported(failure, "tensor", "kernels", "cuTENSOR does not %s compiled kernels: %s",
                                 write ? "write" : "read", atomr_tensor_status(status));
    return atomr_tensor_fail(status, write ? "cutensorWriteKernelCacheToFile" : "cutensorReadKernelCacheFromFile", failure);
}

/* ---- Running them. */

static double value_of(const atomr_tensor_plan *p, const atomr_call *call, int i) {
    double value = i < 3 ? (double)p->spec.number[i] : 0;
    if (p->spec.factor[i] >= 0) memcpy(&value, &call->scalars[p->spec.factor[i]], sizeof value);
    return value;
}

static atomr_tensor_factor factor_of(const atomr_tensor_plan *p, const atomr_call *call, int i) {
    return atomr_tensor_scaled(p->scale, value_of(p, call, i), value_of(p, call, i + 3));
}

int atomr_tensor_run(void *context, const atomr_call *call, atomr_failure *failure) {
    const atomr_tensor_plan *const p = context;
    const atomr_cutensor_table *const t = p->t;
    void *at[ATOMR_TENSORS];
    uint64_t bits = 0;
    for (int i = 0; i < p->n; i++) {
        at[i] = (char *)call->pointers[p->spec.operand[i]] + p->spec.offset[i];
        bits |= (uint64_t)(uintptr_t)at[i];
    }
    int i = 0;
    while (bits & (alignments[i] - 1)) i++;
    const cutensorPlan_t plan = p->choices[i].plan;
    const uint64_t nbytes = p->choices[i].workspace;
    if (nbytes > call->workspace_bytes)
        return atomr_refused(failure, ATOMR_INVALID_REQUEST, "the lane has a workspace of %llu bytes, and cuTENSOR needs %llu",
                             (unsigned long long)call->workspace_bytes, (unsigned long long)nbytes);
    const CUstream stream = atomr_cuda_stream(p->cuda, call->lane);
    if (!stream) /* NULL would be the default stream, which orders with nothing of ours */
        return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cuda", atomr_cuda_error(p->cuda), "", "the lane has no stream");
    void *const workspace = nbytes ? call->workspace : NULL;
    const atomr_tensor_factor alpha = factor_of(p, call, 0), beta = factor_of(p, call, 1), gamma = factor_of(p, call, 2);
    cutensorStatus_t status;
    switch (p->spec.operation) {
    case ATOMR_TENSOR_CONTRACT:
        status = t->cutensorContract(p->handle, plan, &alpha, at[0], at[1], &beta, at[2], at[3], workspace, nbytes, stream);
        break;
    case ATOMR_TENSOR_CONTRACT_TRINARY:
        status = t->cutensorContractTrinary(p->handle, plan, &alpha, at[0], at[1], at[2], &beta, at[3], at[4], workspace,
                                            nbytes, stream);
        break;
    case ATOMR_TENSOR_REDUCE:
        status = t->cutensorReduce(p->handle, plan, &alpha, at[0], &beta, at[1], at[2], workspace, nbytes, stream);
        break;
    case ATOMR_TENSOR_PERMUTE: status = t->cutensorPermute(p->handle, plan, &alpha, at[0], at[1], stream); break;
    case ATOMR_TENSOR_BINARY:
        status = t->cutensorElementwiseBinaryExecute(p->handle, plan, &alpha, at[0], &beta, at[1], at[2], stream);
        break;
    default:
        status = t->cutensorElementwiseTrinaryExecute(p->handle, plan, &alpha, at[0], &beta, at[1], &gamma, at[2], at[3],
                                                      stream);
    }
    return status == CUTENSOR_STATUS_SUCCESS ? ATOMR_OK : atomr_tensor_fail(status, "running a plan of cuTENSOR", failure);
}
