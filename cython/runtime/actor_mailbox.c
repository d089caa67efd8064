#define _GNU_SOURCE
#include "runtime/actor_mailbox.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/shm.h"

enum { FIRST_SIZE = 16 };

/* How long a waiting thread that could go on leaves the other side to let go of the interpreter's lock.  Whoever asks
 * for that lock while it is held is parked by the interpreter, and woken some microseconds after it is free. */
static const uint64_t GRACE_NS = 2000;

/* More threads than processors never spin at once: they would only take turns at it. */
static _Atomic int n_spinning;

static int may_spin(void) {
    static _Atomic int processors;
    int n = atomic_load_explicit(&processors, memory_order_relaxed);
    if (!n) {
        n = atomr_processors();
        atomic_store_explicit(&processors, n, memory_order_relaxed);
    }
    if (n < 2) return 0;
    if (atomic_fetch_add_explicit(&n_spinning, 1, memory_order_relaxed) < n) return 1;
    atomic_fetch_sub_explicit(&n_spinning, 1, memory_order_relaxed);
    return 0;
}

static void end_spin(void) { atomic_fetch_sub_explicit(&n_spinning, 1, memory_order_relaxed); }

static int grow(atomr_deque *d, uint32_t count) {
    if (count < d->size) return 1;
    const uint32_t size = d->size ? 2 * d->size : FIRST_SIZE;
    void **items = size > d->size ? malloc(size * sizeof *items) : NULL;
    if (!items) return 0;
    for (uint32_t i = 0; i < count; i++) items[i] = d->items[(d->head + i) & (d->size - 1)];
    free(d->items);
    d->items = items;
    d->size = size;
    d->head = 0;
    return 1;
}

static int add_last(atomr_deque *d, _Atomic uint32_t *n, void *item) {
    const uint32_t count = atomic_load_explicit(n, memory_order_relaxed);
    if (!grow(d, count)) return 0;
    d->items[(d->head + count) & (d->size - 1)] = item;
    atomic_store(n, count + 1);
    return 1;
}

static void *take_first(atomr_deque *d, _Atomic uint32_t *n) {
    void *item = d->items[d->head & (d->size - 1)];
    d->head = (d->head + 1) & (d->size - 1);
    atomic_fetch_sub(n, 1);
    return item;
}

int atomr_mailbox_init(atomr_mailbox *m, uint32_t capacity) {
    *m = (atomr_mailbox){.capacity = capacity, .event_fd = -1};
    return pthread_mutex_init(&m->lock, NULL);
}

void atomr_mailbox_destroy(atomr_mailbox *m) {
    pthread_mutex_destroy(&m->lock);
    free(m->user.items);
    free(m->system.items);
}

/* End of the section in which something was put.  The consumer has said that it is parked before it looked for the
 * last time.  A descriptor is signalled under the lock, since afterwards it may be closed, and its number another's. */
static void unlock_and_notify(atomr_mailbox *m) {
    int parked = atomic_load(&m->parked) && atomic_exchange(&m->parked, 0u);
    if (parked && m->event_fd >= 0) {
        const uint64_t one = 1;
        (void)!write(m->event_fd, &one, sizeof one);
        parked = 0;
    }
    pthread_mutex_unlock(&m->lock);
    if (!parked) return;
    atomic_fetch_add(&m->bell, 1);
    atomr_futex_wake(&m->bell);
}

void atomr_mailbox_watch(atomr_mailbox *m, int event_fd) {
    pthread_mutex_lock(&m->lock);
    m->event_fd = event_fd;
    pthread_mutex_unlock(&m->lock);
}

