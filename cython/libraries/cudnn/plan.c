#include "libraries/cudnn/plan.h"

#include <stdio.h>
#include <stdlib.h>

#include "libraries/cudnn/private.h"

const atomr_constant atomr_cudnn_constants[] = {ATOMR_CUDNN_CONSTANTS(ATOMR_CONSTANT) ATOMR_LAST_CONSTANT};

enum { TENSORS = 64, CONFIGS = 128, NOTES = 32 };

typedef cudnnBackendDescriptor_t descriptor;

struct atomr_cudnn_plan {
    atomr_cuda *cuda;
    const atomr_cudnn_table *t;
    descriptor *descriptors; /* of the graph, in the order of the words */
    size_t n_descriptors;
    descriptor config, plan;
    int64_t workspace, engine;
    int64_t n_operands;
    size_t n;
    int64_t uids[TENSORS], operands[TENSORS], alignments[TENSORS];
    uint64_t constants[TENSORS];
};

/* What is needed while a plan is built. */
typedef struct {
    const atomr_cudnn_table *t;
    cudnnHandle_t handle;   /* NULL: `profile` is the device */
    descriptor profile;
    char said[200];         /* why the last engine was refused */
    int64_t listed;         /* configurations that the heuristics named last */
} building;

static size_t size_of(int64_t type) {
    switch (type) {
    case CUDNN_TYPE_BOOLEAN: return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    case CUDNN_TYPE_FRACTION: return 16;
    default: return 4; /* enumerators, INT32, FLOAT */
    }
}

/* Convert the elements of an attribute; 0: a descriptor that is not there yet. */
static int convert(const atomr_cudnn_plan *p, int64_t type, const int64_t *words, int64_t count, char *into) {
    const size_t size = size_of(type);
    for (int64_t i = 0; i < count; i++, into += size) {
        if (type == CUDNN_TYPE_FRACTION) {
            memcpy(into, words + 2 * i, 16);
        } else if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
            if (words[i] < 0 || (uint64_t)words[i] >= p->n_descriptors) return 0;
            memcpy(into, &p->descriptors[words[i]], 8);
        } else if (type == CUDNN_TYPE_FLOAT) {
            double wide;
            memcpy(&wide, words + i, 8);
            const float narrow = (float)wide;
            memcpy(into, &narrow, 4);
        } else {
            memcpy(into, words + i, size); /* little-endian */
        }
    }
    return 1;
}

/* The words from `at` on are a descriptor: make it.  Returns an atomr_code. */
static int make_one(building *b, atomr_cudnn_plan *p, const atomr_cudnn_words *w, size_t *at, int last,
                    atomr_failure *failure) {
    char text[80];
    const size_t left = w->n - *at;
    if (left < 2) goto malformed;
    const int64_t kind = w->words[(*at)++];
    const int64_t attributes = w->words[(*at)++];
    descriptor made = NULL;
    cudnnStatus_t status = b->t->cudnnBackendCreateDescriptor((int)kind, &made);
    if (status != CUDNN_STATUS_SUCCESS) {
        snprintf(text, sizeof text, "making descriptor %lld", (long long)kind);
        return atomr_cudnn_fail(b->t, status, text, failure);
    }
    p->descriptors[p->n_descriptors] = made;
    for (int64_t i = 0; i < attributes; i++) {
        if (w->n - *at < 3) goto half;
        const int64_t name = w->words[*at], type = w->words[*at + 1], count = w->words[*at + 2];
        *at += 3;
        const int64_t words = type == CUDNN_TYPE_FRACTION ? 2 * count : count;
        if (count < 0 || words > (int64_t)(w->n - *at)) goto half;
        char *const elements = malloc((size_t)count * size_of(type) + 1);
        if (!elements || !convert(p, type, w->words + *at, count, elements)) {
            free(elements);
            goto half;
        }
        status = b->t->cudnnBackendSetAttribute(made, (int)name, (int)type, count, elements);
        free(elements);
        *at += (size_t)words;
        if (status != CUDNN_STATUS_SUCCESS) break;
    }
    if (status == CUDNN_STATUS_SUCCESS && last && b->handle)
        status = b->t->cudnnBackendSetAttribute(made, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &b->handle);
    if (status == CUDNN_STATUS_SUCCESS) status = b->t->cudnnBackendFinalize(made);
    p->n_descriptors++;
    if (status == CUDNN_STATUS_SUCCESS) return ATOMR_OK;
    char said[200] = "";
    b->t->cudnnGetLastErrorString(said, sizeof said);
    said[sizeof said - 1] = 0;
    if (status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000 || status / 1000 == CUDNN_STATUS_BAD_PARAM / 1000)
        return atomr_unsupported(failure, "cudnn", "graph", "cuDNN refuses descriptor %lld, status %d: %s", (long long)kind,
                                 status, said);
    snprintf(text, sizeof text, "descriptor %lld", (long long)kind);
    return atomr_cudnn_fail(b->t, status, text, failure);
half:
    b->t->cudnnBackendDestroyDescriptor(made);
malformed:
    return atomr_refused(failure, ATOMR_INVALID_REQUEST, "malformed description of a graph of cuDNN");
}

