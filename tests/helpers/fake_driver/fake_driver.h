/* A CUDA driver without a GPU: device memory is memfds, a stream is a thread with a queue, a kernel is C.
 *
 * It says and refuses what the real driver would, as far as this project can tell: results come asynchronously and in
 * no order but the one that streams and events give, errors of kernels are sticky and of the whole process, memory is
 * reachable only where it is mapped, and outlives the process that made it as long as a descriptor is open.
 *
 * Environment:
 *   FAKE_CUDA_DEVICES   how many devices there are (1)
 *   FAKE_CUDA_MEMORY    bytes of each (8 GiB)
 *   FAKE_CUDA_MACHINE   name; processes that give the same one share the devices' memory (the user's id)
 *   FAKE_CUDA_DELAY_US  each piece of work may start up to so many microseconds late, at random (0)
 *   FAKE_CUDA_SEED      of these delays (1)
 *   FAKE_CUDA_QUEUE     pieces of work that a stream holds; launches wait for room (1024)
 *   FAKE_CUDA_PEER      0: no device reaches another one's memory (1)
 *   FAKE_CUDA_PROTECT   0: the processor may read and write device memory while no work runs (1: that is a segfault)
 *   FAKE_CUDA_MEET      so many threads set the stream of a cuBLAS handle before any of them goes on (1)
 *   FAKE_CUDA_CURAND    the file of the real cuRAND, whose host generators give the numbers (none)
 *   FAKE_CUDA_REFUSE    a file with lines "function error times": calls that fail so often, in any process
 *   CUDA_VISIBLE_DEVICES  as the real one's: numbers or UUIDs
 *
 * What it does not do: streams without CU_STREAM_NON_BLOCKING, and values that are written without a barrier, are
 * refused, since nothing here may use them; access between devices and to host memory that is not registered is refused
 * in copies but not in kernels; a capture is of one stream and in thread-local mode; and there is no pool, texture, or
 * dynamic shared memory.
 */
#ifndef FAKE_DRIVER_H
#define FAKE_DRIVER_H

#include <pthread.h>
#include <stdbool.h>

#include "cuda/driver.h"

/* The functions have the types of the table that is tested. */
#define F(result, name, arguments) result name arguments;
ATOMR_DRIVER_FUNCTIONS(F)
ATOMR_DRIVER_OPTIONAL(F)
#undef F

enum {
    ERROR_INVALID_VALUE = 1,
    ERROR_NOT_INITIALIZED = 3,
    ERROR_NO_DEVICE = 100,
    ERROR_INVALID_DEVICE = 101,
    ERROR_INVALID_IMAGE = 200,
    ERROR_INVALID_CONTEXT = 201,
    ERROR_PEER_ACCESS_UNSUPPORTED = 217,
    ERROR_INVALID_HANDLE = 400,
    ERROR_NOT_FOUND = 500,
    ERROR_ILLEGAL_ADDRESS = 700,
    ERROR_CONTEXT_IS_DESTROYED = 709,
    ERROR_ASSERT = 710,
    ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
    ERROR_MISALIGNED_ADDRESS = 716,
    ERROR_LAUNCH_FAILED = 719,
    ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720,
    ERROR_NOT_SUPPORTED = 801,
    ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    ERROR_STREAM_CAPTURE_INVALIDATED = 901,
    ERROR_ILLEGAL_STATE = 401,
    ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
    ERROR_GRAPH_EXEC_UPDATE_FAILURE = 910,

    MAX_DEVICES = 16,
    GRANULARITY = 2 << 20
};

struct CUctx_st {
    CUdevice device; /* as the process numbers them */
    unsigned retained;
    CUstream stream; /* the default one, made when first used */
};

/* ---- device.c */

typedef struct {
    unsigned devices; /* that this process sees */
    unsigned physical[MAX_DEVICES];
    size_t memory;
    unsigned delay_us, queue, meet;
    uint64_t seed;
    bool peer, protect;
    char machine[64];
} fake_options;
extern fake_options options;

/* One lock for all state, and one condition for "a stream has got on, or the context has faulted". */
extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_progress;

/* The calling thread's context, or why nothing can be done in it: not initialised, none current, a sticky error. */
CUresult fake_enter(CUcontext *context);
/* The sticky error; 0: none. */
CUresult fake_error(void);
/* The device has faulted: nothing runs any more. */
void fake_set_error(CUresult error);

/* ---- refusals.c */

/* The error with which a test wants this call to fail; 0: none. */
CUresult fake_refusal(const char *function);
#define MAY_REFUSE()                                                                                                  \
    do {                                                                                                              \
        const CUresult refusal_ = fake_refusal(__func__);                                                             \
        if (refusal_) return refusal_;                                                                                \
    } while (0)

/* ---- addresses.c; the lock is held */

typedef enum { NOWHERE, PAGEABLE, PINNED, ON_DEVICE } fake_place;
/* What kind of memory `n` bytes are; NOWHERE: part of them is device addresses without memory or access. */
fake_place fake_where(CUdeviceptr at, size_t n, CUdevice for_device);
/* Let threads that stand for the device at its memory, or no longer. */
void fake_begin_work(void);
void fake_end_work(void);

/* ---- streams.c */

enum {
    FAKE_WAIT = 1,     /* until it is done */
    FAKE_HOST_ONLY = 2, /* it does not touch device memory */
    FAKE_COPY = 4,     /* in a graph it is a copy, or a fill, instead of a kernel */
    FAKE_FILL = 8
};
/* Load a shared library from memory; NULL if it is none. */
void *fake_open_image(const void *image, size_t size);
/* Enqueue a call of `run` with a copy of `argument`.  It runs in the stream's thread, where it stands for the device:
 * an invalid access is a fault. */
CUresult fake_enqueue(CUstream stream, void (*run)(void *argument), const void *argument, size_t size, unsigned how);

/* Whether the calling thread captures: it then calls nothing that waits for the device, or that allocates its memory.  A
 * call that does, ends the capture: what it returns. */
CUresult fake_unsafe(void);

/* ---- graphs.c; the lock is held */

CUgraph fake_new_graph(void);
void fake_free_graph(CUgraph);
/* Whether these are different nodes of the graph. */
bool fake_may_follow(CUgraph, const CUgraphNode *after, size_t n);
/* Add work, with a copy of its argument, to a graph that is being captured, behind other nodes. */
CUresult fake_capture(CUgraph, const CUgraphNode *after, size_t n_after, CUgraphNode *made, void (*run)(void *argument),
                      const void *argument, size_t size, unsigned how);
/* Give a node of an instance another argument, for later launches; `node` is of the graph that it was made of. */
CUresult fake_set_node(CUgraphExec, CUgraphNode node, void (*run)(void *argument), const void *argument, size_t size);
/* What a kernel does that sets a condition of the graph that runs it; no lock. */
void fake_set_condition(unsigned long long handle, unsigned value);

/* ---- faults.c */

/* End the work that the calling thread runs, with a fault; only in a stream's thread. */
_Noreturn void fake_raise(int error);

/* Call a function in a stream's thread; the error that it raised, by itself or by an invalid access. */
CUresult fake_guard(void (*run)(void *), void *argument);
void fake_catch_signals(void);

#endif
