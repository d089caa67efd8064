/* Usage: loops ORDINAL [NAME=VALUE...]; see serve.h, and for the settings the twin.c that reads them. */
#define _GNU_SOURCE
#include "loops.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const atomr_driver *driver;
CUstream streams[THREADS];
CUdevice device;
static CUcontext context;

enum { LISTS = 32 };
static const contender *lists[LISTS];
static int n_lists;
static char **settings; /* until NULL */

void add_contenders(const contender *list) {
    if (n_lists == LISTS) die("adding a list of contenders", n_lists);
    lists[n_lists++] = list;
}

const char *setting(const char *name) {
    const size_t length = strlen(name);
    for (char **s = settings; *s; s++)
        if (strncmp(*s, name, length) == 0 && (*s)[length] == '=') return *s + length + 1;
    return NULL;
}

/* A name asked for must say which loop is meant. */
static void check_names(void) {
    for (int i = 0; i < n_lists; i++)
        for (const contender *c = lists[i]; c->name; c++)
            for (int j = i; j < n_lists; j++)
                for (const contender *d = j == i ? c + 1 : lists[j]; d->name; d++)
                    if (strcmp(c->name, d->name) == 0) die(c->name, j);
}

void synchronize(void) { ok(driver->cuCtxSynchronize(), "cuCtxSynchronize"); }

CUdeviceptr device_memory(uint64_t nbytes) {
    const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    const CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
    const CUmemAccessDesc access = {here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t granule;
    ok(driver->cuMemGetAllocationGranularity(&granule, &kind, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), "granularity");
    const size_t whole = (nbytes + granule - 1) / granule * granule;
    CUmemGenericAllocationHandle memory;
    CUdeviceptr base;
    ok(driver->cuMemCreate(&memory, whole, &kind, 0), "cuMemCreate");
    ok(driver->cuMemAddressReserve(&base, whole, 0, 0, 0), "cuMemAddressReserve");
    ok(driver->cuMemMap(base, whole, 0, memory, 0), "cuMemMap");
    ok(driver->cuMemSetAccess(base, whole, &access, 1), "cuMemSetAccess");
    ok(driver->cuMemsetD8Async(base, 0, whole, NULL), "cuMemsetD8Async");
    synchronize();
    return base;
}

const char *can_overlap(void) {
    enum { HOPPER = 9 };
    int major;
    ok(driver->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device), "the capability");
    return major < HOPPER ? "launches overlap from compute capability 9.0 on" : NULL;
}

void launch_overlapping(CUfunction kernel, unsigned block, CUstream stream, void **arguments) {
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value.programmaticStreamSerializationAllowed = 1};
    const CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
                                   .blockDimX = block, .blockDimY = 1, .blockDimZ = 1,
                                   .hStream = stream, .attrs = &attribute, .numAttrs = 1};
    ok(driver->cuLaunchKernelEx(&config, kernel, arguments, NULL), "cuLaunchKernelEx");
}

/* The threads live as long as the program.  After a turn they spin for the next one, which is there at once after the
 * warm-up, and then sleep, so that they disturb nobody else's. */
static struct {
    void (*body)(int thread, int n);
    int n;
    _Atomic unsigned turn, done;
    pthread_mutex_t lock;
    pthread_cond_t called;
} team = {.lock = PTHREAD_MUTEX_INITIALIZER, .called = PTHREAD_COND_INITIALIZER};

static void await_turn(unsigned turn) {
    enum { SPINS = 20000 };
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&team.turn, memory_order_acquire) >= turn) return;
        sched_yield();
    }
    pthread_mutex_lock(&team.lock);
    while (atomic_load(&team.turn) < turn) pthread_cond_wait(&team.called, &team.lock);
    pthread_mutex_unlock(&team.lock);
}

static void *member(void *argument) {
    const int thread = (int)(intptr_t)argument;
    ok(driver->cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (unsigned turn = 1;; turn++) {
        await_turn(turn);
        team.body(thread, team.n);
        atomic_fetch_add_explicit(&team.done, 1, memory_order_release);
    }
    return NULL;
}

void in_threads(void (*body)(int thread, int n), int n) {
    static int started;
    for (; started < THREADS; started++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, member, (void *)(intptr_t)started)) die("pthread_create", 0);
    }
    pthread_mutex_lock(&team.lock);
    team.body = body;
    team.n = n;
    atomic_store(&team.done, 0);
    atomic_fetch_add_explicit(&team.turn, 1, memory_order_release);
    pthread_cond_broadcast(&team.called);
    pthread_mutex_unlock(&team.lock);
    while (atomic_load_explicit(&team.done, memory_order_acquire) < THREADS) sched_yield();
}

int main(int argc, char **argv) {
    char why[1024];
    if (argc < 2) {
        fprintf(stderr, "usage: loops ORDINAL [NAME=VALUE...]\n");
        return 2;
    }
    settings = argv + 2;
    check_names();
    driver = atomr_driver_load(why, sizeof why);
    if (!driver) {
        fprintf(stderr, "%s\n", why);
        return 2;
    }
    ok(driver->cuInit(0), "cuInit");
    ok(driver->cuDeviceGet(&device, atoi(argv[1])), "cuDeviceGet");
    ok(driver->cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    ok(driver->cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (int i = 0; i < THREADS; i++)
        ok(driver->cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    return serve(lists, n_lists);
}
