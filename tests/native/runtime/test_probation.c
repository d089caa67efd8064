/* Probation: the first message of a suspect runs while nothing else does, and clears its plan. */
#include "rig.h"

enum { PLAN_SUSPECT = 5, PLAN_BLOCKED = 6, LANES = 4, MESSAGES = 300 };

static _Atomic int running, together, suspects_run;

/* Work of every kind of message: notes whether a suspect's is alone. */
static void work_of(int suspect) {
    const int others = atomic_fetch_add(&running, suspect ? 1000 : 1);
    if (suspect ? others : others >= 1000) atomic_store(&together, 1);
    usleep(30);
    atomic_fetch_sub(&running, suspect ? 1000 : 1);
    if (suspect) atomic_fetch_add(&suspects_run, 1);
}
static void work_suspect(fake_gpu *g, const atomr_call *call) { (void)g, (void)call, work_of(1); }
static void work_other(fake_gpu *g, const atomr_call *call) { (void)g, (void)call, work_of(0); }

static int run_work(void *context, const atomr_call *call, fake_work work) {
    if (!context) work(NULL, call);
    else if (fake_enqueue(context, work, call)) return ATOMR_LIBRARY_ERROR;
    return ATOMR_OK;
}
static int run_suspect(void *context, const atomr_call *call, atomr_failure *failure) {
    (void)failure;
    return run_work(context, call, work_suspect);
}
static int run_other(void *context, const atomr_call *call, atomr_failure *failure) {
    (void)failure;
    return run_work(context, call, work_other);
}
static int run_failing(void *context, const atomr_call *call, atomr_failure *failure) {
    run_work(context, call, work_suspect);
    return rig_fail(1, failure);
}

/* A cautious worker in which `PLAN_SUSPECT` is on probation; other plans of the rig do `run_other`. */
static void open_cautious(rig *r, int gpu, atomr_run run) {
    rig_open(r, 64, LANES, 41);
    if (gpu) r->gpu = fake_open(41, 3);
    rig_make_worker(r);
    atomic_store(&running, 0), atomic_store(&together, 0), atomic_store(&suspects_run, 0);
    atomr_worker_be_cautious(r->k, 1);
    CHECK_EQ(atomr_worker_suspect(r->k, PLAN_SUSPECT), 0);
    CHECK_EQ(atomr_worker_add_plan(r->k, PLAN_SUSPECT, run, r->gpu, 0, 0), 0);
    CHECK_EQ(atomr_worker_add_plan(r->k, PLAN_BLOCKED, run_other, r->gpu, 0, 0), 0);
    CHECK_EQ(atomr_sender_attach(r->s, atomr_worker_w_fd(r->k), atomr_w_bytes()), 0);
    rig_share(r);
    rig_go(r);
    atomr_sender_set_state(r->s, ATOMR_OPEN);
}

static void send(rig *r, unsigned lane, uint32_t plan) {
    CHECK_EQ(rig_send(r, lane, plan, NULL, 0, NULL, 0, NULL, NULL), ATOMR_DONE);
}

static unsigned acquitted(rig *r, uint32_t *plan) {
    uint32_t plans[ATOMR_ACQUITTED];
    const unsigned n = atomr_sender_acquitted(r->s, plans);
    if (n) *plan = plans[0];
    return n;
}

static void test_a_suspect_runs_alone_once(void) {
    for (int gpu = 0; gpu < 2; gpu++) {
        rig r;
        uint32_t plan = 0;
        open_cautious(&r, gpu, run_suspect);
        for (unsigned i = 0; i < MESSAGES; i++) send(&r, i % (LANES - 1), PLAN_BLOCKED);
        CHECK_EQ(acquitted(&r, &plan), 0);
        send(&r, LANES - 1, PLAN_SUSPECT);
        for (unsigned i = 0; i < MESSAGES; i++) send(&r, i % LANES, PLAN_BLOCKED);
        rig_drain(&r);
        CHECK_EQ(atomic_load(&together), 0);
        while (acquitted(&r, &plan) == 0) usleep(50);
        CHECK_EQ(plan, PLAN_SUSPECT);
        CHECK_EQ(r.k->n_suspects, 0);
        /* From now on it is like others. */
        for (unsigned i = 0; i < MESSAGES; i++) send(&r, i % LANES, i % LANES ? PLAN_BLOCKED : PLAN_SUSPECT);
        rig_drain(&r);
        CHECK_EQ(acquitted(&r, &plan), 1);
        atomr_worker_be_cautious(r.k, 0);
        send(&r, 0, PLAN_SUSPECT);
        rig_drain(&r);
        rig_close(&r);
    }
}

/* A message that failed has proved nothing: the next one is alone, too. */
static void test_a_failure_clears_nobody(void) {
    rig r;
    uint32_t plan;
    open_cautious(&r, 0, run_failing);
    for (unsigned i = 0; i < 20; i++) send(&r, LANES - 1, PLAN_SUSPECT), send(&r, i % (LANES - 1), PLAN_BLOCKED);
    rig_drain(&r);
    CHECK_EQ(atomic_load(&together), 0);
    CHECK_EQ(atomic_load(&suspects_run), 20);
    CHECK_EQ(acquitted(&r, &plan), 0);
    rig_close(&r);
}

