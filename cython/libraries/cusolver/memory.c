#define _GNU_SOURCE
#include <stdlib.h>

#include "libraries/cusolver/call.h"
#include "runtime/failure.h"

int atomr_host_memory_make(atomr_host_memory *m, atomr_cuda *cuda, uint64_t bytes, int64_t calls,
                           atomr_failure *failure) {
    if (!bytes) return ATOMR_OK;
    m->step = (bytes + 255) / 256 * 256;
    m->part = m->step * (uint64_t)calls;
    const uint64_t whole = (m->part * ATOMR_INFOS + 4095) / 4096 * 4096;
    m->at = aligned_alloc(4096, whole);
    if (!m->at) return atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "no host memory for a solver");
    CUdeviceptr device_address;
    const CUresult r = atomr_cuda_pin(cuda, m->at, whole, &device_address);
    if (r == CUDA_SUCCESS) return ATOMR_OK;
    free(m->at);
    m->at = NULL;
    return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cuda", r, "cuMemHostRegister", "pinning memory for a solver");
}

char *atomr_host_memory_next(atomr_host_memory *m) {
    return m->at ? m->at + (m->turn++ % ATOMR_INFOS) * m->part : NULL;
}

void atomr_host_memory_release(atomr_host_memory *m, atomr_cuda *cuda) {
    if (!m->at) return;
    atomr_cuda_unpin(cuda, m->at);
    free(m->at);
}
