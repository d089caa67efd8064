/* A program as a CUDA graph: captured once, and launched for each message.
 *
 * The first message launches the steps one by one, by which libraries load their kernels and make their handles; where
 * its control flow depends on flags in device memory, the lane waits for them.  The second captures the same launches on
 * the device's capture stream, in thread-local mode, and instantiates the graph: steps that do not touch the same memory
 * are branches, and control flow becomes conditional nodes.  A message with other addresses or numbers captures the
 * launches again, and updates the instance, or sets the parameters of the kernels that it concerns, where these are not a
 * library's, also in the bodies of control flow; earlier launches keep theirs.  Where a capture is not possible, the steps are
 * launched one by one. */
#ifndef ATOMR_GRAPH_H
#define ATOMR_GRAPH_H

#include "cuda/cuda_backend.h"
#include "runtime/program.h"

enum atomr_graph_count { ATOMR_GRAPH_STEPWISE, ATOMR_GRAPH_LAUNCHED, ATOMR_GRAPH_CAPTURED, ATOMR_GRAPH_MADE,
                         ATOMR_GRAPH_PATCHED, ATOMR_GRAPH_COUNTS };

typedef struct {
    atomr_program program;
    atomr_cuda *cuda;
    int captures;                 /* 0: the steps are always launched one by one */
    uint64_t workspace_bytes;     /* of the lane's workspace that the steps use */
    unsigned n_key;               /* words: addresses, scalars, the workspace */
    uint64_t *key, *wanted;       /* of what the instance holds; of the message */
    int keyed;                    /* whether it holds that */
    /* Kernels that set the conditions of control flow; NULL: there is none. */
    CUfunction branch, loop;
    unsigned n_loops;
    uint64_t loops_at;            /* of the workspace: the loop that has reached its limit, then a count for each */
    CUgraphExec exec;
    CUgraph kept;                 /* of which the instance was made */
    CUgraphNode *nodes;           /* in it, of each step that is one launch and can be set; NULL for the others */
    int prompt;                   /* what a message's `prompt` becomes by its steps */
    unsigned failed_captures;
    _Atomic uint64_t counts[ATOMR_GRAPH_COUNTS];
    _Atomic int refused;          /* what the driver said when a capture failed */
} atomr_graph;

/* The arguments of the kernels, which builders/cuda/conditions.py has. */
enum { ATOMR_BRANCH_BODIES = 4 };

/* An atomr_run; context: atomr_graph.  One lane runs it. */
int atomr_graph_run(void *context, const atomr_call *, atomr_failure *);
/* Destroy the instance; nothing that launched it runs any more. */
void atomr_graph_end(atomr_graph *);
/* Capture the steps of a message on stream `aside`, of ATOMR_CAPTURE_LANE, which nobody else uses, as a graph with a
 * branch for each; 0, or the driver's result, or -1 when a step has failed.  `nodes`, unless it is NULL, gets those of
 * `atomr_graph`. */
int atomr_graph_build(const atomr_graph *, const atomr_call *, CUstream aside, CUgraph *made, CUgraphNode *nodes,
                      atomr_failure *);
/* Give the instance what a message changes, which has other words than `key`; 0 where it has to be captured again. */
int atomr_graph_patch(atomr_graph *, const atomr_call *);
/* `fetch` of an atomr_program; self: atomr_cuda. */
int atomr_graph_fetch(void *self, const atomr_call *, const void *from, void *to, unsigned width, atomr_failure *);

#endif
