/* Stamps: who may still use a piece of memory, as at most one ticket per lane.
 *
 * A lane completes its tickets in order, so the highest ticket of a lane stands for all of its earlier
 * ones: a set can never hold more than one stamp per lane.  Three fit into the set itself, which is
 * what nearly every allocation needs (its writer's lane and a reader or two); more go to the heap.
 *
 * The tickets of a lane must never go backward, also across a restart of the worker.  Not thread-safe:
 * a set belongs to whoever holds the lock of the structure it lies in.
 */
#ifndef ATOMR_STAMPS_H
#define ATOMR_STAMPS_H

#include <stddef.h>
#include <stdint.h>

#define ATOMR_LANES 64
#define ATOMR_STAMPS_FEW 3

/* One stamp: the lane in the top 8 bits, its ticket in the low 56 (at a million messages a second,
 * 2283 years).  So stamps of a higher lane are larger numbers, and of one lane the later is larger. */
typedef uint64_t atomr_stamp;

#define ATOMR_TICKET_MASK ((UINT64_C(1) << 56) - 1)

static inline atomr_stamp atomr_stamp_make(unsigned lane, uint64_t ticket) {
    return ((uint64_t)lane << 56) | (ticket & ATOMR_TICKET_MASK);
}
static inline unsigned atomr_stamp_lane(atomr_stamp stamp) { return (unsigned)(stamp >> 56); }
static inline uint64_t atomr_stamp_ticket(atomr_stamp stamp) { return stamp & ATOMR_TICKET_MASK; }

/* Read the stamps with atomr_stamps_data(); `items` alone is NULL while they are in `few`.
 * The struct holds no pointer into itself, so it may be moved with memcpy or realloc.  A copy that is
 * to live beside its original is made with atomr_stamps_merge into an empty set. */
typedef struct {
    uint32_t n;         /* stamps in the set, sorted by lane */
    uint32_t cap;       /* room at `items`; 0 while the stamps are in `few` */
    atomr_stamp *items; /* NULL while they are in `few` */
    atomr_stamp few[ATOMR_STAMPS_FEW];
} atomr_stamps;

/* Nonzero when that ticket is resolved.  Called often and under a lock: it only compares numbers, and
 * it never answers nonzero and later zero for one stamp. */
typedef int (*atomr_resolved_fn)(void *ctx, atomr_stamp stamp);

/* The `n` stamps of a set, sorted by lane.  Valid until the set is changed or moved. */
static inline const atomr_stamp *atomr_stamps_data(const atomr_stamps *s) {
    return s->items != NULL ? s->items : s->few;
}

/* Makes an empty set.  All-zero bytes are one too. */
static inline void atomr_stamps_init(atomr_stamps *s) {
    s->n = 0;
    s->cap = 0;
    s->items = NULL;
}
/* Frees what the set holds and leaves it empty. */
void atomr_stamps_release(atomr_stamps *s);
/* Empties the set and keeps its room. */
static inline void atomr_stamps_clear(atomr_stamps *s) { s->n = 0; }

/* Adds one stamp, keeping the larger of a lane.  0, or -1 (no memory; the set is as it was). */
int atomr_stamps_add(atomr_stamps *s, atomr_stamp stamp);
/* Adds every stamp of `from`.  All or nothing: 0, or -1 (no memory; `into` is as it was). */
int atomr_stamps_merge(atomr_stamps *into, const atomr_stamps *from);
/* Drops the resolved ones.  Needs no memory. */
void atomr_stamps_prune(atomr_stamps *s, atomr_resolved_fn resolved, void *ctx);
/* Drops resolved ones, but stops at the first open one: nonzero when the set is empty.  For polling: an
 * open set costs one question however many lanes it names, and each resolved stamp is asked about once. */
int atomr_stamps_drained(atomr_stamps *s, atomr_resolved_fn resolved, void *ctx);
/* Hands the contents over: what `to` held is freed, and `from` is left empty.  Needs no memory. */
void atomr_stamps_move(atomr_stamps *to, atomr_stamps *from);

#endif
