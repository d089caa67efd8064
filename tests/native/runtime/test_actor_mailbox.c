/* Mailboxes of actors: order, bounds, overtaking, sleepers that must wake, and outcomes. */
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/actor_mailbox.h"
#include "check.h"

static void *item(uint64_t number) { return (void *)(uintptr_t)number; }

static uint64_t take(atomr_mailbox *m, int expected) {
    void *found = NULL;
    int room;
    CHECK_EQ(atomr_mailbox_take(m, &found, &room), expected);
    return (uintptr_t)found;
}

static void test_order_and_overtaking(void) {
    atomr_mailbox m;
    CHECK_EQ(atomr_mailbox_init(&m, 0), 0);
    take(&m, ATOMR_NOTHING);
    for (uint64_t i = 1; i <= 1000; i++) CHECK_EQ(atomr_mailbox_put(&m, item(i), 0, 0, NULL), ATOMR_PUT);
    for (uint64_t i = 1; i <= 40; i++) CHECK_EQ(atomr_mailbox_put_system(&m, item(i)), ATOMR_PUT);
    for (uint64_t i = 1; i <= 40; i++) CHECK_EQ(take(&m, ATOMR_SYSTEM), i);
    CHECK_EQ(take(&m, ATOMR_USER), 1);
    CHECK_EQ(atomr_mailbox_put_back(&m, item(1)), ATOMR_PUT);
    for (uint64_t i = 1; i <= 500; i++) CHECK_EQ(take(&m, ATOMR_USER), i);
    for (uint64_t i = 1001; i <= 2000; i++) CHECK_EQ(atomr_mailbox_put(&m, item(i), 0, 0, NULL), ATOMR_PUT);
    for (uint64_t i = 501; i <= 2000; i++) CHECK_EQ(take(&m, ATOMR_USER), i);
    take(&m, ATOMR_NOTHING);
    atomr_mailbox_destroy(&m);
}

static void test_bounds(void) {
    atomr_mailbox m;
    void *evicted = NULL;
    CHECK_EQ(atomr_mailbox_init(&m, 3), 0);
    for (uint64_t i = 1; i <= 3; i++) CHECK_EQ(atomr_mailbox_put(&m, item(i), 0, 0, NULL), ATOMR_PUT);
    CHECK_EQ(atomr_mailbox_put(&m, item(4), 0, 0, NULL), ATOMR_NO_ROOM);
    CHECK_EQ(atomr_mailbox_put(&m, item(4), 0, 1, &evicted), ATOMR_EVICTED);
    CHECK_EQ((uintptr_t)evicted, 1);
    CHECK_EQ(atomr_mailbox_put(&m, item(5), 1, 0, NULL), ATOMR_PUT);
    CHECK_EQ(atomr_mailbox_put_back(&m, item(9)), ATOMR_PUT);
    CHECK_EQ(atomr_mailbox_put_system(&m, item(7)), ATOMR_PUT);
    CHECK_EQ(atomr_mailbox_depth(&m), 5);
    CHECK_EQ(take(&m, ATOMR_SYSTEM), 7);
    const uint64_t order[] = {9, 2, 3, 4, 5};
    for (unsigned i = 0; i < 5; i++) CHECK_EQ(take(&m, ATOMR_USER), order[i]);
    atomr_mailbox_destroy(&m);
}

static void test_suspended_and_shut(void) {
    atomr_mailbox m;
    CHECK_EQ(atomr_mailbox_init(&m, 3), 0);
    atomr_mailbox_suspend(&m, 1);
    CHECK_EQ(atomr_mailbox_put(&m, item(1), 0, 0, NULL), ATOMR_PUT);
    take(&m, ATOMR_NOTHING);
    CHECK_EQ(atomr_mailbox_wait(&m, 1000000, 1000), ATOMR_TIMED_OUT);
    CHECK_EQ(atomr_mailbox_put_system(&m, item(2)), ATOMR_PUT);
    CHECK_EQ(take(&m, ATOMR_SYSTEM), 2);
    atomr_mailbox_shut(&m, 0);
    CHECK_EQ(atomr_mailbox_put(&m, item(3), 1, 1, NULL), ATOMR_SHUT);
    CHECK_EQ(atomr_mailbox_put_system(&m, item(4)), ATOMR_PUT);
    atomr_mailbox_shut(&m, 1);
    CHECK_EQ(atomr_mailbox_put_system(&m, item(5)), ATOMR_SHUT);
    CHECK_EQ((uintptr_t)atomr_mailbox_take_user(&m), 1);
    CHECK(atomr_mailbox_take_user(&m) == NULL);
    CHECK_EQ(take(&m, ATOMR_SYSTEM), 4);
    atomr_mailbox_destroy(&m);
}

enum { PRODUCERS = 4, SENT = 8000 };

typedef struct {
    atomr_mailbox *m;
    uint64_t index;
} producer;

static void *produce(void *argument) {
    producer *p = argument;
    for (uint64_t i = 1; i <= SENT; i++) {
        void *what = item(p->index << 32 | i);
        if (i % 100 == 0) {
            CHECK_EQ(atomr_mailbox_put_system(p->m, what), ATOMR_PUT);
            continue;
        }
        while (atomr_mailbox_put(p->m, what, 0, 0, NULL) == ATOMR_NO_ROOM) atomr_mailbox_await_room(p->m, -1);
    }
    return NULL;
}

