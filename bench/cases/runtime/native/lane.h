/* The smallest honest lane: one producer, one consumer, a ring of 256-byte cells in a memfd, a completion
 * counter coming back, and a futex on either side for whoever has spun long enough.
 *
 * The consumer is a thread or a forked process (both map the same memfd).  Ring publication and the parked
 * flag are sequentially consistent stores and loads: that pair is what a sleeping consumer costs its sender.
 * There are no handles, no stamps and no checks here: this is the floor, not the library.
 */
#ifndef BENCH_LANE_H
#define BENCH_LANE_H

#include "common.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { CELL_BYTES = 256, LINE = 128, WARM_MS = 20, SPIN_FOREVER = -1, OP_NOOP = 1, OP_STOP = 2 };

struct cell {
    uint64_t ticket;
    uint32_t op;
    uint32_t length;
    unsigned char body[CELL_BYTES - 16];
};

struct lane {
    alignas(LINE) _Atomic uint64_t head;      /* producer: last ticket published */
    alignas(LINE) _Atomic uint32_t bell;      /* producer: futex word, bumped to wake the consumer */
    alignas(LINE) _Atomic uint32_t waiting;   /* producer: about to sleep on done_bell */
    alignas(LINE) _Atomic uint64_t completed; /* consumer: last ticket done */
    alignas(LINE) _Atomic uint32_t parked;    /* consumer: about to sleep on bell */
    alignas(LINE) _Atomic uint32_t done_bell; /* consumer: futex word, bumped to wake the producer */
    alignas(LINE) uint64_t cells;             /* a power of two; constant */
    long spin_us;                             /* how long either side spins before it sleeps */
    int pin;                                  /* consumer's CPU; 0: wherever the system puts it */
    uint64_t next;                            /* producer only: ticket of the next message */
    alignas(LINE) struct cell ring[];
};

struct consumer {
    pthread_t thread;
    pid_t pid;
    int is_process;
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#endif
}

static inline void futex_wait(_Atomic uint32_t *word, uint32_t expected)
{
    syscall(SYS_futex, word, FUTEX_WAIT, expected, NULL, NULL, 0);
}

static inline void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Spins until *value >= wanted; false when the budget is used up first.  The clock is read every 64 turns. */
static inline int spin_until(_Atomic uint64_t *value, uint64_t wanted, long spin_us)
{
    if (atomic_load_explicit(value, memory_order_acquire) >= wanted) {
        return 1;
    }
    if (spin_us == 0) {
        return 0;
    }
    int64_t limit = spin_us == SPIN_FOREVER ? INT64_MAX : now_ns() + spin_us * 1000;
    for (;;) {
        for (int i = 0; i < 64; i++) {
            if (atomic_load_explicit(value, memory_order_acquire) >= wanted) {
                return 1;
            }
            relax();
        }
        if (limit != INT64_MAX && now_ns() >= limit) {
            return 0;
        }
    }
}

static inline void lane_await(struct lane *lane, uint64_t ticket)
{
    while (!spin_until(&lane->completed, ticket, lane->spin_us)) {
        uint32_t bell = atomic_load(&lane->done_bell);
        atomic_store(&lane->waiting, 1);
        if (atomic_load(&lane->completed) < ticket) {
            futex_wait(&lane->done_bell, bell);
        }
        atomic_store(&lane->waiting, 0);
    }
}

/* Enqueues one record; waits only when the ring is full.  Returns its ticket. */
static inline uint64_t lane_send(struct lane *lane, uint32_t op)
{
    uint64_t ticket = ++lane->next;
    if (ticket > lane->cells) {
        lane_await(lane, ticket - lane->cells);
    }
    struct cell *cell = &lane->ring[ticket & (lane->cells - 1)];
    cell->ticket = ticket;
    cell->op = op;
    cell->length = 64;
    memset(cell->body, (int)ticket, 64);
    atomic_store(&lane->head, ticket);
    if (atomic_load(&lane->parked)) {
        atomic_fetch_add(&lane->bell, 1);
        futex_wake(&lane->bell);
    }
    return ticket;
}

/* Pins the calling thread: 0 is the sender, on the first CPU that it may use; the others share the remaining ones. */
static inline void pin_to(int index)
{
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        die("sched_getaffinity");
    }
    int cpus = CPU_COUNT(&allowed);
    int wanted = index == 0 || cpus == 1 ? 0 : 1 + (index - 1) % (cpus - 1);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && wanted-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            if (sched_setaffinity(0, sizeof one, &one) != 0) {
                die("sched_setaffinity");
            }
            return;
        }
    }
}

