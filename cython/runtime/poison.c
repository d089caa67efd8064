#include "runtime/poison.h"

#include <stdlib.h>
#include <string.h>

enum { KEEP = 256 /* entries that are never worth pruning */, TIDY_EVERY = 32 };

struct atomr_outcome {
    uint32_t refs;
    int certain; /* open, but sure to be a failure */
    uint32_t decider;
    enum { OPEN, GOOD, FAILED } state;
    atomr_error error;
};

/* A writer, on top of what was there before it. */
struct atomr_history {
    uint32_t refs;
    int overwrites; /* its success leaves data, whatever was there */
    int poisons;    /* its failure leaves nothing, unless nothing was there already */
    atomr_outcome *outcome;
    atomr_history *before;
};

typedef struct atomr_poison_entry {
    struct atomr_poison_entry *next;
    uint64_t key;
    atomr_history *history;
    int marked;
    uint32_t pushes; /* since its history was tidied up */
    uint32_t mirror; /* its place there, ATOMR_POISON_MIRROR: counted there, or NOT_MIRRORED: its content is open */
} entry;

enum { NOT_MIRRORED = ATOMR_POISON_MIRROR + 1 };

static void *need(size_t size) {
    void *p = calloc(1, size);
    if (!p) abort(); /* nothing safe is left to do: a reader would take garbage for data */
    return p;
}

static void unref_outcome(atomr_outcome *o) {
    if (--o->refs == 0) free(o);
}

static void unref(atomr_history *h) {
    while (h && --h->refs == 0) {
        atomr_history *before = h->before;
        unref_outcome(h->outcome);
        free(h);
        h = before;
    }
}

static atomr_history *ref(atomr_history *h) {
    if (h) h->refs++;
    return h;
}

typedef struct {
    atomr_content content;
    int certain;             /* open, but sure to be poisoned; by which message is not known yet */
    atomr_outcome *outcome;  /* poisoned: the cause */
} verdict;

/* As deep as there are suspended messages, of which each lane has a few dozen. */
static verdict look(const atomr_history *h) {
    if (!h) return (verdict){ATOMR_CLEAN, 0, NULL};
    const int good = h->outcome->state == GOOD;
    if (good && h->overwrites) return (verdict){ATOMR_CLEAN, 0, NULL};
    /* Whatever was there: it may be data soon.  A queue of messages in place is such writers, one on top of another. */
    if (h->outcome->state == OPEN && h->overwrites && !h->outcome->certain) return (verdict){ATOMR_OPEN_OUTCOME, 0, NULL};
    verdict v = look(h->before);
    if (good || v.content == ATOMR_POISONED) return v; /* the first cause stays */
    if (h->outcome->state == FAILED) {
        if (!h->poisons) return v;
        if (v.content == ATOMR_CLEAN) return (verdict){ATOMR_POISONED, 0, h->outcome};
        return (verdict){ATOMR_OPEN_OUTCOME, 1, NULL};
    }
    if (h->outcome->certain) return (verdict){ATOMR_OPEN_OUTCOME, v.certain || h->poisons, NULL};
    return (verdict){ATOMR_OPEN_OUTCOME, v.certain, NULL};
}

/* Let go of what can decide nothing any more: at the top, and now and then further down. */
static atomr_history *simplify(atomr_history *h, int whole) {
    while (h && h->outcome->state == GOOD) {
        atomr_history *before = h->overwrites ? NULL : ref(h->before);
        unref(h);
        h = before;
    }
    for (atomr_history *at = whole ? h : NULL; at; at = at->before) {
        while (at->before && at->before->outcome->state == GOOD) {
            atomr_history *gone = at->before;
            at->before = gone->overwrites ? NULL : ref(gone->before);
            unref(gone);
        }
    }
    return h;
}

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

static void unmirror(atomr_poison *p, entry *e) {
    if (p->w && e->mirror < ATOMR_POISON_MIRROR)
        atomic_store_explicit(&p->w->poisoned[e->mirror], 0, memory_order_release);
    else if (p->w && e->mirror == ATOMR_POISON_MIRROR)
        atomic_fetch_sub(&p->w->poison_overflow, 1);
    e->mirror = NOT_MIRRORED;
}

static void drop(atomr_poison *p, entry **at) {
    entry *e = *at;
    *at = e->next;
    unmirror(p, e);
    unref(e->history);
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

static atomr_history *history_of(atomr_poison *p, const atomr_operand *o) {
    entry *e = *find(p, key_of(o));
    return e ? e->history : NULL;
}

atomr_content atomr_poison_find(atomr_poison *p, const atomr_operand *ops, unsigned n, atomr_error *cause) {
    if (empty(p)) return ATOMR_CLEAN;
    verdict found = {ATOMR_CLEAN, 0, NULL};
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < n && found.content == ATOMR_CLEAN; i++)
        if (ops[i].access & ATOMR_READ) found = look(history_of(p, &ops[i]));
    if (found.content == ATOMR_POISONED) *cause = found.outcome->error;
    pthread_mutex_unlock(&p->lock);
    return found.content;
}

