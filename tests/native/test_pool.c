/* Stamps and the pool: directed tests, and long random ones against an oracle that keeps an owner and
 * all stamps for each single unit of 256 bytes. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>

#include "pool.h"

#define U ATOMR_POOL_UNIT

/* ---- allocations of the core that fail on purpose (see LDFLAGS_test_pool) ----------------------- */

void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);

static int fail_all;              /* every allocation fails */
static uint32_t fail_one_in;      /* some do, 0: none */
static uint64_t fail_state = 99;
static uint64_t failed;

static int failing(void) {
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
static int is_resolved(void *ctx, atomr_stamp stamp) {
    if (ctx != NULL) ++*(uint64_t *)ctx;
    const unsigned lane = atomr_stamp_lane(stamp);
    CHECK(lane < ATOMR_LANES);
    return atomic_load_explicit(&completed[lane], memory_order_acquire) >= atomr_stamp_ticket(stamp);
}

static void complete_none(void) {
    for (int i = 0; i < ATOMR_LANES; i++) atomic_store(&completed[i], 0);
}
static void complete_all(void) {
    for (int i = 0; i < ATOMR_LANES; i++) atomic_store(&completed[i], ATOMR_TICKET_MASK);
}

static atomr_pool *new_pool(int deferred) {
    complete_none();
    atomr_pool *pool = atomr_pool_new(deferred, is_resolved, NULL);
    CHECK(pool != NULL);
    return pool;
}

static atomr_pool_stats stats_of(atomr_pool *pool) {
    atomr_pool_stats s;
    CHECK_EQ(atomr_pool_check(pool), 0);
    atomr_pool_get_stats(pool, &s);
    CHECK_EQ(atomr_pool_check(pool), 0);
    CHECK_EQ(s.total, s.in_use + s.free + s.deferred);
    CHECK(s.largest <= s.free);
    return s;
}

/* Allocates, and expects nothing to be inherited. */
static atomr_block get(atomr_pool *pool, uint64_t nbytes) {
    atomr_block b;
    atomr_stamps s;
    atomr_stamps_init(&s);
    CHECK_EQ(atomr_pool_alloc(pool, nbytes, &b, &s), 0);
    CHECK_EQ(s.n, 0);
    CHECK(b.offset % U == 0 && b.nbytes % U == 0 && b.nbytes >= nbytes && b.nbytes != 0);
    return b;
}

static void put(atomr_pool *pool, atomr_block b) { CHECK_EQ(atomr_pool_free(pool, &b, NULL), 0); }

static void put_stamped(atomr_pool *pool, atomr_block b, unsigned lane, uint64_t ticket) {
    atomr_stamps s;
    atomr_stamps_init(&s);
    CHECK_EQ(atomr_stamps_add(&s, atomr_stamp_make(lane, ticket)), 0);
    CHECK_EQ(atomr_pool_free(pool, &b, &s), 0);
    CHECK_EQ(s.n, 0);
}

static int has(const atomr_stamps *s, unsigned lane, uint64_t ticket) {
    for (uint32_t i = 0; i < s->n; i++) {
        if (atomr_stamps_data(s)[i] == atomr_stamp_make(lane, ticket)) return 1;
    }
    return 0;
}

/* ---- stamps ------------------------------------------------------------------------------------ */

static void test_stamp_fields(void) {
    const atomr_stamp s = atomr_stamp_make(63, ATOMR_TICKET_MASK);
    CHECK_EQ(atomr_stamp_lane(s), 63);
    CHECK(atomr_stamp_ticket(s) == ATOMR_TICKET_MASK);
    CHECK_EQ(atomr_stamp_lane(atomr_stamp_make(0, 7)), 0);
    CHECK_EQ(atomr_stamp_ticket(atomr_stamp_make(0, 7)), 7);
}

static void check_against(const atomr_stamps *s, const uint64_t *want) {
    uint32_t n = 0;
    for (unsigned lane = 0; lane < ATOMR_LANES; lane++) {
        if (want[lane] == 0) continue;
        CHECK(n < s->n);
        CHECK(atomr_stamps_data(s)[n] == atomr_stamp_make(lane, want[lane]));
        n++;
    }
    CHECK_EQ(s->n, n);
}

static void test_stamps_random(void) {
    uint64_t rng = 7;
    for (int round = 0; round < 3000; round++) {
        /* Few lanes in some rounds, all in others: inline, on the heap, and the way between. */
        const unsigned lanes = 1 + check_random(&rng) % (round % 2 ? 5 : ATOMR_LANES);
        uint64_t want[2][ATOMR_LANES] = {{0}};
        atomr_stamps sets[2];
        for (int k = 0; k < 2; k++) {
            atomr_stamps_init(&sets[k]);
            for (uint64_t i = check_random(&rng) % 80; i > 0; i--) {
                const unsigned lane = check_random(&rng) % lanes;
                const uint64_t ticket = 1 + check_random(&rng) % 100;
                CHECK_EQ(atomr_stamps_add(&sets[k], atomr_stamp_make(lane, ticket)), 0);
                if (ticket > want[k][lane]) want[k][lane] = ticket;
            }
            check_against(&sets[k], want[k]);
        }
        CHECK_EQ(atomr_stamps_merge(&sets[0], &sets[1]), 0);
        CHECK_EQ(atomr_stamps_merge(&sets[0], &sets[0]), 0);
        check_against(&sets[1], want[1]);
        for (unsigned i = 0; i < ATOMR_LANES; i++) {
            if (want[1][i] > want[0][i]) want[0][i] = want[1][i];
            atomic_store(&completed[i], check_random(&rng) % 100);
        }
        check_against(&sets[0], want[0]);

        /* Moved as bytes: the struct must not point into itself. */
        atomr_stamps elsewhere;
        memcpy(&elsewhere, &sets[0], sizeof elsewhere);
        memset(&sets[0], 0xee, sizeof sets[0]);
        check_against(&elsewhere, want[0]);
        atomr_stamps_init(&sets[0]);

        atomr_stamps_move(&sets[1], &elsewhere);
        CHECK_EQ(elsewhere.n, 0);
        check_against(&sets[1], want[0]);
        atomr_stamps_prune(&sets[1], is_resolved, NULL);
        int open = 0;
        for (unsigned i = 0; i < ATOMR_LANES; i++) {
            if (want[0][i] <= atomic_load(&completed[i])) want[0][i] = 0;
            open |= want[0][i] != 0;
        }
        check_against(&sets[1], want[0]);
        CHECK_EQ(atomr_stamps_drained(&sets[1], is_resolved, NULL), !open);
        check_against(&sets[1], want[0]); /* what is open is never dropped */
        complete_all();
        CHECK(atomr_stamps_drained(&sets[1], is_resolved, NULL));
        CHECK_EQ(sets[1].n, 0);
        atomr_stamps_release(&sets[1]);
        atomr_stamps_release(&sets[1]);
    }
}

static void test_stamps_without_memory(void) {
    atomr_stamps a, b;
    atomr_stamps_init(&a);
    atomr_stamps_init(&b);
    fail_all = 1;
    for (unsigned lane = 0; lane < 3; lane++) {
        CHECK_EQ(atomr_stamps_add(&a, atomr_stamp_make(lane, 5)), 0);
        CHECK_EQ(atomr_stamps_add(&b, atomr_stamp_make(lane + 1, 6)), 0);
    }
    CHECK_EQ(atomr_stamps_add(&a, atomr_stamp_make(9, 1)), -1);
    CHECK_EQ(atomr_stamps_merge(&a, &b), -1);
    CHECK_EQ(a.n, 3);
    CHECK(has(&a, 0, 5) && has(&a, 1, 5) && has(&a, 2, 5));
    CHECK_EQ(atomr_stamps_add(&a, atomr_stamp_make(2, 8)), 0); /* a lane it has needs no room */
    CHECK(has(&a, 2, 8));
    fail_all = 0;
    CHECK_EQ(atomr_stamps_merge(&a, &b), 0);
    CHECK_EQ(a.n, 4);
    CHECK(has(&a, 0, 5) && has(&a, 1, 6) && has(&a, 2, 8) && has(&a, 3, 6));
    atomr_stamps_clear(&a);
    CHECK_EQ(a.n, 0);
    atomr_stamps_release(&a);
}

/* ---- the pool, directed -------------------------------------------------------------------------- */

static void test_sizes_and_alignment(void) {
    atomr_pool *pool = new_pool(0);
    atomr_block b;
    atomr_stamps s;
    atomr_stamps_init(&s);
    CHECK_EQ(atomr_pool_alloc(pool, 1, &b, &s), ATOMR_NO_ROOM); /* no segment yet */
    CHECK_EQ(atomr_pool_add_segment(pool, 1, 100 * U + 255), 0);
    CHECK_EQ(stats_of(pool).total, 100 * U);
    const struct {
        uint64_t asked, got;
    } cases[] = {{0, U}, {1, U}, {255, U}, {256, U}, {257, 2 * U}, {511, 2 * U}, {513, 3 * U}};
    uint64_t offset = 0;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        b = get(pool, cases[i].asked);
        CHECK_EQ(b.nbytes, cases[i].got);
        CHECK_EQ(b.offset, offset);
        CHECK_EQ(b.segment, 1);
        offset += b.nbytes;
    }
    CHECK_EQ(stats_of(pool).in_use, offset);
    CHECK_EQ(stats_of(pool).largest, 100 * U - offset);
    CHECK_EQ(atomr_pool_alloc(pool, 100 * U - offset + 1, &b, &s), ATOMR_NO_ROOM);
    b = get(pool, 100 * U - offset);
    CHECK_EQ(stats_of(pool).free, 0);
    CHECK_EQ(stats_of(pool).largest, 0);
    CHECK_EQ(atomr_pool_alloc(pool, 0, &b, &s), ATOMR_NO_ROOM);
    CHECK_EQ(atomr_pool_alloc(pool, 1, &b, NULL), ATOMR_POOL_REFUSED); /* stamps would be lost */
    atomr_pool_delete(pool);
    atomr_pool_delete(NULL);
    CHECK(atomr_pool_new(0, NULL, NULL) == NULL);
}

