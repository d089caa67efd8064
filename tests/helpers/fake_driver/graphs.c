/* Graphs: the work that a stream was given while it was captured, to be given to streams again.
 *
 * A captured stream hands its work over instead of running it (fake_capture).  What would wait for it, or look at it, is
 * refused and ends the capture, as on a GPU.  A launch runs the nodes one after the other, in a random order that their
 * dependencies allow. */
#define _GNU_SOURCE
#include "fake_driver.h"

#include <stdlib.h>
#include <string.h>

enum { GRAPH = 0x67727068, EXEC = 0x65786563, CONDITION = 0x636f6e64, GRAPH_NODE_TYPE_MEMCPY = 1 };

/* What a kernel sets and a conditional node asks.  Never freed, since instances and kernels' arguments name it. */
typedef struct {
    uint32_t magic;
    CUgraph made_for;
    unsigned initial, value;
} condition;

struct CUgraphNode_st {
    CUgraph graph;
    unsigned index, n_after;
    unsigned *after; /* by index */
    void (*run)(void *); /* NULL: a conditional node */
    void *argument;
    size_t size;
    unsigned how; /* it was enqueued */
    condition *decides;
    int type;
    CUgraph body;
};

struct CUgraph_st {
    uint32_t magic;
    unsigned n;
    CUgraphNode *nodes;
    bool is_body, instantiated;
    unsigned references; /* of an instance's: its own, and launches that have not run */
};

struct CUgraphExec_st {
    uint32_t magic;
    CUgraph holds, made_of;
};

static __thread CUgraph running;

CUgraph fake_new_graph(void) {
    CUgraph g = calloc(1, sizeof *g);
    if (g) g->magic = GRAPH, g->references = 1;
    return g;
}

void fake_free_graph(CUgraph g) {
    if (--g->references) return;
    for (unsigned i = 0; i < g->n; i++) {
        if (g->nodes[i]->body) fake_free_graph(g->nodes[i]->body);
        free(g->nodes[i]->argument);
        free(g->nodes[i]->after);
        free(g->nodes[i]);
    }
    free(g->nodes);
    g->magic = 0;
    free(g);
}

/* A node behind others of its graph; NULL: there is no memory. */
static CUgraphNode new_node(CUgraph g, unsigned n_after) {
    CUgraphNode node = calloc(1, sizeof *node);
    CUgraphNode *nodes = realloc(g->nodes, (g->n + 1) * sizeof *nodes);
    unsigned *after = calloc(n_after + 1, sizeof *after);
    if (nodes) g->nodes = nodes;
    if (!node || !nodes || !after) return free(node), free(after), NULL;
    *node = (struct CUgraphNode_st){.graph = g, .index = g->n, .n_after = n_after, .after = after};
    return g->nodes[g->n++] = node;
}

bool fake_may_follow(CUgraph g, const CUgraphNode *after, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!after[i] || after[i]->graph != g) return false;
        for (size_t j = 0; j < i; j++)
            if (after[j] == after[i]) return false;
    }
    return true;
}

static CUgraphNode follow(CUgraph g, const CUgraphNode *after, size_t n) {
    CUgraphNode node = new_node(g, (unsigned)n);
    for (size_t i = 0; node && i < n; i++) node->after[i] = after[i]->index;
    return node;
}

CUresult fake_capture(CUgraph g, const CUgraphNode *after, size_t n_after, CUgraphNode *made, void (*run)(void *),
                      const void *argument, size_t size, unsigned how) {
    void *copy = malloc(size + 1);
    CUgraphNode node = copy ? follow(g, after, n_after) : NULL;
    if (!node) return free(copy), CUDA_ERROR_OUT_OF_MEMORY;
    if (size) memcpy(copy, argument, size);
    node->run = run;
    node->argument = copy;
    node->size = size;
    node->how = how;
    *made = node;
    return CUDA_SUCCESS;
}

static CUgraph copy_of(CUgraph g) {
    CUgraph copy = fake_new_graph();
    for (unsigned i = 0; copy && i < g->n; i++) {
        const CUgraphNode from = g->nodes[i];
        CUgraphNode to = new_node(copy, from->n_after);
        if (to) {
            memcpy(to->after, from->after, from->n_after * sizeof *to->after);
            to->run = from->run, to->size = from->size, to->how = from->how, to->decides = from->decides, to->type = from->type;
            to->argument = malloc(from->size + 1);
            if (from->body) to->body = copy_of(from->body);
        }
        if (!to || !to->argument || (from->body && !to->body)) return fake_free_graph(copy), NULL;
        if (from->size) memcpy(to->argument, from->argument, from->size);
    }
    return copy;
}

