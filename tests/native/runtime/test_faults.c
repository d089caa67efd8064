/* What a fault decides, message by message.  The worker is of paper: a test writes its progress itself. */
#include "rig.h"

typedef struct {
    rig r;
    rig_paper worker;
    atomr_fault_report report;
} paper;

enum { MOST = 16 };
static atomr_reply replies[MOST];

static void paper_open(paper *x, unsigned n_lanes) {
    memset(x, 0, sizeof *x);
    memset(replies, 0, sizeof replies);
    rig_open(&x->r, 64, n_lanes, 1);
    for (int pool = 0; pool < ATOMR_POOLS; pool++) rig_segment(&x->r, pool, 1 << 14);
    rig_start_log(64);
    rig_attach_paper(&x->r, &x->worker);
}

static void paper_close(paper *x) {
    rig_detach_paper(&x->worker);
    atomr_fault_report_release(&x->report);
    rig_close(&x->r);
}

static void progress(paper *x, unsigned lane, uint64_t completed, uint64_t claimed) {
    atomic_store(&atomr_wlane_at(x->worker.w, lane)->claimed, claimed);
    atomic_store(&atomr_wlane_at(x->worker.w, lane)->completed, completed);
}

static void report_failure(paper *x, unsigned lane, uint64_t ticket) {
    atomr_wlane *w = atomr_wlane_at(x->worker.w, lane);
    const uint32_t n = atomic_load(&w->errors);
    w->ring[n % ATOMR_ERRORS] = (atomr_error){.ticket = ticket, .code = ATOMR_LIBRARY_ERROR, .status = 7};
    atomic_store(&w->errors, n + 1);
}

static void die(paper *x) {
    atomr_fault_report_release(&x->report);
    CHECK_EQ(atomr_sender_fault(x->r.s, ATOMR_DEVICE_FAULT, 3, "gone", &x->report), 0);
    rig_detach_paper(&x->worker);
    rig_attach_paper(&x->r, &x->worker);
}

static uint64_t commit(paper *x, unsigned lane, unsigned at, uint32_t group, const atomr_use *uses, unsigned n) {
    const uint64_t scalars[RIG_SCALARS] = {at, n};
    uint64_t ticket;
    unsigned bad;
    CHECK_EQ(atomr_send(x->r.s, lane, RIG_MIX + n, uses, n, scalars, RIG_SCALARS, group, &replies[at], &ticket, &bad),
             ATOMR_DONE);
    return ticket;
}

static uint64_t send(paper *x, unsigned lane, unsigned at, const atomr_use *uses, unsigned n) {
    return commit(x, lane, at, 0, uses, n);
}

static int refusal(paper *x, unsigned lane, uint64_t ticket) {
    return atomr_head_at(x->r.s, lane, *atomr_end_of(x->r.s, lane, ticket - 1))->refusal;
}

static int state_of(paper *x, const rig_buffer *b) { return atomr_check(x->r.s, b->slot, b->generation); }

