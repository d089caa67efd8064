/* A device for the native tests: it completes work by itself, late, and in any order that streams allow.
 *
 * Every lane is a stream: a queue of work, of waits for marks of other streams, of marks, and of writes of
 * completion values.  Its threads take the streams in random order and dawdle.  So whatever the lanes fail
 * to order by `depend` happens in a wrong order sooner or later, and ThreadSanitizer sees a race.
 *
 * It can fault, as a real one does: nothing that is enqueued is done any more, and every call says so.
 */
#ifndef ATOMR_TESTS_FAKE_GPU_H
#define ATOMR_TESTS_FAKE_GPU_H

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "check.h"
#include "runtime/lane_core.h"

typedef struct fake_gpu fake_gpu;
typedef void (*fake_work)(fake_gpu *, const atomr_call *);

enum fake_kind { FAKE_WORK, FAKE_WAIT, FAKE_MARK, FAKE_SIGNAL };

typedef struct fake_item {
    struct fake_item *next;
    enum fake_kind kind;
    unsigned other;                /* FAKE_WAIT */
    uint64_t ticket;               /* FAKE_WAIT, FAKE_MARK, FAKE_SIGNAL */
    _Atomic uint64_t *completed;   /* FAKE_SIGNAL */
    fake_work work;                /* FAKE_WORK */
    atomr_call call;
    void *pointers[ATOMR_MESSAGE_OPERANDS];
    uint64_t scalars[ATOMR_MAX_SCALARS];
} fake_item;

typedef struct {
    fake_item *first, *last;
    int busy;                       /* a thread is at its first item */
    uint64_t launched, done, value; /* marks enqueued and reached; the last completion value */
} fake_stream;

enum { FAKE_THREADS = 2 };

struct fake_gpu {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t threads[FAKE_THREADS];
    fake_stream streams[ATOMR_LANES];
    int ending, dawdle;       /* dawdle: one item in so many is slow; 0: none */
    int held;                 /* a test stops all streams */
    int fault;                /* 0, or what every call returns from now on */
    int quiet;                /* the fault is met by work and by a probe, but no look finds it */
    uint64_t random, signals; /* signals: completion values enqueued */
    uint64_t late;            /* calls that came after one had returned the fault to that lane */
    unsigned told[ATOMR_LANES];
};

static inline int fake_push(fake_gpu *g, unsigned lane, fake_item *item) {
    pthread_mutex_lock(&g->lock);
    const int fault = g->fault;
    if (fault) {
        g->late += g->told[lane]++ > 0;
        pthread_mutex_unlock(&g->lock);
        free(item);
        return fault;
    }
    fake_stream *s = &g->streams[lane];
    item->next = NULL;
    if (s->last) s->last->next = item;
    else s->first = item;
    s->last = item;
    if (item->kind == FAKE_MARK) {
        CHECK(item->ticket > s->launched);
        s->launched = item->ticket;
    }
    if (item->kind == FAKE_WAIT) CHECK(g->streams[item->other].launched >= item->ticket); /* else: a deadlock */
    g->signals += item->kind == FAKE_SIGNAL;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    return 0;
}

static inline fake_item *fake_new(enum fake_kind kind, uint64_t ticket) {
    fake_item *item = calloc(1, sizeof *item);
    CHECK(item != NULL);
    item->kind = kind;
    item->ticket = ticket;
    return item;
}

static inline int fake_depend(void *self, unsigned lane, unsigned other, uint64_t ticket) {
    fake_item *item = fake_new(FAKE_WAIT, ticket);
    item->other = other;
    return fake_push(self, lane, item);
}

static inline int fake_launched(void *self, unsigned lane, uint64_t ticket) {
    return fake_push(self, lane, fake_new(FAKE_MARK, ticket));
}

static inline int fake_signal(void *self, unsigned lane, uint64_t ticket, _Atomic uint64_t *completed) {
    fake_item *item = fake_new(FAKE_SIGNAL, ticket);
    item->completed = completed;
    return fake_push(self, lane, item);
}

static inline int fake_wait(void *self, unsigned lane, uint64_t ticket, int64_t timeout_ns) {
    fake_gpu *g = self;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += timeout_ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&g->lock);
    while (g->streams[lane].done < ticket && !g->fault)
        if (pthread_cond_timedwait(&g->changed, &g->lock, &until) == ETIMEDOUT) break;
    pthread_mutex_unlock(&g->lock);
    return 0;
}

static inline int fake_check(void *self) {
    fake_gpu *g = self;
    pthread_mutex_lock(&g->lock);
    const int fault = g->fault;
    pthread_mutex_unlock(&g->lock);
    return fault;
}

static inline void fake_explain(void *self, atomr_device_error *e) {
    e->code = fake_check(self);
    snprintf(e->lib, sizeof e->lib, "fake");
    snprintf(e->name, sizeof e->name, "FAKE_ERROR_%d", e->code);
    snprintf(e->text, sizeof e->text, "the fake has faulted");
}

