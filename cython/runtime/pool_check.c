/* The self-check of a pool. */
#include "runtime/pool_private.h"

#define RULE(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond)) return __LINE__;                                                              \
    } while (0)

int atomr_pool_check(const atomr_pool *pool) {
    atomr_pool_stats sum = {0};
    uint64_t nodes = 0, frees = 0, waiting = 0;
    for (const struct segment *s = pool->segments; s != NULL; s = s->next) {
        uint64_t offset = 0;
        const node *below = NULL;
        for (const node *n = s->first; n != NULL; below = n, n = n->above) {
            RULE(n->segment == s && n->below == below && n->offset == offset);
            RULE(n->nbytes != 0 && n->nbytes % ATOMR_POOL_UNIT == 0 && n->nbytes <= s->nbytes - offset);
            RULE(n->state == FREE || n->state == WAITING || n->state == LIVE);
            RULE(n->state != LIVE || n->stamps.n == 0);
            RULE(n->state != FREE || !pool->deferred || n->stamps.n == 0);
            RULE(n->state != WAITING || pool->deferred);
            RULE(pool->ragged || below == NULL || n->state != FREE || below->state != FREE);
            *(n->state == FREE ? &sum.free : n->state == LIVE ? &sum.in_use : &sum.deferred) += n->nbytes;
            sum.blocks += n->state == LIVE;
            frees += n->state == FREE;
            waiting += n->state == WAITING;
            offset += n->nbytes;
            nodes++;
        }
        RULE(offset == s->nbytes);
        sum.total += s->nbytes;
        sum.segments++;
    }
    RULE(sum.total == pool->stats.total && sum.in_use == pool->stats.in_use);
    RULE(sum.free == pool->stats.free && sum.deferred == pool->stats.deferred);
    RULE(sum.segments == pool->stats.segments && sum.blocks == pool->stats.blocks);

    for (unsigned row = 0; row < FL_COUNT; row++) {
        RULE((pool->rows >> row & 1) == (pool->row[row] != 0));
        for (unsigned column = 0; column < SL_COUNT; column++) {
            const node *prev = NULL;
            RULE((pool->row[row] >> column & 1) == (pool->heads[row][column] != NULL));
            for (const node *n = pool->heads[row][column]; n != NULL; prev = n, n = n->next) {
                const size_class c = class_of(n->nbytes >> UNIT_SHIFT);
                RULE(n->state == FREE && n->prev == prev && c.row == row && c.column == column);
                RULE(frees-- != 0); /* also ends a loop in a broken list */
            }
        }
    }
    RULE(frees == 0);

    const node *prev = NULL;
    for (const node *n = pool->queue; n != NULL; prev = n, n = n->next) {
        RULE(n->state == WAITING && n->prev == prev && n->stamps.n != 0);
        RULE(waiting-- != 0);
    }
    RULE(waiting == 0 && pool->queue_end == prev);

    for (const node *n = pool->unused; n != NULL; n = n->next) {
        RULE(n->state == UNUSED && n->stamps.n == 0 && n->stamps.items == NULL);
        RULE(++nodes <= (uint64_t)pool->chunks_n * NODES_PER_CHUNK);
    }
    RULE(nodes == (uint64_t)pool->chunks_n * NODES_PER_CHUNK);
    return 0;
}
