#define _GNU_SOURCE
#include "libraries/nccl/connection.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/failure.h"

enum {
    ID_STEP = 2, UP_STEP = 3, /* of the message that connects; 1 is the vote */
    LOOK_NS = 10000000,       /* so often the watcher looks */
    ASK_EVERY = 10,           /* so many looks, and it asks the library */
    IDLE_NS = 1000000000,
    STOPPING_NS = 1000000000, /* so long a worker that stops waits for the library */
    SPINS = 200, NAP_US = 50,
    LEAVE_US = 100000,        /* so long an abort waits for the lane to leave a call by itself */
    CONNECT_S = 20, CALL_S = 60, /* the longest that the library may be busy connecting, and with a call */
    WINDOWS = 64
};
static const uint64_t ABORT_NS = UINT64_C(5000000000); /* the longest abort */

/* The library fills `handle` while a call is in progress.  The lane's. */
typedef struct {
    void *base; /* NULL: free */
    ncclWindow_t handle;
} window;

struct atomr_nccl_connection {
    const atomr_nccl_table *t;
    atomr_cuda *cuda;
    atomr_worker *worker;
    atomr_page *page;
    unsigned rank, n;
    pthread_mutex_t lock;  /* of whoever is in the library with `base` */
    ncclComm_t base;       /* does not block; connects, and can be aborted at any time */
    pthread_mutex_t calls; /* of whoever is in the library with `comm` */
    ncclComm_t comm;       /* blocks; for calls.  A part of `base` with all ranks, which shares its resources */
    ncclComm_t part;       /* the same, while the library makes it */
    pthread_mutex_t noting; /* for `cause`, and for what breaking changes together */
    atomr_error cause;      /* of the last break */
    /* Before the newest connection; the lane's, which writes them before `number`, when the one before is broken. */
    _Atomic uint32_t deaths[ATOMR_RANKS];
    _Atomic uint64_t number;      /* of the newest connection, from when it is being made */
    _Atomic uint64_t whole;       /* the last connection that all ranks have had */
    _Atomic uint64_t broken;      /* connections up to this one are */
    _Atomic uint64_t sequence;    /* the last message of the lane */
    _Atomic uint64_t abort_began;
    _Atomic int aborting, ending;
    _Atomic uint64_t asked; /* when the lane has asked the library for something */
    _Atomic uint64_t due;   /* when that should be done; 0: the lane has not asked, or it is done */
    window windows[WINDOWS]; /* of the newest connection */
    uint64_t patience[2]; /* ns: connecting, and for a call */
    _Atomic uint32_t bell; /* futex of the watcher */
    pthread_t watcher;
    int watched;
};

const atomr_nccl_table *atomr_nccl_table_of(const atomr_nccl_connection *c) { return c->t; }
atomr_cuda *atomr_nccl_cuda_of(const atomr_nccl_connection *c) { return c->cuda; }
unsigned atomr_nccl_rank_of(const atomr_nccl_connection *c) { return c->rank; }

static const atomr_constant statuses[] = {ATOMR_NCCL_CONSTANTS(ATOMR_CONSTANT) ATOMR_LAST_CONSTANT};

const char *atomr_nccl_name(ncclResult_t status) {
    for (const atomr_constant *s = statuses; strcmp(s->name, "ncclSum") != 0; s++)
        if (s->value == status) return s->name;
    return "unknown status";
}

static void ring(atomr_nccl_connection *c) {
    atomic_fetch_add(&c->bell, 1);
    atomr_futex_wake(&c->bell);
}

static int has_broken(const atomr_nccl_connection *c) { return atomic_load(&c->broken) >= atomic_load(&c->number); }

/* ---- breaking */

/* The lane leaves a call within microseconds, unless it waits there for other ranks. */
static int take_calls(atomr_nccl_connection *c) {
    for (unsigned i = 0; i < LEAVE_US / NAP_US; i++) {
        if (pthread_mutex_trylock(&c->calls) == 0) return 1;
        usleep(NAP_US);
    }
    return 0;
}

/* Whatever an abort says, the communicator is gone.  Both obey one word: a call of `comm` that waits returns when `base`
 * is aborted, and `part` is made by then, or never. */
