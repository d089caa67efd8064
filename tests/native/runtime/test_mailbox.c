/* Mailboxes: order within a lane, full rings, long messages, and sleepers that must wake. */
#include <sys/eventfd.h>

#include "rig.h"

static int sequence_send(rig *r, unsigned lane, uint64_t number, int fails, atomr_reply *reply) {
    const uint64_t scalars[2] = {number, (uint64_t)fails};
    return rig_send(r, lane, RIG_SEQUENCE, NULL, 0, scalars, 2, reply, NULL);
}

static void fifo(uint32_t cells, unsigned n_lanes, unsigned n, uint64_t spin_ns) {
    rig r;
    rig_open(&r, cells, n_lanes, 1);
    r.spin_ns = spin_ns;
    r.naps_forever = 1;
    r.s->slice_ns = RIG_FOREVER * INT64_C(1000000000);
    rig_start_worker(&r);
    for (uint64_t i = 0; i < n; i++)
        for (unsigned lane = 0; lane < n_lanes; lane++) CHECK_EQ(sequence_send(&r, lane, i, 0, NULL), ATOMR_DONE);
    rig_drain(&r);
    for (unsigned lane = 0; lane < n_lanes; lane++) CHECK_EQ(rig_sequence[lane], n);
    rig_close(&r);
}

static void test_fifo(void) {
    fifo(32, 1, 5000, 5000);
    fifo(64, 3, 3000, 0);
    fifo(1024, 2, 20000, 5000);
    fifo(32, 64, 50, 0);
}

/* Many threads send to many lanes with nearly full rings; every thread knows the order of its own. */
enum { SENDERS = 4, LANES = 3, SENT = 1500 };

typedef struct {
    rig *r;
    uint64_t random, number;
    unsigned index;
} crowd;

static void *crowd_main(void *argument) {
    crowd *c = argument;
    rig_buffer own[2] = {rig_alloc(c->r, ATOMR_VOLATILE, RIG_NBYTES), rig_alloc(c->r, ATOMR_VOLATILE, RIG_NBYTES)};
    uint64_t expected[2][2] = {{0, 0}, {0, 0}};
    rig_write(rig_address(c->r, &own[0]), 0);
    rig_write(rig_address(c->r, &own[0]) + RIG_HALF, 0);
    for (unsigned i = 0; i < SENT; i++) {
        const uint64_t number = c->index * (uint64_t)SENT + i;
        const atomr_use uses[2] = {rig_reads(&own[i % 2]), rig_overwrites(&own[1 - i % 2])};
        const unsigned lane = (unsigned)(check_random(&c->random) % LANES);
        atomr_reply reply = {0};
        uint64_t ticket;
        const int ask = check_random(&c->random) % 8 == 0;
        CHECK_EQ(rig_mix_send(c->r, lane, number, uses, 2, 1, 0, ask ? &reply : NULL, &ticket), ATOMR_DONE);
        const uint64_t *was = expected[i % 2];
        const uint64_t value = rig_hash(rig_hash(number, was[0]), was[1]);
        expected[1 - i % 2][0] = rig_hash(value, 2);
        expected[1 - i % 2][1] = rig_hash(value, 3);
        if (!ask) continue;
        rig_wait(c->r, lane, ticket);
        CHECK_EQ(rig_outcome(c->r, &reply), ATOMR_OK);
        CHECK_EQ(atomic_load(&rig_log[number].value), value);
    }
    rig_drain(c->r);
    const uint64_t *last = rig_address(c->r, &own[SENT % 2]);
    CHECK_EQ(rig_read(last), expected[SENT % 2][0]);
    CHECK_EQ(rig_read(last + RIG_HALF), expected[SENT % 2][1]);
    for (int i = 0; i < 2; i++) CHECK_EQ(atomr_free(c->r->s, own[i].slot, own[i].generation), ATOMR_DONE);
    return NULL;
}

