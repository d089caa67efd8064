/* Failures: who is told, what is poisoned by them, and how poison ends. */
#include <poll.h>
#include <sys/eventfd.h>

#include "rig.h"

enum { BUFFERS = 12, MOST_USES = 5, BATCH = 400 };

/* An expected outcome: the code, and of an inherited failure its first cause. */
typedef struct {
    int code, inherited;
    uint32_t cause_lane;
    uint64_t cause_ticket, status;
} outcome;

typedef struct {
    rig r;
    rig_buffer buffers[BUFFERS];
    outcome poison[BUFFERS]; /* code 0: none */
    uint64_t number;
    unsigned n_sent, n_orphans, n_expected_orphans;
    outcome expected[BATCH];
    atomr_reply replies[BATCH];
    int asked[BATCH];
    uint64_t tickets[BATCH];
    unsigned lanes[BATCH];
} model;

static void same(const outcome *want, const atomr_error *got) {
    CHECK_EQ(got->code, want->code);
    CHECK_EQ(got->inherited, want->inherited);
    CHECK_EQ(got->cause_lane, want->cause_lane);
    CHECK_EQ(got->cause_ticket, want->cause_ticket);
    CHECK_EQ(got->status, want->status);
}

static void step(model *m) {
    atomr_use uses[MOST_USES];
    unsigned which[MOST_USES], n_reads = (unsigned)rig_below(&m->r, 3), n = n_reads + (unsigned)rig_below(&m->r, 3);
    const unsigned lane = (unsigned)rig_below(&m->r, m->r.n_lanes), at = m->n_sent++;
    if (rig_below(&m->r, 6) == 0) { /* a new allocation is not poisoned, wherever it lies */
        const unsigned i = (unsigned)rig_below(&m->r, BUFFERS);
        CHECK_EQ(atomr_free(m->r.s, m->buffers[i].slot, m->buffers[i].generation), ATOMR_DONE);
        m->buffers[i] = rig_alloc(&m->r, ATOMR_VOLATILE, RIG_NBYTES);
        m->poison[i].code = 0;
        const atomr_use use = rig_overwrites(&m->buffers[i]); /* so that no half is garbage */
        CHECK_EQ(rig_mix_send(&m->r, lane, m->number++, &use, 1, 0, 0, NULL, NULL), ATOMR_DONE);
    }
    outcome o = {0};
    for (unsigned i = 0; i < n; i++) {
        which[i] = (unsigned)rig_below(&m->r, BUFFERS);
        for (unsigned k = 0; k < i; k++)
            if (which[k] == which[i]) { /* each buffer once, for a simple model */
                which[i] = (which[i] + 1) % BUFFERS;
                k = UINT32_MAX;
            }
        uses[i] = i < n_reads ? rig_reads(&m->buffers[which[i]])
                  : rig_below(&m->r, 3) ? rig_overwrites(&m->buffers[which[i]])
                                        : rig_writes_part(&m->buffers[which[i]]);
        if (i >= n_reads && rig_below(&m->r, 4) == 0) uses[i].access |= ATOMR_HOST;
        if (i < n_reads && m->poison[which[i]].code && !o.code) {
            o = m->poison[which[i]];
            o.inherited = 1;
        }
    }
    const int fails = rig_below(&m->r, 5) == 0;
    static const unsigned ways[] = {RIG_OP_FAILS, RIG_OP_FAILS_LATE}; /* nobody can tell which */
    const unsigned flags = fails ? ways[rig_below(&m->r, 2)] : rig_below(&m->r, 5) == 0 ? RIG_OP_JUDGED : 0;
    m->asked[at] = rig_below(&m->r, 2) == 0;
    m->replies[at] = (atomr_reply){0};
    CHECK_EQ(rig_mix_send(&m->r, lane, m->number, uses, n, n_reads, flags,
                          m->asked[at] ? &m->replies[at] : NULL, &m->tickets[at]), ATOMR_DONE);
    m->lanes[at] = lane;
    if (!o.code && fails) o = (outcome){ATOMR_LIBRARY_ERROR, 0, lane, m->tickets[at], m->number};
    m->number++;
    m->expected[at] = o;
    m->n_expected_orphans += o.code && !m->asked[at];
    for (unsigned i = n_reads; i < n; i++) {
        outcome *p = &m->poison[which[i]];
        if (o.code && !p->code && !(uses[i].access & ATOMR_HOST)) *p = o; /* the first cause stays */
        if (!o.code && (uses[i].access & ATOMR_OVERWRITE)) p->code = 0;
        if (p->code) p->inherited = 0;
    }
}

