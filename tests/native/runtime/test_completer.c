/* Asynchronous completion: coalesced values, and nobody forgotten while a lane is stuck or idle. */
#include <sys/eventfd.h>

#include "rig.h"

enum { PLAN_GATE = 2 };

static void open_gpu(rig *r, uint32_t cells, unsigned n_lanes, uint64_t seed) {
    rig_open(r, cells, n_lanes, seed);
    r->gpu = fake_open(seed, 0);
    r->naps_forever = 1;
    r->s->slice_ns = RIG_FOREVER * INT64_C(1000000000);
    rig_segment(r, ATOMR_VOLATILE, 1 << 16);
    rig_start_log(10000);
}

static void test_values_are_coalesced(void) {
    enum { N = 1600 };
    rig r;
    open_gpu(&r, 2048, 1, 41);
    for (unsigned i = 0; i < N; i++) CHECK_EQ(rig_send(&r, 0, RIG_NOOP, NULL, 0, NULL, 0, NULL, NULL), ATOMR_DONE);
    rig_start_worker(&r);
    rig_wait(&r, 0, N);
    CHECK(fake_signals(r.gpu) >= N / 16 && fake_signals(r.gpu) <= N / 16 + 2);
    rig_close(&r);
}

/* A watchdog must know when each message has ended. */
static void test_a_watched_lane_tells_of_each(void) {
    enum { N = 100 };
    rig r;
    open_gpu(&r, 256, 1, 43);
    atomr_sender_watch(r.s);
    for (unsigned i = 0; i < N; i++) CHECK_EQ(rig_send(&r, 0, RIG_NOOP, NULL, 0, NULL, 0, NULL, NULL), ATOMR_DONE);
    rig_start_worker(&r);
    rig_wait(&r, 0, N);
    CHECK_EQ(fake_signals(r.gpu), N);
    rig_close(&r);
}

static void send_and_see_it_launched(rig *r, uint64_t number, atomr_reply *reply) {
    CHECK_EQ(rig_send(r, 0, RIG_NOOP, NULL, 0, NULL, 0, reply, NULL), ATOMR_DONE);
    while (atomic_load(&r->k->lanes[0]->launched) < number) usleep(10);
}

/* While the device has work, a drained lane puts values off: until the earlier one is back, or somebody waits. */
static void test_values_of_a_drained_lane(void) {
    rig r;
    open_gpu(&r, 256, 1, 48);
    r.spin_ns = UINT64_C(60000000000);
    rig_start_worker(&r);
    for (uint64_t n = 0; n < 12 * 20; n += 12) {
        fake_hold(r.gpu, 1);
        const uint64_t before = fake_signals(r.gpu);
        for (uint64_t i = 1; i <= 6; i++) send_and_see_it_launched(&r, n + i, NULL);
        CHECK_EQ(fake_signals(r.gpu), before + 1); /* of the first, since the device had nothing to do */
        CHECK_EQ(atomr_wait(r.s, 0, n + 1, 100000, 0), ATOMR_TIMEOUT); /* its value is on its way */
        CHECK_EQ(fake_signals(r.gpu), before + 1);
        CHECK_EQ(atomr_wait(r.s, 0, n + 4, 100000, 0), ATOMR_TIMEOUT);
        while (fake_signals(r.gpu) < before + 2) CHECK_EQ(atomr_wait(r.s, 0, n + 6, 1000000, 0), ATOMR_TIMEOUT);
        for (uint64_t i = 7; i <= 10; i++) send_and_see_it_launched(&r, n + i, NULL);
        CHECK_EQ(fake_signals(r.gpu), before + 2);
        atomr_reply reply = {0};
        send_and_see_it_launched(&r, n + 11, &reply);
        while (fake_signals(r.gpu) < before + 3) usleep(10); /* whoever asks waits */
        send_and_see_it_launched(&r, n + 12, NULL);
        CHECK_EQ(fake_signals(r.gpu), before + 3);
        fake_hold(r.gpu, 0); /* nobody waits, and still all is told */
        while (atomic_load(&atomr_wlane_at(r.s->region->w, 0)->completed) < n + 12) usleep(10);
        CHECK_EQ(rig_outcome(&r, &reply), ATOMR_OK);
    }
    rig_close(&r);
}

/* A lane that sleeps owes nothing, either. */
static void test_values_are_sent_before_sleep(void) {
    rig r;
    open_gpu(&r, 256, 1, 49);
    r.spin_ns = 1000;
    rig_start_worker(&r);
    fake_hold(r.gpu, 1);
    for (uint64_t i = 1; i <= 6; i++) {
        send_and_see_it_launched(&r, i, NULL);
        while (fake_signals(r.gpu) < i) usleep(10);
    }
    fake_hold(r.gpu, 0);
    rig_wait(&r, 0, 6);
    rig_close(&r);
}

