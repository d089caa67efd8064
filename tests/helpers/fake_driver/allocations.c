/* Allocations without handles, those of other processes, pinned host memory, and what an address is. */
#define _GNU_SOURCE
#include "fake_memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

pinned *fake_pins;

/* ---- plain allocations, and those of other processes */

static CUresult place(physical *p, CUdevice device, bool imported, CUdeviceptr *at) {
    reservation *made;
    CUresult r = fake_reserve(p->size, 0, NULL, &made);
    if (r) return r;
    r = fake_map(made->base, p->size, p);
    if (r) {
        fake_give_back(made);
        return r;
    }
    made->whole = true;
    made->imported = imported;
    *at = (CUdeviceptr)(uintptr_t)made->base;
    return fake_allow(made->base, p->size, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t size) {
    CUcontext c;
    physical *p;
    CUresult r = fake_enter(&c);
    if (r) return r;
    if (!at || !size) return ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    r = fake_make((size + GRANULARITY - 1) / GRANULARITY * GRANULARITY, options.physical[c->device], false, &p);
    if (!r) {
        r = place(p, c->device, false, at);
        p->handles = 0;
        fake_drop(p);
    }
    pthread_mutex_unlock(&fake_lock);
    return r;
}

CUresult cuMemAllocManaged(CUdeviceptr *at, size_t size, unsigned int flags) {
    if (flags != 1 && flags != 2) return ERROR_INVALID_VALUE;
    const CUresult r = cuMemAlloc_v2(at, size);
    if (r) return r;
    pthread_mutex_lock(&fake_lock);
    reservation *made = fake_reservations;
    while (made->base != host(*at)) made = made->next;
    made->managed = true;
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

static reservation *allocation_at(CUdeviceptr at) {
    reservation *r = fake_reservations;
    while (r && !(r->whole && host(at) >= r->base && host(at) < r->base + r->size)) r = r->next;
    return r;
}

static CUresult release(CUdeviceptr at, bool imported) {
    CUcontext c;
    CUresult r = fake_enter(&c);
    if (r) return r;
    pthread_mutex_lock(&fake_lock);
    reservation *found = allocation_at(at);
    if (!found || found->base != host(at) || found->imported != imported) {
        r = ERROR_INVALID_VALUE;
    } else {
        fake_unmap(found->base, found->size);
        fake_give_back(found);
    }
    pthread_mutex_unlock(&fake_lock);
    return r;
}

CUresult cuMemFree_v2(CUdeviceptr at) { return release(at, false); }

typedef struct {
    uint32_t magic;
    int pid, fd;
} ipc_name;

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr at) {
    CUcontext c;
    CUresult r = fake_enter(&c);
    if (r || !handle) return r ? r : ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    const reservation *found = allocation_at(at);
    const mapping *m = fake_mappings;
    while (m && found && m->base != found->base) m = m->next;
    if (!found || !m || found->imported || found->managed) { /* memory of cuMemCreate is shared by descriptors only */
        r = ERROR_INVALID_VALUE;
    } else {
        const ipc_name name = {PHYSICAL, getpid(), m->memory->fd};
        memset(handle, 0, sizeof *handle);
        memcpy(handle, &name, sizeof name);
    }
    pthread_mutex_unlock(&fake_lock);
    return r;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *at, CUipcMemHandle handle, unsigned int flags) {
    CUcontext c;
    CUresult r = fake_enter(&c);
    ipc_name name;
    char path[64];
    memcpy(&name, &handle, sizeof name);
    if (r) return r;
    if (!at || flags != 1 || name.magic != PHYSICAL) return ERROR_INVALID_VALUE;
    if (name.pid == getpid()) return ERROR_INVALID_CONTEXT;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", name.pid, name.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    physical *p = fake_import(fd, false);
    if (!p) {
        r = ERROR_INVALID_VALUE;
    } else {
        r = place(p, c->device, true, at);
        p->handles = 0;
        fake_drop(p);
    }
    pthread_mutex_unlock(&fake_lock);
    close(fd);
    return r;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr at) { return release(at, true); }

/* ---- host memory */

CUresult cuMemHostRegister_v2(void *p, size_t size, unsigned int flags) {
    MAY_REFUSE();
    CUcontext c;
    CUresult r = fake_enter(&c);
    if (r) return r;
    if (!p || !size || flags & ~0xfu) return ERROR_INVALID_VALUE;
    char *first = (char *)((uintptr_t)p & ~(uintptr_t)4095);
    unsigned char *resident = malloc(((uintptr_t)p + size - (uintptr_t)first) / 4096 + 1);
    if (!resident) return CUDA_ERROR_OUT_OF_MEMORY;
    const bool there = mincore(first, (uintptr_t)p + size - (uintptr_t)first, resident) == 0;
    free(resident);
    if (!there) return ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    for (const pinned *h = fake_pins; h && !r; h = h->next)
        if (overlaps(h->base, h->size, p, size)) r = ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    for (const reservation *v = fake_reservations; v && !r; v = v->next)
        if (overlaps(v->base, v->size, p, size)) r = ERROR_INVALID_VALUE;
    pinned *made = r ? NULL : calloc(1, sizeof *made);
    if (made) {
        *made = (pinned){fake_pins, p, size, flags, false};
        fake_pins = made;
    }
    pthread_mutex_unlock(&fake_lock);
    return r;
}

static CUresult unpin(void *p, bool own) {
    CUcontext c;
    CUresult r = fake_enter(&c);
    if (r) return r;
    pthread_mutex_lock(&fake_lock);
    pinned **link = &fake_pins;
    while (*link && !((*link)->base == p && (*link)->own == own)) link = &(*link)->next;
    pinned *gone = *link;
    if (gone) {
        *link = gone->next;
        if (own) munmap(gone->base, gone->size);
        free(gone);
    } else {
        r = own ? ERROR_INVALID_VALUE : ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    pthread_mutex_unlock(&fake_lock);
    return r;
}

CUresult cuMemHostUnregister(void *p) { return unpin(p, false); }

CUresult cuMemHostAlloc(void **p, size_t size, unsigned int flags) {
    CUcontext c;
    const CUresult r = fake_enter(&c);
    if (r) return r;
    if (!p || !size || flags & ~7u) return ERROR_INVALID_VALUE;
    pinned *made = calloc(1, sizeof *made);
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!made || base == MAP_FAILED) return free(made), CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&fake_lock);
    *made = (pinned){fake_pins, base, size, flags | CU_MEMHOSTREGISTER_DEVICEMAP, true};
    fake_pins = made;
    pthread_mutex_unlock(&fake_lock);
    *p = base;
    return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *p) { return unpin(p, true); }

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *at, void *p, unsigned int flags) {
    CUcontext c;
    CUresult r = fake_enter(&c);
    if (r) return r;
    if (!at || flags) return ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    const pinned *h = fake_pins;
    while (h && !inside(p, 1, h->base, h->size)) h = h->next;
    if (!h || !(h->flags & CU_MEMHOSTREGISTER_DEVICEMAP)) r = ERROR_INVALID_VALUE;
    else *at = (CUdeviceptr)(uintptr_t)p;
    pthread_mutex_unlock(&fake_lock);
    return r;
}

