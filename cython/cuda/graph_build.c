/* From the steps of a program to a graph: each is captured behind the last nodes of those that it depends on. */
#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_runs.h"
#include "cuda/graph.h"
#include "runtime/failure.h"

typedef struct {
    CUgraphNode *nodes; /* no one twice */
    size_t n, room;
} ends;

typedef struct {
    const atomr_graph *g;
    const atomr_driver *d;
    const atomr_call *call;
    CUstream stream;
    ends *last;        /* the last nodes of each step */
    CUgraphNode *nodes; /* of steps that can be set, or NULL */
    char *followed;    /* whether a step depends on it */
    ends begin;        /* what steps of control flow depend on besides */
    atomr_failure *failure;
} build;

static CUresult add(ends *e, const CUgraphNode *nodes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        while (at < e->n && e->nodes[at] != nodes[i]) at++;
        if (at < e->n) continue;
        if (e->n == e->room) {
            CUgraphNode *more = realloc(e->nodes, (2 * e->room + 4) * sizeof *more);
            if (!more) return CUDA_ERROR_OUT_OF_MEMORY;
            e->nodes = more;
            e->room = 2 * e->room + 4;
        }
        e->nodes[e->n++] = nodes[i];
    }
    return CUDA_SUCCESS;
}

static CUresult begin_piece(const build *b, CUgraph graph, const ends *after) {
    return b->d->cuStreamBeginCaptureToGraph(b->stream, graph, after->nodes, NULL, after->n,
                                             CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

/* End it, whatever `r` is; `made` gets its last nodes. */
static CUresult end_piece(const build *b, CUresult r, ends *made) {
    CUstreamCaptureStatus status;
    const CUgraphNode *nodes;
    const CUgraphEdgeData *edges;
    size_t n = 0;
    if (r == CUDA_SUCCESS) r = b->d->cuStreamGetCaptureInfo_v3(b->stream, &status, NULL, NULL, &nodes, &edges, &n);
    if (r == CUDA_SUCCESS) r = add(made, nodes, n);
    CUgraph graph;
    const CUresult end = b->d->cuStreamEndCapture(b->stream, &graph);
    return r == CUDA_SUCCESS ? end : r;
}

static CUresult build_run(build *b, CUgraph graph, unsigned at, const ends *after) {
    CUresult r = begin_piece(b, graph, after);
    if (r != CUDA_SUCCESS) return r;
    const int code = atomr_program_step_run(&b->g->program, at, b->call, b->failure);
    r = end_piece(b, CUDA_SUCCESS, &b->last[at]);
    const atomr_program_step *step = &b->g->program.steps[at];
    if (b->nodes && step->run == atomr_cuda_run_kernels && atomr_cuda_sets_alone(step->context) && b->last[at].n == 1)
        b->nodes[at] = b->last[at].nodes[0];
    return code == ATOMR_OK ? r : b->failure->status ? b->failure->status : -1;
}

static CUresult launch(const build *b, CUfunction function, void **arguments) {
    return b->d->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, b->stream, arguments, NULL);
}

static CUresult make_handle(const build *b, CUgraph graph, CUgraphConditionalHandle *handle) {
    return b->d->cuGraphConditionalHandleCreate(handle, graph, atomr_cuda_context(b->g->cuda), 0,
                                                CU_GRAPH_COND_ASSIGN_DEFAULT);
}

/* Add a conditional node behind others, to `made`, and return its body. */
static CUresult add_conditional(const build *b, CUgraph graph, int type, CUgraphConditionalHandle handle,
                                const ends *after, ends *made, CUgraph *body) {
    CUgraphNodeParams params;
    memset(&params, 0, sizeof params);
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = 1;
    params.conditional.ctx = atomr_cuda_context(b->g->cuda);
    CUgraphNode node;
    CUresult r = b->d->cuGraphAddNode_v2(&node, graph, after->nodes, NULL, after->n, &params);
    if (r == CUDA_SUCCESS) r = add(made, &node, 1);
    if (r == CUDA_SUCCESS) *body = params.conditional.phGraph_out[0];
    return r;
}

static CUresult build_steps(build *b, CUgraph graph, unsigned first, unsigned n, int top);

static const void *flag_of(const build *b, const atomr_program_step *step) {
    return (const char *)b->call->pointers[step->operands[0].operand] + step->operands[0].offset;
}

/* Bodies of which at most one runs: a conditional node each, behind the kernels that choose. */
static CUresult build_branch(build *b, CUgraph graph, unsigned at, const ends *after) {
    const atomr_program_step *step = &b->g->program.steps[at];
    CUgraphConditionalHandle *handles = calloc(step->n_bodies, sizeof *handles);
    ends chosen = {0};
    CUresult r = handles ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < step->n_bodies && r == CUDA_SUCCESS; i++)
        if (step->bodies[i]) r = make_handle(b, graph, &handles[i]);
    if (r == CUDA_SUCCESS) r = begin_piece(b, graph, after);
    if (r == CUDA_SUCCESS) {
        const void *flag = flag_of(b, step);
        uint64_t width = step->width, is_signed = (uint64_t)step->is_signed, truth = step->kind == ATOMR_IF;
        for (unsigned first = 0; first < step->n_bodies && r == CUDA_SUCCESS; first += ATOMR_BRANCH_BODIES) {
            uint64_t begin = first, mask = 0;
            CUgraphConditionalHandle given[ATOMR_BRANCH_BODIES] = {0};
            for (unsigned i = 0; i < ATOMR_BRANCH_BODIES && first + i < step->n_bodies; i++)
                if (step->bodies[first + i]) given[i] = handles[first + i], mask |= 1u << i;
            void *arguments[] = {&flag, &width, &is_signed, &truth, &begin, &mask, &given[0], &given[1], &given[2], &given[3]};
            r = launch(b, b->g->branch, arguments);
        }
        r = end_piece(b, r, &chosen);
    }
    unsigned begin = at + 1;
    for (unsigned i = 0; i < step->n_bodies && r == CUDA_SUCCESS; begin += step->bodies[i++]) {
        CUgraph body;
        if (!step->bodies[i]) continue;
        r = add_conditional(b, graph, CU_GRAPH_COND_TYPE_IF, handles[i], &chosen, &b->last[at], &body);
        if (r == CUDA_SUCCESS) r = build_steps(b, body, begin, step->bodies[i], 0);
    }
    free(chosen.nodes);
    free(handles);
    return r;
}

