/* A sender and a worker in one process, on the host or on the fake GPU, and an operation to send.
 *
 * The operation mixes what it reads with a number of its own and writes the outcome, so that a wrong order
 * anywhere changes values for good; what it computed is logged under its number.  Every buffer has two
 * halves: a partial write touches the second only.
 */
#ifndef ATOMR_TESTS_RIG_H
#define ATOMR_TESTS_RIG_H

#include <sys/mman.h>
#include <sys/wait.h>

#include "fake_gpu.h"
#include "runtime/lane_private.h"
#include "runtime/sender_private.h"

enum { RIG_WORDS = 8, RIG_HALF = 4, RIG_NBYTES = RIG_WORDS * 8, RIG_SEGMENTS = 8, RIG_SCALARS = 4 };
/* Plans: RIG_MIX + number of operands. */
enum { RIG_NOOP = 0, RIG_SEQUENCE = 1, RIG_MIX = 1000 };
enum { RIG_OP_FAILS = 1, RIG_OP_SLOW = 2, RIG_OP_FAILS_LATE = 4, RIG_OP_JUDGED = 8 }; /* the last: late, and well */
enum { RIG_FOREVER = 60 }; /* seconds, where a lost wake-up must not be hidden by a timeout */

/* What the operation number `n` has seen: shared with a forked worker. */
typedef struct {
    _Atomic uint32_t began, ended;
    _Atomic uint64_t value;
} rig_entry;

typedef struct {
    atomr_sender *s;
    atomr_worker *k;
    fake_gpu *gpu; /* NULL: the host */
    unsigned n_lanes;
    uint64_t spin_ns, random;
    int naps_forever;
    struct {
        uint32_t segment;
        void *base;
        uint64_t nbytes;
    } segments[RIG_SEGMENTS];
    unsigned n_segments;
} rig;

typedef struct {
    uint32_t slot, generation;
    atomr_block block;
    uint64_t nbytes;
} rig_buffer;

static rig_entry *rig_log; /* of `rig_log_room` entries */
static uint64_t rig_log_room;
/* RIG_SEQUENCE checks that a lane takes its messages in order: the next number of each lane. */
static uint64_t rig_sequence[ATOMR_LANES];

static inline uint64_t rig_hash(uint64_t a, uint64_t b) {
    uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0xff51afd7ed558ccdu;
    return x ^ (x >> 29);
}

