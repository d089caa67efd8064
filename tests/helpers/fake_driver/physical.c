/* Physical device memory: memfds, counted over all processes, shared by descriptors. */
#define _GNU_SOURCE
#include "fake_memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME = 160 };

static void name_of(unsigned device, char name[NAME]) {
    snprintf(name, NAME, "atomr-fake-cuda:%s:%u:", options.machine, device);
}

/* Bytes of a device that any process has, by its descriptors: fake_mappings hold one too. */
static size_t in_use(unsigned device) {
    char wanted[NAME], path[320], link[320];
    name_of(device, wanted);
    ino_t *seen = NULL;
    size_t n_seen = 0, total = 0;
    DIR *processes = opendir("/proc");
    for (struct dirent *process; processes && (process = readdir(processes));) {
        if (process->d_name[0] < '0' || process->d_name[0] > '9') continue;
        snprintf(path, sizeof path, "/proc/%.20s/fd", process->d_name);
        DIR *files = opendir(path);
        for (struct dirent *file; files && (file = readdir(files));) {
            const ssize_t n = readlinkat(dirfd(files), file->d_name, link, sizeof link - 1);
            struct stat status;
            if (n < 0) continue;
            link[n] = 0;
            if (strncmp(link, "/memfd:", 7) != 0 || strncmp(link + 7, wanted, strlen(wanted)) != 0) continue;
            if (fstatat(dirfd(files), file->d_name, &status, 0) != 0) continue;
            bool known = false;
            for (size_t i = 0; i < n_seen; i++) known = known || seen[i] == status.st_ino;
            if (known) continue;
            ino_t *more = realloc(seen, (n_seen + 1) * sizeof *seen);
            if (!more) continue;
            seen = more;
            seen[n_seen++] = status.st_ino;
            total += (size_t)status.st_size;
        }
        if (files) closedir(files);
    }
    if (processes) closedir(processes);
    free(seen);
    return total;
}

static size_t available(unsigned device) {
    const size_t used = in_use(device);
    return used < options.memory ? options.memory - used : 0;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    CUcontext c;
    const CUresult r = fake_enter(&c);
    if (r || !free_bytes || !total) return r ? r : ERROR_INVALID_VALUE;
    *total = options.memory;
    *free_bytes = available(options.physical[c->device]);
    return CUDA_SUCCESS;
}

static physical *adopt(int fd, size_t size, unsigned device, bool exportable) {
    physical *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    *p = (physical){PHYSICAL, 1, 0, fd, size, device, exportable};
    return p;
}

void fake_drop(physical *p) {
    if (p->handles || p->mappings) return;
    close(p->fd);
    p->magic = 0;
    free(p);
}

CUresult fake_make(size_t size, unsigned device, bool exportable, physical **made) {
    char name[NAME];
    if (size > available(device)) return CUDA_ERROR_OUT_OF_MEMORY;
    name_of(device, name);
    const int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    if (ftruncate(fd, (off_t)size) != 0 || !(*made = adopt(fd, size, device, exportable))) {
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

static bool good_properties(const CUmemAllocationProp *p) {
    return p && p->type == CU_MEM_ALLOCATION_TYPE_PINNED && p->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
           p->location.id >= 0 && (unsigned)p->location.id < options.devices &&
           (p->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0; /* it has no fabric */
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties, int option) {
    if (!granularity || !good_properties(properties) || option < 0 || option > 1) return ERROR_INVALID_VALUE;
    *granularity = GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *properties,
                     unsigned long long flags) {
    MAY_REFUSE();
    CUcontext c;
    physical *p = NULL;
    CUresult r = fake_enter(&c);
    if (r) return r;
    if (!handle || !good_properties(properties) || !size || size % GRANULARITY || flags) return ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    r = fake_make(size, options.physical[properties->location.id], properties->requestedHandleTypes != 0, &p);
    pthread_mutex_unlock(&fake_lock);
    if (!r) *handle = (CUmemGenericAllocationHandle)(uintptr_t)p;
    return r;
}

physical *fake_memory_of(CUmemGenericAllocationHandle handle) {
    physical *p = (physical *)(uintptr_t)handle;
    return p && p->magic == PHYSICAL && p->handles ? p : NULL;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    CUcontext c;
    CUresult r = fake_enter(&c);
    if (r) return r;
    pthread_mutex_lock(&fake_lock);
    physical *p = fake_memory_of(handle);
    if (p) {
        p->handles--;
        fake_drop(p);
    } else {
        r = ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&fake_lock);
    return r;
}

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, int type,
                                      unsigned long long flags) {
    CUcontext c;
    CUresult r = fake_enter(&c);
    if (r) return r;
    pthread_mutex_lock(&fake_lock);
    const physical *p = fake_memory_of(handle);
    if (!p || !out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !p->exportable || flags) {
        r = ERROR_INVALID_VALUE;
    } else {
        const int fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 0);
        memcpy(out, &fd, sizeof fd);
        if (fd < 0) r = ERROR_NOT_SUPPORTED;
    }
    pthread_mutex_unlock(&fake_lock);
    return r;
}

physical *fake_import(int fd, bool exportable) {
    char path[64], link[320], machine[64];
    unsigned device;
    struct stat status;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(path, link, sizeof link - 1);
    if (n < 0 || fstat(fd, &status) != 0) return NULL;
    link[n] = 0;
    if (sscanf(link, "/memfd:atomr-fake-cuda:%63[^:]:%u:", machine, &device) != 2) return NULL;
    if (strcmp(machine, options.machine) != 0) return NULL;
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    physical *p = own < 0 ? NULL : adopt(own, (size_t)status.st_size, device, exportable);
    if (!p && own >= 0) close(own);
    return p;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle, int type) {
    MAY_REFUSE();
    CUcontext c;
    const CUresult r = fake_enter(&c);
    if (r) return r;
    if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    physical *p = fake_import((int)(intptr_t)os_handle, false); /* only who made it can export it */
    pthread_mutex_unlock(&fake_lock);
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)p;
    return p ? CUDA_SUCCESS : ERROR_INVALID_VALUE;
}