static void take_orphans(model *m) {
    for (atomr_verdict *v; (v = atomr_next_orphan(m->r.s)) != NULL; m->n_orphans++) {
        unsigned i = 0;
        while (i < m->n_sent && !(m->lanes[i] == v->lane && m->tickets[i] == v->error.ticket)) i++;
        CHECK(i < m->n_sent && !m->asked[i]);
        same(&m->expected[i], &v->error);
        m->expected[i].code = -1; /* once */
        atomr_verdict_release(m->r.s, v);
    }
}

static void poison_model(uint32_t cells, unsigned n_lanes, int gpu, uint64_t seed, unsigned rounds) {
    static model m;
    memset(&m, 0, sizeof m);
    rig_open(&m.r, cells, n_lanes, seed);
    if (gpu) m.r.gpu = fake_open(seed, gpu);
    rig_start_log((uint64_t)rounds * BATCH * 2 + BUFFERS);
    rig_segment(&m.r, ATOMR_VOLATILE, 1 << 16);
    rig_start_worker(&m.r);
    for (unsigned i = 0; i < BUFFERS; i++) {
        m.buffers[i] = rig_alloc(&m.r, ATOMR_VOLATILE, RIG_NBYTES);
        const atomr_use use = rig_overwrites(&m.buffers[i]);
        CHECK_EQ(rig_mix_send(&m.r, 0, m.number++, &use, 1, 0, 0, NULL, NULL), ATOMR_DONE);
    }
    for (unsigned round = 0; round < rounds; round++) {
        m.n_sent = m.n_orphans = m.n_expected_orphans = 0;
        while (m.n_sent < BATCH) {
            step(&m);
            if (rig_below(&m.r, 50) == 0) take_orphans(&m); /* slowly: error rings fill up */
        }
        rig_drain(&m.r);
        for (unsigned i = 0; i < BATCH; i++) {
            if (!m.asked[i]) continue;
            CHECK(atomr_reply_settle(m.r.s, &m.replies[i]));
            if (m.replies[i].verdict) same(&m.expected[i], &m.replies[i].verdict->error);
            else CHECK_EQ(m.expected[i].code, 0);
            atomr_reply_drop(m.r.s, &m.replies[i]);
        }
        take_orphans(&m);
        CHECK_EQ(m.n_orphans, m.n_expected_orphans);
    }
    rig_close(&m.r);
}

static void test_poison_on_host(void) { poison_model(256, 3, 0, 21, 8); }
static void test_poison_on_gpu(void) { poison_model(64, 4, 30, 22, 4); }
static void test_poison_many_seeds(void) {
    for (uint64_t seed = 200; seed < 208; seed++)
        poison_model(32 << seed % 3, 1 + seed % 5, seed % 2 ? 20 : 0, seed, 1);
}

