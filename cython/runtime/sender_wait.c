/* Waiting for tickets: parked threads, and event loops that have the worker signal them. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "runtime/sender_private.h"

int atomr_resolved(atomr_sender *s, unsigned lane, uint64_t ticket) {
    atomr_lock(s);
    int yes = ticket <= atomr_completed(s, lane);
    atomr_unlock(s);
    return yes;
}

/* Let the worker see the lowest open ticket that anybody waits for.
 *
 * The worker stores a completion, then looks here.  A ticket that completes between those two must not
 * vanish from `wake_at` unseen, for its waiter may be about to sleep: so whoever is passed over as
 * resolved is told of in `rewake`, once, which makes the worker wake everybody.  Written first, since the
 * worker reads it last. */
void atomr_update_wake(atomr_sender *s, unsigned lane) {
    atomr_plane *p = atomr_plane_at(s->p, lane);
    atomr_send_lane *l = &s->lanes[lane];
    const uint64_t done = atomr_completed(s, lane);
    uint64_t lowest = UINT64_MAX;
    int passed_over = 0;
    for (uint32_t i = 0; i < l->n_waiters; i++) {
        atomr_waiter *waiter = &l->waiters[i];
        if (waiter->ticket > done) {
            if (waiter->ticket < lowest) lowest = waiter->ticket;
        } else if (!waiter->told) {
            waiter->told = passed_over = 1;
        }
    }
    for (unsigned k = 0; k < ATOMR_SUBSCRIBERS; k++) {
        const uint64_t wanted = atomic_load_explicit(&p->sub_wanted[k], memory_order_relaxed);
        if (wanted > done) {
            if (wanted < lowest) lowest = wanted;
        } else if (l->sub_told[k] != wanted) {
            l->sub_told[k] = wanted;
            passed_over = 1;
        }
    }
    if (passed_over) atomic_fetch_add(&p->rewake, 1);
    atomic_store(&p->wake_at, lowest);
}

static int add_waiter(atomr_sender *s, unsigned lane, uint64_t ticket) {
    atomr_send_lane *l = &s->lanes[lane];
    if (l->n_waiters == l->cap_waiters) {
        uint32_t cap = l->cap_waiters ? 2 * l->cap_waiters : 8;
        atomr_waiter *grown = realloc(l->waiters, cap * sizeof *grown);
        if (!grown) return 0;
        l->waiters = grown;
        l->cap_waiters = cap;
    }
    /* Who comes too late sees that itself, and need not be told. */
    l->waiters[l->n_waiters++] = (atomr_waiter){ticket, ticket <= atomr_completed(s, lane)};
    atomr_update_wake(s, lane);
    return 1;
}

static void remove_waiter(atomr_sender *s, unsigned lane, uint64_t ticket) {
    atomr_send_lane *l = &s->lanes[lane];
    for (uint32_t i = 0; i < l->n_waiters; i++) {
        if (l->waiters[i].ticket != ticket) continue;
        l->waiters[i] = l->waiters[--l->n_waiters]; /* of two with one ticket, either */
        break;
    }
    atomr_update_wake(s, lane);
}

/* Sleep until the worker signals this lane, the region dies, or `slice` has passed. */
static int park(atomr_sender *s, atomr_region *r, unsigned lane, uint64_t ticket, int64_t slice) {
    atomr_wlane *w = atomr_wlane_at(r->w, lane);
    atomr_lock(s);
    /* Read before the ticket can be seen in `wake_at`: a signal for another ticket, given before, does not
     * count for this one, and a signal given afterwards changes this number. */
    const uint32_t seq = atomic_load(&w->wake_seq);
    const int waiting = add_waiter(s, lane, ticket);
    atomr_unlock(s);
    if (!waiting && slice > 1000000) slice = 1000000;
    int result = 0;
    if (atomic_load(&w->completed) < ticket && !atomic_load(&r->dead))
        result = atomr_futex_wait(&w->wake_seq, seq, slice);
    if (waiting) {
        atomr_lock(s);
        remove_waiter(s, lane, ticket);
        atomr_unlock(s);
    }
    return result;
}