/* ---- what an address is */

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr at) {
    CUcontext c;
    CUresult r = fake_enter(&c);
    if (r) return r;
    pthread_mutex_lock(&fake_lock);
    const mapping *m = fake_mappings;
    while (m && !inside(host(at), 1, m->base, m->size)) m = m->next;
    if (!m) {
        r = ERROR_NOT_FOUND;
    } else {
        if (base) *base = (CUdeviceptr)(uintptr_t)m->base;
        if (size) *size = m->size;
    }
    pthread_mutex_unlock(&fake_lock);
    return r;
}

CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr at) {
    enum { CONTEXT = 1, MEMORY_TYPE, DEVICE_POINTER, HOST_POINTER, IS_MANAGED = 8, DEVICE_ORDINAL, LEGACY_IPC,
           RANGE_START, RANGE_SIZE, MAPPED, HANDLE_TYPES };
    CUcontext c;
    CUresult r = fake_enter(&c);
    if (r) return r;
    if (!data) return ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    const mapping *m = fake_mappings;
    while (m && !inside(host(at), 1, m->base, m->size)) m = m->next;
    const pinned *h = fake_pins;
    while (h && !inside(host(at), 1, h->base, h->size)) h = h->next;
    const reservation *whole = allocation_at(at);
    const CUdeviceptr base = m ? (CUdeviceptr)(uintptr_t)m->base : h ? (CUdeviceptr)(uintptr_t)h->base : 0;
    if (!m && !h) r = ERROR_INVALID_VALUE;
    else if (attribute == CONTEXT) *(CUcontext *)data = m && !whole ? NULL : c;
    else if (attribute == MEMORY_TYPE) *(unsigned *)data = m ? 2 : 1;
    else if (attribute == DEVICE_POINTER) *(CUdeviceptr *)data = at;
    else if (attribute == HOST_POINTER && h) *(void **)data = host(at);
    else if (attribute == IS_MANAGED) *(unsigned *)data = whole && whole->managed;
    else if (attribute == DEVICE_ORDINAL) {
        int ordinal = -2;
        for (unsigned i = 0; i < options.devices && m; i++)
            if (options.physical[i] == m->memory->device) ordinal = (int)i;
        *(int *)data = m ? ordinal : c->device;
    } else if (attribute == LEGACY_IPC) *(unsigned *)data = whole && !whole->managed;
    else if (attribute == RANGE_START) *(CUdeviceptr *)data = base;
    else if (attribute == RANGE_SIZE) *(size_t *)data = m ? m->size : h->size;
    else if (attribute == MAPPED) *(unsigned *)data = 1;
    else if (attribute == HANDLE_TYPES) *(uint64_t *)data = m && m->memory->exportable ? 1 : 0;
    else r = ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&fake_lock);
    return r;
}
