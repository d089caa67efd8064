/* The parent's half of the runtime: mailboxes, slots with generations, ordering by data, replies.
 *
 * No Python here.  All state is private to the parent, under one mutex that is held for tens of
 * nanoseconds and under which nothing blocks; only rings and wanted tickets are shared.
 */
#ifndef ATOMR_SENDER_CORE_H
#define ATOMR_SENDER_CORE_H

#include "runtime/pool.h"
#include "runtime/shm.h"

enum atomr_pool_kind {
    ATOMR_VOLATILE = 0,
    ATOMR_DURABLE = 1,
    ATOMR_STAGING = 2,
    ATOMR_POOLS = 3,
    ATOMR_FOREIGN = 3 /* no pool: memory of others, adopted range by range; as volatile as that of ATOMR_VOLATILE */
};

enum atomr_state { ATOMR_STARTING = 0, ATOMR_OPEN = 1, ATOMR_RESTARTING = 2, ATOMR_LOST = 3, ATOMR_CLOSED = 4 };

/* What came of a call. */
enum atomr_result {
    ATOMR_DONE = 0,
    ATOMR_FULL,       /* the mailbox has no room */
    ATOMR_STALE,      /* the handle is not valid: generation */
    ATOMR_TORN,       /* the handle's bytes were being written when the worker died */
    ATOMR_BACK,       /* its group went back to a commit, and nobody has said that they know */
    ATOMR_REFUSED,    /* the device is lost or closed */
    ATOMR_TOO_LARGE,  /* more operands or scalars than a message holds, or a mailbox too small for it */
    ATOMR_EMPTY,      /* no room in the pool: a segment must be added */
    ATOMR_EXHAUSTED,  /* no slot, or no host memory */
    ATOMR_TIMEOUT,
    ATOMR_INTERRUPTED,
    ATOMR_MOVED /* the device has another generation than the caller thinks */
};

/* One use of an allocation by a message. */
typedef struct {
    uint32_t slot, generation;
    uint64_t offset; /* of the view in the allocation, bytes */
    uint32_t access;
    uint32_t whole;  /* ATOMR_WHOLE: the view is the whole allocation */
} atomr_use;

enum { ATOMR_PART = 0, ATOMR_WHOLE = 1, ATOMR_DECLARED = 2 /* and what shares its bytes is declared good with it */ };

typedef struct atomr_verdict {
    uint32_t refs, lane;
    uint32_t fault; /* index of the fault that ended the worker, for ATOMR_DEVICE_FAULT and LOST */
    atomr_error error;
} atomr_verdict;

/* A reply that somebody holds; embedded in its holder, linked while unresolved. */
typedef struct atomr_reply {
    struct atomr_reply *prev, *next;
    uint64_t ticket;
    uint32_t lane;
    int linked, settled;
    atomr_verdict *verdict; /* NULL once settled: it succeeded */
} atomr_reply;

typedef struct {
    uint32_t lane, plan;
    uint64_t ticket;
    uint32_t likely; /* nothing of its lane, and nothing that it waits for, was incomplete before it */
} atomr_suspect;

/* What a dying worker said of the reason; its text ends, but nothing else about it can be relied on. */
typedef struct {
    int told;
    int32_t code;
    char lib[16], name[64], text[256];
} atomr_last_words;

typedef struct {
    uint64_t meeting, sequence;
} atomr_key;

typedef struct {
    atomr_last_words cause;
    atomr_suspect *suspects; /* the likely ones first */
    uint32_t *plans;  /* of the messages that stay queued */
    uint32_t *groups; /* with state that went back to a commit */
    atomr_key *keys;  /* of the messages of several ranks that were resolved as failed */
    uint32_t n_suspects, n_plans, n_groups, n_keys, n_refused, n_stale, n_torn;
} atomr_fault_report;

typedef struct atomr_sender atomr_sender;

atomr_sender *atomr_sender_new(uint32_t cells, uint32_t slots);
void atomr_sender_delete(atomr_sender *);
void atomr_sender_abandon(atomr_sender *); /* in a forked child: unmap, close, touch no lock */
int atomr_sender_p_fd(const atomr_sender *);
uint64_t atomr_sender_p_bytes(const atomr_sender *);
uint32_t atomr_sender_epoch(atomr_sender *);
int atomr_sender_state(atomr_sender *);

/* Map the region of a new worker, and forget the old one's.  The state stays as it is. */
int atomr_sender_attach(atomr_sender *, int w_fd, uint64_t w_bytes);
void atomr_sender_set_state(atomr_sender *, int state);
/* The worker is dead and reaped.  Resolves what was running as `code`, makes volatile slots stale,
 * finds torn slots and groups, marks queued messages that must not run, raises the epoch. */
