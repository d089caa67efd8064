#include "cuda/cuda_runs.h"

#include <stdio.h>
#include <string.h>

#include "runtime/failure.h"

int atomr_cuda_fail(const atomr_cuda *cuda, CUresult result, const char *what, atomr_failure *failure) {
    const char *name = "unknown error", *text = "";
    atomr_cuda_driver(cuda)->cuGetErrorName(result, &name);
    atomr_cuda_driver(cuda)->cuGetErrorString(result, &text);
    const int code = result == CUDA_ERROR_OUT_OF_MEMORY ? ATOMR_OUT_OF_MEMORY : ATOMR_LIBRARY_ERROR;
    return atomr_failed(failure, code, "cuda", result, name, "%s: %s", what, text);
}

static CUresult launch_extended(const atomr_driver *d, const atomr_launch *l, CUstream stream, void **arguments) {
    CUlaunchAttribute attributes[3];
    CUlaunchConfig config;
    memset(attributes, 0, sizeof attributes);
    memset(&config, 0, sizeof config);
    config.gridDimX = l->grid[0], config.gridDimY = l->grid[1], config.gridDimZ = l->grid[2];
    config.blockDimX = l->block[0], config.blockDimY = l->block[1], config.blockDimZ = l->block[2];
    config.sharedMemBytes = l->shared;
    config.hStream = stream;
    config.attrs = attributes;
    if (l->cluster[0]) {
        CUlaunchAttribute *a = &attributes[config.numAttrs++];
        a->id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        a->value.clusterDim.x = l->cluster[0];
        a->value.clusterDim.y = l->cluster[1];
        a->value.clusterDim.z = l->cluster[2];
    }
    if (l->cooperative) {
        CUlaunchAttribute *a = &attributes[config.numAttrs++];
        a->id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        a->value.cooperative = 1;
    }
    if (l->overlaps) {
        CUlaunchAttribute *a = &attributes[config.numAttrs++];
        a->id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        a->value.programmaticStreamSerializationAllowed = 1;
    }
    return d->cuLaunchKernelEx(&config, l->function, arguments, NULL);
}

static int out_of_range(const atomr_argument *a, int64_t number, atomr_failure *failure) {
    return atomr_refused(failure, ATOMR_INVALID_REQUEST,
                         "scalar %u is %lld; its type in the kernel takes %lld to %lld", a->index, (long long)number,
                         (long long)a->least, (long long)a->value);
}

/* Round to the nearest float16, ties to even; by way of float32 it would be rounded twice. */
static uint16_t half_of(double number) {
    const double integers = 0x1p52; /* doubles from here on are integers, to which sums are rounded */
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 48 & 0x8000);
    bits &= ~(1ull << 63);
    memcpy(&number, &bits, sizeof number);
    if (number != number) return sign | 0x7e00;
    if (number >= 65520) return sign | 0x7c00;
    if (number < 0x1p-14) return sign | (uint16_t)(number * 0x1p24 + integers - integers);
    const int exponent = (int)(bits >> 52) - 1023; /* -14 to 15 */
    const uint64_t scale_bits = (uint64_t)(10 - exponent + 1023) << 52;
    double scale;
    memcpy(&scale, &scale_bits, sizeof scale);
    const uint32_t digits = (uint32_t)(number * scale + integers - integers); /* 1024 to 2048, which carries */
    return (uint16_t)(sign | (((uint32_t)(exponent + 15) << 10) + digits - 1024));
}

/* Encode the map of an operand: its address is known only now.  It must be aligned to 16 bytes, or to 32 with an
 * interleave of 32 bytes, which the alignments of operands have seen to. */
static CUresult encode(const atomr_driver *d, const atomr_tensor_map *m, void *address, CUtensorMap *map) {
    return d->cuTensorMapEncodeTiled(map, m->type, m->axes, address, m->extents, m->strides, m->box, m->steps,
                                     m->interleave, m->swizzle, m->promotion, m->fill);
}

