/* Contractions of tensors of blocks, computed in plain loops in the order of their stream.
 *
 * As documented: a tensor has 1 to 32 modes and blocks of its own; a mode has the same sections in all tensors; types are
 * float32, float64 and their complex ones, all alike, with the compute type that fits; no operators; the tensor that beta
 * scales has the result's descriptor; the estimate of the workspace is exact.  Addresses of blocks lie on the host, and are
 * not read later than in the call.  Without the question for the same bits the result is a little off, so that a test sees
 * who does not ask. */
#include "fake_blocks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fake_driver.h"
#include "libraries/cutensor/blocks.h"

extern const cutensorComputeDescriptor_t CUTENSOR_COMPUTE_DESC_32F, CUTENSOR_COMPUTE_DESC_64F;

enum { MODES = ATOMR_BLOCK_MODES, TENSORS = 3, SPARE = 512 };

struct cutensorBlockSparseTensorDescriptor {
    int n_modes, n_blocks;
    int sections[MODES], first[MODES]; /* of a mode's extents */
    int64_t *extents, *strides;
    int32_t *coordinates;
    cudaDataType_t type;
};
typedef struct cutensorBlockSparseTensorDescriptor descriptor;

struct fake_blocks {
    _Atomic int users;
    descriptor *d[TENSORS];
    int32_t modes[TENSORS][MODES];
};

static int is_complex(cudaDataType_t type) { return type == CUDA_C_32F || type == CUDA_C_64F; }
static int is_wide(cudaDataType_t type) { return type == CUDA_R_64F || type == CUDA_C_64F; }
static int64_t size_of(cudaDataType_t type) { return (is_wide(type) ? 8 : 4) << is_complex(type); }

static void *copied(const void *from, size_t nbytes) {
    void *const made = malloc(nbytes ? nbytes : 1);
    if (!made) abort();
    return memcpy(made, from, nbytes);
}
static descriptor *copy(const descriptor *d) {
    descriptor *const made = copied(d, sizeof *d);
    size_t extents = 0;
    for (int i = 0; i < d->n_modes; i++) extents += (size_t)d->sections[i];
    const size_t places = (size_t)d->n_modes * (size_t)d->n_blocks;
    made->extents = copied(d->extents, extents * sizeof *d->extents);
    made->strides = copied(d->strides, places * sizeof *d->strides);
    made->coordinates = copied(d->coordinates, places * sizeof *d->coordinates);
    return made;
}
static void drop(descriptor *d) {
    free(d->extents);
    free(d->strides);
    free(d->coordinates);
    free(d);
}

fake_blocks *fake_blocks_share(fake_blocks *b) {
    if (b) b->users++;
    return b;
}
void fake_blocks_drop(fake_blocks *b) {
    if (!b || --b->users) return;
    for (int i = 0; i < TENSORS; i++) drop(b->d[i]);
    free(b);
}
uint64_t fake_blocks_workspace(const fake_blocks *b) { return SPARE + 256 * (uint64_t)b->d[2]->n_blocks; }

