/* The context of a CUDA device, its streams and handles, and completion: what the lanes need of it. */
#define _GNU_SOURCE
#include "cuda/cuda_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/failure.h"

enum { KEEP_MARKING = 256, NAP_NS = 10000, REST_S = 5 };

static _Atomic uint64_t devices; /* opened so far */
static __thread uint64_t current; /* the `id` whose context this thread has made current */

static CUresult make_current(atomr_cuda *c) {
    if (current == c->id) return CUDA_SUCCESS;
    const CUresult r = c->d->cuCtxSetCurrent(c->context);
    if (r == CUDA_SUCCESS) current = c->id;
    return r;
}

static int enter(atomr_cuda *c) {
    const CUresult error = atomic_load_explicit(&c->error, memory_order_relaxed);
    return error != CUDA_SUCCESS ? error : make_current(c);
}

int atomr_cuda_is_sticky(CUresult r) {
    return r == 214 || r == 700 || r == 702 || r == 709 || r == 710 || (r >= 714 && r <= 719);
}

static const char *name_of(const atomr_driver *d, CUresult r) {
    const char *name = NULL;
    d->cuGetErrorName(r, &name);
    return name ? name : "CUDA_ERROR_UNNAMED";
}

/* The first error of the context stays: every later call would report it too. */
static int note(atomr_cuda *c, CUresult r) {
    CUresult none = CUDA_SUCCESS;
    if (r != CUDA_SUCCESS && r != CUDA_ERROR_NOT_READY) atomic_compare_exchange_strong(&c->error, &none, r);
    return r;
}

int atomr_cuda_find(const char uuid[16], int *ordinal, CUresult *result, char *why, size_t size) {
    *result = CUDA_SUCCESS;
    const atomr_driver *d = atomr_driver_load(why, size);
    if (!d) return -1;
    CUdevice device;
    CUuuid found;
    int n = 0;
    CUresult r = d->cuInit(0);
    if (r == CUDA_SUCCESS) r = d->cuDeviceGetCount(&n);
    for (int i = 0; i < n && r == CUDA_SUCCESS; i++) {
        r = d->cuDeviceGet(&device, i);
        if (r == CUDA_SUCCESS) r = d->cuDeviceGetUuid_v2(&found, device);
        if (r != CUDA_SUCCESS || memcmp(found.bytes, uuid, sizeof found.bytes) != 0) continue;
        *ordinal = i;
        return 1;
    }
    if (r == CUDA_SUCCESS || r == CUDA_ERROR_NO_DEVICE) {
        snprintf(why, size, "the driver has %d other devices", n);
        return 0;
    }
    snprintf(why, size, "CUDA devices cannot be listed: %s (%d)", name_of(d, r), r);
    *result = r;
    return -1;
}

/* What the runtime is built on; whatever lacks one of these (an old GPU, a virtual one) is refused by name. */
static const char *missing(const atomr_driver *d, CUdevice device) {
    static const struct {
        int attribute;
        const char *name;
    } needed[] = {
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "virtual memory management (cuMemCreate)"},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, "memory exported as a descriptor"},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, "64-bit stream memory operations (Volta and later have)"},
    };
    for (unsigned i = 0; i < sizeof needed / sizeof *needed; i++) {
        int has = 0;
        if (d->cuDeviceGetAttribute(&has, needed[i].attribute, device) != CUDA_SUCCESS || !has) return needed[i].name;
    }
    return NULL;
}

static atomr_cuda *discard(atomr_cuda *c) {
    for (unsigned i = 0; i < ATOMR_ALL_LANES; i++) pthread_mutex_destroy(&c->lanes[i].lock);
    pthread_mutex_destroy(&c->shared_lock);
    pthread_mutex_destroy(&c->capturing);
    pthread_mutex_destroy(&c->beating);
    free(c);
    return NULL;
}

