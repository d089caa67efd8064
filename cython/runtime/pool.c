#include "runtime/pool_private.h"

#include <stdlib.h>

/* Fit first looks at so many blocks of the class that the request itself lies in, the latest freed
 * first: a loop that frees and asks for one size gets its own, cached bookkeeping back, although blocks
 * of that class may be smaller than the request and the class could not be used unseen. */
#define OWN_CLASS_SCAN 8
/* Waiting blocks that one allocation asks about. */
#define POLL 8

/* A node's name: its index below, above it a count of its uses, so that a block of the past is told
 * from the present owner of the same node. */
#define INDEX_BITS 24
#define INDEX_MASK ((UINT32_C(1) << INDEX_BITS) - 1)
#define CHUNKS_MAX ((INDEX_MASK + 1) / NODES_PER_CHUNK)

/* ---- classes ---------------------------------------------------------------------------------- */

/* The first class of which every block is large enough. */
static inline size_class class_above(uint64_t units) {
    if (units < SL_COUNT) return (size_class){0, (unsigned)units};
    const unsigned top = 63u - (unsigned)__builtin_clzll(units);
    return class_of(units + (UINT64_C(1) << (top - SL_SHIFT)) - 1);
}

static inline void list_insert(atomr_pool *pool, node *n) {
    const size_class c = class_of(n->nbytes >> UNIT_SHIFT);
    node *head = pool->heads[c.row][c.column];
    n->state = FREE;
    n->prev = NULL;
    n->next = head;
    if (head != NULL) head->prev = n;
    pool->heads[c.row][c.column] = n;
    pool->row[c.row] |= UINT32_C(1) << c.column;
    pool->rows |= UINT64_C(1) << c.row;
}

static inline void list_remove(atomr_pool *pool, node *n) {
    if (n->next != NULL) n->next->prev = n->prev;
    if (n->prev != NULL) {
        n->prev->next = n->next;
        return;
    }
    const size_class c = class_of(n->nbytes >> UNIT_SHIFT);
    pool->heads[c.row][c.column] = n->next;
    if (n->next != NULL) return;
    pool->row[c.row] &= ~(UINT32_C(1) << c.column);
    if (pool->row[c.row] == 0) pool->rows &= ~(UINT64_C(1) << c.row);
}

/* ---- nodes ------------------------------------------------------------------------------------ */

static int nodes_grow(atomr_pool *pool) {
    if (pool->chunks_n == CHUNKS_MAX) return -1;
    if (pool->chunks_n == pool->chunks_cap) {
        const uint32_t cap = pool->chunks_cap != 0 ? pool->chunks_cap * 2 : 16;
        node **chunks = realloc(pool->chunks, cap * sizeof *chunks);
        if (chunks == NULL) return -1;
        pool->chunks = chunks;
        pool->chunks_cap = cap;
    }
    node *chunk = calloc(NODES_PER_CHUNK, sizeof *chunk);
    if (chunk == NULL) return -1;
    for (uint32_t i = NODES_PER_CHUNK; i-- > 0;) {
        chunk[i].name = pool->chunks_n * NODES_PER_CHUNK + i;
        chunk[i].next = pool->unused;
        pool->unused = &chunk[i];
    }
    pool->chunks[pool->chunks_n++] = chunk;
    return 0;
}

/* A node with no stamps, still on the list of unused ones: take it with node_take, or leave it there. */
static inline node *node_peek(atomr_pool *pool) {
    if (pool->unused == NULL && nodes_grow(pool) != 0) return NULL;
    return pool->unused;
}

static inline void node_take(atomr_pool *pool, node *n) { pool->unused = n->next; }

static inline void node_drop(atomr_pool *pool, node *n) {
    n->state = UNUSED;
    n->next = pool->unused;
    pool->unused = n;
}

/* ---- joining ---------------------------------------------------------------------------------- */

/* Moves the stamps of `from` to `into` as well; more than three lanes may need memory. */
static inline int stamps_join(atomr_pool *pool, atomr_stamps *into, atomr_stamps *from) {
    if (from->n == 0) return 0;
    if (into->n == 0) {
        atomr_stamps_move(into, from);
        return 0;
    }
    if (into->n + from->n > ATOMR_STAMPS_FEW) {
        atomr_stamps_prune(into, pool->resolved, pool->ctx);
        atomr_stamps_prune(from, pool->resolved, pool->ctx);
    }
    return atomr_stamps_merge(into, from);
}

