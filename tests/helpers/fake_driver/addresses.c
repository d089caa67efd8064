/* Addresses of device memory: reserved, mapped, and reachable while work runs. */
#define _GNU_SOURCE
#include "fake_memory.h"
#include "fake_nccl.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { KEPT = 16 }; /* turns for which page tables are kept */

reservation *fake_reservations;
mapping *fake_mappings;
unsigned fake_working;

/* ---- whose turn it is */

static void protect(const mapping *m, bool work) {
    mprotect(m->base, m->size, work || !options.protect ? m->protection : PROT_NONE);
}

void fake_begin_work(void) {
    if (fake_working++ == 0 && options.protect)
        for (const mapping *m = fake_mappings; m; m = m->next) protect(m, true);
}

/* To protect memory takes as long as it has entries in the page table, so all are dropped at times: those of memory in
 * use come back. The contents stay in the memfd. */
void fake_end_work(void) {
    static unsigned turns;
    if (--fake_working || !options.protect) return;
    const bool drops = ++turns % KEPT == 0;
    for (const mapping *m = fake_mappings; m; m = m->next) {
        if (drops) madvise(m->base, m->size, MADV_DONTNEED);
        protect(m, false);
    }
}

fake_place fake_where(CUdeviceptr at, size_t n, CUdevice device) {
    const char *p = host(at);
    for (const pinned *h = fake_pins; h; h = h->next)
        if (inside(p, n, h->base, h->size)) return PINNED;
    const reservation *r = fake_reservations;
    while (r && !overlaps(p, n ? n : 1, r->base, r->size)) r = r->next;
    if (!r) return PAGEABLE;
    while (n) { /* across neighbouring mappings */
        const mapping *m = fake_mappings;
        while (m && !(p >= m->base && p < m->base + m->size)) m = m->next;
        if (!m || !(m->devices >> device & 1)) return NOWHERE;
        const size_t here = (size_t)(m->base + m->size - p);
        if (here >= n) break;
        p += here;
        n -= here;
    }
    return ON_DEVICE;
}

/* ---- addresses */

