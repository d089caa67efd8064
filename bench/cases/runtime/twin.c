/* cuLaunchKernel in a loop: alone, overlapping, with a synchronize each, from four threads, and on streams in turn.
 *
 * Settings: kernel, a file of machine code; function, in it; block, its number of threads. */
#include "loops.h"

#include <stdlib.h>

enum { KERNEL_ELEMENTS = 32 };

static CUfunction kernel;
static unsigned threads_of_block;
static CUdeviceptr arrays[THREADS]; /* one each; the loops of dependent kernels share the first */
static CUevent events[THREADS];

static const char *prepare(void) {
    enum { BYTES = 4096 };
    if (kernel) return NULL;
    const char *image = setting("kernel"), *function = setting("function"), *block = setting("block");
    if (!image || !function || !block) return "no kernel on the command line";
    kernel = load_kernel(driver, image, function);
    threads_of_block = (unsigned)atoi(block);
    for (int i = 0; i < THREADS; i++) {
        arrays[i] = device_memory(BYTES);
        ok(driver->cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    }
    return NULL;
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

static const char *prepare_overlapping(void) {
    const char *why = can_overlap();
    return why ? why : prepare();
}

static void overlapping(int n) {
    double one = 1.0, zero = 0.0;
    uint64_t elements = KERNEL_ELEMENTS;
    void *arguments[] = {&arrays[0], &one, &zero, &elements};
    for (int i = 0; i < n; i++) launch_overlapping(kernel, threads_of_block, streams[0], arguments);
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

static const contender loops[] = {
    {"launch", prepare, launch_only, synchronize},
    {"launch-sustained", prepare, sustained, synchronize},
    {"launch-overlapping", prepare_overlapping, overlapping, synchronize},
    {"launch-synchronize", prepare, with_synchronize, synchronize},
    {"launch-four-threads", prepare, four_threads, synchronize},
    {"launch-two-streams", prepare, two_streams, synchronize},
    {"launch-three-streams", prepare, three_streams, synchronize},
    {0},
};
ADD_CONTENDERS(loops)