static inline void *lane_consume(void *argument)
{
    struct lane *lane = argument;
    if (lane->pin > 0) {
        pin_to(lane->pin);
    }
    unsigned char sink[64];
    for (uint64_t ticket = 1;; ticket++) {
        while (!spin_until(&lane->head, ticket, lane->spin_us)) {
            uint32_t bell = atomic_load(&lane->bell);
            atomic_store(&lane->parked, 1);
            if (atomic_load(&lane->head) < ticket) {
                futex_wait(&lane->bell, bell);
            }
            atomic_store(&lane->parked, 0);
        }
        struct cell *cell = &lane->ring[ticket & (lane->cells - 1)];
        uint32_t op = cell->op;
        memcpy(sink, cell->body, sizeof sink);
        __asm__ __volatile__("" : : "r"(sink) : "memory");
        atomic_store(&lane->completed, ticket);
        if (atomic_load(&lane->waiting)) {
            atomic_fetch_add(&lane->done_bell, 1);
            futex_wake(&lane->done_bell);
        }
        if (op == OP_STOP) {
            return NULL;
        }
    }
}

/* A lane of `cells` (rounded up to a power of two) in fresh shared memory. */
static inline struct lane *lane_create(long cells, long spin_us)
{
    uint64_t power = 2;
    while (power < (uint64_t)cells) {
        power *= 2;
    }
    size_t bytes = sizeof(struct lane) + power * sizeof(struct cell);
    int fd = memfd_create("bench-lane", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
        die("memfd");
    }
    struct lane *lane = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (lane == MAP_FAILED) {
        die("mmap");
    }
    close(fd);
    lane->cells = power;
    lane->spin_us = spin_us;
    return lane;
}

static inline struct consumer lane_start(struct lane *lane, int is_process)
{
    struct consumer consumer = {.is_process = is_process};
    if (!is_process) {
        if ((errno = pthread_create(&consumer.thread, NULL, lane_consume, lane)) != 0) {
            die("pthread_create");
        }
        return consumer;
    }
    pid_t parent = getpid();
    consumer.pid = fork();
    if (consumer.pid < 0) {
        die("fork");
    }
    if (consumer.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
        lane_consume(lane);
        _exit(0);
    }
    return consumer;
}

static inline void lane_stop(struct lane *lane, struct consumer consumer)
{
    lane_await(lane, lane_send(lane, OP_STOP));
    if (consumer.is_process) {
        waitpid(consumer.pid, NULL, 0);
    } else {
        pthread_join(consumer.thread, NULL);
    }
}

/* Messages for --warm-ms, so that the scheduler has both sides on CPUs of their own before anything is timed. */
static inline void lane_warm(struct lane *lane, long warm_ms)
{
    int64_t limit = now_ns() + warm_ms * 1000000;
    do {
        lane_await(lane, lane_send(lane, OP_NOOP));
    } while (now_ns() < limit);
}

/* --place threads|processes */
static inline int place_option(int argc, char **argv)
{
    const char *place = option(argc, argv, "--place", "threads");
    if (strcmp(place, "threads") != 0 && strcmp(place, "processes") != 0) {
        fprintf(stderr, "--place: expected threads or processes, got %s\n", place);
        exit(2);
    }
    return strcmp(place, "processes") == 0;
}

/* What pingpong and enqueue measure with: a lane as the options say, with a consumer, and warm. */
struct session {
    struct lane *lane;
    struct consumer consumer;
    long rest, count;
};

/* `cells`: of the ring; 0: room for all messages and those of the warm-up. */
static inline struct session session_start(int argc, char **argv, long cells)
{
    struct session session;
    int is_process = place_option(argc, argv);
    long spin_us = option_long(argc, argv, "--spin-us", SPIN_FOREVER);
    session.rest = option_long(argc, argv, "--rest-us", 0);
    session.count = option_positive(argc, argv, "--count", 10000);
    alarm(BENCH_LIMIT_SECONDS);
    session.lane = lane_create(cells ? cells : session.count + 128, spin_us);
    session.lane->pin = option_long(argc, argv, "--pin", 1) != 0;
    session.consumer = lane_start(session.lane, is_process);
    if (session.lane->pin) {
        pin_to(0);
    }
    lane_warm(session.lane, option_long(argc, argv, "--warm-ms", WARM_MS));
    return session;
}

/* Microseconds that a message takes: to be sent, or with `awaited` (a constant) to be completed. */
static inline __attribute__((always_inline)) double session_measure(struct session *session, int awaited)
{
    struct lane *lane = session->lane;
    long count = session->count;
    if (session->rest <= 0) {
        int64_t start = now_ns();
        for (long i = 0; i < count; i++) {
            uint64_t ticket = lane_send(lane, OP_NOOP);
            if (awaited) {
                lane_await(lane, ticket);
            }
        }
        return (double)(now_ns() - start) / 1e3 / (double)count;
    }
    int64_t *times = malloc((size_t)count * sizeof *times);
    if (times == NULL) {
        die("malloc");
    }
    for (long i = 0; i < count; i++) {
        rest_us(session->rest);
        int64_t start = now_ns();
        uint64_t ticket = lane_send(lane, OP_NOOP);
        if (awaited) {
            lane_await(lane, ticket);
        }
        times[i] = now_ns() - start;
    }
    double us = median_us(times, count);
    free(times);
    return us;
}

/* Ends the lane and prints the result. */
static inline void session_end(struct session *session, const char *name, double us)
{
    lane_stop(session->lane, session->consumer);
    print_result(name, us, session->count);
}

#endif
