/* cuFFT in a loop: a real transform of 256 float32, by a plan that is made once. */
#include "libraries/cufft/table.h"
#include "loops.h"

enum { POINTS = 256, COMPLEX = 8 };

static const atomr_cufft_table *fft;
static cufftHandle plan;
static void *x, *out;

static void fft_ok(cufftResult status, const char *what) {
    if (status) die(what, status);
}

static const char *prepare(void) {
    static char why[1024];
    if (fft) return NULL;
    const atomr_cufft_table *const found = atomr_cufft_load(NULL, why, sizeof why);
    if (!found) return why;
    long long n = POINTS, half = POINTS / 2 + 1;
    size_t work = 0;
    fft_ok(found->cufftCreate(&plan), "cufftCreate");
    fft_ok(found->cufftSetAutoAllocation(plan, 0), "cufftSetAutoAllocation");
    fft_ok(found->cufftXtMakePlanMany(plan, 1, &n, &n, 1, n, CUDA_R_32F, &half, 1, half, CUDA_C_32F, 1, &work, CUDA_C_32F),
           "cufftXtMakePlanMany");
    fft_ok(found->cufftSetStream(plan, (cudaStream_t)streams[0]), "cufftSetStream");
    fft_ok(found->cufftSetWorkArea(plan, work ? (void *)(uintptr_t)device_memory(work) : NULL), "cufftSetWorkArea");
    x = (void *)(uintptr_t)device_memory(POINTS * COMPLEX);
    out = (void *)(uintptr_t)device_memory(POINTS * COMPLEX);
    fft = found;
    return NULL;
}

static void transforms(int n) {
    for (int i = 0; i < n; i++) fft_ok(fft->cufftXtExec(plan, x, out, CUFFT_FORWARD), "cufftXtExec");
}

static void wait_for_stream(void) { ok(driver->cuStreamSynchronize(streams[0]), "cuStreamSynchronize"); }

static void sustained(int n) {
    transforms(n);
    wait_for_stream();
}

static void with_synchronize(int n) {
    for (int i = 0; i < n; i++) sustained(1);
}

static const contender loops[] = {
    {"rfft", prepare, transforms, synchronize},
    {"rfft-sustained", prepare, sustained, synchronize},
    {"rfft-synchronize", prepare, with_synchronize, synchronize},
    {0},
};
ADD_CONTENDERS(loops)
