/* The life of a sender: its memory, the regions of its workers, its lanes, and what is known of them. */
#define _GNU_SOURCE
#include "runtime/sender_private.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static int resolved_stamp(void *ctx, atomr_stamp stamp) { return atomr_stamp_resolved(ctx, stamp); }

atomr_sender *atomr_sender_new(uint32_t cells, uint32_t slots) {
    if (cells < ATOMR_MIN_CELLS || (cells & (cells - 1))) {
        errno = EINVAL;
        return NULL;
    }
    atomr_sender *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP); /* held for nanoseconds: spin a little */
    pthread_mutex_init(&s->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    s->longer.room = atomr_processors() / ATOMR_PROCESSORS_PER_SPINNER;
    s->cells = cells;
    s->n_slots = slots;
    s->fresh = 1; /* slot 0 is never used, so that a zeroed handle is stale */
    s->next_segment = 1;
    s->slice_ns = 50000000;
    s->p_bytes = atomr_p_bytes(cells, slots);
    s->p_fd = atomr_memfd("atomr-sender", s->p_bytes);
    s->p = s->p_fd < 0 ? MAP_FAILED
                       : mmap(NULL, s->p_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->p_fd, 0);
    s->slots = calloc(slots, sizeof *s->slots);
    for (int i = 0; i < ATOMR_POOLS; i++) s->pools[i] = atomr_pool_new(i == ATOMR_STAGING, resolved_stamp, s);
    if (s->p == MAP_FAILED || !s->slots || !s->pools[0] || !s->pools[1] || !s->pools[2] ||
        atomr_memfd_seal(s->p_fd) != 0) {
        atomr_sender_delete(s);
        return NULL;
    }
    atomr_p_init(s->p, cells, slots);
    return s;
}

void atomr_unref_region(atomr_region *r) {
    if (--r->refs) return;
    munmap(r->w, r->nbytes);
    free(r);
}

void atomr_drop_region(atomr_sender *s) {
    atomr_region *r = s->region;
    s->region = NULL;
    if (r) {
        atomic_store(&r->dead, 1);
        for (unsigned i = 0; i < ATOMR_LANES; i++)
            if (s->lanes[i].n_waiters) atomr_futex_wake(&atomr_wlane_at(r->w, i)->wake_seq);
        atomr_unref_region(r);
    }
    atomic_fetch_add(&s->change, 1);
    atomr_futex_wake(&s->change);
}

