/* Workers that die at any moment: every message is resolved once, and nothing wrong is ever read.
 *
 * The worker is a forked process that is killed; under ThreadSanitizer, and on the fake GPU, it is a set of
 * threads that stop, or whose device faults.  Afterwards the outcomes are replayed in the order of sending, on a sequential twin.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>

#include "rig.h"

enum { DURABLE = 8, LIVE = 12, OBJECTS = 4096, OPS = 4096, MOST_USES = 5, NEVER_SENT = -1, UNKNOWN = -2 };

typedef struct {
    rig_buffer buffer;
    int pool, filled, valid;
    unsigned doubt; /* the number of the fault that declares it torn, written again before or not */
    int maybe;      /* in doubt, but the device had done what was to write it */
    uint32_t lost; /* the epoch that ended it, for volatile memory */
    uint64_t values[2];
} object;

typedef struct {
    unsigned n, n_reads, lane, objects[MOST_USES];
    int part[MOST_USES], fails, asked, code, inherited; /* code of the outcome, an atomr_code */
    unsigned resolved; /* the number of the fault before which, or by which, it was resolved */
    int suspect;
    uint64_t ticket;
    atomr_reply reply;
} operation;

typedef struct {
    rig r;
    object objects[OBJECTS];
    operation ops[OPS];
    unsigned n_objects, n_ops, live[LIVE]; /* the first DURABLE of `live` are durable */
    pid_t child;
    int forks;
    unsigned faults, suspects, refused;
    uint64_t seed;
} chaos;

#define EXPECT(c, i, cond)                                                                                    \
    do {                                                                                                      \
        if (!(cond)) {                                                                                        \
            fprintf(stderr, "seed %" PRIu64 ", operation %u (outcome %d): not true: %s\n", (c)->seed,         \
                    (unsigned)(i), (c)->ops[i].code, #cond);                                                  \
            abort();                                                                                          \
        }                                                                                                     \
    } while (0)

static void start(chaos *c) {
    if (!c->forks) {
        rig_start_worker(&c->r);
        return;
    }
    int up[2], down[2], w_fd;
    char byte = 0, path[64];
    CHECK(pipe(up) == 0 && pipe(down) == 0);
    c->child = fork();
    CHECK(c->child >= 0);
    if (c->child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        rig_make_worker(&c->r);
        w_fd = atomr_worker_w_fd(c->r.k);
        CHECK_EQ(write(up[1], &w_fd, sizeof w_fd), sizeof w_fd);
        CHECK_EQ(read(down[0], &byte, 1), 1);
        rig_go(&c->r);
        for (;;) pause();
    }
    CHECK_EQ(read(up[0], &w_fd, sizeof w_fd), sizeof w_fd);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)c->child, w_fd);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK_EQ(atomr_sender_attach(c->r.s, fd, atomr_w_bytes()), 0);
    CHECK_EQ(write(down[1], &byte, 1), 1);
    atomr_sender_set_state(c->r.s, ATOMR_OPEN);
    close(fd);
    for (int i = 0; i < 2; i++) close(up[i]), close(down[i]);
}

static void end(chaos *c) {
    if (!c->forks) {
        const int faults = c->r.gpu && rig_below(&c->r, 2);
        if (faults) fake_fault(c->r.gpu, 700);
        rig_stop_worker(&c->r);
        if (!faults) return;
        fake_close(c->r.gpu);
        c->r.gpu = fake_open(rig_below(&c->r, 1000), 10);
        return;
    }
    CHECK_EQ(kill(c->child, SIGKILL), 0);
    CHECK_EQ(waitpid(c->child, NULL, 0), c->child);
}

static unsigned new_object(chaos *c, int pool) {
    CHECK(c->n_objects < OBJECTS);
    object *o = &c->objects[c->n_objects];
    *o = (object){.buffer = rig_alloc(&c->r, pool, RIG_NBYTES), .pool = pool};
    return c->n_objects++;
}

