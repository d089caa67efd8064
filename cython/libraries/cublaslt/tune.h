/* Measuring the algorithms of a matmul, for the builder thread: on a stream of its own, with events, and as a CUDA graph,
 * since a small matmul takes less time than the call that launches it. */
#ifndef ATOMR_MATMUL_TUNE_H
#define ATOMR_MATMUL_TUNE_H

#include "libraries/cublaslt/plan.h"

typedef struct {
    const uint64_t *addresses; /* of the operands of each set, set after set */
    unsigned sets, launches;   /* launches take the sets in turn, so that operands come from memory, not from a cache */
    uint64_t workspace, workspace_bytes;
} atomr_timing;

/* What an algorithm is: id, tile, split of K, stages, cluster shape; -1 where the library does not say.  Returns 0. */
int atomr_matmul_config(const atomr_matmul *, const cublasLtMatmulAlgo_t *algo, int values[5]);

/* Microseconds of one of `launches` launches back to back, which are one launch of a graph where they can be captured.  The context must be current in this thread, which waits for
 * the device.  Lanes go on meanwhile, on their streams.  Returns an atomr_code. */
int atomr_matmul_time(atomr_matmul *, const cublasLtMatmulAlgo_t *algo, const atomr_timing *timing, float *microseconds,
                      atomr_failure *failure);

#endif
