#include "cuda/cuda_parent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct atomr_parent {
    pid_t process;
    const atomr_driver *d;
    CUdevice device;
    CUcontext context;
    CUstream stream;
};

static const char *name_of(const atomr_driver *d, CUresult r) {
    const char *name = "unknown error";
    d->cuGetErrorName(r, &name);
    return name;
}

static const atomr_driver *start(char *why, size_t size) {
    const atomr_driver *d = atomr_driver_load(why, size);
    if (!d) return NULL;
    const CUresult r = d->cuInit(0);
    if (r == CUDA_SUCCESS) return d;
    snprintf(why, size, "the CUDA driver does not start in this process: %s (%d)", name_of(d, r), r);
    return NULL;
}

int atomr_parent_find(const char uuid[16], char *why, size_t size) {
    const atomr_driver *d = start(why, size);
    if (!d) return -1;
    int n = 0;
    CUresult r = d->cuDeviceGetCount(&n);
    for (int i = 0; i < n && r == CUDA_SUCCESS; i++) {
        CUdevice device;
        CUuuid found;
        r = d->cuDeviceGet(&device, i);
        if (r == CUDA_SUCCESS) r = d->cuDeviceGetUuid_v2(&found, device);
        if (r == CUDA_SUCCESS && memcmp(found.bytes, uuid, sizeof found.bytes) == 0) return i;
    }
    if (r == CUDA_SUCCESS) snprintf(why, size, "this process sees %d GPUs, and this is none of them", n);
    else snprintf(why, size, "the driver says %s (%d)", name_of(d, r), r);
    return -1;
}

static CUresult enter(const atomr_parent *p) {
    /* After a fork, what CUDA itself says. */
    return p->process == getpid() ? p->d->cuCtxPushCurrent_v2(p->context) : CUDA_ERROR_NOT_INITIALIZED;
}

static CUresult leave(const atomr_parent *p, CUresult r) {
    CUcontext ours;
    const CUresult left = p->d->cuCtxPopCurrent_v2(&ours);
    return r == CUDA_SUCCESS ? left : r;
}

atomr_parent *atomr_parent_open(int ordinal, char *why, size_t size) {
    const atomr_driver *d = start(why, size);
    if (!d) return NULL;
    atomr_parent *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->d = d;
    p->process = getpid();
    CUresult r = d->cuDeviceGet(&p->device, ordinal);
    if (r == CUDA_SUCCESS) r = d->cuDevicePrimaryCtxRetain(&p->context, p->device);
    if (r == CUDA_SUCCESS) {
        r = enter(p);
        if (r == CUDA_SUCCESS) r = leave(p, d->cuStreamCreate(&p->stream, CU_STREAM_NON_BLOCKING));
        if (r == CUDA_SUCCESS) return p;
        d->cuDevicePrimaryCtxRelease_v2(p->device);
    }
    snprintf(why, size, "this process cannot use GPU %d: %s (%d)", ordinal, name_of(d, r), r);
    free(p);
    return NULL;
}

void atomr_parent_close(atomr_parent *p) {
    if (!p) return;
    if (p->process == getpid()) {
        if (enter(p) == CUDA_SUCCESS) leave(p, p->d->cuStreamDestroy_v2(p->stream));
        p->d->cuDevicePrimaryCtxRelease_v2(p->device);
    }
    free(p);
}

const atomr_driver *atomr_parent_driver(const atomr_parent *p) { return p->d; }
CUresult atomr_parent_enter(atomr_parent *p) { return enter(p); }
CUresult atomr_parent_leave(atomr_parent *p) { return leave(p, CUDA_SUCCESS); }
CUstream atomr_parent_stream(const atomr_parent *p) { return p->stream; }

CUresult atomr_parent_map(atomr_parent *p, int fd, uint64_t nbytes, CUdeviceptr *base) {
    const CUresult r = enter(p);
    return r == CUDA_SUCCESS ? leave(p, atomr_map_descriptor(p->d, p->device, fd, nbytes, base)) : r;
}