static void test_huge(void) {
    atomr_pool *pool = new_pool(0);
    atomr_block b;
    atomr_stamps s;
    atomr_stamps_init(&s);
    CHECK_EQ(atomr_pool_add_segment(pool, 0, U), ATOMR_POOL_REFUSED);
    CHECK_EQ(atomr_pool_add_segment(pool, 1, 0), ATOMR_POOL_REFUSED);
    CHECK_EQ(atomr_pool_add_segment(pool, 1, U - 1), ATOMR_POOL_REFUSED);
    CHECK_EQ(atomr_pool_add_segment(pool, 1, ATOMR_POOL_MAX + U), ATOMR_POOL_REFUSED);
    CHECK_EQ(atomr_pool_add_segment(pool, 1, UINT64_MAX), ATOMR_POOL_REFUSED);
    CHECK_EQ(atomr_pool_add_segment(pool, UINT32_MAX, ATOMR_POOL_MAX), 0);
    CHECK_EQ(atomr_pool_add_segment(pool, UINT32_MAX, U), ATOMR_POOL_REFUSED); /* known */
    for (uint64_t n = UINT64_MAX; n > ATOMR_POOL_MAX; n = n / 2 + 1) {
        CHECK_EQ(atomr_pool_alloc(pool, n, &b, &s), ATOMR_NO_ROOM);
        CHECK_EQ(atomr_pool_alloc(pool, n - 1, &b, &s), n - 1 > ATOMR_POOL_MAX ? ATOMR_NO_ROOM : 0);
        if (n - 1 <= ATOMR_POOL_MAX) {
            put(pool, b);
            break; /* n has come to a fixed point */
        }
    }
    b = get(pool, ATOMR_POOL_MAX);
    CHECK(b.offset == 0 && b.nbytes == ATOMR_POOL_MAX);
    put(pool, b);
    b = get(pool, ATOMR_POOL_MAX - 255);
    CHECK(b.nbytes == ATOMR_POOL_MAX);
    put(pool, b);
    /* Every power of two and its neighbours: the borders of all classes. */
    for (unsigned bit = 8; bit < 47; bit++) {
        for (int d = -1; d <= 1; d++) {
            const uint64_t n = (UINT64_C(1) << bit) + (uint64_t)(d * (int64_t)U);
            const atomr_block x = get(pool, n);
            const atomr_block y = get(pool, ATOMR_POOL_MAX - x.nbytes); /* the exact rest */
            CHECK(y.offset == x.nbytes);
            CHECK_EQ(atomr_pool_alloc(pool, 1, &b, &s), ATOMR_NO_ROOM);
            put(pool, x);
            const atomr_block z = get(pool, n);
            CHECK(z.offset == x.offset);
            put(pool, y);
            put(pool, z);
            CHECK(stats_of(pool).largest == ATOMR_POOL_MAX);
        }
    }
    atomr_pool_delete(pool);
}

