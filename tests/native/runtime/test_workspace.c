/* Workspaces: they change in the order of a lane's messages, and outlive the worker. */
#include "rig.h"

enum { LOOK = 1, USE = 2, MESSAGES = 400, LANES = 3 };

typedef struct {
    void *base;
    uint64_t nbytes;
} seen;

static seen log_of[LANES][MESSAGES];

/* Notes the workspace that it was given; scalar: its number. */
static int look(void *context, const atomr_call *call, atomr_failure *failure) {
    (void)context, (void)failure;
    log_of[call->lane][call->scalars[0]] = (seen){call->workspace, call->workspace_bytes};
    return ATOMR_OK;
}

static void add_plans(rig *r) {
    CHECK_EQ(atomr_worker_add_plan(r->k, RIG_MIX - LOOK, look, NULL, 0, 1), 0);
    CHECK_EQ(atomr_worker_add_plan(r->k, RIG_MIX - USE, atomr_run_workspace, r->k, 1, 1), 0);
}

static uint64_t send_look(rig *r, unsigned lane, uint64_t number) {
    uint64_t ticket;
    CHECK_EQ(rig_send(r, lane, RIG_MIX - LOOK, NULL, 0, &number, 1, NULL, &ticket), ATOMR_DONE);
    return ticket;
}

static void send_use(rig *r, unsigned lane, const rig_buffer *b, uint64_t nbytes) {
    const atomr_use use = rig_overwrites(b);
    CHECK_EQ(rig_send(r, lane, RIG_MIX - USE, &use, 1, &nbytes, 1, NULL, NULL), ATOMR_DONE);
}

/* Every message finds the workspace that was the last before it, whatever other lanes do. */
static void changes_in_order(int gpu) {
    rig r;
    rig_open(&r, 64, LANES, 3);
    if (gpu) r.gpu = fake_open(2, 100);
    rig_segment(&r, ATOMR_VOLATILE, 1 << 16);
    rig_start_log(1);
    rig_make_worker(&r);
    add_plans(&r);
    CHECK_EQ(atomr_sender_attach(r.s, atomr_worker_w_fd(r.k), atomr_w_bytes()), 0);
    rig_share(&r);
    rig_go(&r);
    atomr_sender_set_state(r.s, ATOMR_OPEN);
    rig_buffer current[LANES];
    seen expected[LANES][MESSAGES];
    memset(current, 0, sizeof current);
    for (unsigned i = 0; i < MESSAGES; i++) {
        for (unsigned lane = 0; lane < LANES; lane++) {
            if (rig_below(&r, 3) == 0) {
                rig_buffer next = rig_alloc(&r, ATOMR_VOLATILE, 256 * (1 + rig_below(&r, 4)));
                const int none = rig_below(&r, 5) == 0;
                send_use(&r, lane, &next, none ? 0 : next.nbytes);
                if (current[lane].slot)
                    CHECK_EQ(atomr_free(r.s, current[lane].slot, current[lane].generation), ATOMR_DONE);
                if (none) CHECK_EQ(atomr_free(r.s, next.slot, next.generation), ATOMR_DONE);
                current[lane] = none ? (rig_buffer){0} : next;
            }
            const rig_buffer *b = &current[lane];
            expected[lane][i] = b->slot ? (seen){rig_address(&r, b), b->nbytes} : (seen){NULL, 0};
            send_look(&r, lane, i);
        }
    }
    rig_drain(&r);
    for (unsigned lane = 0; lane < LANES; lane++) {
        CHECK_EQ(atomr_worker_workspace(r.k, lane), current[lane].nbytes);
        for (unsigned i = 0; i < MESSAGES; i++) {
            CHECK(log_of[lane][i].base == expected[lane][i].base);
            CHECK_EQ(log_of[lane][i].nbytes, expected[lane][i].nbytes);
        }
    }
    rig_close(&r);
}

static void test_changes_in_order_on_host(void) { changes_in_order(0); }
static void test_changes_in_order_on_gpu(void) { changes_in_order(1); }