/* Joins a block with the free one above it; neither is in a class.  -1 (no memory): both are as they were.
 * Stamps are all that protects a range, so then the two rather stay apart, until sweep() tries again. */
static inline int join(atomr_pool *pool, node *low, node *high) {
    if (stamps_join(pool, &low->stamps, &high->stamps) != 0) {
        pool->ragged = 1;
        return -1;
    }
    low->nbytes += high->nbytes;
    low->above = high->above;
    if (high->above != NULL) high->above->below = low;
    if (high->stamps.items != NULL || high->stamps.n != 0) atomr_stamps_release(&high->stamps);
    node_drop(pool, high);
    return 0;
}

/* Makes a block that is in no list free: joined with its neighbours, and the first to be handed out. */
static inline void make_free(atomr_pool *pool, node *n) {
    pool->stats.free += n->nbytes;
    node *above = n->above, *below = n->below;
    if (above != NULL && above->state == FREE) {
        list_remove(pool, above);
        if (join(pool, n, above) != 0) list_insert(pool, above);
    }
    if (below != NULL && below->state == FREE) {
        list_remove(pool, below);
        if (join(pool, below, n) == 0) {
            n = below;
        } else {
            list_insert(pool, below);
        }
    }
    list_insert(pool, n);
}

/* Joins free neighbours that a want of memory has kept apart. */
static void sweep(atomr_pool *pool) {
    if (!pool->ragged) return;
    pool->ragged = 0;
    for (struct segment *s = pool->segments; s != NULL; s = s->next) {
        for (node *n = s->first; n->above != NULL;) {
            node *above = n->above;
            if (n->state != FREE || above->state != FREE) {
                n = above;
                continue;
            }
            list_remove(pool, n);
            list_remove(pool, above);
            if (join(pool, n, above) != 0) {
                list_insert(pool, above);
                list_insert(pool, n);
                n = above;
            } else {
                list_insert(pool, n);
            }
        }
    }
}

/* ---- waiting blocks --------------------------------------------------------------------------- */

static void queue_push(atomr_pool *pool, node *n) {
    n->state = WAITING;
    n->prev = pool->queue_end;
    n->next = NULL;
    *(pool->queue_end != NULL ? &pool->queue_end->next : &pool->queue) = n;
    pool->queue_end = n;
}

static node *queue_pop(atomr_pool *pool) {
    node *n = pool->queue;
    pool->queue = n->next;
    *(n->next != NULL ? &n->next->prev : &pool->queue_end) = NULL;
    return n;
}

/* Asks about up to `most` of the blocks that waited longest for a question.  Those still in use go to the
 * end: lanes run at their own pace, so a block of a stuck lane must not hide those behind it. */
static void poll_queue(atomr_pool *pool, uint64_t most) {
    node *last = pool->queue_end;
    while (pool->queue != NULL && most-- > 0) {
        node *n = queue_pop(pool);
        const int was_last = n == last;
        if (atomr_stamps_drained(&n->stamps, pool->resolved, pool->ctx)) {
            atomr_stamps_release(&n->stamps);
            pool->stats.deferred -= n->nbytes;
            make_free(pool, n);
        } else {
            queue_push(pool, n);
        }
        if (was_last) return;
    }
}

/* ---- finding ---------------------------------------------------------------------------------- */

static inline node *find_good(const atomr_pool *pool, uint64_t nbytes) {
    const uint64_t units = nbytes >> UNIT_SHIFT;
    const size_class own = class_of(units);
    node *n = pool->heads[own.row][own.column];
    for (int i = 0; n != NULL && i < OWN_CLASS_SCAN; n = n->next, i++) {
        if (n->nbytes >= nbytes) return n;
    }
    size_class c = class_above(units);
    uint32_t columns = pool->row[c.row] & (~UINT32_C(0) << c.column);
    if (columns == 0) {
        /* c.row + 1 is at most 36: no shift by the width. */
        const uint64_t rows = pool->rows & (~UINT64_C(0) << (c.row + 1));
        if (rows == 0) return NULL;
        c.row = (unsigned)__builtin_ctzll(rows);
        columns = pool->row[c.row];
    }
    return pool->heads[c.row][__builtin_ctz(columns)];
}

