/* The pool: directed tests, and the time that it takes. */
#include "pool_rig.h"

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
    RUN(test_time);
    return check_end(argc, argv);
}