static void *abort_main(void *argument) {
    atomr_nccl_connection *const c = argument;
    pthread_setname_np(pthread_self(), "atomr-abort");
    atomr_cuda_enter(c->cuda);
    const int taken = take_calls(c);
    pthread_mutex_lock(&c->lock);
    const ncclComm_t base = c->base;
    c->base = NULL;
    if (base) c->t->ncclCommAbort(base);
    pthread_mutex_unlock(&c->lock);
    if (!taken) pthread_mutex_lock(&c->calls);
    const ncclComm_t comm = c->comm ? c->comm : c->part;
    c->comm = c->part = NULL;
    if (comm) c->t->ncclCommAbort(comm);
    pthread_mutex_unlock(&c->calls);
    atomic_store(&c->aborting, 0);
    return NULL;
}

/* Note that connections up to `number` are broken, and only then begin to abort: their work ends with that, and is
 * judged.  `spoils`: it may be cut short. */
static void end_connection(atomr_nccl_connection *c, uint64_t number, const atomr_error *why, int spoils) {
    pthread_t thread;
    pthread_mutex_lock(&c->noting);
    const int first = atomic_load(&c->broken) < number;
    if (first) {
        c->cause = *why;
        if (spoils) atomic_store(&c->page->ranks[c->rank].connection, 0);
        atomic_store(&c->abort_began, atomr_now_ns());
        atomic_store(&c->aborting, 1);
        atomic_store(&c->broken, number);
    }
    pthread_mutex_unlock(&c->noting);
    if (!first) return;
    ring(c);
    if (pthread_create(&thread, NULL, abort_main, c) == 0) pthread_detach(thread);
    else abort_main(c);
}

static void break_up(atomr_nccl_connection *c, uint64_t number, const atomr_error *why) {
    end_connection(c, number, why, 1);
}

/* What broke the connection, as the failure of a message. */
static int fail_as_broken(atomr_nccl_connection *c, atomr_failure *failure) {
    pthread_mutex_lock(&c->noting);
    const atomr_error cause = c->cause;
    pthread_mutex_unlock(&c->noting);
    failure->status = cause.status;
    memcpy(failure->lib, cause.lib, sizeof failure->lib);
    memcpy(failure->name, cause.name, sizeof failure->name);
    memcpy(failure->text, cause.text, sizeof failure->text);
    if (cause.code != ATOMR_OK) return (int)cause.code;
    return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "nccl", ncclInvalidUsage, "ncclInvalidUsage",
                        "the rank has no connection");
}

static void to_error(atomr_error *error, int code, const atomr_failure *failure) {
    memset(error, 0, sizeof *error);
    error->code = (uint32_t)code;
    error->status = failure->status;
    memcpy(error->lib, failure->lib, sizeof error->lib);
    memcpy(error->name, failure->name, sizeof error->name);
    memcpy(error->text, failure->text, sizeof error->text);
}

/* Have the other ranks know that this one does not take part in a message after all. */
static int leave(atomr_nccl_connection *c, uint64_t sequence, int code, const atomr_failure *failure) {
    atomr_page_fail(c->page, c->rank, sequence, failure->lib, failure->status, failure->name, failure->text);
    return code;
}

static int fail_as_stopping(atomr_failure *failure) {
    return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "rank", 0, "stopped", "the worker stops");
}

static int fail_in_library(atomr_nccl_connection *c, ncclResult_t status, const char *what, atomr_failure *failure) {
    const char *const said = c->t->ncclGetLastError(NULL);
    return atomr_failed(failure, ATOMR_LIBRARY_ERROR, "nccl", status, atomr_nccl_name(status), "%s: %s%s%.300s", what,
                        c->t->ncclGetErrorString(status), said && said[0] ? "; " : "", said ? said : "");
}

/* The same, when this rank has found out by itself; the connection is broken. */
static int end_up(atomr_nccl_connection *c, uint64_t sequence, int code, const atomr_failure *failure) {
    atomr_error why;
    to_error(&why, code, failure);
    leave(c, sequence, code, failure);
    break_up(c, atomic_load(&c->number), &why);
    return code;
}

/* ---- patience: ranks that wait for each other inside of the library would wait without end */

static uint64_t patience_of(const char *variable, unsigned otherwise) {
    const char *const given = getenv(variable);
    char *end = NULL;
    const double seconds = given && given[0] ? strtod(given, &end) : 0;
    const int good = end && !*end && seconds > 0 && seconds < 1e6;
    return (uint64_t)((good ? seconds : (double)otherwise) * 1e9);
}

enum { CONNECTING = 0, CALLING = 1 };
static void ask(atomr_nccl_connection *c, int what) {
    const uint64_t now = atomr_now_ns();
    atomic_store(&c->asked, now);
    atomic_store(&c->due, now + c->patience[what]);
}
static void have(atomr_nccl_connection *c) { atomic_store(&c->due, 0); }

