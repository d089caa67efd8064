/* Poison: which allocations hold nothing, since the message that was to write them failed.
 *
 * Keyed by (slot, generation).  Entries of freed slots are pruned once no queued message can name
 * them.  Thread-safe; the empty table costs its readers one relaxed load.  The keys are mirrored in the
 * worker's shared memory, where the parent finds them when the worker has died.
 *
 * A message may be suspended: its outcome is known only once its work is done (see late.c), and messages that follow
 * are launched meanwhile.  For each allocation the table then keeps a history: the writers whose outcome is open, on
 * top of what is known.  The history gives the same answer, in the end, as if each outcome had been known at once.
 */
#ifndef ATOMR_POISON_H
#define ATOMR_POISON_H

#include <pthread.h>

#include "runtime/shm.h"

typedef struct atomr_outcome atomr_outcome; /* of a message: open, good, or failed with an error; counted */
typedef struct atomr_history atomr_history; /* of an allocation: its writers, the newest first; counted */

/* What is in an allocation: data, nothing, or one of the two. */
typedef enum { ATOMR_CLEAN = 0, ATOMR_POISONED = 1, ATOMR_OPEN_OUTCOME = 2 } atomr_content;

typedef struct {
    _Atomic uint32_t count;
    _Atomic uint32_t prune_at; /* as soon as there are more entries than this, pruning is worth its time */
    pthread_mutex_t lock;
    struct atomr_poison_entry *buckets[1024];
    atomr_wheader *w; /* holds the mirror */
    uint32_t marked;  /* entries of freed slots, waiting for the lanes to pass `until` */
    uint64_t until[ATOMR_LANES];
} atomr_poison;

/* The cells of each lane that were published, and those that were processed. */
typedef struct {
    void (*published)(void *self, uint64_t *cells);
    void (*processed)(void *self, uint64_t *cells);
    void *self;
} atomr_progress;

void atomr_poison_init(atomr_poison *, atomr_wheader *w);
void atomr_poison_release(atomr_poison *);
/* What is in the operands that are read, taken together: the first that is not clean decides.  Copies its cause. */
atomr_content atomr_poison_find(atomr_poison *, const atomr_operand *, unsigned n, atomr_error *cause);
/* Poison every operand that is written, but for memory of the host. */
void atomr_poison_add(atomr_poison *, const atomr_operand *, unsigned n, const atomr_error *cause);
/* Lift the poison of every operand that was overwritten as a whole. */
void atomr_poison_lift(atomr_poison *, const atomr_operand *, unsigned n);
/* A suspended message.  `histories` gets those of the operands that are read and not clean, which the caller releases;
 * `*certain` says whether one of them is sure to be poisoned.  Returns how many: at most n. */
unsigned atomr_poison_collect(atomr_poison *, const atomr_operand *, unsigned n, atomr_history **histories,
                              int *certain);
/* The communicator, by its number from 1, whose connection decides about all that is open in the histories: if it lasts,
 * they hold data.  0: something else may decide. */
uint32_t atomr_poison_decider(atomr_poison *, atomr_history *const *histories, unsigned n);
/* A new open outcome.  `certain`: it will be a failure.  `decider`: as above, of itself. */
atomr_outcome *atomr_outcome_new(int certain, uint32_t decider);
/* Enter it into the histories of all operands that are written. */
void atomr_poison_suspend(atomr_poison *, const atomr_operand *, unsigned n, atomr_outcome *);
/* What the histories say by now, taken together. */
atomr_content atomr_poison_judge(atomr_poison *, atomr_history *const *histories, unsigned n, atomr_error *cause);
/* The outcome is known: failed with `error`, or good (NULL).  `ops` are those of `atomr_poison_suspend`. */
void atomr_poison_resolve(atomr_poison *, const atomr_operand *ops, unsigned n, atomr_outcome *,
                          const atomr_error *error);
/* Release histories and an outcome (NULL passes). */
void atomr_poison_forget(atomr_poison *, atomr_history *const *histories, unsigned n, atomr_outcome *);
/* Drop entries whose slot was freed and that no message can name any more. */
void atomr_poison_prune(atomr_poison *, const _Atomic uint32_t *generations, const atomr_progress *);
static inline int atomr_poison_is_large(const atomr_poison *p) {
    return atomic_load_explicit(&p->count, memory_order_relaxed) >
           atomic_load_explicit(&p->prune_at, memory_order_relaxed);
}

#endif
