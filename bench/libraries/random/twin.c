/* cuRAND in a loop: 64 MiB of numbers of its Philox4x32-10, by a generator that is made once. */
#include "libraries/curand/table.h"
#include "loops.h"

enum { PHILOX = 161 };
static const size_t NBYTES = (size_t)64 << 20;

static const atomr_curand_table *curand;
static curandGenerator_t generator;
static void *out;

static void curand_ok(curandStatus_t status, const char *what) {
    if (status) die(what, status);
}

static const char *prepare(void) {
    static char why[1024];
    if (curand) return NULL;
    const atomr_curand_table *const found = atomr_curand_load(NULL, why, sizeof why);
    if (!found) return why;
    if (found->curandCreateGenerator(&generator, PHILOX)) return "cuRAND makes no generator here";
    curand_ok(found->curandSetStream(generator, (cudaStream_t)streams[0]), "curandSetStream");
    curand_ok(found->curandSetPseudoRandomGeneratorSeed(generator, 7), "curandSetPseudoRandomGeneratorSeed");
    out = (void *)(uintptr_t)device_memory(NBYTES);
    curand = found;
    return NULL;
}

static void wait_for_stream(void) { ok(driver->cuStreamSynchronize(streams[0]), "cuStreamSynchronize"); }

static void uniform(int n) {
    for (int i = 0; i < n; i++) curand_ok(curand->curandGenerateUniform(generator, out, NBYTES / 4), "curandGenerateUniform");
    wait_for_stream();
}

static void normal(int n) {
    for (int i = 0; i < n; i++) curand_ok(curand->curandGenerateNormal(generator, out, NBYTES / 4, 0, 1), "curandGenerateNormal");
    wait_for_stream();
}

static void normal64(int n) {
    for (int i = 0; i < n; i++)
        curand_ok(curand->curandGenerateNormalDouble(generator, out, NBYTES / 8, 0, 1), "curandGenerateNormalDouble");
    wait_for_stream();
}

static const contender loops[] = {
    {"curand-uniform", prepare, uniform, synchronize},
    {"curand-normal", prepare, normal, synchronize},
    {"curand-normal64", prepare, normal64, synchronize},
    {0},
};
ADD_CONTENDERS(loops)
