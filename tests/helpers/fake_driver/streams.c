/* Streams: a thread and a queue each.  Events: a place in a stream's order. */
#define _GNU_SOURCE
#include "fake_driver.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STREAM = 0x7374726d, EVENT = 0x65766e74 };

typedef struct item {
    struct item *next;
    void (*run)(void *); /* NULL: only waits */
    bool works;          /* with device memory */
    CUstream awaited;    /* until it has come to `place` */
    uint64_t place;
    _Alignas(16) char argument[];
} item;

/* Never freed, since events name it. */
struct CUstream_st {
    uint32_t magic;
    bool ending;
    CUcontext context;
    CUstream next;
    item *first, **last;
    unsigned held;
    uint64_t given, done; /* how many pieces of work it has got, and has finished */
    uint64_t seed;
    pthread_cond_t more;
    CUgraph captured; /* NULL: what it is given is run */
    bool borrowed;    /* it was there before the capture */
    bool invalid;     /* the capture has ended, and is not yet taken back */
    CUgraphNode *tail; /* what the next node of the capture depends on */
    size_t n_tail;
};

/* Never freed, but used again. */
struct CUevent_st {
    uint32_t magic;
    bool timed;
    CUcontext context;
    CUstream stream; /* of the last record; NULL: none yet */
    uint64_t place;
    double when; /* seconds */
    CUevent next;
};

static CUstream streams;
static __thread CUstream captures; /* the stream that this thread captures */
static unsigned made_streams;
static CUevent spare;

static void pause_at_random(CUstream s) {
    s->seed = s->seed * 6364136223846793005ull + 1442695040888963407ull;
    const uint64_t us = (s->seed >> 33) % (options.delay_us + 1);
    const struct timespec nap = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    nanosleep(&nap, NULL);
}

/* The lock is held; the sticky error, if there is one. */
static CUresult await(CUstream s, uint64_t place) {
    while (s->done < place && !fake_error()) pthread_cond_wait(&fake_progress, &fake_lock);
    return fake_error();
}

/* The lock is held, but for the work itself. */
static void work(CUstream s, item *i) {
    if (options.delay_us) {
        pthread_mutex_unlock(&fake_lock);
        pause_at_random(s);
        pthread_mutex_lock(&fake_lock);
    }
    if (i->awaited) await(i->awaited, i->place);
    if (!i->run || fake_error()) return;
    if (i->works) fake_begin_work();
    pthread_mutex_unlock(&fake_lock);
    const CUresult r = fake_guard(i->run, i->argument);
    if (r) fake_set_error(r);
    pthread_mutex_lock(&fake_lock);
    if (i->works) fake_end_work();
}

static void *stream_main(void *argument) {
    CUstream s = argument;
    pthread_mutex_lock(&fake_lock);
    for (;;) {
        while (!s->first && !s->ending) pthread_cond_wait(&s->more, &fake_lock);
        item *i = s->first;
        if (!i) break;
        s->first = i->next;
        if (!s->first) s->last = &s->first;
        work(s, i);
        free(i);
        if (fake_error()) break; /* what follows is not done, nor looks as if it were */
        s->done++;
        s->held--;
        pthread_cond_broadcast(&fake_progress);
    }
    pthread_mutex_unlock(&fake_lock);
    return NULL;
}

/* The lock is held. */
static CUresult make_stream(CUcontext context, CUstream *made) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE};
    CUstream s = calloc(1, sizeof *s);
    if (!s) return CUDA_ERROR_OUT_OF_MEMORY;
    s->magic = STREAM;
    s->context = context;
    s->last = &s->first;
    s->seed = options.seed * 1000003 + made_streams++;
    pthread_cond_init(&s->more, NULL);
    sigset_t masked, old;
    sigfillset(&masked); /* the program's signals are for its own threads */
    for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&masked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &masked, &old);
    pthread_t thread;
    const int failed = pthread_create(&thread, NULL, stream_main, s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed) {
        free(s);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_setname_np(thread, "fake-cuda");
    pthread_detach(thread);
    s->next = streams;
    streams = s;
    *made = s;
    return CUDA_SUCCESS;
}

/* The context, and the stream that a handle means: 0, 1 and 2 are the context's default one. */
static CUresult enter(CUcontext *context, CUstream *stream) {
    CUresult r = fake_enter(context);
    if (r) return r;
    if ((uintptr_t)*stream <= 2) {
        pthread_mutex_lock(&fake_lock);
        if (!(*context)->stream) r = make_stream(*context, &(*context)->stream);
        *stream = (*context)->stream;
        pthread_mutex_unlock(&fake_lock);
        return r;
    }
    return (*stream)->magic == STREAM && !(*stream)->ending ? CUDA_SUCCESS : ERROR_INVALID_HANDLE;
}