static size_t count_descriptors(const atomr_cudnn_words *w) {
    size_t found = 0;
    for (size_t at = 0; at + 2 <= w->n; found++) {
        int64_t attributes = w->words[at + 1];
        for (at += 2; attributes > 0 && at + 3 <= w->n; attributes--) {
            const int64_t count = w->words[at + 2] * (w->words[at + 1] == CUDNN_TYPE_FRACTION ? 2 : 1);
            if (count < 0 || count > (int64_t)(w->n - at - 3)) return 0;
            at += 3 + (size_t)count;
        }
    }
    return found;
}

static int make_graph(building *b, atomr_cudnn_plan *p, const atomr_cudnn_words *w, atomr_failure *failure) {
    const size_t n = count_descriptors(w);
    p->descriptors = calloc(n + 1, sizeof *p->descriptors);
    if (!n || !p->descriptors)
        return atomr_refused(failure, ATOMR_INVALID_REQUEST, "malformed description of a graph of cuDNN");
    int code = ATOMR_OK;
    for (size_t at = 0, i = 0; i < n && code == ATOMR_OK; i++) code = make_one(b, p, w, &at, i + 1 == n, failure);
    return code;
}

/* Whether an engine has a note that the choice bans; its number. */
static int is_banned(const building *b, descriptor config, uint64_t banned, int64_t *number) {
    int64_t n = 0;
    int notes[NOTES] = {0};
    descriptor engine = NULL;
    if (b->t->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS) return 1;
    int bad = b->t->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                             &engine) != CUDNN_STATUS_SUCCESS;
    bad = bad || b->t->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, number) !=
                     CUDNN_STATUS_SUCCESS;
    n = 0;
    bad = bad || b->t->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, NOTES,
                                                &n, notes) != CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; !bad && i < n && i < NOTES; i++) bad = notes[i] < 64 && (banned >> notes[i] & 1);
    b->t->cudnnBackendDestroyDescriptor(engine);
    return bad;
}

static void note_refusal(building *b) {
    b->t->cudnnGetLastErrorString(b->said, sizeof b->said);
    b->said[sizeof b->said - 1] = 0;
}

/* The plan of a configuration or of a saved plan's text, and its workspace; NULL: cuDNN refuses. */
static descriptor finalized(building *b, descriptor config, const atomr_cudnn_saved *saved, int64_t *workspace) {
    descriptor plan = NULL;
    const atomr_cudnn_table *const t = b->t;
    if (t->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan) != CUDNN_STATUS_SUCCESS) return NULL;
    cudnnStatus_t status =
        b->handle ? t->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &b->handle)
                  : t->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                                &b->profile);
    if (status == CUDNN_STATUS_SUCCESS && saved)
        status = t->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                             (int64_t)saved->n, saved->text);
    else if (status == CUDNN_STATUS_SUCCESS)
        status = t->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                             &config);
    if (status == CUDNN_STATUS_SUCCESS) status = t->cudnnBackendFinalize(plan);
    int64_t n = 0;
    if (status == CUDNN_STATUS_SUCCESS)
        status = t->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
                                             workspace);
    if (status == CUDNN_STATUS_SUCCESS) return plan;
    note_refusal(b);
    t->cudnnBackendDestroyDescriptor(plan);
    return NULL;
}

/* Try a configuration, which is consumed; 1: it does with the workspace. */
static int consider(building *b, atomr_cudnn_plan *p, descriptor config, const atomr_cudnn_choice *choice) {
    int64_t engine = -1, workspace = 0;
    descriptor plan = NULL;
    if (!is_banned(b, config, choice->banned, &engine)) plan = finalized(b, config, NULL, &workspace);
    if (!plan || (p->plan && workspace >= p->workspace)) { /* a better one is there already */
        if (plan) b->t->cudnnBackendDestroyDescriptor(plan);
        b->t->cudnnBackendDestroyDescriptor(config);
        return 0;
    }
    if (p->plan) b->t->cudnnBackendDestroyDescriptor(p->plan);
    if (p->config) b->t->cudnnBackendDestroyDescriptor(p->config);
    p->config = config;
    p->plan = plan;
    p->workspace = workspace;
    p->engine = engine;
    return (uint64_t)workspace <= choice->workspace;
}