static void test_bad_frees(void) {
    atomr_pool *pool = new_pool(0);
    CHECK_EQ(atomr_pool_add_segment(pool, 7, 64 * U), 0);
    const atomr_block a = get(pool, 4 * U), b = get(pool, 4 * U), c = get(pool, 4 * U);
    atomr_stamps s;
    atomr_stamps_init(&s);
    for (unsigned lane = 0; lane < 6; lane++) CHECK_EQ(atomr_stamps_add(&s, atomr_stamp_make(lane, 3)), 0);

    atomr_block bad;
    uint64_t rng = 3;
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        bad = b;                                                                                   \
        change;                                                                                    \
        CHECK_EQ(atomr_pool_free(pool, &bad, &s), ATOMR_POOL_REFUSED);                             \
        CHECK_EQ(s.n, 6); /* left with the caller */                                               \
    } while (0)
    REFUSED(bad.segment = 8);
    REFUSED(bad.segment = 0);
    REFUSED(bad.offset += U);
    REFUSED(bad.offset += 1);
    REFUSED(bad.offset = UINT64_MAX);
    REFUSED(bad.nbytes += U);
    REFUSED(bad.nbytes = 0);
    REFUSED(bad.node = a.node);
    REFUSED(bad.node = UINT32_MAX);
    REFUSED(bad.node ^= 1u << 31);
    REFUSED(bad.node += 200); /* exists, and is unused */
    REFUSED(memset(&bad, 0, sizeof bad));
    for (int i = 0; i < 100000; i++) REFUSED(bad.node ^= 1 + (uint32_t)(check_random(&rng) >> 33));
    CHECK_EQ(stats_of(pool).blocks, 3);

    CHECK_EQ(atomr_pool_free(pool, &b, &s), 0);
    CHECK_EQ(s.n, 0);
    for (int i = 0; i < 6; i++) CHECK_EQ(atomr_stamps_add(&s, atomr_stamp_make((unsigned)i, 4)), 0);
    CHECK_EQ(atomr_pool_free(pool, &b, &s), ATOMR_POOL_REFUSED); /* twice */
    complete_all();
    /* The same range and node for a new owner: the old name must not free it. */
    for (int i = 0; i < 200; i++) {
        const atomr_block d = get(pool, 4 * U);
        CHECK(d.offset == b.offset && d.node != b.node);
        CHECK_EQ(atomr_pool_free(pool, &b, &s), ATOMR_POOL_REFUSED);
        put(pool, d);
        CHECK_EQ(atomr_pool_free(pool, &d, &s), ATOMR_POOL_REFUSED);
    }
    /* A node that was joined into another. */
    put(pool, a);
    put(pool, c);
    for (int i = 0; i < 3; i++) {
        const atomr_block *old[] = {&a, &b, &c};
        CHECK_EQ(atomr_pool_free(pool, old[i], &s), ATOMR_POOL_REFUSED);
    }
    /* A segment that came back under its old name. */
    CHECK_EQ(atomr_pool_remove_segment(pool, 7), 0);
    CHECK_EQ(atomr_pool_free(pool, &a, &s), ATOMR_POOL_REFUSED);
    CHECK_EQ(atomr_pool_add_segment(pool, 7, 64 * U), 0);
    const atomr_block e = get(pool, 4 * U);
    CHECK_EQ(atomr_pool_free(pool, &a, &s), ATOMR_POOL_REFUSED);
    put(pool, e);
    CHECK_EQ(stats_of(pool).largest, 64 * U);
    atomr_stamps_release(&s);
    atomr_pool_delete(pool);
}

static void permute(int *order, int n, int k, void (*visit)(const int *, int)) {
    if (k == n) {
        visit(order, n);
        return;
    }
    for (int i = k; i < n; i++) {
        int t = order[k];
        order[k] = order[i], order[i] = t;
        permute(order, n, k + 1, visit);
        t = order[k];
        order[k] = order[i], order[i] = t;
    }
}

static void free_in_order(const int *order, int n) {
    atomr_pool *pool = new_pool(0);
    atomr_block b[8];
    uint64_t total = 0;
    for (int i = 0; i < n; i++) total += (uint64_t)(i + 1) * U;
    CHECK_EQ(atomr_pool_add_segment(pool, 1, total), 0);
    for (int i = 0; i < n; i++) b[i] = get(pool, (uint64_t)(i + 1) * U);
    for (int i = 0; i < n; i++) {
        put_stamped(pool, b[order[i]], (unsigned)order[i], 1);
        CHECK_EQ(atomr_pool_check(pool), 0); /* no two free neighbours, among others */
    }
    CHECK_EQ(stats_of(pool).largest, total);
    CHECK_EQ(atomr_pool_find_empty(pool), 0); /* open stamps */
    atomr_block whole;
    atomr_stamps s;
    atomr_stamps_init(&s);
    CHECK_EQ(atomr_pool_alloc(pool, total, &whole, &s), 0);
    CHECK_EQ(s.n, n); /* those of every part */
    CHECK_EQ(atomr_pool_free(pool, &whole, &s), 0);
    complete_all();
    CHECK_EQ(atomr_pool_find_empty(pool), 1);
    CHECK_EQ(atomr_pool_remove_segment(pool, 1), 0);
    CHECK_EQ(stats_of(pool).total, 0);
    atomr_pool_delete(pool);
}

static void test_joining_in_every_order(void) {
    int order[] = {0, 1, 2, 3, 4, 5};
    permute(order, 6, 0, free_in_order);
}

static void test_split_keeps_stamps(void) {
    atomr_pool *pool = new_pool(0);
    CHECK_EQ(atomr_pool_add_segment(pool, 1, 16 * U), 0);
    atomr_block whole = get(pool, 16 * U), a, b, c;
    atomr_stamps s;
    atomr_stamps_init(&s);
    for (unsigned lane = 0; lane < 5; lane++) CHECK_EQ(atomr_stamps_add(&s, atomr_stamp_make(lane, 10 + lane)), 0);
    CHECK_EQ(atomr_pool_free(pool, &whole, &s), 0);
    CHECK_EQ(atomr_pool_alloc(pool, 4 * U, &a, &s), 0); /* at once, with all five */
    CHECK_EQ(s.n, 5);
    for (unsigned lane = 0; lane < 5; lane++) CHECK(has(&s, lane, 10 + lane));
    atomic_store(&completed[2], 12);
    atomic_store(&completed[4], 13);
    atomr_stamps_clear(&s);
    CHECK_EQ(atomr_pool_alloc(pool, 4 * U, &b, &s), 0); /* of the rest: those still open */
    CHECK_EQ(s.n, 4);
    CHECK(!has(&s, 2, 12) && has(&s, 4, 14));
    /* What the set holds already stays. */
    atomr_stamps_clear(&s);
    CHECK_EQ(atomr_stamps_add(&s, atomr_stamp_make(0, 99)), 0);
    CHECK_EQ(atomr_stamps_add(&s, atomr_stamp_make(40, 1)), 0);
    CHECK_EQ(atomr_pool_alloc(pool, 8 * U, &c, &s), 0);
    CHECK(has(&s, 0, 99) && has(&s, 40, 1) && has(&s, 1, 11));
    CHECK_EQ(s.n, 5);
    /* Stamps of one block do not reach a neighbour in use. */
    atomr_stamps_clear(&s);
    put_stamped(pool, b, 7, 7);
    put(pool, c);
    CHECK_EQ(atomr_pool_alloc(pool, 12 * U, &b, &s), 0);
    CHECK_EQ(s.n, 1);
    CHECK(has(&s, 7, 7));
    put(pool, a);
    a = get(pool, 4 * U);
    atomr_stamps_release(&s);
    atomr_pool_delete(pool);
}

