/* What the tests of stamps and of the pool share: allocations that fail, lanes that complete, a pool to test. */
#ifndef ATOMR_TESTS_POOL_RIG_H
#define ATOMR_TESTS_POOL_RIG_H

#include "check.h"

#include <stdatomic.h>

#include "runtime/pool.h"

#define U ATOMR_POOL_UNIT

/* ---- allocations of the core that fail on purpose (see ALLOCATIONS in the Makefile) -------------- */

void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);

static int fail_all;              /* every allocation fails */
static uint32_t fail_one_in;      /* some do, 0: none */
static uint64_t fail_state = 99;
static uint64_t failed;

static inline int failing(void) {
    if (!fail_all && (fail_one_in == 0 || check_random(&fail_state) % fail_one_in != 0)) return 0;
    failed++;
    return 1;
}
void *__wrap_malloc(size_t n) { return failing() ? NULL : __real_malloc(n); }
void *__wrap_calloc(size_t k, size_t n) { return failing() ? NULL : __real_calloc(k, n); }
void *__wrap_realloc(void *p, size_t n) { return failing() ? NULL : __real_realloc(p, n); }

/* ---- lanes: a ticket is resolved when its lane has completed it ----------------------------------- */

static _Atomic uint64_t completed[ATOMR_LANES];

/* `ctx`, if any, counts the questions. */
static inline int is_resolved(void *ctx, atomr_stamp stamp) {
    if (ctx != NULL) ++*(uint64_t *)ctx;
    const unsigned lane = atomr_stamp_lane(stamp);
    CHECK(lane < ATOMR_LANES);
    return atomic_load_explicit(&completed[lane], memory_order_acquire) >= atomr_stamp_ticket(stamp);
}

static inline void complete_none(void) {
    for (int i = 0; i < ATOMR_LANES; i++) atomic_store(&completed[i], 0);
}
static inline void complete_all(void) {
    for (int i = 0; i < ATOMR_LANES; i++) atomic_store(&completed[i], ATOMR_TICKET_MASK);
}

static inline atomr_pool *new_pool(int deferred) {
    complete_none();
    atomr_pool *pool = atomr_pool_new(deferred, is_resolved, NULL);
    CHECK(pool != NULL);
    return pool;
}

static inline atomr_pool_stats stats_of(atomr_pool *pool) {
    atomr_pool_stats s;
    CHECK_EQ(atomr_pool_check(pool), 0);
    atomr_pool_get_stats(pool, &s);
    CHECK_EQ(atomr_pool_check(pool), 0);
    CHECK_EQ(s.total, s.in_use + s.free + s.deferred);
    CHECK(s.largest <= s.free);
    return s;
}

/* Allocates, and expects nothing to be inherited. */
static inline atomr_block get(atomr_pool *pool, uint64_t nbytes) {
    atomr_block b;
    atomr_stamps s;
    atomr_stamps_init(&s);
    CHECK_EQ(atomr_pool_alloc(pool, nbytes, &b, &s), 0);
    CHECK_EQ(s.n, 0);
    CHECK(b.offset % U == 0 && b.nbytes % U == 0 && b.nbytes >= nbytes && b.nbytes != 0);
    return b;
}

static inline void put(atomr_pool *pool, atomr_block b) { CHECK_EQ(atomr_pool_free(pool, &b, NULL), 0); }

static inline void put_stamped(atomr_pool *pool, atomr_block b, unsigned lane, uint64_t ticket) {
    atomr_stamps s;
    atomr_stamps_init(&s);
    CHECK_EQ(atomr_stamps_add(&s, atomr_stamp_make(lane, ticket)), 0);
    CHECK_EQ(atomr_pool_free(pool, &b, &s), 0);
    CHECK_EQ(s.n, 0);
}

static inline int has(const atomr_stamps *s, unsigned lane, uint64_t ticket) {
    for (uint32_t i = 0; i < s->n; i++) {
        if (atomr_stamps_data(s)[i] == atomr_stamp_make(lane, ticket)) return 1;
    }
    return 0;
}

#endif
