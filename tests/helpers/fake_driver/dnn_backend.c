/* A cuDNN without a GPU: descriptors of the backend are kept as they are set, and a plan is computed in the order of its
 * handle's stream.
 *
 * It follows the documented rules: descriptors are finalized before they are used, and not changed afterwards; a variant
 * pack names each tensor that is not virtual; numbers by value are read when a plan is executed; an engine on tensor cores
 * comes first, and rounds float32; the exact one needs a workspace, and writes all over it. Filter gradients in 16 bits
 * come first from an engine that keeps many partial sums in its workspace, then from one that has none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_dnn.h"

enum { ATTRIBUTES = 24, ENGINES = 2, EXACT_WORKSPACE = 4096, SPLITS = 64 };

typedef struct dnn_descriptor {
    int type, finalized, owns_graph, n;
    struct {
        int name, type;
        int64_t count;
        char *data;
    } attributes[ATTRIBUTES];
    dnn_graph *graph; /* of an operation graph, and of what is made from it */
    int engine;
    size_t workspace;
} descriptor;

struct cudnnContext {
    CUstream stream;
};

/* Objects that are alive, for tests in this process. */
_Atomic unsigned fake_dnn_descriptors, fake_dnn_handles;
static _Thread_local char last_error[256];

#define MAY_FAIL()                                                                                                    \
    do {                                                                                                              \
        const CUresult refusal_ = fake_refusal(__func__);                                                             \
        if (refusal_) return say((cudnnStatus_t)refusal_, "as a test wants it");                                      \
    } while (0)

static cudnnStatus_t say(cudnnStatus_t status, const char *text) {
    snprintf(last_error, sizeof last_error, "%s", text);
    return status;
}

size_t cudnnGetVersion(void) { return 91900; }
const char *cudnnGetErrorString(cudnnStatus_t status) { return status ? "an error" : "CUDNN_STATUS_SUCCESS"; }
void cudnnGetLastErrorString(char *message, size_t size) { snprintf(message, size, "%s", last_error); }

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    MAY_FAIL();
    if (fake_unsafe()) return say(CUDNN_STATUS_EXECUTION_FAILED, "a handle is made while the stream is captured");
    *handle = calloc(1, sizeof **handle);
    fake_dnn_handles++;
    return *handle ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    fake_dnn_handles--;
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    MAY_FAIL();
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *made) {
    MAY_FAIL();
    descriptor *const d = calloc(1, sizeof *d);
    if (!d) return say(CUDNN_STATUS_INTERNAL_ERROR, "no memory");
    d->type = type;
    *made = d;
    fake_dnn_descriptors++;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t which) {
    descriptor *const d = which;
    for (int i = 0; i < d->n; i++) free(d->attributes[i].data);
    if (d->owns_graph) free(d->graph);
    free(d);
    fake_dnn_descriptors--;
    return CUDNN_STATUS_SUCCESS;
}

static size_t size_of(int type) {
    switch (type) {
    case CUDNN_TYPE_CHAR:
    case CUDNN_TYPE_BOOLEAN: return 1;
    case CUDNN_TYPE_FRACTION: return 16;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE: return 8;
    default: return 4;
    }
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t which, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *elements) {
    MAY_FAIL();
    descriptor *const d = which;
    if (d->finalized) return say(CUDNN_STATUS_BAD_PARAM, "the descriptor is finalized");
    if (d->n == ATTRIBUTES || count < 1) return say(CUDNN_STATUS_BAD_PARAM, "too many attributes, or an empty one");
    for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < count; i++)
        if (!((descriptor *const *)elements)[i]->finalized)
            return say(CUDNN_STATUS_BAD_PARAM, "a descriptor is used before it is finalized");
    const size_t size = (size_t)count * size_of(type);
    char *const data = malloc(size);
    if (!data) return say(CUDNN_STATUS_INTERNAL_ERROR, "no memory");
    memcpy(data, elements, size);
    d->attributes[d->n].name = name;
    d->attributes[d->n].type = type;
    d->attributes[d->n].count = count;
    d->attributes[d->n++].data = data;
    return CUDNN_STATUS_SUCCESS;
}

/* The elements of an attribute, and their number; NULL: it is not set. */
static const void *found(const descriptor *d, int name, int64_t *count) {
    for (int i = 0; i < d->n; i++)
        if (d->attributes[i].name == name) {
            if (count) *count = d->attributes[i].count;
            return d->attributes[i].data;
        }
    return NULL;
}