void atomr_sender_delete(atomr_sender *s) {
    if (!s) return;
    atomr_drop_region(s);
    for (int i = 0; i < ATOMR_POOLS; i++) atomr_pool_delete(s->pools[i]);
    for (uint32_t i = 0; i < ATOMR_LANES; i++) {
        free(s->lanes[i].ends);
        free(s->lanes[i].waiters);
        for (uint32_t k = 0; k < s->lanes[i].n_failed; k++) atomr_verdict_unref(s->lanes[i].failed[k]);
        free(s->lanes[i].failed);
    }
    for (uint32_t i = 1; s->slots && i < s->fresh; i++) atomr_stamps_release(&s->slots[i].others);
    for (uint32_t i = 0; i < s->n_groups; i++) free(s->groups[i].pending);
    for (uint32_t i = s->first_orphan; i < s->n_orphans; i++) atomr_verdict_unref(s->orphans[i]);
    free(s->orphans);
    free(s->groups);
    free(s->slots);
    if (s->p && s->p != MAP_FAILED) munmap(s->p, s->p_bytes);
    if (s->p_fd >= 0) close(s->p_fd);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void atomr_sender_abandon(atomr_sender *s) {
    /* After fork only this thread exists, and the lock may be held by one that does not: leave it. */
    if (s->region) munmap(s->region->w, s->region->nbytes);
    munmap(s->p, s->p_bytes);
    close(s->p_fd);
    s->p_fd = -1;
}

int atomr_sender_p_fd(const atomr_sender *s) { return s->p_fd; }
uint64_t atomr_sender_p_bytes(const atomr_sender *s) { return s->p_bytes; }

uint32_t atomr_sender_epoch(atomr_sender *s) {
    return atomic_load_explicit(&((atomr_pheader *)s->p)->epoch, memory_order_relaxed);
}

int atomr_sender_state(atomr_sender *s) {
    atomr_lock(s);
    int state = s->state;
    atomr_unlock(s);
    return state;
}

void atomr_sender_set_state(atomr_sender *s, int state) {
    atomr_lock(s);
    s->state = state;
    atomic_fetch_add(&s->change, 1);
    atomr_unlock(s);
    atomr_futex_wake(&s->change);
}

int atomr_sender_attach(atomr_sender *s, int w_fd, uint64_t w_bytes) {
    if (w_bytes != atomr_w_bytes()) {
        errno = EPROTO;
        return -1;
    }
    if (!atomr_memfd_is_safe(w_fd, w_bytes)) {
        errno = EPROTO;
        return -1;
    }
    void *w = mmap(NULL, w_bytes, PROT_READ, MAP_SHARED, w_fd, 0);
    if (w == MAP_FAILED) return -1;
    const atomr_wheader *h = w;
    atomr_region *r = calloc(1, sizeof *r);
    if (!r || h->magic != ATOMR_MAGIC_W || h->abi != ATOMR_ABI || h->nbytes != w_bytes ||
        h->lanes_at != ATOMR_W_LANES_AT) {
        munmap(w, w_bytes);
        free(r);
        errno = EPROTO;
        return -1;
    }
    *r = (atomr_region){.w = w, .nbytes = w_bytes, .refs = 1};
    atomr_lock(s);
    if (s->region) atomr_drop_region(s);
    r->number = ++s->n_regions;
    s->region = r;
    for (unsigned i = 0; i < ATOMR_LANES; i++) atomr_update_wake(s, i);
    /* Sends that saw no worker rang nobody. */
    for (unsigned i = 0; i < s->n_lanes; i++) {
        atomr_plane *p = atomr_plane_at(s->p, i);
        atomic_fetch_add(&p->doorbell, 1);
        atomr_futex_wake(&p->doorbell);
    }
    atomic_fetch_add(&s->change, 1);
    atomr_unlock(s);
    atomr_futex_wake(&s->change);
    return 0;
}

int atomr_sender_open_lane(atomr_sender *s) {
    atomr_lock(s);
    int index = -1;
    if (s->n_lanes < ATOMR_LANES) {
        atomr_send_lane *l = &s->lanes[s->n_lanes];
        l->ends = calloc(2 * (size_t)s->cells, sizeof *l->ends);
        if (l->ends) {
            l->open = 1;
            index = (int)s->n_lanes++;
            atomr_populate(atomr_ring_at(s->p, (unsigned)index), (uint64_t)s->cells * sizeof(atomr_cell), 1);
        }
    }
    atomr_unlock(s);
    return index;
}

int atomr_sender_lane_stats(atomr_sender *s, unsigned lane, atomr_lane_stats *out) {
    if (lane >= ATOMR_LANES) return -1;
    atomr_lock(s);
    if (!s->lanes[lane].open) {
        atomr_unlock(s);
        return -1;
    }
    atomr_send_lane *l = &s->lanes[lane];
    *out = (atomr_lane_stats){.sent = l->ticket,
                              .claimed = l->floor,
                              .completed = atomr_completed(s, lane),
                              .cells_in_use = l->tail - atomr_released(s, lane)};
    if (s->region) {
        atomr_wlane *w = atomr_wlane_at(s->region->w, lane);
        const uint64_t claimed = atomic_load(&w->claimed); /* a worker may write anything */
        out->claimed = claimed < out->completed ? out->completed : claimed > out->sent ? out->sent : claimed;
        out->messages = atomic_load(&w->messages);
        out->failed = atomic_load(&w->failed);
        out->busy_ns = atomic_load(&w->busy_ns);
        out->parks = atomic_load(&w->parks);
        out->started_ns = atomic_load(&w->started_ns);
        out->parked = atomic_load(&w->parked);
    }
    atomr_unlock(s);
    return 0;
}

unsigned atomr_sender_acquitted(atomr_sender *s, uint32_t *out) {
    atomr_lock(s);
    unsigned n = 0;
    if (s->region) {
        atomr_wheader *h = s->region->w;
        n = atomic_load(&h->n_acquitted);
        if (n > ATOMR_ACQUITTED) n = ATOMR_ACQUITTED;
        for (unsigned i = 0; i < n; i++) out[i] = atomic_load_explicit(&h->acquitted[i], memory_order_relaxed);
    }
    atomr_unlock(s);
    return n;
}

uint64_t atomr_sender_control_busy(atomr_sender *s) {
    atomr_lock(s);
    uint64_t busy = s->region ? atomic_load(&((atomr_wheader *)s->region->w)->control_busy) : 0;
    atomr_unlock(s);
    return busy;
}