atomr_cuda *atomr_cuda_open(int ordinal, CUresult *result, char *why, size_t size) {
    *result = CUDA_SUCCESS;
    const atomr_driver *d = atomr_driver_load(why, size);
    if (!d) return NULL;
    atomr_cuda *c = aligned_alloc(_Alignof(atomr_cuda), sizeof *c);
    if (!c) {
        snprintf(why, size, "no host memory for a CUDA device");
        return NULL;
    }
    memset(c, 0, sizeof *c);
    c->d = d;
    c->id = atomic_fetch_add(&devices, 1) + 1;
    for (unsigned i = 0; i < ATOMR_ALL_LANES; i++) pthread_mutex_init(&c->lanes[i].lock, NULL);
    pthread_mutex_init(&c->shared_lock, NULL);
    pthread_mutex_init(&c->capturing, NULL);
    pthread_mutex_init(&c->beating, NULL);
    int n = 0;
    const char *lacks = NULL;
    CUresult r = d->cuInit(0);
    if (r == CUDA_SUCCESS) r = d->cuDeviceGetCount(&n);
    if (r == CUDA_SUCCESS && ordinal >= n) {
        snprintf(why, size, "there is no CUDA device %d: the driver has %d (CUDA_VISIBLE_DEVICES counts)", ordinal, n);
        return discard(c);
    }
    if (r == CUDA_SUCCESS) r = d->cuDeviceGet(&c->device, ordinal);
    if (r == CUDA_SUCCESS && (lacks = missing(d, c->device))) {
        snprintf(why, size, "CUDA device %d does not support %s, which this library needs", ordinal, lacks);
        return discard(c);
    }
    if (r == CUDA_SUCCESS) r = d->cuDevicePrimaryCtxRetain(&c->context, c->device);
    if (r == CUDA_SUCCESS) {
        r = enter(c);
        if (r == CUDA_SUCCESS) r = d->cuStreamCreate(&c->control, CU_STREAM_NON_BLOCKING);
        if (r == CUDA_SUCCESS) return c;
        d->cuDevicePrimaryCtxRelease_v2(c->device);
    }
    snprintf(why, size, "CUDA device %d cannot be opened: %s (%d)", ordinal, name_of(d, r), r);
    *result = r;
    return discard(c);
}

static void close_lane(atomr_cuda *c, atomr_cuda_lane *l) {
    const atomr_driver *d = c->d;
    atomr_handles_end(&l->handles); /* they may wait for the stream */
    const CUstream stream = atomic_exchange(&l->stream, NULL);
    for (int i = 0; i < ATOMR_MARKS; i++)
        if (l->marks[i]) d->cuEventDestroy_v2(l->marks[i]);
    if (stream) d->cuStreamDestroy_v2(stream);
    if (l->aside) d->cuStreamDestroy_v2(l->aside);
    l->aside = NULL;
    memset(l->marks, 0, sizeof l->marks);
}

void atomr_cuda_close(atomr_cuda *c) {
    if (!c) return;
    if (enter(c) == CUDA_SUCCESS) {
        for (unsigned i = 0; i < ATOMR_ALL_LANES; i++) close_lane(c, &c->lanes[i]);
        atomr_handles_end(&c->shared);
        c->d->cuStreamDestroy_v2(c->control);
        c->d->cuDevicePrimaryCtxRelease_v2(c->device);
    }
    discard(c);
}

CUresult atomr_cuda_enter(atomr_cuda *c) { return enter(c); }

const atomr_driver *atomr_cuda_driver(const atomr_cuda *c) { return c->d; }
CUdevice atomr_cuda_device(const atomr_cuda *c) { return c->device; }
CUresult atomr_cuda_error(atomr_cuda *c) { return atomic_load(&c->error); }
CUstream atomr_cuda_control(atomr_cuda *c) { return c->control; }

