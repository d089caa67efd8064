/* An NCCL without GPUs: ranks are processes, or threads, of one machine that meet in shared memory, by the rules of its
 * documentation.
 *
 * Calls enqueue work on the stream of a device and return ncclInProgress; the next question after them finds that they
 * have succeeded.  Those of a communicator that blocks return when they have.  A part that shares resources is aborted in
 * effect with the whole, but has to be aborted itself, too.  A kernel waits for those of the other ranks, without end: only ncclCommAbort ends it.  Breaches of the
 * rules end the process, with a word on standard error: a communicator, or communicators of one device, in two threads at
 * once; a call before the last one has succeeded; other operations on other ranks, or in another order; a group that
 * does not end in its thread; memory of a communicator that is used after its abort; arrays in windows on some ranks only,
 * or elsewhere in them (see nccl_windows.c).
 *
 *   FAKE_CUDA_NCCL_VERSION  what ncclGetVersion says (22809)
 *   FAKE_CUDA_NCCL_HOLD     while this file exists, kernels wait at their beginning
 *   FAKE_CUDA_NCCL_STUCK    while this file exists, ranks that connect do not come to an end; a call of rank 1 that makes
 *                           a communicator does not even return, if the file's first byte is b; if it is c, ranks
 *                           connect, and calls of collectives do not return
 *   FAKE_CUDA_NCCL_TRACE    a file that gets a line for each call: its name, and "window", "engine" or "plain"
 *   FAKE_CUDA_NCCL_ABORT_MS how long an abort takes (0); -1: it never returns
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_driver.h"
#include "fake_floats.h"
#include "fake_nccl.h"
#include "libraries/nccl/table.h"

enum { RANKS = 16, PIECE = 1 << 15, TASKS = 512 };
typedef enum { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND, RECEIVE } kind;

/* What a rank shows the others in a round of a collective. */
typedef struct {
    _Alignas(64) _Atomic uint64_t round; /* the last one that it has written */
    uint64_t signature[2];               /* of the collective, by parity */
    char area[2][PIECE];
} desk;

/* Bytes on their way from a rank to another, one piece at a time. */
typedef struct {
    _Alignas(64) _Atomic uint64_t written, taken;
    uint64_t total[1];
    int registered; /* whether it comes from a window */
    char piece[4096];
} channel;

typedef struct {
    _Atomic uint32_t joined, ready;
    fake_window_room windows;
    desk desks[RANKS];
    channel channels[1]; /* n * n */
} room;

struct ncclComm {
    int rank, n, device, blocking, engines;
    unsigned n_windows; /* that it has registered */
    room *room;
    size_t room_bytes;
    char path[96];
    _Atomic int running, inside, in_progress, gone;
    _Atomic int *aborted; /* of the whole family that shares resources */
    int shares, parts;    /* whether parts share its resources, and how many it has made */
    struct ncclComm *part, **made; /* which it is making, and where to */
    uint64_t round; /* of this rank: its stream's */
};

typedef struct {
    kind kind;
    const char *x;
    char *out;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer, scaled, by_address;
    uint64_t factor;       /* bits of an element */
    const void *factor_at; /* or where it is, in device memory */
    uint64_t places[2];    /* of x and out, in windows */
} task;

typedef struct {
    struct ncclComm *comm;
    unsigned n;
    task tasks[];
} launch;

void fake_nccl_breach(const char *what) {
    fprintf(stderr, "fake NCCL: %s\n", what);
    fflush(stderr);
    abort();
}
static void breach(const char *what) { fake_nccl_breach(what); }

static void trace(const char *function, const char *how) {
    const char *const path = getenv("FAKE_CUDA_NCCL_TRACE");
    const int fd = path && path[0] ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0) return;
    dprintf(fd, "%s %s\n", function, how);
    close(fd);
}

static long setting(const char *name, long otherwise) {
    const char *const given = getenv(name);
    return given && given[0] ? strtol(given, NULL, 10) : otherwise;
}

/* ---- arithmetic */

static size_t width(ncclDataType_t t) {
    switch (t) {
    case ncclInt8: case ncclUint8: case ncclFloat8e4m3: case ncclFloat8e5m2: return 1;
    case ncclFloat16: case ncclBfloat16: return 2;
    case ncclInt32: case ncclUint32: case ncclFloat32: return 4;
    default: return 8;
    }
}

