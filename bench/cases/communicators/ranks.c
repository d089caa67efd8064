/* Collectives of NCCL, and copies between two GPUs, as a program without this library makes them: a process for each GPU.
 *
 * Usage: ranks ORDINAL ORDINAL; see serve.h.  A request's name is WORK:BYTES:WAY.  Works: all_reduce, reduce, broadcast,
 * all_gather, reduce_scatter, all_to_all, send, and copy, which is cuMemcpyPeerAsync in the first process.  Bytes are
 * counted as nccl-tests does: of the larger of a rank's two arrays, of float32; a copy's are its own.  Ways: caller (the
 * calls alone), sustained (one wait for all), synchronize (a wait after each).
 *
 * The second process does as the first has told it by a pipe. */
#define _GNU_SOURCE
#include "serve.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "libraries/nccl/table.h"

enum { RANKS = 2, ELEMENT = 4, CALLER, SUSTAINED, SYNCHRONIZE };
enum { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND, COPY, WORKS };
static const char *const works[] = {"all_reduce", "reduce",     "broadcast", "all_gather", "reduce_scatter",
                                    "all_to_all", "send",       "copy"};

typedef struct {
    int work, way, n;
    uint64_t nbytes;
} order;

static const atomr_driver *driver;
static const atomr_nccl_table *nccl;
static CUresult (*allocate)(CUdeviceptr *, size_t);
static CUresult (*release)(CUdeviceptr);
static CUresult (*enable_peer)(CUcontext, unsigned);
static CUresult (*copy_peer)(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream);
static CUcontext context, other;
static CUstream stream;
static ncclComm_t comm;
static int rank, to_second, from_second;
static CUdeviceptr x, out, far; /* `far`: in the other GPU, for copies */
static uint64_t room, far_room;

static void nccl_ok(ncclResult_t result, const char *what) {
    if (result != ncclSuccess) die(what, result);
}

static void grow(CUdeviceptr *memory, uint64_t nbytes) {
    if (*memory) ok(release(*memory), "cuMemFree");
    ok(allocate(memory, nbytes), "cuMemAlloc");
    ok(driver->cuMemsetD8Async(*memory, 0, nbytes, stream), "cuMemsetD8Async");
    ok(driver->cuStreamSynchronize(stream), "cuStreamSynchronize");
}

static void need(const order *o) {
    if (o->nbytes > room) {
        grow(&x, o->nbytes);
        grow(&out, o->nbytes);
        room = o->nbytes;
    }
}

static void call(const order *o) {
    const size_t all = o->nbytes / ELEMENT, part = all / RANKS;
    const uint64_t half = o->nbytes / RANKS;
    const void *const from = (const void *)(uintptr_t)x;
    void *const into = (void *)(uintptr_t)out;
    const int peer = 1 - rank;
    switch (o->work) {
    case ALL_REDUCE:
        nccl_ok(nccl->ncclAllReduce(from, into, all, ncclFloat32, ncclSum, comm, (cudaStream_t)stream), "ncclAllReduce");
        break;
    case REDUCE:
        nccl_ok(nccl->ncclReduce(from, into, all, ncclFloat32, ncclSum, 0, comm, (cudaStream_t)stream), "ncclReduce");
        break;
    case BROADCAST:
        nccl_ok(nccl->ncclBroadcast(from, into, all, ncclFloat32, 0, comm, (cudaStream_t)stream), "ncclBroadcast");
        break;
    case ALL_GATHER:
        nccl_ok(nccl->ncclAllGather(from, into, part, ncclFloat32, comm, (cudaStream_t)stream), "ncclAllGather");
        break;
    case REDUCE_SCATTER:
        nccl_ok(nccl->ncclReduceScatter(from, into, part, ncclFloat32, ncclSum, comm, (cudaStream_t)stream),
                "ncclReduceScatter");
        break;
    case ALL_TO_ALL:
        nccl_ok(nccl->ncclGroupStart(), "ncclGroupStart");
        for (int i = 0; i < RANKS; i++) {
            nccl_ok(nccl->ncclSend((const char *)from + half * (unsigned)i, part, ncclFloat32, i, comm,
                                   (cudaStream_t)stream), "ncclSend");
            nccl_ok(nccl->ncclRecv((char *)into + half * (unsigned)i, part, ncclFloat32, i, comm,
                                   (cudaStream_t)stream), "ncclRecv");
        }
        nccl_ok(nccl->ncclGroupEnd(), "ncclGroupEnd");
        break;
    case SEND:
        if (rank == 0) nccl_ok(nccl->ncclSend(from, all, ncclFloat32, peer, comm, (cudaStream_t)stream), "ncclSend");
        else nccl_ok(nccl->ncclRecv(into, all, ncclFloat32, peer, comm, (cudaStream_t)stream), "ncclRecv");
        break;
    case COPY:
        ok(copy_peer(far, other, x, context, o->nbytes, stream), "cuMemcpyPeerAsync");
        break;
    default: die("an unknown work", o->work);
    }
}

static void wait_for_stream(void) { ok(driver->cuStreamSynchronize(stream), "cuStreamSynchronize"); }

static void work(const order *o) {
    for (int i = 0; i < o->n; i++) {
        call(o);
        if (o->way == SYNCHRONIZE) wait_for_stream();
    }
    if (o->way == SUSTAINED) wait_for_stream();
}

/* Have the second process do its part, and return when it is about to. */
static void send_order(const order *o) {
    char ready;
    if (o->work == COPY) return;
    if (write(to_second, o, sizeof *o) != sizeof *o || read(from_second, &ready, 1) != 1) die("the second process", 1);
}

