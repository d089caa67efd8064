#include "poison.h"

#include <stdlib.h>
#include <string.h>

enum { KEEP = 256 /* entries that are never worth pruning */ };

struct atomr_cause {
    uint32_t refs;
    atomr_error error;
};

typedef struct atomr_poison_entry {
    struct atomr_poison_entry *next;
    uint64_t key;
    atomr_cause *cause;
    int marked;
    uint32_t mirror; /* its place there, or ATOMR_POISON_MIRROR */
} entry;

static uint64_t key_of(const atomr_operand *o) { return (uint64_t)o->slot << 32 | o->generation; }

static entry **bucket_of(atomr_poison *p, uint64_t key) {
    uint64_t h = key * 0x9e3779b97f4a7c15u;
    return &p->buckets[h >> 54];
}

static entry **find(atomr_poison *p, uint64_t key) {
    entry **at = bucket_of(p, key);
    while (*at && (*at)->key != key) at = &(*at)->next;
    return at;
}

static void drop(atomr_poison *p, entry **at) {
    entry *e = *at;
    *at = e->next;
    if (p->w && e->mirror < ATOMR_POISON_MIRROR)
        atomic_store_explicit(&p->w->poisoned[e->mirror], 0, memory_order_release);
    else if (p->w)
        atomic_fetch_sub(&p->w->poison_overflow, 1);
    if (--e->cause->refs == 0) free(e->cause);
    free(e);
    atomic_fetch_sub_explicit(&p->count, 1, memory_order_relaxed);
}

/* The first free place of the mirror; what does not fit is counted there. */
static uint32_t mirror(atomr_poison *p, uint64_t key) {
    for (uint32_t i = 0; i < ATOMR_POISON_MIRROR; i++) {
        if (atomic_load_explicit(&p->w->poisoned[i], memory_order_relaxed) == 0) {
            atomic_store_explicit(&p->w->poisoned[i], key, memory_order_release);
            return i;
        }
    }
    atomic_fetch_add(&p->w->poison_overflow, 1);
    return ATOMR_POISON_MIRROR;
}

void atomr_poison_init(atomr_poison *p, atomr_wheader *w) {
    memset(p, 0, sizeof *p);
    p->w = w;
    atomic_store(&p->prune_at, KEEP);
    pthread_mutex_init(&p->lock, NULL);
}

/* The mirror stays: the parent reads it when the worker is gone. */
void atomr_poison_release(atomr_poison *p) {
    p->w = NULL;
    for (size_t i = 0; i < sizeof p->buckets / sizeof *p->buckets; i++)
        while (p->buckets[i]) drop(p, &p->buckets[i]);
    pthread_mutex_destroy(&p->lock);
}

/* The relaxed load is enough: a reader of an allocation is ordered after its writer's launch, and so
 * after the writer's `add`, by the acquire load of that lane's progress. */
static int empty(atomr_poison *p) { return atomic_load_explicit(&p->count, memory_order_relaxed) == 0; }

int atomr_poison_find(atomr_poison *p, const atomr_operand *ops, unsigned n, atomr_error *cause) {
    if (empty(p)) return 0;
    int found = 0;
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < n && !found; i++) {
        if (!(ops[i].access & ATOMR_READ)) continue;
        entry *e = *find(p, key_of(&ops[i]));
        if (e) {
            *cause = e->cause->error;
            found = 1;
        }
    }
    pthread_mutex_unlock(&p->lock);
    return found;
}

void atomr_poison_add(atomr_poison *p, const atomr_operand *ops, unsigned n, const atomr_error *error) {
    atomr_cause *cause = NULL;
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < n; i++) {
        if (!(ops[i].access & ATOMR_WRITE) || (ops[i].access & ATOMR_HOST)) continue;
        entry **at = find(p, key_of(&ops[i]));
        if (*at) continue; /* the first cause stays */
        if (!cause) {
            cause = malloc(sizeof *cause);
            if (!cause) abort(); /* nothing safe is left to do: a reader would take garbage for data */
            cause->refs = 0;
            cause->error = *error;
        }
        entry *e = malloc(sizeof *e);
        if (!e) abort();
        *e = (entry){NULL, key_of(&ops[i]), cause, 0, mirror(p, key_of(&ops[i]))};
        cause->refs++;
        *at = e;
        atomic_fetch_add_explicit(&p->count, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&p->lock);
}

void atomr_poison_lift(atomr_poison *p, const atomr_operand *ops, unsigned n) {
    if (empty(p)) return;
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < n; i++) {
        if (!(ops[i].access & ATOMR_OVERWRITE)) continue;
        entry **at = find(p, key_of(&ops[i]));
        if (*at) {
            p->marked -= (uint32_t)(*at)->marked;
            drop(p, at);
        }
    }
    pthread_mutex_unlock(&p->lock);
}

static int is_freed(const entry *e, const _Atomic uint32_t *generations) {
    return atomic_load_explicit(&generations[e->key >> 32], memory_order_acquire) != (uint32_t)e->key;
}

/* In two steps, since a message that was sent before its slot was freed may still be queued.  The first
 * marks the entries of freed slots, then notes how far each lane is published: nobody can send a stale
 * handle, so no later message names them.  The second step, when all lanes are past that, drops them. */
void atomr_poison_prune(atomr_poison *p, const _Atomic uint32_t *generations, const atomr_progress *progress) {
    const size_t n_buckets = sizeof p->buckets / sizeof *p->buckets;
    uint64_t processed[ATOMR_LANES];
    pthread_mutex_lock(&p->lock);
    progress->processed(progress->self, processed);
    int passed = p->marked > 0;
    for (unsigned i = 0; i < ATOMR_LANES && passed; i++) passed = processed[i] >= p->until[i];
    for (size_t b = 0; passed && b < n_buckets; b++) {
        for (entry **at = &p->buckets[b]; *at;) {
            if (!(*at)->marked) {
                at = &(*at)->next;
                continue;
            }
            p->marked--;
            drop(p, at);
        }
    }
    if (p->marked == 0) {
        for (size_t b = 0; b < n_buckets; b++) {
            for (entry *e = p->buckets[b]; e; e = e->next) {
                e->marked = is_freed(e, generations);
                p->marked += (uint32_t)e->marked;
            }
        }
        /* Only now: a message that names a slot was published before that slot's generation changed. */
        progress->published(progress->self, p->until);
    }
    /* Not again before the table has grown by half, so that its cost is spread over many failures. */
    const uint32_t left = atomic_load_explicit(&p->count, memory_order_relaxed);
    const uint32_t step = left - p->marked > 2 * KEEP ? (left - p->marked) / 2 : KEEP;
    atomic_store_explicit(&p->prune_at, p->marked ? left + KEEP / 4 : left + step, memory_order_relaxed);
    pthread_mutex_unlock(&p->lock);
}