static void test_latest_freed_first(void) {
    atomr_pool *pool = new_pool(0);
    CHECK_EQ(atomr_pool_add_segment(pool, 1, 4096 * U), 0);
    atomr_block b[8], walls[8];
    /* 101 units: a class of which blocks may be too small, so that the own class must be looked into. */
    for (int i = 0; i < 8; i++) b[i] = get(pool, (uint64_t)(100 + i % 2) * U), walls[i] = get(pool, U);
    for (int i = 0; i < 8; i++) put(pool, b[i]);
    CHECK_EQ(get(pool, 101 * U).offset, b[7].offset);
    CHECK_EQ(get(pool, 101 * U).offset, b[5].offset);
    CHECK_EQ(get(pool, 100 * U).offset, b[6].offset);
    put(pool, walls[0]);
    atomr_pool_delete(pool);

    /* What statistics call the largest range can be had, wherever it hides in its class. */
    pool = new_pool(0);
    CHECK_EQ(atomr_pool_add_segment(pool, 1, (101 + 20 * 101) * U), 0);
    atomr_block big = get(pool, 101 * U), small[20];
    for (int i = 0; i < 20; i++) small[i] = get(pool, 100 * U), (void)get(pool, U);
    CHECK_EQ(stats_of(pool).free, 0);
    put(pool, big); /* the first of its neighbours is in use, 20 smaller ones come before it in the list */
    for (int i = 1; i < 20; i++) put(pool, small[i]);
    CHECK_EQ(stats_of(pool).largest, 101 * U);
    CHECK_EQ(get(pool, 101 * U).offset, big.offset);
    atomr_pool_delete(pool);
}

static void test_deferred(void) {
    atomr_pool *pool = new_pool(1);
    atomr_block a, b, c;
    CHECK_EQ(atomr_pool_add_segment(pool, 1, 12 * U), 0);
    CHECK_EQ(atomr_pool_alloc(pool, 4 * U, &a, NULL), 0);
    CHECK_EQ(atomr_pool_alloc(pool, 4 * U, &b, NULL), 0);
    CHECK_EQ(atomr_pool_alloc(pool, 4 * U, &c, NULL), 0);
    put_stamped(pool, a, 1, 5); /* its lane is stuck */
    put_stamped(pool, b, 2, 5);
    CHECK_EQ(atomr_pool_free(pool, &a, NULL), ATOMR_POOL_REFUSED); /* twice, while it waits */
    CHECK_EQ(stats_of(pool).deferred, 8 * U);
    CHECK_EQ(stats_of(pool).blocks, 1);
    CHECK_EQ(stats_of(pool).free, 0);
    atomr_block d;
    CHECK_EQ(atomr_pool_alloc(pool, U, &d, NULL), ATOMR_NO_ROOM);
    CHECK_EQ(atomr_pool_remove_segment(pool, 1), ATOMR_POOL_REFUSED);
    atomic_store(&completed[2], 5);
    CHECK_EQ(atomr_pool_alloc(pool, 4 * U, &d, NULL), 0);
    CHECK_EQ(d.offset, b.offset); /* although the other waits before it */
    put(pool, c);
    CHECK_EQ(stats_of(pool).free, 4 * U);
    put_stamped(pool, d, 2, 4); /* resolved when freed: free at once, and joined */
    CHECK_EQ(stats_of(pool).largest, 8 * U);
    CHECK_EQ(atomr_pool_find_empty(pool), 0);
    atomic_store(&completed[1], 5);
    CHECK_EQ(stats_of(pool).largest, 12 * U);
    CHECK_EQ(atomr_pool_find_empty(pool), 1);
    CHECK_EQ(atomr_pool_remove_segment(pool, 1), 0);
    atomr_pool_delete(pool);
}

static void test_deferred_polls_a_bounded_part(void) {
    complete_none();
    uint64_t questions = 0;
    atomr_pool *pool = atomr_pool_new(1, is_resolved, &questions);
    CHECK_EQ(atomr_pool_add_segment(pool, 1, 4096 * U), 0);
    atomr_block b[1000], x;
    for (int i = 0; i < 1000; i++) CHECK_EQ(atomr_pool_alloc(pool, U, &b[i], NULL), 0);
    for (int i = 0; i < 1000; i++) {
        atomr_stamps s;
        atomr_stamps_init(&s);
        for (unsigned lane = 0; lane < 40; lane++) CHECK_EQ(atomr_stamps_add(&s, atomr_stamp_make(lane, 1)), 0);
        /* All but one in a hundred wait for lane 51 too. */
        if (i % 100 != 99) CHECK_EQ(atomr_stamps_add(&s, atomr_stamp_make(51, 1)), 0);
        CHECK_EQ(atomr_pool_free(pool, &b[i], &s), 0);
    }
    questions = 0;
    CHECK_EQ(atomr_pool_alloc(pool, U, &x, NULL), 0);
    CHECK(questions <= 16); /* not the whole queue */
    for (int i = 0; i < 40; i++) atomic_store(&completed[i], 1);
    /* The ten that are resolved come out, whatever waits before them, within a turn of the queue. */
    for (int i = 0; i < 300; i++) put(pool, get(pool, U));
    atomr_pool_stats s;
    atomr_pool_get_stats(pool, &s);
    CHECK_EQ(s.deferred, 990 * U);
    questions = 0;
    for (int i = 0; i < 100; i++) put(pool, get(pool, U));
    CHECK(questions <= 100 * 16);
    complete_all();
    put(pool, x);
    CHECK_EQ(stats_of(pool).largest, 4096 * U);
    atomr_pool_delete(pool);
}