static double of_small(uint8_t b, int digits, int exponents) {
    const int e = b >> digits & ((1 << exponents) - 1), m = b & ((1 << digits) - 1), bias = (1 << (exponents - 1)) - 1;
    const double sign = b & 0x80 ? -1 : 1;
    if (digits == 2 && e == 31) return m ? NAN : sign * INFINITY;
    if (digits == 3 && e == 15 && m == 7) return NAN;
    return sign * (e ? ldexp(1 + ldexp(m, -digits), e - bias) : ldexp(m, 1 - bias - digits));
}

static uint8_t to_small(double x, int digits, int exponents) { /* by search: few values, and no second formula */
    const double most = digits == 2 ? 57344 : 448;
    const uint8_t sign = signbit(x) ? 0x80 : 0;
    if (x != x) return sign | 0x7f;
    const double a = fabs(x) > most ? most : fabs(x);
    unsigned best = 0;
    for (unsigned b = 0; b < 128; b++) {
        const double v = of_small((uint8_t)b, digits, exponents), w = of_small((uint8_t)best, digits, exponents);
        if (v != v || v > most) continue;
        if (fabs(v - a) < fabs(w - a) || (fabs(v - a) == fabs(w - a) && b % 2 == 0)) best = b;
    }
    return (uint8_t)(sign | best);
}

static double small_of(ncclDataType_t t, uint8_t b) { return t == ncclFloat8e5m2 ? of_small(b, 2, 5) : of_small(b, 3, 4); }
static uint8_t small_to(ncclDataType_t t, double x) { return t == ncclFloat8e5m2 ? to_small(x, 2, 5) : to_small(x, 3, 4); }

enum { OP_SCALE = 100 };
#define PICK(T, a, b, mul, add) (op == ncclSum || op == ncclAvg ? (T)(add) : op == ncclProd || op == OP_SCALE ? (T)(mul) \
                                 : op == ncclMax ? ((a) > (b) ? (a) : (b)) : ((a) < (b) ? (a) : (b)))
#define FLOATS(T, a, b) (op == ncclMax ? (T)fmax((double)(a), (double)(b)) : op == ncclMin ? (T)fmin((double)(a), (double)(b)) \
                         : op == ncclProd || op == OP_SCALE ? (T)((a) * (b)) : (T)((a) + (b)))

/* One step of a reduction, rounded to the type. */
static void combine(ncclDataType_t t, int op, const void *x, const void *y, void *z) {
    switch (t) {
#define INTEGER(name, T, U)                                                                                           \
    case name: {                                                                                                      \
        const T a = *(const T *)x, b = *(const T *)y;                                                                 \
        *(T *)z = PICK(T, a, b, (U)a * (U)b, (U)a + (U)b);                                                            \
        return;                                                                                                       \
    }
    INTEGER(ncclInt8, int8_t, uint32_t)
    INTEGER(ncclUint8, uint8_t, uint32_t)
    INTEGER(ncclInt32, int32_t, uint32_t)
    INTEGER(ncclUint32, uint32_t, uint32_t)
    INTEGER(ncclInt64, int64_t, uint64_t)
    INTEGER(ncclUint64, uint64_t, uint64_t)
    case ncclFloat64: *(double *)z = FLOATS(double, *(const double *)x, *(const double *)y); return;
    case ncclFloat32: *(float *)z = FLOATS(float, *(const float *)x, *(const float *)y); return;
    case ncclFloat16: *(_Float16 *)z = FLOATS(_Float16, *(const _Float16 *)x, *(const _Float16 *)y); return;
    case ncclBfloat16: {
        const float a = from_bits((uint32_t)*(const uint16_t *)x << 16), b = from_bits((uint32_t)*(const uint16_t *)y << 16);
        *(uint16_t *)z = float_bfloat(FLOATS(float, a, b));
        return;
    }
    default: {
        const _Float16 a = (_Float16)small_of(t, *(const uint8_t *)x), b = (_Float16)small_of(t, *(const uint8_t *)y);
        *(uint8_t *)z = small_to(t, (double)FLOATS(_Float16, a, b));
    }
    }
}

