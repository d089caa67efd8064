/* Usage: loops ORDINAL KERNEL.cubin FUNCTION BLOCK [LIST]; see serve.h, and argument_loops.c for the list. */
#define _GNU_SOURCE
#include "loops.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

const atomr_driver *driver;
CUstream streams[THREADS];
CUdevice device;
static CUcontext context;

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
    if (argc != 5 && argc != 6) {
        fprintf(stderr, "usage: loops ORDINAL KERNEL.cubin FUNCTION BLOCK [LIST]\n");
        return 2;
    }
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
    set_kernel(argv[2], argv[3], (unsigned)atoi(argv[4]));
    if (argc == 6) set_argument_kernels(argv[5]);
    const contender *const lists[] = {kernel_loops, argument_loops, matmul_loops, memory_loops};
    return serve(lists, sizeof lists / sizeof *lists);
}