int atomr_cuda_register(atomr_cuda *c, void *w, uint64_t nbytes, char *why, size_t size) {
    CUresult r = enter(c);
    if (r == CUDA_SUCCESS)
        r = c->d->cuMemHostRegister_v2(w, nbytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (r == CUDA_SUCCESS) {
        r = c->d->cuMemHostGetDevicePointer_v2(&c->w_on_device, w, 0);
        if (r != CUDA_SUCCESS) c->d->cuMemHostUnregister(w);
    }
    if (r != CUDA_SUCCESS) {
        snprintf(why, size, "the GPU cannot write to the worker's memory: %s (%d)", name_of(c->d, r), r);
        return r;
    }
    c->w = w;
    return 0;
}

/* Nothing waits for the signs of life that `probe` asks for, nor, where the lanes have ended by an error, for their last
 * values; and no function of the driver that lets go of host memory promises to wait for what is queued. */
static CUresult come_to_rest(atomr_cuda *c) {
    const struct timespec nap = {0, NAP_NS};
    const uint64_t end = atomr_now_ns() + REST_S * UINT64_C(1000000000);
    CUresult r = CUDA_SUCCESS;
    for (unsigned i = 0; i <= ATOMR_LANES && r == CUDA_SUCCESS; i++) {
        const CUstream stream = i < ATOMR_LANES ? atomic_load(&c->lanes[i].stream) : c->control;
        while (stream && (r = c->d->cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY && atomr_now_ns() < end)
            nanosleep(&nap, NULL);
    }
    return note(c, r);
}

int atomr_cuda_unregister(atomr_cuda *c) {
    CUresult r = atomic_load(&c->error);
    int rests = 1;
    if (c->w && !atomr_cuda_is_sticky(r)) { /* an error that a call had leaves what is queued at work */
        r = make_current(c);
        if (r == CUDA_SUCCESS) r = come_to_rest(c);
        if (r == CUDA_SUCCESS) c->d->cuMemHostUnregister(c->w);
        rests = r == CUDA_SUCCESS || atomr_cuda_is_sticky(r);
        if (!rests) note(c, CUDA_ERROR_UNKNOWN); /* to let go of anything else may take without end, too */
    }
    c->w = NULL;
    return rests;
}

CUresult atomr_cuda_open_lane(atomr_cuda *c, unsigned lane) {
    const atomr_driver *d = c->d;
    atomr_cuda_lane *l = &c->lanes[lane];
    CUstream stream = NULL;
    CUresult r = enter(c);
    if (r != CUDA_SUCCESS || atomic_load(&l->stream)) return r;
    r = d->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < ATOMR_MARKS && r == CUDA_SUCCESS; i++) r = d->cuEventCreate(&l->marks[i], CU_EVENT_DISABLE_TIMING);
    if (r != CUDA_SUCCESS) {
        if (stream) d->cuStreamDestroy_v2(stream);
        close_lane(c, l);
        return r;
    }
    /* Only now: the driver writes a stream's handle before others may use it, and the completer asks at any time. */
    atomic_store_explicit(&l->stream, stream, memory_order_release);
    return r;
}

CUstream atomr_cuda_stream(atomr_cuda *c, unsigned lane) {
    if (lane >= ATOMR_ASIDE) return c->lanes[lane - ATOMR_ASIDE].aside;
    CUstream stream = atomic_load_explicit(&c->lanes[lane].stream, memory_order_acquire);
    if (note(c, enter(c)) == CUDA_SUCCESS && !stream) {
        note(c, atomr_cuda_open_lane(c, lane));
        stream = atomic_load_explicit(&c->lanes[lane].stream, memory_order_acquire);
    }
    return stream;
}

char *atomr_cuda_info(const atomr_cuda *c, const atomr_call *call) {
    return (char *)(uintptr_t)(c->w_on_device + (CUdeviceptr)((const char *)call->info - c->w));
}

int atomr_cuda_judge_late(atomr_cuda *c, const atomr_call *call, CUdeviceptr words, unsigned n, atomr_late late,
                          atomr_failure *failure) {
    if (call->late->judge)
        return atomr_refused(failure, ATOMR_UNSUPPORTED, "a message that may fail late in two ways; it can have one");
    const CUdeviceptr to = (CUdeviceptr)(uintptr_t)atomr_cuda_info(c, call);
    const CUstream stream = atomr_cuda_stream(c, call->lane);
    CUresult r = atomr_cuda_error(c);
    if (r == CUDA_SUCCESS && n) r = c->d->cuMemcpyAsync(to, words, n * sizeof(int32_t), stream);
    if (r != CUDA_SUCCESS)
        return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cuda", note(c, r), name_of(c->d, r), "copying info words");
    *call->late = late;
    return ATOMR_OK;
}

int atomr_lane_handle(atomr_cuda *c, unsigned lane, const atomr_handle_kind *kind, void **handle,
                      atomr_failure *failure) {
    const CUstream stream = atomr_cuda_stream(c, lane);
    if (!stream) /* NULL would be the default stream, which orders with nothing of ours */
        return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cuda", atomr_cuda_error(c), name_of(c->d, atomr_cuda_error(c)),
                            "the lane has no stream");
    atomr_cuda_lane *l = &c->lanes[lane >= ATOMR_ASIDE ? lane - ATOMR_ASIDE : lane];
    return atomr_handles_get(&l->handles, kind, c, stream, handle, failure);
}

int atomr_device_handle(atomr_cuda *c, const atomr_handle_kind *kind, void **handle, atomr_failure *failure) {
    const CUresult r = enter(c);
    if (r != CUDA_SUCCESS)
        return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cuda", r, name_of(c->d, r), "entering the context");
    pthread_mutex_lock(&c->shared_lock);
    const int code = atomr_handles_get(&c->shared, kind, c, NULL, handle, failure);
    pthread_mutex_unlock(&c->shared_lock);
    return code;
}