static CUresult check_loop(build *b, CUgraph graph, unsigned at, unsigned loop, CUgraphConditionalHandle handle,
                           uint64_t begins, const ends *after, ends *made) {
    const atomr_program_step *step = &b->g->program.steps[at];
    const void *flag = flag_of(b, step);
    char *words = (char *)b->call->workspace + b->g->loops_at;
    void *reached = words, *count = words + 8 * (1 + loop);
    uint64_t width = step->width, limit = step->limit, number = at + 1;
    void *arguments[] = {&flag, &width, &handle, &begins, &count, &limit, &reached, &number};
    CUresult r = begin_piece(b, graph, after);
    if (r == CUDA_SUCCESS) r = end_piece(b, launch(b, b->g->loop, arguments), made);
    return r;
}

static CUresult build_loop(build *b, CUgraph graph, unsigned at, const ends *after) {
    const atomr_program *p = &b->g->program;
    CUgraphConditionalHandle handle;
    CUgraph body;
    ends checked = {0}, over = {0}, none = {0};
    unsigned loop = 0;
    for (unsigned i = 0; i < at; i++) loop += p->steps[i].kind == ATOMR_WHILE;
    CUresult r = make_handle(b, graph, &handle);
    if (r == CUDA_SUCCESS) r = check_loop(b, graph, at, loop, handle, 1, after, &checked);
    if (r == CUDA_SUCCESS)
        r = add_conditional(b, graph, CU_GRAPH_COND_TYPE_WHILE, handle, &checked, &b->last[at], &body);
    const unsigned end = at + 1 + p->steps[at].inside;
    if (r == CUDA_SUCCESS) r = build_steps(b, body, at + 1, end - at - 1, 0);
    for (unsigned i = at + 1; i < end && r == CUDA_SUCCESS; i += 1 + p->steps[i].inside)
        if (!b->followed[i]) r = add(&over, b->last[i].nodes, b->last[i].n);
    if (r == CUDA_SUCCESS) r = check_loop(b, body, at, loop, handle, 0, &over, &none);
    free(checked.nodes);
    free(over.nodes);
    free(none.nodes);
    return r;
}