/* Before `go` the control thread sets it; afterwards only messages do. */
static void test_set_before_go(void) {
    rig r;
    char memory[256];
    rig_open(&r, 64, 2, 4);
    rig_make_worker(&r);
    add_plans(&r);
    CHECK_EQ(atomr_worker_set_workspace(r.k, 0, memory, sizeof memory), -1); /* no such lane yet */
    CHECK_EQ(atomr_sender_attach(r.s, atomr_worker_w_fd(r.k), atomr_w_bytes()), 0);
    rig_share(&r);
    for (unsigned i = 0; i < 2; i++) CHECK_EQ(atomr_worker_open_lane(r.k, i), 0);
    CHECK_EQ(atomr_worker_set_workspace(r.k, 1, memory, sizeof memory), 0);
    CHECK_EQ(atomr_worker_set_workspace(r.k, ATOMR_LANES, memory, sizeof memory), -1);
    atomr_worker_go(r.k);
    atomr_sender_set_state(r.s, ATOMR_OPEN);
    CHECK_EQ(atomr_worker_set_workspace(r.k, 1, NULL, 0), -1);
    for (unsigned lane = 0; lane < 2; lane++) rig_wait(&r, lane, send_look(&r, lane, 0));
    CHECK(log_of[0][0].base == NULL && log_of[0][0].nbytes == 0);
    CHECK(log_of[1][0].base == memory && log_of[1][0].nbytes == sizeof memory);
    rig_close(&r);
}

/* What is kept is live after a fault, and nothing else of its pool; freeing ends that. */
static void test_kept_memory_outlives_the_worker(void) {
    rig r;
    rig_open(&r, 64, 1, 5);
    rig_segment(&r, ATOMR_VOLATILE, 1 << 14);
    rig_start_worker(&r);
    rig_buffer kept = rig_alloc(&r, ATOMR_VOLATILE, 512), plain = rig_alloc(&r, ATOMR_VOLATILE, 512);
    CHECK_EQ(atomr_keep(r.s, kept.slot, kept.generation), ATOMR_DONE);
    rig_stop_worker(&r);
    atomr_fault_report report;
    CHECK_EQ(atomr_sender_fault(r.s, ATOMR_DEVICE_FAULT, 0, "gone", &report), 0);
    CHECK_EQ(report.n_stale, 1);
    atomr_fault_report_release(&report);
    CHECK_EQ(atomr_check(r.s, kept.slot, kept.generation), ATOMR_DONE);
    CHECK_EQ(atomr_check(r.s, plain.slot, plain.generation), ATOMR_STALE);
    CHECK_EQ(atomr_keep(r.s, plain.slot, plain.generation), ATOMR_STALE);
    atomr_block block;
    int pool;
    CHECK_EQ(atomr_block_of(r.s, kept.slot, kept.generation, &block, &pool), ATOMR_DONE);
    CHECK_EQ(block.offset, kept.block.offset);
    CHECK_EQ(atomr_free(r.s, kept.slot, kept.generation), ATOMR_DONE);
    for (unsigned i = 0; i < 100; i++) { /* a slot that is used again is no longer kept */
        rig_buffer b = rig_alloc(&r, ATOMR_VOLATILE, 256);
        CHECK_EQ(atomr_free(r.s, b.slot, b.generation), ATOMR_DONE);
    }
    atomr_pool_stats stats;
    rig_buffer again[20];
    for (unsigned i = 0; i < 20; i++) again[i] = rig_alloc(&r, ATOMR_VOLATILE, 256);
    CHECK_EQ(atomr_sender_fault(r.s, ATOMR_DEVICE_FAULT, 1, "gone", &report), 0);
    CHECK_EQ(report.n_stale, 20);
    atomr_fault_report_release(&report);
    for (unsigned i = 0; i < 20; i++) CHECK_EQ(atomr_check(r.s, again[i].slot, again[i].generation), ATOMR_STALE);
    atomr_sender_pool_stats(r.s, ATOMR_VOLATILE, &stats);
    CHECK_EQ(stats.in_use, 0);
    rig_close(&r);
}

int main(int argc, char **argv) {
    rig_watchdog(120);
    RUN(test_changes_in_order_on_host);
    RUN(test_changes_in_order_on_gpu);
    RUN(test_set_before_go);
    RUN(test_kept_memory_outlives_the_worker);
    return check_end(argc, argv);
}
