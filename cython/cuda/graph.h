/* A program as a CUDA graph: captured once, and launched for each message.
 *
 * The first message launches the steps one by one, by which libraries load their kernels and make their handles.  The
 * second captures the same launches on the device's capture stream, in thread-local mode, and instantiates the graph.  A
 * message with other addresses or numbers captures them again, and updates the instance; earlier launches keep theirs.
 * Where a capture is not possible, the steps are launched one by one. */
#ifndef ATOMR_GRAPH_H
#define ATOMR_GRAPH_H

#include "cuda/cuda_backend.h"
#include "runtime/program.h"

enum atomr_graph_count { ATOMR_GRAPH_STEPWISE, ATOMR_GRAPH_LAUNCHED, ATOMR_GRAPH_CAPTURED, ATOMR_GRAPH_MADE,
                         ATOMR_GRAPH_COUNTS };

typedef struct {
    atomr_program program;
    atomr_cuda *cuda;
    int captures;                 /* 0: the steps are always launched one by one */
    uint64_t workspace_bytes;     /* of the lane's workspace that the steps use */
    unsigned n_key;               /* words: addresses, scalars, the workspace */
    uint64_t *key, *wanted;       /* of what the instance holds; of the message */
    CUgraphExec exec;
    int prompt;                   /* what a message's `prompt` becomes by its steps */
    _Atomic uint64_t counts[ATOMR_GRAPH_COUNTS];
    _Atomic int refused;          /* what the driver said when a capture failed */
} atomr_graph;

/* An atomr_run; context: atomr_graph.  One lane runs it. */
int atomr_graph_run(void *context, const atomr_call *, atomr_failure *);
/* Destroy the instance; nothing that launched it runs any more. */
void atomr_graph_end(atomr_graph *);

#endif