static int is_whole(ncclDataType_t t) { return t <= ncclUint64; }

static void divide(ncclDataType_t t, void *z, int n) {
    switch (t) {
    case ncclInt8: *(int8_t *)z = (int8_t)(*(int8_t *)z / n); return;
    case ncclUint8: *(uint8_t *)z = (uint8_t)(*(uint8_t *)z / n); return;
    case ncclInt32: *(int32_t *)z /= n; return;
    case ncclUint32: *(uint32_t *)z /= (uint32_t)n; return;
    case ncclInt64: *(int64_t *)z /= n; return;
    default: *(uint64_t *)z /= (uint64_t)n;
    }
}

static void inverse(ncclDataType_t t, int n, void *element) {
    switch (t) {
    case ncclFloat64: *(double *)element = 1.0 / n; return;
    case ncclFloat32: *(float *)element = (float)(1.0 / n); return;
    case ncclFloat16: *(_Float16 *)element = (_Float16)(1.0 / n); return;
    case ncclBfloat16: *(uint16_t *)element = float_bfloat((float)(1.0 / n)); return;
    default: *(uint8_t *)element = small_to(t, 1.0 / n);
    }
}

/* ---- kernels */

/* Write an area, and wait for all others; 0: aborted. */
static int meet(struct ncclComm *c, uint64_t signature) {
    room *const r = c->room;
    desk *const mine = &r->desks[c->rank];
    c->round++;
    mine->signature[c->round & 1] = signature;
    atomic_store(&mine->round, c->round);
    for (int i = 0; i < c->n; i++) {
        while (atomic_load(&r->desks[i].round) < c->round) {
            if (atomic_load(c->aborted)) return 0;
            sched_yield();
        }
        if (r->desks[i].signature[c->round & 1] != signature && atomic_load(&r->desks[i].round) == c->round)
            breach("ranks issue different collectives, or in different orders");
    }
    return !atomic_load(c->aborted);
}

static char *area(struct ncclComm *c, int rank) { return c->room->desks[rank].area[(c->round) & 1]; }
/* That of the next round. */
static char *next_area(struct ncclComm *c) { return c->room->desks[c->rank].area[(c->round + 1) & 1]; }

/* What all ranks agree on.  Ranks that have no part in x or out have nothing to say about its place. */
static uint64_t sign(const task *t) {
    const int rooted = t->kind == REDUCE || t->kind == BROADCAST;
    const uint64_t x = rooted ? t->kind == REDUCE && t->places[0] : t->places[0];
    const uint64_t out = rooted ? t->kind == BROADCAST && t->places[1] : t->places[1];
    const uint64_t words[] = {t->kind, t->count, (uint64_t)t->type, t->scaled ? 99 : (uint64_t)t->op, (uint64_t)t->peer, x, out};
    uint64_t hash = 14695981039346656037u;
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++) hash = (hash ^ words[i]) * 1099511628211u;
    return hash;
}

static int reduce(struct ncclComm *c, const task *t) {
    const size_t w = width(t->type), parts = t->kind == REDUCE_SCATTER ? (size_t)c->n : 1, most = PIECE / w / parts;
    const int averages = t->op == ncclAvg && !t->scaled, reads = t->kind != REDUCE || t->peer == c->rank;
    uint64_t factor = t->factor;
    if (t->by_address) memcpy(&factor, t->factor_at, w);
    if (averages && !is_whole(t->type)) inverse(t->type, c->n, &factor);
    const int scales = t->scaled || (averages && !is_whole(t->type)), op = t->scaled ? ncclSum : t->op;
    for (size_t first = 0; first < t->count; first += most) {
        const size_t n = t->count - first < most ? t->count - first : most;
        for (size_t p = 0; p < parts; p++) {
            char *const to = next_area(c) + p * most * w;
            const char *const from = t->x + (p * t->count + first) * w;
            if (!scales) memcpy(to, from, n * w);
            for (size_t i = 0; scales && i < n; i++) combine(t->type, OP_SCALE, from + i * w, &factor, to + i * w);
        }
        if (!meet(c, sign(t))) return 0;
        const size_t own = t->kind == REDUCE_SCATTER ? (size_t)c->rank * most * w : 0;
        for (size_t i = 0; reads && i < n; i++) {
            char *const z = t->out + (first + i) * w;
            uint64_t total = 0;
            memcpy(&total, area(c, 0) + own + i * w, w);
            for (int k = 1; k < c->n; k++) combine(t->type, op, &total, area(c, k) + own + i * w, &total);
            if (averages && is_whole(t->type)) divide(t->type, &total, c->n);
            memcpy(z, &total, w);
        }
    }
    return 1;
}