static bool decides_in(CUgraph g, const condition *c) {
    for (unsigned i = 0; i < g->n; i++) {
        const CUgraphNode n = g->nodes[i];
        if (n->body && (n->decides == c || decides_in(n->body, c))) return true;
    }
    return false;
}

static bool has_conditions(CUgraph g) {
    for (unsigned i = 0; i < g->n; i++)
        if (g->nodes[i]->body) return true;
    return false;
}

void fake_set_condition(unsigned long long handle, unsigned value) {
    condition *c = (condition *)(uintptr_t)handle;
    if (!c || c->magic != CONDITION || !running || !decides_in(running, c)) fake_raise(ERROR_LAUNCH_FAILED);
    c->value = value;
}

/* ---- running */

static uint64_t shuffle(uint64_t *seed) {
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return *seed >> 33;
}

static void run_nodes(CUgraph g, uint64_t *seed);

static void run_node(const CUgraphNode n, uint64_t *seed) {
    if (n->run) n->run(n->argument);
    else if (n->type == CU_GRAPH_COND_TYPE_IF && n->decides->value) run_nodes(n->body, seed);
    else if (n->type == CU_GRAPH_COND_TYPE_WHILE)
        while (n->decides->value) run_nodes(n->body, seed);
}

static void run_nodes(CUgraph g, uint64_t *seed) {
    bool *done = calloc(g->n + 1, sizeof *done); /* lost where a kernel faults */
    for (unsigned left = g->n; left; left--) {
        unsigned ready = 0, chosen = 0;
        for (unsigned i = 0; i < g->n; i++) {
            const CUgraphNode n = g->nodes[i];
            bool waits = done[i];
            for (unsigned j = 0; j < n->n_after; j++) waits = waits || !done[n->after[j]];
            if (!waits && shuffle(seed) % ++ready == 0) chosen = i;
        }
        run_node(g->nodes[chosen], seed);
        done[chosen] = true;
    }
    free(done);
}

static void reset(CUgraph g) {
    for (unsigned i = 0; i < g->n; i++)
        if (g->nodes[i]->body) {
            g->nodes[i]->decides->value = g->nodes[i]->decides->initial;
            reset(g->nodes[i]->body);
        }
}

static void run_graph(void *argument) {
    static uint64_t launches;
    CUgraph g = *(CUgraph *)argument;
    uint64_t seed = options.seed + __atomic_fetch_add(&launches, 1, __ATOMIC_RELAXED);
    reset(g);
    running = g;
    run_nodes(g, &seed);
    running = NULL;
    pthread_mutex_lock(&fake_lock);
    fake_free_graph(g);
    pthread_mutex_unlock(&fake_lock);
}

/* ---- the driver's functions */

static bool is_graph(CUgraph g) { return g && g->magic == GRAPH; }