static void step(chaos *c) {
    CHECK(c->n_ops < OPS);
    operation *op = &c->ops[c->n_ops];
    memset(op, 0, sizeof *op);
    if (rig_below(&c->r, 6) == 0) { /* drop a handle while its messages are queued */
        unsigned *at = &c->live[rig_below(&c->r, LIVE)];
        object *o = &c->objects[*at];
        if (!o->lost) CHECK_EQ(atomr_free(c->r.s, o->buffer.slot, o->buffer.generation), ATOMR_DONE);
        *at = new_object(c, o->pool);
    }
    atomr_use uses[MOST_USES];
    const unsigned want = 1 + (unsigned)rig_below(&c->r, MOST_USES), reads = (unsigned)rig_below(&c->r, 3);
    /* Mostly durable, so that not everything is void after a restart. */
    for (unsigned k = 0; k < want; k++) {
        const unsigned id = c->live[rig_below(&c->r, rig_below(&c->r, 4) ? DURABLE : LIVE)];
        object *o = &c->objects[id];
        int twice = 0;
        for (unsigned i = 0; i < op->n; i++) twice |= op->objects[i] == id;
        if (twice || o->lost) continue;
        const int is_read = k < reads;
        if (is_read && !o->filled) continue;
        op->part[op->n] = !is_read && o->filled && rig_below(&c->r, 3) == 0;
        uses[op->n] = is_read ? rig_reads(&o->buffer)
                      : op->part[op->n] ? rig_writes_part(&o->buffer)
                                        : rig_overwrites(&o->buffer);
        op->objects[op->n++] = id;
        op->n_reads += (unsigned)is_read;
    }
    op->fails = rig_below(&c->r, 12) == 0;
    op->asked = rig_below(&c->r, 2) == 0;
    op->lane = (unsigned)rig_below(&c->r, c->r.n_lanes);
    const unsigned late = rig_below(&c->r, 6) == 0 ? RIG_OP_JUDGED : 0;
    const unsigned flags = (op->fails ? RIG_OP_FAILS : late) | (rig_below(&c->r, 4) == 0 ? RIG_OP_SLOW : 0);
    const int result = rig_mix_send(&c->r, op->lane, c->n_ops, uses, op->n, op->n_reads, flags,
                                    op->asked ? &op->reply : NULL, &op->ticket);
    CHECK(result == ATOMR_DONE || result == ATOMR_TORN);
    op->code = result == ATOMR_DONE ? UNKNOWN : NEVER_SENT;
    if (result == ATOMR_DONE)
        for (unsigned i = op->n_reads; i < op->n; i++) c->objects[op->objects[i]].filled |= !op->part[i];
    c->n_ops++;
}

static void fault(chaos *c) {
    atomr_fault_report report;
    CHECK_EQ(atomr_sender_fault(c->r.s, ATOMR_DEVICE_FAULT, ++c->faults, "killed", &report), 0);
    c->suspects += report.n_suspects;
    c->refused += report.n_refused;
    for (unsigned i = 0; i < c->n_ops; i++) {
        operation *op = &c->ops[i];
        if (op->code == UNKNOWN && !op->resolved && atomr_resolved(c->r.s, op->lane, op->ticket))
            op->resolved = c->faults;
    }
    for (unsigned k = 0; k < report.n_suspects; k++)
        for (unsigned i = 0; i < c->n_ops; i++)
            c->ops[i].suspect |= c->ops[i].code == UNKNOWN && c->ops[i].lane == report.suspects[k].lane &&
                                 c->ops[i].ticket == report.suspects[k].ticket;
    atomr_fault_report_release(&report);
    CHECK_EQ(atomr_sender_state(c->r.s), ATOMR_RESTARTING);
    CHECK_EQ(atomr_sender_epoch(c->r.s), c->faults + 1);
    for (unsigned i = 0; i < LIVE; i++) {
        object *o = &c->objects[c->live[i]];
        const int state = atomr_check(c->r.s, o->buffer.slot, o->buffer.generation);
        if (o->pool == ATOMR_DURABLE) {
            CHECK(state == ATOMR_DONE || state == ATOMR_TORN);
            continue;
        }
        CHECK_EQ(state, ATOMR_STALE);
        o->lost = c->faults;
        c->live[i] = new_object(c, ATOMR_VOLATILE);
    }
}