static void serve_first(int orders, int answers) {
    order o;
    while (read(orders, &o, sizeof o) == sizeof o) {
        need(&o);
        if (write(answers, "r", 1) != 1) die("the first process", 1);
        work(&o);
        wait_for_stream();
    }
}

static int bind(void *library, const char *name, void *into) {
    void *symbol = dlsym(library, name);
    memcpy(into, &symbol, sizeof symbol);
    return symbol != NULL;
}

static void open_device(int ordinal) {
    char why[1024];
    CUdevice device;
    driver = atomr_driver_load(why, sizeof why);
    if (driver) nccl = atomr_nccl_load(NULL, why, sizeof why);
    if (!driver || !nccl) {
        fprintf(stderr, "%s\n", why);
        exit(2);
    }
    const char *path = getenv("ATOMR_NATIVE_CUDA");
    void *library = dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library || !bind(library, "cuMemAlloc_v2", &allocate) || !bind(library, "cuMemFree_v2", &release))
        die("finding cuMemAlloc", 0);
    bind(library, "cuMemcpyPeerAsync", &copy_peer);
    bind(library, "cuCtxEnablePeerAccess", &enable_peer);
    ok(driver->cuInit(0), "cuInit");
    ok(driver->cuDeviceGet(&device, ordinal), "cuDeviceGet");
    ok(driver->cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    ok(driver->cuCtxSetCurrent(context), "cuCtxSetCurrent");
    ok(driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

static void connect_ranks(const ncclUniqueId *id) {
    atomr_nccl_config config = {ATOMR_NCCL_CONFIG_BYTES, (unsigned)ATOMR_NCCL_MAGIC, ATOMR_NCCL_VERSION, 1,
                                NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NULL,
                                NCCL_CONFIG_UNDEF_INT};
    nccl_ok(nccl->ncclCommInitRankConfig(&comm, RANKS, *id, rank, &config), "ncclCommInitRankConfig");
}

/* Memory in the other GPU, in this process; NULL, or why there is none. */
static const char *reach(int ordinal, uint64_t nbytes) {
    enum { ALREADY_ENABLED = 704 };
    CUdevice device;
    if (!copy_peer || !enable_peer) return "the driver has no cuMemcpyPeerAsync";
    if (!other) {
        ok(driver->cuDeviceGet(&device, ordinal), "cuDeviceGet");
        ok(driver->cuDevicePrimaryCtxRetain(&other, device), "cuDevicePrimaryCtxRetain");
        const CUresult r = enable_peer(other, 0); /* without it, the copy goes through the host */
        if (r && (int)r != ALREADY_ENABLED) return "the GPUs do not reach each other";
    }
    if (nbytes > far_room) {
        ok(driver->cuCtxSetCurrent(other), "cuCtxSetCurrent");
        if (far) ok(release(far), "cuMemFree");
        ok(allocate(&far, nbytes), "cuMemAlloc");
        ok(driver->cuCtxSetCurrent(context), "cuCtxSetCurrent");
        far_room = nbytes;
    }
    return NULL;
}

static int parse(char *name, order *o) {
    char *const bytes = strchr(name, ':'), *const way = bytes ? strchr(bytes + 1, ':') : NULL;
    if (!way) return 0;
    *bytes = *way = 0;
    o->nbytes = strtoull(bytes + 1, NULL, 10);
    o->way = strcmp(way + 1, "caller") == 0 ? CALLER
             : strcmp(way + 1, "sustained") == 0 ? SUSTAINED
             : strcmp(way + 1, "synchronize") == 0 ? SYNCHRONIZE : 0;
    for (o->work = 0; o->work < WORKS && strcmp(works[o->work], name) != 0;) o->work++;
    return o->way && o->work < WORKS && o->nbytes >= RANKS * ELEMENT;
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void turn(order o, int n) {
    o.n = n;
    send_order(&o);
    work(&o);
}

static int serve_standard_input(int second) {
    char line[128], name[64];
    order o;
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "%63s %d", name, &o.n) != 2 || o.n < 0 || !parse(name, &o)) {
            fprintf(stderr, "no such request: %s", line);
            return 2;
        }
        const char *const why = o.work == COPY ? reach(second, o.nbytes) : NULL;
        if (why) {
            printf("{\"unavailable\": \"%s\"}\n", why);
        } else {
            need(&o);
            turn(o, o.nbytes < 1u << 28 ? 5 : 1); /* connections are made by the first call of a kind */
            wait_for_stream();
            if (o.n == 0) {
                printf("{\"ready\": true}\n");
            } else {
                const double began = now_us();
                turn(o, o.n);
                const double us = now_us() - began;
                wait_for_stream();
                printf("{\"us\": %.6f}\n", us / o.n);
            }
        }
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv) {
    int orders[2], answers[2];
    ncclUniqueId id;
    if (argc != 3) {
        fprintf(stderr, "usage: ranks ORDINAL ORDINAL\n");
        return 2;
    }
    if (pipe2(orders, O_CLOEXEC) || pipe2(answers, O_CLOEXEC)) die("pipe", 1);
    const pid_t child = fork(); /* before any use of CUDA */
    if (child < 0) die("fork", 1);
    rank = child == 0;
    if (rank) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        open_device(atoi(argv[2]));
        close(orders[1]);
        if (read(orders[0], &id, sizeof id) != sizeof id) die("the first process", 1);
        connect_ranks(&id);
        serve_first(orders[0], answers[1]);
        return 0;
    }
    open_device(atoi(argv[1]));
    close(answers[1]);
    to_second = orders[1];
    from_second = answers[0];
    nccl_ok(nccl->ncclGetUniqueId(&id), "ncclGetUniqueId");
    if (write(to_second, &id, sizeof id) != sizeof id) die("the second process", 1);
    connect_ranks(&id);
    return serve_standard_input(atoi(argv[2]));
}