static int spread(struct ncclComm *c, const task *t) {
    const size_t nbytes = t->count * width(t->type);
    for (size_t first = 0; first < nbytes; first += PIECE) {
        const size_t n = nbytes - first < PIECE ? nbytes - first : PIECE;
        if (t->kind == ALL_GATHER || c->rank == t->peer) memcpy(next_area(c), t->x + first, n);
        if (!meet(c, sign(t))) return 0;
        if (t->kind == BROADCAST) memmove(t->out + first, area(c, t->peer), n);
        for (int i = 0; t->kind == ALL_GATHER && i < c->n; i++) memcpy(t->out + (size_t)i * nbytes + first, area(c, i), n);
    }
    return 1;
}

static int swap(struct ncclComm *c, const task *t) {
    const size_t nbytes = t->count * width(t->type), most = PIECE / (size_t)c->n;
    for (size_t first = 0; first < nbytes; first += most) {
        const size_t n = nbytes - first < most ? nbytes - first : most;
        for (size_t i = 0; i < (size_t)c->n; i++) memcpy(next_area(c) + i * most, t->x + i * nbytes + first, n);
        if (!meet(c, sign(t))) return 0;
        for (int i = 0; i < c->n; i++)
            memcpy(t->out + (size_t)i * nbytes + first, area(c, i) + (size_t)c->rank * most, n);
    }
    return 1;
}

static channel *channel_of(struct ncclComm *c, int from, int to) { return &c->room->channels[from * c->n + to]; }

/* Go on with a send or a receive; 1: it is done. */
static int advance(struct ncclComm *c, const task *t, size_t *done) {
    const int sends = t->kind == SEND;
    channel *const k = sends ? channel_of(c, c->rank, t->peer) : channel_of(c, t->peer, c->rank);
    const size_t nbytes = t->count * width(t->type);
    const size_t n = nbytes - *done < sizeof k->piece ? nbytes - *done : sizeof k->piece;
    const uint64_t written = atomic_load(&k->written), taken = atomic_load(&k->taken);
    if ((written == taken) != sends) return 0;
    if (sends) {
        if (*done == 0) k->total[0] = nbytes;
        k->registered = t->places[0] != 0;
        memcpy(k->piece, t->x + *done, n);
        atomic_store(&k->written, written + 1);
    } else {
        if (*done == 0 && k->total[0] != nbytes) breach("a send and its receive differ in size");
        if (k->registered != (t->places[1] != 0)) breach("a send and its receive: one of them is in a window");
        memcpy(t->out + *done, k->piece, n);
        atomic_store(&k->taken, taken + 1);
    }
    *done += n;
    return *done == nbytes;
}

static int exchange(struct ncclComm *c, const task *tasks, unsigned n) {
    size_t done[TASKS] = {0};
    unsigned char over[TASKS] = {0};
    unsigned left = 0;
    for (unsigned i = 0; i < n; i++) left += tasks[i].kind >= SEND;
    while (left) {
        if (atomic_load(c->aborted)) return 0;
        for (unsigned i = 0; i < n; i++) {
            if (tasks[i].kind < SEND || over[i]) continue;
            int first = 1; /* those between the same two ranks are in order */
            for (unsigned j = 0; j < i && first; j++)
                first = !(tasks[j].kind == tasks[i].kind && tasks[j].peer == tasks[i].peer && !over[j]);
            if (!first || !advance(c, &tasks[i], &done[i])) continue;
            over[i] = 1;
            left--;
        }
        sched_yield();
    }
    return 1;
}