/* Allocations that fail and are freed, thousands: their entries go, while one that is needed stays. */
static void churn(int gpu) {
    enum { N = 2500 };
    rig r;
    rig_open(&r, 64, 2, 31);
    if (gpu) r.gpu = fake_open(31, 0);
    rig_start_log(3 * N + 3);
    rig_segment(&r, ATOMR_VOLATILE, 1 << 16);
    rig_start_worker(&r);
    const rig_buffer kept = rig_alloc(&r, ATOMR_VOLATILE, RIG_NBYTES);
    atomr_use uses[2] = {rig_overwrites(&kept)};
    uint64_t number = 0, ticket;
    CHECK_EQ(rig_mix_send(&r, 0, number++, uses, 1, 0, RIG_OP_FAILS, NULL, NULL), ATOMR_DONE);
    for (unsigned i = 0; i < N; i++) {
        const rig_buffer b = rig_alloc(&r, ATOMR_VOLATILE, RIG_NBYTES), c = rig_alloc(&r, ATOMR_VOLATILE, RIG_NBYTES);
        const unsigned lane = i % 2;
        uses[0] = rig_overwrites(&b);
        CHECK_EQ(rig_mix_send(&r, lane, number++, uses, 1, 0, RIG_OP_FAILS, NULL, NULL), ATOMR_DONE);
        /* Read by the other lane after its handle is gone: the entry must last until then. */
        uses[0] = rig_reads(&b);
        uses[1] = rig_overwrites(&c);
        atomr_reply reply = {0};
        CHECK_EQ(rig_mix_send(&r, 1 - lane, number++, uses, 2, 1, 0, i % 8 ? NULL : &reply, &ticket), ATOMR_DONE);
        CHECK_EQ(atomr_free(r.s, b.slot, b.generation), ATOMR_DONE);
        CHECK_EQ(atomr_free(r.s, c.slot, c.generation), ATOMR_DONE);
        if (i % 8) continue;
        rig_wait(&r, 1 - lane, ticket);
        CHECK(atomr_reply_settle(r.s, &reply) && reply.verdict && reply.verdict->error.inherited);
        atomr_reply_drop(r.s, &reply);
    }
    rig_drain(&r);
    CHECK(atomic_load(&r.k->poison.count) < 1000);
    unsigned found = 0;
    for (unsigned i = 0; i < ATOMR_POISON_MIRROR; i++)
        found += atomic_load(&((atomr_wheader *)r.k->w)->poisoned[i]) != 0;
    CHECK_EQ(found + atomic_load(&((atomr_wheader *)r.k->w)->poison_overflow), atomic_load(&r.k->poison.count));
    uses[0] = rig_reads(&kept);
    atomr_reply reply = {0};
    CHECK_EQ(rig_mix_send(&r, 1, number++, uses, 1, 1, 0, &reply, &ticket), ATOMR_DONE);
    rig_wait(&r, 1, ticket);
    CHECK(atomr_reply_settle(r.s, &reply) && reply.verdict && reply.verdict->error.inherited);
    CHECK_EQ(reply.verdict->error.cause_ticket, 1);
    atomr_reply_drop(r.s, &reply);
    rig_close(&r);
}

static void test_churn(void) { churn(0); }
static void test_churn_gpu(void) { churn(1); }

/* The prune itself, with a message that is published just before its slot's generation changes. */
static uint64_t published_now, processed_now;
static void published(void *self, uint64_t *cells) {
    (void)self;
    for (unsigned i = 0; i < ATOMR_LANES; i++) cells[i] = published_now;
}
static void processed(void *self, uint64_t *cells) {
    (void)self;
    for (unsigned i = 0; i < ATOMR_LANES; i++) cells[i] = processed_now;
}

static void test_prune(void) {
    static atomr_wheader w;
    static atomr_poison p;
    static _Atomic uint32_t generations[4096];
    const atomr_progress progress = {published, processed, NULL};
    const atomr_error error = {.code = ATOMR_LIBRARY_ERROR};
    atomr_error cause;
    atomr_operand o = {.slot = 7, .generation = 1, .access = ATOMR_READ | ATOMR_WRITE};
    atomr_poison_init(&p, &w);
    atomic_store(&generations[7], 1);
    published_now = processed_now = 5;
    atomr_poison_add(&p, &o, 1, &error);
    atomr_poison_prune(&p, generations, &progress);
    atomr_poison_prune(&p, generations, &progress);
    CHECK(atomr_poison_find(&p, &o, 1, &cause)); /* the slot lives */
    atomic_store(&generations[7], 2);
    published_now = 10;
    atomr_poison_prune(&p, generations, &progress);
    processed_now = 9;
    atomr_poison_prune(&p, generations, &progress);
    CHECK(atomr_poison_find(&p, &o, 1, &cause)); /* a queued message may name it */
    processed_now = 10;
    atomr_poison_prune(&p, generations, &progress);
    CHECK(!atomr_poison_find(&p, &o, 1, &cause));
    CHECK_EQ(atomic_load(&p.count), 0);
    CHECK_EQ(atomic_load(&w.poisoned[0]), 0);

    /* More than the mirror holds is counted there, and no more once it is lifted. */
    for (uint32_t i = 0; i < ATOMR_POISON_MIRROR + 10; i++) {
        o = (atomr_operand){.slot = 100 + i, .generation = 1, .access = ATOMR_WRITE};
        atomr_poison_add(&p, &o, 1, &error);
    }
    CHECK_EQ(atomic_load(&w.poison_overflow), 10);
    for (uint32_t i = 0; i < ATOMR_POISON_MIRROR + 10; i++) {
        o = (atomr_operand){.slot = 100 + i, .generation = 1, .access = ATOMR_WRITE | ATOMR_OVERWRITE};
        atomr_poison_lift(&p, &o, 1);
    }
    CHECK_EQ(atomic_load(&w.poison_overflow), 0);
    CHECK_EQ(atomic_load(&p.count), 0);
    atomr_poison_release(&p);
}