static int run_long(void *context, const atomr_call *call, atomr_failure *failure) {
    (void)context, (void)failure;
    *call->prompt = 1;
    return ATOMR_OK;
}

/* The end of long work is told by itself, and only that. */
static void test_long_work_is_signalled_at_once(void) {
    enum { PLAN_LONG = 2, N = 64 };
    rig r;
    open_gpu(&r, 256, 1, 47);
    for (unsigned i = 0; i < N; i++) {
        const uint32_t plan = i % 8 ? RIG_NOOP : PLAN_LONG;
        CHECK_EQ(rig_send(&r, 0, plan, NULL, 0, NULL, 0, NULL, NULL), ATOMR_DONE);
    }
    rig_make_worker(&r);
    CHECK_EQ(atomr_worker_add_plan(r.k, PLAN_LONG, run_long, NULL, 0, 0), 0);
    CHECK_EQ(atomr_sender_attach(r.s, atomr_worker_w_fd(r.k), atomr_w_bytes()), 0);
    rig_share(&r);
    rig_go(&r);
    rig_wait(&r, 0, N);
    CHECK(fake_signals(r.gpu) >= N / 8 && fake_signals(r.gpu) <= N / 8 + 2);
    rig_close(&r);
}

/* The lane has launched work without sending its value, since more was queued; then it blocks on another
 * lane.  Who comes then to wait for that work must get it. */
static void test_blocked_lane_owes_nobody(void) {
    for (unsigned queued = 1; queued < 15; queued += 3) {
        rig r;
        open_gpu(&r, 256, 2, 42);
        rig_gate g = {0};
        rig_buffer b = rig_alloc(&r, ATOMR_VOLATILE, RIG_NBYTES);
        atomr_use use = rig_overwrites(&b);
        const uint64_t scalars[RIG_SCALARS] = {0};
        CHECK_EQ(rig_send(&r, 0, PLAN_GATE, &use, 1, scalars, 0, NULL, NULL), ATOMR_DONE);
        for (unsigned i = 0; i < queued; i++)
            CHECK_EQ(rig_send(&r, 1, RIG_NOOP, NULL, 0, NULL, 0, NULL, NULL), ATOMR_DONE);
        use = rig_overwrites(&b);
        CHECK_EQ(rig_mix_send(&r, 1, 1, &use, 1, 0, 0, NULL, NULL), ATOMR_DONE);
        rig_make_worker(&r);
        CHECK_EQ(atomr_worker_add_plan(r.k, PLAN_GATE, rig_run_gate, &g, 1, 0), 0);
        CHECK_EQ(atomr_sender_attach(r.s, atomr_worker_w_fd(r.k), atomr_w_bytes()), 0);
        rig_share(&r);
        rig_go(&r);
        while (!atomic_load(&g.entered)) usleep(50);
        if (queued % 2) usleep(2000); /* with and without the lane blocked already */
        rig_wait(&r, 1, queued);
        CHECK(!atomr_resolved(r.s, 1, queued + 1));
        atomic_store(&g.open, 1);
        rig_wait(&r, 1, queued + 1);
        rig_close(&r);
    }
}

/* A message may fail at its launch long before its forerunners are done: nothing is resolved early. */
static void test_failures_wait_their_turn(void) {
    rig r;
    open_gpu(&r, 256, 1, 43);
    rig_start_worker(&r);
    fake_hold(r.gpu, 1);
    atomr_reply replies[3] = {{0}};
    uint64_t ticket;
    for (uint64_t i = 0; i < 3; i++)
        CHECK_EQ(rig_mix_send(&r, 0, i, NULL, 0, 0, i == 1 ? RIG_OP_FAILS : 0, &replies[i], &ticket), ATOMR_DONE);
    while (atomic_load(&r.k->lanes[0]->launched) < 3) usleep(50);
    for (int k = 0; k < 50; k++) {
        CHECK(atomr_next_orphan(r.s) == NULL);
        for (int i = 0; i < 3; i++) CHECK(!atomr_reply_settle(r.s, &replies[i]));
        CHECK_EQ(atomr_wait(r.s, 0, 1, 100000, 0), ATOMR_TIMEOUT);
    }
    fake_hold(r.gpu, 0);
    rig_wait(&r, 0, 3);
    CHECK_EQ(rig_outcome(&r, &replies[0]), ATOMR_OK);
    CHECK_EQ(rig_outcome(&r, &replies[1]), ATOMR_LIBRARY_ERROR);
    CHECK_EQ(rig_outcome(&r, &replies[2]), ATOMR_OK);
    rig_close(&r);
}

