/* The core's lanes over a CUDA device, in one process and without Python.
 *
 * Usage: lanes ORDINAL KERNEL.cubin FUNCTION BLOCK ORDER.cubin; see serve.h.  The last file holds the kernels `quick`
 * and `slow`, with which it is shown that dependent kernels run in the order of their sending.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda/cuda_backend.h"
#include "runtime/sender_core.h"
#include "serve.h"

enum { LANES = 4, SEGMENT = 64 << 20, DEPENDENT = 20000, MAP = 2, ELEMENTS = 32 };

static const atomr_driver *driver;
static atomr_cuda *cuda;
static atomr_sender *sender;
static CUfunction quick_kernel, slow_kernel, map_kernel;
static unsigned map_block;
static uint32_t slots[LANES], generations[LANES];
static CUdeviceptr arrays[LANES];

static int enqueue(CUfunction kernel, unsigned block, const atomr_call *call) {
    void *x = call->pointers[0];
    uint64_t m = call->scalars[0], a = call->scalars[1];
    uint64_t elements = ELEMENTS; /* the kernels of integers have no such parameter, and do not get it */
    void *arguments[] = {&x, &m, &a, &elements};
    return driver->cuLaunchKernel(kernel, 1, 1, 1, block, 1, 1, 0, atomr_cuda_stream(cuda, call->lane), arguments,
                                  NULL) != CUDA_SUCCESS;
}

/* x = x * m + a, for the first element of operand 0: of integers. */
static int run(void *context, const atomr_call *call, atomr_failure *failure) {
    (void)failure;
    return enqueue(*(CUfunction *)context, 32, call);
}

/* The same in float64, for all elements of one block: what is measured. */
static int run_map(void *context, const atomr_call *call, atomr_failure *failure) {
    (void)failure;
    return enqueue(*(CUfunction *)context, map_block, call);
}

static uint64_t tell(unsigned lane, unsigned plan, unsigned array, uint64_t m, uint64_t a) {
    const atomr_use use = {slots[array], generations[array], 0, ATOMR_READ | ATOMR_WRITE, 1};
    const uint64_t scalars[2] = {m, a};
    uint64_t ticket = 0;
    unsigned bad;
    int result;
    while ((result = atomr_send(sender, lane, plan, &use, 1, scalars, 2, 0, NULL, &ticket, &bad)) == ATOMR_FULL)
        atomr_wait(sender, lane, atomr_room_ticket(sender, lane, ATOMR_MIN_CELLS), 1000000000, 0);
    if (result != ATOMR_DONE) die("send", result);
    return ticket;
}

static void wait_for(unsigned lane, uint64_t ticket) {
    if (ticket && atomr_wait(sender, lane, ticket, 10000000000, 100000) != ATOMR_DONE) die("wait", (int)lane);
}

static void set_up(char **argv) {
    char why[2048];
    CUresult opened;
    cuda = atomr_cuda_open(atoi(argv[1]), &opened, why, sizeof why);
    if (!cuda) {
        fprintf(stderr, "%s\n", why);
        exit(2);
    }
    driver = atomr_cuda_driver(cuda);
    map_kernel = load_kernel(driver, argv[2], argv[3]);
    map_block = (unsigned)atoi(argv[4]);
    quick_kernel = load_kernel(driver, argv[5], "quick");
    slow_kernel = load_kernel(driver, argv[5], "slow");

    sender = atomr_sender_new(4096, 1 << 16);
    const atomr_backend backend = atomr_cuda_backend(cuda);
    atomr_worker *worker =
        atomr_worker_new(atomr_sender_p_fd(sender), atomr_sender_p_bytes(sender), &backend, 50000);
    if (atomr_cuda_register(cuda, atomr_worker_w(worker), atomr_w_bytes(), why, sizeof why)) die(why, 0);
    if (atomr_sender_attach(sender, atomr_worker_w_fd(worker), atomr_w_bytes())) die("attach", 0);
    int fd;
    CUdeviceptr base;
    uint32_t segment;
    ok(atomr_cuda_create(cuda, SEGMENT, &fd), "cuMemCreate");
    ok(atomr_cuda_map(cuda, fd, SEGMENT, &base), "cuMemMap");
    atomr_sender_reserve_segment(sender, &segment);
    atomr_sender_add_segment(sender, segment, ATOMR_VOLATILE, SEGMENT);
    atomr_worker_set_segment(worker, segment, (void *)base, SEGMENT);
    for (unsigned i = 0; i < LANES; i++) {
        atomr_block block;
        if (atomr_sender_open_lane(sender) < 0 || atomr_worker_open_lane(worker, i) != 0) die("lane", (int)i);
        atomr_alloc(sender, ATOMR_VOLATILE, 4096, &slots[i], &generations[i], &block);
        arrays[i] = base + block.offset;
    }
    atomr_worker_add_plan(worker, 0, run, &quick_kernel, 1, 2);
    atomr_worker_add_plan(worker, 1, run, &slow_kernel, 1, 2);
    atomr_worker_add_plan(worker, MAP, run_map, &map_kernel, 1, 2);
    ok(driver->cuMemsetD8Async(base, 0, SEGMENT, NULL), "cuMemsetD8Async");
    ok(driver->cuCtxSynchronize(), "cuCtxSynchronize");
    atomr_worker_go(worker);
    atomr_sender_set_state(sender, ATOMR_OPEN);
}