/* ---- the watcher */

/* Another rank does not have the connection any more: break this one's. */
static void follow(atomr_nccl_connection *c, uint64_t number) {
    atomr_error why;
    if (atomr_page_examine(c->page, c->rank, number, c->deaths, &why) == ATOMR_UP) {
        atomr_failure lost;
        to_error(&why, atomr_failed(&lost, ATOMR_LIBRARY_ERROR, "nccl", ncclRemoteError, "ncclRemoteError",
                                    "another rank has lost its connection"), &lost);
    }
    break_up(c, number, &why);
}

static void look(atomr_nccl_connection *c, unsigned turn) {
    atomr_error why;
    const uint64_t number = atomic_load(&c->number);
    const int found = atomr_page_examine(c->page, c->rank, number, c->deaths, &why);
    if (found == ATOMR_RANK_DEAD && c->page->restarts)
        atomr_worker_end(c->worker, "another rank has died, and on_death is \"restart\"");
    if (found != ATOMR_UP) {
        break_up(c, number, &why);
        return;
    }
    /* A rank that has failed says so only until it begins another message. */
    if (atomic_load(&c->whole) == number && !atomr_page_all_have(c->page, number)) {
        follow(c, number);
        return;
    }
    if (turn % ASK_EVERY || pthread_mutex_trylock(&c->calls) != 0) return;
    ncclResult_t status = ncclSuccess;
    if (atomic_load(&c->page->ranks[c->rank].connection) == number && c->comm &&
        c->t->ncclCommGetAsyncError(c->comm, &status) != ncclSuccess)
        status = ncclInternalError;
    pthread_mutex_unlock(&c->calls);
    if (status == ncclSuccess || status == ncclInProgress) return;
    atomr_failure failure;
    end_up(c, atomic_load(&c->sequence), fail_in_library(c, status, "an asynchronous error", &failure), &failure);
}

/* The library is overdue: give the connection up, which the other ranks are told of.  A library that does not return to
 * the lane all the same ends the worker, by the abort that waits for it, or here, where there is nothing to abort. */
static void give_up(atomr_nccl_connection *c) {
    if (has_broken(c)) {
        if (!atomic_load(&c->aborting) && atomr_now_ns() > atomic_load(&c->due) + ABORT_NS)
            atomr_worker_end(c->worker, "NCCL does not return from a call");
        return;
    }
    atomr_failure failure;
    int code;
    if (atomic_load(atomr_worker_stopping(c->worker))) {
        code = fail_as_stopping(&failure);
    } else {
        code = atomr_failed(&failure, ATOMR_LIBRARY_ERROR, "nccl", ncclInProgress, "ncclInProgress",
                            "the library has not come to an end with the other ranks in time; the next message "
                            "connects them anew");
        fprintf(stderr, "atomr: rank %u gives up a connection of NCCL, which has been busy for too long\n", c->rank);
    }
    end_up(c, atomic_load(&c->sequence), code, &failure);
}

/* Whether the library is overdue: a worker that stops has little patience. */
static int is_overdue(atomr_nccl_connection *c) {
    const uint64_t due = atomic_load(&c->due), now = atomr_now_ns();
    return due && (now > due || (atomic_load(atomr_worker_stopping(c->worker)) && now > atomic_load(&c->asked) + STOPPING_NS));
}

static void *watch(void *argument) {
    atomr_nccl_connection *const c = argument;
    pthread_setname_np(pthread_self(), "atomr-ranks");
    atomr_cuda_enter(c->cuda);
    for (unsigned turn = 1;; turn++) {
        const uint32_t bell = atomic_load(&c->bell);
        if (atomic_load(&c->ending)) return NULL;
        const int aborting = atomic_load(&c->aborting), up = !has_broken(c);
        if (aborting && atomr_now_ns() - atomic_load(&c->abort_began) > ABORT_NS) {
            atomr_worker_end(c->worker, "an abort of NCCL takes more than 5 s");
            return NULL;
        }
        if (up) look(c, turn);
        if (is_overdue(c)) give_up(c);
        atomr_futex_wait(&c->bell, bell, aborting || up || atomic_load(&c->due) ? LOOK_NS : IDLE_NS);
    }
}

/* ---- life */