/* A lane with more failures than its error ring holds goes on as soon as anybody waits, or looks. */
static void full_error_ring(int gpu, unsigned fails) {
    rig r;
    rig_open(&r, 256, 2, 32);
    if (gpu) r.gpu = fake_open(32, 0);
    rig_start_log(300);
    rig_start_worker(&r);
    uint64_t ticket = 0, first;
    CHECK_EQ(rig_send(&r, 0, RIG_NOOP, NULL, 0, NULL, 0, NULL, &first), ATOMR_DONE);
    for (unsigned i = 0; i < 100; i++)
        CHECK_EQ(rig_mix_send(&r, 0, i, NULL, 0, 0, fails, NULL, &ticket), ATOMR_DONE);
    CHECK_EQ(rig_send(&r, 1, RIG_NOOP, NULL, 0, NULL, 0, NULL, NULL), ATOMR_DONE);
    rig_wait(&r, 0, first);
    rig_wait(&r, 0, ticket);
    unsigned orphans = 0;
    for (atomr_verdict *v; (v = atomr_next_orphan(r.s)) != NULL; orphans++) {
        CHECK_EQ(v->error.ticket, orphans + 2);
        atomr_verdict_release(r.s, v);
    }
    CHECK_EQ(orphans, 100);
    /* And a lane that waits there can be stopped; the message does not look like a success. */
    for (unsigned i = 0; i < 100; i++)
        CHECK_EQ(rig_mix_send(&r, 0, i, NULL, 0, 0, fails, NULL, &ticket), ATOMR_DONE);
    while (atomic_load(&r.k->lanes[0]->w->errors) < 100 + ATOMR_ERRORS) usleep(100);
    rig_stop_worker(&r);
    atomr_fault_report report;
    atomr_sender_fault(r.s, ATOMR_DEVICE_FAULT, 1, "stopped", &report);
    atomr_fault_report_release(&report);
    for (orphans = 0; orphans < ATOMR_ERRORS; orphans++) {
        atomr_verdict *v = atomr_next_orphan(r.s);
        CHECK(v != NULL);
        CHECK_EQ(v->error.code, ATOMR_LIBRARY_ERROR);
        atomr_verdict_release(r.s, v);
    }
    rig_close(&r);
}

static void test_full_error_ring(void) { full_error_ring(0, RIG_OP_FAILS); }
static void test_full_error_ring_gpu(void) { full_error_ring(1, RIG_OP_FAILS); }
static void test_full_error_ring_late(void) { full_error_ring(1, RIG_OP_FAILS_LATE); }

