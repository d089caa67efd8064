/* Order by data: whatever the lanes, every operation sees what it would have seen in the order of sending. */
#include "rig.h"

enum { BUFFERS = 20, MOST_USES = 6 };

/* Sequential twin of the device's memory. */
typedef struct {
    rig_buffer buffers[BUFFERS];
    uint64_t values[BUFFERS][2];
    int filled[BUFFERS];
    uint64_t *expected; /* by number of the operation */
    uint64_t number, most;
    pthread_mutex_t order; /* sending and the twin in one step */
    rig r;
} twin;

/* Free a buffer and take another: the range is handed on at once, while lanes still work on it. */
static void renew(twin *t, unsigned i) {
    CHECK_EQ(atomr_free(t->r.s, t->buffers[i].slot, t->buffers[i].generation), ATOMR_DONE);
    t->buffers[i] = rig_alloc(&t->r, ATOMR_VOLATILE, RIG_NBYTES);
    t->filled[i] = 0;
}

static unsigned pick(twin *t, unsigned *left, unsigned *n) {
    const unsigned at = (unsigned)rig_below(&t->r, *n), i = left[at];
    left[at] = left[--*n];
    return i;
}

/* Choose an operation, send it, and do it in the twin. */
static void step(twin *t) {
    unsigned left[BUFFERS], n = BUFFERS, n_uses = 0, n_reads = 0, used[MOST_USES];
    atomr_use uses[MOST_USES];
    for (unsigned i = 0; i < BUFFERS; i++) left[i] = i;
    if (rig_below(&t->r, 4) == 0) renew(t, (unsigned)rig_below(&t->r, BUFFERS));
    uint64_t value = t->number;
    for (uint64_t want = rig_below(&t->r, 4); n_reads < want && n > 0;) {
        const unsigned i = pick(t, left, &n);
        if (!t->filled[i]) {
            want--;
            continue;
        }
        used[n_uses] = i;
        uses[n_uses++] = rig_reads(&t->buffers[i]);
        n_reads++;
        value = rig_hash(rig_hash(value, t->values[i][0]), t->values[i][1]);
    }
    /* What it reads it may write as well. */
    if (n_reads && rig_below(&t->r, 3) == 0) left[n++] = used[0];
    for (uint64_t want = 1 + rig_below(&t->r, 2); want > 0; want--) {
        const unsigned i = pick(t, left, &n);
        const int part = t->filled[i] && rig_below(&t->r, 3) == 0;
        uses[n_uses] = part ? rig_writes_part(&t->buffers[i]) : rig_overwrites(&t->buffers[i]);
        if (!part) t->values[i][0] = rig_hash(value, 2 * n_uses);
        t->values[i][1] = rig_hash(value, 2 * n_uses + 1);
        t->filled[i] = 1;
        n_uses++;
    }
    t->expected[t->number] = value;
    const unsigned flags = rig_below(&t->r, 8) == 0 ? RIG_OP_SLOW : rig_below(&t->r, 8) == 0 ? RIG_OP_JUDGED : 0;
    CHECK_EQ(rig_mix_send(&t->r, (unsigned)rig_below(&t->r, t->r.n_lanes), t->number, uses, n_uses, n_reads, flags,
                          NULL, NULL), ATOMR_DONE);
    t->number++;
}

static void *sender_main(void *argument) {
    twin *t = argument;
    for (;;) {
        pthread_mutex_lock(&t->order);
        const int more = t->number < t->most;
        if (more) step(t);
        pthread_mutex_unlock(&t->order);
        if (!more) return NULL;
    }
}

static void compare(uint32_t cells, unsigned n_lanes, unsigned n_threads, int gpu, unsigned n, uint64_t seed) {
    twin t = {.most = n};
    pthread_t threads[8];
    t.expected = calloc(n, sizeof *t.expected);
    CHECK(t.expected != NULL);
    pthread_mutex_init(&t.order, NULL);
    rig_open(&t.r, cells, n_lanes, seed);
    if (gpu) t.r.gpu = fake_open(seed, gpu);
    rig_start_log(n);
    /* Room for little more than the buffers. */
    rig_segment(&t.r, ATOMR_VOLATILE, (BUFFERS + 2) * ATOMR_POOL_UNIT);
    rig_start_worker(&t.r);
    for (unsigned i = 0; i < BUFFERS; i++) t.buffers[i] = rig_alloc(&t.r, ATOMR_VOLATILE, RIG_NBYTES);
    for (unsigned i = 0; i < n_threads; i++) CHECK(pthread_create(&threads[i], NULL, sender_main, &t) == 0);
    for (unsigned i = 0; i < n_threads; i++) pthread_join(threads[i], NULL);
    rig_drain(&t.r);
    for (uint64_t i = 0; i < n; i++) {
        if (atomic_load(&rig_log[i].value) != t.expected[i] || atomic_load(&rig_log[i].ended) != 1) {
            fprintf(stderr, "seed %" PRIu64 ": operation %" PRIu64 " is wrong, or was not done once\n", seed, i);
            abort();
        }
    }
    for (unsigned i = 0; i < BUFFERS; i++) {
        if (!t.filled[i]) continue;
        const uint64_t *at = rig_address(&t.r, &t.buffers[i]);
        CHECK_EQ(rig_read(at), t.values[i][0]);
        CHECK_EQ(rig_read(at + RIG_HALF), t.values[i][1]);
    }
    CHECK(atomr_next_orphan(t.r.s) == NULL);
    rig_close(&t.r);
    pthread_mutex_destroy(&t.order);
    free(t.expected);
}

static void test_one_lane(void) { compare(32, 1, 1, 0, 3000, 11); }
static void test_lanes_on_host(void) { compare(1024, 5, 1, 0, 12000, 12); }
static void test_small_rings_on_host(void) { compare(32, 4, 3, 0, 8000, 13); }
static void test_all_lanes_on_host(void) { compare(32, 64, 2, 0, 2000, 14); }
static void test_lanes_on_gpu(void) { compare(1024, 5, 1, 40, 6000, 15); }
static void test_small_rings_on_gpu(void) { compare(32, 4, 3, 20, 4000, 16); }
static void test_all_lanes_on_gpu(void) { compare(64, 64, 2, 100, 2000, 17); }

static void test_many_seeds(void) {
    for (uint64_t seed = 100; seed < 120; seed++)
        compare(32 << seed % 3, 2 + seed % 7, 1 + seed % 3, seed % 2 ? 10 : 0, 400, seed);
}

int main(int argc, char **argv) {
    rig_watchdog(120);
    RUN(test_one_lane);
    RUN(test_lanes_on_host);
    RUN(test_small_rings_on_host);
    RUN(test_all_lanes_on_host);
    RUN(test_lanes_on_gpu);
    RUN(test_small_rings_on_gpu);
    RUN(test_all_lanes_on_gpu);
    RUN(test_many_seeds);
    return check_end(argc, argv);
}
