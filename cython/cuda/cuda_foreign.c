#include "cuda/cuda_foreign.h"

#include <string.h>

CUresult atomr_cuda_open_shared(atomr_cuda *c, const char handle[64], CUdeviceptr *base) {
    CUipcMemHandle copy;
    memcpy(copy.reserved, handle, sizeof copy.reserved);
    CUresult r = atomr_cuda_enter(c);
    if (r != CUDA_SUCCESS) return r;
    return atomr_cuda_driver(c)->cuIpcOpenMemHandle_v2(base, copy, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

CUresult atomr_cuda_close_shared(atomr_cuda *c, CUdeviceptr base) {
    CUresult r = atomr_cuda_enter(c);
    return r == CUDA_SUCCESS ? atomr_cuda_driver(c)->cuIpcCloseMemHandle(base) : r;
}

static int has(const atomr_driver *d, CUdevice device, int attribute) {
    int yes = 0;
    return d->cuDeviceGetAttribute(&yes, attribute, device) == CUDA_SUCCESS && yes;
}

CUresult atomr_cuda_open_own(atomr_cuda *c, uint64_t nbytes, CUdeviceptr *base, CUmemGenericAllocationHandle *handle) {
    const atomr_driver *d = atomr_cuda_driver(c);
    const CUdevice device = atomr_cuda_device(c);
    CUmemAllocationProp p;
    memset(&p, 0, sizeof p);
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = device;
    CUresult r = atomr_cuda_enter(c);
    if (r != CUDA_SUCCESS) return r;
    const int fabric = has(d, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
    if (fabric) p.requestedHandleTypes |= CU_MEM_HANDLE_TYPE_FABRIC;
    p.allocFlags.gpuDirectRDMACapable = (unsigned char)has(d, device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
    r = d->cuMemCreate(handle, nbytes, &p, 0);
    if (fabric && (r == CUDA_ERROR_NOT_PERMITTED || r == CUDA_ERROR_NOT_SUPPORTED)) { /* no service runs for it */
        p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        r = d->cuMemCreate(handle, nbytes, &p, 0);
    }
    if (r != CUDA_SUCCESS) return r;
    r = atomr_map_handle(d, device, *handle, nbytes, base);
    if (r != CUDA_SUCCESS) d->cuMemRelease(*handle);
    return r;
}

CUresult atomr_cuda_close_own(atomr_cuda *c, CUdeviceptr base, uint64_t nbytes, CUmemGenericAllocationHandle handle) {
    const CUresult r = atomr_cuda_enter(c);
    if (r != CUDA_SUCCESS) return r;
    const CUresult unmapped = atomr_cuda_unmap(c, base, nbytes);
    const CUresult released = atomr_cuda_driver(c)->cuMemRelease(handle);
    return unmapped == CUDA_SUCCESS ? released : unmapped;
}

int atomr_cuda_reaches(atomr_cuda *c, const char uuid[16]) {
    const atomr_driver *d = atomr_cuda_driver(c);
    int n = 0;
    if (d->cuDeviceGetCount(&n) != CUDA_SUCCESS) return -1;
    for (int i = 0; i < n; i++) {
        CUdevice device;
        CUuuid found;
        int yes = 0;
        if (d->cuDeviceGet(&device, i) != CUDA_SUCCESS || d->cuDeviceGetUuid_v2(&found, device) != CUDA_SUCCESS) continue;
        if (memcmp(found.bytes, uuid, sizeof found.bytes) != 0) continue;
        if (device == atomr_cuda_device(c)) return 1;
        return d->cuDeviceCanAccessPeer(&yes, atomr_cuda_device(c), device) == CUDA_SUCCESS && yes;
    }
    return -1;
}