static void test_segments(void) {
    atomr_pool *pool = new_pool(0);
    CHECK_EQ(atomr_pool_find_empty(pool), 0);
    CHECK_EQ(atomr_pool_remove_segment(pool, 1), ATOMR_POOL_REFUSED);
    for (uint32_t id = 1; id <= 3; id++) CHECK_EQ(atomr_pool_add_segment(pool, id * 10, 8 * U), 0);
    CHECK_EQ(stats_of(pool).segments, 3);
    atomr_block b[3];
    for (int i = 0; i < 3; i++) b[i] = get(pool, 8 * U); /* segments are never joined */
    CHECK(b[0].segment + b[1].segment + b[2].segment == 60 && b[0].segment != b[1].segment);
    for (int i = 0; i < 3; i++) CHECK_EQ(atomr_pool_remove_segment(pool, b[i].segment), ATOMR_POOL_REFUSED);
    put(pool, b[0]);
    put_stamped(pool, b[1], 3, 9);
    CHECK_EQ(stats_of(pool).largest, 8 * U);
    CHECK_EQ(atomr_pool_find_empty(pool), b[0].segment);
    CHECK_EQ(atomr_pool_remove_segment(pool, b[1].segment), ATOMR_POOL_REFUSED); /* an open stamp */
    CHECK_EQ(atomr_pool_remove_segment(pool, b[0].segment), 0);
    CHECK_EQ(atomr_pool_find_empty(pool), 0);
    atomic_store(&completed[3], 9);
    CHECK_EQ(atomr_pool_find_empty(pool), b[1].segment);
    CHECK_EQ(atomr_pool_remove_segment(pool, b[1].segment), 0);
    put(pool, b[2]);
    CHECK_EQ(atomr_pool_remove_segment(pool, b[2].segment), 0);
    CHECK_EQ(stats_of(pool).total, 0);
    atomr_pool_delete(pool);
}

static void test_without_memory(void) {
    enum { N = 600 }; /* more than a chunk of nodes */
    static atomr_block b[N];
    atomr_stamps s;
    atomr_stamps_init(&s);
    fail_all = 1;
    CHECK(atomr_pool_new(0, is_resolved, NULL) == NULL);
    fail_all = 0;
    atomr_pool *pool = new_pool(0);
    fail_all = 1;
    CHECK_EQ(atomr_pool_add_segment(pool, 1, N * U), ATOMR_NO_MEMORY);
    fail_all = 0;
    CHECK_EQ(atomr_pool_add_segment(pool, 1, N * U), 0);
    fail_all = 1;
    CHECK_EQ(atomr_pool_add_segment(pool, 2, N * U), ATOMR_NO_MEMORY);
    int n = 0;
    while (atomr_pool_alloc(pool, U, &b[n], &s) == 0) n++;
    CHECK(n > 100 && n < N);
    CHECK_EQ(atomr_pool_alloc(pool, U, &b[n], &s), ATOMR_NO_MEMORY);
    CHECK_EQ(stats_of(pool).blocks, n);
    CHECK_EQ(atomr_pool_alloc(pool, (uint64_t)(N - n) * U, &b[n], &s), 0); /* no rest: no node needed */
    put(pool, b[n]);
    fail_all = 0;
    for (; n < N; n++) b[n] = get(pool, U);

    /* Freeing must always work; blocks whose stamps cannot be merged stay apart, and keep them. */
    for (int i = 0; i < N; i++) {
        for (unsigned k = 0; k < 2; k++) {
            CHECK_EQ(atomr_stamps_add(&s, atomr_stamp_make((unsigned)(i + (int)k * 7) % 64, 1)), 0);
        }
        fail_all = 1;
        CHECK_EQ(atomr_pool_free(pool, &b[i], &s), 0);
        CHECK_EQ(s.n, 0);
        fail_all = 0;
    }
    fail_all = 1;
    CHECK_EQ(atomr_pool_check(pool), 0);
    CHECK(stats_of(pool).largest < N * U);
    CHECK_EQ(atomr_pool_alloc(pool, N * U, &b[0], &s), ATOMR_NO_ROOM);
    fail_all = 0;
    CHECK_EQ(atomr_pool_alloc(pool, N * U, &b[0], &s), 0); /* joined on demand */
    CHECK_EQ(s.n, 64);
    CHECK_EQ(atomr_pool_free(pool, &b[0], &s), 0);

    /* No memory to hand stamps on: nothing has changed. */
    fail_all = 1;
    CHECK_EQ(atomr_pool_alloc(pool, U, &b[0], &s), ATOMR_NO_MEMORY);
    CHECK_EQ(atomr_pool_alloc(pool, N * U, &b[0], &s), ATOMR_NO_MEMORY);
    CHECK_EQ(s.n, 0);
    CHECK_EQ(stats_of(pool).largest, N * U);
    CHECK_EQ(atomr_pool_remove_segment(pool, 1), ATOMR_POOL_REFUSED);
    complete_all();
    CHECK_EQ(atomr_pool_alloc(pool, U, &b[0], &s), 0);
    put(pool, b[0]);
    CHECK_EQ(atomr_pool_remove_segment(pool, 1), 0);
    fail_all = 0;
    atomr_stamps_release(&s);
    atomr_pool_delete(pool);
}

static void test_many_blocks(void) {
    enum { N = 50000 };
    static atomr_block b[N];
    atomr_pool *pool = new_pool(0);
    uint64_t rng = 11;
    CHECK_EQ(atomr_pool_add_segment(pool, 1, UINT64_C(1) << 40), 0);
    for (int i = 0; i < N; i++) b[i] = get(pool, check_random(&rng) % (1 << 20));
    CHECK_EQ(stats_of(pool).blocks, N);
    for (int i = N - 1; i > 0; i--) {
        const int k = (int)(check_random(&rng) % (uint64_t)(i + 1));
        const atomr_block t = b[i];
        b[i] = b[k], b[k] = t;
    }
    for (int i = 0; i < N; i++) put(pool, b[i]);
    CHECK(stats_of(pool).largest == UINT64_C(1) << 40);
    /* Deleting with blocks and stamps on the heap still there leaks nothing (address sanitizer). */
    for (int i = 0; i < 100; i++) b[i] = get(pool, U);
    atomr_stamps s;
    atomr_stamps_init(&s);
    for (unsigned lane = 0; lane < 64; lane++) CHECK_EQ(atomr_stamps_add(&s, atomr_stamp_make(lane, 1)), 0);
    CHECK_EQ(atomr_pool_free(pool, &b[50], &s), 0);
    atomr_pool_delete(pool);
}

