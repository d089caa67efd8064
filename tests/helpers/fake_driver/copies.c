/* Work on memory: copies, fills, and single values. */
#define _GNU_SOURCE
#include "fake_driver.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    char *to;
    const char *from;
    size_t size;
    char *staged; /* holds what is copied from, and is freed after */
} copy;

static void run_copy(void *argument) {
    const copy *c = argument;
    memmove(c->to, c->staged ? c->staged : c->from, c->size);
    free(c->staged);
}

static fake_place where(CUdeviceptr at, size_t size, CUcontext c) {
    pthread_mutex_lock(&fake_lock);
    const fake_place found = fake_where(at, size, c->device);
    pthread_mutex_unlock(&fake_lock);
    return found;
}

/* Memory of the host that is not registered is read before the call returns, and written before it does. */
static CUresult enqueue(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream, unsigned how) {
    CUcontext c;
    CUresult r = fake_enter(&c);
    if (r || !size) return r;
    const fake_place target = where(to, size, c), source = where(from, size, c);
    if (target == NOWHERE || source == NOWHERE || !to || !from) return ERROR_INVALID_VALUE;
    if (source == PAGEABLE || target == PAGEABLE) r = fake_unsafe(); /* it would wait, or read another time */
    if (r) return r;
    copy work = {(char *)(uintptr_t)to, (const char *)(uintptr_t)from, size, NULL};
    if (source == PAGEABLE) {
        work.staged = malloc(size);
        if (!work.staged) return CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(work.staged, work.from, size);
    }
    if (target == PAGEABLE) how |= FAKE_WAIT;
    r = fake_enqueue(stream, run_copy, &work, sizeof work, how | FAKE_COPY);
    return r;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
    return enqueue(to, from, size, stream, 0);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size) { return enqueue(to, from, size, NULL, FAKE_WAIT); }

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
    return enqueue(to, (CUdeviceptr)(uintptr_t)from, size, stream, 0);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream) {
    return enqueue((CUdeviceptr)(uintptr_t)to, from, size, stream, 0);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
    return enqueue(to, from, size, stream, 0);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size,
                           CUstream stream) {
    CUcontext c;
    const CUresult r = fake_enter(&c);
    if (r || !size) return r;
    if (!to_context || !from_context || where(to, size, to_context) == NOWHERE ||
        where(from, size, from_context) == NOWHERE)
        return ERROR_INVALID_VALUE;
    const copy work = {(char *)(uintptr_t)to, (const char *)(uintptr_t)from, size, NULL};
    return fake_enqueue(stream, run_copy, &work, sizeof work, FAKE_COPY);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
    return enqueue(to, (CUdeviceptr)(uintptr_t)from, size, NULL, FAKE_WAIT);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
    return enqueue((CUdeviceptr)(uintptr_t)to, from, size, NULL, FAKE_WAIT);
}

typedef struct {
    void *to;
    size_t count;
    unsigned width;
    uint64_t value;
} fill;

static void run_fill(void *argument) {
    const fill *f = argument;
    if (f->width == 1) memset(f->to, (int)f->value, f->count);
    for (size_t i = 0; i < f->count && f->width == 2; i++) ((uint16_t *)f->to)[i] = (uint16_t)f->value;
    for (size_t i = 0; i < f->count && f->width == 4; i++) ((uint32_t *)f->to)[i] = (uint32_t)f->value;
}

static CUresult enqueue_fill(CUdeviceptr to, uint64_t value, size_t count, unsigned width, CUstream stream) {
    CUcontext c;
    const CUresult r = fake_enter(&c);
    if (r || !count) return r;
    const fake_place target = where(to, count * width, c);
    if ((target != ON_DEVICE && target != PINNED) || to % width) return ERROR_INVALID_VALUE;
    const fill f = {(void *)(uintptr_t)to, count, width, value};
    return fake_enqueue(stream, run_fill, &f, sizeof f, FAKE_FILL);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, CUstream stream) {
    return enqueue_fill(to, value, n, 1, stream);
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t n, CUstream stream) {
    return enqueue_fill(to, value, n, 2, stream);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t n, CUstream stream) {
    return enqueue_fill(to, value, n, 4, stream);
}

typedef struct {
    void *to;
    uint64_t value;
    unsigned width;
} write;

static void run_write(void *argument) {
    const write *w = argument;
    if (w->width == 8) __atomic_store_n((uint64_t *)w->to, w->value, __ATOMIC_SEQ_CST);
    else __atomic_store_n((uint32_t *)w->to, (uint32_t)w->value, __ATOMIC_SEQ_CST);
}

static CUresult enqueue_write(CUstream stream, CUdeviceptr to, uint64_t value, unsigned width, unsigned flags) {
    CUcontext c;
    const CUresult r = fake_enter(&c);
    if (r) return r;
    const fake_place target = where(to, width, c);
    if ((target != ON_DEVICE && target != PINNED) || to % width || flags) return ERROR_INVALID_VALUE;
    const write w = {(void *)(uintptr_t)to, value, width};
    return fake_enqueue(stream, run_write, &w, sizeof w, target == PINNED ? FAKE_HOST_ONLY : 0);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr to, uint32_t value, unsigned int flags) {
    return enqueue_write(stream, to, value, 4, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr to, cuuint64_t value, unsigned int flags) {
    return enqueue_write(stream, to, value, 8, flags);
}
