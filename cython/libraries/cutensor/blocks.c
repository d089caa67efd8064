#include "libraries/cutensor/blocks.h"

#include <stdlib.h>
#include <string.h>

#include "libraries/cutensor/handle.h"
#include "libraries/cutensor/plan.h"
#include "runtime/failure.h"

const atomr_field atomr_blocks_fields[] = {ATOMR_BLOCKS_FIELDS(ATOMR_MEMBER_NAME, ATOMR_ARRAY_NAME) ATOMR_LAST_FIELD};

enum { TENSORS = 3, OPERANDS = 4 };

/* A tensor's structure, in the types of the library. */
typedef struct {
    int64_t n_modes, n_blocks;
    int32_t modes[ATOMR_BLOCK_MODES];
    uint32_t sections[ATOMR_BLOCK_MODES];
    const int64_t *extents, *strides;
    int32_t *coordinates;
    int64_t *offsets; /* bytes; the plan keeps them */
} structure;

struct atomr_blocks_plan {
    const atomr_cutensor_table *t;
    atomr_cuda *cuda;
    cutensorHandle_t handle;
    cutensorPlan_t plan;
    atomr_blocks_spec spec;
    uint64_t workspace; /* bytes */
    int64_t n_blocks[TENSORS];
    int64_t *offsets[TENSORS];
};

/* Take the structure of a tensor from the words at `*at`; whether it is one. */
static int take(structure *s, const int64_t *words, int64_t count, int64_t *at) {
    if (count - *at < 2) return 0;
    s->n_modes = words[*at];
    s->n_blocks = words[*at + 1];
    *at += 2;
    if (s->n_modes < 1 || s->n_modes > ATOMR_BLOCK_MODES || s->n_blocks < 1 || s->n_blocks > INT32_MAX) return 0;
    if (count - *at < 2 * s->n_modes) return 0;
    int64_t sections = 0;
    for (int64_t i = 0; i < s->n_modes; i++) {
        const int64_t mode = words[*at + i], parts = words[*at + s->n_modes + i];
        if (mode < 0 || mode > INT32_MAX || parts < 1 || parts > INT32_MAX) return 0;
        s->modes[i] = (int32_t)mode;
        s->sections[i] = (uint32_t)parts;
        sections += parts;
    }
    *at += 2 * s->n_modes;
    const int64_t places = s->n_modes * s->n_blocks;
    if (count - *at < sections || count - *at - sections < 2 * places + s->n_blocks) return 0;
    s->extents = words + *at;
    const int64_t *const coordinates = s->extents + sections;
    s->strides = coordinates + places;
    *at += sections + 2 * places + s->n_blocks;
    s->coordinates = malloc((size_t)places * sizeof *s->coordinates);
    s->offsets = malloc((size_t)s->n_blocks * sizeof *s->offsets);
    if (!s->coordinates || !s->offsets) return 1; /* said by its absence */
    for (int64_t i = 0; i < places; i++) {
        if (coordinates[i] < 0 || coordinates[i] >= s->sections[i % s->n_modes]) return 0;
        s->coordinates[i] = (int32_t)coordinates[i];
    }
    memcpy(s->offsets, s->strides + places, (size_t)s->n_blocks * sizeof *s->offsets);
    for (int64_t i = 0; i < s->n_blocks; i++)
        if (s->offsets[i] < 0) return 0;
    return 1;
}

static int malformed(const atomr_blocks_spec *s) {
    int good = s->workspace_bytes >= 0 && (s->compute == ATOMR_TENSOR_32F || s->compute == ATOMR_TENSOR_64F);
    for (int i = 0; i < OPERANDS; i++) good = good && s->operand[i] >= 0 && s->operand[i] < s->n_operands;
    for (int i = 0; i < 4; i++) good = good && s->factor[i] >= -1 && s->factor[i] < s->n_scalars;
    return !good;
}

