/* The worker's half of the runtime: lanes (one thread and one mailbox each), the completer, poison.
 *
 * No Python here.  What an operation does is behind `atomr_run`; how work completes is behind
 * `atomr_backend`, so that the same code serves the host (synchronous), a fake GPU in the native
 * tests (asynchronous) and CUDA.
 *
 * Life of a message in a lane: wait for its cells, wait until every dependency has been launched,
 * refuse it if it is stale or an operand is poisoned, publish `claimed`, run, publish completion.
 */
#ifndef ATOMR_LANE_CORE_H
#define ATOMR_LANE_CORE_H

#include <pthread.h>

#include "runtime/meeting.h"
#include "runtime/shm.h"

/* What a failed run says of itself. */
typedef struct {
    int32_t status;
    char lib[16], name[64];
    char text[sizeof(((atomr_error *)0)->text)];
} atomr_failure;

enum { ATOMR_UNDECIDED = -1 };

/* How a run fails after it has returned, when its work is done: see late.c. */
typedef struct {
    /* Judge the info words that the work has written, ATOMR_INFO_WORDS or fewer.  Returns an atomr_code, or UNDECIDED: the
     * message is not complete, ask again soon.  In a thread of the worker: no waiting, no call of the device.  NULL: the run's return value is final. */
    int (*judge)(void *context, const _Atomic int32_t *info, atomr_failure *);
    void *context; /* lives as long as the plan */
    /* Nonzero: it fails only if the ranks of this communicator, by its number from 1, lose their connection: then all that
     * they launched by it fails on all of them, unless it was judged before. */
    uint32_t meeting;
} atomr_late;

/* What a run leaves for its lane to do when its message is on its way: work of the host, before the lane's next message.
 * Its context lives until then. */
typedef struct {
    void (*run)(void *context);
    void *context;
} atomr_after;

typedef struct {
    unsigned lane, n_operands, n_scalars;
    uint64_t ticket;
    void *const *pointers;   /* n_operands addresses */
    const uint64_t *scalars; /* n_scalars words: float64 bits or int64 */
    void *workspace;         /* scratch memory of the lane: its messages use it one after the other */
    uint64_t workspace_bytes;
    int *prompt; /* a run that enqueues long work sets it: the end of that is signalled by itself */
    /* A run whose work may fail late sets `late`, and enqueues a write of its info words to `info`. */
    atomr_late *late;
    _Atomic int32_t *info;
    atomr_after *after; /* a run may set it; NULL: it cannot */
    /* A run that may fail late sets it: for other lanes, its message is launched only when its outcome is known.  The lane's
     * next messages of the same plan are launched meanwhile, and no others. */
    int *holds;
} atomr_call;

/* Enqueue (or, on a synchronous backend, do) the work.  Returns an atomr_code. */
typedef int (*atomr_run)(void *context, const atomr_call *call, atomr_failure *failure);

/* An error after which nothing in this process can use the device. */
typedef struct {
    int32_t code;
    char lib[16], name[64], text[200];
} atomr_device_error;

/* All but `check`, `probe` and `explain` return 0, or what a fault of the device looks like: see `atomr_worker_fault`. */
typedef struct {
    void *self;
    /* Zero: a run has finished when it returns, and the functions below are not called. */
    int asynchronous;
    /* Later work of `lane` waits for all that `other` had launched up to `ticket`. */
    int (*depend)(void *self, unsigned lane, unsigned other, uint64_t ticket);
    /* Mark a point after the work of `ticket`, for `depend`. */
    int (*launched)(void *self, unsigned lane, uint64_t ticket);
    /* Enqueue a write of `ticket` to `completed`, after all earlier work of the lane. */
    int (*signal)(void *self, unsigned lane, uint64_t ticket, _Atomic uint64_t *completed);
    /* Block up to `timeout_ns` until the work of `ticket` may have finished.  Its result is not used. */
    int (*wait)(void *self, unsigned lane, uint64_t ticket, int64_t timeout_ns);
    /* Ask for errors that nobody reported yet; nonzero: the device has faulted. */
    int (*check)(void *self);
    /* The same for an idle device, a few times a second: give it a little work, so that an error which no message meets
     * is found.  Never waits.  NULL: `check` does. */
    int (*probe)(void *self);
    /* What the error is.  NULL: there is nothing to say. */
    void (*explain)(void *self, atomr_device_error *);
} atomr_backend;

typedef struct atomr_worker atomr_worker;

/* Map the sender's region read only and make the worker's.  `backend` is copied; NULL: synchronous.
 * Returns NULL with errno set. */