/* Forget the entry if its content is clean, and mirror it if it is poisoned. */
static void settle(atomr_poison *p, entry **at) {
    entry *e = *at;
    const int whole = e->pushes >= TIDY_EVERY;
    if (whole) e->pushes = 0;
    e->history = simplify(e->history, whole);
    const verdict v = look(e->history);
    if (v.content == ATOMR_CLEAN) {
        p->marked -= (uint32_t)e->marked;
        drop(p, at);
    } else if (v.content == ATOMR_POISONED && e->mirror == NOT_MIRRORED) {
        e->mirror = mirror(p, e->key);
    } else if (v.content == ATOMR_OPEN_OUTCOME) {
        unmirror(p, e);
    }
}

/* Put a writer on top of an operand's history. */
static void push(atomr_poison *p, const atomr_operand *o, atomr_outcome *outcome) {
    entry **at = find(p, key_of(o));
    if (!*at) {
        *at = need(sizeof **at);
        **at = (entry){NULL, key_of(o), NULL, 0, 0, NOT_MIRRORED};
        atomic_fetch_add_explicit(&p->count, 1, memory_order_relaxed);
    }
    atomr_history *h = need(sizeof *h);
    *h = (atomr_history){1, (o->access & ATOMR_OVERWRITE) != 0, !(o->access & ATOMR_HOST), outcome, (*at)->history};
    outcome->refs++;
    (*at)->history = h;
    (*at)->pushes++;
    settle(p, at);
}

static atomr_outcome *new_outcome(int state, int certain, const atomr_error *error) {
    atomr_outcome *o = need(sizeof *o);
    o->refs = 1;
    o->state = state;
    o->certain = certain;
    if (error) o->error = *error;
    return o;
}

void atomr_poison_add(atomr_poison *p, const atomr_operand *ops, unsigned n, const atomr_error *error) {
    atomr_outcome *failed = NULL;
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < n; i++) {
        if (!(ops[i].access & ATOMR_WRITE) || (ops[i].access & ATOMR_HOST)) continue;
        if (look(history_of(p, &ops[i])).content == ATOMR_POISONED) continue; /* the first cause stays */
        if (!failed) failed = new_outcome(FAILED, 0, error);
        push(p, &ops[i], failed);
    }
    if (failed) unref_outcome(failed);
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

unsigned atomr_poison_collect(atomr_poison *p, const atomr_operand *ops, unsigned n, atomr_history **histories,
                              int *certain) {
    unsigned found = 0;
    *certain = 0;
    if (empty(p)) return 0;
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < n; i++) {
        if (!(ops[i].access & ATOMR_READ)) continue;
        atomr_history *h = history_of(p, &ops[i]);
        const verdict v = look(h);
        if (v.content == ATOMR_CLEAN) continue;
        histories[found++] = ref(h);
        *certain = *certain || v.certain || v.content == ATOMR_POISONED;
    }
    pthread_mutex_unlock(&p->lock);
    return found;
}

uint32_t atomr_poison_decider(atomr_poison *p, atomr_history *const *histories, unsigned n) {
    uint32_t found = 0;
    int one = 1;
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < n && one; i++) {
        for (const atomr_history *h = histories[i]; h && one; h = h->before) {
            const atomr_outcome *o = h->outcome;
            if (o->state == GOOD && h->overwrites) break;
            if (o->state == GOOD) continue;
            one = o->state == OPEN && !o->certain && o->decider && (!found || found == o->decider);
            found = o->decider;
            if (h->overwrites) break; /* it decided about what this one has read, too */
        }
    }
    pthread_mutex_unlock(&p->lock);
    return one ? found : 0;
}

atomr_outcome *atomr_outcome_new(int certain, uint32_t decider) {
    atomr_outcome *o = new_outcome(OPEN, certain, NULL);
    o->decider = decider;
    return o;
}

void atomr_poison_suspend(atomr_poison *p, const atomr_operand *ops, unsigned n, atomr_outcome *outcome) {
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < n; i++)
        if (ops[i].access & ATOMR_OVERWRITE || ((ops[i].access & ATOMR_WRITE) && !(ops[i].access & ATOMR_HOST)))
            push(p, &ops[i], outcome);
    pthread_mutex_unlock(&p->lock);
}

atomr_content atomr_poison_judge(atomr_poison *p, atomr_history *const *histories, unsigned n, atomr_error *cause) {
    verdict found = {ATOMR_CLEAN, 0, NULL};
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < n && found.content == ATOMR_CLEAN; i++) found = look(histories[i]);
    if (found.content == ATOMR_POISONED) *cause = found.outcome->error;
    pthread_mutex_unlock(&p->lock);
    return found.content;
}

void atomr_poison_resolve(atomr_poison *p, const atomr_operand *ops, unsigned n, atomr_outcome *outcome,
                          const atomr_error *error) {
    pthread_mutex_lock(&p->lock);
    outcome->state = error ? FAILED : GOOD;
    if (error) outcome->error = *error;
    for (unsigned i = 0; i < n; i++) {
        entry **at = find(p, key_of(&ops[i]));
        if (*at) settle(p, at);
    }
    pthread_mutex_unlock(&p->lock);
}

void atomr_poison_forget(atomr_poison *p, atomr_history *const *histories, unsigned n, atomr_outcome *outcome) {
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < n; i++) unref(histories[i]);
    if (outcome) unref_outcome(outcome);
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
