/* Copies between devices: a message of two ranks, the source's and the target's, which have voted on it.
 *
 * Where the target reaches the source's memory, the source's rank waits until what has written the bytes is done, and says
 * so.  The target's rank then enqueues its copy, and says when that is done.  Until then the source's message is not
 * complete, nor launched for other lanes, so later writers of the source wait; but both ranks go on with their next copies.
 * Elsewhere the bytes pass through the staging areas of the communicator's page, in rounds: see meeting.h.  A rank on a
 * host device takes part in those. */
#ifndef ATOMR_CUDA_DEVICE_COPY_H
#define ATOMR_CUDA_DEVICE_COPY_H

#include "cuda/cuda_backend.h"
#include "runtime/meeting.h"

typedef struct {
    atomr_cuda *cuda;
    atomr_page *page;
    const _Atomic int *stopping;
    unsigned rank, source, target;
    uint64_t nbytes;
    int direct; /* the target's first operand is the source's memory */
} atomr_between;

/* An atomr_run; context: atomr_between.  Operands: of the source's rank what is copied; of the target's rank, if the copy
 * is direct, the same, and then where to. */
int atomr_between_run(void *context, const atomr_call *, atomr_failure *);

#endif