static void run(void *argument) {
    launch *const l = *(launch **)argument;
    struct ncclComm *const c = l->comm;
    const char *const hold = getenv("FAKE_CUDA_NCCL_HOLD");
    while (hold && hold[0] && !atomic_load(c->aborted) && access(hold, F_OK) == 0) usleep(200);
    int goes = !atomic_load(c->aborted);
    for (unsigned i = 0; i < l->n && goes; i++) {
        if (l->tasks[i].kind >= SEND) continue;
        goes = l->tasks[i].kind == BROADCAST || l->tasks[i].kind == ALL_GATHER ? spread(c, &l->tasks[i])
               : l->tasks[i].kind == ALL_TO_ALL                                ? swap(c, &l->tasks[i])
                                                                               : reduce(c, &l->tasks[i]);
    }
    if (goes) exchange(c, l->tasks, l->n);
    atomic_fetch_sub(&c->running, 1);
    free(l);
}

/* ---- calls */

static _Atomic int issuing[MAX_DEVICES]; /* threads in calls for a device */
static __thread unsigned depth, n_grouped;
static __thread struct ncclComm *grouped_for;
static __thread CUstream grouped_on;
static __thread task grouped[TASKS];

static void enter(struct ncclComm *c) {
    if (atomic_load(&c->gone)) breach("a communicator is used after its abort");
    if (atomic_fetch_add(&c->inside, 1)) breach("a communicator is used by two threads at once");
}

static void leave(struct ncclComm *c) { atomic_fetch_sub(&c->inside, 1); }

/* The first byte of the file that holds ranks up; 0: there is none. */
static int is_stuck(void) {
    const char *const path = getenv("FAKE_CUDA_NCCL_STUCK");
    char byte = 'a';
    const int fd = path && path[0] ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return 0;
    if (read(fd, &byte, 1) != 1) byte = 'a';
    close(fd);
    return byte;
}

static ncclResult_t enqueue(struct ncclComm *c, CUstream stream, const task *tasks, unsigned n) {
    while (c->blocking && is_stuck() == 'c') {
        if (atomic_load(c->aborted)) return ncclInternalError;
        usleep(200);
    }
    launch *const l = malloc(sizeof *l + n * sizeof *tasks);
    if (!l) return ncclSystemError;
    l->comm = c;
    l->n = n;
    memcpy(l->tasks, tasks, n * sizeof *tasks);
    atomic_fetch_add(&c->running, 1);
    if (fake_enqueue(stream, run, &l, sizeof l, 0) != CUDA_SUCCESS) {
        atomic_fetch_sub(&c->running, 1);
        free(l);
        return ncclUnhandledCudaError;
    }
    if (c->blocking) return ncclSuccess;
    atomic_store(&c->in_progress, 1);
    return ncclInProgress;
}

typedef struct {
    int used, by_address;
    uint64_t element;
    const void *at;
    ncclDataType_t type;
    struct ncclComm *comm;
} user_op;
static user_op user_ops[256];
static pthread_mutex_t ops_lock = PTHREAD_MUTEX_INITIALIZER;
enum { FIRST_USER_OP = 8 };

static ncclResult_t issue(struct ncclComm *c, CUstream stream, task t, const char *function) {
    if (fake_refusal(function)) return ncclInternalError;
    if (t.type > ncclBfloat16 && setting("FAKE_CUDA_NCCL_VERSION", 22809) < 22400) return ncclInvalidArgument;
    if (t.peer < 0 || t.peer >= c->n) return ncclInvalidArgument;
    t.places[0] = fake_window_place(c, t.x);
    t.places[1] = fake_window_place(c, t.out);
    const int windows = t.places[0] && t.places[1], engine = c->engines && (t.kind == ALL_GATHER || t.kind == ALL_TO_ALL);
    trace(function, !windows ? "plain" : engine ? "engine" : "window");
    if (t.op >= FIRST_USER_OP) {
        pthread_mutex_lock(&ops_lock);
        const user_op op = user_ops[t.op - FIRST_USER_OP];
        pthread_mutex_unlock(&ops_lock);
        if (!op.used || op.comm != c || op.type != t.type) return ncclInvalidArgument;
        t.scaled = 1;
        t.by_address = op.by_address;
        t.factor = op.element;
        t.factor_at = op.at;
    }
    enter(c);
    if (atomic_load(&c->in_progress)) breach("a call while the last one is in progress");
    ncclResult_t status = ncclSuccess;
    if (!depth) {
        if (t.kind >= SEND && t.peer == c->rank) breach("a send to oneself outside of a group");
        if (atomic_fetch_add(&issuing[c->device], 1)) breach("two threads call for one device");
        status = enqueue(c, stream, &t, 1);
        atomic_fetch_sub(&issuing[c->device], 1);
    } else if (n_grouped == TASKS || (grouped_for && (grouped_for != c || grouped_on != stream))) {
        status = ncclInvalidUsage; /* of more communicators or streams: not needed here */
    } else {
        grouped_for = c;
        grouped_on = stream;
        grouped[n_grouped++] = t;
    }
    leave(c);
    return status;
}

