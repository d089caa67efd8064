/* What the files of the worker share among themselves. */
#ifndef ATOMR_LANE_PRIVATE_H
#define ATOMR_LANE_PRIVATE_H

#include "runtime/lane_core.h"
#include "runtime/meeting.h"
#include "runtime/poison.h"
#include "runtime/spinning.h"

enum { ATOMR_PLAN_CHUNK = 1024, ATOMR_PLAN_CHUNKS = 1024, ATOMR_MESSAGE_WORDS = ATOMR_MAX_CELLS * ATOMR_CELL_WORDS };

typedef struct {
    atomr_run run;
    void *context;
    unsigned n_operands, n_scalars;
} atomr_plan;

typedef struct {
    _Atomic(void *) base;
    _Atomic uint64_t nbytes;
} atomr_segment;

/* This worker's place in a communicator; rank first, then page. */
typedef struct {
    _Atomic(atomr_page *) page;
    unsigned rank;
} atomr_seating;

/* A message that was launched, or skipped, while its outcome is open. */
typedef struct atomr_suspended {
    struct atomr_suspended *next;
    uint64_t ticket;
    uint32_t plan;
    int certain;             /* it is not run: it reads what is sure to be poisoned */
    int failed, judged;
    atomr_late late;
    const _Atomic int32_t *info;
    atomr_outcome *outcome;  /* NULL: its failure was entered at once, and waits only to be reported in order */
    atomr_error error;       /* of a failure */
    unsigned n_histories, n_operands;
    atomr_history **histories; /* of what it read that was not clean */
    atomr_operand *operands;
} atomr_suspended;

/* A lane.  One thread takes its messages; one publishes their completion: the same one on a synchronous
 * backend, the completer on an asynchronous one. */
typedef struct {
    atomr_worker *worker;
    unsigned index;
    pthread_t thread;
    atomr_plane *p;
    atomr_wlane *w;
    /* The taker's.  What a lane writes with each message is kept off the lines that others read all the time: a
     * completer that spins would take the line away in the middle of every message. */
    _Alignas(128) uint64_t head, ticket; /* cells and tickets taken so far */
    uint64_t idle_ns;           /* how long it waited for its last message */
    uint64_t clock;             /* when the last message ended, 0 after a wait: a clock costs as much as a no-op */
    atomr_turn turn;            /* that its message runs in, in a cautious worker */
    int ran;                    /* in that turn, without a failure */
    atomr_after after;          /* what its last message has left to do */
    int prompt;                 /* asynchronous: the last message asked for a completion value of its own */
    uint64_t signalled;         /* asynchronous: the last ticket whose completion value is on its way */
    uint64_t detoured;          /* asynchronous: the last of these by way of `arrived` */
    uint64_t infos;             /* info words used so far */
    int holds;                  /* the message, see atomr_call */
    uint32_t holding;           /* the plan of those that hold */
    _Atomic(void *) workspace;  /* its own messages change it; before `go`, the control thread */
    _Atomic uint64_t workspace_bytes;
    _Atomic uint64_t processed; /* = head, for others */
    /* The taker's, read by the publisher. */
    _Alignas(128) _Atomic uint64_t inflight; /* = signalled, for the completer */
    _Atomic uint64_t failed;    /* the last ticket with an entry in the error ring */
    _Atomic unsigned n_suspended; /* the taker adds, the publisher takes away; who finds 0 may report failures */
    pthread_mutex_t suspended_lock;
    atomr_suspended *first_suspended, *last_suspended;
    /* The publisher's. */
    _Alignas(128) uint64_t seen; /* asynchronous: the last completion that was published */
    uint64_t failures_told;     /* the last failure that subscriber 0 was woken for */
    uint64_t last_notified, last_rewake, sub_next, last_wanted[ATOMR_SUBSCRIBERS];
    /* Progress for other lanes: every ticket up to here has been launched. */
    _Alignas(128) _Atomic uint64_t launched;
    _Atomic uint64_t held;      /* the last ticket that holds, or comes after one that does; 0: there is none */
    _Atomic uint32_t launch_waiters, launch_seq;
    _Alignas(128) uint64_t message[ATOMR_MESSAGE_WORDS];
    void *pointers[ATOMR_MESSAGE_OPERANDS];
} atomr_lane;

struct atomr_worker {
    void *p, *w;
    uint64_t p_bytes;
    int w_fd;
    uint32_t cells;
    uint64_t spin_ns;
    atomr_spinners longer;
    void (*lane_ends)(void); /* in the thread of each, at its end; NULL: nothing */
    int64_t nap_ns; /* the longest sleep of an idle thread; nothing but caution depends on it */
    int64_t probe_ns; /* how often an idle device is asked for errors */
    int32_t max_spinners;
    _Atomic int32_t spinners;
    _Atomic int stopping, going, lanes_ended, joining;
    _Atomic int faulted;  /* 1: somebody writes the note, 2: it is written */
    int outlives, fault_fd; /* a fault ends the lanes, and rings this eventfd; else it ends the process */
    _Atomic uint32_t gate; /* futex: lanes wait here for `go`, the completer for work */
    _Atomic uint32_t completer_parked;
    int has_completer;
    pthread_t completer;
    atomr_backend backend;
    atomr_poison poison;
    _Atomic int eventfds[ATOMR_SUBSCRIBERS];
    _Atomic(atomr_plan *) *_Atomic chunks[ATOMR_PLAN_CHUNKS];
    pthread_mutex_t control; /* growth of the plan table, subscribers */
    atomr_segment segments[ATOMR_MAX_SEGMENTS];
    /* Probation. */
    _Atomic int cautious;  /* runs take turns; set before `go` */
    _Atomic int64_t patience_ns;   /* the longest wait for a turn of its own, and the longest such turn */
    pthread_mutex_t turns; /* for what follows */
    unsigned sharing;      /* turns that others may share */
    int alone;             /* somebody has, or waits for, a turn of its own */
    uint32_t *suspects;    /* plans */
    unsigned n_suspects;
    _Atomic(atomr_lane *) lanes[ATOMR_LANES]; /* set once, when the lane is complete */
    atomr_seating meetings[ATOMR_MEETINGS];
};