CUresult cuGraphCreate(CUgraph *graph, unsigned flags) {
    MAY_REFUSE();
    if (!graph || flags) return ERROR_INVALID_VALUE;
    *graph = fake_new_graph();
    return *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphDestroy(CUgraph graph) {
    if (!is_graph(graph) || graph->is_body) return ERROR_INVALID_VALUE;
    fake_free_graph(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph graph, CUcontext context,
                                        unsigned initial, unsigned flags) {
    MAY_REFUSE();
    CUcontext c;
    const CUresult r = fake_enter(&c);
    if (r) return r;
    if (!handle || !is_graph(graph) || context != c || flags > CU_GRAPH_COND_ASSIGN_DEFAULT) return ERROR_INVALID_VALUE;
    condition *made = calloc(1, sizeof *made);
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    *made = (condition){CONDITION, graph, initial, initial};
    *handle = (uintptr_t)made;
    return CUDA_SUCCESS;
}

/* Only conditional nodes, with one body. */
CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges,
                           size_t n_after, CUgraphNodeParams *params) {
    MAY_REFUSE();
    CUcontext c;
    const CUresult r = fake_enter(&c);
    if (r) return r;
    if (!node || !is_graph(graph) || edges || !params || !fake_may_follow(graph, after, n_after)) return ERROR_INVALID_VALUE;
    condition *decides = (condition *)(uintptr_t)params->conditional.handle;
    const int type = params->conditional.type;
    if (params->type != CU_GRAPH_NODE_TYPE_CONDITIONAL || params->conditional.size != 1 ||
        (type != CU_GRAPH_COND_TYPE_IF && type != CU_GRAPH_COND_TYPE_WHILE) || params->conditional.ctx != c || !decides ||
        decides->magic != CONDITION || decides->made_for != graph)
        return ERROR_INVALID_VALUE;
    CUgraphNode made = follow(graph, after, n_after);
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    made->decides = decides;
    made->type = type;
    made->body = fake_new_graph();
    if (!made->body) return CUDA_ERROR_OUT_OF_MEMORY;
    made->body->is_body = true;
    params->conditional.phGraph_out = &made->body;
    *node = made;
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n) {
    if (!graph || graph->magic != GRAPH || !n) return ERROR_INVALID_VALUE;
    for (unsigned i = 0; nodes && i < graph->n && i < *n; i++) nodes[i] = graph->nodes[i];
    *n = graph->n;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode given, CUgraphNodeType *type) {
    *type = given->body               ? CU_GRAPH_NODE_TYPE_CONDITIONAL
            : given->how & FAKE_COPY ? GRAPH_NODE_TYPE_MEMCPY
            : given->how & FAKE_FILL ? CU_GRAPH_NODE_TYPE_MEMSET
                                     : CU_GRAPH_NODE_TYPE_KERNEL;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long flags) {
    MAY_REFUSE();
    CUcontext c;
    const CUresult r = fake_enter(&c);
    if (r) return r;
    if (!made || !is_graph(graph) || graph->is_body || flags) return ERROR_INVALID_VALUE;
    if (graph->instantiated && has_conditions(graph)) return ERROR_NOT_SUPPORTED;
    CUgraphExec e = calloc(1, sizeof *e);
    if (!e || !(e->holds = copy_of(graph))) return free(e), CUDA_ERROR_OUT_OF_MEMORY;
    graph->instantiated = true;
    e->magic = EXEC;
    e->made_of = graph;
    *made = e;
    return CUDA_SUCCESS;
}

static bool are_alike(CUgraph g, CUgraph h) {
    bool same = g->n == h->n;
    for (unsigned i = 0; same && i < g->n; i++) {
        const CUgraphNode one = g->nodes[i], other = h->nodes[i];
        same = one->run == other->run && one->size == other->size && one->n_after == other->n_after &&
               memcmp(one->after, other->after, one->n_after * sizeof *one->after) == 0 && one->type == other->type &&
               !one->body == !other->body && (!one->body || are_alike(one->body, other->body));
    }
    return same;
}

/* The same nodes in the same order, with other parameters; earlier launches keep theirs. */
CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info) {
    MAY_REFUSE();
    CUcontext c;
    const CUresult r = fake_enter(&c);
    if (r) return r;
    if (!exec || exec->magic != EXEC || !is_graph(graph) || !info) return ERROR_INVALID_VALUE;
    const bool same = are_alike(exec->holds, graph);
    if (!same) {
        info->result = 2; /* CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED */
        return ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    CUgraph copy = copy_of(graph);
    if (!copy) return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&fake_lock);
    fake_free_graph(exec->holds);
    exec->holds = copy;
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

/* The node of a graph's copy that stands for one of the graph's, which may be in the body of a conditional node. */
static CUgraphNode counterpart(CUgraph made_of, CUgraph copy, const struct CUgraphNode_st *node) {
    if (node->graph == made_of) return copy->nodes[node->index];
    CUgraphNode found = NULL;
    for (unsigned i = 0; !found && i < made_of->n; i++)
        if (made_of->nodes[i]->body) found = counterpart(made_of->nodes[i]->body, copy->nodes[i]->body, node);
    return found;
}

CUresult fake_set_node(CUgraphExec exec, CUgraphNode node, void (*run)(void *), const void *argument, size_t size) {
    if (!exec || exec->magic != EXEC || !node || node->run != run) return ERROR_INVALID_VALUE;
    CUgraph copy = copy_of(exec->holds);
    void *given = malloc(size + 1);
    if (!copy || !given) return CUDA_ERROR_OUT_OF_MEMORY;
    CUgraphNode into = counterpart(exec->made_of, copy, node);
    if (!into) {
        fake_free_graph(copy);
        free(given);
        return ERROR_INVALID_VALUE;
    }
    free(into->argument);
    into->argument = memcpy(given, argument, size);
    into->size = size;
    pthread_mutex_lock(&fake_lock);
    fake_free_graph(exec->holds);
    exec->holds = copy;
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    MAY_REFUSE();
    CUcontext c;
    CUresult r = fake_enter(&c);
    if (r) return r;
    if (!exec || exec->magic != EXEC) return ERROR_INVALID_VALUE;
    CUgraph g = exec->holds;
    pthread_mutex_lock(&fake_lock);
    g->references++;
    pthread_mutex_unlock(&fake_lock);
    r = fake_enqueue(stream, run_graph, &g, sizeof g, 0);
    if (r) {
        pthread_mutex_lock(&fake_lock);
        fake_free_graph(g);
        pthread_mutex_unlock(&fake_lock);
    }
    return r;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
    if (!exec || exec->magic != EXEC) return ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    fake_free_graph(exec->holds);
    pthread_mutex_unlock(&fake_lock);
    exec->magic = 0;
    free(exec);
    return CUDA_SUCCESS;
}