static int number(const descriptor *d, int name, int otherwise) {
    const int *const at = found(d, name, NULL);
    return at ? *at : otherwise;
}

static bool yes(const descriptor *d, int name) {
    const bool *const at = found(d, name, NULL);
    return at && *at;
}

static void numbers(const descriptor *d, int name, int64_t *into) {
    int64_t n = 0;
    const int64_t *const at = found(d, name, &n);
    for (int64_t i = 0; i < n && i < 3; i++) into[i] = at[i];
}

static void fractions(const descriptor *d, int name, int64_t *into) {
    int64_t n = 0;
    const int64_t *const at = found(d, name, &n);
    for (int64_t i = 0; i < n && i < 3; i++) into[i] = at[2 * i] / at[2 * i + 1];
}

static double real(const descriptor *d, int name, double otherwise) {
    for (int i = 0; i < d->n; i++) {
        if (d->attributes[i].name != name) continue;
        return d->attributes[i].type == CUDNN_TYPE_FLOAT ? *(const float *)d->attributes[i].data
                                                         : *(const double *)d->attributes[i].data;
    }
    return otherwise;
}

static int add_tensor(dnn_graph *g, const descriptor *d) {
    dnn_tensor t = {.dtype = number(d, CUDNN_ATTR_TENSOR_DATA_TYPE, -1), .ragged = -1};
    descriptor *const *const begins = found(d, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, NULL);
    if (begins) {
        t.ragged = add_tensor(g, *begins);
        if (t.ragged < 0) return -1;
    }
    const int64_t *const uid = found(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, NULL);
    const int64_t *const shape = found(d, CUDNN_ATTR_TENSOR_DIMENSIONS, &t.rank);
    int64_t rank = 0;
    const int64_t *const strides = found(d, CUDNN_ATTR_TENSOR_STRIDES, &rank);
    if (!uid || !shape || !strides || rank != t.rank || rank > DNN_RANK || t.dtype < 0) return -1;
    for (int i = 0; i < g->n_tensors; i++)
        if (g->tensors[i].uid == *uid) return i;
    if (g->n_tensors == DNN_TENSORS) return -1;
    t.uid = *uid;
    t.total = 1;
    for (int64_t i = 0; i < rank; i++) {
        t.shape[i] = shape[i];
        t.strides[i] = strides[i];
        t.total *= shape[i];
        if (shape[i] < 1 || strides[i] < 1) return -1;
    }
    t.is_virtual = yes(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    t.by_value = yes(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    g->tensors[g->n_tensors] = t;
    return g->n_tensors++;
}

/* What the descriptor of an operation's parameters says. */
static void take_parameters(dnn_node *node, const descriptor *d) {
    switch (d->type) {
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
        node->compute = number(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, -1);
        numbers(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, node->before);
        numbers(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, node->after);
        numbers(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, node->stride);
        numbers(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, node->dilation);
        return;
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
        node->compute = number(d, CUDNN_ATTR_POINTWISE_MATH_PREC, -1);
        node->mode = number(d, CUDNN_ATTR_POINTWISE_MODE, -1);
        node->number = real(d, CUDNN_ATTR_POINTWISE_ELU_ALPHA, 1);
        node->number *= real(d, CUDNN_ATTR_POINTWISE_SOFTPLUS_BETA, 1) * real(d, CUDNN_ATTR_POINTWISE_SWISH_BETA, 1);
        numbers(d, CUDNN_ATTR_POINTWISE_AXIS, &node->axis);
        return;
    case CUDNN_BACKEND_MATMUL_DESCRIPTOR: node->compute = number(d, CUDNN_ATTR_MATMUL_COMP_TYPE, -1); return;
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
        node->compute = number(d, CUDNN_ATTR_REDUCTION_COMP_TYPE, -1);
        node->mode = number(d, CUDNN_ATTR_REDUCTION_OPERATOR, -1);
        return;
    case CUDNN_BACKEND_RNG_DESCRIPTOR:
        node->mode = number(d, CUDNN_ATTR_RNG_DISTRIBUTION, -1);
        node->number = real(d, CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY, -1);
        return;
    case CUDNN_BACKEND_RESAMPLE_DESCRIPTOR:
        node->compute = number(d, CUDNN_ATTR_RESAMPLE_COMP_TYPE, -1);
        node->mode = number(d, CUDNN_ATTR_RESAMPLE_MODE, -1);
        fractions(d, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, node->window);
        fractions(d, CUDNN_ATTR_RESAMPLE_STRIDES, node->stride);
        fractions(d, CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, node->before);
        fractions(d, CUDNN_ATTR_RESAMPLE_POST_PADDINGS, node->after);
        return;
    default: return;
    }
}

static bool add_node(dnn_graph *g, const descriptor *d) {
    static const int alphas[] = {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA};
    static const int betas[] = {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    if (g->n_nodes == DNN_NODES) return false;
    dnn_node *const node = &g->nodes[g->n_nodes++];
    *node = (dnn_node){.kind = d->type, .alpha = 1, .number = 1};
    for (int i = 0; i < 3; i++) {
        node->alpha *= real(d, alphas[i], 1);
        node->beta += real(d, betas[i], 0);
    }
    if (d->type == CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR) {
        node->mode = number(d, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, -1);
        node->training = number(d, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, -1) == CUDNN_NORM_FWD_TRAINING;
    } else if (d->type == CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR) {
        node->mode = number(d, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, -1);
    }
    for (int i = 0; i < d->n; i++) {
        if (d->attributes[i].type != CUDNN_TYPE_BACKEND_DESCRIPTOR) continue;
        const descriptor *const other = *(descriptor *const *)d->attributes[i].data;
        if (other->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR) {
            take_parameters(node, other);
            continue;
        }
        const int tensor = add_tensor(g, other);
        if (tensor < 0 || node->n_ports == DNN_PORTS) return false;
        node->ports[node->n_ports] = d->attributes[i].name;
        node->port_tensors[node->n_ports++] = tensor;
    }
    return true;
}

static cudnnStatus_t finalize_graph(descriptor *d) {
    int64_t n = 0;
    descriptor *const *const operations = found(d, CUDNN_ATTR_OPERATIONGRAPH_OPS, &n);
    d->graph = calloc(1, sizeof *d->graph);
    d->owns_graph = 1;
    if (!operations || !d->graph) return say(CUDNN_STATUS_BAD_PARAM, "a graph without operations");
    for (int64_t i = 0; i < n; i++)
        if (!add_node(d->graph, operations[i])) return say(CUDNN_STATUS_BAD_PARAM, "a malformed operation");
    return CUDNN_STATUS_SUCCESS;
}

/* A plan as text: its engine, and the bytes of its graph in letters. */
static const char saved_head[] = "{\"fake plan\": ";
enum { SAVED_BYTES = sizeof saved_head + 1 + 2 * sizeof(dnn_graph) + 1 };
/* Plans that were made from text, for tests in this process. */
_Atomic unsigned fake_dnn_loaded;

static void save_plan(const descriptor *d, char *into) {
    const unsigned char *const bytes = (const unsigned char *)d->graph;
    char *at = into + sprintf(into, "%s%d:", saved_head, d->engine);
    for (size_t i = 0; i < sizeof *d->graph; i++) {
        *at++ = (char)('a' + (bytes[i] >> 4));
        *at++ = (char)('a' + (bytes[i] & 15));
    }
    *at = '}';
}

static cudnnStatus_t load_plan(descriptor *d, const char *text, int64_t n) {
    const size_t head = sizeof saved_head - 1;
    if (n != SAVED_BYTES || memcmp(text, saved_head, head) != 0) return say(CUDNN_STATUS_BAD_PARAM, "no text of a plan");
    d->graph = calloc(1, sizeof *d->graph);
    d->owns_graph = 1;
    if (!d->graph) return say(CUDNN_STATUS_INTERNAL_ERROR, "no memory");
    d->engine = text[head] - '0';
    for (size_t i = 0; i < sizeof *d->graph; i++)
        ((unsigned char *)d->graph)[i] =
            (unsigned char)((text[head + 2 + 2 * i] - 'a') << 4 | (text[head + 3 + 2 * i] - 'a'));
    fake_dnn_loaded++;
    return CUDNN_STATUS_SUCCESS;
}

static size_t workspace_of(const dnn_graph *g, int engine) {
    if (dnn_has_float_products(g)) return engine ? EXACT_WORKSPACE : 0;
    const dnn_node *const n = &g->nodes[0];
    if (engine || n->kind != CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR) return 0;
    const dnn_tensor *const dw = dnn_at(g, n, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW);
    return dnn_size_of(dw->dtype) == 2 ? SPLITS * sizeof(float) * (size_t)dw->total : 0;
}

static cudnnStatus_t finalize_plan(descriptor *d) {
    int64_t n = 0;
    const char *const text = found(d, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, &n);
    if (text && found(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, NULL)) {
        const cudnnStatus_t status = load_plan(d, text, n);
        d->workspace = d->graph ? workspace_of(d->graph, d->engine) : 0;
        return status;
    }
    descriptor *const *const config = found(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, NULL);
    if (!config || !found(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, NULL))
        return say(CUDNN_STATUS_BAD_PARAM, "a plan without engine or handle");
    d->graph = (*config)->graph;
    d->engine = (*config)->engine;
    d->workspace = workspace_of(d->graph, d->engine);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t which) {
    MAY_FAIL();
    descriptor *const d = which;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    if (d->finalized) return say(CUDNN_STATUS_BAD_PARAM, "the descriptor is finalized");
    if (d->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) status = finalize_graph(d);
    if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) status = finalize_plan(d);
    if (d->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
        descriptor *const *const graph = found(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, NULL);
        if (!graph) return say(CUDNN_STATUS_BAD_PARAM, "heuristics without a graph");
        d->graph = (*graph)->graph;
    }
    d->finalized = status == CUDNN_STATUS_SUCCESS;
    return status;
}

cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t which, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted, int64_t *count, void *into) {
    MAY_FAIL();
    const descriptor *const d = which;
    (void)type;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
        const char *const refusal = dnn_refusal(d->graph);
        if (refusal) say(CUDNN_STATUS_SUCCESS, refusal);
        *count = refusal ? 0 : ENGINES;
        for (int64_t i = 0; i < wanted && i < *count; i++) {
            descriptor *const config = ((descriptor *const *)into)[i];
            config->graph = d->graph;
            config->engine = (int)i;
            config->finalized = 1;
        }
        return CUDNN_STATUS_SUCCESS;
    }
    *count = 1;
    if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
        descriptor *const engine = *(descriptor *const *)into;
        engine->graph = d->graph;
        engine->engine = d->engine;
    } else if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX) {
        *(int64_t *)into = d->engine;
    } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
        *count = d->engine == 0 && dnn_has_float_products(d->graph);
        if (*count) *(int *)into = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    } else if (name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION) {
        *count = SAVED_BYTES;
        if (wanted >= SAVED_BYTES) save_plan(d, into);
    } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
        *(int64_t *)into = (int64_t)d->workspace;
    } else {
        return say(CUDNN_STATUS_BAD_PARAM, "an attribute that the fake does not have");
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t which, cudnnBackendDescriptor_t with) {
    MAY_FAIL();
    const descriptor *const plan = which, *const pack = with;
    if (!plan->finalized || !pack->finalized) return say(CUDNN_STATUS_BAD_PARAM, "the plan or the pack is not finalized");
    int64_t n = 0, m = 0;
    void *const *const pointers = found(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &n);
    const int64_t *const uids = found(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &m);
    void *const *const workspace = found(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, NULL);
    if (!pointers || !uids || n != m) return say(CUDNN_STATUS_BAD_PARAM, "a malformed pack");
    dnn_run run = {.graph = plan->graph, .rounds = plan->engine == 0, .workspace = workspace ? *workspace : NULL,
                   .workspace_bytes = plan->workspace};
    if (plan->workspace && !run.workspace) return say(CUDNN_STATUS_BAD_PARAM, "the plan needs a workspace");
    for (int t = 0; t < plan->graph->n_tensors; t++) {
        const dnn_tensor *const tensor = &plan->graph->tensors[t];
        int64_t at = 0;
        while (at < n && uids[at] != tensor->uid) at++;
        if (tensor->is_virtual) continue;
        if (at == n) return say(CUDNN_STATUS_BAD_PARAM, "a tensor has no pointer");
        run.pointers[t] = pointers[at];
        if (tensor->by_value) memcpy(&run.values[t], pointers[at], 8);
        else if ((uintptr_t)pointers[at] & 15) return say(CUDNN_STATUS_BAD_PARAM, "a pointer is not aligned to 16 bytes");
    }
    const CUresult result = fake_enqueue(handle->stream, dnn_compute, &run, sizeof run, 0);
    return result ? say(CUDNN_STATUS_EXECUTION_FAILED, "the stream refuses work") : CUDNN_STATUS_SUCCESS;
}