/* The completer sleeps whenever all is done, and must see each next completion. */
static void test_completer_wakes(void) {
    rig r;
    open_gpu(&r, 64, 3, 44);
    r.spin_ns = 0;
    rig_start_worker(&r);
    for (uint64_t i = 0; i < 2500; i++) {
        uint64_t ticket;
        const unsigned lane = (unsigned)rig_below(&r, 3);
        CHECK_EQ(rig_send(&r, lane, RIG_NOOP, NULL, 0, NULL, 0, NULL, &ticket), ATOMR_DONE);
        CHECK_EQ(atomr_wait(r.s, lane, ticket, -1, 0), ATOMR_DONE);
        if (i % 32 == 0) usleep((unsigned)rig_below(&r, 100));
    }
    rig_close(&r);
}

/* A device that is done at once, while the completer asks it for errors and is about to sleep. */
static int instant_depend(void *self, unsigned lane, unsigned other, uint64_t ticket) {
    (void)self, (void)lane, (void)other, (void)ticket;
    return 0;
}
static int instant_launched(void *self, unsigned lane, uint64_t ticket) {
    (void)self, (void)lane, (void)ticket;
    return 0;
}
static int instant_signal(void *self, unsigned lane, uint64_t ticket, _Atomic uint64_t *completed) {
    (void)self, (void)lane;
    atomic_store(completed, ticket);
    return 0;
}
static int instant_wait(void *self, unsigned lane, uint64_t ticket, int64_t timeout_ns) {
    (void)self, (void)lane, (void)ticket, (void)timeout_ns;
    return 0;
}
static int slow_check(void *self) {
    (void)self;
    usleep(100);
    return 0;
}

static void test_completion_meets_sleepy_completer(void) {
    const atomr_backend instant = {.asynchronous = 1, .depend = instant_depend, .launched = instant_launched,
                                   .signal = instant_signal, .wait = instant_wait, .check = slow_check};
    rig r;
    rig_open(&r, 64, 1, 45);
    r.spin_ns = 0;
    r.naps_forever = 1;
    r.s->slice_ns = RIG_FOREVER * INT64_C(1000000000);
    rig_make_worker(&r);
    r.k->backend = instant;
    CHECK_EQ(atomr_sender_attach(r.s, atomr_worker_w_fd(r.k), atomr_w_bytes()), 0);
    rig_share(&r);
    rig_go(&r);
    for (unsigned i = 0; i < 600; i++) {
        uint64_t ticket;
        CHECK_EQ(rig_send(&r, 0, RIG_NOOP, NULL, 0, NULL, 0, NULL, &ticket), ATOMR_DONE);
        CHECK_EQ(rig_send(&r, 0, RIG_NOOP, NULL, 0, NULL, 0, NULL, &ticket), ATOMR_DONE);
        CHECK_EQ(atomr_wait(r.s, 0, ticket, -1, 0), ATOMR_DONE);
        usleep((unsigned)rig_below(&r, 400)); /* so that it asks each time */
    }
    rig_close(&r);
}

static uint64_t rung(int fd) {
    uint64_t n = 0;
    return read(fd, &n, sizeof n) == sizeof n ? n : 0;
}

/* The completer has read an older completion than the sender, which raises `wake_at` past two event loops and says
 * so in `rewake`: what the completer makes of that with its older number must not be the last that it does for them. */
static void test_completer_is_behind_the_sender(void) {
    rig r;
    rig_open(&r, 64, 1, 47);
    rig_make_worker(&r);
    CHECK_EQ(atomr_sender_attach(r.s, atomr_worker_w_fd(r.k), atomr_w_bytes()), 0);
    rig_share(&r);
    CHECK_EQ(atomr_worker_open_lane(r.k, 0), 0); /* and never told to go: this test is lane and completer */
    atomr_sender_set_state(r.s, ATOMR_OPEN);
    atomr_lane *l = atomr_lane_at(r.k, 0);
    int fds[4];
    for (unsigned i = 1; i < 4; i++) {
        fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        CHECK_EQ(atomr_worker_subscribe(r.k, i, dup(fds[i])), 0);
        CHECK_EQ(rung(fds[i]), 1); /* for the subscription itself */
        CHECK_EQ(rig_send(&r, 0, RIG_NOOP, NULL, 0, NULL, 0, NULL, NULL), ATOMR_DONE);
        CHECK(!atomr_want(r.s, 0, i, i));
    }
    atomic_store(&l->w->completed, 3);
    atomr_lock(r.s);
    atomr_update_wake(r.s, 0);
    atomr_unlock(r.s);
    atomr_published(l, 1);
    CHECK_EQ(rung(fds[1]), 1);
    atomr_published(l, 3);
    for (unsigned i = 2; i < 4; i++) CHECK_EQ(rung(fds[i]), 1);
    atomr_published(l, 3);
    for (unsigned i = 1; i < 4; i++) {
        CHECK_EQ(rung(fds[i]), 0);
        close(fds[i]);
    }
    rig_close(&r);
}