static uint64_t read_back(CUdeviceptr from) {
    uint64_t *host = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CUdeviceptr pinned;
    ok(atomr_cuda_pin(cuda, host, 4096, &pinned), "cuMemHostRegister");
    ok(atomr_cuda_copy_now(cuda, pinned, from, sizeof *host), "cuMemcpyAsync");
    return *host;
}

/* Dependent kernels of two speeds, each sent to a lane at random: the result shows any change of their order. */
static int is_in_order(void) {
    uint64_t x = 0, last[LANES] = {0};
    srand(7);
    for (int i = 0; i < DEPENDENT; i++) {
        const unsigned lane = (unsigned)rand() % LANES, plan = rand() % 8 == 0;
        const uint64_t m = (uint64_t)rand() | 1, a = (uint64_t)rand();
        last[lane] = tell(lane, plan, 0, m, a);
        x = x * m + a;
    }
    for (unsigned i = 0; i < LANES; i++) wait_for(i, last[i]);
    return read_back(arrays[0]) == x;
}

static const char *prove_order(void) {
    static int proven;
    if (!proven && !is_in_order()) die("keeping the order of dependent kernels on random lanes", 0);
    proven = 1;
    return NULL;
}

static uint64_t tell_map(unsigned lane, unsigned array) {
    static const double one = 1.0;
    uint64_t m;
    memcpy(&m, &one, sizeof m);
    return tell(lane, MAP, array, m, 0);
}

static void ask(int n) {
    for (int i = 0; i < n; i++) wait_for(0, tell_map(0, 0));
}

/* `n` kernels, dealt out to the first `lanes` lanes; on one array, or on one for each lane. */
static void deal(int n, unsigned lanes, int shared) {
    uint64_t last[LANES] = {0};
    for (int i = 0; i < n; i++) {
        const unsigned lane = (unsigned)i % lanes;
        last[lane] = tell_map(lane, shared ? 0 : lane);
    }
    for (unsigned i = 0; i < lanes; i++) wait_for(i, last[i]);
}

static void sustained(int n) { deal(n, 1, 1); }
static void two_dependent(int n) { deal(n, 2, 1); }
static void three_dependent(int n) { deal(n, 3, 1); }
static void four_independent(int n) { deal(n, 4, 0); }
static void settle(void) {} /* every run has waited for its last message */

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "usage: lanes ORDINAL KERNEL.cubin FUNCTION BLOCK ORDER.cubin\n");
        return 2;
    }
    set_up(argv);
    static const contender contenders[] = {
        {"sustained", NULL, sustained, settle},
        {"ask", NULL, ask, settle},
        {"four-independent", NULL, four_independent, settle},
        {"two-dependent", prove_order, two_dependent, settle},
        {"three-dependent", prove_order, three_dependent, settle},
        {0},
    };
    const contender *const lists[] = {contenders};
    return serve(lists, 1);
}
