/* What pool.c and its self-check share. */
#ifndef ATOMR_POOL_PRIVATE_H
#define ATOMR_POOL_PRIVATE_H

#include "runtime/pool.h"

/* Sizes inside are in units of 256 bytes: 1 .. 2^39. */
#define UNIT_SHIFT 8
#define SL_SHIFT 5
#define SL_COUNT (1u << SL_SHIFT)
/* Row 0 holds the sizes below 32 exactly; row r > 0 the sizes from 2^(r+4), in 32 steps. */
#define FL_COUNT 36
_Static_assert(ATOMR_POOL_MAX >> UNIT_SHIFT == UINT64_C(1) << (FL_COUNT + SL_SHIFT - 2), "rows");

#define NODES_PER_CHUNK 256u

enum state { UNUSED, FREE, WAITING, LIVE };

struct segment;

typedef struct node {
    uint64_t offset;
    uint64_t nbytes;
    struct segment *segment;
    struct node *below, *above; /* physical neighbours in the segment */
    struct node *prev, *next;   /* in a class (FREE), in the queue (WAITING), among the unused (next) */
    uint32_t name;
    enum state state;
    atomr_stamps stamps; /* empty while LIVE: the owner has them */
} node;

struct segment {
    uint32_t id;
    uint64_t nbytes;
    /* At offset 0, for the life of the segment: splitting and joining keep the lower node. */
    node *first;
    struct segment *next;
};

struct atomr_pool {
    atomr_resolved_fn resolved;
    void *ctx;
    int deferred;
    /* A join has failed for want of memory, so that free neighbours may exist. */
    int ragged;

    uint64_t rows;         /* which rows have room */
    uint32_t row[FL_COUNT]; /* which classes of the row have */
    node *heads[FL_COUNT][SL_COUNT];

    node *queue, *queue_end; /* waiting blocks */
    node *unused;
    struct segment *segments;

    /* Chunks never move, so that nodes are pointers; they are kept until the pool goes. */
    node **chunks;
    uint32_t chunks_n, chunks_cap;

    atomr_pool_stats stats; /* all but `largest` */
};

/* ---- classes ---------------------------------------------------------------------------------- */

typedef struct {
    unsigned row, column;
} size_class;

/* The class in which a free block of that size lies. */
static inline size_class class_of(uint64_t units) {
    if (units < SL_COUNT) return (size_class){0, (unsigned)units};
    const unsigned top = 63u - (unsigned)__builtin_clzll(units);
    return (size_class){top - SL_SHIFT + 1, (unsigned)(units >> (top - SL_SHIFT)) - SL_COUNT};
}

#endif
