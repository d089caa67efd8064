/* Memory of others: adopted, ordered by data also where ranges share bytes, and lent until nothing uses it. */
#include "rig.h"

enum { WORDS = 1 << 10, LOOK = 5000 /* a plan with one operand, which it leaves alone */ };

typedef struct {
    rig r;
    uint32_t segment;
    uint64_t *memory;
} outside;

/* Memory that no pool knows, introduced to sender and worker. */
static void introduce(outside *o) {
    const uint64_t nbytes = WORDS * sizeof(uint64_t);
    o->memory = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(o->memory != MAP_FAILED);
    CHECK_EQ(atomr_sender_reserve_segment(o->r.s, &o->segment), ATOMR_DONE);
    CHECK_EQ(atomr_sender_add_segment(o->r.s, o->segment, ATOMR_FOREIGN, nbytes), ATOMR_DONE);
    o->r.segments[o->r.n_segments].segment = o->segment;
    o->r.segments[o->r.n_segments].base = o->memory;
    o->r.segments[o->r.n_segments++].nbytes = nbytes;
    if (o->r.k) atomr_worker_set_segment(o->r.k, o->segment, o->memory, nbytes);
}

static void start(outside *o) {
    rig_make_worker(&o->r);
    CHECK_EQ(atomr_worker_add_plan(o->r.k, LOOK, atomr_run_noop, NULL, 1, 0), 0);
    CHECK_EQ(atomr_sender_attach(o->r.s, atomr_worker_w_fd(o->r.k), atomr_w_bytes()), 0);
    rig_share(&o->r);
    rig_go(&o->r);
    atomr_sender_set_state(o->r.s, ATOMR_OPEN);
}

static void outside_open(outside *o, unsigned n_lanes, int gpu, uint64_t seed) {
    rig_open(&o->r, 256, n_lanes, seed);
    if (gpu) o->r.gpu = fake_open(seed, gpu);
    introduce(o);
    rig_start_log(1 << 14);
    start(o);
}

static rig_buffer adopt(outside *o, uint64_t word, uint64_t words) {
    rig_buffer b = {.nbytes = words * 8};
    CHECK_EQ(atomr_adopt(o->r.s, atomr_sender_epoch(o->r.s), o->segment, word * 8, words * 8, &b.slot, &b.generation),
             ATOMR_DONE);
    return b;
}

static atomr_member member(outside *o, const rig_buffer *b) {
    uint32_t lane = 0;
    uint64_t ticket = 0;
    CHECK_EQ(atomr_last_write(o->r.s, b->slot, b->generation, &lane, &ticket), ATOMR_DONE);
    return (atomr_member){b->slot, b->generation, ticket ? atomr_stamp_make(lane, ticket) : 0};
}

static int unite(outside *o, const rig_buffer *all, unsigned n, int covers) {
    atomr_member members[8];
    for (unsigned i = 0; i < n; i++) members[i] = member(o, &all[i]);
    return atomr_unite(o->r.s, members, n, covers);
}

/* Nothing uses it, and its handles are stale. */
static int is_idle(outside *o, const rig_buffer *b) {
    atomr_stamp uses[ATOMR_LANES];
    return atomr_let_go(o->r.s, b->slot, b->generation, 1, uses) == 0;
}

static void let_go(outside *o, const rig_buffer *b) {
    atomr_free(o->r.s, b->slot, b->generation);
    while (!is_idle(o, b)) usleep(50);
    atomr_disown(o->r.s, b->slot);
}

static int state_of(outside *o, const rig_buffer *b) { return atomr_check(o->r.s, b->slot, b->generation); }

/* What a message that waits for nothing of its own lane must wait for: the dependencies that it was given. */
static unsigned n_deps(outside *o, unsigned lane, uint64_t ticket) {
    return atomr_head_at(o->r.s, lane, *atomr_end_of(o->r.s, lane, ticket - 1))->n_deps;
}

