#include "cuda/graph.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_runs.h"
#include "runtime/failure.h"

static void count(atomr_graph *g, enum atomr_graph_count what) {
    atomic_fetch_add_explicit(&g->counts[what], 1, memory_order_relaxed);
}

static void note_wanted(atomr_graph *g, const atomr_call *call) {
    uint64_t *at = g->wanted;
    for (unsigned i = 0; i < call->n_operands; i++) *at++ = (uint64_t)(uintptr_t)call->pointers[i];
    memcpy(at, call->scalars, call->n_scalars * sizeof *at);
    at += call->n_scalars;
    *at++ = g->workspace_bytes ? (uint64_t)(uintptr_t)call->workspace : 0;
}

/* Destroy the instance, which must not be running. */
static void drop(atomr_graph *g) {
    const atomr_driver *d = atomr_cuda_driver(g->cuda);
    if (g->exec) d->cuGraphExecDestroy(g->exec);
    if (g->kept) d->cuGraphDestroy(g->kept);
    g->exec = NULL;
    g->kept = NULL;
}

/* Let the instance hold this graph's launches.  Messages that are under way keep what they were launched with. */
static CUresult take(atomr_graph *g, CUgraph graph, CUgraphNode *nodes, CUstream stream) {
    const atomr_driver *d = atomr_cuda_driver(g->cuda);
    if (g->exec) {
        CUgraphExecUpdateResultInfo info;
        memset(&info, 0, sizeof info);
        if (d->cuGraphExecUpdate_v2(g->exec, graph, &info) == CUDA_SUCCESS) {
            d->cuGraphDestroy(graph);
            return CUDA_SUCCESS;
        }
        /* It has another shape: a library has chosen another kernel, say.  The old instance must not be running. */
        const CUresult r = d->cuStreamSynchronize(stream);
        if (r == CUDA_SUCCESS) drop(g);
        else d->cuGraphDestroy(graph);
        if (r != CUDA_SUCCESS) return r;
    }
    const CUresult r = d->cuGraphInstantiateWithFlags(&g->exec, graph, 0);
    if (r == CUDA_SUCCESS) {
        count(g, ATOMR_GRAPH_MADE);
        g->kept = graph;
        memcpy(g->nodes, nodes, g->program.n_steps * sizeof *nodes);
    } else {
        g->exec = NULL;
        d->cuGraphDestroy(graph);
    }
    return r;
}

/* Capture the steps as a chain, where the driver has no captures in pieces. */
static CUresult capture_chain(atomr_graph *g, const atomr_call *call, CUstream aside, CUgraph *made,
                              atomr_failure *failure) {
    const atomr_driver *d = atomr_cuda_driver(g->cuda);
    CUresult r = d->cuStreamBeginCapture_v2(aside, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (r != CUDA_SUCCESS) return r;
    const int code = atomr_program_run(&g->program, call, failure);
    r = d->cuStreamEndCapture(aside, made);
    if (r != CUDA_SUCCESS || code == ATOMR_OK) return r;
    d->cuGraphDestroy(*made);
    return failure->status ? failure->status : -1;
}

/* Capture the steps; 0, or the driver's result when that is not possible, or -1 when a step has failed. */
static int capture(atomr_graph *g, const atomr_call *call, CUstream stream) {
    atomr_failure failure;
    memset(&failure, 0, sizeof failure);
    CUstream aside = NULL;
    if (atomr_cuda_begin_capture(g->cuda, call->lane, &aside, &failure) != ATOMR_OK) return failure.status;
    CUgraph graph = NULL;
    CUgraphNode *nodes = calloc(g->program.n_steps, sizeof *nodes);
    atomr_call part = *call;
    part.lane = ATOMR_CAPTURE_LANE;
    g->prompt = 0;
    part.prompt = &g->prompt;
    CUresult r = nodes ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_OUT_OF_MEMORY;
    if (nodes && atomr_cuda_captures_pieces(g->cuda)) r = atomr_graph_build(g, &part, aside, &graph, nodes, &failure);
    if (r == CUDA_ERROR_NOT_SUPPORTED && !g->branch) r = capture_chain(g, &part, aside, &graph, &failure);
    if (r == CUDA_SUCCESS) {
        count(g, ATOMR_GRAPH_CAPTURED);
        r = take(g, graph, nodes, stream);
    }
    free(nodes);
    atomr_cuda_end_capture(g->cuda);
    return r;
}

/* The loop that has reached its limit, by its step's number from 1. */
static int judge_loops(void *context, const _Atomic int32_t *word, atomr_failure *failure) {
    const atomr_graph *g = context;
    const int32_t number = atomic_load_explicit(word, memory_order_acquire);
    if (number == 0) return ATOMR_OK;
    if (number < 0 || (unsigned)number > g->program.n_steps)
        return atomr_refused(failure, ATOMR_INVALID_REQUEST, "the program's words in the workspace were overwritten");
    return atomr_program_limit(&g->program, (unsigned)number - 1, failure);
}

int atomr_graph_run(void *context, const atomr_call *call, atomr_failure *failure) {
    atomr_graph *g = context;
    const atomr_driver *d = atomr_cuda_driver(g->cuda);
    CUstream stream = atomr_cuda_stream(g->cuda, call->lane);
    if (!stream) return atomr_cuda_fail(g->cuda, atomr_cuda_error(g->cuda), "launching a program", failure);
    if (g->workspace_bytes > call->workspace_bytes)
        return atomr_refused(failure, ATOMR_INVALID_REQUEST,
                             "the lane has a workspace of %llu bytes, and these steps need %llu",
                             (unsigned long long)call->workspace_bytes, (unsigned long long)g->workspace_bytes);
    int refused = 0;
    if (g->captures && atomic_load_explicit(&g->counts[ATOMR_GRAPH_STEPWISE], memory_order_relaxed)) {
        note_wanted(g, call);
        const int same = g->keyed && memcmp(g->key, g->wanted, g->n_key * sizeof *g->key) == 0;
        if (!same && g->keyed && atomr_graph_patch(g, call)) {
            count(g, ATOMR_GRAPH_PATCHED);
        } else if (!same) {
            g->keyed = 0; /* an update that fails half way holds neither message's launches */
            refused = capture(g, call, stream);
        }
        if (!refused) {
            if (!same) memcpy(g->key, g->wanted, g->n_key * sizeof *g->key);
            g->keyed = 1;
            const CUresult r = d->cuGraphLaunch(g->exec, stream);
            if (r != CUDA_SUCCESS) return atomr_cuda_fail(g->cuda, r, "cuGraphLaunch", failure);
            if (g->prompt) *call->prompt = 1;
            count(g, ATOMR_GRAPH_LAUNCHED);
            if (!g->n_loops) return ATOMR_OK;
            return atomr_cuda_judge_late(g->cuda, call, (CUdeviceptr)(uintptr_t)call->workspace + g->loops_at, 1,
                                         (atomr_late){judge_loops, g, 0}, failure);
        }
    }
    const int code = atomr_program_run(&g->program, call, failure);
    if (code == ATOMR_OK) count(g, ATOMR_GRAPH_STEPWISE);
    if (code == ATOMR_OK && refused) { /* by itself it works: it is the capture that does not */
        enum { ATTEMPTS = 3 }; /* a body that has not run yet may load its kernels while it is captured */
        if (g->branch && ++g->failed_captures < ATTEMPTS) return code;
        atomic_store(&g->refused, refused);
        g->captures = 0;
    }
    return code;
}

void atomr_graph_end(atomr_graph *g) {
    if (g->exec && atomr_cuda_enter(g->cuda) == CUDA_SUCCESS) drop(g);
}
