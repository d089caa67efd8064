/* A device that faults: the lanes end at once, wherever they are, and the worker's memory says why. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#include "rig.h"

enum { CODE = 700, MESSAGES = 200, PLAN_STUCK = 3 };

typedef struct {
    rig r;
    int eventfd;
    atomr_reply replies[MESSAGES];
    unsigned n;
} device;

static void open_device(device *x, unsigned n_lanes, uint64_t seed) {
    memset(x, 0, sizeof *x);
    rig_open(&x->r, 64, n_lanes, seed);
    x->r.gpu = fake_open(seed, 3);
    x->r.naps_forever = 1;
    rig_segment(&x->r, ATOMR_VOLATILE, 1 << 16);
    rig_start_log(MESSAGES);
    rig_make_worker(&x->r);
    x->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(x->eventfd >= 0);
    atomr_worker_outlive(x->r.k, x->eventfd);
}

static void go(device *x) {
    CHECK_EQ(atomr_sender_attach(x->r.s, atomr_worker_w_fd(x->r.k), atomr_w_bytes()), 0);
    rig_share(&x->r);
    rig_go(&x->r);
    atomr_sender_set_state(x->r.s, ATOMR_OPEN);
}

/* Send the next message, if there is room for it. */
static int send(device *x, unsigned lane, const rig_buffer *b) {
    atomr_use use = b ? rig_overwrites(b) : (atomr_use){0};
    uint64_t scalars[RIG_SCALARS] = {x->n, 0, 0, 0}, ticket;
    unsigned bad;
    const int result = atomr_send(x->r.s, lane, RIG_MIX + (b != NULL), &use, b != NULL, scalars, RIG_SCALARS, 0,
                                  &x->replies[x->n], &ticket, &bad);
    CHECK(result == ATOMR_DONE || result == ATOMR_FULL);
    x->n += result == ATOMR_DONE;
    return result == ATOMR_DONE;
}

static void await_fault(device *x) {
    struct pollfd p = {x->eventfd, POLLIN, 0};
    CHECK_EQ(poll(&p, 1, RIG_FOREVER * 1000), 1);
    CHECK(atomr_worker_has_faulted(x->r.k));
}

/* What the parent finds in the worker's memory, and that every message has one answer, which is true. */
static void settle(device *x, unsigned least_suspects) {
    atomr_worker_stop(x->r.k); /* waits for no work of the device: it will never be done */
    atomr_worker_stop(x->r.k);
    for (unsigned i = 0; i < x->r.n_lanes; i++) CHECK(x->r.k->lanes[i]->w->state == 2);
    CHECK_EQ(x->r.gpu->late, 0);
    atomr_fault_report report;
    CHECK_EQ(atomr_sender_fault(x->r.s, ATOMR_DEVICE_LOST, 5, "lost", &report), 0);
    CHECK(report.cause.told);
    CHECK_EQ(report.cause.code, CODE);
    CHECK(strcmp(report.cause.lib, "fake") == 0 && strcmp(report.cause.name, "FAKE_ERROR_700") == 0);
    CHECK(strncmp(report.cause.text, "the fake has faulted (met when ", 31) == 0);
    CHECK(report.n_suspects >= least_suspects);
    for (unsigned i = 1; i < report.n_suspects; i++)
        CHECK(!report.suspects[i].likely || report.suspects[i - 1].likely);
    CHECK(report.n_suspects == 0 || report.suspects[0].likely);
    atomr_fault_report_release(&report);
    atomr_sender_end(x->r.s, ATOMR_LOST, ATOMR_DEVICE_LOST, 5, "lost");
    for (unsigned i = 0; i < x->n; i++) {
        const uint32_t ended = atomic_load(&rig_log[i].ended);
        const int code = rig_outcome(&x->r, &x->replies[i]);
        CHECK(code == ATOMR_DEVICE_LOST || (code == ATOMR_OK && ended == 1));
        CHECK(ended <= 1);
    }
    CHECK(atomr_next_orphan(x->r.s) == NULL);
    close(x->eventfd);
    rig_close(&x->r);
}

/* While nothing runs, and nobody waits: the device is looked after all the same. */
static void test_fault_while_idle(void) {
    for (int i = 0; i < 4; i++) {
        const int used = i % 2;
        device x;
        open_device(&x, 3, 70);
        x.r.gpu->quiet = i / 2; /* then only the work of a probe meets the fault */
        x.r.k->probe_ns = 1000000;
        go(&x);
        if (used) {
            CHECK(send(&x, 1, NULL));
            rig_wait(&x.r, 1, 1);
        }
        fake_fault(x.r.gpu, CODE);
        await_fault(&x);
        settle(&x, 0);
    }
}