static void test_claimed_and_queued(void) {
    paper x;
    paper_open(&x, 2);
    rig_buffer d = rig_alloc(&x.r, ATOMR_DURABLE, 64), e = rig_alloc(&x.r, ATOMR_DURABLE, 64);
    rig_buffer v = rig_alloc(&x.r, ATOMR_VOLATILE, 64), h = rig_alloc(&x.r, ATOMR_STAGING, 64);
    const atomr_use to_d = rig_overwrites(&d), to_v = rig_overwrites(&v);
    const atomr_use e_h[2] = {rig_overwrites(&e), rig_reads(&h)}, from_d = rig_reads(&d), part_d = rig_writes_part(&d);
    const atomr_use e_v[2] = {rig_overwrites(&e), rig_reads(&v)};
    send(&x, 0, 0, &to_d, 1);  /* complete */
    send(&x, 0, 1, &to_d, 1);  /* failed by itself, and complete */
    send(&x, 0, 2, &to_d, 1);  /* claimed */
    send(&x, 0, 3, &from_d, 1); /* queued: torn */
    send(&x, 0, 4, &part_d, 1); /* queued: does not mend */
    send(&x, 0, 5, &from_d, 1); /* queued: torn */
    send(&x, 1, 6, e_v, 2);     /* queued: names volatile memory */
    send(&x, 1, 7, &to_v, 1);   /* queued: too */
    send(&x, 1, 8, e_h, 2);     /* queued: durable and staging, runs */
    report_failure(&x, 0, 2);
    progress(&x, 0, 2, 3);
    die(&x);
    CHECK_EQ(x.report.n_suspects, 1);
    CHECK_EQ(x.report.suspects[0].ticket, 3);
    CHECK_EQ(x.report.suspects[0].plan, RIG_MIX + 1);
    CHECK_EQ(x.report.n_refused, 4);
    CHECK_EQ(x.report.n_plans, 2);
    CHECK_EQ(x.report.n_stale, 1);
    CHECK_EQ(x.report.n_torn, 1);
    CHECK_EQ(refusal(&x, 0, 4), ATOMR_STALE_TORN);
    CHECK_EQ(refusal(&x, 0, 5), ATOMR_OK);
    CHECK_EQ(refusal(&x, 0, 6), ATOMR_STALE_TORN);
    CHECK_EQ(refusal(&x, 1, 1), ATOMR_STALE_RESTARTED);
    CHECK_EQ(refusal(&x, 1, 2), ATOMR_STALE_RESTARTED);
    CHECK_EQ(refusal(&x, 1, 3), ATOMR_OK);
    CHECK_EQ(rig_outcome(&x.r, &replies[0]), ATOMR_OK);
    CHECK_EQ(rig_outcome(&x.r, &replies[1]), ATOMR_LIBRARY_ERROR);
    CHECK(atomr_reply_settle(x.r.s, &replies[2]));
    CHECK_EQ(replies[2].verdict->fault, 3);
    CHECK(strcmp(replies[2].verdict->error.text, "gone") == 0);
    CHECK_EQ(rig_outcome(&x.r, &replies[2]), ATOMR_DEVICE_FAULT);
    for (int i = 3; i < 9; i++) CHECK(!atomr_reply_settle(x.r.s, &replies[i]));
    CHECK_EQ(state_of(&x, &d), ATOMR_TORN);
    CHECK_EQ(state_of(&x, &e), ATOMR_DONE);
    CHECK_EQ(state_of(&x, &v), ATOMR_STALE);
    CHECK_EQ(state_of(&x, &h), ATOMR_DONE);
    uint64_t ticket;
    unsigned bad;
    CHECK_EQ(atomr_send(x.r.s, 0, 0, &from_d, 1, NULL, 0, 0, NULL, &ticket, &bad), ATOMR_TORN);
    CHECK_EQ(atomr_untear(x.r.s, d.slot, d.generation), ATOMR_DONE);
    CHECK_EQ(state_of(&x, &d), ATOMR_DONE);
    atomr_sender_end(x.r.s, ATOMR_LOST, ATOMR_DEVICE_LOST, 4, "the end");
    for (int i = 3; i < 9; i++) CHECK_EQ(rig_outcome(&x.r, &replies[i]), ATOMR_DEVICE_LOST);
    CHECK_EQ(state_of(&x, &d), ATOMR_STALE);
    CHECK_EQ(atomr_send(x.r.s, 0, 0, NULL, 0, NULL, 0, 0, NULL, &ticket, &bad), ATOMR_REFUSED);
    CHECK_EQ(atomr_alloc(x.r.s, 0, 1, &bad, &bad, &d.block), ATOMR_REFUSED);
    CHECK(atomr_next_orphan(x.r.s) == NULL);
    paper_close(&x);
}

