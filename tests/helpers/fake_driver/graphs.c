/* Graphs: the work that a stream was given while it was captured, to be given to streams again.
 *
 * A captured stream hands its work over instead of running it (fake_capture).  What would wait for it, or look at it, is
 * refused and ends the capture, as on a GPU. */
#define _GNU_SOURCE
#include "fake_driver.h"

#include <stdlib.h>
#include <string.h>

enum { GRAPH = 0x67727068, EXEC = 0x65786563, GRAPH_NODE_TYPE_MEMCPY = 1 };

typedef struct {
    void (*run)(void *);
    void *argument;
    size_t size;
    unsigned how;
} node; /* what a CUgraphNode points to */

struct CUgraph_st {
    uint32_t magic;
    unsigned n;
    node *nodes;
};

struct CUgraphExec_st {
    uint32_t magic;
    CUgraph holds;
};

static CUgraph new_graph(void) {
    CUgraph g = calloc(1, sizeof *g);
    if (g) g->magic = GRAPH;
    return g;
}

static void free_graph(CUgraph g) {
    for (unsigned i = 0; i < g->n; i++) free(g->nodes[i].argument);
    free(g->nodes);
    g->magic = 0;
    free(g);
}

static CUresult add(CUgraph g, const node *what) {
    node *nodes = realloc(g->nodes, (g->n + 1) * sizeof *nodes);
    if (!nodes) return CUDA_ERROR_OUT_OF_MEMORY;
    g->nodes = nodes;
    nodes[g->n] = *what;
    nodes[g->n].argument = malloc(what->size + 1);
    if (!nodes[g->n].argument) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(nodes[g->n++].argument, what->argument, what->size);
    return CUDA_SUCCESS;
}

static CUgraph copy_of(CUgraph g) {
    CUgraph copy = new_graph();
    for (unsigned i = 0; copy && i < g->n; i++)
        if (add(copy, &g->nodes[i])) return free_graph(copy), NULL;
    return copy;
}

CUresult fake_capture(CUgraph g, void (*run)(void *), const void *argument, size_t size, unsigned how) {
    return add(g, &(node){run, (void *)(uintptr_t)argument, size, how});
}

CUgraph fake_new_graph(void) { return new_graph(); }
void fake_free_graph(CUgraph g) { free_graph(g); }

CUresult cuGraphDestroy(CUgraph graph) {
    if (!graph || graph->magic != GRAPH) return ERROR_INVALID_VALUE;
    free_graph(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n) {
    if (!graph || graph->magic != GRAPH || !n) return ERROR_INVALID_VALUE;
    for (unsigned i = 0; nodes && i < graph->n && i < *n; i++) nodes[i] = (CUgraphNode)&graph->nodes[i];
    *n = graph->n;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode given, CUgraphNodeType *type) {
    const unsigned how = ((const node *)given)->how;
    *type = how & FAKE_COPY ? GRAPH_NODE_TYPE_MEMCPY : how & FAKE_FILL ? CU_GRAPH_NODE_TYPE_MEMSET
                                                                      : CU_GRAPH_NODE_TYPE_KERNEL;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long flags) {
    MAY_REFUSE();
    CUcontext c;
    const CUresult r = fake_enter(&c);
    if (r) return r;
    if (!made || !graph || graph->magic != GRAPH || flags) return ERROR_INVALID_VALUE;
    CUgraphExec e = calloc(1, sizeof *e);
    if (!e || !(e->holds = copy_of(graph))) return free(e), CUDA_ERROR_OUT_OF_MEMORY;
    e->magic = EXEC;
    *made = e;
    return CUDA_SUCCESS;
}

/* The same nodes in the same order, with other parameters; earlier launches keep theirs. */
CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info) {
    MAY_REFUSE();
    CUcontext c;
    const CUresult r = fake_enter(&c);
    if (r) return r;
    if (!exec || exec->magic != EXEC || !graph || graph->magic != GRAPH || !info) return ERROR_INVALID_VALUE;
    int same = exec->holds->n == graph->n;
    for (unsigned i = 0; same && i < graph->n; i++)
        same = exec->holds->nodes[i].run == graph->nodes[i].run && exec->holds->nodes[i].size == graph->nodes[i].size;
    if (!same) {
        info->result = 2; /* CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED */
        return ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    CUgraph copy = copy_of(graph);
    if (!copy) return CUDA_ERROR_OUT_OF_MEMORY;
    free_graph(exec->holds);
    exec->holds = copy;
    return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    MAY_REFUSE();
    CUcontext c;
    CUresult r = fake_enter(&c);
    if (r) return r;
    if (!exec || exec->magic != EXEC) return ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < exec->holds->n && !r; i++) {
        const node *n = &exec->holds->nodes[i];
        r = fake_enqueue(stream, n->run, n->argument, n->size, n->how);
    }
    return r;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
    if (!exec || exec->magic != EXEC) return ERROR_INVALID_VALUE;
    free_graph(exec->holds);
    exec->magic = 0;
    free(exec);
    return CUDA_SUCCESS;
}