/* Try the configurations that a mode of the heuristics names, in their order; 1: one of them is good. */
static int choose(building *b, atomr_cudnn_plan *p, int mode, const atomr_cudnn_choice *choice) {
    const atomr_cudnn_table *const t = b->t;
    descriptor heuristics = NULL, graph = p->descriptors[p->n_descriptors - 1], configs[CONFIGS];
    if (t->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics) != CUDNN_STATUS_SUCCESS) return 0;
    cudnnStatus_t status = t->cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    if (status == CUDNN_STATUS_SUCCESS)
        status = t->cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (status == CUDNN_STATUS_SUCCESS && !b->handle)
        status = t->cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                             &b->profile);
    if (status == CUDNN_STATUS_SUCCESS) status = t->cudnnBackendFinalize(heuristics);
    int64_t n = 0, found = 0;
    if (status == CUDNN_STATUS_SUCCESS)
        status = t->cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &n,
                                             NULL);
    if (n > CONFIGS) n = CONFIGS;
    int64_t made = 0;
    while (status == CUDNN_STATUS_SUCCESS && made < n) {
        status = t->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[made]);
        if (status == CUDNN_STATUS_SUCCESS) made++;
    }
    if (status == CUDNN_STATUS_SUCCESS && n > 0)
        status = t->cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n,
                                             &found, configs);
    if (status != CUDNN_STATUS_SUCCESS) note_refusal(b);
    if (status != CUDNN_STATUS_SUCCESS || found > made) found = 0;
    b->listed = found;
    int good = 0;
    for (int64_t i = 0; i < made; i++) {
        if (!good && i < found && (choice->only < 0 || choice->only == i)) good = consider(b, p, configs[i], choice);
        else t->cudnnBackendDestroyDescriptor(configs[i]);
    }
    t->cudnnBackendDestroyDescriptor(heuristics);
    return good;
}

static int begin(building *b, atomr_cuda *cuda, const char *profile, atomr_failure *failure) {
    if (cuda) {
        void *handle = NULL;
        const int code = atomr_device_handle(cuda, &atomr_cudnn_of_device, &handle, failure);
        b->handle = handle;
        return code;
    }
    cudnnStatus_t status = b->t->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &b->profile);
    if (status == CUDNN_STATUS_SUCCESS)
        status = b->t->cudnnBackendSetAttribute(b->profile, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                                (int64_t)strlen(profile), profile);
    if (status == CUDNN_STATUS_SUCCESS) status = b->t->cudnnBackendFinalize(b->profile);
    return status == CUDNN_STATUS_SUCCESS ? ATOMR_OK : atomr_cudnn_fail(b->t, status, "reading the device's profile", failure);
}

static int take_tensors(atomr_cudnn_plan *p, const atomr_cudnn_tensor *tensors, size_t n, atomr_failure *failure) {
    int good = n > 0 && n <= TENSORS;
    for (size_t i = 0; good && i < n; i++) {
        const atomr_cudnn_tensor *const t = &tensors[i];
        good = t->operand >= -1 && t->operand < p->n_operands && t->alignment > 0 && !(t->alignment & (t->alignment - 1));
        p->uids[i] = t->uid;
        p->operands[i] = t->operand;
        p->alignments[i] = t->alignment;
        p->constants[i] = t->constant;
    }
    p->n = n;
    if (good) return ATOMR_OK;
    return atomr_unsupported(failure, "cudnn", "tensors", "a graph of %zu tensors that are no intermediate results; allowed: 1 to %d",
                             n, TENSORS);
}

int atomr_cudnn_new(atomr_cuda *cuda, const char *profile, const atomr_cudnn_words *words,
                    const atomr_cudnn_choice *choice, const atomr_cudnn_saved *saved, const atomr_cudnn_tensor *tensors,
                    size_t n_tensors, int64_t n_operands, atomr_cudnn_plan **made, atomr_failure *failure) {
    char why[sizeof failure->text];
    building b = {.t = atomr_cudnn_load(NULL, why, sizeof why)};
    if (!b.t) return atomr_refused(failure, ATOMR_UNSUPPORTED, "%s", why);
    atomr_cudnn_plan *const p = calloc(1, sizeof *p);
    if (!p) return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "no host memory for a plan of cuDNN");
    p->cuda = cuda;
    p->t = b.t;
    p->n_operands = n_operands;
    int code = take_tensors(p, tensors, n_tensors, failure);
    if (code == ATOMR_OK) code = begin(&b, cuda, profile, failure);
    if (code == ATOMR_OK && saved->n) {
        p->engine = saved->engine;
        p->plan = finalized(&b, NULL, saved, &p->workspace);
        if (!p->plan) code = atomr_unsupported(failure, "cudnn", "saved_plan", "cuDNN %zu refuses a saved plan: %s",
                                               b.t->cudnnGetVersion(), b.said);
    } else if (code == ATOMR_OK) {
        code = make_graph(&b, p, words, failure);
    }
    if (code == ATOMR_OK && !p->plan) {
        if (!choose(&b, p, CUDNN_HEUR_MODE_A, choice) && choice->only < 0) choose(&b, p, CUDNN_HEUR_MODE_FALLBACK, choice);
        if (!p->plan && choice->only >= b.listed)
            code = atomr_unsupported(failure, "cudnn", "candidates", "cuDNN %zu names %lld engines for this graph",
                                     b.t->cudnnGetVersion(), (long long)b.listed);
        else if (!p->plan)
            code = atomr_unsupported(failure, "cudnn", "engine", "cuDNN %zu has no engine for this graph: %s",
                                     b.t->cudnnGetVersion(), b.said);
    }
    if (b.profile) b.t->cudnnBackendDestroyDescriptor(b.profile);
    if (code == ATOMR_OK) *made = p;
    else atomr_cudnn_delete(p);
    return code;
}