/* Those come first that were free to run: the first open ones of their lanes that waited for nothing open. */
static void test_likely_suspects_come_first(void) {
    paper x;
    paper_open(&x, 4);
    rig_buffer d = rig_alloc(&x.r, ATOMR_DURABLE, 64), e = rig_alloc(&x.r, ATOMR_DURABLE, 64);
    const atomr_use to_d = rig_overwrites(&d), from_d = rig_reads(&d), to_e = rig_overwrites(&e);
    send(&x, 1, 0, &to_e, 1);   /* complete */
    send(&x, 3, 1, &to_d, 1);   /* likely */
    send(&x, 0, 2, &from_d, 1); /* waits for it */
    send(&x, 1, 3, &to_e, 1);   /* likely: what it waited for is complete */
    send(&x, 1, 4, &to_e, 1);
    send(&x, 2, 5, &to_e, 1);   /* likely, had it been claimed */
    progress(&x, 0, 0, 1);
    progress(&x, 1, 1, 3);
    progress(&x, 3, 0, 1);
    atomr_fault_note *note = &((atomr_wheader *)x.worker.w)->fault;
    memset(note, 0xee, sizeof *note); /* no text ends, and it was never said that it is whole */
    die(&x);
    CHECK(!x.report.cause.told);
    const atomr_suspect *s = x.report.suspects;
    CHECK_EQ(x.report.n_suspects, 4);
    CHECK(s[0].lane == 1 && s[0].ticket == 2 && s[0].likely);
    CHECK(s[1].lane == 3 && s[1].ticket == 1 && s[1].likely);
    CHECK(s[2].lane == 0 && s[2].ticket == 1 && !s[2].likely);
    CHECK(s[3].lane == 1 && s[3].ticket == 3 && !s[3].likely);
    note = &((atomr_wheader *)x.worker.w)->fault;
    memset(note, 0xee, sizeof *note);
    atomic_store(&note->state, ATOMR_NOTE_WHOLE);
    die(&x);
    CHECK(x.report.cause.told);
    CHECK_EQ(strlen(x.report.cause.lib), sizeof note->lib - 1);
    CHECK_EQ(strlen(x.report.cause.name), sizeof note->name - 1);
    CHECK_EQ(strlen(x.report.cause.text), sizeof note->text - 1);
    for (int i = 0; i < 6; i++) atomr_reply_drop(x.r.s, &replies[i]);
    paper_close(&x);
}

/* A queued whole overwrite makes torn memory good for what was sent after it, in other lanes too. */
static void test_queued_overwrite_mends(void) {
    for (int refused = 0; refused < 2; refused++) {
        paper x;
        paper_open(&x, 3);
        rig_buffer d = rig_alloc(&x.r, ATOMR_DURABLE, 64), v = rig_alloc(&x.r, ATOMR_VOLATILE, 64);
        const atomr_use to_d = rig_overwrites(&d), from_d = rig_reads(&d);
        const atomr_use mend[2] = {rig_overwrites(&d), rig_reads(&v)};
        send(&x, 0, 0, &to_d, 1);
        send(&x, 2, 1, &from_d, 1);
        send(&x, 1, 2, mend, refused ? 2 : 1); /* refused: it would read what is gone */
        send(&x, 2, 3, &from_d, 1);
        send(&x, 0, 4, &from_d, 1);
        progress(&x, 0, 0, 1);
        die(&x);
        CHECK_EQ(refusal(&x, 2, 1), ATOMR_STALE_TORN);
        CHECK_EQ(refusal(&x, 1, 1), refused ? ATOMR_STALE_RESTARTED : ATOMR_OK);
        CHECK_EQ(refusal(&x, 2, 2), refused ? ATOMR_STALE_TORN : ATOMR_OK);
        CHECK_EQ(refusal(&x, 0, 2), refused ? ATOMR_STALE_TORN : ATOMR_OK);
        CHECK_EQ(state_of(&x, &d), refused ? ATOMR_TORN : ATOMR_DONE);
        CHECK_EQ(x.report.n_torn, refused);
        for (int i = 0; i < 5; i++) atomr_reply_drop(x.r.s, &replies[i]);
        paper_close(&x);
    }
}

/* A handle may be gone while queued messages still read its memory. */
static void test_torn_without_a_handle(void) {
    for (int poisoned = 0; poisoned < 3; poisoned++) {
        paper x;
        paper_open(&x, 2);
        rig_buffer d = rig_alloc(&x.r, ATOMR_DURABLE, 64), e = rig_alloc(&x.r, ATOMR_DURABLE, 64);
        const atomr_use to_d = rig_overwrites(&d), from_d = rig_reads(&d);
        const atomr_use to_e = rig_overwrites(&e), from_e = rig_reads(&e);
        send(&x, 0, 0, &to_d, 1);
        send(&x, 0, 1, &to_e, 1);
        send(&x, 0, 2, &from_d, 1);
        send(&x, 1, 3, &from_e, 1);
        CHECK_EQ(atomr_free(x.r.s, d.slot, d.generation), ATOMR_DONE);
        atomr_wheader *h = x.worker.w;
        if (poisoned == 1) {
            report_failure(&x, 0, 1);
            atomic_store(&h->poisoned[17], (uint64_t)d.slot << 32 | d.generation);
        }
        if (poisoned == 2) atomic_store(&h->poison_overflow, 1); /* then everything written may be torn */
        progress(&x, 0, poisoned ? 2 : 0, poisoned ? 2 : 1);
        die(&x);
        CHECK_EQ(refusal(&x, 0, 3), ATOMR_STALE_TORN);
        CHECK_EQ(refusal(&x, 1, 1), poisoned == 2 ? ATOMR_STALE_TORN : ATOMR_OK);
        CHECK_EQ(state_of(&x, &e), poisoned == 2 ? ATOMR_TORN : ATOMR_DONE);
        for (int i = 0; i < 4; i++) atomr_reply_drop(x.r.s, &replies[i]);
        paper_close(&x);
    }
}