CUresult fake_reserve(size_t size, size_t alignment, void *hint, reservation **made) {
    if (alignment < GRANULARITY) alignment = GRANULARITY;
    char *raw = mmap(hint, size + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    char *base = (char *)(((uintptr_t)raw + alignment - 1) & ~(uintptr_t)(alignment - 1));
    if (base != raw) munmap(raw, (size_t)(base - raw));
    munmap(base + size, (size_t)(raw + alignment - base));
    reservation *r = calloc(1, sizeof *r);
    if (!r) {
        munmap(base, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *r = (reservation){fake_reservations, base, size, false, false, false};
    fake_reservations = r;
    *made = r;
    return CUDA_SUCCESS;
}

void fake_give_back(reservation *gone) {
    reservation **link = &fake_reservations;
    while (*link != gone) link = &(*link)->next;
    *link = gone->next;
    munmap(gone->base, gone->size);
    free(gone);
}

CUresult cuMemAddressReserve(CUdeviceptr *at, size_t size, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags) {
    CUcontext c;
    reservation *made;
    CUresult r = fake_enter(&c);
    if (r) return r;
    if (!at || !size || size % GRANULARITY || alignment & (alignment - 1) || flags) return ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    r = fake_reserve(size, alignment, host(hint), &made);
    if (!r) *at = (CUdeviceptr)(uintptr_t)made->base;
    pthread_mutex_unlock(&fake_lock);
    return r;
}

CUresult cuMemAddressFree(CUdeviceptr at, size_t size) {
    CUcontext c;
    CUresult r = fake_enter(&c);
    if (r) return r;
    pthread_mutex_lock(&fake_lock);
    reservation *found = fake_reservations;
    while (found && !(found->base == host(at) && found->size == size && !found->whole)) found = found->next;
    for (const mapping *m = fake_mappings; m && found; m = m->next)
        if (overlaps(m->base, m->size, found->base, found->size)) found = NULL;
    if (found)
        fake_give_back(found);
    else
        r = ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&fake_lock);
    return r;
}

CUresult fake_map(char *at, size_t size, physical *p) {
    mapping *m = calloc(1, sizeof *m);
    if (!m) return CUDA_ERROR_OUT_OF_MEMORY;
    if (mmap(at, size, PROT_NONE, MAP_SHARED | MAP_FIXED, p->fd, 0) == MAP_FAILED) {
        free(m);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *m = (mapping){fake_mappings, at, size, p, PROT_NONE, 0};
    fake_mappings = m;
    p->mappings++;
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    MAY_REFUSE();
    CUcontext c;
    CUresult r = fake_enter(&c);
    if (r) return r;
    pthread_mutex_lock(&fake_lock);
    physical *p = fake_memory_of(handle);
    const reservation *found = fake_reservations;
    while (found && !(!found->whole && inside(host(at), size, found->base, found->size))) found = found->next;
    bool free_range = true;
    for (const mapping *m = fake_mappings; m; m = m->next) free_range = free_range && !overlaps(m->base, m->size, host(at), size);
    if (!p || !found || !free_range || !size || size % GRANULARITY || at % GRANULARITY || offset || flags ||
        size > p->size)
        r = ERROR_INVALID_VALUE;
    else
        r = fake_map(host(at), size, p);
    pthread_mutex_unlock(&fake_lock);
    return r;
}

/* Whether fake_mappings cover a range, whole ones only. */
static bool covered(const char *at, size_t size, bool whole) {
    size_t total = 0;
    for (const mapping *m = fake_mappings; m; m = m->next) {
        if (!overlaps(m->base, m->size, at, size)) continue;
        if (whole && !inside(m->base, m->size, at, size)) return false;
        const char *first = m->base > at ? m->base : at;
        const char *end = m->base + m->size < at + size ? m->base + m->size : at + size;
        total += (size_t)(end - first);
    }
    return size && total == size;
}

void fake_unmap(char *at, size_t size) {
    for (mapping **link = &fake_mappings; *link;) {
        mapping *m = *link;
        if (!inside(m->base, m->size, at, size)) {
            link = &m->next;
            continue;
        }
        mmap(m->base, m->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        *link = m->next;
        m->memory->mappings--;
        fake_drop(m->memory);
        free(m);
    }
}

CUresult cuMemUnmap(CUdeviceptr at, size_t size) {
    CUcontext c;
    CUresult r = fake_enter(&c);
    if (r) return r;
    if (fake_is_window(host(at), size)) fake_nccl_breach("memory is unmapped that a communicator has as a window");
    pthread_mutex_lock(&fake_lock);
    if (covered(host(at), size, true))
        fake_unmap(host(at), size);
    else
        r = ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&fake_lock);
    return r;
}

CUresult fake_allow(char *at, size_t size, CUdevice device, int flags) {
    const int protection = flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
                           : flags == 1                                ? PROT_READ
                                                                       : PROT_NONE;
    for (mapping *m = fake_mappings; m; m = m->next)
        if (inside(m->base, m->size, at, size) && m->memory->device != options.physical[device] && !options.peer)
            return ERROR_PEER_ACCESS_UNSUPPORTED;
    for (mapping *m = fake_mappings; m; m = m->next) {
        if (!inside(m->base, m->size, at, size)) continue;
        m->devices = protection == PROT_NONE ? m->devices & ~(1u << device) : m->devices | 1u << device;
        m->protection = m->devices ? m->protection | protection : PROT_NONE;
        protect(m, fake_working > 0);
    }
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr at, size_t size, const CUmemAccessDesc *descriptions, size_t count) {
    CUcontext c;
    CUresult r = fake_enter(&c);
    if (r) return r;
    if (!descriptions || !count) return ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    if (!covered(host(at), size, true)) r = ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && !r; i++) {
        const CUmemAccessDesc *d = &descriptions[i];
        if (d->location.type != CU_MEM_LOCATION_TYPE_DEVICE || d->location.id < 0 ||
            (unsigned)d->location.id >= options.devices || (d->flags != 0 && d->flags != 1 && d->flags != 3))
            r = ERROR_INVALID_VALUE;
        else
            r = fake_allow(host(at), size, d->location.id, d->flags);
    }
    pthread_mutex_unlock(&fake_lock);
    return r;
}