int atomr_mailbox_put(atomr_mailbox *m, void *item, int bound, int evict, void **evicted) {
    int result = ATOMR_PUT;
    pthread_mutex_lock(&m->lock);
    if (m->shut_system || (m->shut_user && bound != ATOMR_LATE)) {
        result = ATOMR_SHUT;
    } else if (bound == ATOMR_BOUNDED && m->capacity && atomic_load_explicit(&m->n_user, memory_order_relaxed) >= m->capacity) {
        result = ATOMR_NO_ROOM;
        if (evict) {
            *evicted = take_first(&m->user, &m->n_user);
            result = ATOMR_EVICTED;
        }
    }
    if ((result == ATOMR_PUT || result == ATOMR_EVICTED) && !add_last(&m->user, &m->n_user, item))
        result = ATOMR_NO_MEMORY; /* never after an eviction, which leaves a place */
    unlock_and_notify(m);
    return result;
}

int atomr_mailbox_put_back(atomr_mailbox *m, void *item) {
    pthread_mutex_lock(&m->lock);
    const uint32_t count = atomic_load_explicit(&m->n_user, memory_order_relaxed);
    const int fits = grow(&m->user, count);
    if (fits) {
        m->user.head = (m->user.head + m->user.size - 1) & (m->user.size - 1);
        m->user.items[m->user.head] = item;
        atomic_store(&m->n_user, count + 1);
    }
    unlock_and_notify(m);
    return fits ? ATOMR_PUT : ATOMR_NO_MEMORY;
}

int atomr_mailbox_put_system(atomr_mailbox *m, void *item) {
    pthread_mutex_lock(&m->lock);
    int result = m->shut_system ? ATOMR_SHUT : ATOMR_PUT;
    if (result == ATOMR_PUT && !add_last(&m->system, &m->n_system, item)) result = ATOMR_NO_MEMORY;
    unlock_and_notify(m);
    return result;
}

static int ready(atomr_mailbox *m) {
    if (atomic_load(&m->n_system)) return 1;
    return atomic_load(&m->n_user) && !atomic_load_explicit(&m->suspended, memory_order_relaxed);
}

int atomr_mailbox_take(atomr_mailbox *m, void **item, int *room) {
    *room = 0;
    if (!ready(m)) return ATOMR_NOTHING;
    int result = ATOMR_NOTHING;
    pthread_mutex_lock(&m->lock);
    if (atomic_load_explicit(&m->n_system, memory_order_relaxed)) {
        *item = take_first(&m->system, &m->n_system);
        result = ATOMR_SYSTEM;
    } else if (atomic_load_explicit(&m->n_user, memory_order_relaxed) && !atomic_load(&m->suspended)) {
        *item = take_first(&m->user, &m->n_user);
        result = ATOMR_USER;
    }
    pthread_mutex_unlock(&m->lock);
    if (result != ATOMR_USER || !m->capacity) return result;
    /* Only when it is half empty, so that a producer is not woken for each place. */
    if (atomic_load_explicit(&m->n_user, memory_order_relaxed) <= m->capacity / 2) {
        if (atomic_load(&m->n_waiting)) {
            atomic_fetch_add(&m->room, 1);
            atomr_futex_wake(&m->room);
        }
        *room = atomic_load(&m->watched) && atomic_exchange(&m->watched, 0u);
    }
    return result;
}

void *atomr_mailbox_take_user(atomr_mailbox *m) {
    void *item = NULL;
    pthread_mutex_lock(&m->lock);
    if (atomic_load_explicit(&m->n_user, memory_order_relaxed)) item = take_first(&m->user, &m->n_user);
    pthread_mutex_unlock(&m->lock);
    return item;
}

int atomr_mailbox_arm(atomr_mailbox *m) {
    atomic_store(&m->parked, 1u);
    if (!ready(m)) return 0;
    atomic_store(&m->parked, 0u);
    return 1;
}

static void give_grace(atomr_mailbox *m, uint32_t off) {
    const uint64_t end = atomr_now_ns() + GRACE_NS;
    while (atomic_load_explicit(&m->off, memory_order_relaxed) == off && atomr_now_ns() < end) atomr_pause();
}

