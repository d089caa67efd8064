#define _GNU_SOURCE
#include "runtime/host_copy.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/shm.h"

enum {
    PAGE = 4096,
    LARGE_PAGE = 2 << 20,
    PIECE_MIN = 128 << 10,
    PIECE_MAX = 1 << 20,
    ROUNDS = 2,          /* pieces for each thread, so that a slow one holds nobody up for long */
    SPIN_NS = 50000,     /* the next job of a pipeline comes so soon */
    STACK = 256 << 10
};

/* The threads of this process and what they have to do. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t work, finished;
    atomr_copy *first, *last;  /* jobs with pieces that nobody has taken */
    int helpers, started;      /* wanted, -1: not decided yet; running */
    uint32_t sleeping, waiting;
    uint32_t era;
    int prepared;              /* the fork handler is registered */
    _Atomic uint32_t posted;   /* bumped with every job */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER, .finished = PTHREAD_COND_INITIALIZER,
          .helpers = -1};

/* Only the forking thread lives on in the child, and the lock may have been somebody else's. */
static void forget_threads(void) {
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.work, NULL);
    pthread_cond_init(&pool.finished, NULL);
    pool.first = pool.last = NULL;
    pool.started = 0;
    pool.sleeping = pool.waiting = 0;
    pool.era++;
}

static int decide_helpers(void) {
    const int cores = atomr_processors();
    return cores / 2 < 1 ? 1 : cores / 2 > 8 ? 8 : cores / 2;
}

static int helpers_locked(void) {
    if (pool.helpers < 0) pool.helpers = decide_helpers();
    return pool.helpers;
}

int atomr_copy_helpers(void) {
    pthread_mutex_lock(&pool.lock);
    const int n = helpers_locked();
    pthread_mutex_unlock(&pool.lock);
    return n;
}

void atomr_copy_set_helpers(int n) {
    pthread_mutex_lock(&pool.lock);
    pool.helpers = n < 0 ? 0 : n > ATOMR_COPY_MAX_HELPERS ? ATOMR_COPY_MAX_HELPERS : n;
    pthread_mutex_unlock(&pool.lock);
}

/* Whether a page that is written first may come with the megabytes around it, so that making pages beforehand
 * would only go through the memory once more. */
static int large_pages(void) {
    static _Atomic int known; /* 1: no, 2: yes */
    int found = atomic_load_explicit(&known, memory_order_relaxed);
    if (found == 0) {
        char text[64] = "";
        FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
        if (file && !fgets(text, sizeof text, file)) text[0] = 0;
        if (file) fclose(file);
        found = text[0] && !strstr(text, "[never]") ? 2 : 1;
        atomic_store_explicit(&known, found, memory_order_relaxed);
    }
    return found == 2;
}

static void make_pages(char *start, uint64_t nbytes) {
    const uint64_t skew = -(uintptr_t)start & (PAGE - 1); /* whole pages only */
    if (nbytes > skew + PAGE) atomr_populate(start + skew, (nbytes - skew) & ~(uint64_t)(PAGE - 1), 1);
}

static void run_piece(const atomr_copy *job, uint32_t i) {
    const uint64_t from = i ? i * job->piece - job->skew : 0;
    const uint64_t end = (i + 1) * job->piece - job->skew;
    const uint64_t n = (end < job->nbytes ? end : job->nbytes) - from;
    if (job->kind == ATOMR_COPY_TOUCH || (job->kind == ATOMR_COPY_FRESH && !large_pages()))
        make_pages(job->dst + from, n);
    if (job->kind == ATOMR_COPY || job->kind == ATOMR_COPY_FRESH) memcpy(job->dst + from, job->src + from, n);
    else if (job->kind == ATOMR_COPY_ZERO) memset(job->dst + from, 0, n);
}

/* With the lock held: the next piece of a job, which leaves the queue with its last one. */
static uint32_t take(atomr_copy *job) {
    const uint32_t i = job->taken++;
    if (job->taken == job->pieces) {
        atomr_copy **at = &pool.first, *before = NULL;
        while (*at != job) {
            before = *at;
            at = &before->next;
        }
        *at = job->next;
        if (pool.last == job) pool.last = before;
    }
    return i;
}

/* With the lock held, on return too.  After the last piece the job may be gone. */
static void work_on(atomr_copy *job) {
    const uint32_t i = take(job);
    pthread_mutex_unlock(&pool.lock);
    run_piece(job, i);
    pthread_mutex_lock(&pool.lock);
    const uint32_t left = atomic_fetch_sub_explicit(&job->left, 1, memory_order_acq_rel);
    if (left == 1 && pool.waiting) pthread_cond_broadcast(&pool.finished);
}