int atomr_cuda_begin_capture(atomr_cuda *c, unsigned lane, CUstream *stream, atomr_failure *failure) {
    pthread_mutex_lock(&c->capturing);
    *stream = atomr_cuda_stream(c, ATOMR_CAPTURE_LANE);
    int code = ATOMR_OK;
    if (!*stream)
        code = atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cuda", atomr_cuda_error(c), name_of(c->d, atomr_cuda_error(c)),
                            "there is no stream for captures");
    const atomr_handles *h = &c->lanes[lane].handles; /* of the calling thread */
    for (unsigned i = 0, n = atomic_load(&h->n); i < n && code == ATOMR_OK; i++) {
        void *handle;
        code = atomr_lane_handle(c, ATOMR_CAPTURE_LANE, h->kinds[i], &handle, failure);
    }
    if (code == ATOMR_OK) return code;
    if (!failure->status) failure->status = -1;
    pthread_mutex_unlock(&c->capturing);
    return code;
}

void atomr_cuda_end_capture(atomr_cuda *c) { pthread_mutex_unlock(&c->capturing); }

int atomr_cuda_begin_aside(atomr_cuda *c, unsigned lane, CUstream *aside, atomr_failure *failure) {
    atomr_cuda_lane *l = &c->lanes[lane];
    CUresult r = enter(c);
    if (r == CUDA_SUCCESS && !l->aside) r = c->d->cuStreamCreate(&l->aside, CU_STREAM_NON_BLOCKING);
    if (r != CUDA_SUCCESS)
        return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cuda", r, name_of(c->d, r), "making a stream for captures");
    *aside = l->aside;
    const int code = atomr_handles_point(&l->handles, l->aside, failure);
    atomr_failure second;
    if (code != ATOMR_OK) atomr_cuda_end_aside(c, lane, &second);
    return code;
}

int atomr_cuda_end_aside(atomr_cuda *c, unsigned lane, atomr_failure *failure) {
    return atomr_handles_point(&c->lanes[lane].handles, atomic_load(&c->lanes[lane].stream), failure);
}

int atomr_cuda_captures_pieces(const atomr_cuda *c) {
    return c->d->cuStreamBeginCaptureToGraph && c->d->cuStreamGetCaptureInfo_v3 && c->d->cuGraphAddNode_v2 &&
           c->d->cuGraphConditionalHandleCreate;
}

CUcontext atomr_cuda_context(const atomr_cuda *c) { return c->context; }

unsigned atomr_cuda_handles(atomr_cuda *c, atomr_handle_count *counts) {
    unsigned n = atomr_handles_count(&c->shared, counts, 0);
    for (unsigned i = 0; i < ATOMR_ALL_LANES; i++) n = atomr_handles_count(&c->lanes[i].handles, counts, n);
    return n;
}

static int launched(void *self, unsigned lane, uint64_t ticket) {
    atomr_cuda *c = self;
    atomr_cuda_lane *l = &c->lanes[lane];
    CUstream stream = atomr_cuda_stream(c, lane);
    CUresult r = atomr_cuda_error(c);
    if (r != CUDA_SUCCESS) return r;
    pthread_mutex_lock(&l->lock);
    l->last = ticket;
    if (atomic_load_explicit(&l->marking, memory_order_relaxed) > 0) {
        atomic_fetch_sub_explicit(&l->marking, 1, memory_order_relaxed);
        r = c->d->cuEventRecord(l->marks[ticket % ATOMR_MARKS], stream);
        l->marked[ticket % ATOMR_MARKS] = ticket;
    }
    pthread_mutex_unlock(&l->lock);
    return note(c, r);
}

/* Wait for the mark of the ticket, or of the first one after it that has a mark; without any, mark what has been
 * launched so far, which is more than was asked, and never less.  Marks cost the other lane a call each: it makes
 * them, for a while, where one is needed that could not be made now.  Who waits for the last launch needs none. */
static int depend(void *self, unsigned lane, unsigned other, uint64_t ticket) {
    atomr_cuda *c = self;
    atomr_cuda_lane *o = &c->lanes[other];
    CUstream stream = atomr_cuda_stream(c, lane), theirs = atomic_load_explicit(&o->stream, memory_order_acquire);
    CUresult r = atomr_cuda_error(c);
    if (r != CUDA_SUCCESS || !theirs) return r;
    pthread_mutex_lock(&o->lock);
    if (o->last > ticket) atomic_store_explicit(&o->marking, KEEP_MARKING, memory_order_relaxed);
    uint64_t at = ticket;
    if (o->last >= ticket + ATOMR_MARKS) at = o->last - ATOMR_MARKS + 1;
    while (at <= o->last && o->marked[at % ATOMR_MARKS] != at) at++;
    if (at > o->last) {
        at = o->last;
        r = c->d->cuEventRecord(o->marks[at % ATOMR_MARKS], theirs);
        o->marked[at % ATOMR_MARKS] = at;
    }
    if (r == CUDA_SUCCESS) r = c->d->cuStreamWaitEvent(stream, o->marks[at % ATOMR_MARKS], 0);
    pthread_mutex_unlock(&o->lock);
    return note(c, r);
}