atomr_nccl_connection *atomr_nccl_connection_new(atomr_cuda *cuda, atomr_worker *worker, atomr_page *page,
                                                 unsigned rank, int *code, atomr_failure *failure) {
    char why[sizeof failure->text];
    const atomr_nccl_table *const t = atomr_nccl_load(NULL, why, sizeof why);
    if (!t) {
        *code = atomr_refused(failure, ATOMR_UNSUPPORTED, "%s", why);
        return NULL;
    }
    atomr_nccl_connection *const c = calloc(1, sizeof *c);
    if (!c) {
        *code = atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "no host memory for a connection of NCCL");
        return NULL;
    }
    c->t = t;
    c->cuda = cuda;
    c->worker = worker;
    c->page = page;
    c->rank = rank;
    c->n = page->n_ranks;
    c->patience[CONNECTING] = patience_of("ATOMR_NATIVE_NCCL_CONNECT_S", CONNECT_S);
    c->patience[CALLING] = patience_of("ATOMR_NATIVE_NCCL_CALL_S", CALL_S);
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->calls, NULL);
    pthread_mutex_init(&c->noting, NULL);
    c->watched = pthread_create(&c->watcher, NULL, watch, c) == 0;
    if (!c->watched) {
        *code = atomr_refused(failure, ATOMR_OUT_OF_MEMORY, "no thread for a connection of NCCL");
        free(c);
        return NULL;
    }
    *code = ATOMR_OK;
    return c;
}

void atomr_nccl_connection_end(atomr_nccl_connection *c) {
    if (!c->watched) return;
    c->watched = 0;
    atomic_store(&c->ending, 1);
    ring(c);
    pthread_join(c->watcher, NULL);
    const uint64_t number = atomic_load(&c->number);
    if (!has_broken(c)) {
        atomr_failure failure;
        atomr_error why;
        to_error(&why, fail_as_stopping(&failure), &failure);
        end_connection(c, number, &why, 0); /* all of its work is done: what others got of it is good */
    }
    while (atomic_load(&c->aborting) && atomr_now_ns() - atomic_load(&c->abort_began) <= ABORT_NS) usleep(NAP_US);
}

void atomr_nccl_connection_delete(atomr_nccl_connection *c) {
    if (!c) return;
    atomr_nccl_connection_end(c);
    if (atomic_load(&c->aborting)) return; /* an abort that hangs has it */
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->calls);
    pthread_mutex_destroy(&c->noting);
    free(c);
}

/* ---- the lane */

/* Wait until the library has done what it was asked for: `comm`, which `lock` guards. */
static int await_library(atomr_nccl_connection *c, ncclComm_t *comm, pthread_mutex_t *lock, uint64_t sequence,
                         ncclResult_t status, const char *what, atomr_failure *failure) {
    const _Atomic int *const stopping = atomr_worker_stopping(c->worker);
    for (unsigned i = 0; status == ncclInProgress; i++) {
        if (has_broken(c)) return leave(c, sequence, fail_as_broken(c, failure), failure);
        if (atomic_load(stopping)) return end_up(c, sequence, fail_as_stopping(failure), failure);
        pthread_mutex_lock(lock);
        if (*comm && c->t->ncclCommGetAsyncError(*comm, &status) != ncclSuccess) status = ncclInternalError;
        pthread_mutex_unlock(lock);
        if (status != ncclInProgress) break;
        if (i < SPINS) sched_yield();
        else usleep(NAP_US);
    }
    if (has_broken(c)) return leave(c, sequence, fail_as_broken(c, failure), failure);
    return status == ncclSuccess ? ATOMR_OK : end_up(c, sequence, fail_in_library(c, status, what, failure), failure);
}

/* A wait for other ranks that did not end well; they know by themselves. */
static int fail_alone(int met, const atomr_error *why, atomr_failure *failure) {
    if (met == ATOMR_LEFT) return fail_as_stopping(failure);
    failure->status = why->status;
    memcpy(failure->lib, why->lib, sizeof failure->lib);
    memcpy(failure->name, why->name, sizeof failure->name);
    memcpy(failure->text, why->text, sizeof failure->text);
    return (int)why->code;
}

/* Let go of the connection that is there, and wait until it is aborted; the watcher sees to it that this ends. */
static int let_go(atomr_nccl_connection *c, uint64_t sequence, atomr_failure *failure) {
    if (!has_broken(c)) follow(c, atomic_load(&c->number));
    while (atomic_load(&c->aborting)) {
        if (atomic_load(atomr_worker_stopping(c->worker))) return leave(c, sequence, fail_as_stopping(failure), failure);
        usleep(NAP_US);
    }
    return ATOMR_OK;
}

