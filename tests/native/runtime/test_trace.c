/* What a trace reads: what a message waits for, and when its lane worked at it. */
#include "rig.h"

static void test_dependencies(void) {
    rig r;
    rig_open(&r, 32, 3, 1);
    rig_segment(&r, ATOMR_VOLATILE, 1 << 14);
    rig_start_log(64);
    rig_buffer a = rig_alloc(&r, ATOMR_VOLATILE, RIG_NBYTES), b = rig_alloc(&r, ATOMR_VOLATILE, RIG_NBYTES);
    atomr_stamp found[ATOMR_LANES];
    const atomr_use writes_a = rig_overwrites(&a), writes_b = rig_overwrites(&b);
    const atomr_use both[2] = {rig_reads(&a), rig_reads(&b)};
    uint64_t t0, t1, t2;
    /* No worker yet, so that nothing is resolved. */
    CHECK_EQ(rig_mix_send(&r, 0, 0, &writes_a, 1, 0, 0, NULL, &t0), ATOMR_DONE);
    CHECK_EQ(rig_mix_send(&r, 1, 1, &writes_b, 1, 0, 0, NULL, &t1), ATOMR_DONE);
    CHECK_EQ(rig_mix_send(&r, 2, 2, both, 2, 2, 0, NULL, &t2), ATOMR_DONE);
    CHECK_EQ(atomr_sent_deps(r.s, 0, t0, found), 0);
    CHECK_EQ(atomr_sent_deps(r.s, 2, t2, found), 2);
    CHECK_EQ(found[0], atomr_stamp_make(0, t0));
    CHECK_EQ(found[1], atomr_stamp_make(1, t1));
    CHECK_EQ(atomr_sent_deps(r.s, 2, t2 + 1, found), -1);
    CHECK_EQ(atomr_sent_deps(r.s, 2, 0, found), -1);
    CHECK_EQ(atomr_sent_deps(r.s, ATOMR_LANES, 1, found), -1);
    rig_start_worker(&r);
    /* Round the ring several times: each is found until its cells are another's. */
    for (uint64_t i = 0; i < 200; i++) {
        uint64_t ticket;
        const atomr_use *use = i % 2 ? &writes_a : &both[0];
        CHECK_EQ(rig_mix_send(&r, 2, 3 + i % 60, use, 1, i % 2 == 0, 0, NULL, &ticket), ATOMR_DONE);
        CHECK(atomr_sent_deps(r.s, 2, ticket, found) >= 0);
        if (ticket > 32) CHECK_EQ(atomr_sent_deps(r.s, 2, ticket - 32, found), -1);
    }
    rig_drain(&r);
    rig_close(&r);
}

static unsigned read_all(rig *r, unsigned lane, atomr_span_place *place, uint64_t *last) {
    atomr_span_copy spans[100];
    unsigned total = 0, n;
    do {
        n = atomr_read_spans(r->s, lane, place, spans, 100);
        for (unsigned i = 0; i < n; i++) {
            CHECK(spans[i].ticket > *last && spans[i].began_ns && spans[i].began_ns <= spans[i].ended_ns);
            *last = spans[i].ticket;
        }
        total += n;
    } while (n == 100);
    return total;
}

static void send_noops(rig *r, uint64_t n) {
    uint64_t ticket = 0;
    for (uint64_t i = 0; i < n; i++) CHECK_EQ(rig_send(r, 0, RIG_NOOP, NULL, 0, NULL, 0, NULL, &ticket), ATOMR_DONE);
    rig_wait(r, 0, ticket);
}

