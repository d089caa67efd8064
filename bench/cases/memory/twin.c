/* The driver's own pool: allocate and free 1 MiB, ordered on one stream; what cudaMallocAsync calls. */
#include "loops.h"

#include <dlfcn.h>
#include <stdlib.h>

enum { BYTES = 1 << 20 };

static CUresult (*allocate)(CUdeviceptr *, size_t, CUstream);
static CUresult (*release)(CUdeviceptr, CUstream);

static const char *prepare(void) {
    const char *path = getenv("ATOMR_NATIVE_CUDA");
    void *library = dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library) {
        *(void **)&allocate = dlsym(library, "cuMemAllocAsync");
        *(void **)&release = dlsym(library, "cuMemFreeAsync");
    }
    return allocate && release ? NULL : "this driver has no cuMemAllocAsync and cuMemFreeAsync";
}

static void pairs(int n) {
    for (int i = 0; i < n; i++) {
        CUdeviceptr found;
        ok(allocate(&found, BYTES, streams[0]), "cuMemAllocAsync");
        ok(release(found, streams[0]), "cuMemFreeAsync");
    }
}

static const contender loops[] = {
    {"allocate-free", prepare, pairs, synchronize},
    {0},
};
ADD_CONTENDERS(loops)
