/* The life of a worker: its region, its tables, its threads. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/lane_private.h"

atomr_worker *atomr_worker_new(int p_fd, uint64_t p_bytes, const atomr_backend *backend, uint64_t spin_ns) {
    void *p = mmap(NULL, p_bytes, PROT_READ, MAP_SHARED, p_fd, 0);
    if (p == MAP_FAILED) return NULL;
    const atomr_pheader *h = p;
    if (p_bytes < sizeof *h || h->magic != ATOMR_MAGIC_P || h->abi != ATOMR_ABI || h->nbytes != p_bytes ||
        atomr_p_bytes(h->cells, h->slots) != p_bytes) {
        munmap(p, p_bytes);
        errno = EPROTO;
        return NULL;
    }
    atomr_worker *k = calloc(1, sizeof *k);
    if (!k) {
        munmap(p, p_bytes);
        return NULL;
    }
    uint64_t nbytes = atomr_w_bytes();
    k->w_fd = atomr_memfd("atomr-worker", nbytes);
    k->w = k->w_fd < 0 ? MAP_FAILED : mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, k->w_fd, 0);
    if (k->w == MAP_FAILED || atomr_memfd_seal(k->w_fd) != 0) {
        int saved = errno;
        if (k->w != MAP_FAILED) munmap(k->w, nbytes);
        if (k->w_fd >= 0) close(k->w_fd);
        munmap(p, p_bytes);
        free(k);
        errno = saved;
        return NULL;
    }
    atomr_w_init(k->w);
    k->p = p;
    k->p_bytes = p_bytes;
    k->cells = h->cells;
    k->spin_ns = spin_ns;
    k->nap_ns = 1000000000;
    k->probe_ns = 100000000;
    k->patience_ns = INT64_C(5000000000);
    k->fault_fd = -1;
    const int cores = atomr_processors();
    k->max_spinners = cores > 2 ? cores - 1 : 1;
    k->longer.room = cores / ATOMR_PROCESSORS_PER_SPINNER;
    if (backend) k->backend = *backend;
    atomr_poison_init(&k->poison, k->w);
    pthread_mutex_init(&k->control, NULL);
    pthread_mutex_init(&k->turns, NULL);
    for (unsigned i = 0; i < ATOMR_SUBSCRIBERS; i++) atomic_store(&k->eventfds[i], -1);
    return k;
}

int atomr_worker_w_fd(const atomr_worker *k) { return k->w_fd; }
void *atomr_worker_w(const atomr_worker *k) { return k->w; }

void atomr_worker_at_lane_end(atomr_worker *k, void (*run)(void)) { k->lane_ends = run; }

int atomr_worker_set_segment(atomr_worker *k, uint32_t index, void *base, uint64_t nbytes) {
    if (index >= ATOMR_MAX_SEGMENTS) return -1;
    atomic_store_explicit(&k->segments[index].nbytes, nbytes, memory_order_relaxed);
    atomic_store_explicit(&k->segments[index].base, base, memory_order_release);
    return 0;
}

void *atomr_worker_address(const atomr_worker *k, uint32_t index, uint64_t offset, uint64_t nbytes) {
    if (index >= ATOMR_MAX_SEGMENTS) return NULL;
    char *base = atomic_load_explicit(&k->segments[index].base, memory_order_acquire);
    uint64_t size = atomic_load_explicit(&k->segments[index].nbytes, memory_order_relaxed);
    if (!base || offset > size || nbytes > size - offset) return NULL;
    return base + offset;
}

int atomr_worker_set_meeting(atomr_worker *k, uint32_t number, atomr_page *page, unsigned rank) {
    if (number >= ATOMR_MEETINGS) return -1;
    if (page) k->meetings[number].rank = rank;
    atomic_store_explicit(&k->meetings[number].page, page, memory_order_release);
    return 0;
}

const _Atomic int *atomr_worker_stopping(const atomr_worker *k) { return &k->stopping; }

static _Atomic(atomr_plan *) *plan_place(atomr_worker *k, uint32_t index, int make) {
    if (index >= ATOMR_PLAN_CHUNK * ATOMR_PLAN_CHUNKS) return NULL;
    const uint32_t at = index / ATOMR_PLAN_CHUNK;
    _Atomic(atomr_plan *) *chunk = atomic_load_explicit(&k->chunks[at], memory_order_acquire);
    if (!chunk && make) {
        pthread_mutex_lock(&k->control);
        chunk = atomic_load(&k->chunks[at]);
        if (!chunk) {
            chunk = calloc(ATOMR_PLAN_CHUNK, sizeof *chunk);
            atomic_store_explicit(&k->chunks[at], chunk, memory_order_release);
        }
        pthread_mutex_unlock(&k->control);
    }
    return chunk ? &chunk[index % ATOMR_PLAN_CHUNK] : NULL;
}

const atomr_plan *atomr_plan_at(atomr_worker *k, uint32_t index) {
    _Atomic(atomr_plan *) *place = plan_place(k, index, 0);
    return place ? atomic_load_explicit(place, memory_order_acquire) : NULL;
}

int atomr_worker_add_plan(atomr_worker *k, uint32_t index, atomr_run run, void *context, unsigned n_operands,
                          unsigned n_scalars) {
    _Atomic(atomr_plan *) *place = plan_place(k, index, 1);
    atomr_plan *made = place ? malloc(sizeof *made) : NULL;
    if (!made) return -1;
    *made = (atomr_plan){run, context, n_operands, n_scalars};
    atomr_plan *expected = NULL;
    if (!atomic_compare_exchange_strong(place, &expected, made)) {
        free(made);
        return -1;
    }
    return 0;
}

void *atomr_worker_remove_plan(atomr_worker *k, uint32_t index) {
    _Atomic(atomr_plan *) *place = plan_place(k, index, 0);
    atomr_plan *gone = place ? atomic_exchange(place, NULL) : NULL;
    void *context = gone ? gone->context : NULL;
    atomr_drop_suspect(k, index);
    free(gone);
    return context;
}

/* A new descriptor takes the number of the old one, so that a lane which is about to write never finds
 * its number closed, or opened as something else. */