int atomr_mailbox_wait(atomr_mailbox *m, int64_t timeout_ns, uint64_t spin_ns) {
    if (ready(m)) return ATOMR_READY;
    const uint32_t off = m->seen_off;
    int result = ATOMR_READY;
    atomic_store(&m->idle, 1u);
    if (spin_ns && timeout_ns && may_spin()) {
        const uint64_t end = atomr_now_ns() + spin_ns;
        for (unsigned i = 1; !ready(m); i++) {
            atomr_pause();
            if (i % 64) continue;
            if (atomr_now_ns() >= end) break;
            sched_yield(); /* the producer may be waiting for this very processor */
        }
        end_spin();
    }
    if (ready(m)) {
        give_grace(m, off);
    } else {
        const uint32_t bell = atomic_load(&m->bell);
        if (!atomr_mailbox_arm(m)) {
            const int error = timeout_ns ? atomr_futex_wait(&m->bell, bell, timeout_ns) : ETIMEDOUT;
            atomic_store(&m->parked, 0u);
            result = error == ETIMEDOUT ? ATOMR_TIMED_OUT : error == EINTR ? ATOMR_SIGNAL : ATOMR_READY;
        }
    }
    atomic_store(&m->idle, 0u);
    m->seen_off = atomic_load_explicit(&m->off, memory_order_relaxed);
    return result;
}

int atomr_mailbox_await_room(atomr_mailbox *m, int64_t timeout_ns) {
    int result = ATOMR_READY;
    atomic_fetch_add(&m->n_waiting, 1);
    const uint32_t room = atomic_load(&m->room);
    pthread_mutex_lock(&m->lock);
    const int wait = !m->shut_user && m->capacity && atomic_load(&m->n_user) >= m->capacity;
    pthread_mutex_unlock(&m->lock);
    if (wait) {
        const int error = atomr_futex_wait(&m->room, room, timeout_ns);
        result = error == ETIMEDOUT ? ATOMR_TIMED_OUT : error == EINTR ? ATOMR_SIGNAL : ATOMR_READY;
    }
    atomic_fetch_sub(&m->n_waiting, 1);
    return result;
}

void atomr_mailbox_shut(atomr_mailbox *m, int system) {
    pthread_mutex_lock(&m->lock);
    m->shut_user = 1;
    if (system) m->shut_system = 1;
    pthread_mutex_unlock(&m->lock);
    atomic_fetch_add(&m->room, 1);
    atomr_futex_wake(&m->room);
}

void atomr_outcome_wake(atomr_outcome *o) { atomr_futex_wake(&o->word); }

int atomr_outcome_wait(atomr_outcome *o, atomr_mailbox *m, int64_t timeout_ns, uint64_t spin_ns) {
    if (m) atomic_fetch_add(&m->off, 1);
    if (atomr_outcome_done(o)) return ATOMR_READY;
    if (spin_ns && timeout_ns && may_spin()) {
        const uint64_t end = atomr_now_ns() + spin_ns;
        for (unsigned i = 1; !atomr_outcome_done(o); i++) {
            atomr_pause();
            if (i % 64) continue;
            if (atomr_now_ns() >= end) break;
            sched_yield();
        }
        end_spin();
    }
    if (atomr_outcome_done(o)) {
        const uint64_t grace = atomr_now_ns() + GRACE_NS;
        while (m && !atomic_load_explicit(&m->idle, memory_order_relaxed) && atomr_now_ns() < grace) atomr_pause();
        return ATOMR_READY;
    }
    uint32_t open = 0;
    if (!atomic_compare_exchange_strong(&o->word, &open, 2u) && open == 1) return ATOMR_READY;
    if (!timeout_ns) return ATOMR_TIMED_OUT;
    const int error = atomr_futex_wait(&o->word, 2u, timeout_ns);
    if (atomr_outcome_done(o)) return ATOMR_READY;
    return error == ETIMEDOUT ? ATOMR_TIMED_OUT : error == EINTR ? ATOMR_SIGNAL : ATOMR_READY;
}