/* Find out what came of every message: by its reply, or among the orphans. */
static void collect(chaos *c) {
    for (unsigned i = 0; i < c->n_ops; i++) {
        operation *op = &c->ops[i];
        if (op->code != UNKNOWN || !op->asked) continue;
        EXPECT(c, i, atomr_reply_settle(c->r.s, &op->reply));
        op->code = op->reply.verdict ? (int)op->reply.verdict->error.code : ATOMR_OK;
        op->inherited = op->reply.verdict && op->reply.verdict->error.inherited;
        atomr_reply_drop(c->r.s, &op->reply);
    }
    for (atomr_verdict *v; (v = atomr_next_orphan(c->r.s)) != NULL;) {
        unsigned i = 0;
        while (i < c->n_ops && !(c->ops[i].lane == v->lane && c->ops[i].ticket == v->error.ticket)) i++;
        if (i == c->n_ops) { /* a no-op that was sent to the dead, claimed by the next worker */
            CHECK_EQ(v->error.code, ATOMR_DEVICE_FAULT);
            atomr_verdict_release(c->r.s, v);
            continue;
        }
        EXPECT(c, i, !c->ops[i].asked && c->ops[i].code == UNKNOWN);
        c->ops[i].code = (int)v->error.code;
        c->ops[i].inherited = (int)v->error.inherited;
        atomr_verdict_release(c->r.s, v);
    }
    for (unsigned i = 0; i < c->n_ops; i++)
        if (c->ops[i].code == UNKNOWN) c->ops[i].code = ATOMR_OK;
}

static void replay(chaos *c) {
    for (unsigned i = 0; i < OBJECTS; i++) c->objects[i].valid = 0;
    for (unsigned i = 0; i < c->n_ops; i++) {
        const operation *op = &c->ops[i];
        int reads_invalid = 0, reads_wrong = 0, names_lost = 0;
        uint64_t value = i;
        for (unsigned k = 0; k < op->n; k++) {
            const object *o = &c->objects[op->objects[k]];
            names_lost |= o->pool == ATOMR_VOLATILE;
            if (k >= op->n_reads) continue;
            reads_invalid |= !o->valid;
            /* A device completes on its own.  That a message was done may be seen by what depends on it alone. */
            reads_wrong |= !o->valid && !(c->r.gpu && o->maybe && o->doubt == op->resolved);
            value = rig_hash(rig_hash(value, o->values[0]), o->values[1]);
        }
        const uint32_t began = atomic_load(&rig_log[i].began), ended = atomic_load(&rig_log[i].ended);
        switch (op->code) {
        case NEVER_SENT:
            EXPECT(c, i, reads_invalid && began == 0);
            continue;
        case ATOMR_OK:
            EXPECT(c, i, !reads_wrong); /* else: a silent wrong answer */
            EXPECT(c, i, began == 1 && ended == 1 && atomic_load(&rig_log[i].value) == value);
            break;
        case ATOMR_DEVICE_FAULT:
            EXPECT(c, i, began <= 1 && ended <= 1);
            break;
        case ATOMR_STALE_RESTARTED:
            EXPECT(c, i, began == 0 && (op->inherited ? reads_invalid : names_lost));
            break;
        case ATOMR_STALE_TORN:
            EXPECT(c, i, began == 0 && reads_invalid);
            break;
        default:
            EXPECT(c, i, op->code == ATOMR_LIBRARY_ERROR);
            EXPECT(c, i, began == 0 && (op->inherited ? reads_invalid : op->fails));
        }
        for (unsigned k = op->n_reads; k < op->n; k++) {
            object *o = &c->objects[op->objects[k]];
            const int done = op->code == ATOMR_OK || (op->code == ATOMR_DEVICE_FAULT && ended);
            const int doubt = o->doubt && o->doubt == op->resolved;
            const int known = !op->part[k] || o->valid || (doubt && o->maybe);
            if (done && !op->part[k]) o->values[0] = rig_hash(value, 2 * k);
            if (done) o->values[1] = rig_hash(value, 2 * k + 1);
            o->doubt = op->suspect || (doubt && op->code == ATOMR_OK) ? op->resolved : 0;
            o->valid = op->code == ATOMR_OK && known && !o->doubt;
            o->maybe = done && known && o->doubt;
        }
    }
}

