#define _GNU_SOURCE
#include "runtime/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static uint64_t page_up(uint64_t n) { return (n + 4095u) & ~(uint64_t)4095u; }

static uint64_t p_lanes_at(void) { return page_up(sizeof(atomr_pheader)); }
static uint64_t p_rings_at(void) { return p_lanes_at() + page_up(sizeof(atomr_plane) * ATOMR_LANES); }
static uint64_t p_slots_at(uint32_t cells) {
    return p_rings_at() + page_up((uint64_t)cells * sizeof(atomr_cell) * ATOMR_LANES);
}

uint64_t atomr_p_bytes(uint32_t cells, uint32_t slots) {
    return p_slots_at(cells) + page_up((uint64_t)slots * sizeof(uint32_t));
}

uint64_t atomr_w_bytes(void) {
    return ATOMR_W_LANES_AT + page_up(sizeof(atomr_wlane) * ATOMR_LANES);
}

void atomr_p_init(void *p, uint32_t cells, uint32_t slots) {
    atomr_pheader *h = p;
    h->magic = ATOMR_MAGIC_P;
    h->abi = ATOMR_ABI;
    h->nbytes = atomr_p_bytes(cells, slots);
    h->cells = cells;
    h->slots = slots;
    h->lanes_at = p_lanes_at();
    h->rings_at = p_rings_at();
    h->slots_at = p_slots_at(cells);
    atomic_store_explicit(&h->epoch, 1, memory_order_relaxed);
    for (unsigned i = 0; i < ATOMR_LANES; i++) {
        atomr_plane *lane = atomr_plane_at(p, i);
        atomic_store_explicit(&lane->wake_at, UINT64_MAX, memory_order_relaxed);
        for (unsigned k = 0; k < ATOMR_SUBSCRIBERS; k++)
            atomic_store_explicit(&lane->sub_wanted[k], UINT64_MAX, memory_order_relaxed);
    }
}

void atomr_w_init(void *w) {
    atomr_wheader *h = w;
    h->magic = ATOMR_MAGIC_W;
    h->abi = ATOMR_ABI;
    h->nbytes = atomr_w_bytes();
    h->lanes_at = ATOMR_W_LANES_AT;
    h->pid = (uint32_t)getpid();
}

int atomr_memfd(const char *name, uint64_t nbytes) {
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return -1;
    if (ftruncate(fd, (off_t)nbytes) != 0) {
        int saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

int atomr_memfd_seal(int fd) {
    return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
}

int atomr_memfd_is_safe(int fd, uint64_t nbytes) {
    const off_t size = lseek(fd, 0, SEEK_END);
    const int seals = fcntl(fd, F_GET_SEALS);
    return size >= 0 && (uint64_t)size >= nbytes && seals >= 0 && (seals & F_SEAL_SHRINK);
}

int atomr_memfd_fix(int fd) { return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL); }

int atomr_memfd_is_fixed(int fd, uint64_t nbytes) {
    return atomr_memfd_is_safe(fd, nbytes) && (fcntl(fd, F_GET_SEALS) & F_SEAL_SEAL);
}

void atomr_populate(void *start, uint64_t nbytes, int writable) {
#ifndef MADV_POPULATE_READ
    enum { MADV_POPULATE_READ = 22, MADV_POPULATE_WRITE = 23 };
#endif
    (void)!madvise(start, nbytes, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

int atomr_futex_wait(const _Atomic uint32_t *word, uint32_t expected, int64_t timeout_ns) {
    struct timespec ts = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    long r = syscall(SYS_futex, word, FUTEX_WAIT, expected, timeout_ns < 0 ? NULL : &ts, NULL, 0);
    return r == 0 ? 0 : errno;
}

void atomr_futex_wake(const _Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

int atomr_processors(void) {
    cpu_set_t ours;
    return sched_getaffinity(0, sizeof ours, &ours) == 0 ? CPU_COUNT(&ours) : 1;
}

uint64_t atomr_now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