/* Stopping lets what was launched finish, and says so. */
static void test_stop_finishes_what_was_launched(void) {
    for (uint64_t seed = 50; seed < 60; seed++) {
        rig r;
        open_gpu(&r, 256, 2, seed);
        r.gpu->dawdle = 3;
        rig_start_worker(&r);
        for (unsigned i = 0; i < 200; i++)
            CHECK_EQ(rig_send(&r, i % 2, RIG_NOOP, NULL, 0, NULL, 0, NULL, NULL), ATOMR_DONE);
        usleep((unsigned)rig_below(&r, 2000));
        atomr_worker_stop(r.k);
        for (unsigned i = 0; i < 2; i++) {
            CHECK_EQ(atomic_load(&r.k->lanes[i]->w->completed), atomic_load(&r.k->lanes[i]->w->claimed));
            CHECK_EQ(r.gpu->streams[i].done, atomic_load(&r.k->lanes[i]->w->claimed));
        }
        rig_close(&r);
    }
}

/* A lane may be opened after messages were sent to it: those that depend on them wait. */
static void late_lane(int gpu) {
    rig r;
    rig_open(&r, 64, 2, 61);
    if (gpu) r.gpu = fake_open(61, 0);
    rig_segment(&r, ATOMR_VOLATILE, 1 << 16);
    rig_start_log(2);
    rig_buffer b = rig_alloc(&r, ATOMR_VOLATILE, RIG_NBYTES);
    r.n_lanes = 1;
    rig_start_worker(&r);
    atomr_use use = rig_overwrites(&b);
    CHECK_EQ(rig_mix_send(&r, 1, 0, &use, 1, 0, 0, NULL, NULL), ATOMR_DONE);
    use = rig_reads(&b);
    uint64_t ticket;
    CHECK_EQ(rig_mix_send(&r, 0, 1, &use, 1, 1, 0, NULL, &ticket), ATOMR_DONE);
    CHECK_EQ(atomr_wait(r.s, 0, ticket, 3000000, 0), ATOMR_TIMEOUT);
    CHECK_EQ(atomr_worker_open_lane(r.k, 1), 0);
    rig_wait(&r, 0, ticket);
    CHECK_EQ(atomic_load(&rig_log[1].value), rig_hash(rig_hash(1, rig_hash(0, 0)), rig_hash(0, 1)));
    rig_close(&r);
}

static void test_late_lane(void) { late_lane(0); }
static void test_late_lane_gpu(void) { late_lane(1); }

/* Workers that never got to run, that ran nothing, and that are stopped twice. */
static void test_stop_early(void) {
    for (int gpu = 0; gpu < 2; gpu++) {
        rig r;
        rig_open(&r, 64, 2, 62);
        if (gpu) r.gpu = fake_open(62, 0);
        rig_make_worker(&r);
        for (unsigned i = 0; i < 2; i++) CHECK_EQ(atomr_worker_open_lane(r.k, i), 0);
        CHECK_EQ(atomr_worker_open_lane(r.k, 1), -1);
        CHECK_EQ(atomr_worker_open_lane(r.k, ATOMR_LANES), -1);
        atomr_worker_stop(r.k);
        atomr_worker_stop(r.k);
        CHECK_EQ(atomr_worker_open_lane(r.k, 0), -1);
        atomr_worker_delete(r.k);
        r.k = NULL;
        rig_start_worker(&r);
        rig_close(&r);
    }
}

int main(int argc, char **argv) {
    rig_watchdog(120);
    RUN(test_values_are_coalesced);
    RUN(test_a_watched_lane_tells_of_each);
    RUN(test_values_of_a_drained_lane);
    RUN(test_values_are_sent_before_sleep);
    RUN(test_long_work_is_signalled_at_once);
    RUN(test_blocked_lane_owes_nobody);
    RUN(test_failures_wait_their_turn);
    RUN(test_completer_wakes);
    RUN(test_completion_meets_sleepy_completer);
    RUN(test_completer_is_behind_the_sender);
    RUN(test_stop_finishes_what_was_launched);
    RUN(test_late_lane);
    RUN(test_late_lane_gpu);
    RUN(test_stop_early);
    return check_end(argc, argv);
}