static uint64_t send(outside *o, unsigned lane, const atomr_use *uses, unsigned n, unsigned reads, unsigned flags,
                     atomr_reply *reply) {
    static uint64_t number;
    uint64_t ticket;
    CHECK_EQ(rig_mix_send(&o->r, lane, number++ % (1 << 14), uses, n, reads, flags, reply, &ticket), ATOMR_DONE);
    return ticket;
}

static uint64_t look(outside *o, unsigned lane, const atomr_use *use) {
    uint64_t ticket;
    CHECK_EQ(rig_send(&o->r, lane, LOOK, use, 1, NULL, 0, NULL, &ticket), ATOMR_DONE);
    return ticket;
}

static void test_adopting(void) {
    outside o = {0};
    outside_open(&o, 2, 0, 1);
    uint32_t slot, generation;
    const uint32_t epoch = atomr_sender_epoch(o.r.s);
    CHECK_EQ(atomr_adopt(o.r.s, epoch + 1, o.segment, 0, 64, &slot, &generation), ATOMR_MOVED);
    CHECK_EQ(atomr_adopt(o.r.s, epoch, o.segment + 1, 0, 64, &slot, &generation), ATOMR_STALE);
    CHECK_EQ(atomr_adopt(o.r.s, epoch, ATOMR_MAX_SEGMENTS, 0, 64, &slot, &generation), ATOMR_STALE);
    rig_buffer b = adopt(&o, 8, 8);
    const atomr_use write = rig_overwrites(&b), read = rig_reads(&b);
    send(&o, 0, &write, 1, 0, 0, NULL);
    send(&o, 1, &read, 1, 1, 0, NULL);
    rig_drain(&o.r);
    CHECK(o.memory[8] != 0 && o.memory[0] == 0 && o.memory[16] == 0); /* where it was said to lie */
    CHECK_EQ(rig_read(o.memory + 8), o.memory[8]);
    CHECK_EQ(is_idle(&o, &b), 0); /* it is not given up yet */
    CHECK_EQ(atomr_free(o.r.s, b.slot, b.generation), ATOMR_DONE);
    CHECK_EQ(state_of(&o, &b), ATOMR_STALE);
    CHECK_EQ(is_idle(&o, &b), 1);
    atomr_disown(o.r.s, b.slot);
    atomr_sender_drop_foreign(o.r.s, o.segment);
    CHECK_EQ(atomr_adopt(o.r.s, epoch, o.segment, 0, 64, &slot, &generation), ATOMR_STALE);
    rig_close(&o.r);
}

static void test_idle_is_when_nothing_uses_it(void) {
    outside o = {0};
    rig_open(&o.r, 256, 2, 2);
    introduce(&o);
    rig_start_log(1 << 14);
    atomr_sender_set_state(o.r.s, ATOMR_OPEN);
    rig_buffer b = adopt(&o, 0, 8), c = adopt(&o, 16, 8);
    const atomr_use write = rig_overwrites(&b), read = rig_reads(&b), other = rig_overwrites(&c);
    send(&o, 0, &write, 1, 0, 0, NULL);
    send(&o, 1, &read, 1, 1, 0, NULL);
    send(&o, 0, &other, 1, 0, 0, NULL);
    CHECK_EQ(atomr_lease(o.r.s, b.slot, b.generation), ATOMR_DONE);
    atomr_free(o.r.s, b.slot, b.generation);
    atomr_free(o.r.s, c.slot, c.generation);
    CHECK_EQ(is_idle(&o, &b), 0); /* lent, and both messages are queued */
    atomr_stamp uses[ATOMR_LANES];
    CHECK_EQ(atomr_let_go(o.r.s, c.slot, c.generation, 1, uses), 1);
    CHECK_EQ(uses[0], atomr_stamp_make(0, 2));
    rig_start_worker(&o.r);
    rig_drain(&o.r);
    CHECK_EQ(is_idle(&o, &c), 1);
    CHECK_EQ(atomr_let_go(o.r.s, b.slot, b.generation, 1, uses), -1); /* it is lent, too */
    atomr_unlease(o.r.s, b.slot);
    CHECK_EQ(is_idle(&o, &b), 1);
    atomr_disown(o.r.s, b.slot);
    atomr_disown(o.r.s, c.slot);
    rig_close(&o.r);
}