/* Without the lock: wait a little for the next job. */
static void await_post(uint32_t seen) {
    const uint64_t end = atomr_now_ns() + SPIN_NS;
    for (unsigned i = 1; atomic_load_explicit(&pool.posted, memory_order_relaxed) == seen; i++) {
        atomr_pause();
        if (i % 64) continue;
        if (atomr_now_ns() >= end) return;
        sched_yield(); /* whoever is about to post may need this very processor */
    }
}

static void *help(void *argument) {
    const int index = (int)(intptr_t)argument;
    pthread_setname_np(pthread_self(), "atomr-copy");
    int spun = 0;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        const int wanted = index < pool.helpers;
        if (wanted && pool.first) {
            work_on(pool.first);
            spun = 0;
        } else if (wanted && !spun) {
            const uint32_t seen = atomic_load_explicit(&pool.posted, memory_order_relaxed);
            pthread_mutex_unlock(&pool.lock);
            await_post(seen);
            spun = 1;
            pthread_mutex_lock(&pool.lock);
        } else {
            pool.sleeping++;
            pthread_cond_wait(&pool.work, &pool.lock);
            pool.sleeping--;
            spun = 0;
        }
    }
    return NULL;
}

/* With the lock held.  Where no thread can be made, there are fewer. */
static void start_helpers(void) {
    const int wanted = helpers_locked();
    if (pool.started >= wanted) return;
    if (!pool.prepared) pool.prepared = pthread_atfork(NULL, NULL, forget_threads) == 0;
    sigset_t all, old;
    pthread_attr_t attributes;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are for the program's own threads */
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK);
    while (pool.prepared && pool.started < wanted) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, help, (void *)(intptr_t)pool.started) != 0) break;
        pool.started++;
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void cut(atomr_copy *job, int threads) {
    uint64_t align = PAGE, piece = job->nbytes / ((uint64_t)threads * ROUNDS);
    if (piece < PIECE_MIN) piece = PIECE_MIN;
    if (piece > PIECE_MAX) piece = PIECE_MAX;
    if ((job->kind == ATOMR_COPY_FRESH || job->kind == ATOMR_COPY_TOUCH) && job->nbytes >= LARGE_PAGE) {
        /* Two threads that meet in a page which is not there would both make and clear it. */
        align = piece = LARGE_PAGE;
    }
    job->piece = (piece + align - 1) & ~(align - 1);
    job->skew = (uintptr_t)job->dst & (align - 1);
    job->pieces = (uint32_t)((job->nbytes + job->skew + job->piece - 1) / job->piece);
}

void atomr_copy_start(atomr_copy *job, enum atomr_copy_kind kind, void *dst, const void *src, uint64_t nbytes) {
    *job = (atomr_copy){.dst = dst, .src = src, .nbytes = nbytes, .kind = kind};
    if (nbytes == 0) return;
    pthread_mutex_lock(&pool.lock);
    if (nbytes <= ATOMR_COPY_ALONE || helpers_locked() == 0) {
        pthread_mutex_unlock(&pool.lock);
        job->piece = nbytes;
        run_piece(job, 0);
        return;
    }
    cut(job, pool.helpers + 1);
    start_helpers();
    job->era = pool.era;
    atomic_store_explicit(&job->left, job->pieces, memory_order_relaxed);
    if (pool.last) pool.last->next = job;
    else pool.first = job;
    pool.last = job;
    atomic_fetch_add_explicit(&pool.posted, 1, memory_order_relaxed);
    if (pool.sleeping) pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.lock);
}

int atomr_copy_done(const atomr_copy *job) {
    return atomic_load_explicit(&job->left, memory_order_acquire) == 0;
}

int atomr_copy_finish(atomr_copy *job) {
    if (atomr_copy_done(job)) return 0;
    pthread_mutex_lock(&pool.lock);
    if (job->era != pool.era) {
        pthread_mutex_unlock(&pool.lock);
        return -1;
    }
    while (job->taken < job->pieces) work_on(job);
    if (!atomr_copy_done(job)) {
        pthread_mutex_unlock(&pool.lock);
        const uint64_t end = atomr_now_ns() + SPIN_NS;
        for (unsigned i = 1; !atomr_copy_done(job); i++) {
            atomr_pause();
            if (i % 64) continue;
            if (atomr_now_ns() >= end) break;
            sched_yield();
        }
        pthread_mutex_lock(&pool.lock);
        pool.waiting++;
        while (!atomr_copy_done(job)) pthread_cond_wait(&pool.finished, &pool.lock);
        pool.waiting--;
    }
    pthread_mutex_unlock(&pool.lock);
    return 0;
}