static void many_senders(int gpu) {
    rig r;
    rig_open(&r, 32, LANES, 2);
    if (gpu) r.gpu = fake_open(2, 100);
    rig_start_log(SENDERS * SENT);
    rig_segment(&r, ATOMR_VOLATILE, 1 << 16);
    rig_start_worker(&r);
    pthread_t threads[SENDERS];
    crowd crowds[SENDERS];
    for (unsigned i = 0; i < SENDERS; i++) {
        crowds[i] = (crowd){&r, 77 + i, 0, i};
        CHECK(pthread_create(&threads[i], NULL, crowd_main, &crowds[i]) == 0);
    }
    for (unsigned i = 0; i < SENDERS; i++) pthread_join(threads[i], NULL);
    rig_close(&r);
}

static void test_many_senders(void) { many_senders(0); }
static void test_many_senders_gpu(void) { many_senders(1); }

/* The longest messages, with dependencies on every other lane, so that rings wrap inside of them: of operands that callers
 * give, and with bound ones. */
static void long_messages(int gpu, unsigned cells, unsigned most, unsigned rounds) {
    enum { BUFFERS = 16 };
    static atomr_use uses[ATOMR_MESSAGE_OPERANDS];
    rig r;
    rig_open(&r, cells, 8, 3);
    if (gpu) r.gpu = fake_open(3, 0);
    rig_start_log(4000);
    rig_segment(&r, ATOMR_VOLATILE, 1 << 20);
    rig_start_worker(&r);
    CHECK_EQ(atomr_worker_add_plan(r.k, RIG_MIX + ATOMR_MESSAGE_OPERANDS, rig_run, r.gpu, ATOMR_MESSAGE_OPERANDS, RIG_SCALARS), 0);
    rig_buffer buffers[BUFFERS];
    for (int i = 0; i < BUFFERS; i++) buffers[i] = rig_alloc(&r, ATOMR_VOLATILE, RIG_NBYTES);
    uint64_t number = 0, values[BUFFERS] = {0};
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < BUFFERS; i++) {
            const atomr_use use = rig_overwrites(&buffers[i]);
            CHECK_EQ(rig_mix_send(&r, 1 + i % 7, number, &use, 1, 0, 0, NULL, NULL), ATOMR_DONE);
            values[i] = number++;
        }
        const unsigned lane = (unsigned)rig_below(&r, 8);
        const unsigned n = round % 2 ? 1 + (unsigned)rig_below(&r, ATOMR_MAX_OPERANDS) : most;
        uint64_t value = number, ticket;
        for (unsigned i = 0; i < n; i++) {
            const unsigned b = (unsigned)rig_below(&r, BUFFERS);
            uses[i] = rig_reads(&buffers[b]);
            value = rig_hash(rig_hash(value, rig_hash(values[b], 0)), rig_hash(values[b], 1));
        }
        CHECK_EQ(rig_mix_send(&r, lane, number, uses, n, n, 0, NULL, &ticket), ATOMR_DONE);
        rig_wait(&r, lane, ticket);
        CHECK_EQ(atomic_load(&rig_log[number++].value), value);
    }
    rig_close(&r);
}

static void test_long_messages(void) { long_messages(0, ATOMR_MIN_CELLS, ATOMR_MAX_OPERANDS, 60); }
static void test_long_messages_gpu(void) { long_messages(1, ATOMR_MIN_CELLS, ATOMR_MAX_OPERANDS, 60); }
static void test_longest_messages(void) { long_messages(0, 512, ATOMR_MESSAGE_OPERANDS, 40); }
static void test_longest_messages_gpu(void) { long_messages(1, 512, ATOMR_MESSAGE_OPERANDS, 40); }