/* While something runs that does not end, the suspect waits unclaimed, and at last runs with the others. */
static void test_patience_ends(void) {
    rig r;
    rig_gate gate = {0};
    uint32_t plan;
    open_cautious(&r, 0, run_suspect);
    CHECK_EQ(atomr_worker_add_plan(r.k, 7, rig_run_gate, &gate, 0, 0), 0);
    send(&r, 0, 7);
    while (!atomic_load(&gate.entered)) usleep(50);
    r.k->patience_ns = 20000000;
    const uint64_t began = atomr_now_ns();
    send(&r, 1, PLAN_SUSPECT);
    rig_wait(&r, 1, 1);
    CHECK(atomr_now_ns() - began >= 20000000);
    CHECK_EQ(acquitted(&r, &plan), 0);
    r.k->patience_ns = RIG_FOREVER * INT64_C(10000000000);
    send(&r, 1, PLAN_SUSPECT); /* its one try is over in this worker */
    rig_wait(&r, 1, 2);
    atomic_store(&gate.open, 1);
    rig_drain(&r);
    CHECK_EQ(acquitted(&r, &plan), 0);
    rig_close(&r);
}

/* A suspect that needs another message to end: the others go on after a while. */
static void test_a_suspect_that_waits_for_others(void) {
    for (int gpu = 0; gpu < 2; gpu++) {
        rig r;
        uint32_t plan;
        open_cautious(&r, gpu, run_suspect);
        if (gpu) {
            r.k->patience_ns = 20000000;
            fake_hold(r.gpu, 1);
        }
        send(&r, 0, PLAN_SUSPECT);
        while (gpu && atomic_load(&r.k->lanes[0]->launched) < 1) usleep(50); /* else the other lane may be first */
        send(&r, 1, PLAN_BLOCKED);
        if (gpu) {
            while (atomic_load(&r.k->lanes[1]->launched) < 1) usleep(50); /* though the suspect's is not complete */
            fake_hold(r.gpu, 0);
        }
        rig_drain(&r);
        while (!gpu && acquitted(&r, &plan) == 0) usleep(50);
        CHECK_EQ(acquitted(&r, &plan), gpu ? 0 : 1);
        rig_close(&r);
    }
}

typedef struct {
    rig *r;
    _Atomic int began, ended;
    int suspect;
    atomr_turn turn;
} build;

static void *build_main(void *argument) {
    build *b = argument;
    b->turn = atomr_worker_begin_build(b->r->k, b->suspect);
    work_of(b->suspect);
    atomic_store(&b->began, 1);
    while (!atomic_load(&b->ended)) usleep(50);
    atomr_worker_end_build(b->r->k, b->turn);
    return NULL;
}

/* Builds take turns, too: a suspect's keeps messages out, and another one shares its turn with them. */
static void test_builds(void) {
    for (int suspect = 0; suspect < 2; suspect++) {
        rig r;
        open_cautious(&r, 0, run_suspect);
        build b = {.r = &r, .suspect = suspect};
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, build_main, &b), 0);
        while (!atomic_load(&b.began)) usleep(50);
        CHECK_EQ(b.turn, suspect ? ATOMR_ALONE : ATOMR_SHARED);
        send(&r, 0, PLAN_BLOCKED);
        if (!suspect) rig_wait(&r, 0, 1);
        send(&r, 1, PLAN_SUSPECT);
        usleep(2000);
        CHECK_EQ(atomic_load(&r.k->lanes[1]->w->claimed), 0);
        if (suspect) CHECK_EQ(atomic_load(&r.k->lanes[0]->w->claimed), 0);
        atomic_store(&b.ended, 1);
        pthread_join(thread, NULL);
        rig_drain(&r);
        atomr_worker_be_cautious(r.k, 0);
        CHECK_EQ(atomr_worker_begin_build(r.k, 1), ATOMR_NO_TURN);
        atomr_worker_end_build(r.k, ATOMR_NO_TURN);
        rig_close(&r);
    }
}

/* A worker ends while lanes wait for their turns. */
static void test_the_end_comes_while_lanes_wait(void) {
    rig r;
    rig_gate gate = {0};
    open_cautious(&r, 0, run_suspect);
    CHECK_EQ(atomr_worker_add_plan(r.k, 7, rig_run_gate, &gate, 0, 0), 0);
    send(&r, 0, 7);
    while (!atomic_load(&gate.entered)) usleep(50);
    send(&r, 1, PLAN_SUSPECT);
    send(&r, 2, PLAN_BLOCKED);
    usleep(1000);
    atomic_store(&r.k->stopping, 1);
    atomic_store(&gate.open, 1);
    rig_close(&r);
}

int main(int argc, char **argv) {
    rig_watchdog(120);
    RUN(test_a_suspect_runs_alone_once);
    RUN(test_a_failure_clears_nobody);
    RUN(test_patience_ends);
    RUN(test_a_suspect_that_waits_for_others);
    RUN(test_builds);
    RUN(test_the_end_comes_while_lanes_wait);
    return check_end(argc, argv);
}