atomr_worker *atomr_worker_new(int p_fd, uint64_t p_bytes, const atomr_backend *backend, uint64_t spin_ns);
int atomr_worker_w_fd(const atomr_worker *);
void *atomr_worker_w(const atomr_worker *);

/* Make a segment known under its number.  `base` stays the caller's, until after `atomr_worker_stop`. */
int atomr_worker_set_segment(atomr_worker *, uint32_t segment, void *base, uint64_t nbytes);
void *atomr_worker_address(const atomr_worker *, uint32_t segment, uint64_t offset, uint64_t nbytes);

int atomr_worker_add_plan(atomr_worker *, uint32_t plan, atomr_run run, void *context, unsigned n_operands,
                          unsigned n_scalars);
/* Forget a plan that no queued message names; returns its context. */
void *atomr_worker_remove_plan(atomr_worker *, uint32_t plan);

/* Probation, see probation.c.  Before `go`: runs and builds take turns; later, to end that. */
void atomr_worker_be_cautious(atomr_worker *, int cautious);
/* The plan's first message runs alone.  Before the plan is added. */
int atomr_worker_suspect(atomr_worker *, uint32_t plan);
typedef enum { ATOMR_NO_TURN, ATOMR_SHARED, ATOMR_ALONE } atomr_turn;
/* The turn of a build, which is alone if its plan is a suspect; NO_TURN, which `end` takes too: it may begin at once. */
atomr_turn atomr_worker_begin_build(atomr_worker *, int suspect);
void atomr_worker_end_build(atomr_worker *, atomr_turn);

/* Signal `eventfd` (nonblocking) for subscriber `index`, and once now; it becomes the worker's, on success. */
int atomr_worker_subscribe(atomr_worker *, unsigned index, int eventfd);
int atomr_worker_open_lane(atomr_worker *, unsigned lane); /* its thread waits for `go` */
int atomr_lane_threads(void); /* of the process; a thread that a library starts in a lane has the name of the lane */
/* The workspace with which a lane begins, before `go`; from then on `atomr_run_workspace` changes it in order. */
int atomr_worker_set_workspace(atomr_worker *, unsigned lane, void *base, uint64_t nbytes);
uint64_t atomr_worker_workspace(const atomr_worker *, unsigned lane); /* bytes */
void atomr_worker_go(atomr_worker *);
/* Called in each lane's thread at its end.  Before any lane opens. */
void atomr_worker_at_lane_end(atomr_worker *, void (*run)(void));
/* A fault of the device shall not end this process, which is not the worker's own: `eventfd`, which stays the caller's,
 * is rung instead, and the lanes end.  Before any lane opens. */
void atomr_worker_outlive(atomr_worker *, int eventfd);
/* The device has faulted, met when doing `what`: note why, for the parent, then end the process, or (see above) the
 * lanes.  Any thread. */
void atomr_worker_fault(atomr_worker *, const char *what);
int atomr_worker_has_faulted(const atomr_worker *);
/* End this process at once, as from outside: no message is to blame.  If the worker outlives faults, its device faults. */
void atomr_worker_end(atomr_worker *, const char *what);
/* After the messages that are running, and all that was launched, unless the device has faulted; joins.  Idempotent.  Queued messages stay. */
void atomr_worker_stop(atomr_worker *);
void atomr_worker_delete(atomr_worker *); /* stops first */
/* In a forked child, where none of its threads exists: close its descriptors and unmap the sender's region, and with
 * `own` its own one; no lock is taken, and nothing of it may be used any more. */
void atomr_worker_abandon(atomr_worker *, int own);

/* A thread that ends this process when the process behind `pidfd` ends. */
int atomr_watch_parent(int pidfd);

/* Take part in a communicator's messages as a rank, by its page, which stays the caller's (NULL: no more).  -1: no such
 * number. */
int atomr_worker_set_meeting(atomr_worker *, uint32_t number, atomr_page *page, unsigned rank);
/* Nonzero from when the worker stops: for waits inside of a run. */
const _Atomic int *atomr_worker_stopping(const atomr_worker *);

/* Built-in runs. */
int atomr_run_noop(void *, const atomr_call *, atomr_failure *);
int atomr_run_copy(void *, const atomr_call *, atomr_failure *); /* operands src, dst; scalar: bytes */
/* Operand 0 becomes the workspace of the lane's later messages.  Context: the worker; scalar: bytes (0: none). */
int atomr_run_workspace(void *, const atomr_call *, atomr_failure *);

#endif