static void test_spans(void) {
    rig r;
    atomr_span_place place = {0};
    uint64_t last = 0;
    rig_open(&r, 1024, 1, 1);
    CHECK_EQ(read_all(&r, 0, &place, &last), 0); /* no worker */
    rig_start_worker(&r);
    send_noops(&r, 10);
    CHECK_EQ(read_all(&r, 0, &place, &last), 0); /* nobody has asked for them */
    atomr_sender_trace(r.s, 1);
    send_noops(&r, 1000);
    CHECK_EQ(read_all(&r, 0, &place, &last), 1000);
    CHECK_EQ(last, 1010);
    send_noops(&r, ATOMR_SPANS + 500); /* more than there is room for */
    CHECK_EQ(read_all(&r, 0, &place, &last) + place.lost, ATOMR_SPANS + 500);
    CHECK(place.lost >= 500);
    atomr_sender_trace(r.s, 1); /* a second trace, that ends first */
    atomr_sender_trace(r.s, 0);
    send_noops(&r, 5);
    CHECK_EQ(read_all(&r, 0, &place, &last), 5);
    atomr_sender_trace(r.s, 0);
    send_noops(&r, 5);
    CHECK_EQ(read_all(&r, 0, &place, &last), 0);
    rig_close(&r);
}

enum { RACED = 30000 };

static void *busy_main(void *argument) {
    send_noops(argument, RACED);
    return NULL;
}

/* Reading while the lane writes: each span is read once, whole, or counted as lost. */
static void test_reading_meanwhile(void) {
    rig r;
    pthread_t thread;
    atomr_span_place place = {0};
    uint64_t last = 0, n = 0;
    rig_open(&r, 4096, 1, 1);
    rig_start_worker(&r);
    atomr_sender_trace(r.s, 1);
    CHECK_EQ(pthread_create(&thread, NULL, busy_main, &r), 0);
    while (last + place.lost < RACED && n + place.lost < RACED) n += read_all(&r, 0, &place, &last);
    pthread_join(thread, NULL);
    n += read_all(&r, 0, &place, &last);
    CHECK_EQ(n + place.lost, RACED);
    rig_close(&r);
}

enum { PAIRS = 1000, BUFFERS = 8 };

static void read_spans(rig *r, unsigned lane, atomr_span_copy *out) {
    atomr_span_place place = {0};
    unsigned n = 0, more;
    do {
        more = atomr_read_spans(r->s, lane, &place, out + n, PAIRS - n);
        n += more;
    } while (more && n < PAIRS);
    CHECK_EQ(n, PAIRS);
}

/* A message that finds what it depends on done begins after that, also where its lane comes from another message. */
static void test_messages_begin_after_what_they_depend_on(void) {
    static atomr_span_copy first[PAIRS], second[PAIRS];
    rig r;
    rig_buffer buffers[BUFFERS];
    rig_open(&r, 4096, 2, 1);
    rig_segment(&r, ATOMR_VOLATILE, 1 << 16);
    rig_start_log(2 * PAIRS + 2);
    for (unsigned i = 0; i < BUFFERS; i++) buffers[i] = rig_alloc(&r, ATOMR_VOLATILE, RIG_NBYTES);
    atomr_sender_trace(r.s, 1);
    for (uint64_t i = 0; i < PAIRS; i++) {
        const atomr_use writes = rig_overwrites(&buffers[i % BUFFERS]), reads = rig_reads(&buffers[i % BUFFERS]);
        CHECK_EQ(rig_mix_send(&r, 0, 2 * i, &writes, 1, 0, 0, NULL, NULL), ATOMR_DONE);
        CHECK_EQ(rig_mix_send(&r, 1, 2 * i + 1, &reads, 1, 1, 0, NULL, NULL), ATOMR_DONE);
    }
    rig_start_worker(&r);
    rig_drain(&r);
    read_spans(&r, 0, first);
    read_spans(&r, 1, second);
    for (unsigned i = 0; i < PAIRS; i++) CHECK(second[i].began_ns >= first[i].ended_ns);
    rig_close(&r);
}

int main(int argc, char **argv) {
    rig_watchdog(120);
    RUN(test_dependencies);
    RUN(test_spans);
    RUN(test_reading_meanwhile);
    RUN(test_messages_begin_after_what_they_depend_on);
    return check_end(argc, argv);
}