/* Nothing is published before it is judged: neither the message, nor what reads its output, nor what comes later. */
static void test_a_late_failure_is_there_before_its_completion(void) {
    rig r;
    rig_open(&r, 64, 2, 33);
    r.gpu = fake_open(33, 0);
    rig_start_log(100);
    rig_segment(&r, ATOMR_VOLATILE, 1 << 16);
    rig_start_worker(&r);
    const rig_buffer a = rig_alloc(&r, ATOMR_VOLATILE, RIG_NBYTES), b = rig_alloc(&r, ATOMR_VOLATILE, RIG_NBYTES);
    atomr_use write = rig_overwrites(&a), pair[2] = {rig_reads(&a), rig_overwrites(&b)};
    atomr_reply replies[4] = {{0}};
    uint64_t ticket, other;
    fake_hold(r.gpu, 1);
    CHECK_EQ(rig_mix_send(&r, 0, 0, &write, 1, 0, RIG_OP_FAILS_LATE, &replies[0], &ticket), ATOMR_DONE);
    CHECK_EQ(rig_mix_send(&r, 1, 1, pair, 2, 1, 0, &replies[1], &other), ATOMR_DONE);
    CHECK_EQ(rig_send(&r, 1, RIG_NOOP, NULL, 0, NULL, 0, &replies[2], &other), ATOMR_DONE);
    atomr_lane *lane = r.k->lanes[1];
    while (atomic_load(&lane->launched) < other) usleep(100); /* neither lane waits for the outcome */
    CHECK_EQ(atomic_load(&rig_log[1].began), 0);
    CHECK_EQ(atomic_load(&lane->w->completed), 0);
    fake_hold(r.gpu, 0);
    rig_wait(&r, 1, other);
    rig_wait(&r, 0, ticket);
    CHECK_EQ(atomic_load(&rig_log[1].ended), 1); /* it has run, on what nobody may see */
    CHECK(atomr_reply_settle(r.s, &replies[1]) && replies[1].verdict && replies[1].verdict->error.inherited);
    CHECK_EQ(replies[1].verdict->error.status, 0); /* the cause: operation 0 */
    CHECK(strcmp(replies[1].verdict->error.text, "operation 0") == 0);
    atomr_reply_drop(r.s, &replies[1]);
    CHECK_EQ(rig_outcome(&r, &replies[0]), ATOMR_LIBRARY_ERROR);
    CHECK_EQ(rig_outcome(&r, &replies[2]), ATOMR_OK);
    write = rig_reads(&b); /* poisoned by then */
    CHECK_EQ(rig_mix_send(&r, 0, 3, &write, 1, 1, 0, &replies[3], &ticket), ATOMR_DONE);
    rig_wait(&r, 0, ticket);
    CHECK_EQ(rig_outcome(&r, &replies[3]), ATOMR_LIBRARY_ERROR);
    CHECK_EQ(atomic_load(&rig_log[3].began), 0); /* what is known to be nothing is not read */
    rig_close(&r);
}

/* A lane runs ahead by as many open outcomes as there are info words, and no further. */
static void test_many_open_outcomes(void) {
    enum { N = 3 * ATOMR_INFOS };
    rig r;
    static atomr_reply replies[N];
    rig_open(&r, 512, 1, 34);
    r.gpu = fake_open(34, 0);
    rig_start_log(N);
    rig_start_worker(&r);
    memset(replies, 0, sizeof replies);
    fake_hold(r.gpu, 1);
    uint64_t ticket = 0;
    for (unsigned i = 0; i < N; i++)
        CHECK_EQ(rig_mix_send(&r, 0, i, NULL, 0, 0, i % 3 ? RIG_OP_JUDGED : RIG_OP_FAILS_LATE, &replies[i], &ticket),
                 ATOMR_DONE);
    atomr_lane *lane = r.k->lanes[0];
    while (atomic_load(&lane->launched) < ATOMR_INFOS) usleep(100);
    usleep(20000);
    CHECK_EQ(atomic_load(&lane->launched), ATOMR_INFOS);
    fake_hold(r.gpu, 0);
    rig_wait(&r, 0, ticket);
    for (unsigned i = 0; i < N; i++) CHECK_EQ(rig_outcome(&r, &replies[i]), i % 3 ? ATOMR_OK : ATOMR_LIBRARY_ERROR);
    CHECK_EQ(atomic_load(&lane->n_suspended), 0);
    rig_close(&r);
}

