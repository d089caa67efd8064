/* A worker that has gone wild writes anything into its memory: the parent survives, and its books stay right. */
#include "rig.h"

typedef struct {
    rig r;
    rig_paper worker;
} wild;

/* Words of all sizes, and some that nearly make sense. */
static void scribble(wild *x, int gently) {
    uint64_t *words = (uint64_t *)x->worker.w;
    const uint64_t n = atomr_w_bytes() / 8;
    for (uint64_t i = 0; i < (gently ? 200 : n); i++) {
        const uint64_t at = gently ? rig_below(&x->r, n) : i;
        uint64_t value = check_random(&x->r.random);
        switch (rig_below(&x->r, 4)) {
        case 0: value &= 0xff; break;
        case 1: value = UINT64_MAX; break;
        case 2: value &= 0x000000ff000000ff; break;
        }
        words[at] = value;
    }
    for (unsigned lane = 0; gently && lane < x->r.n_lanes; lane++) {
        atomr_wlane *w = atomr_wlane_at(x->worker.w, lane);
        const uint64_t sent = x->r.s->lanes[lane].ticket;
        atomic_store(&w->completed, rig_below(&x->r, sent + 3));
        atomic_store(&w->claimed, rig_below(&x->r, sent + 3));
        atomic_store(&w->errors, (uint32_t)rig_below(&x->r, 64));
        for (unsigned i = 0; i < ATOMR_ERRORS; i++) w->ring[i].ticket = rig_below(&x->r, sent + 3);
    }
}

enum { N = 60 };

static void one_life(uint64_t seed) {
    wild x;
    atomr_reply replies[N] = {{0}};
    rig_buffer buffers[4];
    unsigned n = 0, orphans = 0;
    rig_open(&x.r, 32 << seed % 2, 3, seed);
    rig_segment(&x.r, ATOMR_VOLATILE, 1 << 14);
    rig_segment(&x.r, ATOMR_DURABLE, 1 << 14);
    rig_start_log(N);
    for (unsigned i = 0; i < 4; i++) buffers[i] = rig_alloc(&x.r, i % 2, RIG_NBYTES);
    CHECK_EQ(atomr_group_add(x.r.s, 5, buffers[1].slot, buffers[1].generation, 0), ATOMR_DONE);
    uint64_t known[3] = {0};
    for (int life = 0; life < 3; life++) {
        rig_attach_paper(&x.r, &x.worker);
        for (unsigned k = 0; k < N / 3; k++) {
            scribble(&x, k % 5 && (k > 5 || seed % 3));
            const unsigned lane = (unsigned)rig_below(&x.r, 3), i = (unsigned)rig_below(&x.r, 4);
            const rig_buffer *b = &buffers[i], *d = &buffers[1];
            const atomr_use uses[2] = {rig_overwrites(b), rig_overwrites(d)};
            const uint64_t scalars[RIG_SCALARS] = {n};
            uint64_t ticket = 0;
            unsigned bad = 0;
            int result = atomr_send(x.r.s, lane, RIG_MIX + 2, uses, 2, scalars, RIG_SCALARS, rig_below(&x.r, 3) ? 0 : 5,
                                    &replies[n], &ticket, &bad);
            CHECK(result == ATOMR_DONE || result == ATOMR_FULL || result == ATOMR_STALE);
            n += result == ATOMR_DONE;
            atomr_room_ticket(x.r.s, lane, ATOMR_MIN_CELLS);
            atomr_wait(x.r.s, lane, ticket, (int64_t)rig_below(&x.r, 2) * 20000, 100);
            atomr_want(x.r.s, lane, 3, rig_below(&x.r, 100));
            for (unsigned q = 0; q < n; q++) atomr_reply_settle(x.r.s, &replies[q]);
            for (atomr_verdict *v; (v = atomr_next_orphan(x.r.s)) != NULL; orphans++) {
                CHECK(v->error.code > ATOMR_OK && v->error.code < ATOMR_CODES && v->error.inherited <= 1);
                CHECK(memchr(v->error.text, 0, sizeof v->error.text) && memchr(v->error.lib, 0, sizeof v->error.lib));
                atomr_verdict_release(x.r.s, v);
            }
            for (unsigned q = 0; q < 3; q++) {
                atomr_lane_stats stats;
                CHECK_EQ(atomr_sender_lane_stats(x.r.s, q, &stats), 0);
                CHECK(stats.completed >= known[q] && stats.completed <= stats.sent); /* it never falls */
                CHECK(stats.cells_in_use <= x.r.s->cells);
                known[q] = stats.completed;
                atomr_span_place place = {0};
                atomr_span_copy spans[16];
                for (unsigned m = atomr_read_spans(x.r.s, q, &place, spans, 16); m-- > 0;)
                    CHECK(spans[m].ticket && spans[m].ticket <= stats.sent && spans[m].began_ns <= spans[m].ended_ns);
            }
            atomr_sender_control_busy(x.r.s);
        }
        scribble(&x, seed % 2);
        atomr_fault_report report;
        CHECK_EQ(atomr_sender_fault(x.r.s, ATOMR_DEVICE_FAULT, 1, "wild", &report), 0);
        CHECK(report.n_suspects <= n);
        atomr_fault_report_release(&report);
        rig_detach_paper(&x.worker);
    }
    /* Whatever it was told, the parent's messages lie where it put them: a sane worker can go on. */
    for (unsigned i = 0; i < 4; i++)
        if (atomr_check(x.r.s, buffers[i].slot, buffers[i].generation) == ATOMR_DONE)
            CHECK_EQ(atomr_free(x.r.s, buffers[i].slot, buffers[i].generation), ATOMR_DONE);
    if (seed % 4) {
        rig_start_worker(&x.r);
        rig_drain(&x.r);
    } else {
        atomr_sender_end(x.r.s, ATOMR_CLOSED, ATOMR_DEVICE_LOST, 1, "end");
    }
    for (unsigned q = 0; q < n; q++) rig_outcome(&x.r, &replies[q]);
    CHECK(orphans <= n + 3);
    rig_close(&x.r);
}

