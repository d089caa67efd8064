/* Measuring runs of plans, for the builder thread: on a lane of their own, with events. */
#ifndef ATOMR_MEASURE_H
#define ATOMR_MEASURE_H

#include "cuda/cuda_backend.h"

typedef struct {
    const uint64_t *addresses; /* of the operands of each set, set after set */
    unsigned n_operands, sets, launches; /* launches take the sets in turn, so that operands come from memory */
    uint64_t workspace, workspace_bytes;
} atomr_measured;

/* Microseconds of one of `launches` launches of a run without scalars, back to back.  The context must be current in this
 * thread, which waits for the device.  Lanes go on meanwhile, on their streams.  Returns an atomr_code. */
int atomr_cuda_measure(atomr_cuda *, atomr_run run, void *context, const atomr_measured *, float *microseconds,
                       atomr_failure *failure);

#endif
