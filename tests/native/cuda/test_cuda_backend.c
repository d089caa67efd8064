/* Signs of life of a CUDA device, and its end: its worker's memory goes when nothing is on its way to it any more, and not before. */
#include <pthread.h>
#include <unistd.h>

#include "check.h"
#include "cuda/cuda_backend.h"
#include "runtime/shm.h"

enum { CONTROL = 0, LANE = 5, QUEUE = 64, LATE_US = 300, LAUNCH_FAILED = 719 /* which is sticky */ };

/* ---- a driver whose one thread writes values late; a stream is a number */

typedef struct {
    int stream;
    _Atomic uint64_t *to;
    uint64_t value;
} pending;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pending queue[QUEUE];
static unsigned given, done;
static int held, ending;     /* the thread does nothing; it ends when all is done */
static int dawdles;          /* some values take their time until they are enqueued */
static CUresult fault;       /* of every call */
static unsigned n_streams, unregistered, destroyed, released, queries;
static uint64_t ahead_ns, hurry_ns; /* how far the clock is ahead; by how much more with each look */

uint64_t __real_atomr_now_ns(void);
uint64_t __wrap_atomr_now_ns(void);
uint64_t __wrap_atomr_now_ns(void) { return __real_atomr_now_ns() + (ahead_ns += hurry_ns); }