/* With work that the device will never finish, in lanes that wait for each other. */
static void test_fault_while_busy(void) {
    device x;
    open_device(&x, 3, 71);
    rig_buffer b = rig_alloc(&x.r, ATOMR_VOLATILE, RIG_NBYTES);
    go(&x);
    fake_hold(x.r.gpu, 1);
    for (unsigned i = 0; i < 12; i++) CHECK(send(&x, i % 3, &b));
    for (unsigned i = 0; i < 3; i++)
        while (atomic_load(&x.r.k->lanes[i]->launched) < 4) usleep(50);
    fake_fault(x.r.gpu, CODE);
    await_fault(&x);
    settle(&x, 12);
}

static void *open_gate(void *g) {
    usleep(20000);
    atomic_store(&((rig_gate *)g)->open, 1);
    return NULL;
}

/* One lane is inside of a run, one waits for its launch, one waits for a message, one was never used. */
static void test_fault_while_lanes_wait(void) {
    device x;
    open_device(&x, 4, 72);
    rig_gate g = {.code = ATOMR_LIBRARY_ERROR}; /* of the fault, as it turns out: not what becomes of the message */
    CHECK_EQ(atomr_worker_add_plan(x.r.k, PLAN_STUCK, rig_run_gate, &g, 1, 0), 0);
    rig_buffer b = rig_alloc(&x.r, ATOMR_VOLATILE, RIG_NBYTES);
    go(&x);
    CHECK(send(&x, 2, NULL));
    rig_wait(&x.r, 2, 1);
    const atomr_use use = rig_overwrites(&b);
    CHECK_EQ(rig_send(&x.r, 0, PLAN_STUCK, &use, 1, NULL, 0, &x.replies[x.n], NULL), ATOMR_DONE);
    x.n++;
    CHECK(send(&x, 1, &b));
    while (!atomic_load(&g.entered)) usleep(50);
    usleep(2000);
    pthread_t opener;
    fake_fault(x.r.gpu, CODE);
    atomr_open_gate(x.r.k); /* it is time to look after the device */
    CHECK_EQ(pthread_create(&opener, NULL, open_gate, &g), 0);
    await_fault(&x);
    settle(&x, 1);
    pthread_join(opener, NULL);
}

/* A lane waits for the parent to take its errors, which the parent does not. */
static void test_fault_while_errors_wait(void) {
    device x;
    open_device(&x, 1, 73);
    go(&x);
    for (unsigned i = 0; i < ATOMR_ERRORS + 4; i++) {
        const uint64_t scalars[RIG_SCALARS] = {i, 0, RIG_OP_FAILS, 0};
        CHECK_EQ(rig_send(&x.r, 0, RIG_MIX, NULL, 0, scalars, RIG_SCALARS, NULL, NULL), ATOMR_DONE);
    }
    while (atomic_load(&x.r.k->lanes[0]->w->errors) < ATOMR_ERRORS) usleep(50);
    fake_fault(x.r.gpu, CODE);
    atomr_open_gate(x.r.k);
    await_fault(&x);
    atomr_worker_stop(x.r.k);
    atomr_sender_end(x.r.s, ATOMR_LOST, ATOMR_DEVICE_LOST, 5, "lost");
    unsigned own = 0, lost = 0;
    for (atomr_verdict *v; (v = atomr_next_orphan(x.r.s)) != NULL; atomr_verdict_release(x.r.s, v))
        v->error.code == ATOMR_LIBRARY_ERROR ? own++ : lost++;
    CHECK_EQ(own, ATOMR_ERRORS);
    CHECK_EQ(lost, 4);
    close(x.eventfd);
    rig_close(&x.r);
}

/* At any moment among messages of four lanes that depend on each other. */
static void test_fault_at_any_moment(void) {
    for (uint64_t seed = 100; seed < 140; seed++) {
        device x;
        open_device(&x, 4, seed);
        rig_buffer buffers[6];
        for (int i = 0; i < 6; i++) buffers[i] = rig_alloc(&x.r, ATOMR_VOLATILE, RIG_NBYTES);
        go(&x);
        const unsigned moment = (unsigned)rig_below(&x.r, MESSAGES);
        while (x.n < MESSAGES) {
            if (x.n == moment) fake_fault(x.r.gpu, CODE);
            if (!send(&x, (unsigned)rig_below(&x.r, 4), &buffers[rig_below(&x.r, 6)])) {
                if (x.n >= moment) break;
                usleep(100);
            }
        }
        if (x.n < moment) fake_fault(x.r.gpu, CODE);
        await_fault(&x);
        settle(&x, 0);
    }
}