static void test_refusals(void) {
    rig r;
    rig_open(&r, 32, 1, 4);
    rig_segment(&r, ATOMR_VOLATILE, 1 << 16);
    rig_buffer b = rig_alloc(&r, ATOMR_VOLATILE, RIG_NBYTES);
    atomr_use use[2] = {rig_reads(&b), rig_reads(&b)};
    uint64_t ticket, scalars[ATOMR_MAX_SCALARS] = {0};
    unsigned bad = 9;
    CHECK_EQ(atomr_send(r.s, 0, 0, use, ATOMR_MESSAGE_OPERANDS + 1, NULL, 0, 0, NULL, &ticket, &bad), ATOMR_TOO_LARGE);
    CHECK_EQ(atomr_send(r.s, 0, 0, use, 1, scalars, 65, 0, NULL, &ticket, &bad), ATOMR_TOO_LARGE);
    CHECK_EQ(atomr_send(r.s, 1, 0, use, 1, scalars, 1, 0, NULL, &ticket, &bad), ATOMR_REFUSED);
    CHECK_EQ(atomr_send(r.s, 64, 0, use, 1, scalars, 1, 0, NULL, &ticket, &bad), ATOMR_REFUSED);
    use[1].generation++;
    CHECK_EQ(atomr_send(r.s, 0, 0, use, 2, scalars, 1, 0, NULL, &ticket, &bad), ATOMR_STALE);
    CHECK_EQ(bad, 1);
    CHECK_EQ(atomr_free(r.s, b.slot, b.generation), ATOMR_DONE);
    CHECK_EQ(atomr_free(r.s, b.slot, b.generation), ATOMR_STALE);
    CHECK_EQ(atomr_send(r.s, 0, 0, use, 1, scalars, 1, 0, NULL, &ticket, &bad), ATOMR_STALE);
    CHECK_EQ(bad, 0);
    /* A full mailbox, with no worker to empty it: exactly as many as there are cells. */
    for (unsigned i = 0; i < 32; i++)
        CHECK_EQ(atomr_send(r.s, 0, 0, NULL, 0, NULL, 0, 0, NULL, &ticket, &bad), ATOMR_DONE);
    CHECK_EQ(atomr_send(r.s, 0, 0, NULL, 0, NULL, 0, 0, NULL, &ticket, &bad), ATOMR_FULL);
    CHECK_EQ(atomr_room_ticket(r.s, 0, ATOMR_MIN_CELLS), 16);
    CHECK_EQ(atomr_wait(r.s, 0, 1, 1000000, 0), ATOMR_TIMEOUT);
    rig_start_worker(&r); /* and what was sent before there was a worker runs */
    rig_drain(&r);
    CHECK_EQ(atomr_room_ticket(r.s, 0, ATOMR_MIN_CELLS), 0);
    rig_close(&r);
}

/* A lane checks what it runs: a message of another generation of the device, or not made for its plan, fails alone. */
static void test_what_a_lane_refuses(void) {
    enum { MESSAGES = 7 };
    rig r;
    rig_open(&r, 64, 1, 5);
    rig_segment(&r, ATOMR_VOLATILE, 1 << 16);
    rig_buffer b = rig_alloc(&r, ATOMR_VOLATILE, RIG_NBYTES);
    const atomr_use use = rig_overwrites(&b);
    rig_start_log(MESSAGES);
    rig_make_worker(&r);
    CHECK_EQ(atomr_sender_attach(r.s, atomr_worker_w_fd(r.k), atomr_w_bytes()), 0);
    atomr_sender_set_state(r.s, ATOMR_OPEN);
    atomr_reply replies[MESSAGES] = {{0}};
    atomr_head *heads[MESSAGES];
    for (unsigned i = 0; i < MESSAGES; i++) {
        uint64_t ticket;
        CHECK_EQ(rig_mix_send(&r, 0, i, &use, 1, 0, 0, &replies[i], &ticket), ATOMR_DONE);
        heads[i] = atomr_head_at(r.s, 0, *atomr_end_of(r.s, 0, ticket - 1));
        CHECK_EQ(heads[i]->ticket, ticket);
    }
    heads[1]->epoch--;
    heads[2]->plan = RIG_MIX + 2;  /* has two operands */
    heads[3]->plan = RIG_SEQUENCE; /* has other scalars, too */
    heads[4]->plan = 77777;
    ((atomr_operand *)((uint64_t *)(heads[5] + 1) + heads[5]->n_deps))->segment += 1; /* is not mapped */
    rig_share(&r);
    rig_go(&r);
    rig_drain(&r);
    for (unsigned i = 0; i < MESSAGES; i++) {
        const int refused = i > 0 && i < MESSAGES - 1;
        const int expected = i == 1 ? ATOMR_STALE_RESTARTED : refused ? ATOMR_INVALID_REQUEST : ATOMR_OK;
        CHECK_EQ(rig_outcome(&r, &replies[i]), expected);
        CHECK_EQ(atomic_load(&rig_log[i].ended), !refused);
    }
    rig_close(&r);
}