/* Without handles it stays as it is until its messages are done, so that it can be taken up again. */
static void test_letting_go(void) {
    outside o = {0};
    rig_open(&o.r, 256, 2, 9);
    introduce(&o);
    atomr_sender_set_state(o.r.s, ATOMR_OPEN);
    rig_buffer a = adopt(&o, 0, 8), b = adopt(&o, 16, 8), c = adopt(&o, 18, 8);
    const rig_buffer both[2] = {c, b};
    CHECK_EQ(unite(&o, both, 2, 0), ATOMR_DONE);
    const atomr_use read_a = rig_reads(&a), write_a = rig_overwrites(&a), read_b = rig_reads(&b), write_c = rig_overwrites(&c);
    atomr_stamp uses[ATOMR_LANES];
    look(&o, 0, &read_a);
    look(&o, 1, &read_a);
    look(&o, 0, &read_b);
    CHECK_EQ(atomr_let_go(o.r.s, a.slot, a.generation, 1, uses), -1);
    CHECK_EQ(atomr_let_go(o.r.s, a.slot, a.generation, 0, uses), 2);
    CHECK_EQ(uses[0], atomr_stamp_make(0, 1));
    CHECK_EQ(uses[1], atomr_stamp_make(1, 1));
    look(&o, 1, &write_a);
    CHECK_EQ(atomr_let_go(o.r.s, a.slot, a.generation, 0, uses), 1);
    CHECK_EQ(uses[0], atomr_stamp_make(1, 2));
    CHECK_EQ(state_of(&o, &a), ATOMR_DONE);
    /* Of a domain it leaves at once, with what uses it by now. */
    CHECK_EQ(atomr_let_go(o.r.s, b.slot, b.generation, 0, uses), 1);
    CHECK_EQ(uses[0], atomr_stamp_make(0, 2));
    CHECK_EQ(state_of(&o, &b), ATOMR_STALE);
    look(&o, 1, &write_c);
    CHECK_EQ(atomr_let_go(o.r.s, b.slot, b.generation, 0, uses), 1);
    start(&o);
    rig_drain(&o.r);
    CHECK_EQ(atomr_let_go(o.r.s, b.slot, b.generation, 0, uses), 0);
    CHECK_EQ(atomr_let_go(o.r.s, a.slot, a.generation, 0, uses), 0);
    CHECK_EQ(state_of(&o, &a), ATOMR_STALE);
    CHECK_EQ(state_of(&o, &c), ATOMR_DONE);
    atomr_disown(o.r.s, a.slot);
    atomr_disown(o.r.s, b.slot);
    atomr_disown(o.r.s, c.slot);
    rig_close(&o.r);
}

static void test_slots_are_used_again(void) {
    outside o = {0};
    outside_open(&o, 1, 0, 3);
    for (int i = 0; i < 70000; i++) { /* more than there are slots */
        rig_buffer b = adopt(&o, 0, 8), c = adopt(&o, 4, 8);
        const rig_buffer both[2] = {c, b};
        if (i % 3 == 0) CHECK_EQ(unite(&o, both, 2, 0), ATOMR_DONE);
        atomr_disown(o.r.s, i % 2 ? b.slot : c.slot);
        atomr_disown(o.r.s, i % 2 ? c.slot : b.slot);
    }
    rig_close(&o.r);
}

