/* What the files of the sender share among themselves. */
#ifndef ATOMR_SENDER_PRIVATE_H
#define ATOMR_SENDER_PRIVATE_H

#include <pthread.h>

#include "runtime/sender_core.h"
#include "runtime/spinning.h"

enum { SLOT_FREE = 0, SLOT_LIVE = 1, SLOT_LEASED = 2 /* freed or stale, but its memory is lent */ };

/* One allocation. */
typedef struct {
    uint32_t generation, next_free;
    uint32_t group, leases;
    uint8_t state, pool, torn, internal;
    uint8_t kept; /* volatile, but live across restarts: nobody cares for its bytes */
    uint8_t back; /* its group went back to a commit; reading is refused until it is written whole (restore) */
    uint8_t covers; /* of a domain: no member has bytes outside of this one */
    /* Adopted allocations that share bytes are ordered as one: as their domain, a slot of no handle, which alone has
     * stamps and is what messages name.  0: none.  In the domain itself `next_member` is the first. */
    uint32_t domain, next_member;
    atomr_block block;
    uint64_t writer_order;  /* place of the last write in the order of all sends */
    atomr_stamp writer;     /* ticket 0: none */
    atomr_stamps others;    /* reads since that write; before the first write, what the range inherited */
} atomr_slot;

/* A worker's region, kept mapped while anybody looks at it. */
typedef struct {
    void *w;
    uint64_t nbytes, number; /* counted from 1 */
    uint32_t refs;
    _Atomic int dead;
} atomr_region;

/* Somebody who may be asleep until `ticket` is resolved. */
typedef struct {
    uint64_t ticket;
    int told; /* `rewake` was bumped for it */
} atomr_waiter;

typedef struct {
    int open;
    uint64_t ticket, tail;     /* last ticket sent; cells published */
    uint64_t floor;            /* tickets known to be resolved; never falls, whatever a worker writes */
    uint64_t released;         /* cells that may be overwritten: those of the tickets up to some floor */
    uint64_t settled;          /* tickets resolved, with their errors taken */
    uint64_t *ends;            /* cell after each ticket, by ticket modulo twice the ring size */
    atomr_reply *first, *last; /* unresolved replies, by ticket */
    atomr_verdict **failed;    /* errors taken, of tickets that are not resolved yet; by ticket */
    uint32_t n_failed, cap_failed;
    uint64_t last_failed;      /* the newest ticket whose error was taken */
    atomr_waiter *waiters;     /* parked threads */
    uint32_t n_waiters, cap_waiters;
    uint64_t sub_told[ATOMR_SUBSCRIBERS];
    _Atomic uint64_t waited_ns; /* for the last ticket that somebody waited for */
} atomr_send_lane;

typedef struct {
    atomr_stamp stamp;
    uint64_t order;
} atomr_commit;

typedef struct {
    uint32_t id;
    uint64_t committed;    /* order of the newest commit known to be complete; 0: none */
    uint64_t suspect;      /* order of a commit that a fault interrupted */
    uint64_t back;         /* order of the newest send when it last went back to its commit */
    atomr_commit *pending; /* commits that may not have completed */
    uint32_t n_pending, cap_pending;
} atomr_group;

/* When a pool asks for more memory, ahead of need. */
typedef struct {
    uint64_t mark; /* when less than this is left, or less than what was just allocated; 0: never */
    uint64_t most; /* larger allocations than this do not ask: they get segments of their own, or nearly */
    uint64_t peak; /* bytes in use when it last asked: a program that uses no more needs no more */
    int asked;
} atomr_low_water;

struct atomr_sender {
    pthread_mutex_t lock;
    void *p;
    uint64_t p_bytes;
    int p_fd, state;
    uint32_t cells, n_slots;
    atomr_region *region;
    uint64_t n_regions;
    int64_t slice_ns;        /* the longest sleep of a waiter: a worker may die before it wakes anybody */
    _Atomic uint32_t change; /* futex: bumped when the region or the state changes */
    uint64_t order;
    atomr_send_lane lanes[ATOMR_LANES];
    uint32_t n_lanes;
    atomr_spinners longer;
    atomr_slot *slots;
    uint32_t fresh, free_first, free_last, n_free; /* slots never used; queue of freed ones */
    atomr_pool *pools[ATOMR_POOLS];
    uint8_t segment_pool[ATOMR_MAX_SEGMENTS]; /* pool + 1; 0: no such segment */
    uint32_t next_segment;
    atomr_low_water low[ATOMR_POOLS];
    _Atomic uint32_t low_seq; /* futex: bumped when a pool asks, and at the end */
    int low_stop;
    atomr_group *groups;
    uint32_t n_groups;
    atomr_verdict **orphans;
    uint32_t first_orphan, n_orphans, cap_orphans;
};