/* Wait for the kernels, and fail if they have reported an index. */
static int read_report(const atomr_kernels *k, CUstream stream, const int64_t *report, atomr_failure *failure) {
    const CUresult r = atomr_cuda_driver(k->cuda)->cuStreamSynchronize(stream);
    if (r != CUDA_SUCCESS) return atomr_cuda_fail(k->cuda, r, "cuStreamSynchronize", failure);
    if (!report[ATOMR_REPORT_TAKEN]) return ATOMR_OK;
    const uint64_t number = (uint64_t)report[ATOMR_REPORT_SITE];
    const char *site = number < k->n_sites ? k->sites[number] : "an unknown place";
    const int64_t *block = report + ATOMR_REPORT_BLOCK, *thread = report + ATOMR_REPORT_THREAD;
    char what[128], kind[sizeof failure->name];
    if (report[ATOMR_REPORT_AXIS] < 0) { /* the site of an exception begins with its name */
        const int n = (int)strcspn(site, " ");
        snprintf(kind, sizeof kind, "%.*s", n, site);
        site += site[n] ? n + 1 : 0;
        snprintf(what, sizeof what, "raised");
    } else {
        snprintf(kind, sizeof kind, "IndexError");
        snprintf(what, sizeof what, "index %lld is out of bounds for axis %lld with size %lld,",
                 (long long)report[ATOMR_REPORT_INDEX], (long long)report[ATOMR_REPORT_AXIS],
                 (long long)report[ATOMR_REPORT_EXTENT]);
    }
    return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "numba", 0, kind,
                        "%s in thread (%lld, %lld, %lld) of block (%lld, %lld, %lld), at %s", what, (long long)thread[0],
                        (long long)thread[1], (long long)thread[2], (long long)block[0], (long long)block[1],
                        (long long)block[2], site);
}

/* The arguments of a launch, and memory for those that are no part of the plan or of the message. */
typedef struct {
    uint64_t values[ATOMR_MAX_ARGUMENTS];
    void *arguments[ATOMR_MAX_ARGUMENTS];
    CUtensorMap maps[ATOMR_MAX_TENSOR_MAPS];
    _Alignas(128) unsigned char bytes[ATOMR_MAX_STRUCT]; /* of a struct; a launch has one at most */
} filled;

/* Write a struct as a message wants it. */
static int fill_struct(const atomr_driver *d, const atomr_kernels *k, const atomr_filled_struct *s, const atomr_call *call,
                       unsigned char *bytes, atomr_failure *failure) {
    memcpy(bytes, s->bytes, s->size);
    for (unsigned i = 0; i < s->n_places; i++) {
        const atomr_filled_place *p = &s->places[i];
        unsigned char *at = bytes + p->offset;
        if (p->kind == ATOMR_ARG_WORD) {
            memcpy(at, &call->scalars[p->index], sizeof call->scalars[0]);
        } else if (p->kind == ATOMR_ARG_FLOAT32) {
            double wide;
            memcpy(&wide, &call->scalars[p->index], sizeof wide);
            const float narrow = (float)wide;
            memcpy(at, &narrow, sizeof narrow);
        } else {
            const char *base = p->kind == ATOMR_ARG_WORKSPACE ? call->workspace : call->pointers[p->index];
            const uint64_t address = (uint64_t)(uintptr_t)base + p->added;
            if (p->kind != ATOMR_ARG_TENSOR_MAP) {
                memcpy(at, &address, sizeof address);
                continue;
            }
            CUtensorMap map;
            const CUresult r = encode(d, p->map, (void *)(uintptr_t)address, &map);
            if (r != CUDA_SUCCESS) return atomr_cuda_fail(k->cuda, r, "cuTensorMapEncodeTiled", failure);
            memcpy(at, &map, sizeof map);
        }
    }
    return ATOMR_OK;
}

