#include "cuda/measure.h"

#include "cuda/cuda_runs.h"
#include "cuda/sequence.h"

static int launch(atomr_run run, void *context, const atomr_measured *m, unsigned set, atomr_failure *failure) {
    void *pointers[ATOMR_STEP_OPERANDS];
    const uint64_t *at = m->addresses + (size_t)set * m->n_operands;
    for (unsigned i = 0; i < m->n_operands; i++) pointers[i] = (void *)(uintptr_t)at[i];
    int prompt = 0;
    atomr_late late = {NULL, NULL, 0};
    const atomr_call call = {.lane = ATOMR_MEASURE_LANE, .n_operands = m->n_operands, .pointers = pointers,
                             .workspace = (void *)(uintptr_t)m->workspace, .workspace_bytes = m->workspace_bytes,
                             .prompt = &prompt, .late = &late};
    return run(context, &call, failure);
}

int atomr_cuda_measure(atomr_cuda *c, atomr_run run, void *context, const atomr_measured *m, float *microseconds,
                       atomr_failure *failure) {
    const atomr_driver *d = atomr_cuda_driver(c);
    const CUstream stream = atomr_cuda_stream(c, ATOMR_MEASURE_LANE);
    CUevent start = NULL, end = NULL;
    CUresult r = stream ? d->cuEventCreate(&start, 0) : atomr_cuda_error(c);
    if (!r) r = d->cuEventCreate(&end, 0);
    int code = ATOMR_OK;
    for (unsigned i = 0; i <= m->launches && !r && code == ATOMR_OK; i++) { /* the first one warms up */
        if (i == 1) r = d->cuEventRecord(start, stream);
        if (!r) code = launch(run, context, m, i % m->sets, failure);
    }
    float milliseconds = 0;
    if (!r && code == ATOMR_OK) r = d->cuEventRecord(end, stream);
    if (!r) r = d->cuStreamSynchronize(stream); /* also after a failure: nothing of it may go on */
    if (!r && code == ATOMR_OK) r = d->cuEventElapsedTime(&milliseconds, start, end);
    if (start) d->cuEventDestroy_v2(start);
    if (end) d->cuEventDestroy_v2(end);
    if (r) return atomr_cuda_fail(c, r, "measuring a plan", failure);
    *microseconds = milliseconds * 1000 / (float)m->launches;
    return code;
}