/* The fault comes while the worker is being stopped: nobody is told, and nobody waits. */
static void test_fault_while_stopping(void) {
    device x;
    open_device(&x, 2, 75);
    go(&x);
    fake_hold(x.r.gpu, 1);
    for (unsigned i = 0; i < 8; i++) CHECK(send(&x, i % 2, NULL));
    for (unsigned i = 0; i < 2; i++)
        while (atomic_load(&x.r.k->lanes[i]->launched) < 4) usleep(50);
    pthread_t stopper;
    CHECK_EQ(pthread_create(&stopper, NULL, (void *(*)(void *))(void *)atomr_worker_stop, x.r.k), 0);
    while (!atomic_load(&x.r.k->lanes_ended)) usleep(50);
    fake_fault(x.r.gpu, CODE);
    pthread_join(stopper, NULL);
    uint64_t rung;
    CHECK(read(x.eventfd, &rung, sizeof rung) < 0);
    settle(&x, 8);
}

/* A process of its own ends, having said why; several threads may meet the fault at once. */
static void test_fault_ends_a_process(void) {
#ifndef __SANITIZE_THREAD__ /* it cannot follow a fork that makes threads */
    for (uint64_t seed = 80; seed < 100; seed++) {
        rig r;
        rig_open(&r, 256, 3, seed);
        rig_segment(&r, ATOMR_VOLATILE, 1 << 16);
        rig_start_log(64);
        int up[2], down[2], number;
        CHECK(pipe(up) == 0 && pipe(down) == 0);
        rig_buffer b = rig_alloc(&r, ATOMR_VOLATILE, RIG_NBYTES);
        for (uint64_t i = 0; i < 12; i++) {
            const atomr_use use = rig_overwrites(&b);
            CHECK_EQ(rig_mix_send(&r, (unsigned)i % 3, i, &use, 1, 0, 0, NULL, NULL), ATOMR_DONE);
        }
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            r.gpu = fake_open(seed, 0);
            fake_hold(r.gpu, 1);
            rig_make_worker(&r);
            r.k->outlives = 0;
            number = atomr_worker_w_fd(r.k);
            CHECK_EQ(write(up[1], &number, sizeof number), sizeof number);
            CHECK_EQ(read(down[0], &number, 1), 1);
            rig_go(&r);
            if (seed % 2) usleep((unsigned)rig_below(&r, 500)); /* lanes may meet it, too */
            else
                for (unsigned i = 0; i < 3; i++)
                    while (atomic_load(&r.k->lanes[i]->launched) < 4) usleep(50);
            fake_fault(r.gpu, CODE);
            for (;;) pause();
        }
        CHECK_EQ(read(up[0], &number, sizeof number), sizeof number);
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)child, number);
        const int w_fd = open(path, O_RDONLY | O_CLOEXEC);
        CHECK(w_fd >= 0);
        CHECK_EQ(atomr_sender_attach(r.s, w_fd, atomr_w_bytes()), 0);
        CHECK_EQ(write(down[1], &number, 1), 1);
        int status;
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && !WCOREDUMP(status));
        atomr_fault_report report;
        CHECK_EQ(atomr_sender_fault(r.s, ATOMR_DEVICE_FAULT, 1, "died", &report), 0);
        CHECK(report.cause.told && report.cause.code == CODE);
        CHECK(report.n_suspects <= 12);
        if (seed % 2 == 0) {
            CHECK_EQ(report.n_suspects, 12);
            CHECK(report.suspects[0].likely && !report.suspects[1].likely); /* the others wait for it, or come after */
            CHECK_EQ(report.suspects[0].lane, 0);
            CHECK_EQ(report.suspects[0].ticket, 1);
        }
        atomr_fault_report_release(&report);
        close(w_fd);
        for (int i = 0; i < 2; i++) close(up[i]), close(down[i]);
        rig_close(&r);
    }
#endif
}

int main(int argc, char **argv) {
    rig_watchdog(120);
    RUN(test_fault_ends_a_process);
    RUN(test_fault_while_idle);
    RUN(test_fault_while_busy);
    RUN(test_fault_while_lanes_wait);
    RUN(test_fault_while_errors_wait);
    RUN(test_fault_at_any_moment);
    RUN(test_fault_while_stopping);
    return check_end(argc, argv);
}