uint64_t atomr_cudnn_workspace(const atomr_cudnn_plan *p) { return (uint64_t)p->workspace; }
int64_t atomr_cudnn_engine(const atomr_cudnn_plan *p) { return p->engine; }

size_t atomr_cudnn_save(const atomr_cudnn_plan *p, char *into, size_t room) {
    int64_t n = 0;
    if (p->cuda && atomr_cuda_enter(p->cuda) != CUDA_SUCCESS) return 0;
    const cudnnStatus_t status = p->t->cudnnBackendGetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                                                CUDNN_TYPE_CHAR, (int64_t)room, &n, into);
    return status == CUDNN_STATUS_SUCCESS && n > 0 ? (size_t)n : 0;
}

void atomr_cudnn_delete(atomr_cudnn_plan *p) {
    if (!p) return;
    if (!p->cuda || atomr_cuda_enter(p->cuda) == CUDA_SUCCESS) {
        if (p->plan) p->t->cudnnBackendDestroyDescriptor(p->plan);
        if (p->config) p->t->cudnnBackendDestroyDescriptor(p->config);
        for (size_t i = p->n_descriptors; i-- > 0;) p->t->cudnnBackendDestroyDescriptor(p->descriptors[i]);
    }
    free(p->descriptors);
    free(p);
}

static int refuse_address(const atomr_cudnn_plan *p, size_t i, const void *at, atomr_failure *failure) {
    const uint64_t bits = (uint64_t)(uintptr_t)at;
    return atomr_unsupported(failure, "cudnn", "alignment",
                             "operand %lld starts at an address aligned to %llu bytes only, and its plan is for multiples "
                             "of %lld: device.copy(ref) makes an array that is aligned",
                             (long long)p->operands[i], (unsigned long long)(bits & (~bits + 1)),
                             (long long)p->alignments[i]);
}

int atomr_cudnn_run(void *context, const atomr_call *call, atomr_failure *failure) {
    atomr_cudnn_plan *const p = context;
    const atomr_cudnn_table *const t = p->t;
    void *pointers[TENSORS];
    for (size_t i = 0; i < p->n; i++) {
        pointers[i] = p->operands[i] < 0 ? (void *)&p->constants[i] : call->pointers[p->operands[i]];
        if (p->operands[i] >= 0 && (uint64_t)(uintptr_t)pointers[i] & (uint64_t)(p->alignments[i] - 1))
            return refuse_address(p, i, pointers[i], failure);
    }
    if ((uint64_t)p->workspace > call->workspace_bytes)
        return atomr_refused(failure, ATOMR_INVALID_REQUEST, "the lane has a workspace of %llu bytes, and this graph needs %llu",
                             (unsigned long long)call->workspace_bytes, (unsigned long long)p->workspace);
    void *handle = NULL, *workspace = p->workspace ? call->workspace : NULL;
    const int code = atomr_lane_handle(p->cuda, call->lane, &atomr_cudnn_of_lane, &handle, failure);
    if (code != ATOMR_OK) return code;
    descriptor pack = NULL; /* one for each call: a finalized pack takes no other pointers */
    cudnnStatus_t status = t->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status != CUDNN_STATUS_SUCCESS) return atomr_cudnn_fail(t, status, "making a variant pack", failure);
    status = t->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (status == CUDNN_STATUS_SUCCESS)
        status = t->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, (int64_t)p->n,
                                             pointers);
    if (status == CUDNN_STATUS_SUCCESS)
        status = t->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, (int64_t)p->n,
                                             p->uids);
    if (status == CUDNN_STATUS_SUCCESS) status = t->cudnnBackendFinalize(pack);
    if (status == CUDNN_STATUS_SUCCESS) status = t->cudnnBackendExecute(handle, p->plan, pack);
    t->cudnnBackendDestroyDescriptor(pack);
    return status == CUDNN_STATUS_SUCCESS ? ATOMR_OK : atomr_cudnn_fail(t, status, "cudnnBackendExecute", failure);
}
