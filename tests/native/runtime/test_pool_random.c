/* The pool, long and at random: against an oracle that keeps an owner and all stamps for each single unit of 256 bytes,
 * and by threads. */
#include "pool_rig.h"

#include <pthread.h>

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

int main(int argc, char **argv) {
    RUN(test_threads_under_a_mutex);
    RUN_ALONE(test_random_few_lanes);
    RUN_ALONE(test_random_many_lanes);
    RUN_ALONE(test_random_all_lanes);
    RUN_ALONE(test_random_deferred);
    RUN_ALONE(test_random_memory_fails);
    RUN_ALONE(test_random_deferred_memory_fails);
    return check_end(argc, argv);
}