static inline int fake_at_work(const fake_gpu *g) {
    for (unsigned i = 0; i < ATOMR_LANES; i++)
        if (g->streams[i].busy) return 1;
    return 0;
}

/* From now on nothing is done, and everything says `code`; what was enqueued is gone.  Waits for the work that has
 * begun, which may write to memory that its worker is about to release. */
static inline void fake_fault(fake_gpu *g, int code) {
    pthread_mutex_lock(&g->lock);
    g->fault = code;
    for (unsigned i = 0; i < ATOMR_LANES; i++) {
        fake_stream *s = &g->streams[i];
        fake_item *rest = s->busy ? s->first->next : s->first;
        if (s->busy) s->first->next = NULL, s->last = s->first;
        else s->first = s->last = NULL;
        while (rest) {
            fake_item *next = rest->next;
            free(rest);
            rest = next;
        }
    }
    pthread_cond_broadcast(&g->changed);
    while (fake_at_work(g)) pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

/* The stream's first item can be done now. */
static inline int fake_ready(const fake_gpu *g, const fake_stream *s) {
    if (!s->first || s->busy) return 0;
    return s->first->kind != FAKE_WAIT || g->streams[s->first->other].done >= s->first->ticket;
}

static inline fake_stream *fake_choose(fake_gpu *g) {
    if (g->held) return NULL;
    const unsigned from = (unsigned)(check_random(&g->random) % ATOMR_LANES);
    for (unsigned i = 0; i < ATOMR_LANES; i++) {
        fake_stream *s = &g->streams[(from + i) % ATOMR_LANES];
        if (fake_ready(g, s)) return s;
    }
    return NULL;
}

static inline void *fake_main(void *argument) {
    fake_gpu *g = argument;
    pthread_mutex_lock(&g->lock);
    for (;;) {
        fake_stream *s = fake_choose(g);
        if (!s) {
            if (g->ending) break;
            pthread_cond_wait(&g->changed, &g->lock);
            continue;
        }
        fake_item *item = s->first;
        const int slow = g->dawdle && check_random(&g->random) % (unsigned)g->dawdle == 0;
        s->busy = 1;
        pthread_mutex_unlock(&g->lock);
        if (slow) usleep(20);
        if (item->kind == FAKE_WORK) item->work(g, &item->call);
        pthread_mutex_lock(&g->lock);
        if (item->kind == FAKE_MARK && !g->fault) s->done = item->ticket;
        if (item->kind == FAKE_SIGNAL && !g->fault) {
            CHECK(item->ticket > s->value);
            s->value = item->ticket;
            atomic_store(item->completed, item->ticket);
        }
        s->first = item->next;
        if (!s->first) s->last = NULL;
        s->busy = 0;
        free(item);
        pthread_cond_broadcast(&g->changed);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

/* Enqueue work on the stream of a lane: for the runs of plans.  Returns 0, or the fault of the device. */
static inline int fake_enqueue(fake_gpu *g, fake_work work, const atomr_call *call) {
    fake_item *item = fake_new(FAKE_WORK, 0);
    item->work = work;
    item->call = *call;
    memcpy(item->pointers, call->pointers, call->n_operands * sizeof *item->pointers);
    memcpy(item->scalars, call->scalars, call->n_scalars * sizeof *item->scalars);
    item->call.pointers = item->pointers;
    item->call.scalars = item->scalars;
    return fake_push(g, call->lane, item);
}

static inline void fake_hold(fake_gpu *g, int held) {
    pthread_mutex_lock(&g->lock);
    g->held = held;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static inline uint64_t fake_signals(fake_gpu *g) {
    pthread_mutex_lock(&g->lock);
    const uint64_t n = g->signals;
    pthread_mutex_unlock(&g->lock);
    return n;
}

static inline fake_gpu *fake_open(uint64_t seed, int dawdle) {
    fake_gpu *g = calloc(1, sizeof *g);
    CHECK(g != NULL);
    g->random = seed | 1;
    g->dawdle = dawdle;
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    for (int i = 0; i < FAKE_THREADS; i++) CHECK(pthread_create(&g->threads[i], NULL, fake_main, g) == 0);
    return g;
}

/* After its worker has stopped: all streams are empty then. */
static inline void fake_close(fake_gpu *g) {
    pthread_mutex_lock(&g->lock);
    g->ending = 1;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    for (int i = 0; i < FAKE_THREADS; i++) pthread_join(g->threads[i], NULL);
    for (int i = 0; i < ATOMR_LANES; i++) CHECK(g->streams[i].first == NULL);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

static inline int fake_look(void *self) { return ((fake_gpu *)self)->quiet ? 0 : fake_check(self); }

static inline atomr_backend fake_backend(fake_gpu *g) {
    return (atomr_backend){.self = g,
                           .asynchronous = 1,
                           .depend = fake_depend,
                           .launched = fake_launched,
                           .signal = fake_signal,
                           .wait = fake_wait,
                           .check = fake_look,
                           .probe = fake_check,
                           .explain = fake_explain};
}

#endif