/* ---- random, against an oracle ------------------------------------------------------------------- */

#define O_SEGMENTS 4
#define O_UNITS 1200

typedef struct {
    int owner;                     /* index in blocks + 1; 0: nobody */
    uint64_t ticket[ATOMR_LANES]; /* by lane, the latest that may still use the unit; set on free */
} o_unit;

typedef struct {
    uint32_t id; /* 0: none */
    uint32_t units;
    o_unit unit[O_UNITS];
} o_segment;

typedef struct {
    int live;
    atomr_block block;
    atomr_stamps stamps; /* inherited */
} o_block;

typedef struct {
    atomr_pool *pool;
    int deferred;
    unsigned lanes;
    uint64_t rng;
    uint64_t issued[ATOMR_LANES];
    o_segment segments[O_SEGMENTS];
    o_block blocks[2048];
    atomr_block stale[8];
    uint64_t stale_n, in_use, handed, inherited, refused;
    uint32_t live;
} oracle;

static o_segment *o_find(oracle *o, uint32_t id) {
    for (int i = 0; i < O_SEGMENTS; i++) {
        if (id != 0 && o->segments[i].id == id) return &o->segments[i];
    }
    return NULL;
}

static int o_unit_open(const oracle *o, const o_unit *u) {
    for (unsigned lane = 0; lane < o->lanes; lane++) {
        if (u->ticket[lane] > atomic_load(&completed[lane])) return 1;
    }
    return 0;
}

/* Longest run of units that could be handed out now, in bytes. */
static uint64_t o_largest(const oracle *o) {
    uint64_t best = 0;
    for (int i = 0; i < O_SEGMENTS; i++) {
        uint64_t run = 0;
        if (o->segments[i].id == 0) continue;
        for (uint32_t k = 0; k < o->segments[i].units; k++) {
            const o_unit *u = &o->segments[i].unit[k];
            run = u->owner != 0 || (o->deferred && o_unit_open(o, u)) ? 0 : run + 1;
            if (run > best) best = run;
        }
    }
    return best * U;
}

static int o_removable(const oracle *o, const o_segment *s) {
    for (uint32_t k = 0; k < s->units; k++) {
        if (s->unit[k].owner != 0 || o_unit_open(o, &s->unit[k])) return 0;
    }
    return 1;
}

static void o_add_segment(oracle *o) {
    for (int i = 0; i < O_SEGMENTS; i++) {
        o_segment *s = &o->segments[i];
        if (s->id != 0) continue;
        const uint32_t id = 1 + (uint32_t)(check_random(&o->rng) >> 34);
        if (o_find(o, id) != NULL) return;
        const uint32_t units = 1 + (uint32_t)(check_random(&o->rng) % O_UNITS);
        const int rc = atomr_pool_add_segment(o->pool, id, units * U + check_random(&o->rng) % U);
        if (rc != 0) {
            CHECK(rc == ATOMR_NO_MEMORY && failed != 0);
            return;
        }
        memset(s, 0, sizeof *s);
        s->id = id;
        s->units = units;
        return;
    }
}

static void o_remove_segment(oracle *o) {
    o_segment *s = &o->segments[check_random(&o->rng) % O_SEGMENTS];
    if (s->id == 0) return;
    const int removable = o_removable(o, s);
    CHECK_EQ(atomr_pool_remove_segment(o->pool, s->id), removable ? 0 : ATOMR_POOL_REFUSED);
    if (removable) s->id = 0;
}

static void o_alloc(oracle *o, uint64_t most) {
    int at = -1;
    for (int i = 0, k = (int)(check_random(&o->rng) % 2048); i < 2048 && at < 0; i++, k = (k + 1) % 2048) {
        if (!o->blocks[k].live) at = k;
    }
    if (at < 0) return;
    o_block *b = &o->blocks[at];
    const uint64_t want = check_random(&o->rng) % (most * U + 1);
    const uint64_t rounded = want == 0 ? U : (want + U - 1) / U * U;
    const uint64_t before = failed;
    atomr_stamps_init(&b->stamps);
    const int rc = atomr_pool_alloc(o->pool, want, &b->block, &b->stamps);
    if (rc != 0) {
        CHECK_EQ(b->stamps.n, 0);
        if (rc == ATOMR_NO_MEMORY) CHECK(failed != before);
        else CHECK(rc == ATOMR_NO_ROOM && (failed != before || o_largest(o) < rounded));
        atomr_stamps_release(&b->stamps);
        return;
    }
    CHECK_EQ(b->block.nbytes, rounded);
    CHECK_EQ(b->block.offset % U, 0);
    o_segment *s = o_find(o, b->block.segment);
    CHECK(s != NULL);
    const uint64_t first = b->block.offset / U, end = first + rounded / U;
    CHECK(end <= s->units);
    uint64_t given[ATOMR_LANES] = {0};
    for (uint32_t i = 0; i < b->stamps.n; i++) {
        const atomr_stamp stamp = atomr_stamps_data(&b->stamps)[i];
        const unsigned lane = atomr_stamp_lane(stamp);
        CHECK(lane < o->lanes && !is_resolved(NULL, stamp)); /* open ones only, each lane once */
        CHECK(given[lane] == 0 && atomr_stamp_ticket(stamp) <= o->issued[lane]);
        given[lane] = atomr_stamp_ticket(stamp);
        o->inherited++;
    }
    CHECK(!o->deferred || b->stamps.n == 0);
    for (uint64_t k = first; k < end; k++) {
        o_unit *u = &s->unit[k];
        CHECK_EQ(u->owner, 0); /* nobody else's */
        for (unsigned lane = 0; lane < o->lanes; lane++) {
            if (u->ticket[lane] > atomic_load(&completed[lane])) {
                CHECK(!o->deferred);
                CHECK(given[lane] >= u->ticket[lane]); /* never lost */
            }
        }
        memset(u->ticket, 0, sizeof u->ticket); /* from now on, the owner's affair */
        u->owner = at + 1;
    }
    b->live = 1;
    o->live++;
    o->in_use += rounded;
    o->handed++;
}