ncclResult_t ncclGetVersion(int *version) {
    *version = (int)setting("FAKE_CUDA_NCCL_VERSION", 22809);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t r) { return r == ncclSuccess ? "no error" : "a fake error"; }
const char *ncclGetLastError(ncclComm_t c) {
    (void)c;
    return "";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    static _Atomic unsigned made;
    if (fake_refusal(__func__)) return ncclSystemError;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/dev/shm/fake-nccl-%d-%d-%u", (int)getuid(), (int)getpid(),
             atomic_fetch_add(&made, 1));
    return ncclSuccess;
}

static size_t room_bytes(int n) { return sizeof(room) + (size_t)n * (size_t)n * sizeof(channel); }

/* Take a place in a room, which the last rank that comes to it opens for all. */
static ncclResult_t join(struct ncclComm *c) {
    const int fd = open(c->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    c->room_bytes = room_bytes(c->n);
    if (fd < 0 || ftruncate(fd, (off_t)c->room_bytes) != 0) {
        if (fd >= 0) close(fd);
        return ncclSystemError;
    }
    c->room = mmap(NULL, c->room_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (c->room == MAP_FAILED) return ncclSystemError;
    if (atomic_fetch_add(&c->room->joined, 1) + 1 == (unsigned)c->n) {
        unlink(c->path);
        atomic_store(&c->room->ready, 1);
    }
    return ncclSuccess;
}

static int is_good(const atomr_nccl_config *config) {
    const int short_one = config->size == ATOMR_NCCL_CONFIG_BYTES;
    const int long_one = config->size == sizeof *config && config->version >= ATOMR_NCCL_POLICIES;
    return config->magic == (unsigned)ATOMR_NCCL_MAGIC && (short_one || long_one) && (unsigned)config->blocking <= 1 &&
           (short_one || config->CTAPolicy == NCCL_CTA_POLICY_ZERO);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank, atomr_nccl_config *config) {
    *comm = NULL;
    if (fake_refusal(__func__)) return ncclSystemError;
    if (!is_good(config) || rank < 0 || rank >= n || n > RANKS) return ncclInvalidArgument;
    CUcontext context;
    if (fake_enter(&context) != CUDA_SUCCESS) return ncclUnhandledCudaError;
    struct ncclComm *const c = calloc(1, sizeof *c);
    if (!c) return ncclSystemError;
    snprintf(c->path, sizeof c->path, "%.63s", id.internal);
    c->rank = rank;
    c->n = n;
    c->device = context->device;
    c->blocking = config->blocking;
    c->engines = config->size == sizeof *config;
    c->shares = config->splitShare == 1;
    c->aborted = calloc(1, sizeof *c->aborted);
    if (!c->aborted || join(c) != ncclSuccess) {
        free(c->aborted);
        free(c);
        return ncclSystemError;
    }
    atomic_store(&c->in_progress, 1);
    *comm = c;
    while (rank == 1 && is_stuck() == 'b') usleep(1000);
    if (!c->blocking) return ncclInProgress;
    while (!atomic_load(&c->room->ready)) usleep(50);
    atomic_store(&c->in_progress, 0);
    return ncclSuccess;
}

/* Of all ranks in their order, and by a whole that does not block: no other part is needed here. */
ncclResult_t ncclCommSplit(ncclComm_t whole, int color, int key, ncclComm_t *part, atomr_nccl_config *config) {
    *part = NULL;
    if (fake_refusal(__func__)) return ncclSystemError;
    enter(whole);
    struct ncclComm *const c = calloc(1, sizeof *c);
    ncclResult_t status = !c ? ncclSystemError
                          : color || key != whole->rank || whole->blocking || !is_good(config) ||
                                  atomic_load(&whole->in_progress) ? ncclInvalidArgument : ncclSuccess;
    if (status == ncclSuccess) {
        snprintf(c->path, sizeof c->path, "%.63s-%d", whole->path, ++whole->parts);
        c->rank = whole->rank;
        c->n = whole->n;
        c->device = whole->device;
        c->blocking = config->blocking;
        c->engines = config->size == sizeof *config;
        c->aborted = whole->shares ? whole->aborted : calloc(1, sizeof *c->aborted);
        status = join(c);
    }
    if (status == ncclSuccess) {
        whole->part = c;
        whole->made = part;
        atomic_store(&whole->in_progress, 1);
    } else {
        free(c);
    }
    leave(whole);
    return status; /* success, though it is not done: as 2.28.9 */
}

/* Whether what a communicator is asked for is done; a part that is made is given out then. */
static int is_done(struct ncclComm *c) {
    const int stuck = is_stuck();
    if (c->n_windows && !fake_window_is_there(&c->room->windows, c->n_windows - 1, c->n)) return 0;
    if ((stuck && stuck != 'c') || !atomic_load(&(c->part ? c->part : c)->room->ready)) return 0;
    if (c->part) *c->made = c->part;
    c->part = NULL;
    return 1;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *status) {
    if (fake_refusal(__func__)) {
        *status = ncclRemoteError;
        return ncclSuccess;
    }
    enter(c);
    *status = ncclSuccess;
    if (atomic_load(&c->in_progress)) {
        if (!is_done(c)) *status = ncclInProgress;
        else atomic_store(&c->in_progress, 0);
    }
    leave(c);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c) {
    const long takes = setting("FAKE_CUDA_NCCL_ABORT_MS", 0);
    if (atomic_fetch_add(&c->inside, 1)) breach("an abort while another thread uses the communicator");
    if (takes < 0)
        for (;;) pause();
    atomic_store(c->aborted, 1);
    if (c->part) *c->made = c->part;
    atomic_store(&c->gone, 1);
    fake_windows_end(c);
    usleep((unsigned)takes * 1000);
    while (atomic_load(&c->running)) usleep(50); /* its kernels end, and then what was behind them runs */
    if (!atomic_load(&c->room->ready)) unlink(c->path);
    munmap(c->room, c->room_bytes);
    return ncclSuccess; /* the struct stays, so that a use is found out */
}

ncclResult_t ncclCommWindowRegister(ncclComm_t c, void *base, size_t size, ncclWindow_t *window, int flags) {
    if (setting("FAKE_CUDA_NCCL_VERSION", 22809) < ATOMR_NCCL_WINDOWS) breach("a function that this version lacks");
    if (fake_refusal(__func__)) return ncclInternalError;
    if (depth) breach("a window is registered inside of a group");
    enter(c);
    if (atomic_load(&c->in_progress)) breach("a window is registered while a call is in progress");
    if (atomic_fetch_add(&issuing[c->device], 1)) breach("two threads call for one device");
    ncclResult_t status = fake_window_register(&c->room->windows, c, c->n_windows, base, size, flags, window);
    if (status == ncclSuccess) {
        c->n_windows++;
        status = c->blocking ? ncclSuccess : ncclInProgress;
        atomic_store(&c->in_progress, !c->blocking);
        while (c->blocking && !fake_window_is_there(&c->room->windows, c->n_windows - 1, c->n)) {
            if (atomic_load(c->aborted)) {
                status = ncclInternalError;
                break;
            }
            usleep(50);
        }
    }
    atomic_fetch_sub(&issuing[c->device], 1);
    leave(c);
    trace(__func__, "window");
    return status;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t c, ncclWindow_t window) {
    enter(c);
    const ncclResult_t status = fake_window_deregister(c, window);
    leave(c);
    trace(__func__, "window");
    return status;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type, ncclScalarResidence_t where,
                                      ncclComm_t c) {
    enter(c);
    if (atomic_load(&c->in_progress)) breach("an operation is made while a call is in progress");
    leave(c);
    pthread_mutex_lock(&ops_lock);
    int at = 0;
    while (at < 256 && user_ops[at].used) at++;
    if (at < 256) {
        user_ops[at] = (user_op){1, where == ncclScalarDevice, 0, scalar, type, c};
        if (where == ncclScalarHostImmediate) memcpy(&user_ops[at].element, scalar, width(type));
    }
    pthread_mutex_unlock(&ops_lock);
    *op = FIRST_USER_OP + at;
    return at < 256 ? ncclSuccess : ncclInternalError;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t c) {
    enter(c);
    leave(c);
    if (op < FIRST_USER_OP || op >= FIRST_USER_OP + 256) return ncclInvalidArgument;
    pthread_mutex_lock(&ops_lock);
    const int known = user_ops[op - FIRST_USER_OP].used && user_ops[op - FIRST_USER_OP].comm == c;
    if (known) user_ops[op - FIRST_USER_OP].used = 0;
    pthread_mutex_unlock(&ops_lock);
    return known ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclAllReduce(const void *x, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c,
                           cudaStream_t stream) {
    return issue(c, stream, (task){ALL_REDUCE, x, out, n, type, op, 0, 0, 0, 0, NULL, {0, 0}}, __func__);
}

ncclResult_t ncclReduce(const void *x, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t c,
                        cudaStream_t stream) {
    return issue(c, stream, (task){REDUCE, x, out, n, type, op, root, 0, 0, 0, NULL, {0, 0}}, __func__);
}

ncclResult_t ncclBroadcast(const void *x, void *out, size_t n, ncclDataType_t type, int root, ncclComm_t c,
                           cudaStream_t stream) {
    return issue(c, stream, (task){BROADCAST, x, out, n, type, 0, root, 0, 0, 0, NULL, {0, 0}}, __func__);
}

ncclResult_t ncclAllGather(const void *x, void *out, size_t n, ncclDataType_t type, ncclComm_t c, cudaStream_t stream) {
    return issue(c, stream, (task){ALL_GATHER, x, out, n, type, 0, 0, 0, 0, 0, NULL, {0, 0}}, __func__);
}

ncclResult_t ncclReduceScatter(const void *x, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c,
                               cudaStream_t stream) {
    return issue(c, stream, (task){REDUCE_SCATTER, x, out, n, type, op, 0, 0, 0, 0, NULL, {0, 0}}, __func__);
}

ncclResult_t ncclAlltoAll(const void *x, void *out, size_t n, ncclDataType_t type, ncclComm_t c, cudaStream_t stream) {
    if (setting("FAKE_CUDA_NCCL_VERSION", 22809) < ATOMR_NCCL_ENGINES) breach("a function that this version lacks");
    return issue(c, stream, (task){ALL_TO_ALL, x, out, n, type, 0, 0, 0, 0, 0, NULL, {0, 0}}, __func__);
}

ncclResult_t ncclSend(const void *x, size_t n, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream) {
    return issue(c, stream, (task){SEND, x, NULL, n, type, 0, peer, 0, 0, 0, NULL, {0, 0}}, __func__);
}

ncclResult_t ncclRecv(void *out, size_t n, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream) {
    return issue(c, stream, (task){RECEIVE, NULL, out, n, type, 0, peer, 0, 0, 0, NULL, {0, 0}}, __func__);
}

ncclResult_t ncclGroupStart() {
    depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    if (!depth) return ncclInvalidUsage;
    if (--depth || !n_grouped) return ncclSuccess;
    struct ncclComm *const c = grouped_for;
    enter(c);
    if (atomic_fetch_add(&issuing[c->device], 1)) breach("two threads call for one device");
    const ncclResult_t status = enqueue(c, grouped_on, grouped, n_grouped);
    atomic_fetch_sub(&issuing[c->device], 1);
    leave(c);
    n_grouped = 0;
    grouped_for = NULL;
    return status;
}