int atomr_sender_fault(atomr_sender *, int code, uint32_t fault, const char *text, atomr_fault_report *);
/* After `atomr_tear`, before the next worker runs: mark queued messages that would read what is torn now. */
void atomr_sender_judge_again(atomr_sender *);
/* Resolve everything, queued or running, as `code`; no message will run any more. */
void atomr_sender_end(atomr_sender *, int state, int code, uint32_t fault, const char *text);
void atomr_fault_report_release(atomr_fault_report *);

int atomr_sender_open_lane(atomr_sender *); /* its index, or -1 */

/* Number a segment that is about to be made; then add it to a pool, or (pool < 0) forget the number. */
int atomr_sender_reserve_segment(atomr_sender *, uint32_t *segment);
int atomr_sender_add_segment(atomr_sender *, uint32_t segment, int pool, uint64_t nbytes);
/* Give back one wholly free segment of the pool: its number, or 0. */
uint32_t atomr_sender_remove_segment(atomr_sender *, int pool);
void atomr_sender_pool_stats(atomr_sender *, int pool, atomr_pool_stats *);

/* Growth ahead of need.  An allocation of up to `most` bytes that leaves less than `mark`, or less than its own size,
 * makes its pool ask for more, once until the pool is armed again, and only when more is in use than when it last did.
 * A mark of 0: never. */
void atomr_sender_arm_pool(atomr_sender *, int pool, uint64_t mark, uint64_t most);
unsigned atomr_sender_low_pools(atomr_sender *); /* those that ask, as a mask */
/* Block until a pool asks (1), or until the end (0). */
int atomr_sender_wait_low(atomr_sender *);
void atomr_sender_stop_low(atomr_sender *);

int atomr_alloc(atomr_sender *, int pool, uint64_t nbytes, uint32_t *slot, uint32_t *generation, atomr_block *);
int atomr_free(atomr_sender *, uint32_t slot, uint32_t generation);
/* Let a volatile allocation outlive the worker, for scratch memory: its place matters, its bytes do not. */
int atomr_keep(atomr_sender *, uint32_t slot, uint32_t generation);
int atomr_lease(atomr_sender *, uint32_t slot, uint32_t generation);
void atomr_unlease(atomr_sender *, uint32_t slot);
/* DONE, STALE or TORN. */
int atomr_check(atomr_sender *, uint32_t slot, uint32_t generation);
int atomr_untear(atomr_sender *, uint32_t slot, uint32_t generation);
/* Where a live allocation lies. */
int atomr_block_of(atomr_sender *, uint32_t slot, uint32_t generation, atomr_block *, int *pool);
/* The lane and ticket of the last write (ticket 0: none). */
int atomr_last_write(atomr_sender *, uint32_t slot, uint32_t generation, uint32_t *lane, uint64_t *ticket);
/* Every use so far, newest per lane; for exports.  Returns the number written, at most ATOMR_LANES. */
int atomr_open_uses(atomr_sender *, uint32_t slot, uint32_t generation, atomr_stamp *out);

/* Name memory that others own: a range of a segment of ATOMR_FOREIGN, as the device of generation `epoch` sees it.  The
 * slot lends it until `atomr_disown`, so that its owner can be kept until no message may use it.  DONE, MOVED, STALE (no
 * such segment), REFUSED, EXHAUSTED. */
int atomr_adopt(atomr_sender *, uint32_t epoch, uint32_t segment, uint64_t offset, uint64_t nbytes, uint32_t *slot,
                uint32_t *generation);
/* The messages that may use an adopted slot, the newest of each lane, in `out`, which has room for ATOMR_LANES: how many. */
int atomr_adopted_uses(atomr_sender *, uint32_t slot, atomr_stamp *out);
/* Make the handles of an adopted slot stale as soon as nothing uses it: 0 when that is so, else what
 * atomr_adopted_uses says.  -1: it is lent to somebody, or `named` by handles that are good. */
int atomr_let_go(atomr_sender *, uint32_t slot, uint32_t generation, int named, atomr_stamp *out);
/* Give an adopted slot back; messages that may still use it are the caller's concern. */
void atomr_disown(atomr_sender *, uint32_t slot);
/* Forget a segment of ATOMR_FOREIGN. */
void atomr_sender_drop_foreign(atomr_sender *, uint32_t segment);

typedef struct {
    uint32_t slot, generation;
    atomr_stamp writer; /* its last write, which the caller knows to have succeeded; 0: none */
} atomr_member;
/* Order adopted allocations as one from now on: the first, which no message uses yet, shares bytes with the others.
 * `covers`: they have none outside of it.  MOVED: one was written meanwhile, so look again; STALE, EXHAUSTED. */
int atomr_unite(atomr_sender *, const atomr_member *, unsigned n, int covers);

/* Groups.  Members, shadow and header are durable slots. */
int atomr_group_add(atomr_sender *, uint32_t group, uint32_t slot, uint32_t generation, int internal);