static void test_a_restart_makes_it_stale(void) {
    outside o = {0};
    atomr_fault_report report;
    atomr_reply replies[2] = {0};
    rig_open(&o.r, 256, 2, 4);
    introduce(&o);
    rig_start_log(1 << 14);
    rig_segment(&o.r, ATOMR_DURABLE, 1 << 12);
    rig_make_worker(&o.r);
    CHECK_EQ(atomr_sender_attach(o.r.s, atomr_worker_w_fd(o.r.k), atomr_w_bytes()), 0);
    rig_buffer a = adopt(&o, 0, 8), b = adopt(&o, 4, 8), durable = rig_alloc(&o.r, ATOMR_DURABLE, 64);
    const rig_buffer both[2] = {b, a};
    CHECK_EQ(unite(&o, both, 2, 0), ATOMR_DONE);
    const atomr_use write = rig_overwrites(&a), mixed[2] = {rig_reads(&b), rig_overwrites(&durable)};
    send(&o, 0, &write, 1, 0, 0, &replies[0]);
    send(&o, 1, mixed, 2, 1, 0, &replies[1]);
    CHECK_EQ(atomr_sender_fault(o.r.s, ATOMR_DEVICE_FAULT, 0, "gone", &report), 0);
    CHECK_EQ(report.n_stale, 2);
    CHECK_EQ(report.n_refused, 2);
    atomr_fault_report_release(&report);
    CHECK_EQ(state_of(&o, &a), ATOMR_STALE);
    CHECK_EQ(state_of(&o, &b), ATOMR_STALE);
    CHECK_EQ(state_of(&o, &durable), ATOMR_DONE);
    CHECK_EQ(is_idle(&o, &a), 0); /* its messages are refused by the next worker */
    rig_stop_worker(&o.r);
    rig_start_worker(&o.r);
    rig_drain(&o.r);
    for (int i = 0; i < 2; i++) CHECK_EQ(rig_outcome(&o.r, &replies[i]), ATOMR_STALE_RESTARTED);
    CHECK_EQ(o.memory[0], 0);
    CHECK_EQ(is_idle(&o, &a), 1);
    CHECK_EQ(is_idle(&o, &b), 1);
    atomr_disown(o.r.s, a.slot);
    atomr_disown(o.r.s, b.slot);
    rig_close(&o.r);
}

static void test_the_end_resolves_all(void) {
    outside o = {0};
    atomr_reply reply = {0};
    rig_open(&o.r, 256, 1, 5);
    introduce(&o);
    rig_start_log(1 << 14);
    rig_buffer a = adopt(&o, 0, 8), b = adopt(&o, 4, 8);
    const rig_buffer both[2] = {b, a};
    CHECK_EQ(unite(&o, both, 2, 0), ATOMR_DONE);
    const atomr_use write = rig_overwrites(&a);
    send(&o, 0, &write, 1, 0, 0, &reply);
    atomr_sender_end(o.r.s, ATOMR_LOST, ATOMR_DEVICE_LOST, 0, "lost");
    CHECK_EQ(rig_outcome(&o.r, &reply), ATOMR_DEVICE_LOST);
    CHECK_EQ(is_idle(&o, &a), 1);
    CHECK_EQ(is_idle(&o, &b), 1);
    uint32_t slot, generation;
    CHECK_EQ(atomr_adopt(o.r.s, 1, o.segment, 0, 64, &slot, &generation), ATOMR_REFUSED);
    atomr_disown(o.r.s, a.slot);
    atomr_disown(o.r.s, b.slot);
    rig_close(&o.r);
}