/* Nobody waits with a timeout: a wake-up that is lost would hang. */
static void crowd(uint32_t capacity, uint64_t spin_ns, int event_fd) {
    atomr_mailbox m;
    CHECK_EQ(atomr_mailbox_init(&m, capacity), 0);
    if (event_fd) atomr_mailbox_watch(&m, eventfd(0, 0));
    pthread_t threads[PRODUCERS];
    producer producers[PRODUCERS];
    for (uint64_t i = 0; i < PRODUCERS; i++) {
        producers[i] = (producer){&m, i};
        CHECK(pthread_create(&threads[i], NULL, produce, &producers[i]) == 0);
    }
    uint64_t user[PRODUCERS] = {0}, system[PRODUCERS] = {0};
    for (unsigned left = PRODUCERS * SENT; left;) {
        void *found;
        int room;
        const int kind = atomr_mailbox_take(&m, &found, &room);
        if (kind == ATOMR_NOTHING) {
            if (!event_fd) {
                atomr_mailbox_wait(&m, -1, spin_ns);
            } else if (!atomr_mailbox_arm(&m)) {
                uint64_t n;
                CHECK_EQ(read(m.event_fd, &n, sizeof n), sizeof n);
            }
            continue;
        }
        const uint64_t index = (uintptr_t)found >> 32, number = (uintptr_t)found & UINT32_MAX;
        uint64_t *last = kind == ATOMR_USER ? &user[index] : &system[index];
        CHECK(number > *last);
        *last = number;
        left--;
    }
    for (unsigned i = 0; i < PRODUCERS; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ(user[i], SENT - 1);
        CHECK_EQ(system[i], SENT);
    }
    if (event_fd) close(m.event_fd);
    atomr_mailbox_destroy(&m);
}

static void test_crowd(void) { crowd(0, 5000, 0); }
static void test_crowd_small(void) { crowd(2, 0, 0); }
static void test_crowd_smallest(void) { crowd(1, 3000, 0); }
static void test_crowd_event_loop(void) { crowd(16, 0, 1); }

typedef struct {
    atomr_mailbox *m;
    atomr_outcome *outcomes;
    uint64_t *values;
} resolver;

enum { ASKS = 5000 };

static void *resolve(void *argument) {
    resolver *r = argument;
    for (unsigned done = 0; done < ASKS;) {
        void *found;
        int room;
        if (atomr_mailbox_take(r->m, &found, &room) == ATOMR_NOTHING) {
            atomr_mailbox_wait(r->m, -1, 2000);
            continue;
        }
        const unsigned i = (unsigned)((uintptr_t)found - 1);
        r->values[i] = i + 7;
        CHECK(atomr_outcome_claim(&r->outcomes[i]));
        CHECK(!atomr_outcome_claim(&r->outcomes[i]));
        if (atomr_outcome_publish(&r->outcomes[i])) atomr_outcome_wake(&r->outcomes[i]);
        done++;
    }
    return NULL;
}

static void test_outcomes(void) {
    static atomr_outcome outcomes[ASKS];
    static uint64_t values[ASKS];
    atomr_mailbox m;
    CHECK_EQ(atomr_mailbox_init(&m, 0), 0);
    resolver r = {&m, outcomes, values};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, resolve, &r) == 0);
    for (unsigned i = 0; i < ASKS; i++) {
        CHECK_EQ(atomr_mailbox_put(&m, item(i + 1), 0, 0, NULL), ATOMR_PUT);
        while (atomr_outcome_wait(&outcomes[i], &m, -1, i % 3 ? 2000 : 0) != ATOMR_READY) {
        }
        CHECK_EQ(values[i], i + 7);
    }
    pthread_join(thread, NULL);
    atomr_mailbox_destroy(&m);
}

typedef struct entry {
    void *next;
    int called;
} entry;

typedef struct {
    atomr_outcome *o;
    entry entries[1000];
    int refused;
} adder;

static void *add_entries(void *argument) {
    adder *a = argument;
    for (unsigned i = 0; i < 1000; i++)
        if (!atomr_outcome_add(a->o, &a->entries[i], &a->entries[i].next)) a->refused++;
    return NULL;
}

/* Every entry is either in the stack that is taken, or refused. */
static void test_waiters(void) {
    for (unsigned round = 0; round < 20; round++) {
        atomr_outcome o = {0};
        static adder adders[3];
        pthread_t threads[3];
        memset(adders, 0, sizeof adders);
        for (unsigned i = 0; i < 3; i++) {
            adders[i].o = &o;
            CHECK(pthread_create(&threads[i], NULL, add_entries, &adders[i]) == 0);
        }
        CHECK_EQ(atomr_outcome_wait(&o, NULL, 0, 0), ATOMR_TIMED_OUT);
        CHECK(atomr_outcome_claim(&o));
        CHECK(atomr_outcome_publish(&o));
        int called = 0;
        for (entry *e = atomr_outcome_close(&o); e; e = e->next) {
            CHECK(!e->called);
            e->called = 1;
            called++;
        }
        for (unsigned i = 0; i < 3; i++) pthread_join(threads[i], NULL);
        CHECK_EQ(called + adders[0].refused + adders[1].refused + adders[2].refused, 3000);
        CHECK(atomr_outcome_close(&o) == NULL);
    }
}

int main(int argc, char **argv) {
    RUN(test_order_and_overtaking);
    RUN(test_bounds);
    RUN(test_suspended_and_shut);
    RUN(test_crowd);
    RUN(test_crowd_small);
    RUN(test_crowd_smallest);
    RUN(test_crowd_event_loop);
    RUN(test_outcomes);
    RUN(test_waiters);
    return check_end(argc, argv);
}