static int signal_completion(void *self, unsigned lane, uint64_t ticket, _Atomic uint64_t *completed) {
    atomr_cuda *c = self;
    const CUdeviceptr at = c->w_on_device + (CUdeviceptr)((char *)completed - c->w);
    CUstream stream = atomr_cuda_stream(c, lane);
    CUresult r = atomr_cuda_error(c);
    if (r == CUDA_SUCCESS) r = c->d->cuStreamWriteValue64_v2(stream, at, ticket, 0);
    return note(c, r);
}

/* The completion value itself is looked at, by short naps: no call of the driver, which would hold up lanes that
 * launch, has a timeout, and other lanes finish while this one's kernel runs on. */
static int wait_for(void *self, unsigned lane, uint64_t ticket, int64_t timeout_ns) {
    atomr_cuda *c = self;
    const atomr_wlane *w = atomr_wlane_at(c->w, lane);
    const struct timespec nap = {0, NAP_NS};
    const uint64_t end = atomr_now_ns() + (uint64_t)timeout_ns;
    while (atomic_load(&w->completed) < ticket && atomic_load(&w->arrived) < ticket && atomr_now_ns() < end)
        nanosleep(&nap, NULL);
    return atomr_cuda_error(c);
}

CUresult atomr_cuda_check(atomr_cuda *c) {
    CUstream any = NULL;
    for (unsigned i = 0; i < ATOMR_LANES && !any; i++) any = atomic_load_explicit(&c->lanes[i].stream, memory_order_acquire);
    if (note(c, enter(c)) == CUDA_SUCCESS) note(c, c->d->cuStreamQuery(any ? any : c->control));
    return atomr_cuda_error(c);
}

static int check(void *self) { return atomr_cuda_check(self); }

/* One at a time, so that the greatest value is written last: `atomr_cuda_beat` looks for its own, or a later one. */
static CUresult write_beat(atomr_cuda *c, uint64_t *value) {
    const CUdeviceptr at = c->w_on_device + offsetof(atomr_wheader, beat);
    pthread_mutex_lock(&c->beating);
    *value = ++c->beats;
    const CUresult r = c->w ? c->d->cuStreamWriteValue64_v2(c->control, at, *value, 0) : CUDA_SUCCESS;
    pthread_mutex_unlock(&c->beating);
    return r;
}

/* A query of a stream on which all is done may not look further.  New work does; its end is asked for the next time. */
static int probe(void *self) {
    atomr_cuda *c = self;
    if (atomr_cuda_check(c)) return atomr_cuda_error(c);
    uint64_t value;
    const CUresult r = note(c, c->d->cuStreamQuery(c->control));
    if (r == CUDA_SUCCESS) note(c, write_beat(c, &value));
    return atomr_cuda_error(c);
}

CUresult atomr_cuda_examine(atomr_cuda *c) {
    uint64_t value;
    if (atomr_cuda_check(c) == CUDA_SUCCESS && note(c, write_beat(c, &value)) == CUDA_SUCCESS)
        note(c, c->d->cuStreamSynchronize(c->control));
    return atomr_cuda_error(c);
}

CUresult atomr_cuda_beat(atomr_cuda *c) {
    uint64_t value = 0;
    CUresult r = enter(c);
    if (r == CUDA_SUCCESS) r = write_beat(c, &value);
    if (r == CUDA_SUCCESS) r = c->d->cuStreamSynchronize(c->control);
    if (r == CUDA_SUCCESS && c->w && atomic_load(&((atomr_wheader *)c->w)->beat) < value) r = CUDA_ERROR_UNKNOWN;
    return r;
}

static void explain(void *self, atomr_device_error *e) {
    atomr_cuda *c = self;
    const char *text = NULL;
    e->code = atomr_cuda_error(c);
    c->d->cuGetErrorString(e->code, &text);
    snprintf(e->lib, sizeof e->lib, "cuda");
    snprintf(e->name, sizeof e->name, "%s", name_of(c->d, e->code));
    snprintf(e->text, sizeof e->text, "%s", text ? text : "an error that this driver does not explain");
}

atomr_backend atomr_cuda_backend(atomr_cuda *c) {
    return (atomr_backend){c, 1, depend, launched, signal_completion, wait_for, check, probe, explain};
}