/* Whether a worker ends itself rather than run a message with a spoilt header.  It is a child of the test. */
static int ends_at(void (*spoil)(atomr_head *)) {
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        rig r;
        uint64_t ticket;
        const uint64_t scalars[2] = {0, 0};
        alarm(20);
        CHECK(freopen("/dev/null", "w", stderr) != NULL);
        rig_open(&r, 64, 1, 6);
        rig_make_worker(&r);
        CHECK_EQ(atomr_sender_attach(r.s, atomr_worker_w_fd(r.k), atomr_w_bytes()), 0);
        atomr_sender_set_state(r.s, ATOMR_OPEN);
        CHECK_EQ(rig_send(&r, 0, RIG_SEQUENCE, NULL, 0, scalars, 2, NULL, &ticket), ATOMR_DONE);
        spoil(atomr_head_at(r.s, 0, 0));
        rig_share(&r);
        rig_go(&r);
        rig_drain(&r);
        _exit(0);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void spoil_nothing(atomr_head *h) { (void)h; }
static void spoil_cells(atomr_head *h) { h->n_cells = 2; } /* the second was never sent */
static void spoil_ticket(atomr_head *h) { h->ticket++; }
static void spoil_words(atomr_head *h) { h->n_scalars = 60; }
static void spoil_lane(atomr_head *h) {
    h->n_deps = h->n_scalars = 1;
    *(uint64_t *)(h + 1) = UINT64_MAX;
}

static void test_malformed_messages_end_the_worker(void) {
    CHECK(!ends_at(spoil_nothing));
    CHECK(ends_at(spoil_cells));
    CHECK(ends_at(spoil_ticket));
    CHECK(ends_at(spoil_words));
    CHECK(ends_at(spoil_lane));
}

/* No timeout hides a lost wake-up here: a sleeper that is forgotten hangs until the watchdog ends the test. */
static void test_parked_lanes_wake(void) {
    rig r;
    rig_open(&r, 32, 2, 5);
    r.spin_ns = 0;
    r.naps_forever = 1;
    r.s->slice_ns = RIG_FOREVER * INT64_C(1000000000);
    rig_start_worker(&r);
    for (uint64_t i = 0; i < 12000; i++) {
        const unsigned lane = (unsigned)(i % 2);
        uint64_t ticket;
        const uint64_t scalars[2] = {i / 2, 0};
        CHECK_EQ(rig_send(&r, lane, RIG_SEQUENCE, NULL, 0, scalars, 2, NULL, &ticket), ATOMR_DONE);
        CHECK_EQ(atomr_wait(r.s, lane, ticket, -1, rig_below(&r, 3) * 1000), ATOMR_DONE);
        if (i % 64 == 0) usleep((unsigned)rig_below(&r, 60));
        /* The next send shall meet the lane anywhere between its last look and its sleep. */
        for (uint64_t pauses = rig_below(&r, 200); pauses > 0; pauses--) atomr_pause();
    }
    CHECK(atomic_load(&r.k->lanes[0]->w->parks) > 0);
    rig_close(&r);
}

/* A message comes while its lane looks at the clock: before its last look at the mailbox, or after. */
static struct {
    rig *r;
    pthread_t tester;
    _Atomic int looks; /* at the clock, until the message is sent; 0: no message */
    uint64_t number;
} late_sender;

uint64_t __real_atomr_now_ns(void);
uint64_t __wrap_atomr_now_ns(void) {
    if (atomic_load(&late_sender.looks) > 0 && !pthread_equal(pthread_self(), late_sender.tester) &&
        atomic_fetch_sub(&late_sender.looks, 1) == 1)
        CHECK_EQ(sequence_send(late_sender.r, 0, late_sender.number, 0, NULL), ATOMR_DONE);
    return __real_atomr_now_ns();
}

static void test_a_message_that_comes_before_the_sleep(void) {
    enum { MOST_LOOKS = 8 };
    rig r;
    rig_open(&r, 32, 1, 5);
    r.spin_ns = 0;
    r.naps_forever = 1;
    rig_start_worker(&r);
    const atomr_wlane *w = r.k->lanes[0]->w;
    late_sender.r = &r;
    late_sender.tester = pthread_self();
    uint64_t sent = 0;
    int looks = 1;
    for (; looks < MOST_LOOKS; looks++) {
        while (!atomic_load(&w->parked)) usleep(10);
        late_sender.number = sent + 1;
        atomic_store(&late_sender.looks, looks);
        CHECK_EQ(sequence_send(&r, 0, sent++, 0, NULL), ATOMR_DONE);
        CHECK_EQ(atomr_wait(r.s, 0, sent, 20 * INT64_C(1000000000), 0), ATOMR_DONE);
        while (!atomic_load(&w->parked) && atomic_load(&late_sender.looks)) usleep(10);
        if (atomic_exchange(&late_sender.looks, 0) > 0) break; /* it sleeps, and does not look that often */
        sent++;
        CHECK_EQ(atomr_wait(r.s, 0, sent, 20 * INT64_C(1000000000), 0), ATOMR_DONE);
    }
    CHECK(looks > 2 && looks < MOST_LOOKS); /* among them is the look before it sleeps */
    CHECK_EQ(rig_sequence[0], sent);
    rig_close(&r);
}

/* A lane that is woken for a message which is still to come stays awake for as long as it was told. */
static void test_a_roused_lane(void) {
    rig r;
    rig_open(&r, 32, 1, 5);
    r.spin_ns = 0;
    r.naps_forever = 1;
    rig_start_worker(&r);
    const atomr_wlane *w = r.k->lanes[0]->w;
    for (int round = 0; round < 200; round++) {
        while (!atomic_load(&w->parked)) usleep(10);
        atomr_rouse(r.s, 0, UINT64_MAX);
        while (atomic_load(&w->parked)) usleep(10);
        const uint64_t parks = atomic_load(&w->parks);
        if (round % 16 == 0) usleep(2000);
        CHECK_EQ(sequence_send(&r, 0, (uint64_t)round, 0, NULL), ATOMR_DONE);
        rig_drain(&r);
        CHECK_EQ(atomic_load(&w->parks), parks);
        atomr_rouse(r.s, 0, 0); /* no longer */
    }
    atomr_rouse(r.s, ATOMR_LANES, 0);
    rig_close(&r);
}

/* Rounds: all wait for tickets of a handful of messages, which are sent meanwhile, and nothing comes after
 * them that could wake somebody by chance. */
enum { SLEEPERS = 4, ROUNDS = 250, MOST = 12 };

typedef struct {
    rig *r;
    pthread_barrier_t *barrier;
    const uint64_t *sent; /* of each lane, before the round */
    const unsigned *sends;
    uint64_t random, rings, wants;
    unsigned index;
    int fd;
} sleeper;

static void *waiter_main(void *argument) {
    sleeper *w = argument;
    for (unsigned i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(w->barrier);
        for (unsigned k = 0; k < 3; k++) {
            const unsigned lane = (unsigned)(check_random(&w->random) % w->r->n_lanes);
            if (w->sends[lane] == 0) continue;
            const uint64_t ticket = w->sent[lane] + 1 + check_random(&w->random) % w->sends[lane];
            CHECK_EQ(atomr_wait(w->r->s, lane, ticket, -1, check_random(&w->random) % 4 * 500), ATOMR_DONE);
            CHECK(atomr_resolved(w->r->s, lane, ticket));
        }
        pthread_barrier_wait(w->barrier);
    }
    return NULL;
}

/* An event loop: it sleeps on its eventfd alone. */
static void *loop_main(void *argument) {
    sleeper *w = argument;
    for (unsigned i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(w->barrier);
        for (unsigned k = 0; k < 2; k++) {
            const unsigned lane = (unsigned)(check_random(&w->random) % w->r->n_lanes);
            if (w->sends[lane] == 0) continue;
            const uint64_t ticket = w->sent[lane] + 1 + check_random(&w->random) % w->sends[lane];
            w->wants++; /* the lane may ring for a wish that is taken back at once, too */
            if (atomr_want(w->r->s, lane, w->index, ticket)) continue;
            while (!atomr_resolved(w->r->s, lane, ticket)) { /* a ring may be of the want before */
                uint64_t n;
                CHECK_EQ(read(w->fd, &n, sizeof n), sizeof n);
                w->rings += n;
            }
        }
        pthread_barrier_wait(w->barrier);
    }
    return NULL;
}

static void sleepers(int gpu, void *(*body)(void *)) {
    rig r;
    rig_open(&r, 64, 2, 6);
    if (gpu) r.gpu = fake_open(6, 50);
    r.spin_ns = 1000;
    r.naps_forever = 1;
    r.s->slice_ns = RIG_FOREVER * INT64_C(1000000000);
    rig_start_worker(&r);
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, SLEEPERS + 1);
    pthread_t threads[SLEEPERS];
    sleeper all[SLEEPERS];
    uint64_t sent[2];
    unsigned sends[2];
    for (unsigned i = 0; i < SLEEPERS; i++) {
        const int fd = eventfd(0, EFD_CLOEXEC);
        CHECK(fd >= 0);
        all[i] = (sleeper){&r, &barrier, sent, sends, 100 + i, 0, 0, i + 1, fd};
        CHECK_EQ(atomr_worker_subscribe(r.k, i + 1, dup(fd)), 0);
        CHECK(pthread_create(&threads[i], NULL, body, &all[i]) == 0);
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        for (unsigned lane = 0; lane < 2; lane++) {
            sent[lane] = r.s->lanes[lane].ticket;
            sends[lane] = (unsigned)rig_below(&r, MOST);
        }
        pthread_barrier_wait(&barrier);
        unsigned left[2] = {sends[0], sends[1]};
        while (left[0] + left[1]) {
            const unsigned lane = (unsigned)rig_below(&r, 2);
            if (left[lane] == 0) continue;
            left[lane]--;
            CHECK_EQ(rig_send(&r, lane, RIG_NOOP, NULL, 0, NULL, 0, NULL, NULL), ATOMR_DONE);
            if (rig_below(&r, 4) == 0) usleep((unsigned)rig_below(&r, 60));
        }
        pthread_barrier_wait(&barrier);
    }
    for (unsigned i = 0; i < SLEEPERS; i++) pthread_join(threads[i], NULL);
    rig_stop_worker(&r);
    for (unsigned i = 0; i < SLEEPERS; i++) {
        CHECK(all[i].rings <= all[i].wants + 1); /* one for the subscription itself */
        close(all[i].fd);
    }
    pthread_barrier_destroy(&barrier);
    rig_close(&r);
}

static void test_parked_waiters_wake(void) { sleepers(0, waiter_main); }
static void test_parked_waiters_wake_gpu(void) { sleepers(1, waiter_main); }
static void test_subscribers(void) { sleepers(0, loop_main); }
static void test_subscribers_gpu(void) { sleepers(1, loop_main); }

int main(int argc, char **argv) {
    rig_watchdog(120);
    RUN(test_fifo);
    RUN(test_many_senders);
    RUN(test_many_senders_gpu);
    RUN(test_long_messages);
    RUN(test_long_messages_gpu);
    RUN(test_longest_messages);
    RUN(test_longest_messages_gpu);
    RUN(test_refusals);
    RUN(test_what_a_lane_refuses);
    RUN(test_malformed_messages_end_the_worker);
    RUN(test_parked_lanes_wake);
    RUN(test_a_message_that_comes_before_the_sleep);
    RUN(test_a_roused_lane);
    RUN(test_parked_waiters_wake);
    RUN(test_parked_waiters_wake_gpu);
    RUN(test_subscribers);
    RUN(test_subscribers_gpu);
    return check_end(argc, argv);
}