enum { CLEAN, WRITTEN, FAILED_COMMIT, NO_COMMIT, CLAIMED_COMMIT, QUEUED_WRITE, GROUP_CASES };

static void test_groups(void) {
    for (int kind = 0; kind < GROUP_CASES; kind++) {
        paper x;
        paper_open(&x, 2);
        rig_buffer m = rig_alloc(&x.r, ATOMR_DURABLE, 64), shadow = rig_alloc(&x.r, ATOMR_DURABLE, 64);
        rig_buffer other = rig_alloc(&x.r, ATOMR_DURABLE, 64);
        CHECK_EQ(atomr_group_add(x.r.s, 9, m.slot, m.generation, 0), ATOMR_DONE);
        CHECK_EQ(atomr_group_add(x.r.s, 9, shadow.slot, shadow.generation, 1), ATOMR_DONE);
        CHECK_EQ(atomr_group_add(x.r.s, 8, m.slot, m.generation, 0), ATOMR_STALE); /* one group only */
        const atomr_use to_m = rig_overwrites(&m), copy[2] = {rig_reads(&m), rig_overwrites(&shadow)};
        const atomr_use read_m[2] = {rig_reads(&m), rig_overwrites(&other)};
        uint64_t done = send(&x, 0, 0, &to_m, 1);
        if (kind != NO_COMMIT) done = commit(&x, 0, 1, 9, copy, 2);
        if (kind == WRITTEN || kind == FAILED_COMMIT) done = send(&x, 0, 2, &to_m, 1);
        if (kind == FAILED_COMMIT) {
            done = commit(&x, 0, 3, 9, copy, 2);
            report_failure(&x, 0, done);
        }
        if (kind == QUEUED_WRITE) send(&x, 0, 2, &to_m, 1);
        const uint64_t reader = send(&x, 0, 4, read_m, 2);
        const int first_commit_died = kind == CLAIMED_COMMIT;
        progress(&x, 0, first_commit_died ? 1 : done, done);
        die(&x);
        const int back = kind == WRITTEN || kind == FAILED_COMMIT || kind == QUEUED_WRITE;
        CHECK_EQ(x.report.n_groups, back);
        if (back) CHECK_EQ(x.report.groups[0], 9);
        CHECK_EQ(refusal(&x, 0, reader), back ? ATOMR_STALE_ROLLED_BACK : ATOMR_OK);
        CHECK_EQ(state_of(&x, &m), back ? ATOMR_BACK : ATOMR_DONE);
        if (back) { /* nobody reads it, or commits it, before they say that they know */
            unsigned bad = 9;
            uint64_t ticket;
            CHECK_EQ(atomr_send(x.r.s, 1, 0, copy, 2, NULL, 0, 9, NULL, &ticket, &bad), ATOMR_BACK);
            CHECK_EQ(bad, 0);
            CHECK_EQ(atomr_send(x.r.s, 1, 0, &to_m, 1, NULL, 0, 0, NULL, &ticket, &bad), ATOMR_DONE);
            CHECK_EQ(state_of(&x, &m), ATOMR_DONE);
        }
        if (back) { /* what else the refused message would have written is poisoned, but not the member */
            const uint64_t *words = atomr_ring_at(x.r.s->p, 0)[0].words;
            const uint64_t at = *atomr_end_of(x.r.s, 0, reader - 1) * ATOMR_CELL_WORDS + ATOMR_HEAD_WORDS;
            CHECK_EQ(words[at] >> 32, ATOMR_READ);
            CHECK_EQ(words[at + 3] >> 32, ATOMR_WRITE | ATOMR_OVERWRITE);
        }
        /* Later, the commit of a message that never happened must not count. */
        if (first_commit_died) {
            progress(&x, 0, reader, reader);
            send(&x, 0, 5, &to_m, 1);
            progress(&x, 0, reader + 1, reader + 1);
            die(&x);
            CHECK_EQ(x.report.n_groups, 0);
        }
        for (int i = 0; i < 6; i++) atomr_reply_drop(x.r.s, &replies[i]);
        paper_close(&x);
    }
}