static void o_free(oracle *o, int at) {
    o_block *b = &o->blocks[at];
    if (!b->live) return;
    /* Altered, it is refused, and nothing happens. */
    atomr_block bad = b->block;
    switch (check_random(&o->rng) % 16) {
    case 0: bad.node += 1 + (uint32_t)(check_random(&o->rng) % 1000); break;
    case 1: bad.offset ^= U << check_random(&o->rng) % 8; break;
    case 2: bad.segment++; break;
    case 3: bad.nbytes += U; break;
    case 4:
        if (o->stale_n != 0) bad = o->stale[check_random(&o->rng) % (o->stale_n < 8 ? o->stale_n : 8)];
        break;
    default: break;
    }
    if (memcmp(&bad, &b->block, sizeof bad) != 0) {
        CHECK_EQ(atomr_pool_free(o->pool, &bad, &b->stamps), ATOMR_POOL_REFUSED);
        o->refused++;
    }
    /* New uses by a few lanes, on top of what was inherited. */
    const uint32_t one_in = fail_one_in;
    fail_one_in = 0;
    for (uint64_t uses = check_random(&o->rng) % 3; uses > 0; uses--) {
        const unsigned lane = (unsigned)(check_random(&o->rng) % o->lanes);
        CHECK_EQ(atomr_stamps_add(&b->stamps, atomr_stamp_make(lane, ++o->issued[lane])), 0);
    }
    fail_one_in = one_in;
    o_segment *s = o_find(o, b->block.segment);
    CHECK(s != NULL);
    for (uint64_t k = b->block.offset / U; k < (b->block.offset + b->block.nbytes) / U; k++) {
        CHECK_EQ(s->unit[k].owner, at + 1);
        s->unit[k].owner = 0;
        for (uint32_t i = 0; i < b->stamps.n; i++) {
            const atomr_stamp stamp = atomr_stamps_data(&b->stamps)[i];
            s->unit[k].ticket[atomr_stamp_lane(stamp)] = atomr_stamp_ticket(stamp);
        }
    }
    CHECK_EQ(atomr_pool_free(o->pool, &b->block, &b->stamps), 0);
    CHECK_EQ(b->stamps.n, 0);
    CHECK(b->stamps.items == NULL); /* consumed, room and all */
    b->live = 0;
    o->live--;
    o->in_use -= b->block.nbytes;
    o->stale[o->stale_n++ % 8] = b->block;
}

static void o_verify(oracle *o) {
    const uint32_t one_in = fail_one_in;
    fail_one_in = 0; /* so that joins left undone are made up for */
    const atomr_pool_stats s = stats_of(o->pool);
    fail_one_in = one_in;
    uint64_t total = 0, deferred = 0;
    uint32_t segments = 0;
    int empty = 0;
    for (int i = 0; i < O_SEGMENTS; i++) {
        const o_segment *g = &o->segments[i];
        if (g->id == 0) continue;
        segments++;
        total += g->units * U;
        empty |= o_removable(o, g);
        for (uint32_t k = 0; k < g->units && o->deferred; k++) {
            deferred += g->unit[k].owner == 0 && o_unit_open(o, &g->unit[k]) ? U : 0;
        }
    }
    CHECK_EQ(s.segments, segments);
    CHECK_EQ(s.total, total);
    CHECK_EQ(s.in_use, o->in_use);
    CHECK_EQ(s.blocks, o->live);
    CHECK_EQ(s.deferred, deferred);
    CHECK_EQ(s.free, total - o->in_use - deferred);
    CHECK_EQ(s.largest, o_largest(o));
    const uint32_t found = atomr_pool_find_empty(o->pool);
    CHECK_EQ(found != 0, empty);
    if (found != 0) CHECK(o_removable(o, o_find(o, found)));
}

static void random_run(int deferred, unsigned lanes, uint32_t failures, uint64_t seed, int steps) {
    static oracle o;
    memset(&o, 0, sizeof o);
    o.pool = new_pool(deferred);
    o.deferred = deferred;
    o.lanes = lanes;
    o.rng = seed;
    failed = 0;
    for (int step = 0; step < steps; step++) {
        /* Tides: the pool fills and empties, and sizes change, so that every state is visited. */
        const uint64_t filling = step / 700 % 2 == 0 ? 60 : 35;
        const uint64_t most = step / 2100 % 3 == 0 ? 4 : step / 2100 % 3 == 1 ? 40 : 300;
        const uint64_t dice = check_random(&o.rng) % 1000;
        fail_one_in = failures;
        if (dice < 10) {
            o_add_segment(&o);
        } else if (dice < 20) {
            o_remove_segment(&o);
        } else if (dice < 150) {
            const unsigned lane = (unsigned)(check_random(&o.rng) % lanes);
            const uint64_t done = atomic_load(&completed[lane]);
            /* Lane 0 is stuck for most of the time: what it has stamped stays open. */
            if (lane == 0 && step % 5000 > 1000) continue;
            atomic_store(&completed[lane], done + check_random(&o.rng) % (o.issued[lane] - done + 1));
        } else if (dice % 100 < filling) {
            o_alloc(&o, most);
        } else {
            o_free(&o, (int)(check_random(&o.rng) % 2048));
            for (int tries = 0; tries < 64; tries++) {
                const int at = (int)(check_random(&o.rng) % 2048);
                if (!o.blocks[at].live) continue;
                o_free(&o, at);
                break;
            }
        }
        fail_one_in = 0;
        if (step % 128 == 0) o_verify(&o);
        if (step % 20000 == 19999) {
            /* Everything back: one free block a segment, once all is resolved. */
            for (int i = 0; i < 2048; i++) o_free(&o, i);
            for (unsigned lane = 0; lane < lanes; lane++) atomic_store(&completed[lane], o.issued[lane]);
            o_verify(&o);
            CHECK_EQ(o.in_use, 0);
            for (uint32_t id; (id = atomr_pool_find_empty(o.pool)) != 0;) {
                CHECK_EQ(atomr_pool_remove_segment(o.pool, id), 0);
                o_find(&o, id)->id = 0;
            }
            CHECK_EQ(stats_of(o.pool).segments, 0);
            CHECK_EQ(stats_of(o.pool).total, 0);
        }
    }
    for (int i = 0; i < 2048; i++) o_free(&o, i);
    CHECK(o.handed > (uint64_t)steps / 20 && o.refused > 0);
    CHECK(deferred || o.inherited > 0);
    CHECK(failures == 0 || failed > 0);
    atomr_pool_delete(o.pool);
}

#ifndef STEPS
#define STEPS 200000
#endif
static void test_random_few_lanes(void) { random_run(0, 3, 0, 1, STEPS); }
static void test_random_many_lanes(void) { random_run(0, 20, 0, 2, STEPS); }
static void test_random_all_lanes(void) { random_run(0, ATOMR_LANES, 0, 3, STEPS / 4); }
static void test_random_deferred(void) { random_run(1, 8, 0, 4, STEPS); }
static void test_random_memory_fails(void) { random_run(0, 12, 3, 5, STEPS); }
static void test_random_deferred_memory_fails(void) { random_run(1, 12, 3, 6, STEPS / 2); }