/* In the end, memory is readable exactly where it is what it should be. */
static void read_all(chaos *c, const unsigned *last, unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        const operation *op = &c->ops[last[i]];
        const object *o = &c->objects[op->objects[0]];
        EXPECT(c, last[i], o->valid == (op->code == ATOMR_OK));
        if (!o->valid) continue;
        const uint64_t *at = rig_address(&c->r, &o->buffer);
        EXPECT(c, last[i], rig_read(at) == o->values[0] && rig_read(at + RIG_HALF) == o->values[1]);
    }
}

static void run_chaos(int forks, int gpu, uint64_t seed) {
    static chaos c;
    const uint32_t cells = seed % 2 ? 64 : 1024;
    const unsigned n_lanes = 1 + seed % 5, generations = 1 + seed % 4;
    memset(&c, 0, sizeof c);
    c.seed = seed;
    c.forks = forks;
    rig_open(&c.r, cells, n_lanes, seed);
    if (gpu) c.r.gpu = fake_open(seed, 10);
    rig_start_log(OPS);
    rig_segment(&c.r, ATOMR_VOLATILE, 1 << 18);
    rig_segment(&c.r, ATOMR_DURABLE, 1 << 18);
    for (unsigned i = 0; i < LIVE; i++) c.live[i] = new_object(&c, i < DURABLE ? ATOMR_DURABLE : ATOMR_VOLATILE);
    for (unsigned g = 0; g < generations; g++) {
        start(&c);
        for (uint64_t n = rig_below(&c.r, 300); n > 0; n--) step(&c);
        if (rig_below(&c.r, 2)) usleep((unsigned)rig_below(&c.r, 1500));
        end(&c);
        for (uint64_t n = rig_below(&c.r, 2) * 8; n > 0; n--) /* sent to the dead */
            if (atomr_room_ticket(c.r.s, 0, ATOMR_MIN_CELLS) == 0)
                CHECK_EQ(rig_send(&c.r, 0, RIG_NOOP, NULL, 0, NULL, 0, NULL, NULL), ATOMR_DONE);
        fault(&c);
        if (rig_below(&c.r, 4) == 0) fault(&c); /* the next one dies before it is even attached */
    }
    start(&c);
    rig_drain(&c.r);
    unsigned last[LIVE], n = 0;
    for (unsigned i = 0; i < LIVE; i++) {
        const object *o = &c.objects[c.live[i]];
        if (!o->filled) continue;
        operation *op = &c.ops[c.n_ops];
        *op = (operation){.n = 1, .n_reads = 1, .objects = {c.live[i]}, .asked = 1, .code = UNKNOWN};
        const atomr_use use = rig_reads(&o->buffer);
        if (rig_mix_send(&c.r, 0, c.n_ops, &use, 1, 1, 0, &op->reply, &op->ticket) != ATOMR_DONE)
            op->code = NEVER_SENT;
        last[n++] = c.n_ops++;
    }
    rig_drain(&c.r);
    end(&c);
    collect(&c);
    replay(&c);
    read_all(&c, last, n);
    rig_close(&c.r);
}

static void test_threads_stop(void) {
    for (uint64_t seed = 300; seed < 330; seed++) run_chaos(0, 0, seed);
}

static void test_threads_stop_gpu(void) {
    for (uint64_t seed = 400; seed < 430; seed++) run_chaos(0, 1, seed);
}

static void test_processes_are_killed(void) {
#ifndef __SANITIZE_THREAD__ /* it cannot follow a fork that makes threads */
    for (uint64_t seed = 500; seed < 560; seed++) run_chaos(1, 0, seed);
#endif
}

int main(int argc, char **argv) {
    rig_watchdog(120);
    RUN(test_processes_are_killed); /* first, while this process has one thread */
    RUN(test_threads_stop);
    RUN(test_threads_stop_gpu);
    return check_end(argc, argv);
}
