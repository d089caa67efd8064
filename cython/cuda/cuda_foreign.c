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