/* ---- threads: as the runtime uses it, under one mutex, while lanes complete ----------------------- */

#define T_THREADS 4
#define T_UNITS 4096
static pthread_mutex_t t_lock = PTHREAD_MUTEX_INITIALIZER;
static atomr_pool *t_pool;
static _Atomic uint64_t t_issued[ATOMR_LANES];
static _Atomic int t_stop;
static _Atomic int t_owner[T_UNITS];

static void *t_user(void *arg) {
    const int me = (int)(intptr_t)arg;
    uint64_t rng = 100 + (uint64_t)me;
    for (int i = 0; i < 5000; i++) {
        atomr_block b;
        atomr_stamps s;
        atomr_stamps_init(&s);
        pthread_mutex_lock(&t_lock);
        const int rc = atomr_pool_alloc(t_pool, check_random(&rng) % (40 * U), &b, &s);
        pthread_mutex_unlock(&t_lock);
        CHECK_EQ(rc, 0);
        for (uint64_t k = b.offset / U; k < (b.offset + b.nbytes) / U; k++) {
            CHECK_EQ(atomic_exchange(&t_owner[k], me), 0);
        }
        for (uint64_t k = b.offset / U; k < (b.offset + b.nbytes) / U; k++) {
            CHECK_EQ(atomic_exchange(&t_owner[k], 0), me);
        }
        pthread_mutex_lock(&t_lock);
        const unsigned lane = (unsigned)(check_random(&rng) % ATOMR_LANES);
        CHECK_EQ(atomr_stamps_add(&s, atomr_stamp_make(lane, atomic_fetch_add(&t_issued[lane], 1) + 1)), 0);
        CHECK_EQ(atomr_pool_free(t_pool, &b, &s), 0);
        pthread_mutex_unlock(&t_lock);
    }
    return NULL;
}

static void *t_completer(void *arg) {
    (void)arg;
    while (!atomic_load(&t_stop)) {
        for (int i = 0; i < ATOMR_LANES; i++) {
            atomic_store_explicit(&completed[i], atomic_load(&t_issued[i]), memory_order_release);
        }
        sched_yield();
    }
    return NULL;
}

static void test_threads_under_a_mutex(void) {
    pthread_t users[T_THREADS], completer;
    t_pool = new_pool(0);
    CHECK_EQ(atomr_pool_add_segment(t_pool, 1, T_UNITS * U), 0);
    CHECK_EQ(pthread_create(&completer, NULL, t_completer, NULL), 0);
    for (int i = 0; i < T_THREADS; i++) {
        CHECK_EQ(pthread_create(&users[i], NULL, t_user, (void *)(intptr_t)(i + 1)), 0);
    }
    for (int i = 0; i < T_THREADS; i++) CHECK_EQ(pthread_join(users[i], NULL), 0);
    atomic_store(&t_stop, 1);
    CHECK_EQ(pthread_join(completer, NULL), 0);
    complete_all();
    CHECK_EQ(stats_of(t_pool).largest, T_UNITS * U);
    atomr_pool_delete(t_pool);
}

/* ---- time: printed, never asserted ----------------------------------------------------------------- */

static double time_loop(unsigned stamps, int open, int wander) {
    enum { LIVE = 64, ROUNDS = 400000 };
    atomr_pool *pool = new_pool(0);
    atomr_block b[LIVE];
    uint64_t rng = 5;
    static uint64_t sizes[4096];
    CHECK_EQ(atomr_pool_add_segment(pool, 1, UINT64_C(1) << 32), 0);
    for (int i = 0; i < 4096; i++) sizes[i] = wander ? 1 + check_random(&rng) % (1 << 18) : 4096 * 4;
    for (int i = 0; i < LIVE; i++) b[i] = get(pool, sizes[i]);
    for (int i = 0; i < LIVE; i += 2) put(pool, b[i]), b[i] = get(pool, sizes[i]);
    if (!open) complete_all();
    uint64_t best = UINT64_MAX;
    for (int run = 0; run < 3; run++) {
        const uint64_t from = check_now_ns();
        for (int i = 0; i < ROUNDS; i++) {
            atomr_block *x = &b[wander ? i * 37 % LIVE : 0];
            atomr_stamps s;
            atomr_stamps_init(&s);
            for (unsigned k = 0; k < stamps; k++) {
                if (atomr_stamps_add(&s, atomr_stamp_make(k, (uint64_t)i + 1)) != 0) abort();
            }
            if (atomr_pool_free(pool, x, &s) != 0) abort();
            if (atomr_pool_alloc(pool, sizes[i & 4095], x, &s) != 0) abort();
            atomr_stamps_release(&s);
        }
        const uint64_t took = check_now_ns() - from;
        if (took < best) best = took;
    }
    atomr_pool_delete(pool);
    return (double)best / ROUNDS;
}

static void test_time(void) {
    printf("\n");
    printf("  free + alloc, one size, no stamps            %6.1f ns\n", time_loop(0, 0, 0));
    printf("  free + alloc, one size, one resolved stamp   %6.1f ns\n", time_loop(1, 0, 0));
    printf("  free + alloc, one size, two open stamps      %6.1f ns\n", time_loop(2, 1, 0));
    printf("  free + alloc, any size of 64, no stamps      %6.1f ns\n", time_loop(0, 0, 1));
    printf("  free + alloc, any size of 64, two open       %6.1f ns\n", time_loop(2, 1, 1));
    printf("%44s", "");
}

int main(int argc, char **argv) {
    RUN(test_stamp_fields);
    RUN(test_stamps_random);
    RUN(test_stamps_without_memory);
    RUN(test_sizes_and_alignment);
    RUN(test_huge);
    RUN(test_bad_frees);
    RUN(test_joining_in_every_order);
    RUN(test_split_keeps_stamps);
    RUN(test_latest_freed_first);
    RUN(test_deferred);
    RUN(test_deferred_polls_a_bounded_part);
    RUN(test_segments);
    RUN(test_without_memory);
    RUN(test_many_blocks);
    RUN(test_threads_under_a_mutex);
    RUN(test_random_few_lanes);
    RUN(test_random_many_lanes);
    RUN(test_random_all_lanes);
    RUN(test_random_deferred);
    RUN(test_random_memory_fails);
    RUN(test_random_deferred_memory_fails);
    RUN(test_time);
    return check_end(argc, argv);
}