static inline void rig_start_log(uint64_t room) {
    if (rig_log) munmap(rig_log, rig_log_room * sizeof *rig_log);
    rig_log_room = room;
    rig_log = mmap(NULL, room * sizeof *rig_log, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(rig_log != MAP_FAILED);
}

/* The value of the half of a buffer, of which all words follow from the first. */
static inline uint64_t rig_read(const uint64_t *half) {
    const uint64_t value = half[0];
    for (unsigned i = 1; i < RIG_HALF; i++) CHECK(half[i] == rig_hash(value, i)); /* else: two writers at once */
    return value;
}

static inline void rig_write(uint64_t *half, uint64_t value) {
    half[0] = value;
    for (unsigned i = 1; i < RIG_HALF; i++) half[i] = rig_hash(value, i);
}

/* Scalars: number, operands read (the first ones), flags, operands to write partially (a mask). */
static inline void rig_mix(fake_gpu *g, const atomr_call *call) {
    (void)g;
    rig_entry *entry = &rig_log[call->scalars[0]];
    atomic_fetch_add(&entry->began, 1);
    uint64_t value = call->scalars[0];
    for (unsigned i = 0; i < call->scalars[1]; i++) {
        const uint64_t *at = call->pointers[i];
        value = rig_hash(rig_hash(value, rig_read(at)), rig_read(at + RIG_HALF));
    }
    if (call->scalars[2] & RIG_OP_SLOW) usleep(20);
    for (unsigned i = (unsigned)call->scalars[1]; i < call->n_operands; i++) {
        uint64_t *at = call->pointers[i];
        if (!(i < 64 && call->scalars[3] >> i & 1)) rig_write(at, rig_hash(value, 2 * i));
        rig_write(at + RIG_HALF, rig_hash(value, 2 * i + 1));
    }
    atomic_store(&entry->value, value);
    atomic_fetch_add(&entry->ended, 1);
}

static inline int rig_fail(uint64_t number, atomr_failure *failure) {
    snprintf(failure->lib, sizeof failure->lib, "rig");
    snprintf(failure->text, sizeof failure->text, "operation %" PRIu64, number);
    failure->status = (int32_t)number;
    return ATOMR_LIBRARY_ERROR;
}

/* The info word of a failure is the operation's number, plus one. */
static inline int rig_judge(void *context, const _Atomic int32_t *word, atomr_failure *failure) {
    const int32_t info = atomic_load(word);
    CHECK(context == rig_log);
    return info ? rig_fail((uint64_t)info - 1, failure) : ATOMR_OK;
}

static inline void rig_mix_late(fake_gpu *g, const atomr_call *call) {
    rig_mix(g, call);
    atomic_store(call->info, call->scalars[2] & RIG_OP_FAILS_LATE ? (int32_t)call->scalars[0] + 1 : 0);
}

static inline int rig_run(void *context, const atomr_call *call, atomr_failure *failure) {
    const int late = (call->scalars[2] & (RIG_OP_FAILS_LATE | RIG_OP_JUDGED)) != 0;
    const fake_work work = late ? rig_mix_late : rig_mix;
    if (late) *call->late = (atomr_late){rig_judge, rig_log, 0};
    if (call->scalars[2] & RIG_OP_FAILS) return rig_fail(call->scalars[0], failure);
    if (!context) work(NULL, call);
    else if (fake_enqueue(context, work, call)) return ATOMR_LIBRARY_ERROR; /* as a launch on a dead context does */
    return ATOMR_OK;
}

/* Scalars: the number in its lane, whether to fail. */
static inline int rig_run_sequence(void *context, const atomr_call *call, atomr_failure *failure) {
    (void)context, (void)failure;
    CHECK_EQ(call->scalars[0], rig_sequence[call->lane]);
    CHECK_EQ(call->ticket, call->scalars[0] + 1);
    rig_sequence[call->lane]++;
    return call->scalars[1] ? ATOMR_LIBRARY_ERROR : ATOMR_OK;
}

/* Make the worker, without letting it go. */
static inline void rig_make_worker(rig *r) {
    atomr_backend backend = {0};
    if (r->gpu) backend = fake_backend(r->gpu);
    r->k = atomr_worker_new(atomr_sender_p_fd(r->s), atomr_sender_p_bytes(r->s), r->gpu ? &backend : NULL, r->spin_ns);
    CHECK(r->k != NULL);
    r->k->longer.room = 1;
    atomr_worker_outlive(r->k, -1);
    if (r->naps_forever) r->k->nap_ns = r->k->probe_ns = RIG_FOREVER * INT64_C(1000000000);
    for (unsigned i = 0; i < r->n_segments; i++)
        atomr_worker_set_segment(r->k, r->segments[i].segment, r->segments[i].base, r->segments[i].nbytes);
    CHECK_EQ(atomr_worker_add_plan(r->k, RIG_NOOP, atomr_run_noop, NULL, 0, 0), 0);
    CHECK_EQ(atomr_worker_add_plan(r->k, RIG_SEQUENCE, rig_run_sequence, NULL, 0, 2), 0);
    for (unsigned n = 0; n <= ATOMR_MAX_OPERANDS; n++)
        CHECK_EQ(atomr_worker_add_plan(r->k, RIG_MIX + n, rig_run, r->gpu, n, RIG_SCALARS), 0);
}

static inline void rig_go(rig *r) {
    for (unsigned i = 0; i < r->n_lanes; i++) CHECK_EQ(atomr_worker_open_lane(r->k, i), 0);
    atomr_worker_go(r->k);
}

/* ThreadSanitizer knows memory by its address.  Both sides map both regions, so that it would see no order
 * between them: there, each side uses the mapping of the region's writer for as long as the lanes run. */
static inline void rig_share(rig *r) {
#ifdef __SANITIZE_THREAD__
    munmap(r->k->p, r->k->p_bytes);
    r->k->p = r->s->p;
    atomr_lock(r->s);
    munmap(r->s->region->w, r->s->region->nbytes);
    r->s->region->w = r->k->w;
    atomr_unlock(r->s);
#else
    (void)r;
#endif
}

static inline void rig_unshare(rig *r) {
#ifdef __SANITIZE_THREAD__
    if (r->k->p != r->s->p) return;
    r->k->p = mmap(NULL, r->k->p_bytes, PROT_READ, MAP_SHARED, atomr_sender_p_fd(r->s), 0);
    CHECK(r->k->p != MAP_FAILED);
    atomr_lock(r->s);
    if (r->s->region && r->s->region->w == r->k->w) {
        r->s->region->w = mmap(NULL, r->s->region->nbytes, PROT_READ, MAP_SHARED, atomr_worker_w_fd(r->k), 0);
        CHECK(r->s->region->w != MAP_FAILED);
    }
    atomr_unlock(r->s);
#else
    (void)r;
#endif
}

static inline void rig_start_worker(rig *r) {
    rig_make_worker(r);
    CHECK_EQ(atomr_sender_attach(r->s, atomr_worker_w_fd(r->k), atomr_w_bytes()), 0);
    rig_share(r);
    rig_go(r);
    atomr_sender_set_state(r->s, ATOMR_OPEN);
}

/* While no thread waits on the sender. */
static inline void rig_stop_worker(rig *r) {
    atomr_worker_stop(r->k);
    rig_unshare(r);
    atomr_worker_delete(r->k);
    r->k = NULL;
}

/* Add memory, shared with children. */
static inline void rig_segment(rig *r, int pool, uint64_t nbytes) {
    CHECK(r->n_segments < RIG_SEGMENTS);
    void *base = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(base != MAP_FAILED);
    uint32_t segment;
    CHECK_EQ(atomr_sender_reserve_segment(r->s, &segment), ATOMR_DONE);
    r->segments[r->n_segments].segment = segment;
    r->segments[r->n_segments].base = base;
    r->segments[r->n_segments++].nbytes = nbytes;
    if (r->k) atomr_worker_set_segment(r->k, segment, base, nbytes);
    CHECK_EQ(atomr_sender_add_segment(r->s, segment, pool, nbytes), ATOMR_DONE);
}

/* A sender with lanes and no worker. */
static inline void rig_open(rig *r, uint32_t cells, unsigned n_lanes, uint64_t seed) {
    memset(r, 0, sizeof *r);
    r->s = atomr_sender_new(cells, 1 << 16);
    CHECK(r->s != NULL);
    r->n_lanes = n_lanes;
    r->random = seed | 1;
    r->spin_ns = 5000;
    r->s->longer.room = 1; /* whatever this machine has */
    for (unsigned i = 0; i < n_lanes; i++) CHECK_EQ(atomr_sender_open_lane(r->s), (int)i);
    memset(rig_sequence, 0, sizeof rig_sequence);
}

static inline void rig_close(rig *r) {
    if (r->k) rig_stop_worker(r);
    if (r->gpu) fake_close(r->gpu);
    CHECK_EQ(r->s->longer.n, 0); /* nobody keeps the room to spin longer */
    atomr_sender_delete(r->s);
    for (unsigned i = 0; i < r->n_segments; i++) munmap(r->segments[i].base, r->segments[i].nbytes);
    memset(r, 0, sizeof *r);
}

static inline uint64_t rig_below(rig *r, uint64_t n) { return check_random(&r->random) % n; }

static inline rig_buffer rig_alloc(rig *r, int pool, uint64_t nbytes) {
    rig_buffer b = {.nbytes = nbytes};
    CHECK_EQ(atomr_alloc(r->s, pool, nbytes, &b.slot, &b.generation, &b.block), ATOMR_DONE);
    return b;
}

static inline uint64_t *rig_address(const rig *r, const rig_buffer *b) {
    for (unsigned i = 0; i < r->n_segments; i++)
        if (r->segments[i].segment == b->block.segment)
            return (uint64_t *)((char *)r->segments[i].base + b->block.offset);
    CHECK(!"a segment of the rig");
    return NULL;
}

static inline atomr_use rig_use(const rig_buffer *b, uint32_t access) {
    return (atomr_use){b->slot, b->generation, 0, access, 1};
}
static inline atomr_use rig_reads(const rig_buffer *b) { return rig_use(b, ATOMR_READ); }
static inline atomr_use rig_overwrites(const rig_buffer *b) { return rig_use(b, ATOMR_WRITE | ATOMR_OVERWRITE); }
static inline atomr_use rig_writes_part(const rig_buffer *b) {
    return (atomr_use){b->slot, b->generation, 0, ATOMR_WRITE, 0};
}

static inline void rig_wait(rig *r, unsigned lane, uint64_t ticket) {
    CHECK_EQ(atomr_wait(r->s, lane, ticket, RIG_FOREVER * INT64_C(1000000000), 2000), ATOMR_DONE);
}

/* Send, waiting for room as long as it takes.  The result, which is never FULL. */
static inline int rig_send(rig *r, unsigned lane, uint32_t plan, const atomr_use *uses, unsigned n_uses,
                           const uint64_t *scalars, unsigned n_scalars, atomr_reply *reply, uint64_t *ticket) {
    unsigned bad = 0;
    uint64_t sent = 0;
    for (;;) {
        const int result = atomr_send(r->s, lane, plan, uses, n_uses, scalars, n_scalars, 0, reply, &sent, &bad);
        if (ticket) *ticket = sent;
        if (result != ATOMR_FULL) return result;
        const uint64_t room = atomr_room_ticket(r->s, lane, ATOMR_MIN_CELLS);
        if (room) rig_wait(r, lane, room);
    }
}

/* Send the mixing operation `number`, whose first `n_reads` operands are read and whose others are written. */
static inline int rig_mix_send(rig *r, unsigned lane, uint64_t number, const atomr_use *uses, unsigned n_uses,
                               unsigned n_reads, unsigned flags, atomr_reply *reply, uint64_t *ticket) {
    uint64_t scalars[RIG_SCALARS] = {number, n_reads, flags, 0};
    CHECK(number < rig_log_room);
    for (unsigned i = n_reads; i < n_uses && i < 64; i++)
        scalars[3] |= (uint64_t)!(uses[i].access & ATOMR_OVERWRITE) << i;
    return rig_send(r, lane, RIG_MIX + n_uses, uses, n_uses, scalars, RIG_SCALARS, reply, ticket);
}

static inline void rig_drain(rig *r) {
    for (unsigned i = 0; i < r->n_lanes; i++) {
        atomr_lane_stats stats; /* which takes the lock: others may be sending */
        if (atomr_sender_lane_stats(r->s, i, &stats) == 0) rig_wait(r, i, stats.sent);
    }
}

/* Settle a reply, which is resolved: the code of its error, or ATOMR_OK.  Drops it. */
static inline int rig_outcome(rig *r, atomr_reply *reply) {
    CHECK(atomr_reply_settle(r->s, reply));
    const int code = reply->verdict ? (int)reply->verdict->error.code : ATOMR_OK;
    CHECK(code < ATOMR_CODES && (!reply->verdict || code != ATOMR_OK));
    atomr_reply_drop(r->s, reply);
    return code;
}

/* A worker that is only its memory, which the test writes. */
typedef struct {
    int fd;
    void *w;
} rig_paper;

static inline void rig_attach_paper(rig *r, rig_paper *p) {
    p->fd = atomr_memfd("paper", atomr_w_bytes());
    CHECK(p->fd >= 0);
    p->w = mmap(NULL, atomr_w_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, 0);
    CHECK(p->w != MAP_FAILED);
    atomr_w_init(p->w);
    CHECK_EQ(atomr_memfd_seal(p->fd), 0);
    CHECK_EQ(atomr_sender_attach(r->s, p->fd, atomr_w_bytes()), 0);
    atomr_sender_set_state(r->s, ATOMR_OPEN);
}

static inline void rig_detach_paper(rig_paper *p) {
    munmap(p->w, atomr_w_bytes());
    close(p->fd);
}

/* A plan that holds up its lane, as a call of the driver may, until the test opens the gate. */
typedef struct {
    _Atomic int entered, open;
    int code; /* what the run returns */
} rig_gate;

static inline int rig_run_gate(void *context, const atomr_call *call, atomr_failure *failure) {
    rig_gate *g = context;
    (void)call, (void)failure;
    atomic_store(&g->entered, 1);
    while (!atomic_load(&g->open)) usleep(50);
    return g->code;
}

/* A hang is a failure, and says where. */
static inline void rig_watchdog(unsigned seconds) { alarm(seconds); }

#endif