/* Before saying no, everything: all waiting blocks, joins left undone, the whole of the own class.  So a
 * refusal means that no free range is long enough. */
static node *find_any(atomr_pool *pool, uint64_t nbytes) {
    poll_queue(pool, UINT64_MAX);
    sweep(pool);
    node *n = find_good(pool, nbytes);
    if (n != NULL) return n;
    const size_class own = class_of(nbytes >> UNIT_SHIFT);
    for (n = pool->heads[own.row][own.column]; n != NULL && n->nbytes < nbytes;) n = n->next;
    return n;
}

/* ---- the pool --------------------------------------------------------------------------------- */

atomr_pool *atomr_pool_new(int deferred, atomr_resolved_fn resolved, void *ctx) {
    if (resolved == NULL) return NULL;
    atomr_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) return NULL;
    pool->deferred = deferred != 0;
    pool->resolved = resolved;
    pool->ctx = ctx;
    return pool;
}

void atomr_pool_delete(atomr_pool *pool) {
    if (pool == NULL) return;
    for (uint32_t i = 0; i < pool->chunks_n; i++) {
        for (uint32_t k = 0; k < NODES_PER_CHUNK; k++) atomr_stamps_release(&pool->chunks[i][k].stamps);
        free(pool->chunks[i]);
    }
    free(pool->chunks);
    while (pool->segments != NULL) {
        struct segment *s = pool->segments;
        pool->segments = s->next;
        free(s);
    }
    free(pool);
}

int atomr_pool_add_segment(atomr_pool *pool, uint32_t segment, uint64_t nbytes) {
    nbytes &= ~(ATOMR_POOL_UNIT - 1);
    if (segment == 0 || nbytes == 0 || nbytes > ATOMR_POOL_MAX) return ATOMR_POOL_REFUSED;
    if (nbytes > UINT64_MAX - pool->stats.total) return ATOMR_POOL_REFUSED;
    for (const struct segment *s = pool->segments; s != NULL; s = s->next) {
        if (s->id == segment) return ATOMR_POOL_REFUSED;
    }
    node *n = node_peek(pool);
    if (n == NULL) return ATOMR_NO_MEMORY;
    struct segment *s = malloc(sizeof *s);
    if (s == NULL) return ATOMR_NO_MEMORY;
    node_take(pool, n);
    *s = (struct segment){.id = segment, .nbytes = nbytes, .first = n, .next = pool->segments};
    pool->segments = s;
    n->segment = s;
    n->offset = 0;
    n->nbytes = nbytes;
    n->below = n->above = NULL;
    pool->stats.segments++;
    pool->stats.total += nbytes;
    make_free(pool, n);
    return 0;
}

static int is_empty(atomr_pool *pool, struct segment *s) {
    node *n = s->first;
    return n->state == FREE && n->nbytes == s->nbytes &&
           atomr_stamps_drained(&n->stamps, pool->resolved, pool->ctx);
}

uint32_t atomr_pool_find_empty(atomr_pool *pool) {
    poll_queue(pool, UINT64_MAX);
    sweep(pool);
    for (struct segment *s = pool->segments; s != NULL; s = s->next) {
        if (is_empty(pool, s)) return s->id;
    }
    return 0;
}

int atomr_pool_remove_segment(atomr_pool *pool, uint32_t segment) {
    poll_queue(pool, UINT64_MAX);
    sweep(pool);
    struct segment **at = &pool->segments;
    while (*at != NULL && (*at)->id != segment) at = &(*at)->next;
    struct segment *s = *at;
    if (s == NULL || !is_empty(pool, s)) return ATOMR_POOL_REFUSED;
    *at = s->next;
    list_remove(pool, s->first);
    atomr_stamps_release(&s->first->stamps);
    node_drop(pool, s->first);
    pool->stats.segments--;
    pool->stats.total -= s->nbytes;
    pool->stats.free -= s->nbytes;
    free(s);
    return 0;
}