static void *write_late(void *argument) {
    (void)argument;
    pthread_mutex_lock(&lock);
    while (!ending || done < given) {
        if (held || done == given) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        const pending w = queue[done % QUEUE];
        pthread_mutex_unlock(&lock);
        usleep(LATE_US);
        atomic_store(w.to, w.value);
        pthread_mutex_lock(&lock);
        done++;
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static CUresult init(unsigned flags) { return (void)flags, CUDA_SUCCESS; }
static CUresult count(int *n) { return *n = 1, CUDA_SUCCESS; }
static CUresult get_device(CUdevice *device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; }
static CUresult attribute(int *value, CUdevice_attribute which, CUdevice device) {
    (void)which, (void)device;
    return *value = 1, CUDA_SUCCESS;
}
static CUresult retain(CUcontext *context, CUdevice device) {
    (void)device;
    return *context = (CUcontext)&lock, CUDA_SUCCESS;
}
static CUresult release(CUdevice device) { return (void)device, released++, CUDA_SUCCESS; }
static CUresult set_current(CUcontext context) { return (void)context, fault; }
static CUresult create_stream(CUstream *stream, unsigned flags) {
    (void)flags;
    *stream = (CUstream)&queue[n_streams++];
    return fault;
}
static CUresult destroy_stream(CUstream stream) { return (void)stream, destroyed++, CUDA_SUCCESS; }
static CUresult create_event(CUevent *event, unsigned flags) {
    (void)flags;
    *event = (CUevent)&changed;
    return fault;
}
static CUresult destroy_event(CUevent event) { return (void)event, CUDA_SUCCESS; }
static int number(CUstream stream) { return (int)((pending *)stream - queue); }
static CUresult query(CUstream stream) {
    CUresult r = fault;
    pthread_mutex_lock(&lock);
    queries++;
    for (unsigned i = done; i < given && !r; i++)
        if (queue[i % QUEUE].stream == number(stream)) r = CUDA_ERROR_NOT_READY;
    pthread_mutex_unlock(&lock);
    return r;
}
static CUresult write_value(CUstream stream, CUdeviceptr to, cuuint64_t value, unsigned flags) {
    CHECK_EQ(flags, 0);
    if (dawdles && value % 2) usleep(100);
    pthread_mutex_lock(&lock);
    CHECK(given - done < QUEUE);
    queue[given++ % QUEUE] = (pending){number(stream), (_Atomic uint64_t *)(uintptr_t)to, value};
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return fault;
}
static CUresult synchronize(CUstream stream) {
    while (query(stream) == CUDA_ERROR_NOT_READY) usleep(20);
    return fault;
}
static CUresult register_host(void *p, size_t n, unsigned flags) { return (void)p, (void)n, (void)flags, CUDA_SUCCESS; }
static CUresult device_pointer(CUdeviceptr *at, void *p, unsigned flags) {
    (void)flags;
    return *at = (CUdeviceptr)(uintptr_t)p, CUDA_SUCCESS;
}
static CUresult unregister(void *p) {
    (void)p;
    pthread_mutex_lock(&lock);
    CHECK_EQ(done, given);
    pthread_mutex_unlock(&lock);
    unregistered++;
    return CUDA_SUCCESS;
}
static CUresult error_name(CUresult error, const char **name) { return (void)error, *name = "SOME", CUDA_SUCCESS; }

const atomr_driver *__wrap_atomr_driver_load(char *why, size_t size);
const atomr_driver *__wrap_atomr_driver_load(char *why, size_t size) {
    static atomr_driver table;
    (void)why, (void)size;
    table.cuInit = init, table.cuDeviceGetCount = count, table.cuDeviceGet = get_device;
    table.cuDeviceGetAttribute = attribute, table.cuGetErrorName = error_name;
    table.cuDevicePrimaryCtxRetain = retain, table.cuDevicePrimaryCtxRelease_v2 = release;
    table.cuCtxSetCurrent = set_current, table.cuStreamCreate = create_stream, table.cuStreamDestroy_v2 = destroy_stream;
    table.cuEventCreate = create_event, table.cuEventDestroy_v2 = destroy_event, table.cuStreamQuery = query;
    table.cuStreamSynchronize = synchronize, table.cuStreamWriteValue64_v2 = write_value, table.cuMemHostRegister_v2 = register_host;
    table.cuMemHostGetDevicePointer_v2 = device_pointer, table.cuMemHostUnregister = unregister;
    return &table;
}

/* ---- a device with one lane, and the memory that it writes to */

typedef struct {
    pthread_t thread;
    atomr_cuda *cuda;
    atomr_backend backend;
    void *w;
} rig;

static rig begin(void) {
    rig r;
    char why[256];
    CUresult result;
    given = done = n_streams = unregistered = destroyed = released = queries = 0;
    held = ending = 0, fault = CUDA_SUCCESS, ahead_ns = hurry_ns = 0;
    CHECK_EQ(pthread_create(&r.thread, NULL, write_late, NULL), 0);
    r.cuda = atomr_cuda_open(0, &result, why, sizeof why);
    CHECK(r.cuda && result == CUDA_SUCCESS && n_streams == CONTROL + 1);
    r.w = aligned_alloc(4096, (atomr_w_bytes() + 4095) / 4096 * 4096);
    CHECK(r.w != NULL);
    memset(r.w, 0, atomr_w_bytes());
    CHECK_EQ(atomr_cuda_register(r.cuda, r.w, atomr_w_bytes(), why, sizeof why), 0);
    CHECK_EQ(atomr_cuda_open_lane(r.cuda, LANE), CUDA_SUCCESS);
    r.backend = atomr_cuda_backend(r.cuda);
    return r;
}

static void hold(int whether) {
    pthread_mutex_lock(&lock);
    held = whether;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void end(rig *r) {
    pthread_mutex_lock(&lock);
    ending = 1, held = 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    CHECK_EQ(pthread_join(r->thread, NULL), 0);
}

/* The sign of life of an idle device, for which nothing waits. */
static void test_a_sign_of_life_is_waited_for(void) {
    for (int turn = 0; turn < 3; turn++) {
        rig r = begin();
        CHECK_EQ(r.backend.probe(r.backend.self), 0);
        CHECK_EQ(atomr_cuda_unregister(r.cuda), 1);
        free(r.w); /* the sanitizers see a write that comes now */
        CHECK(unregistered == 1 && given == 1);
        atomr_cuda_close(r.cuda);
        CHECK(destroyed == 2 && released == 1);
        end(&r);
    }
}

static void complete_five(const rig *r) {
    for (uint64_t i = 1; i <= 5; i++)
        CHECK_EQ(r->backend.signal(r->backend.self, LANE, i, &atomr_wlane_at(r->w, LANE)->completed), 0);
}

/* That of a lane, too: one that ends by an error waits for nothing. */
static void test_a_completion_is_waited_for(void) {
    rig r = begin();
    complete_five(&r);
    CHECK_EQ(atomr_cuda_unregister(r.cuda), 1);
    CHECK_EQ(atomic_load(&atomr_wlane_at(r.w, LANE)->completed), 5);
    free(r.w);
    CHECK_EQ(unregistered, 1);
    atomr_cuda_close(r.cuda);
    end(&r);
}

/* A device that is stuck is not waited for without end; it may still write, so nothing is taken from it. */
static void test_a_device_that_does_not_come_to_rest_keeps_its_memory(void) {
    rig r = begin();
    hold(1);
    CHECK_EQ(r.backend.probe(r.backend.self), 0);
    hurry_ns = 1000000000;
    CHECK_EQ(atomr_cuda_unregister(r.cuda), 0);
    CHECK(queries > 1 && unregistered == 0);
    CHECK_EQ(atomr_cuda_error(r.cuda), CUDA_ERROR_UNKNOWN);
    atomr_cuda_close(r.cuda);
    CHECK(destroyed == 0 && released == 0);
    end(&r);
    CHECK_EQ(atomic_load(&((atomr_wheader *)r.w)->beat), 1);
    free(r.w);
}

/* Of a device that has faulted nothing is waited for: what it held is never done. */
static void test_a_faulted_device_is_not_waited_for(void) {
    rig r = begin();
    hold(1);
    CHECK_EQ(r.backend.probe(r.backend.self), 0);
    fault = LAUNCH_FAILED;
    queries = 0;
    CHECK_EQ(atomr_cuda_unregister(r.cuda), 1);
    CHECK_EQ(atomr_cuda_error(r.cuda), LAUNCH_FAILED);
    CHECK(queries == 1 && unregistered == 0);
    atomr_cuda_close(r.cuda);
    CHECK(destroyed == 0 && released == 0);
    end(&r);
    free(r.w);
}

/* An error that a call had is the device's from then on, but what was queued before goes on. */
static void test_a_device_is_waited_for_after_an_error_of_a_call(void) {
    rig r = begin();
    complete_five(&r);
    fault = CUDA_ERROR_OUT_OF_MEMORY;
    CHECK_EQ(r.backend.check(r.backend.self), CUDA_ERROR_OUT_OF_MEMORY);
    fault = CUDA_SUCCESS;
    CHECK_EQ(atomr_cuda_unregister(r.cuda), 1);
    CHECK_EQ(atomic_load(&atomr_wlane_at(r.w, LANE)->completed), 5);
    free(r.w);
    CHECK_EQ(unregistered, 1);
    CHECK_EQ(atomr_cuda_error(r.cuda), CUDA_ERROR_OUT_OF_MEMORY);
    atomr_cuda_close(r.cuda);
    end(&r);
}

/* Of a device that does not say whether it rests, nothing is taken. */
static void test_a_device_that_cannot_be_asked_keeps_its_memory(void) {
    rig r = begin();
    hold(1);
    CHECK_EQ(r.backend.probe(r.backend.self), 0);
    fault = CUDA_ERROR_OUT_OF_MEMORY;
    queries = 0;
    CHECK_EQ(atomr_cuda_unregister(r.cuda), 0);
    CHECK(queries == 1 && unregistered == 0);
    fault = CUDA_SUCCESS;
    atomr_cuda_close(r.cuda);
    CHECK(destroyed == 0 && released == 0);
    end(&r);
    CHECK_EQ(atomic_load(&((atomr_wheader *)r.w)->beat), 1);
    free(r.w);
}

static unsigned written(void) {
    pthread_mutex_lock(&lock);
    const unsigned n = given;
    pthread_mutex_unlock(&lock);
    return n;
}

static _Atomic int beaten; /* the last sign of life that is waited for is there */

static void *probe_on(void *argument) {
    const rig *r = argument;
    while (!atomic_load(&beaten)) CHECK_EQ(r->backend.probe(r->backend.self), 0);
    return NULL;
}

/* Who waits for a sign of life finds it, although the completer asks for others all the while. */
static void test_signs_of_life_that_two_threads_ask_for(void) {
    enum { BEATS = 100, PROBES = 20 };
    rig r = begin();
    pthread_t thread;
    dawdles = 1;
    atomic_store(&beaten, 0);
    CHECK_EQ(pthread_create(&thread, NULL, probe_on, &r), 0);
    for (unsigned n = 0; n < BEATS || written() < n + PROBES; n++) CHECK_EQ(atomr_cuda_beat(r.cuda), CUDA_SUCCESS);
    atomic_store(&beaten, 1);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    dawdles = 0;
    CHECK_EQ(atomr_cuda_unregister(r.cuda), 1);
    free(r.w);
    atomr_cuda_close(r.cuda);
    end(&r);
}

int main(int argc, char **argv) {
    RUN(test_a_sign_of_life_is_waited_for);
    RUN(test_a_completion_is_waited_for);
    RUN(test_a_device_that_does_not_come_to_rest_keeps_its_memory);
    RUN(test_a_faulted_device_is_not_waited_for);
    RUN(test_a_device_is_waited_for_after_an_error_of_a_call);
    RUN(test_a_device_that_cannot_be_asked_keeps_its_memory);
    RUN(test_signs_of_life_that_two_threads_ask_for);
    return check_end(argc, argv);
}