/* A claimed write to a group without any commit has nothing to go back to. */
static void test_uncommitted_group_is_torn(void) {
    paper x;
    paper_open(&x, 1);
    rig_buffer m = rig_alloc(&x.r, ATOMR_DURABLE, 64);
    CHECK_EQ(atomr_group_add(x.r.s, 9, m.slot, m.generation, 0), ATOMR_DONE);
    const atomr_use to_m = rig_overwrites(&m);
    send(&x, 0, 0, &to_m, 1);
    progress(&x, 0, 0, 1);
    die(&x);
    CHECK_EQ(x.report.n_groups, 0);
    CHECK_EQ(state_of(&x, &m), ATOMR_TORN);
    atomr_group_dissolve(x.r.s, 9);
    unsigned bad;
    uint64_t ticket;
    CHECK_EQ(atomr_send(x.r.s, 0, 0, NULL, 0, NULL, 0, 9, NULL, &ticket, &bad), ATOMR_REFUSED);
    CHECK_EQ(rig_outcome(&x.r, &replies[0]), ATOMR_DEVICE_FAULT);
    paper_close(&x);
}

/* Every tell that was claimed, or will never run, is an orphan, once; so is a reply that was dropped. */
static void test_orphans(void) {
    paper x;
    paper_open(&x, 2);
    for (unsigned i = 0; i < 6; i++) {
        uint64_t ticket;
        CHECK_EQ(rig_send(&x.r, i % 2, RIG_NOOP, NULL, 0, NULL, 0, i == 4 ? &replies[0] : NULL, &ticket), ATOMR_DONE);
    }
    atomr_reply_drop(x.r.s, &replies[0]);
    report_failure(&x, 1, 1);
    progress(&x, 0, 1, 2); /* 2 of lane 0 is claimed */
    progress(&x, 1, 0, 1); /* 1 of lane 1 failed, and was not completed: its own error counts */
    die(&x);
    atomr_sender_end(x.r.s, ATOMR_CLOSED, ATOMR_DEVICE_LOST, 0, "closed");
    unsigned seen[2][4] = {{0}};
    for (atomr_verdict *v; (v = atomr_next_orphan(x.r.s)) != NULL;) {
        const uint64_t t = v->error.ticket;
        CHECK(v->lane < 2 && t >= 1 && t <= 3 && seen[v->lane][t]++ == 0);
        const unsigned first = v->lane == 0 ? t == 2 : 0, own = v->lane == 1 && t == 1;
        CHECK_EQ(v->error.code, first ? ATOMR_DEVICE_FAULT : own ? ATOMR_LIBRARY_ERROR : ATOMR_DEVICE_LOST);
        atomr_verdict_release(x.r.s, v);
    }
    CHECK(seen[0][1] == 0 && seen[0][2] && seen[0][3] && seen[1][1] && seen[1][2] && seen[1][3]);
    paper_close(&x);
}

/* Lent memory is not handed out again, also across a restart, until it is given back. */
static void test_lease_survives(void) {
    paper x;
    paper_open(&x, 1);
    rig_buffer b = rig_alloc(&x.r, ATOMR_VOLATILE, 1 << 14);
    CHECK_EQ(atomr_lease(x.r.s, b.slot, b.generation), ATOMR_DONE);
    die(&x);
    CHECK_EQ(state_of(&x, &b), ATOMR_STALE);
    rig_buffer c = {0};
    CHECK_EQ(atomr_alloc(x.r.s, ATOMR_VOLATILE, 64, &c.slot, &c.generation, &c.block), ATOMR_EMPTY);
    atomr_unlease(x.r.s, b.slot);
    CHECK_EQ(atomr_alloc(x.r.s, ATOMR_VOLATILE, 64, &c.slot, &c.generation, &c.block), ATOMR_DONE);
    paper_close(&x);
}

/* Without memory to stamp its operands a message is refused, and nobody waits for its ticket for ever. */
static int no_memory;
void *__real_realloc(void *, size_t);
void *__wrap_realloc(void *at, size_t n) { return no_memory ? NULL : __real_realloc(at, n); }

