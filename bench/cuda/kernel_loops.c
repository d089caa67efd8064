/* cuLaunchKernel in a loop: alone, overlapping, with a synchronize each, from four threads, and on streams in turn. */
#include "loops.h"

enum { KERNEL_ELEMENTS = 32 };

static CUfunction kernel;
static unsigned threads_of_block;
static CUdeviceptr arrays[THREADS]; /* one each; the loops of dependent kernels share the first */
static CUevent events[THREADS];

void set_kernel(const char *cubin, const char *function, unsigned block) {
    enum { BYTES = 4096 };
    kernel = load_kernel(driver, cubin, function);
    threads_of_block = block;
    for (int i = 0; i < THREADS; i++) {
        arrays[i] = device_memory(BYTES);
        ok(driver->cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    }
}

static void launch(int stream, int array) {
    double one = 1.0, zero = 0.0;
    uint64_t elements = KERNEL_ELEMENTS;
    void *arguments[] = {&arrays[array], &one, &zero, &elements};
    ok(driver->cuLaunchKernel(kernel, 1, 1, 1, threads_of_block, 1, 1, 0, streams[stream], arguments, NULL),
       "cuLaunchKernel");
}

static void launch_only(int n) {
    for (int i = 0; i < n; i++) launch(0, 0);
}

static void sustained(int n) {
    launch_only(n);
    ok(driver->cuStreamSynchronize(streams[0]), "cuStreamSynchronize");
}

/* As the library launches it: it waits for the launch before by itself, on devices where launches can overlap. */
static void launch_overlapping(void) {
    double one = 1.0, zero = 0.0;
    uint64_t elements = KERNEL_ELEMENTS;
    void *arguments[] = {&arrays[0], &one, &zero, &elements};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value.programmaticStreamSerializationAllowed = 1};
    const CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
                                   .blockDimX = threads_of_block, .blockDimY = 1, .blockDimZ = 1,
                                   .hStream = streams[0], .attrs = &attribute, .numAttrs = 1};
    ok(driver->cuLaunchKernelEx(&config, kernel, arguments, NULL), "cuLaunchKernelEx");
}

static const char *can_overlap(void) {
    enum { HOPPER = 9 };
    int major;
    ok(driver->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device), "the capability");
    return major < HOPPER ? "launches overlap from compute capability 9.0 on" : NULL;
}

static void overlapping(int n) {
    for (int i = 0; i < n; i++) launch_overlapping();
    ok(driver->cuStreamSynchronize(streams[0]), "cuStreamSynchronize");
}

static void with_synchronize(int n) {
    for (int i = 0; i < n; i++) sustained(1);
}

static void quarter(int thread, int n) {
    for (int i = thread; i < n; i += THREADS) launch(thread, thread);
    ok(driver->cuStreamSynchronize(streams[thread]), "cuStreamSynchronize");
}

static void four_threads(int n) { in_threads(quarter, n); }

/* Each kernel waits for the last one, which ran on another stream. */
static void hop(int n, int over) {
    for (int i = 0; i < n; i++) {
        const int here = i % over, last = (i + over - 1) % over;
        if (i > 0) ok(driver->cuStreamWaitEvent(streams[here], events[last], 0), "cuStreamWaitEvent");
        launch(here, 0);
        ok(driver->cuEventRecord(events[here], streams[here]), "cuEventRecord");
    }
    if (n > 0) ok(driver->cuStreamSynchronize(streams[(n - 1) % over]), "cuStreamSynchronize");
}

static void two_streams(int n) { hop(n, 2); }
static void three_streams(int n) { hop(n, 3); }

const contender kernel_loops[] = {
    {"launch", NULL, launch_only, synchronize},
    {"launch-sustained", NULL, sustained, synchronize},
    {"launch-overlapping", can_overlap, overlapping, synchronize},
    {"launch-synchronize", NULL, with_synchronize, synchronize},
    {"launch-four-threads", NULL, four_threads, synchronize},
    {"launch-two-streams", NULL, two_streams, synchronize},
    {"launch-three-streams", NULL, three_streams, synchronize},
    {0},
};