int atomr_pool_alloc(atomr_pool *pool, uint64_t nbytes, atomr_block *out, atomr_stamps *inherited) {
    if (inherited == NULL && !pool->deferred) return ATOMR_POOL_REFUSED;
    if (nbytes > ATOMR_POOL_MAX) return ATOMR_NO_ROOM;
    nbytes = nbytes == 0 ? ATOMR_POOL_UNIT : (nbytes + ATOMR_POOL_UNIT - 1) & ~(ATOMR_POOL_UNIT - 1);
    if (pool->queue != NULL) poll_queue(pool, POLL);

    node *n = find_good(pool, nbytes);
    if (n == NULL) {
        n = find_any(pool, nbytes);
        if (n == NULL) return ATOMR_NO_ROOM;
    }
    node *rest = NULL;
    if (n->nbytes > nbytes) {
        rest = node_peek(pool);
        if (rest == NULL) return ATOMR_NO_MEMORY;
    }
    /* All that can fail comes before the first change.  (Pruning alone changes nothing that matters.) */
    if (n->stamps.n != 0) {
        atomr_stamps_prune(&n->stamps, pool->resolved, pool->ctx);
        if (rest != NULL && atomr_stamps_merge(&rest->stamps, &n->stamps) != 0) return ATOMR_NO_MEMORY;
        if (atomr_stamps_merge(inherited, &n->stamps) != 0) {
            if (rest != NULL) atomr_stamps_release(&rest->stamps);
            return ATOMR_NO_MEMORY;
        }
        atomr_stamps_release(&n->stamps);
    }

    list_remove(pool, n);
    if (rest != NULL) {
        /* The lower part goes out: what is freed next to the rest joins it again, at its foot. */
        node_take(pool, rest);
        rest->segment = n->segment;
        rest->offset = n->offset + nbytes;
        rest->nbytes = n->nbytes - nbytes;
        rest->below = n;
        rest->above = n->above;
        if (rest->above != NULL) rest->above->below = rest;
        n->above = rest;
        n->nbytes = nbytes;
        list_insert(pool, rest);
    }
    n->state = LIVE;
    n->name += UINT32_C(1) << INDEX_BITS; /* wraps; the index below stays */
    pool->stats.free -= nbytes;
    pool->stats.in_use += nbytes;
    pool->stats.blocks++;
    *out = (atomr_block){.segment = n->segment->id, .node = n->name, .offset = n->offset, .nbytes = nbytes};
    return 0;
}

/* The node of a block in use, or NULL for anything else. */
static inline node *node_of(const atomr_pool *pool, const atomr_block *block) {
    const uint32_t index = block->node & INDEX_MASK;
    if (index / NODES_PER_CHUNK >= pool->chunks_n) return NULL;
    node *n = &pool->chunks[index / NODES_PER_CHUNK][index % NODES_PER_CHUNK];
    if (n->state != LIVE || n->name != block->node || n->offset != block->offset ||
        n->nbytes != block->nbytes || n->segment->id != block->segment)
        return NULL;
    return n;
}

int atomr_pool_free(atomr_pool *pool, const atomr_block *block, atomr_stamps *stamps) {
    node *n = node_of(pool, block);
    if (n == NULL) return ATOMR_POOL_REFUSED;
    pool->stats.in_use -= n->nbytes;
    pool->stats.blocks--;
    if (stamps != NULL && stamps->n != 0) {
        if (pool->deferred && !atomr_stamps_drained(stamps, pool->resolved, pool->ctx)) {
            atomr_stamps_move(&n->stamps, stamps);
            pool->stats.deferred += n->nbytes;
            queue_push(pool, n);
            return 0;
        }
        if (!pool->deferred) atomr_stamps_move(&n->stamps, stamps);
    }
    if (stamps != NULL) atomr_stamps_release(stamps);
    make_free(pool, n);
    return 0;
}

const atomr_pool_stats *atomr_pool_figures(const atomr_pool *pool) { return &pool->stats; }

void atomr_pool_get_stats(atomr_pool *pool, atomr_pool_stats *out) {
    poll_queue(pool, UINT64_MAX);
    sweep(pool);
    *out = pool->stats;
    out->largest = 0;
    if (pool->rows == 0) return;
    const unsigned row = 63u - (unsigned)__builtin_clzll(pool->rows);
    const unsigned column = 31u - (unsigned)__builtin_clz(pool->row[row]);
    for (const node *n = pool->heads[row][column]; n != NULL; n = n->next) {
        if (n->nbytes > out->largest) out->largest = n->nbytes;
    }
}