CUresult atomr_parent_unmap(atomr_parent *p, CUdeviceptr base, uint64_t nbytes) {
    const CUresult r = enter(p);
    return r == CUDA_SUCCESS ? leave(p, atomr_unmap_descriptor(p->d, base, nbytes)) : r;
}

CUresult atomr_parent_synchronize(atomr_parent *p, int whole, uint64_t stream) {
    const CUresult r = enter(p);
    if (r != CUDA_SUCCESS) return r;
    return leave(p, whole ? p->d->cuCtxSynchronize() : p->d->cuStreamSynchronize((CUstream)(uintptr_t)stream));
}

CUresult atomr_parent_copy_out(atomr_parent *p, void *to, CUdeviceptr source, uint64_t nbytes) {
    CUresult r = enter(p);
    if (r != CUDA_SUCCESS) return r;
    r = p->d->cuMemcpyAsync((CUdeviceptr)(uintptr_t)to, source, nbytes, p->stream);
    if (r == CUDA_SUCCESS) r = p->d->cuStreamSynchronize(p->stream);
    return leave(p, r);
}

static CUresult locate(const atomr_driver *d, CUdeviceptr address, atomr_pointer *out) {
    /* The driver writes an int or less into each. */
    uint64_t managed = 0, shareable = 0;
    int ordinal = -1;
    CUresult r = d->cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
    if (r == CUDA_SUCCESS) r = d->cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
    if (r == CUDA_SUCCESS)
        r = d->cuPointerGetAttribute(&shareable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address);
    *out = (atomr_pointer){ordinal, managed != 0, shareable != 0};
    return r;
}

/* The question needs a context, of any device: one that the process has open. */
static CUresult locate_anywhere(const atomr_driver *d, CUdeviceptr address, atomr_pointer *out) {
    int n = 0, active = 0;
    unsigned flags;
    CUdevice device = 0;
    CUcontext context;
    CUresult r = d->cuDeviceGetCount(&n);
    for (int i = 0; i < n && r == CUDA_SUCCESS && !active; i++) {
        r = d->cuDeviceGet(&device, i);
        if (r == CUDA_SUCCESS) r = d->cuDevicePrimaryCtxGetState(device, &flags, &active);
    }
    if (r == CUDA_SUCCESS && !active) r = CUDA_ERROR_INVALID_CONTEXT;
    if (r == CUDA_SUCCESS) r = d->cuDevicePrimaryCtxRetain(&context, device);
    if (r != CUDA_SUCCESS) return r;
    r = d->cuCtxPushCurrent_v2(context);
    if (r == CUDA_SUCCESS) {
        r = locate(d, address, out);
        d->cuCtxPopCurrent_v2(&context);
    }
    d->cuDevicePrimaryCtxRelease_v2(device);
    return r;
}

CUresult atomr_parent_locate(CUdeviceptr address, atomr_pointer *out, char *why, size_t size) {
    const atomr_driver *d = start(why, size);
    if (!d) return -1;
    CUresult r = locate(d, address, out);
    if (r == CUDA_ERROR_INVALID_CONTEXT) r = locate_anywhere(d, address, out);
    snprintf(why, size, "%s (%d)", r == CUDA_SUCCESS ? "no error" : name_of(d, r), r);
    return r;
}

CUresult atomr_parent_range(atomr_parent *p, CUdeviceptr address, CUdeviceptr *base, uint64_t *nbytes) {
    size_t size = 0;
    CUresult r = enter(p);
    if (r == CUDA_SUCCESS) r = leave(p, p->d->cuMemGetAddressRange_v2(base, &size, address));
    *nbytes = size;
    return r;
}

CUresult atomr_parent_share(atomr_parent *p, CUdeviceptr base, char handle[64]) {
    CUipcMemHandle made;
    CUresult r = enter(p);
    if (r == CUDA_SUCCESS) r = leave(p, p->d->cuIpcGetMemHandle(&made, base));
    if (r == CUDA_SUCCESS) memcpy(handle, made.reserved, sizeof made.reserved);
    return r;
}
