/* What a CUDA device is, and its memory: made, mapped with gaps, and reached from it. */
#define _GNU_SOURCE
#include "cuda/cuda_private.h"

#include <string.h>

int atomr_cuda_describe(atomr_cuda *c, atomr_cuda_facts *f) {
    const atomr_driver *d = c->d;
    CUuuid uuid;
    size_t total = 0;
    memset(f, 0, sizeof *f);
    CUresult r = d->cuDeviceGetName(f->name, sizeof f->name - 1, c->device);
    if (r == CUDA_SUCCESS) r = d->cuDeviceGetUuid_v2(&uuid, c->device);
    if (r == CUDA_SUCCESS) r = d->cuDeviceTotalMem_v2(&total, c->device);
    if (r == CUDA_SUCCESS) r = d->cuDriverGetVersion(&f->driver_version);
    if (r == CUDA_SUCCESS) r = d->cuDeviceGetAttribute(&f->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, c->device);
    if (r == CUDA_SUCCESS) r = d->cuDeviceGetAttribute(&f->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, c->device);
    if (r == CUDA_SUCCESS)
        r = d->cuDeviceGetAttribute(&f->multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, c->device);
    memcpy(f->uuid, uuid.bytes, sizeof f->uuid);
    f->total_memory = total;
    return r;
}

CUresult atomr_cuda_memory(atomr_cuda *c, uint64_t *available, uint64_t *total) {
    size_t f = 0, t = 0;
    CUresult r = atomr_cuda_enter(c);
    if (r == CUDA_SUCCESS) r = c->d->cuMemGetInfo_v2(&f, &t);
    *available = f;
    *total = t;
    return r;
}

static CUmemAllocationProp properties(const atomr_cuda *c) {
    CUmemAllocationProp p;
    memset(&p, 0, sizeof p);
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = c->device;
    return p;
}

CUresult atomr_cuda_create(atomr_cuda *c, uint64_t nbytes, int *fd) {
    const CUmemAllocationProp p = properties(c);
    CUmemGenericAllocationHandle handle;
    CUresult r = atomr_cuda_enter(c);
    if (r == CUDA_SUCCESS) r = c->d->cuMemCreate(&handle, nbytes, &p, 0);
    if (r != CUDA_SUCCESS) return r;
    r = c->d->cuMemExportToShareableHandle(fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    c->d->cuMemRelease(handle); /* the descriptor keeps it */
    return r;
}

enum { GAP = 2 << 20 };

CUresult atomr_map_handle(const atomr_driver *d, CUdevice device, CUmemGenericAllocationHandle handle, uint64_t nbytes,
                          CUdeviceptr *base) {
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr reserved = 0;
    CUresult r = d->cuMemAddressReserve(&reserved, nbytes + 2 * GAP, 0, 0, 0);
    if (r != CUDA_SUCCESS) return r;
    *base = reserved + GAP;
    r = d->cuMemMap(*base, nbytes, 0, handle, 0);
    if (r == CUDA_SUCCESS) {
        r = d->cuMemSetAccess(*base, nbytes, &access, 1);
        if (r != CUDA_SUCCESS) d->cuMemUnmap(*base, nbytes);
    }
    if (r != CUDA_SUCCESS) d->cuMemAddressFree(reserved, nbytes + 2 * GAP);
    return r;
}

CUresult atomr_map_descriptor(const atomr_driver *d, CUdevice device, int fd, uint64_t nbytes, CUdeviceptr *base) {
    CUmemGenericAllocationHandle handle;
    CUresult r =
        d->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (r != CUDA_SUCCESS) return r;
    r = atomr_map_handle(d, device, handle, nbytes, base);
    d->cuMemRelease(handle); /* the mapping keeps it */
    return r;
}

CUresult atomr_unmap_descriptor(const atomr_driver *d, CUdeviceptr base, uint64_t nbytes) {
    CUresult r = d->cuMemUnmap(base, nbytes);
    return r == CUDA_SUCCESS ? d->cuMemAddressFree(base - GAP, nbytes + 2 * GAP) : r;
}

CUresult atomr_cuda_map(atomr_cuda *c, int fd, uint64_t nbytes, CUdeviceptr *base) {
    CUresult r = atomr_cuda_enter(c);
    return r == CUDA_SUCCESS ? atomr_map_descriptor(c->d, c->device, fd, nbytes, base) : r;
}

CUresult atomr_cuda_unmap(atomr_cuda *c, CUdeviceptr base, uint64_t nbytes) {
    CUresult r = atomr_cuda_enter(c);
    return r == CUDA_SUCCESS ? atomr_unmap_descriptor(c->d, base, nbytes) : r;
}

CUresult atomr_cuda_pin(atomr_cuda *c, void *base, uint64_t nbytes, CUdeviceptr *device) {
    CUresult r = atomr_cuda_enter(c);
    if (r == CUDA_SUCCESS)
        r = c->d->cuMemHostRegister_v2(base, nbytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (r != CUDA_SUCCESS) return r;
    r = c->d->cuMemHostGetDevicePointer_v2(device, base, 0);
    if (r != CUDA_SUCCESS) c->d->cuMemHostUnregister(base);
    return r;
}

CUresult atomr_cuda_unpin(atomr_cuda *c, void *base) {
    CUresult r = atomr_cuda_enter(c);
    return r == CUDA_SUCCESS ? c->d->cuMemHostUnregister(base) : r;
}

CUresult atomr_cuda_copy_now(atomr_cuda *c, CUdeviceptr to, CUdeviceptr source, uint64_t nbytes) {
    CUresult r = atomr_cuda_enter(c);
    if (r == CUDA_SUCCESS) r = c->d->cuMemcpyAsync(to, source, nbytes, c->control);
    return r == CUDA_SUCCESS ? c->d->cuStreamSynchronize(c->control) : r;
}
