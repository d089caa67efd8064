/* The floor of copies: pinned memory, cuMemcpyAsync on a stream and cuStreamSynchronize, in a loop.
 *
 * A library for copies.py.  Everything lies in the primary context of one device.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef unsigned long long pointer;
static int (*retain)(void **, int), (*enter)(void *), (*make_stream)(void **, unsigned), (*init)(unsigned);
static int (*get_device)(int *, int), (*host_alloc)(void **, size_t, unsigned), (*alloc)(pointer *, size_t);
static int (*host_free)(void *), (*release)(pointer);
static int (*copy)(pointer, pointer, size_t, void *), (*synchronize)(void *);
static void *context, *stream, *host;
static pointer memory;

static int bind(void *library, const char *name, void *into) {
    void *symbol = dlsym(library, name);
    memcpy(into, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* 0, -1 when there is no driver, or its error. */
int copies_open(int ordinal) {
    const char *path = getenv("ATOMR_NATIVE_CUDA");
    void *library = dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW);
    if (!library || !bind(library, "cuInit", &init) || !bind(library, "cuDeviceGet", &get_device) ||
        !bind(library, "cuDevicePrimaryCtxRetain", &retain) || !bind(library, "cuCtxSetCurrent", &enter) ||
        !bind(library, "cuStreamCreate", &make_stream) || !bind(library, "cuMemHostAlloc", &host_alloc) ||
        !bind(library, "cuMemFreeHost", &host_free) || !bind(library, "cuMemAlloc_v2", &alloc) ||
        !bind(library, "cuMemFree_v2", &release) || !bind(library, "cuMemcpyAsync", &copy) ||
        !bind(library, "cuStreamSynchronize", &synchronize))
        return -1;
    int device, r = init(0);
    if (!r) r = get_device(&device, ordinal);
    if (!r) r = retain(&context, device);
    if (!r) r = enter(context);
    return r ? r : make_stream(&stream, 1);
}

int copies_close(void) {
    int r = enter(context);
    if (!r && host) r = host_free(host);
    if (!r && memory) r = release(memory);
    host = NULL;
    memory = 0;
    return r;
}

/* Memory for copies of so many bytes, in place of what there was. */
int copies_size(uint64_t nbytes) {
    int r = copies_close();
    if (!r) r = host_alloc(&host, nbytes, 0);
    if (!r) memset(host, 1, nbytes);
    return r ? r : alloc(&memory, nbytes);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Copy `count` times to the device (`how` 0), to the host (1), or there and back (2), waiting after every `row`th copy
 * in a direction; microseconds each, or -1. */
double copies_run(int how, uint64_t nbytes, int count, int row) {
    const pointer at = (pointer)(uintptr_t)host;
    int r = enter(context);
    const double began = now();
    for (int i = 1; i <= count && !r; i++) {
        const int wait = i % row == 0 || i == count;
        if (how != 1) r = copy(memory, at, nbytes, stream);
        if (how != 1 && !r && wait) r = synchronize(stream);
        if (how != 0 && !r) r = copy(at, memory, nbytes, stream);
        if (how != 0 && !r && wait) r = synchronize(stream);
    }
    return r ? -1.0 : (now() - began) / count;
}