/* Make the library's plan. */
static int prepare(atomr_blocks_plan *p, const structure *s, cutensorComputeDescriptor_t compute, atomr_failure *failure) {
    const atomr_cutensor_table *const t = p->t;
    const cutensorHandle_t h = p->handle;
    const int32_t reproducible = 1;
    cutensorBlockSparseTensorDescriptor_t d[TENSORS] = {NULL};
    cutensorOperationDescriptor_t operation = NULL;
    cutensorPlanPreference_t preference = NULL;
    const char *what = "cutensorCreateBlockSparseTensorDescriptor";
    cutensorStatus_t status = CUTENSOR_STATUS_SUCCESS;
    for (int i = 0; i < TENSORS && status == CUTENSOR_STATUS_SUCCESS; i++)
        status = t->cutensorCreateBlockSparseTensorDescriptor(h, &d[i], (uint32_t)s[i].n_modes, (uint64_t)s[i].n_blocks,
                                                              s[i].sections, s[i].extents, s[i].coordinates, s[i].strides,
                                                              (cudaDataType_t)p->spec.type);
    if (status == CUTENSOR_STATUS_SUCCESS) {
        what = "cutensorCreateBlockSparseContraction";
        status = t->cutensorCreateBlockSparseContraction(h, &operation, d[0], s[0].modes, CUTENSOR_OP_IDENTITY, d[1],
                                                         s[1].modes, CUTENSOR_OP_IDENTITY, d[2], s[2].modes,
                                                         CUTENSOR_OP_IDENTITY, d[2], s[2].modes, compute);
    }
    if (status == CUTENSOR_STATUS_SUCCESS) {
        what = "asking for the same bits in each run";
        status = t->cutensorOperationDescriptorSetAttribute(h, operation,
                                                            CUTENSOR_OPERATION_DESCRIPTOR_BLOCKSPARSE_REPRODUCIBLE,
                                                            &reproducible, sizeof reproducible);
        if (status == CUTENSOR_STATUS_INVALID_VALUE) status = CUTENSOR_STATUS_NOT_SUPPORTED; /* of an older version */
    }
    if (status == CUTENSOR_STATUS_SUCCESS) {
        what = "cutensorCreatePlanPreference";
        status = t->cutensorCreatePlanPreference(h, &preference, CUTENSOR_ALGO_DEFAULT, CUTENSOR_JIT_MODE_NONE);
    }
    if (status == CUTENSOR_STATUS_SUCCESS) { /* of these contractions it is exact */
        what = "cutensorEstimateWorkspaceSize";
        status = t->cutensorEstimateWorkspaceSize(h, operation, preference, CUTENSOR_WORKSPACE_DEFAULT, &p->workspace);
    }
    if (status == CUTENSOR_STATUS_SUCCESS) {
        what = "cutensorCreatePlan";
        status = p->workspace > (uint64_t)p->spec.workspace_bytes
                     ? CUTENSOR_STATUS_INSUFFICIENT_WORKSPACE
                     : t->cutensorCreatePlan(h, &p->plan, operation, preference, p->workspace);
    }
    if (preference) t->cutensorDestroyPlanPreference(preference);
    if (operation) t->cutensorDestroyOperationDescriptor(operation);
    for (int i = 0; i < TENSORS; i++)
        if (d[i]) t->cutensorDestroyBlockSparseTensorDescriptor(d[i]);
    return status == CUTENSOR_STATUS_SUCCESS ? ATOMR_OK : atomr_tensor_fail(status, what, failure);
}

static int has_calls(const atomr_cutensor_table *t) {
    return t->cutensorCreateBlockSparseTensorDescriptor && t->cutensorDestroyBlockSparseTensorDescriptor &&
           t->cutensorCreateBlockSparseContraction && t->cutensorBlockSparseContract;
}