static int fill(const atomr_kernels *k, const atomr_launch *l, const atomr_call *call, filled *f, atomr_failure *failure) {
    const atomr_driver *d = atomr_cuda_driver(k->cuda);
    uint64_t *values = f->values;
    void **arguments = f->arguments;
    unsigned n_maps = 0;
    for (unsigned j = 0; j < l->n_arguments; j++) {
        const atomr_argument *a = &l->arguments[j];
        arguments[j] = &values[j];
        if (a->kind == ATOMR_ARG_BYTES) {
            arguments[j] = (void *)(uintptr_t)a->value;
        } else if (a->kind == ATOMR_ARG_OPERAND) {
            values[j] = (uint64_t)(uintptr_t)call->pointers[a->index];
        } else if (a->kind == ATOMR_ARG_WORD) {
            values[j] = call->scalars[a->index];
        } else if (a->kind == ATOMR_ARG_FLOAT32) {
            double wide;
            memcpy(&wide, &call->scalars[a->index], sizeof wide);
            const float narrow = (float)wide;
            memcpy(&values[j], &narrow, sizeof narrow);
        } else if (a->kind == ATOMR_ARG_FLOAT16) {
            double wide;
            memcpy(&wide, &call->scalars[a->index], sizeof wide);
            values[j] = half_of(wide);
        } else if (a->kind == ATOMR_ARG_NARROW) {
            const int64_t number = (int64_t)call->scalars[a->index];
            if (number < a->least || number > (int64_t)a->value) return out_of_range(a, number, failure);
            values[j] = (uint64_t)number; /* little-endian: the driver takes the bytes that it needs */
        } else if (a->kind == ATOMR_ARG_SCALARS) {
            arguments[j] = (void *)(uintptr_t)&call->scalars[a->index];
        } else if (a->kind == ATOMR_ARG_TENSOR_MAP) {
            CUtensorMap *map = &f->maps[n_maps++]; /* as many as there are places for: seen to when it was loaded */
            const CUresult r =
                encode(d, (const atomr_tensor_map *)(uintptr_t)a->value, call->pointers[a->index], map);
            if (r != CUDA_SUCCESS) return atomr_cuda_fail(k->cuda, r, "cuTensorMapEncodeTiled", failure);
            arguments[j] = map;
        } else if (a->kind == ATOMR_ARG_FILLED) {
            const int code = fill_struct(d, k, (const atomr_filled_struct *)(uintptr_t)a->value, call, f->bytes, failure);
            if (code != ATOMR_OK) return code;
            arguments[j] = f->bytes;
        } else if (a->kind == ATOMR_ARG_WORKSPACE) {
            values[j] = (uint64_t)(uintptr_t)call->workspace + a->value;
        } else {
            values[j] = a->value;
        }
    }
    return ATOMR_OK;
}

/* Whether a message may be launched. */
static int check(const atomr_kernels *k, const atomr_call *call, atomr_failure *failure) {
    for (unsigned i = 0; i < k->n_alignments; i++) {
        if (((uintptr_t)call->pointers[i] & (k->alignments[i] - 1)) == 0) continue;
        return atomr_unsupported(failure, "kernel", "alignment",
                                 "operand %u starts at an address that is no multiple of %u bytes, which the device "
                                 "needs for its type; copy it to memory of its own first",
                                 i, k->alignments[i]);
    }
    if (k->needs && !__atomic_load_n(k->needs, __ATOMIC_ACQUIRE))
        return atomr_refused(failure, ATOMR_INVALID_REQUEST, "%s", k->lacking);
    if (k->workspace > call->workspace_bytes)
        return atomr_refused(failure, ATOMR_INVALID_REQUEST,
                             "the lane has a workspace of %llu bytes, and these kernels need %llu",
                             (unsigned long long)call->workspace_bytes, (unsigned long long)k->workspace);
    return ATOMR_OK;
}

int atomr_cuda_launch(const atomr_kernels *k, CUstream stream, const atomr_call *call, atomr_failure *failure) {
    const atomr_driver *d = atomr_cuda_driver(k->cuda);
    int code = check(k, call, failure);
    if (code != ATOMR_OK) return code;
    int64_t *report = k->report < 0 ? NULL : call->pointers[k->report];
    if (report) memset(report, 0, ATOMR_REPORT_WORDS * sizeof *report);
    for (unsigned i = 0; i < k->n_launches; i++) {
        const atomr_launch *l = &k->launches[i];
        filled f;
        code = fill(k, l, call, &f, failure);
        if (code != ATOMR_OK) return code;
        const CUresult r =
            l->cluster[0] || l->cooperative || l->overlaps
                ? launch_extended(d, l, stream, f.arguments)
                : d->cuLaunchKernel(l->function, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1],
                                    l->block[2], l->shared, stream, f.arguments, NULL);
        if (r != CUDA_SUCCESS) return atomr_cuda_fail(k->cuda, r, "cuLaunchKernel", failure);
    }
    if (k->sets) __atomic_store_n(k->sets, 1, __ATOMIC_RELEASE);
    return report ? read_report(k, stream, report, failure) : ATOMR_OK;
}