/* What is sent to one of them waits for what was sent to the other. */
static void test_shared_bytes_are_ordered(void) {
    outside o = {0};
    rig_open(&o.r, 256, 4, 6);
    introduce(&o);
    rig_start_log(1 << 14);
    atomr_sender_set_state(o.r.s, ATOMR_OPEN);
    rig_buffer a = adopt(&o, 0, 8), c = adopt(&o, 16, 8), b = adopt(&o, 4, 16), far = adopt(&o, 64, 8);
    const rig_buffer three[3] = {b, a, c};
    const atomr_use read_a = rig_reads(&a), read_b = rig_reads(&b), read_c = rig_reads(&c), write_a = rig_overwrites(&a),
                    write_c = rig_overwrites(&c), write_far = rig_overwrites(&far);
    /* Two readers before: who writes afterwards waits for both. */
    look(&o, 0, &read_a);
    look(&o, 1, &read_c);
    CHECK_EQ(unite(&o, three, 3, 1), ATOMR_DONE);
    CHECK_EQ(n_deps(&o, 2, look(&o, 2, &write_far)), 0);
    CHECK_EQ(n_deps(&o, 2, look(&o, 2, &write_a)), 2);
    CHECK_EQ(n_deps(&o, 3, look(&o, 3, &read_b)), 1);
    CHECK_EQ(n_deps(&o, 0, look(&o, 0, &write_c)), 2); /* the writer of a, the reader of b */
    /* Nobody can join while a write is open, since it may fail. */
    rig_buffer more = adopt(&o, 22, 8);
    const rig_buffer four[2] = {more, c};
    CHECK_EQ(unite(&o, four, 2, 0), ATOMR_MOVED);
    start(&o);
    rig_drain(&o.r);
    CHECK_EQ(unite(&o, four, 2, 0), ATOMR_DONE);
    /* Leaving takes along what may still use the bytes. */
    let_go(&o, &b);
    let_go(&o, &a);
    CHECK_EQ(state_of(&o, &c), ATOMR_DONE);
    const atomr_use again = rig_overwrites(&more);
    look(&o, 1, &again);
    look(&o, 2, &read_c);
    let_go(&o, &c);
    let_go(&o, &more);
    let_go(&o, &far);
    rig_drain(&o.r);
    rig_close(&o.r);
}

static void test_domains_join(void) {
    outside o = {0};
    outside_open(&o, 3, 0, 7);
    rig_buffer a = adopt(&o, 0, 8), b = adopt(&o, 4, 8), c = adopt(&o, 32, 8), d = adopt(&o, 36, 8), all = adopt(&o, 0, 64);
    const rig_buffer ab[2] = {b, a}, cd[2] = {d, c}, every[5] = {all, a, b, c, d};
    CHECK_EQ(unite(&o, ab, 2, 0), ATOMR_DONE);
    CHECK_EQ(unite(&o, cd, 2, 0), ATOMR_DONE);
    CHECK(o.r.s->slots[a.slot].domain != o.r.s->slots[c.slot].domain);
    CHECK_EQ(unite(&o, every, 5, 1), ATOMR_DONE);
    const uint32_t domain = o.r.s->slots[all.slot].domain;
    for (unsigned i = 0; i < 5; i++) {
        CHECK_EQ(o.r.s->slots[every[i].slot].domain, domain);
        CHECK_EQ(o.r.s->slots[every[i].slot].covers, i == 0);
    }
    const atomr_use write = rig_overwrites(&d);
    const uint64_t ticket = send(&o, 1, &write, 1, 0, 0, NULL);
    uint32_t lane;
    uint64_t last;
    CHECK_EQ(atomr_last_write(o.r.s, a.slot, a.generation, &lane, &last), ATOMR_DONE);
    CHECK_EQ(lane, 1);
    CHECK_EQ(last, ticket);
    for (unsigned i = 0; i < 5; i++) let_go(&o, &every[i]);
    CHECK_EQ(o.r.s->slots[domain].state, SLOT_FREE);
    rig_close(&o.r);
}

static int outcome(outside *o, const atomr_use *use, unsigned reads, unsigned flags) {
    atomr_reply reply = {0};
    const uint64_t ticket = send(o, 0, use, 1, reads, flags, &reply);
    rig_wait(&o->r, 0, ticket);
    return rig_outcome(&o->r, &reply);
}

/* A write that failed poisons all that shares its bytes, until one that covers them all, or a declaration. */
static void test_poison_is_shared(void) {
    outside o = {0};
    outside_open(&o, 1, 0, 8);
    rig_buffer a = adopt(&o, 0, 8), b = adopt(&o, 0, 16);
    const rig_buffer both[2] = {b, a};
    CHECK_EQ(unite(&o, both, 2, 1), ATOMR_DONE);
    const atomr_use write_a = rig_overwrites(&a), read_a = rig_reads(&a), write_b = rig_overwrites(&b), read_b = rig_reads(&b);
    atomr_use declared = rig_overwrites(&a);
    declared.whole = ATOMR_DECLARED;
    for (int turn = 0; turn < 2; turn++) {
        CHECK_EQ(outcome(&o, &write_a, 0, RIG_OP_FAILS), ATOMR_LIBRARY_ERROR);
        CHECK_EQ(outcome(&o, &read_b, 1, 0), ATOMR_LIBRARY_ERROR);
        CHECK_EQ(outcome(&o, &write_a, 0, 0), ATOMR_OK); /* a part of it */
        CHECK_EQ(outcome(&o, &read_a, 1, 0), ATOMR_LIBRARY_ERROR);
        CHECK_EQ(outcome(&o, turn ? &declared : &write_b, 0, 0), ATOMR_OK);
        CHECK_EQ(outcome(&o, &read_a, 1, 0), ATOMR_OK);
        CHECK_EQ(outcome(&o, &read_b, 1, 0), ATOMR_OK);
    }
    let_go(&o, &a);
    let_go(&o, &b);
    rig_close(&o.r);
}

