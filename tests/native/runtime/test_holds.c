/* Messages that hold: other lanes wait until somebody else has decided about them, the lane's next ones of the plan do not. */
#include "rig.h"

enum { PLAN_HOLD = 2, N = 40 };

static _Atomic uint64_t decided; /* messages, in their order */
static _Atomic uint32_t ran;

static int judge_hold(void *context, const _Atomic int32_t *info, atomr_failure *failure) {
    (void)context, (void)failure;
    return atomic_load(&decided) >= (uint64_t)atomic_load(info) ? ATOMR_OK : ATOMR_UNDECIDED;
}

static int run_hold(void *context, const atomr_call *call, atomr_failure *failure) {
    (void)context, (void)failure;
    atomic_store(call->info, (int32_t)call->ticket);
    *call->late = (atomr_late){judge_hold, NULL, 0};
    *call->holds = 1;
    atomic_fetch_add(&ran, 1);
    return ATOMR_OK;
}

static uint64_t completed(const rig *r) { return atomic_load(&atomr_wlane_at(r->s->region->w, 0)->completed); }

static void test_what_waits_for_a_message_that_holds(void) {
    for (unsigned seed = 1; seed <= 5; seed++) {
        rig r;
        rig_open(&r, 512, 2, seed);
        r.gpu = fake_open(seed, seed % 2 ? 0 : 3);
        rig_segment(&r, ATOMR_VOLATILE, 1 << 16);
        rig_start_log(10);
        atomic_store(&decided, 0);
        atomic_store(&ran, 0);
        const rig_buffer x = rig_alloc(&r, ATOMR_VOLATILE, RIG_NBYTES), y = rig_alloc(&r, ATOMR_VOLATILE, RIG_NBYTES);
        const atomr_use read = rig_reads(&x), write_x = rig_overwrites(&x), write_y = rig_overwrites(&y);
        for (unsigned i = 0; i < N; i++)
            CHECK_EQ(rig_send(&r, 0, PLAN_HOLD, &read, 1, NULL, 0, NULL, NULL), ATOMR_DONE);
        CHECK_EQ(rig_mix_send(&r, 1, 1, &write_x, 1, 0, 0, NULL, NULL), ATOMR_DONE);
        CHECK_EQ(rig_mix_send(&r, 0, 2, &write_y, 1, 0, 0, NULL, NULL), ATOMR_DONE);
        rig_make_worker(&r);
        CHECK_EQ(atomr_worker_add_plan(r.k, PLAN_HOLD, run_hold, NULL, 1, 0), 0);
        CHECK_EQ(atomr_sender_attach(r.s, atomr_worker_w_fd(r.k), atomr_w_bytes()), 0);
        rig_share(&r);
        rig_go(&r);
        atomr_sender_set_state(r.s, ATOMR_OPEN);
        while (atomic_load(&ran) < N) usleep(50); /* none waits for the one before */
        for (uint64_t n = 0; n < N; n++) {
            usleep(n % 8 ? 0 : 1000);
            CHECK(completed(&r) <= n && atomic_load(&r.k->lanes[0]->launched) <= n);
            CHECK(!atomic_load(&rig_log[1].began) && !atomic_load(&rig_log[2].began));
            atomic_store(&decided, n + 1);
            if (n % 3 == 0) rig_wait(&r, 0, n + 1);
        }
        rig_wait(&r, 1, 1);
        rig_wait(&r, 0, N + 1);
        CHECK(atomic_load(&rig_log[1].ended) == 1 && atomic_load(&rig_log[2].ended) == 1);
        rig_close(&r);
    }
}

enum { PLAN_SPOILT = 3, PLAN_NEXT = 4 };

static void spoil(fake_gpu *g, const atomr_call *call) {
    (void)g;
    atomic_store(call->info, -1);
}

/* Has the device write an info word, and fails. */
static int run_spoilt(void *context, const atomr_call *call, atomr_failure *failure) {
    *call->late = (atomr_late){judge_hold, NULL, 0};
    CHECK_EQ(fake_enqueue(context, spoil, call), 0);
    atomic_fetch_add(&ran, 1);
    return rig_fail(7, failure);
}

static int judge_next(void *context, const _Atomic int32_t *info, atomr_failure *failure) {
    (void)context;
    return atomic_load(info) == 2 ? ATOMR_OK : rig_fail(8, failure);
}

/* Writes its info word itself. */
static int run_next(void *context, const atomr_call *call, atomr_failure *failure) {
    (void)context, (void)failure;
    atomic_store(call->info, (int32_t)call->ticket);
    *call->late = (atomr_late){judge_next, NULL, 0};
    atomic_fetch_add(&ran, 1);
    return ATOMR_OK;
}

static void test_info_words_of_a_message_that_failed_are_no_others(void) {
    rig r;
    rig_open(&r, 512, 1, 1);
    r.gpu = fake_open(1, 0);
    fake_hold(r.gpu, 1);
    rig_segment(&r, ATOMR_VOLATILE, 1 << 16);
    atomic_store(&ran, 0);
    const rig_buffer x = rig_alloc(&r, ATOMR_VOLATILE, RIG_NBYTES), y = rig_alloc(&r, ATOMR_VOLATILE, RIG_NBYTES);
    const atomr_use write_x = rig_overwrites(&x), write_y = rig_overwrites(&y);
    CHECK_EQ(rig_send(&r, 0, PLAN_SPOILT, &write_x, 1, NULL, 0, NULL, NULL), ATOMR_DONE);
    CHECK_EQ(rig_send(&r, 0, PLAN_NEXT, &write_y, 1, NULL, 0, NULL, NULL), ATOMR_DONE);
    rig_make_worker(&r);
    CHECK_EQ(atomr_worker_add_plan(r.k, PLAN_SPOILT, run_spoilt, r.gpu, 1, 0), 0);
    CHECK_EQ(atomr_worker_add_plan(r.k, PLAN_NEXT, run_next, NULL, 1, 0), 0);
    CHECK_EQ(atomr_sender_attach(r.s, atomr_worker_w_fd(r.k), atomr_w_bytes()), 0);
    rig_share(&r);
    rig_go(&r);
    atomr_sender_set_state(r.s, ATOMR_OPEN);
    while (atomic_load(&ran) < 2) usleep(50);
    fake_hold(r.gpu, 0);
    rig_wait(&r, 0, 2);
    CHECK_EQ(atomic_load(&atomr_wlane_at(r.s->region->w, 0)->failed), 1);
    rig_close(&r);
}

int main(int argc, char **argv) {
    alarm(120); /* a wait without end */
    RUN(test_what_waits_for_a_message_that_holds);
    RUN(test_info_words_of_a_message_that_failed_are_no_others);
    return check_end(argc, argv);
}