cutensorStatus_t cutensorCreateBlockSparseTensorDescriptor(cutensorHandle_t handle, cutensorBlockSparseTensorDescriptor_t *desc,
                                                           const uint32_t numModes, const uint64_t numNonZeroBlocks,
                                                           const uint32_t numSectionsPerMode[], const int64_t extent[],
                                                           const int32_t nonZeroCoordinates[], const int64_t stride[],
                                                           cudaDataType_t dataType) {
    (void)handle;
    const CUresult refusal = fake_refusal(__func__);
    if (refusal) return (cutensorStatus_t)refusal;
    if (!numModes || numModes > MODES || !numNonZeroBlocks) return CUTENSOR_STATUS_INVALID_VALUE;
    if (dataType != CUDA_R_32F && dataType != CUDA_R_64F && !is_complex(dataType)) return CUTENSOR_STATUS_NOT_SUPPORTED;
    descriptor d = {.n_modes = (int)numModes, .n_blocks = (int)numNonZeroBlocks, .type = dataType};
    int sections = 0;
    for (int i = 0; i < d.n_modes; i++) {
        d.sections[i] = (int)numSectionsPerMode[i];
        d.first[i] = sections;
        sections += d.sections[i];
    }
    for (int i = 0; i < sections; i++)
        if (extent[i] <= 0) return CUTENSOR_STATUS_INVALID_VALUE;
    for (int i = 0; i < d.n_modes * d.n_blocks; i++) {
        const int32_t at = nonZeroCoordinates[i];
        if (at < 0 || at >= d.sections[i % d.n_modes] || stride[i] <= 0) return CUTENSOR_STATUS_INVALID_VALUE;
    }
    int order[MODES]; /* that of the first block's strides, in which those of all blocks ascend */
    for (int i = 0; i < d.n_modes; i++) {
        int at = i;
        for (; at > 0 && stride[order[at - 1]] > stride[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    for (int64_t i = 0; i < d.n_blocks; i++)
        for (int j = 1; j < d.n_modes; j++)
            if (stride[i * d.n_modes + order[j - 1]] > stride[i * d.n_modes + order[j]]) return CUTENSOR_STATUS_INVALID_VALUE;
    d.extents = (int64_t *)extent;
    d.coordinates = (int32_t *)nonZeroCoordinates;
    d.strides = (int64_t *)stride;
    *desc = copy(&d);
    return 0;
}
cutensorStatus_t cutensorDestroyBlockSparseTensorDescriptor(cutensorBlockSparseTensorDescriptor_t desc) {
    drop(desc);
    return 0;
}

/* The tensor and place of a mode, but for tensors from `most` on. */
static int find(const fake_blocks *b, int32_t mode, int most, int *place) {
    for (int t = 0; t < most; t++)
        for (int i = 0; i < b->d[t]->n_modes; i++)
            if (b->modes[t][i] == mode) return *place = i, t;
    return -1;
}

cutensorStatus_t cutensorCreateBlockSparseContraction(
    const cutensorHandle_t handle, cutensorOperationDescriptor_t *desc, const cutensorBlockSparseTensorDescriptor_t descA,
    const int32_t modeA[], cutensorOperator_t opA, const cutensorBlockSparseTensorDescriptor_t descB, const int32_t modeB[],
    cutensorOperator_t opB, const cutensorBlockSparseTensorDescriptor_t descC, const int32_t modeC[], cutensorOperator_t opC,
    const cutensorBlockSparseTensorDescriptor_t descD, const int32_t modeD[], const cutensorComputeDescriptor_t descCompute) {
    (void)handle;
    const CUresult refusal = fake_refusal(__func__);
    if (refusal) return (cutensorStatus_t)refusal;
    const int plain = opA == CUTENSOR_OP_IDENTITY && opB == CUTENSOR_OP_IDENTITY && opC == CUTENSOR_OP_IDENTITY;
    if (!plain || descC != descD || descA->type != descD->type || descB->type != descD->type) return CUTENSOR_STATUS_NOT_SUPPORTED;
    if (descCompute != (is_wide(descD->type) ? CUTENSOR_COMPUTE_DESC_64F : CUTENSOR_COMPUTE_DESC_32F))
        return CUTENSOR_STATUS_NOT_SUPPORTED;
    if (memcmp(modeC, modeD, (size_t)descD->n_modes * sizeof *modeD) != 0) return CUTENSOR_STATUS_INVALID_VALUE;
    fake_blocks b = {.d = {descA, descB, descD}};
    const int32_t *const modes[] = {modeA, modeB, modeD};
    for (int t = 0; t < TENSORS; t++)
        for (int i = 0; i < b.d[t]->n_modes; i++) {
            int place = 0;
            const int32_t mode = modes[t][i];
            const int known = find(&b, mode, t, &place); /* in a tensor before */
            for (int j = 0; j < i; j++)
                if (modes[t][j] == mode) return CUTENSOR_STATUS_NOT_SUPPORTED;
            b.modes[t][i] = mode;
            if (known < 0 && t == 2) return CUTENSOR_STATUS_NOT_SUPPORTED;
            if (known < 0) continue;
            const descriptor *const other = b.d[known], *const own = b.d[t];
            if (other->sections[place] != own->sections[i] ||
                memcmp(other->extents + other->first[place], own->extents + own->first[i],
                       (size_t)own->sections[i] * sizeof(int64_t)) != 0)
                return CUTENSOR_STATUS_INVALID_VALUE;
        }
    for (int t = 0; t < TENSORS; t++) b.d[t] = copy(b.d[t]);
    b.users = 1;
    return fake_blocks_operation(desc, copied(&b, sizeof b), descD->type);
}

/* ---- Running them. */

typedef struct {
    fake_blocks *blocks;
    void **at[TENSORS + 1]; /* one array, which the first begins */
    double complex alpha, beta;
    void *workspace;
    int repeats;
} noted;

static int64_t extent_of(const descriptor *d, int block, int i) {
    return d->extents[d->first[i] + d->coordinates[block * d->n_modes + i]];
}

/* Whether blocks of A and B belong to a product for a block of the result; then `all` has the extent of each mode. */
static int meet(const fake_blocks *b, const int *blocks, int64_t *all, int32_t *modes, int *n) {
    int32_t section[TENSORS * MODES];
    *n = 0;
    for (int t = TENSORS; t-- > 0;)
        for (int i = 0; i < b->d[t]->n_modes; i++) {
            const int32_t own = b->d[t]->coordinates[blocks[t] * b->d[t]->n_modes + i];
            int at = 0;
            while (at < *n && modes[at] != b->modes[t][i]) at++;
            if (at == *n) {
                modes[at] = b->modes[t][i];
                section[at] = own;
                all[at] = extent_of(b->d[t], blocks[t], i);
                ++*n;
            } else if (section[at] != own)
                return 0;
        }
    return 1;
}

static int64_t place_of(const fake_blocks *b, int t, int block, const int32_t *modes, int n, const int64_t *index) {
    int64_t at = 0;
    for (int i = 0; i < b->d[t]->n_modes; i++)
        for (int j = 0; j < n; j++)
            if (modes[j] == b->modes[t][i]) at += index[j] * b->d[t]->strides[block * b->d[t]->n_modes + i];
    return at;
}

static void run(void *argument) {
    noted *const c = argument;
    const fake_blocks *const b = c->blocks;
    const cudaDataType_t type = b->d[2]->type;
    if (c->workspace) memset(c->workspace, 0xff, fake_blocks_workspace(b));
    for (int k = 0; k < b->d[2]->n_blocks; k++) {
        const descriptor *const d = b->d[2];
        int64_t elements = 1;
        for (int i = 0; i < d->n_modes; i++) elements *= extent_of(d, k, i);
        double complex *const sums = calloc((size_t)elements, sizeof *sums);
        if (!sums) abort();
        for (int i = 0; i < b->d[0]->n_blocks; i++)
            for (int j = 0; j < b->d[1]->n_blocks; j++) {
                int64_t all[TENSORS * MODES], index[TENSORS * MODES] = {0}, total = 1;
                int32_t modes[TENSORS * MODES];
                int n = 0;
                if (!meet(b, (const int[]){i, j, k}, all, modes, &n)) continue;
                for (int m = 0; m < n; m++) total *= all[m];
                for (int64_t at = 0; at < total; at++) { /* the result's modes come first, the last is the fastest */
                    int64_t rest = at, out = 0;
                    for (int m = n; m-- > 0; rest /= all[m]) index[m] = rest % all[m];
                    for (int m = 0; m < d->n_modes; m++) out = out * all[m] + index[m];
                    sums[out] += fake_tensor_get(type, c->at[0][i], place_of(b, 0, i, modes, n, index)) *
                                 fake_tensor_get(type, c->at[1][j], place_of(b, 1, j, modes, n, index));
                }
            }
        for (int64_t at = 0; at < elements; at++) {
            int64_t rest = at, out = 0;
            for (int i = d->n_modes; i-- > 0;) {
                out += rest % extent_of(d, k, i) * d->strides[k * d->n_modes + i];
                rest /= extent_of(d, k, i);
            }
            double complex v = c->alpha * sums[at] * (c->repeats ? 1 : 1.5);
            if (c->beta != 0) v += c->beta * fake_tensor_get(type, c->at[2][k], out);
            fake_tensor_put(type, c->at[3][k], out, v);
        }
        free(sums);
    }
    free(c->at[0]);
    fake_blocks_drop(c->blocks);
}

cutensorStatus_t cutensorBlockSparseContract(const cutensorHandle_t handle, const cutensorPlan_t plan, const void *alpha,
                                             const void *const A[], const void *const B[], const void *beta,
                                             const void *const C[], void *const D[], void *workspace, uint64_t workspaceSize,
                                             cudaStream_t stream) {
    (void)handle;
    const CUresult unsafe = fake_unsafe(), refusal = unsafe ? unsafe : fake_refusal(__func__);
    if (refusal) return (cutensorStatus_t)refusal;
    fake_blocks *const b = fake_plan_blocks(plan);
    if (!b || !stream || (uintptr_t)workspace % 256) return CUTENSOR_STATUS_INVALID_VALUE;
    if (!workspace || workspaceSize < fake_blocks_workspace(b)) return CUTENSOR_STATUS_INSUFFICIENT_WORKSPACE;
    const void *const *const given[] = {A, B, C, (const void *const *)D};
    const int counts[] = {b->d[0]->n_blocks, b->d[1]->n_blocks, b->d[2]->n_blocks, b->d[2]->n_blocks};
    void **pointers = malloc(sizeof *pointers * (size_t)(counts[0] + counts[1] + 2 * counts[2]));
    noted c = {.blocks = fake_blocks_share(b), .workspace = workspace, .repeats = fake_plan_repeats(plan)};
    if (!pointers) return CUTENSOR_STATUS_ALLOC_FAILED;
    const cudaDataType_t type = b->d[2]->type;
    for (int i = 0; i <= TENSORS; pointers += counts[i++]) {
        c.at[i] = pointers;
        for (int j = 0; j < counts[i]; j++) {
            if ((uintptr_t)given[i][j] % (uintptr_t)size_of(type)) return CUTENSOR_STATUS_INVALID_VALUE;
            pointers[j] = (void *)(uintptr_t)given[i][j];
        }
    }
    c.alpha = fake_tensor_get(type, alpha, 0);
    c.beta = fake_tensor_get(type, beta, 0);
    return fake_enqueue(stream, run, &c, sizeof c, 0) ? CUTENSOR_STATUS_EXECUTION_FAILED : 0;
}