static CUresult build_steps(build *b, CUgraph graph, unsigned first, unsigned n, int top) {
    const atomr_program *p = &b->g->program;
    CUresult r = CUDA_SUCCESS;
    for (unsigned i = first; i < first + n && r == CUDA_SUCCESS; i += 1 + p->steps[i].inside) {
        const atomr_program_step *step = &p->steps[i];
        ends after = {0};
        for (unsigned j = 0; j < step->n_after && r == CUDA_SUCCESS; j++) {
            b->followed[step->after[j]] = 1;
            r = add(&after, b->last[step->after[j]].nodes, b->last[step->after[j]].n);
        }
        if (r == CUDA_SUCCESS && top && step->kind != ATOMR_RUNS) r = add(&after, b->begin.nodes, b->begin.n);
        if (r == CUDA_SUCCESS)
            r = step->kind == ATOMR_RUNS    ? build_run(b, graph, i, &after)
                : step->kind == ATOMR_WHILE ? build_loop(b, graph, i, &after)
                                            : build_branch(b, graph, i, &after);
        free(after.nodes);
    }
    return r;
}

int atomr_graph_build(const atomr_graph *g, const atomr_call *call, CUstream aside, CUgraph *made, CUgraphNode *nodes,
                      atomr_failure *failure) {
    build b = {.g = g, .d = atomr_cuda_driver(g->cuda), .call = call, .stream = aside, .nodes = nodes, .failure = failure};
    const unsigned n = g->program.n_steps;
    b.last = calloc(n, sizeof *b.last);
    b.followed = calloc(n, 1);
    CUgraph graph = NULL;
    CUresult r = b.last && b.followed ? b.d->cuGraphCreate(&graph, 0) : CUDA_ERROR_OUT_OF_MEMORY;
    if (r == CUDA_SUCCESS && g->n_loops) { /* no loop has reached its limit */
        r = begin_piece(&b, graph, &b.begin);
        if (r == CUDA_SUCCESS) {
            r = b.d->cuMemsetD8Async((CUdeviceptr)(uintptr_t)call->workspace + g->loops_at, 0, 8, aside);
            r = end_piece(&b, r, &b.begin);
        }
    }
    if (r == CUDA_SUCCESS) r = build_steps(&b, graph, 0, n, 1);
    for (unsigned i = 0; b.last && i < n; i++) free(b.last[i].nodes);
    free(b.last);
    free(b.followed);
    free(b.begin.nodes);
    if (r == CUDA_SUCCESS) *made = graph;
    else if (graph) b.d->cuGraphDestroy(graph);
    return r;
}

int atomr_graph_fetch(void *self, const atomr_call *call, const void *from, void *to, unsigned width,
                      atomr_failure *failure) {
    atomr_cuda *cuda = self;
    const atomr_driver *d = atomr_cuda_driver(cuda);
    CUstream stream = atomr_cuda_stream(cuda, call->lane);
    CUresult r = stream ? CUDA_SUCCESS : atomr_cuda_error(cuda);
    if (r == CUDA_SUCCESS) r = d->cuMemcpyAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, width, stream);
    if (r == CUDA_SUCCESS) r = d->cuStreamSynchronize(stream);
    return r == CUDA_SUCCESS ? ATOMR_OK : atomr_cuda_fail(cuda, r, "reading a flag", failure);
}