/* The lock is held, and given up while there is no room. */
static CUresult push(CUstream s, const item *what, const void *argument, size_t size) {
    item *i = malloc(sizeof *i + size);
    if (!i) return CUDA_ERROR_OUT_OF_MEMORY;
    *i = *what;
    if (size) memcpy(i->argument, argument, size);
    while (s->held >= options.queue && !fake_error()) pthread_cond_wait(&fake_progress, &fake_lock);
    if (fake_error()) {
        free(i);
        return fake_error();
    }
    *s->last = i;
    s->last = &i->next;
    s->held++;
    s->given++;
    pthread_cond_signal(&s->more);
    return CUDA_SUCCESS;
}

/* The lock is held.  Something that a captured stream cannot do, or may not be asked. */
static CUresult spoil(CUstream s) {
    s->invalid = true;
    return ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult fake_unsafe(void) {
    if (!captures) return CUDA_SUCCESS;
    pthread_mutex_lock(&fake_lock);
    const CUresult r = spoil(captures);
    pthread_mutex_unlock(&fake_lock);
    return r;
}

static CUresult begin_capture(CUstream stream, CUgraph graph, const CUgraphNode *after, size_t n, CUstreamCaptureMode mode) {
    CUcontext c;
    if ((uintptr_t)stream <= 2) return ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUresult r = enter(&c, &stream);
    if (r) return r;
    if (mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) return ERROR_INVALID_VALUE;
    CUgraph into = graph ? graph : fake_new_graph();
    CUgraphNode *tail = calloc(n + 1, sizeof *tail);
    pthread_mutex_lock(&fake_lock);
    if (stream->captured || captures) r = ERROR_ILLEGAL_STATE;
    else if (!into || !tail) r = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_unlock(&fake_lock);
    if (r) {
        if (into && !graph) fake_free_graph(into);
        free(tail);
        return r;
    }
    if (n) memcpy(tail, after, n * sizeof *tail);
    pthread_mutex_lock(&fake_lock);
    free(stream->tail);
    stream->captured = into, stream->borrowed = graph, stream->invalid = false;
    stream->tail = tail, stream->n_tail = n;
    captures = stream;
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    MAY_REFUSE();
    return begin_capture(stream, NULL, NULL, 0, mode);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *after,
                                     const CUgraphEdgeData *edges, size_t n, CUstreamCaptureMode mode) {
    MAY_REFUSE();
    if (!graph || edges || !fake_may_follow(graph, after, n)) return ERROR_INVALID_VALUE;
    return begin_capture(stream, graph, after, n, mode);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                   const CUgraphNode **after, const CUgraphEdgeData **edges, size_t *n) {
    MAY_REFUSE();
    CUcontext c;
    CUresult r = enter(&c, &stream);
    if (r) return r;
    if (!status || id || graph || !after || !edges || !n) return ERROR_INVALID_VALUE; /* nobody asks for these */
    pthread_mutex_lock(&fake_lock);
    *status = !stream->captured ? 0 : stream->invalid ? 2 : 1;
    *after = stream->tail;
    *edges = NULL; /* of no particular kind */
    *n = *status == 1 ? stream->n_tail : 0;
    pthread_mutex_unlock(&fake_lock);
    return r;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    CUcontext c;
    if ((uintptr_t)stream <= 2) return ERROR_ILLEGAL_STATE;
    CUresult r = enter(&c, &stream);
    if (r) return r;
    *graph = NULL;
    pthread_mutex_lock(&fake_lock);
    if (!stream->captured) r = ERROR_ILLEGAL_STATE;
    else if (captures != stream) r = ERROR_STREAM_CAPTURE_WRONG_THREAD;
    else if (stream->invalid) r = ERROR_STREAM_CAPTURE_INVALIDATED;
    else *graph = stream->captured;
    if (captures == stream) {
        if (stream->invalid && !stream->borrowed) fake_free_graph(stream->captured);
        stream->captured = NULL, captures = NULL;
    }
    pthread_mutex_unlock(&fake_lock);
    return r;
}

/* The lock is held. */
static CUresult capture(CUstream s, void (*run)(void *), const void *argument, size_t size, unsigned how) {
    CUgraphNode made;
    const CUresult r = fake_capture(s->captured, s->tail, s->n_tail, &made, run, argument, size, how);
    if (r) return r;
    s->tail[0] = made; /* there is room for one more than there were */
    s->n_tail = 1;
    return r;
}

CUresult fake_enqueue(CUstream stream, void (*run)(void *), const void *argument, size_t size, unsigned how) {
    CUcontext c;
    CUresult r = enter(&c, &stream);
    if (r) return r;
    pthread_mutex_lock(&fake_lock);
    if (stream->captured) {
        r = stream->invalid ? ERROR_STREAM_CAPTURE_INVALIDATED : how & FAKE_WAIT ? spoil(stream)
                            : capture(stream, run, argument, size, how);
        pthread_mutex_unlock(&fake_lock);
        return r;
    }
    r = push(stream, &(item){.run = run, .works = !(how & FAKE_HOST_ONLY)}, argument, size);
    if (!r && how & FAKE_WAIT) r = await(stream, stream->given);
    pthread_mutex_unlock(&fake_lock);
    return r;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags) {
    MAY_REFUSE();
    CUcontext c;
    CUresult r = fake_enter(&c);
    if (r) return r;
    /* One that waits for the default stream would order lanes with what other libraries do there. */
    if (!stream || flags != 1) return ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    r = make_stream(c, stream);
    pthread_mutex_unlock(&fake_lock);
    return r;
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    CUcontext c;
    if ((uintptr_t)stream <= 2) return ERROR_INVALID_HANDLE;
    const CUresult r = enter(&c, &stream);
    if (r) return r;
    pthread_mutex_lock(&fake_lock);
    stream->ending = true; /* after what it holds */
    pthread_cond_signal(&stream->more);
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream) {
    MAY_REFUSE();
    CUcontext c;
    CUresult r = enter(&c, &stream);
    if (r) return r;
    pthread_mutex_lock(&fake_lock);
    if (stream->captured) r = spoil(stream);
    else if (stream->done < stream->given) r = CUDA_ERROR_NOT_READY;
    pthread_mutex_unlock(&fake_lock);
    return r;
}

CUresult cuStreamSynchronize(CUstream stream) {
    CUcontext c;
    CUresult r = enter(&c, &stream);
    if (r) return r;
    pthread_mutex_lock(&fake_lock);
    r = stream->captured ? spoil(stream) : await(stream, stream->given);
    pthread_mutex_unlock(&fake_lock);
    return r;
}

CUresult cuCtxSynchronize(void) {
    CUcontext c;
    CUresult r = fake_enter(&c);
    if (!r) r = fake_unsafe();
    if (r) return r;
    pthread_mutex_lock(&fake_lock);
    for (CUstream s = streams; s && !r; s = s->next)
        if (s->context == c) r = await(s, s->given);
    pthread_mutex_unlock(&fake_lock);
    return r;
}

/* ---- events */

static CUresult enter_event(CUcontext *context, CUevent event) {
    const CUresult r = fake_enter(context);
    if (r) return r;
    return event && event->magic == EVENT ? CUDA_SUCCESS : ERROR_INVALID_HANDLE;
}

CUresult cuEventCreate(CUevent *event, unsigned int flags) {
    CUcontext c;
    const CUresult r = fake_enter(&c);
    if (r) return r;
    if (!event || flags & ~7u) return ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    CUevent made = spare;
    if (made) spare = made->next;
    else made = malloc(sizeof *made);
    pthread_mutex_unlock(&fake_lock);
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    *made = (struct CUevent_st){.magic = EVENT, .timed = !(flags & CU_EVENT_DISABLE_TIMING), .context = c};
    *event = made;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
    CUcontext c;
    const CUresult r = enter_event(&c, event);
    if (r) return r;
    pthread_mutex_lock(&fake_lock);
    event->magic = 0;
    event->next = spare;
    spare = event;
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

static void note_time(void *argument) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    (*(CUevent *)argument)->when = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    CUcontext c;
    CUresult r = enter_event(&c, event);
    if (!r) r = enter(&c, &stream);
    if (r) return r;
    if (event->context != stream->context) return ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&fake_lock);
    if (stream->captured) { /* the real one joins streams so, which nothing here does */
        r = spoil(stream);
        pthread_mutex_unlock(&fake_lock);
        return r;
    }
    if (event->timed) r = push(stream, &(item){.run = note_time}, &event, sizeof event);
    event->stream = stream;
    event->place = stream->given;
    pthread_mutex_unlock(&fake_lock);
    return r;
}

