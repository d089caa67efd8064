/* Poison: which allocations hold nothing, since the message that was to write them failed.
 *
 * Keyed by (slot, generation).  Entries of freed slots are pruned once no queued message can name
 * them.  Thread-safe; the empty table costs its readers one relaxed load.  The keys are mirrored in the
 * worker's shared memory, where the parent finds them when the worker has died.
 */
#ifndef ATOMR_POISON_H
#define ATOMR_POISON_H

#include <pthread.h>

#include "shm.h"

typedef struct atomr_cause atomr_cause; /* an error, counted by the entries that name it */

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
/* Copies the cause of the first poisoned operand that is read; 1 if there is one. */
int atomr_poison_find(atomr_poison *, const atomr_operand *, unsigned n, atomr_error *cause);
/* Poison every operand that is written, but for memory of the host. */
void atomr_poison_add(atomr_poison *, const atomr_operand *, unsigned n, const atomr_error *cause);
/* Lift the poison of every operand that was overwritten as a whole. */
void atomr_poison_lift(atomr_poison *, const atomr_operand *, unsigned n);
/* Drop entries whose slot was freed and that no message can name any more. */
void atomr_poison_prune(atomr_poison *, const _Atomic uint32_t *generations, const atomr_progress *);
static inline int atomr_poison_is_large(const atomr_poison *p) {
    return atomic_load_explicit(&p->count, memory_order_relaxed) >
           atomic_load_explicit(&p->prune_at, memory_order_relaxed);
}

#endif