#ifdef __SANITIZE_THREAD__
enum { LIVES = 8 }; /* threads come only at the end of a life; every kind of life is there */
#else
enum { LIVES = 24 };
#endif

static void test_wild_worker(void) {
    for (uint64_t seed = 1000; seed < 1000 + LIVES; seed++) one_life(seed);
}

/* What does not look like a worker's region is not attached. */
static void test_bad_regions(void) {
    rig r;
    rig_open(&r, 32, 1, 1);
    const uint64_t nbytes = atomr_w_bytes();
    for (int kind = 0; kind < 7; kind++) {
        const int fd = atomr_memfd("bad", kind == 0 ? nbytes / 2 : nbytes);
        CHECK(fd >= 0);
        atomr_wheader h = {.magic = ATOMR_MAGIC_W, .abi = ATOMR_ABI, .nbytes = nbytes, .lanes_at = ATOMR_W_LANES_AT};
        h.magic += kind == 1;
        h.abi += kind == 2;
        h.nbytes += kind == 3;
        h.lanes_at = kind == 4 ? (uint64_t)0 - 64 : kind == 5 ? 64 : h.lanes_at;
        CHECK_EQ(pwrite(fd, &h, sizeof h, 0), sizeof h);
        if (kind != 6) CHECK_EQ(atomr_memfd_seal(fd), 0); /* unsealed, it could shrink under the parent */
        CHECK_EQ(atomr_sender_attach(r.s, fd, nbytes), -1);
        CHECK_EQ(errno, EPROTO);
        close(fd);
    }
    CHECK_EQ(atomr_sender_attach(r.s, -1, nbytes), -1);
    CHECK_EQ(atomr_sender_attach(r.s, -1, nbytes + 1), -1);
    rig_close(&r);
}

int main(int argc, char **argv) {
    rig_watchdog(120);
    RUN(test_wild_worker);
    RUN(test_bad_regions);
    return check_end(argc, argv);
}