CUresult cuEventQuery(CUevent event) {
    CUcontext c;
    CUresult r = enter_event(&c, event);
    if (r) return r;
    pthread_mutex_lock(&fake_lock);
    if (event->stream && event->stream->done < event->place) r = CUDA_ERROR_NOT_READY;
    pthread_mutex_unlock(&fake_lock);
    return r;
}

CUresult cuEventSynchronize(CUevent event) {
    CUcontext c;
    CUresult r = enter_event(&c, event);
    if (r) return r;
    pthread_mutex_lock(&fake_lock);
    if (event->stream) r = await(event->stream, event->place);
    pthread_mutex_unlock(&fake_lock);
    return r;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    CUcontext c;
    CUresult r = enter_event(&c, start);
    if (!r) r = enter_event(&c, end);
    if (r) return r;
    if (!milliseconds || !start->timed || !end->timed || !start->stream || !end->stream) return ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&fake_lock);
    if (start->stream->done < start->place || end->stream->done < end->place) r = CUDA_ERROR_NOT_READY;
    else *milliseconds = (float)(1e3 * (end->when - start->when));
    pthread_mutex_unlock(&fake_lock);
    return r;
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
    return cuEventElapsedTime(milliseconds, start, end);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
    CUcontext c;
    CUresult r = enter_event(&c, event);
    if (!r) r = enter(&c, &stream);
    if (r) return r;
    if (flags & ~1u) return ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    /* What the event says now; a later record does not change what is waited for. */
    if (stream->captured) r = spoil(stream);
    else if (event->stream && event->stream != stream && event->stream->done < event->place)
        r = push(stream, &(item){.awaited = event->stream, .place = event->place}, NULL, 0);
    pthread_mutex_unlock(&fake_lock);
    return r;
}