static inline void atomr_lock(atomr_sender *s) { pthread_mutex_lock(&s->lock); }
static inline void atomr_unlock(atomr_sender *s) { pthread_mutex_unlock(&s->lock); }

/* All below: with the lock held. */

uint64_t atomr_completed(atomr_sender *s, unsigned lane); /* looks at the worker's progress */
static inline int atomr_stamp_resolved(atomr_sender *s, atomr_stamp stamp) {
    const unsigned lane = atomr_stamp_lane(stamp);
    const uint64_t ticket = atomr_stamp_ticket(stamp);
    return lane < ATOMR_LANES && (ticket <= s->lanes[lane].floor || ticket <= atomr_completed(s, lane));
}
/* The cell after the message of a ticket, from the oldest that is not released on. */
static inline uint64_t *atomr_end_of(atomr_sender *s, unsigned lane, uint64_t ticket) {
    return &s->lanes[lane].ends[ticket & (2 * (uint64_t)s->cells - 1)];
}
uint64_t atomr_released(atomr_sender *s, unsigned lane);
static inline atomr_head *atomr_head_at(atomr_sender *s, unsigned lane, uint64_t cell) {
    return &atomr_ring_at(s->p, lane)[cell & (s->cells - 1)].head;
}

static inline atomr_slot *atomr_live(const atomr_sender *s, uint32_t slot, uint32_t generation) {
    if (slot == 0 || slot >= s->fresh) return NULL;
    atomr_slot *found = &s->slots[slot];
    return found->state == SLOT_LIVE && found->generation == generation ? found : NULL;
}
/* The slot whose stamps order the uses of this one. */
static inline atomr_slot *atomr_root(const atomr_sender *s, atomr_slot *a) {
    return a->domain ? &s->slots[a->domain] : a;
}
static inline int atomr_is_domain(const atomr_slot *a) { return a->pool == ATOMR_FOREIGN && a->internal; }
uint32_t atomr_take_slot(atomr_sender *s); /* 0: there is none */
/* Forget that its bytes are those of others too; what may still use them stays noted. */
void atomr_leave_domain(atomr_sender *s, atomr_slot *a);
void atomr_retire(atomr_sender *s, atomr_slot *slot); /* make every handle of it stale */

atomr_group *atomr_find_group(const atomr_sender *s, uint32_t id);
/* Fold the commits that are known to have succeeded into `committed`. */
void atomr_settle_group(atomr_sender *s, atomr_group *g);
/* A commit with that ticket did not happen. */
void atomr_forget_commit(atomr_sender *s, unsigned lane, uint64_t ticket);

void atomr_link_reply(atomr_send_lane *l, atomr_reply *r);
/* Take the errors of a lane, and settle the replies of all that is resolved. */
void atomr_drain(atomr_sender *s, unsigned lane);
void atomr_drain_all(atomr_sender *s); /* of every lane with errors to take */
/* Settle all up to `upto`; who is not settled as failed before has succeeded. */
void atomr_settle_range(atomr_sender *s, unsigned lane, uint64_t upto);
/* Ticket `ticket` failed, and all before it are settled: its reply, or the orphans, get `v`. */
void atomr_settle_failure(atomr_sender *s, unsigned lane, uint64_t ticket, atomr_verdict *v);
/* The error taken for exactly this ticket, else NULL; forgets those of earlier ones.  The caller's. */
atomr_verdict *atomr_take_failed(atomr_send_lane *l, uint64_t ticket);
void atomr_verdict_unref(atomr_verdict *v);
atomr_verdict *atomr_verdict_new(int code, uint32_t fault, const char *text);

void atomr_update_wake(atomr_sender *s, unsigned lane);
void atomr_drop_region(atomr_sender *s); /* mark it dead, wake its waiters */
void atomr_unref_region(atomr_region *r);

#endif