/* One stretch of waiting on one region, or on the lack of one. */
static int wait_once(atomr_sender *s, unsigned lane, uint64_t ticket, int64_t timeout_ns, uint64_t spin_ns,
                     uint64_t least_ns) {
    atomr_lock(s);
    if (ticket <= atomr_completed(s, lane)) {
        atomr_unlock(s);
        return ATOMR_DONE;
    }
    atomr_drain_all(s); /* a lane whose error ring is full waits for this */
    atomr_region *r = s->region;
    uint32_t change = atomic_load(&s->change);
    if (r) r->refs++;
    atomr_unlock(s);
    int64_t slice = timeout_ns < 0 || timeout_ns > s->slice_ns ? s->slice_ns : timeout_ns;
    int result = ATOMR_TIMEOUT;
    if (!r) {
        if (slice > 0 && atomr_futex_wait(&s->change, change, slice) == EINTR) result = ATOMR_INTERRUPTED;
        return result;
    }
    atomr_wlane *w = atomr_wlane_at(r->w, lane);
    if (spin_ns) spin_ns = atomr_spin_begins(&s->longer, spin_ns, least_ns);
    const uint64_t end = atomr_now_ns() + spin_ns;
    int done = 0;
    for (unsigned i = 1; spin_ns && !(done = atomic_load(&w->completed) >= ticket); i++) {
        atomr_pause();
        if (i % 64) continue;
        if (atomr_now_ns() >= end || atomic_load(&r->dead)) break;
        sched_yield(); /* the lane may have been woken on this very processor */
    }
    atomr_spin_ended(&s->longer, spin_ns, least_ns);
    if (!done && slice > 0 && park(s, r, lane, ticket, slice) == EINTR) result = ATOMR_INTERRUPTED;
    atomr_lock(s);
    if (ticket <= atomr_completed(s, lane)) result = ATOMR_DONE;
    atomr_unref_region(r);
    atomr_unlock(s);
    return result;
}

int atomr_wait(atomr_sender *s, unsigned lane, uint64_t ticket, int64_t timeout_ns, uint64_t spin_ns) {
    if (lane >= ATOMR_LANES) return ATOMR_TIMEOUT;
    _Atomic uint64_t *waited = &s->lanes[lane].waited_ns;
    const uint64_t began = atomr_now_ns();
    uint64_t spin = atomr_spin_for(atomic_load_explicit(waited, memory_order_relaxed), spin_ns);
    if (timeout_ns >= 0 && spin > (uint64_t)timeout_ns) spin = spin_ns;
    for (;; spin = 0) {
        const uint64_t passed = atomr_now_ns() - began;
        int64_t left = timeout_ns < 0 ? -1 : timeout_ns - (int64_t)passed;
        if (timeout_ns >= 0 && left < 0) left = 0;
        const int result = wait_once(s, lane, ticket, left, spin, spin_ns);
        if (result == ATOMR_DONE) atomic_store_explicit(waited, atomr_now_ns() - began, memory_order_relaxed);
        if (result != ATOMR_TIMEOUT || left == 0) return result;
    }
}

void atomr_rouse(atomr_sender *s, unsigned lane, uint64_t until_ns) {
    if (lane >= ATOMR_LANES) return;
    atomr_plane *p = atomr_plane_at(s->p, lane);
    atomr_lock(s);
    atomic_store(&p->awake_until, until_ns);
    const int parked = s->region && atomic_load(&atomr_wlane_at(s->region->w, lane)->parked);
    if (parked) atomic_fetch_add(&p->doorbell, 1);
    atomr_unlock(s);
    if (parked) atomr_futex_wake(&p->doorbell);
}

int atomr_want(atomr_sender *s, unsigned lane, unsigned subscriber, uint64_t ticket) {
    if (lane >= ATOMR_LANES || subscriber >= ATOMR_SUBSCRIBERS) return 0;
    atomr_lock(s);
    atomr_drain_all(s); /* as in `wait_once` */
    _Atomic uint64_t *wanted = &atomr_plane_at(s->p, lane)->sub_wanted[subscriber];
    atomic_store(wanted, ticket <= atomr_completed(s, lane) ? UINT64_MAX : ticket);
    atomr_update_wake(s, lane);
    /* Looked at again, now that the lane can see the wish: it may have completed the ticket just before, and
     * then has nothing more to do at which it would notice. */
    const int already = ticket <= atomr_completed(s, lane);
    if (already && atomic_load(wanted) != UINT64_MAX) {
        atomic_store(wanted, UINT64_MAX);
        atomr_update_wake(s, lane);
    }
    atomr_unlock(s);
    return already;
}