static void test_no_memory_for_stamps(void) {
    paper x;
    paper_open(&x, 6);
    rig_buffer b = rig_alloc(&x.r, ATOMR_DURABLE, 64);
    rig_write(rig_address(&x.r, &b), 0);
    rig_write(rig_address(&x.r, &b) + RIG_HALF, 0);
    const atomr_use read = rig_reads(&b), write = rig_overwrites(&b);
    unsigned bad;
    uint64_t ticket;
    for (unsigned lane = 0; lane < 3; lane++) send(&x, lane, lane, &read, 1);
    no_memory = 1;
    CHECK_EQ(atomr_send(x.r.s, 3, 0, &read, 1, NULL, 0, 0, NULL, &ticket, &bad), ATOMR_EXHAUSTED);
    no_memory = 0;
    CHECK_EQ(refusal(&x, 3, 1), ATOMR_OUT_OF_MEMORY);
    send(&x, 4, 4, &write, 1);
    atomr_sender_fault(x.r.s, ATOMR_DEVICE_FAULT, 1, "", &x.report); /* to a real worker */
    for (unsigned i = 0; i < 5; i++) CHECK(!atomr_reply_settle(x.r.s, &replies[i]));
    rig_start_worker(&x.r);
    rig_drain(&x.r);
    CHECK_EQ(rig_outcome(&x.r, &replies[4]), ATOMR_OK);
    atomr_verdict *v = atomr_next_orphan(x.r.s);
    CHECK(v != NULL && v->lane == 3 && v->error.code == ATOMR_OUT_OF_MEMORY);
    atomr_verdict_release(x.r.s, v);
    for (unsigned i = 0; i < 4; i++) atomr_reply_drop(x.r.s, &replies[i]);
    paper_close(&x);
}

/* A message whose dependency the worker before has met runs, though the lane of that dependency opens later; a message
 * whose dependency is still queued there waits for the lane. */
static void test_a_lane_that_opens_late(void) {
    paper x;
    paper_open(&x, 2);
    rig_buffer d = rig_alloc(&x.r, ATOMR_DURABLE, 64);
    const atomr_use to_d = rig_overwrites(&d), from_d = rig_reads(&d);
    rig_write(rig_address(&x.r, &d), 0);
    rig_write(rig_address(&x.r, &d) + RIG_HALF, 0);
    send(&x, 1, 0, &to_d, 1); /* complete */
    const uint64_t met = send(&x, 0, 1, &from_d, 1);
    send(&x, 1, 2, &to_d, 1); /* queued */
    const uint64_t unmet = send(&x, 0, 3, &from_d, 1);
    CHECK(atomr_head_at(x.r.s, 0, *atomr_end_of(x.r.s, 0, met - 1))->n_deps == 1);
    progress(&x, 1, 1, 1);
    atomr_sender_fault(x.r.s, ATOMR_DEVICE_FAULT, 1, "", &x.report); /* to a real worker */
    rig_make_worker(&x.r);
    CHECK_EQ(atomr_sender_attach(x.r.s, atomr_worker_w_fd(x.r.k), atomr_w_bytes()), 0);
    rig_share(&x.r);
    CHECK_EQ(atomr_worker_open_lane(x.r.k, 0), 0);
    atomr_worker_go(x.r.k);
    atomr_sender_set_state(x.r.s, ATOMR_OPEN);
    CHECK_EQ(atomr_wait(x.r.s, 0, met, 20 * INT64_C(1000000000), 0), ATOMR_DONE);
    CHECK(!atomr_resolved(x.r.s, 0, unmet));
    CHECK_EQ(atomr_worker_open_lane(x.r.k, 1), 0);
    rig_drain(&x.r);
    for (unsigned i = 0; i < 4; i++) CHECK_EQ(rig_outcome(&x.r, &replies[i]), ATOMR_OK);
    paper_close(&x);
}

int main(int argc, char **argv) {
    rig_watchdog(120);
    RUN(test_claimed_and_queued);
    RUN(test_likely_suspects_come_first);
    RUN(test_queued_overwrite_mends);
    RUN(test_torn_without_a_handle);
    RUN(test_groups);
    RUN(test_uncommitted_group_is_torn);
    RUN(test_orphans);
    RUN(test_lease_survives);
    RUN(test_no_memory_for_stamps);
    RUN(test_a_lane_that_opens_late);
    return check_end(argc, argv);
}