int atomr_blocks_new(atomr_cuda *cuda, const atomr_blocks_spec *spec, const int64_t *words, int64_t count,
                     atomr_blocks_plan **made, atomr_failure *failure) {
    const atomr_tensor_owner *o = NULL;
    structure s[TENSORS];
    memset(s, 0, sizeof s);
    int64_t at = 0;
    int good = !malformed(spec), there = 1;
    for (int i = 0; i < TENSORS && good && there; i++) {
        good = take(&s[i], words, count, &at);
        there = !good || (s[i].coordinates && s[i].offsets);
    }
    int code = ATOMR_OK;
    atomr_blocks_plan *const p = calloc(1, sizeof *p);
    if (!good || (there && at != count))
        code = atomr_refused(failure, ATOMR_INVALID_REQUEST, "a call of cuTENSOR for blocks is malformed");
    else if (!there || !p)
        code = atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "no host memory for a plan of cuTENSOR");
    if (code == ATOMR_OK) code = atomr_tensor_handle(cuda, &o, failure);
    if (code == ATOMR_OK && !has_calls(o->t))
        code = atomr_unsupported(failure, "tensor", "cutensor", "cuTENSOR %zu has no contractions of blocks; later versions have",
                                 atomr_cutensor_library.version);
    if (code == ATOMR_OK) {
        const cutensorComputeDescriptor_t compute = atomr_cutensor_compute(
            spec->compute == ATOMR_TENSOR_64F ? "CUTENSOR_COMPUTE_DESC_64F" : "CUTENSOR_COMPUTE_DESC_32F");
        p->t = o->t;
        p->handle = o->handle;
        p->cuda = cuda;
        p->spec = *spec;
        code = prepare(p, s, compute, failure);
    }
    for (int i = 0; i < TENSORS; i++) {
        free(s[i].coordinates);
        if (code == ATOMR_OK) {
            p->n_blocks[i] = s[i].n_blocks;
            p->offsets[i] = s[i].offsets;
        } else
            free(s[i].offsets);
    }
    if (code == ATOMR_OK) *made = p;
    else free(p);
    return code;
}

uint64_t atomr_blocks_workspace(const atomr_blocks_plan *p) { return p->workspace; }

void atomr_blocks_delete(atomr_blocks_plan *p) {
    if (!p) return;
    if (atomr_cuda_enter(p->cuda) == CUDA_SUCCESS) p->t->cutensorDestroyPlan(p->plan);
    for (int i = 0; i < TENSORS; i++) free(p->offsets[i]);
    free(p);
}

static atomr_tensor_factor factor_of(const atomr_blocks_plan *p, const atomr_call *call, int i) {
    double parts[2] = {(double)p->spec.number[i], 0};
    for (int j = 0; j < 2; j++)
        if (p->spec.factor[i + 2 * j] >= 0) memcpy(&parts[j], &call->scalars[p->spec.factor[i + 2 * j]], sizeof *parts);
    return atomr_tensor_scaled((cudaDataType_t)p->spec.type, parts[0], parts[1]);
}

int atomr_blocks_run(void *context, const atomr_call *call, atomr_failure *failure) {
    const atomr_blocks_plan *const p = context;
    if (p->workspace > call->workspace_bytes)
        return atomr_refused(failure, ATOMR_INVALID_REQUEST, "the lane has a workspace of %llu bytes, and cuTENSOR needs %llu",
                             (unsigned long long)call->workspace_bytes, (unsigned long long)p->workspace);
    const CUstream stream = atomr_cuda_stream(p->cuda, call->lane);
    if (!stream) /* NULL would be the default stream, which orders with nothing of ours */
        return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cuda", atomr_cuda_error(p->cuda), "", "the lane has no stream");
    static const int tensors[OPERANDS] = {0, 1, 2, 2};
    int64_t total = 0;
    for (int i = 0; i < OPERANDS; i++) total += p->n_blocks[tensors[i]];
    void **const pointers = malloc((size_t)total * sizeof *pointers);
    if (!pointers) return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "no host memory for the addresses of %lld blocks", (long long)total);
    void **at[OPERANDS];
    int64_t used = 0;
    for (int i = 0; i < OPERANDS; i++) {
        const int tensor = tensors[i];
        char *const base = call->pointers[p->spec.operand[i]];
        at[i] = pointers + used;
        for (int64_t j = 0; j < p->n_blocks[tensor]; j++) at[i][j] = base + p->offsets[tensor][j];
        used += p->n_blocks[tensor];
    }
    const atomr_tensor_factor alpha = factor_of(p, call, 0), beta = factor_of(p, call, 1);
    const cutensorStatus_t status = p->t->cutensorBlockSparseContract(
        p->handle, p->plan, &alpha, (const void *const *)at[0], (const void *const *)at[1], &beta,
        (const void *const *)at[2], at[3], p->workspace ? call->workspace : NULL, p->workspace, stream);
    free(pointers);
    return status == CUTENSOR_STATUS_SUCCESS ? ATOMR_OK
                                             : atomr_tensor_fail(status, "running a plan of cuTENSOR for blocks", failure);
}
