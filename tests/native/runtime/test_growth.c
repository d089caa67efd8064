/* When pools ask for growth: once, when little is left, and only when more is in use than before. */
#include "rig.h"

enum { UNIT = 256, BLOCKS = 64, MARK = 16 * UNIT, MOST = 24 * UNIT };

static unsigned asked(rig *r) { return atomr_sender_low_pools(r->s); }

static void arm(rig *r, int pool) { atomr_sender_arm_pool(r->s, pool, MARK, MOST); }

static void give_back(rig *r, rig_buffer *b) { CHECK_EQ(atomr_free(r->s, b->slot, b->generation), ATOMR_DONE); }

static void test_asks_once_at_the_mark(void) {
    rig r;
    rig_buffer blocks[BLOCKS];
    rig_open(&r, 64, 1, 1);
    for (int pool = 0; pool < ATOMR_POOLS; pool++) {
        rig_segment(&r, pool, BLOCKS * UNIT);
        for (unsigned i = 0; i < BLOCKS; i++) blocks[i] = rig_alloc(&r, pool, UNIT);
        CHECK_EQ(asked(&r), 0); /* never armed */
        for (unsigned i = 0; i < BLOCKS; i++) give_back(&r, &blocks[i]);
        arm(&r, pool);
        for (unsigned i = 0; i < BLOCKS; i++) {
            blocks[i] = rig_alloc(&r, pool, UNIT);
            CHECK_EQ(asked(&r), i < BLOCKS - 16 ? 0 : 1u << pool); /* fewer than 16 are left */
        }
        for (unsigned i = 0; i < BLOCKS; i++) give_back(&r, &blocks[i]);
        atomr_sender_arm_pool(r.s, pool, 0, 0);
        CHECK_EQ(asked(&r), 0);
    }
    rig_close(&r);
}

/* The peak is what was in use when it asked: armed again, it asks only beyond. */
static void test_does_not_ask_twice_for_the_same(void) {
    rig r;
    rig_buffer blocks[BLOCKS];
    rig_open(&r, 64, 1, 2);
    rig_segment(&r, ATOMR_VOLATILE, BLOCKS * UNIT);
    arm(&r, ATOMR_VOLATILE);
    for (unsigned round = 0; round < 5; round++) {
        for (unsigned i = 0; i < 49; i++) blocks[i] = rig_alloc(&r, ATOMR_VOLATILE, UNIT);
        CHECK_EQ(asked(&r), round == 0);
        arm(&r, ATOMR_VOLATILE); /* as if it had been refused */
        for (unsigned i = 0; i < 49; i++) give_back(&r, &blocks[i]);
    }
    for (unsigned i = 0; i < 50; i++) blocks[i] = rig_alloc(&r, ATOMR_VOLATILE, UNIT);
    CHECK_EQ(asked(&r), 1);
    rig_close(&r);
}

/* What would not fit once more asks before the mark; what is large for a segment never does. */
static void test_size_of_the_allocation_counts(void) {
    rig r;
    rig_open(&r, 64, 1, 3);
    rig_segment(&r, ATOMR_VOLATILE, BLOCKS * UNIT);
    arm(&r, ATOMR_VOLATILE);
    rig_alloc(&r, ATOMR_VOLATILE, 20 * UNIT);
    CHECK_EQ(asked(&r), 0); /* 44 left */
    rig_alloc(&r, ATOMR_VOLATILE, 25 * UNIT);
    CHECK_EQ(asked(&r), 0); /* 19 left, and larger than MOST */
    rig_alloc(&r, ATOMR_VOLATILE, UNIT);
    CHECK_EQ(asked(&r), 0); /* 18 left */
    rig_buffer b = rig_alloc(&r, ATOMR_VOLATILE, UNIT);
    give_back(&r, &b);
    CHECK_EQ(asked(&r), 0);
    rig_segment(&r, ATOMR_VOLATILE, 24 * UNIT);
    rig_alloc(&r, ATOMR_VOLATILE, 22 * UNIT);
    CHECK_EQ(asked(&r), 1); /* 20 left, which is above the mark, and fewer than 22 */
    rig_close(&r);
}

/* Freed memory that waits for its messages is about to come back. */
static void test_deferred_memory_counts_as_left(void) {
    rig r;
    rig_open(&r, 64, 1, 4);
    rig_segment(&r, ATOMR_STAGING, BLOCKS * UNIT);
    rig_start_log(1);
    rig_buffer big = rig_alloc(&r, ATOMR_STAGING, 40 * UNIT);
    const atomr_use use = rig_overwrites(&big);
    CHECK_EQ(rig_mix_send(&r, 0, 0, &use, 1, 0, 0, NULL, NULL), ATOMR_DONE); /* no worker: it stays open */
    give_back(&r, &big);
    atomr_pool_stats stats;
    atomr_sender_pool_stats(r.s, ATOMR_STAGING, &stats);
    CHECK_EQ(stats.deferred, 40 * UNIT);
    arm(&r, ATOMR_STAGING);
    rig_alloc(&r, ATOMR_STAGING, 20 * UNIT);
    CHECK_EQ(asked(&r), 0); /* 4 free, 40 to come */
    rig_close(&r);
}

typedef struct {
    rig *r;
    int first, second;
} waiter;

static void *wait_main(void *argument) {
    waiter *w = argument;
    w->first = atomr_sender_wait_low(w->r->s);
    CHECK_EQ(asked(w->r), 1u << ATOMR_DURABLE);
    arm(w->r, ATOMR_DURABLE);
    w->second = atomr_sender_wait_low(w->r->s);
    return NULL;
}

static void test_waiting_and_the_end(void) {
    rig r;
    rig_open(&r, 64, 1, 5);
    rig_segment(&r, ATOMR_DURABLE, BLOCKS * UNIT);
    arm(&r, ATOMR_DURABLE);
    waiter w = {&r, -1, -1};
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, wait_main, &w), 0);
    for (unsigned i = 0; i < 49; i++) rig_alloc(&r, ATOMR_DURABLE, UNIT);
    while (asked(&r)) usleep(100);
    atomr_sender_stop_low(r.s);
    pthread_join(thread, NULL);
    CHECK_EQ(w.first, 1);
    CHECK_EQ(w.second, 0);
    CHECK_EQ(atomr_sender_wait_low(r.s), 0);
    rig_close(&r);
}

int main(int argc, char **argv) {
    rig_watchdog(120);
    RUN(test_asks_once_at_the_mark);
    RUN(test_does_not_ask_twice_for_the_same);
    RUN(test_size_of_the_allocation_counts);
    RUN(test_deferred_memory_counts_as_left);
    RUN(test_waiting_and_the_end);
    return check_end(argc, argv);
}