static inline atomr_lane *atomr_lane_at(atomr_worker *k, unsigned index) {
    return index < ATOMR_LANES ? atomic_load_explicit(&k->lanes[index], memory_order_acquire) : NULL;
}

static inline int atomr_faulted(const atomr_worker *k) {
    return atomic_load_explicit(&k->faulted, memory_order_relaxed) != 0;
}

const atomr_plan *atomr_plan_at(atomr_worker *k, uint32_t index); /* NULL: not loaded */
void atomr_ring_eventfd(atomr_worker *k, unsigned index);
void atomr_open_gate(atomr_worker *k); /* wake whoever waits there */

/* What a lane's thread runs. */
void *atomr_lane_main(void *lane);
/* Completions up to `completed` are in shared memory: wake whoever waits for them. */
void atomr_published(atomr_lane *l, uint64_t completed);

/* Let other lanes know that all up to a ticket is launched; any thread. */
void atomr_set_launched(atomr_lane *l, uint64_t ticket);

/* For messages of several ranks, in the lane's thread. */

/* Whether what a message of several ranks reads is sure to be data as long as their connection lasts.  Then it need not be
 * known before the vote: should the connection be lost, this message fails on all ranks as well. */
int atomr_is_tied(atomr_lane *l, const atomr_suspended *m, const uint64_t *scalars);
/* Wait until it is known what the operands hold that a message of several ranks reads: it is the same for all ranks, so
 * none may find out after the launch that it should not have taken part.  1: data; -1: one of them is poisoned, which
 * `error` says; 0: the worker stops. */
int atomr_await_outcomes(atomr_lane *l, const atomr_head *h, const atomr_operand *ops, atomr_error *error);
/* Vote on a message that several ranks run together.  1: all are ready.  0: the worker stops.  -1: this one fails, with
 * `error`, which is its own refusal or that of another rank. */
int atomr_vote_on(atomr_lane *l, const atomr_head *h, const uint64_t *scalars, int refused, atomr_error *error);
/* Have the other ranks know that this one has failed in the middle of a message, unless it has told them, or they it. */
void atomr_tell_ranks(atomr_worker *k, const uint64_t *scalars, const atomr_error *error);

/* An error of a message that the lane itself refuses. */
void atomr_fill_error(atomr_error *error, int code, const char *text);
/* An error of a message, from the code and the words of what failed. */
void atomr_error_of(atomr_error *error, int code, const atomr_failure *failure);
/* Write an entry of the error ring; 0: the parent has to take the oldest first. */
int atomr_try_report(atomr_lane *l, const atomr_error *error);
/* Wake whoever takes entries. */
void atomr_call_for_room(atomr_lane *l);
/* Forget what poison no message can meet any more, when there is much of it. */
void atomr_prune_poison(atomr_worker *k);

/* A message whose run has failed, that reads what is open, or that may fail late.  In the lane's thread: */
int atomr_await_room(atomr_lane *l); /* for one more; 0: the worker stops */
atomr_suspended *atomr_suspended_new(atomr_lane *l, const atomr_head *h, const atomr_operand *ops, int reads_open);
void atomr_suspended_free(atomr_lane *l, atomr_suspended *m); /* NULL passes */
void atomr_suspend(atomr_lane *l, atomr_suspended *m, const atomr_error *error, const atomr_late *late);
/* In the completer's: judge what has arrived, and publish it as completed.  1: a full error ring holds it up. */
int atomr_judge_arrived(atomr_lane *l);
void atomr_forget_suspended(atomr_lane *l); /* when no thread is left */

/* In a cautious worker: wait for the turn of the lane's message; 0: the worker stops.  End it when it is launched:
 * that of a suspect lasts until it is complete. */
int atomr_take_turn(atomr_lane *l, uint32_t plan);
void atomr_end_turn(atomr_lane *l);
void atomr_drop_suspect(atomr_worker *k, uint32_t plan);

/* Asynchronous backends only. */
void *atomr_completer_main(void *worker);
/* Mark the end of what the lane has launched, for those that depend on it. */
void atomr_mark_launch(atomr_lane *l);
/* Send the completion value of what the lane has launched, now or together with a later one. */
void atomr_signal_later(atomr_lane *l);
/* Whether a drained lane need not send the value of what it launched last yet: an earlier one has not come back. */
int atomr_may_hold_value(const atomr_lane *l);
/* Send the completion value of all that was launched: for a lane that is about to block. */
void atomr_signal_now(atomr_lane *l);
/* After a run that failed: whether the device has faulted, so that the message is for the parent to resolve. */
int atomr_run_met_fault(atomr_lane *l);
/* The lane's later work waits for `stamp`, which has been launched. */
void atomr_depend(atomr_lane *l, atomr_stamp stamp);

#endif