/* A worker may be stopped, and its device may fault, while outcomes are open: nothing completes, nothing is lost. */
static void open_at_the_end(int faults) {
    rig r;
    rig_open(&r, 64, 2, 35);
    r.gpu = fake_open(35, 0);
    rig_start_log(100);
    rig_segment(&r, ATOMR_VOLATILE, 1 << 16);
    rig_start_worker(&r);
    const rig_buffer a = rig_alloc(&r, ATOMR_VOLATILE, RIG_NBYTES);
    atomr_use use = rig_overwrites(&a);
    uint64_t ticket, other;
    fake_hold(r.gpu, 1);
    for (unsigned i = 0; i < 10; i++)
        CHECK_EQ(rig_mix_send(&r, 0, i, &use, 1, 0, RIG_OP_JUDGED, NULL, &ticket), ATOMR_DONE);
    use = rig_reads(&a);
    CHECK_EQ(rig_mix_send(&r, 1, 10, &use, 1, 1, 0, NULL, &other), ATOMR_DONE);
    while (atomic_load(&r.k->lanes[1]->launched) < other) usleep(100);
    const atomr_wlane *w = r.k->lanes[0]->w;
    if (faults) fake_fault(r.gpu, 700);
    fake_hold(r.gpu, 0);
    if (faults) {
        while (!atomr_worker_has_faulted(r.k)) usleep(100);
        CHECK_EQ(atomic_load(&w->completed), 0);
    }
    atomr_worker_stop(r.k);
    CHECK_EQ(atomic_load(&w->completed), faults ? 0 : ticket);
    CHECK_EQ(atomic_load(&r.k->lanes[1]->w->completed), faults ? 0 : other);
    CHECK_EQ(atomic_load(&r.k->poison.count), faults);
    rig_close(&r);
}

static void test_stopped_with_open_outcomes(void) { open_at_the_end(0); }
static void test_faulted_with_open_outcomes(void) { open_at_the_end(1); }

/* The eventfd of subscriber 0 rings for the failure of a tell, which nobody waits for, and not for a success. */
static void failed_tells_ring(int gpu) {
    static const unsigned ways[] = {RIG_OP_FAILS, RIG_OP_FAILS_LATE};
    rig r;
    rig_open(&r, 64, 1, 61);
    if (gpu) r.gpu = fake_open(61, 0);
    rig_start_log(8);
    rig_start_worker(&r);
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(fd >= 0);
    CHECK_EQ(atomr_worker_subscribe(r.k, 0, dup(fd)), 0);
    struct pollfd told = {.fd = fd, .events = POLLIN};
    uint64_t rings;
    CHECK_EQ(read(fd, &rings, sizeof rings), sizeof rings); /* for the subscription */
    for (unsigned i = 0; i < 8; i++) {
        uint64_t ticket;
        const unsigned flags = i % 4 < 2 ? i % 4 * RIG_OP_JUDGED : ways[i % 2];
        CHECK_EQ(rig_mix_send(&r, 0, i, NULL, 0, 0, flags, NULL, &ticket), ATOMR_DONE);
        if (i % 4 < 2) {
            rig_wait(&r, 0, ticket);
            if (!gpu) CHECK_EQ(poll(&told, 1, 0), 0); /* there it may ring once more for the failure before */
            continue;
        }
        atomr_verdict *v = NULL;
        while (!v) { /* on a GPU it may ring before the message is complete, too */
            CHECK_EQ(poll(&told, 1, 20000), 1);
            CHECK_EQ(read(fd, &rings, sizeof rings), sizeof rings);
            v = atomr_next_orphan(r.s);
        }
        CHECK_EQ(v->error.ticket, ticket);
        atomr_verdict_release(r.s, v);
    }
    rig_close(&r);
    close(fd);
}

static void test_failed_tells_ring(void) { failed_tells_ring(0); }
static void test_failed_tells_ring_gpu(void) { failed_tells_ring(1); }

int main(int argc, char **argv) {
    rig_watchdog(120);
    RUN(test_poison_on_host);
    RUN(test_poison_on_gpu);
    RUN(test_poison_many_seeds);
    RUN(test_churn);
    RUN(test_churn_gpu);
    RUN(test_prune);
    RUN(test_full_error_ring);
    RUN(test_full_error_ring_gpu);
    RUN(test_full_error_ring_late);
    RUN(test_a_late_failure_is_there_before_its_completion);
    RUN(test_many_open_outcomes);
    RUN(test_stopped_with_open_outcomes);
    RUN(test_faulted_with_open_outcomes);
    RUN(test_failed_tells_ring);
    RUN(test_failed_tells_ring_gpu);
    return check_end(argc, argv);
}