static atomr_nccl_config config_of(const atomr_nccl_connection *c, int blocking, int shares) {
    atomr_nccl_config config = {ATOMR_NCCL_CONFIG_BYTES, (unsigned)ATOMR_NCCL_MAGIC, ATOMR_NCCL_VERSION, blocking,
                                NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NULL, shares,
                                NCCL_CONFIG_UNDEF_INT, NULL, NCCL_CONFIG_UNDEF_INT, NCCL_CTA_POLICY_ZERO,
                                NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT};
    int version = 0;
    if (c->page->engines && c->t->ncclGetVersion(&version) == ncclSuccess && version >= ATOMR_NCCL_ENGINES) {
        config.size = sizeof config;
        config.version = ATOMR_NCCL_POLICIES;
    }
    return config;
}

static ncclResult_t start(atomr_nccl_connection *c, const ncclUniqueId *id) {
    atomr_nccl_config config = config_of(c, 0, 1);
    ncclComm_t base = NULL;
    pthread_mutex_lock(&c->lock);
    const ncclResult_t status = c->t->ncclCommInitRankConfig(&base, (int)c->n, *id, (int)c->rank, &config);
    c->base = base; /* also after an error: then it may have to be aborted */
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* Make the communicator for calls: one that does not block starts a thread for each of them, from NCCL 2.22 on. */
static ncclResult_t divide(atomr_nccl_connection *c) {
    atomr_nccl_config config = config_of(c, 1, 0);
    ncclResult_t status = ncclInvalidUsage;
    pthread_mutex_lock(&c->lock);
    if (c->base) status = c->t->ncclCommSplit(c->base, 0, (int)c->rank, &c->part, &config);
    pthread_mutex_unlock(&c->lock);
    return status == ncclSuccess ? ncclInProgress : status; /* 2.28.9 says so at once: `base` knows better */
}

static int connect_ranks(atomr_nccl_connection *c, uint64_t sequence, const ncclUniqueId *id, atomr_failure *failure) {
    int code = await_library(c, &c->base, &c->lock, sequence, start(c, id), "ncclCommInitRankConfig", failure);
    if (code == ATOMR_OK)
        code = await_library(c, &c->base, &c->lock, sequence, divide(c), "ncclCommSplit", failure);
    if (code != ATOMR_OK) return code;
    pthread_mutex_lock(&c->calls);
    c->comm = c->part;
    c->part = NULL;
    pthread_mutex_unlock(&c->calls);
    return code;
}

static int make(atomr_nccl_connection *c, uint64_t sequence, atomr_failure *failure) {
    const _Atomic int *const stopping = atomr_worker_stopping(c->worker);
    atomr_error why;
    ncclUniqueId id;
    int code = let_go(c, sequence, failure);
    if (code != ATOMR_OK) return code;
    const CUresult r = atomr_cuda_enter(c->cuda);
    if (r != CUDA_SUCCESS)
        return leave(c, sequence, atomr_failed(failure, ATOMR_LIBRARY_ERROR, "cuda", r, "CUDA_ERROR", "entering the context"),
                     failure);
    memset(c->windows, 0, sizeof c->windows); /* they ended with the connection before */
    /* Before the first step: who dies after its last one is missed in a later one, or counted here. */
    atomr_page_count_deaths(c->page, c->deaths);
    if (c->rank == 0) {
        ask(c, CONNECTING);
        const ncclResult_t status = c->t->ncclGetUniqueId(&id);
        have(c);
        if (status != ncclSuccess)
            return leave(c, sequence, fail_in_library(c, status, "ncclGetUniqueId", failure), failure);
        memcpy(c->page->ranks[0].id, id.internal, sizeof id.internal);
    }
    int met = atomr_page_meet(c->page, c->rank, sequence, ID_STEP, stopping, &why);
    if (met != ATOMR_MET) return fail_alone(met, &why, failure);
    memcpy(id.internal, c->page->ranks[0].id, sizeof id.internal);
    atomic_store(&c->number, sequence);
    ask(c, CONNECTING);
    ring(c);
    code = connect_ranks(c, sequence, &id, failure);
    have(c);
    if (code != ATOMR_OK) return code;
    /* Before the last step: who judges a message looks whether all ranks have the connection that it was launched by. */
    pthread_mutex_lock(&c->noting);
    const int whole = !has_broken(c);
    if (whole) atomic_store(&c->page->ranks[c->rank].connection, sequence);
    pthread_mutex_unlock(&c->noting);
    if (!whole) return leave(c, sequence, fail_as_broken(c, failure), failure);
    met = atomr_page_meet(c->page, c->rank, sequence, UP_STEP, stopping, &why);
    if (met != ATOMR_MET) {
        code = fail_alone(met, &why, failure);
        to_error(&why, code, failure);
        break_up(c, sequence, &why);
        return code;
    }
    atomic_store(&c->whole, sequence);
    return has_broken(c) ? leave(c, sequence, fail_as_broken(c, failure), failure) : ATOMR_OK;
}

int atomr_nccl_connect(atomr_nccl_connection *c, uint64_t sequence, atomr_failure *failure) {
    const uint64_t all = atomr_page_connection(c->page, sequence);
    atomic_store(&c->sequence, sequence);
    if (!all && atomic_load(&c->number) != sequence) return make(c, sequence, failure);
    if (!all) return has_broken(c) ? leave(c, sequence, fail_as_broken(c, failure), failure) : ATOMR_OK; /* just made */
    /* The others go on with it.  Should it have broken since the vote, they find that out as well. */
    if (all != atomic_load(&c->number) || has_broken(c)) return leave(c, sequence, fail_as_broken(c, failure), failure);
    return ATOMR_OK;
}

int atomr_nccl_has_met(const atomr_nccl_connection *c, uint64_t sequence) {
    return atomr_page_connection(c->page, sequence) != 0;
}

int atomr_nccl_begin(atomr_nccl_connection *c, uint64_t sequence, ncclComm_t *comm, atomr_failure *failure) {
    pthread_mutex_lock(&c->calls);
    *comm = c->comm;
    if (!has_broken(c) && *comm) {
        ask(c, CALLING);
        return ATOMR_OK;
    }
    pthread_mutex_unlock(&c->calls);
    return leave(c, sequence, fail_as_broken(c, failure), failure);
}

int atomr_nccl_end(atomr_nccl_connection *c, uint64_t sequence, ncclResult_t status, const char *what,
                   atomr_failure *failure) {
    pthread_mutex_unlock(&c->calls);
    const int code = await_library(c, &c->comm, &c->calls, sequence, status, what, failure);
    have(c);
    return code;
}

/* ---- windows */

static window *window_at(atomr_nccl_connection *c, const void *base) {
    for (unsigned i = 0; i < WINDOWS; i++)
        if (c->windows[i].base == base) return &c->windows[i];
    return NULL;
}

ncclResult_t atomr_nccl_open_window(atomr_nccl_connection *c, ncclComm_t comm, void *base, size_t nbytes) {
    if (!c->t->ncclCommWindowRegister || window_at(c, base)) return ncclSuccess;
    window *const made = window_at(c, NULL);
    if (!made) return ncclInvalidUsage;
    *made = (window){base, NULL};
    return c->t->ncclCommWindowRegister(comm, base, nbytes, &made->handle, NCCL_WIN_COLL_SYMMETRIC);
}

ncclResult_t atomr_nccl_close_window(atomr_nccl_connection *c, ncclComm_t comm, const void *base) {
    window *const found = window_at(c, base);
    if (!found) return ncclSuccess;
    const ncclWindow_t handle = found->handle;
    *found = (window){NULL, NULL};
    return c->t->ncclCommWindowDeregister ? c->t->ncclCommWindowDeregister(comm, handle) : ncclSuccess;
}

/* ---- outcomes */

/* A rank notes that its connection is broken, and only then aborts: what an abort has cut short may have been passed on by
 * the messages behind it, to ranks that complete them.  So they hold data if no rank has noted that by now. */
static int judge(void *context, const _Atomic int32_t *info, atomr_failure *failure) {
    atomr_nccl_connection *const c = context;
    const uint64_t low = (uint32_t)atomic_load(&info[0]), number = (uint64_t)(uint32_t)atomic_load(&info[1]) << 32 | low;
    if (atomic_load(&c->broken) < number && atomr_page_all_have(c->page, number)) return ATOMR_OK;
    if (atomic_load(&c->broken) < number) follow(c, number);
    return fail_as_broken(c, failure);
}

void atomr_nccl_judge_late(atomr_nccl_connection *c, const atomr_call *call) {
    const uint64_t number = atomic_load(&c->number);
    atomic_store(&call->info[0], (int32_t)(uint32_t)number);
    atomic_store(&call->info[1], (int32_t)(uint32_t)(number >> 32));
    *call->late = (atomr_late){judge, c, (uint32_t)call->scalars[ATOMR_KEY_MEETING] + 1};
}