int atomr_worker_subscribe(atomr_worker *k, unsigned index, int fd) {
    if (index >= ATOMR_SUBSCRIBERS || fd < 0) return -1;
    int result = 0;
    pthread_mutex_lock(&k->control);
    const int old = atomic_load(&k->eventfds[index]);
    if (old < 0 || old == fd) {
        atomic_store(&k->eventfds[index], fd);
    } else if (dup3(fd, old, O_CLOEXEC) < 0) {
        result = -1;
    } else {
        close(fd);
    }
    pthread_mutex_unlock(&k->control);
    /* Whoever wanted a ticket before could not be signalled. */
    if (result == 0) atomr_ring_eventfd(k, index);
    return result;
}

void atomr_ring_eventfd(atomr_worker *k, unsigned index) {
    int fd = atomic_load_explicit(&k->eventfds[index], memory_order_acquire);
    uint64_t one = 1;
    if (fd >= 0 && write(fd, &one, sizeof one) < 0) return; /* full: the reader is already awake */
}

void atomr_open_gate(atomr_worker *k) {
    atomic_fetch_add(&k->gate, 1);
    atomr_futex_wake(&k->gate);
}

static _Atomic int lane_threads;

int atomr_lane_threads(void) {
    return atomic_load(&lane_threads);
}

int atomr_worker_open_lane(atomr_worker *k, unsigned index) {
    if (index >= ATOMR_LANES || atomr_lane_at(k, index) || atomic_load(&k->stopping)) {
        errno = EINVAL;
        return -1;
    }
    atomr_lane *l = aligned_alloc(_Alignof(atomr_lane), sizeof *l);
    if (!l) return -1;
    memset(l, 0, sizeof *l);
    l->worker = k;
    l->index = index;
    l->p = atomr_plane_at(k->p, index);
    l->w = atomr_wlane_at(k->w, index);
    l->head = l->p->base_cell;
    l->ticket = l->seen = l->signalled = l->detoured = l->p->base_ticket;
    pthread_mutex_init(&l->suspended_lock, NULL);
    atomic_store(&l->processed, l->head);
    atomic_store(&l->launched, l->ticket);
    atomic_store(&l->inflight, l->ticket);
    atomic_store(&l->w->claimed, l->ticket);
    atomic_store(&l->w->completed, l->ticket);
    atomic_store(&l->w->arrived, l->ticket);
    atomic_store(&l->w->errors, atomic_load(&l->p->errors_taken));
    atomr_populate(atomr_ring_at(k->p, index), (uint64_t)k->cells * sizeof(atomr_cell), 0);
    int failed = 0;
    if (k->backend.asynchronous && !k->has_completer) {
        failed = pthread_create(&k->completer, NULL, atomr_completer_main, k);
        k->has_completer = failed == 0;
    }
    if (!failed) failed = pthread_create(&l->thread, NULL, atomr_lane_main, l);
    if (!failed) atomic_fetch_add(&lane_threads, 1);
    if (failed) {
        pthread_mutex_destroy(&l->suspended_lock);
        free(l);
        errno = failed;
        return -1;
    }
    atomic_store_explicit(&k->lanes[index], l, memory_order_release);
    return 0;
}