int atomr_cuda_sets_alone(const atomr_kernels *k) {
    return k->n_launches == 1 && k->report < 0 && !k->sets && k->info == ATOMR_NO_INFO;
}

int atomr_cuda_set(const atomr_kernels *k, CUgraphExec exec, CUgraphNode node, const atomr_call *call,
                   atomr_failure *failure) {
    int code = check(k, call, failure);
    if (code != ATOMR_OK) return code;
    const atomr_launch *l = &k->launches[0];
    filled f;
    code = fill(k, l, call, &f, failure);
    if (code != ATOMR_OK) return code;
    const CUDA_KERNEL_NODE_PARAMS given = {
        .func = l->function,
        .gridDimX = l->grid[0], .gridDimY = l->grid[1], .gridDimZ = l->grid[2],
        .blockDimX = l->block[0], .blockDimY = l->block[1], .blockDimZ = l->block[2],
        .sharedMemBytes = l->shared,
        .kernelParams = f.arguments,
    };
    const CUresult r = atomr_cuda_driver(k->cuda)->cuGraphExecKernelNodeSetParams_v2(exec, node, &given);
    return r == CUDA_SUCCESS ? ATOMR_OK : atomr_cuda_fail(k->cuda, r, "cuGraphExecKernelNodeSetParams", failure);
}

static int judge_info(void *context, const _Atomic int32_t *word, atomr_failure *failure) {
    (void)context;
    const int32_t info = atomic_load_explicit(word, memory_order_acquire);
    if (info == 0) return ATOMR_OK;
    return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "kernel", info, "INFO", "its kernels report %d", info);
}

int atomr_cuda_run_kernels(void *context, const atomr_call *call, atomr_failure *failure) {
    const atomr_kernels *k = context;
    CUstream stream = atomr_cuda_stream(k->cuda, call->lane);
    if (!stream) return atomr_cuda_fail(k->cuda, atomr_cuda_error(k->cuda), "launching a kernel", failure);
    const int code = atomr_cuda_launch(k, stream, call, failure);
    if (code != ATOMR_OK || k->info == ATOMR_NO_INFO) return code;
    const char *base = k->info == ATOMR_INFO_IN_WORKSPACE ? call->workspace : call->pointers[k->info];
    return atomr_cuda_judge_late(k->cuda, call, (CUdeviceptr)(uintptr_t)(base + k->info_offset), 1,
                                 (atomr_late){judge_info, NULL, 0}, failure);
}

int atomr_cuda_run_copy(void *context, const atomr_call *call, atomr_failure *failure) {
    atomr_cuda *cuda = context;
    if (call->scalars[0] == 0) return ATOMR_OK;
    CUstream stream = atomr_cuda_stream(cuda, call->lane);
    if (!stream) return atomr_cuda_fail(cuda, atomr_cuda_error(cuda), "cuMemcpyAsync", failure);
    const CUresult r = atomr_cuda_driver(cuda)->cuMemcpyAsync(
        (CUdeviceptr)(uintptr_t)call->pointers[1], (CUdeviceptr)(uintptr_t)call->pointers[0], call->scalars[0], stream);
    return r == CUDA_SUCCESS ? ATOMR_OK : atomr_cuda_fail(cuda, r, "cuMemcpyAsync", failure);
}

enum { LONG_COPY = 512 << 10 }; /* bytes, from where on a completion value costs little beside the copy */

int atomr_cuda_run_transfer(void *context, const atomr_call *call, atomr_failure *failure) {
    if (call->scalars[0] >= LONG_COPY) *call->prompt = 1; /* the host takes it out of staging meanwhile */
    return atomr_cuda_run_copy(context, call, failure);
}