void atomr_group_dissolve(atomr_sender *, uint32_t group); /* its members become plain durable slots */
/* After a fault: the new worker has found a commit, and where the group goes back, it has. */
void atomr_group_recovered(atomr_sender *, uint32_t group);
/* Declare the bytes of an allocation damaged. */
int atomr_tear(atomr_sender *, uint32_t slot, uint32_t generation);

/* Send.  `bad` gets the index of an offending operand.  `group` nonzero: this is its commit. */
int atomr_send(atomr_sender *, unsigned lane, uint32_t plan, const atomr_use *, unsigned n_uses,
               const uint64_t *scalars, unsigned n_scalars, uint32_t group, atomr_reply *, uint64_t *ticket,
               unsigned *bad);
/* The same, if the device still has that generation (0: any), for which the plan is known to the worker. */
int atomr_send_in(atomr_sender *, uint32_t epoch, unsigned lane, uint32_t plan, const atomr_use *, unsigned n_uses,
                  const uint64_t *scalars, unsigned n_scalars, uint32_t group, atomr_reply *, uint64_t *ticket,
                  unsigned *bad);
/* One rank's part of a message that several devices run together. */
typedef struct {
    atomr_sender *sender;
    uint32_t epoch;
    unsigned lane;
    uint32_t plan;
    const atomr_use *uses;
    uint64_t *scalars; /* begin with the words of meeting.h; the sequence number is filled in */
    unsigned n_uses, n_scalars;
    atomr_reply *reply;
    uint64_t ticket; /* out */
    unsigned bad;    /* out: an offending operand */
} atomr_rank_send;
/* Send to all ranks, which are on different devices, or to none; `which` gets the rank that refuses.  `sequence` counts
 * the messages of the communicator, under the locks of its devices. */
int atomr_send_ranks(atomr_rank_send *, unsigned n, uint64_t *sequence, unsigned *which);
/* The ticket whose resolution frees about half of what is in flight; 0 when there is room for so many cells, or nothing
 * is in flight. */
uint64_t atomr_room_ticket(atomr_sender *, unsigned lane, unsigned cells);

int atomr_resolved(atomr_sender *, unsigned lane, uint64_t ticket);
/* Wait without any lock of the caller's: DONE, TIMEOUT, INTERRUPTED.  timeout_ns < 0: forever. */
int atomr_wait(atomr_sender *, unsigned lane, uint64_t ticket, int64_t timeout_ns, uint64_t spin_ns);
/* Wake a lane, for a message that is likely to come before `until_ns` (CLOCK_MONOTONIC): it does not park till then. */
void atomr_rouse(atomr_sender *, unsigned lane, uint64_t until_ns);
/* Settle a reply if its ticket is resolved; returns `settled`. */
int atomr_reply_settle(atomr_sender *, atomr_reply *);
void atomr_reply_drop(atomr_sender *, atomr_reply *);
/* Let the worker signal subscriber `index` when `ticket` resolves (UINT64_MAX: no more); 1 if it has. */
int atomr_want(atomr_sender *, unsigned lane, unsigned subscriber, uint64_t ticket);

/* Take the next failed message that nobody held a reply to; NULL when there is none. */
atomr_verdict *atomr_next_orphan(atomr_sender *);
void atomr_verdict_release(atomr_sender *, atomr_verdict *);

typedef struct {
    uint64_t sent, claimed, completed, cells_in_use, messages, failed, busy_ns, parks, started_ns;
    uint32_t parked;
} atomr_lane_stats;
int atomr_sender_lane_stats(atomr_sender *, unsigned lane, atomr_lane_stats *);

/* ---- for traces (sender_trace.c) */

/* One more trace runs, or one less: while any does, lanes note when they work at which message. */
void atomr_sender_trace(atomr_sender *, int more);
/* From now on lanes tell of each message's end by itself. */
void atomr_sender_watch(atomr_sender *);
/* What a sent message waits for in other lanes, as found when it was sent: how many stamps, at most ATOMR_LANES.  -1 when
 * its cells have been used again. */
int atomr_sent_deps(atomr_sender *, unsigned lane, uint64_t ticket, atomr_stamp *out);

typedef struct {
    uint64_t ticket, began_ns, ended_ns;
} atomr_span_copy;
/* How far somebody has read the spans of one lane; begins as zeros. */
typedef struct {
    uint64_t region, next, lost; /* `lost`: how many were overwritten before they were read */
} atomr_span_place;
/* Copy up to `most` spans that were not read yet, and move on: how many. */
unsigned atomr_read_spans(atomr_sender *, unsigned lane, atomr_span_place *, atomr_span_copy *out, unsigned most);
uint64_t atomr_sender_control_busy(atomr_sender *);
/* Copy the plans that the worker has acquitted, ATOMR_ACQUITTED at most, oldest first: how many.  Untrusted numbers. */
unsigned atomr_sender_acquitted(atomr_sender *, uint32_t *out);

#endif