static void use_workspace(atomr_lane *l, void *base, uint64_t nbytes) {
    atomic_store_explicit(&l->workspace, nbytes ? base : NULL, memory_order_relaxed);
    atomic_store_explicit(&l->workspace_bytes, nbytes, memory_order_relaxed);
}

int atomr_worker_set_workspace(atomr_worker *k, unsigned index, void *base, uint64_t nbytes) {
    atomr_lane *l = atomr_lane_at(k, index);
    if (!l || atomic_load(&k->going)) {
        errno = l ? EBUSY : EINVAL;
        return -1;
    }
    use_workspace(l, base, nbytes);
    return 0;
}

uint64_t atomr_worker_workspace(const atomr_worker *k, unsigned index) {
    const atomr_lane *l = atomr_lane_at((atomr_worker *)k, index);
    return l ? atomic_load_explicit(&l->workspace_bytes, memory_order_relaxed) : 0;
}

int atomr_run_workspace(void *context, const atomr_call *call, atomr_failure *failure) {
    (void)failure;
    use_workspace(atomr_lane_at(context, call->lane), call->n_operands ? call->pointers[0] : NULL, call->scalars[0]);
    return ATOMR_OK;
}

void atomr_worker_go(atomr_worker *k) {
    atomic_store(&k->going, 1);
    atomr_open_gate(k);
}

/* Wakes a lane until it has seen that it shall end: its doorbell is the parent's, and cannot be changed. */
static void end_lane(atomr_worker *k, atomr_lane *l) {
    while (atomic_load(&l->w->state) != 2) {
        atomr_futex_wake(&k->gate);
        atomr_futex_wake(&l->p->doorbell);
        for (unsigned i = 0; i < ATOMR_LANES; i++)
            if (atomr_lane_at(k, i)) atomr_futex_wake(&atomr_lane_at(k, i)->launch_seq);
        usleep(200);
    }
    pthread_join(l->thread, NULL);
    atomic_fetch_sub(&lane_threads, 1);
}

void atomr_worker_stop(atomr_worker *k) {
    if (atomic_exchange(&k->joining, 1)) return;
    atomic_store(&k->stopping, 1);
    atomr_open_gate(k);
    for (unsigned i = 0; i < ATOMR_LANES; i++)
        if (atomr_lane_at(k, i)) end_lane(k, atomr_lane_at(k, i));
    atomic_store(&k->lanes_ended, 1);
    atomr_open_gate(k);
    if (k->has_completer) pthread_join(k->completer, NULL);
}

void atomr_worker_delete(atomr_worker *k) {
    if (!k) return;
    atomr_worker_stop(k);
    for (unsigned i = 0; i < ATOMR_LANES; i++) {
        if (atomr_lane_at(k, i)) atomr_forget_suspended(atomr_lane_at(k, i));
        free(atomr_lane_at(k, i));
    }
    for (unsigned i = 0; i < ATOMR_PLAN_CHUNKS; i++) {
        _Atomic(atomr_plan *) *chunk = atomic_load(&k->chunks[i]);
        for (unsigned j = 0; chunk && j < ATOMR_PLAN_CHUNK; j++) free(atomic_load(&chunk[j]));
        free(chunk);
    }
    for (unsigned i = 0; i < ATOMR_SUBSCRIBERS; i++) {
        int fd = atomic_load(&k->eventfds[i]);
        if (fd >= 0) close(fd);
    }
    atomr_poison_release(&k->poison);
    munmap(k->w, atomr_w_bytes());
    munmap(k->p, k->p_bytes);
    close(k->w_fd);
    pthread_mutex_destroy(&k->control);
    pthread_mutex_destroy(&k->turns);
    free(k->suspects);
    free(k);
}

void atomr_worker_abandon(atomr_worker *k, int own) {
    atomic_store(&lane_threads, 0);
    for (unsigned i = 0; i < ATOMR_SUBSCRIBERS; i++) {
        const int fd = atomic_exchange(&k->eventfds[i], -1);
        if (fd >= 0) close(fd);
    }
    if (k->p) munmap(k->p, k->p_bytes);
    if (own && k->w) munmap(k->w, atomr_w_bytes());
    if (k->w_fd >= 0) close(k->w_fd);
    k->p = k->w = NULL;
    k->w_fd = -1;
}

static void *watch_main(void *argument) {
    struct pollfd p = {(int)(intptr_t)argument, POLLIN, 0};
    while (poll(&p, 1, -1) < 0 && errno == EINTR) continue;
    _exit(0);
}

int atomr_watch_parent(int pidfd) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, watch_main, (void *)(intptr_t)pidfd) != 0) return -1;
    return pthread_detach(thread);
}