/* Threads write and read through windows that share bytes, while others join, leave and look. */
typedef struct {
    outside *o;
    rig_buffer windows[4];
    _Atomic int ending;
    _Atomic uint64_t number;
} traffic;

static void *mixer(void *argument) {
    traffic *t = argument;
    uint64_t random = (uint64_t)(uintptr_t)&random | 1;
    while (!atomic_load(&t->ending)) {
        const unsigned i = (unsigned)(check_random(&random) % 4), lane = (unsigned)(check_random(&random) % t->o->r.n_lanes);
        const int writes = check_random(&random) % 2 == 0;
        const atomr_use use = writes ? rig_overwrites(&t->windows[i]) : rig_reads(&t->windows[i]);
        const uint64_t number = atomic_fetch_add(&t->number, 1);
        if (number >= 6000) return NULL;
        /* rig_read checks every word: two operations at once would be seen. */
        CHECK_EQ(rig_mix_send(&t->o->r, lane, number, &use, 1, !writes, 0, NULL, NULL), ATOMR_DONE);
    }
    return NULL;
}

static void compete(int gpu, uint64_t seed) {
    outside o = {0};
    outside_open(&o, 4, gpu, seed);
    traffic t = {.o = &o};
    pthread_t threads[2];
    /* The same eight words four times: of different sizes for the sender, in one domain. */
    for (unsigned i = 0; i < 4; i++) t.windows[i] = adopt(&o, 8, 8 + 8 * i);
    rig_write(o.memory + 8, 1);
    rig_write(o.memory + 12, 2);
    CHECK_EQ(unite(&o, t.windows, 4, 0), ATOMR_DONE);
    for (unsigned i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, mixer, &t) == 0);
    for (unsigned i = 0; i < 200; i++) {
        rig_buffer guest = adopt(&o, 9, 4);
        const rig_buffer pair[2] = {guest, t.windows[i % 4]};
        const int result = unite(&o, pair, 2, 0);
        CHECK(result == ATOMR_DONE || result == ATOMR_MOVED);
        usleep(100);
        atomr_free(o.r.s, guest.slot, guest.generation);
        while (!is_idle(&o, &guest)) usleep(50);
        atomr_disown(o.r.s, guest.slot);
    }
    atomic_store(&t.ending, 1);
    for (unsigned i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    rig_drain(&o.r);
    CHECK(atomr_next_orphan(o.r.s) == NULL);
    for (unsigned i = 0; i < 4; i++) let_go(&o, &t.windows[i]);
    rig_close(&o.r);
}

static void test_traffic_on_host(void) { compete(0, 21); }
static void test_traffic_on_gpu(void) { compete(20, 22); }

int main(int argc, char **argv) {
    rig_watchdog(120);
    RUN(test_adopting);
    RUN(test_idle_is_when_nothing_uses_it);
    RUN(test_letting_go);
    RUN(test_slots_are_used_again);
    RUN(test_a_restart_makes_it_stale);
    RUN(test_the_end_resolves_all);
    RUN(test_shared_bytes_are_ordered);
    RUN(test_domains_join);
    RUN(test_poison_is_shared);
    RUN(test_traffic_on_host);
    RUN(test_traffic_on_gpu);
    return check_end(argc, argv);
}
