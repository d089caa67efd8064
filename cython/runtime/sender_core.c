/* The life of a sender, and sending. */
#define _GNU_SOURCE
#include "runtime/meeting.h"
#include "runtime/sender_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define INLINED inline __attribute__((always_inline)) /* each call costs a twentieth of a send */

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

/* A worker that went wild may write anything: never more than was sent, never less than is known. */
uint64_t atomr_completed(atomr_sender *s, unsigned lane) {
    if (lane >= ATOMR_LANES) return 0;
    atomr_send_lane *l = &s->lanes[lane];
    if (!s->region) return l->floor;
    uint64_t done = atomic_load(&atomr_wlane_at(s->region->w, lane)->completed);
    if (done > l->ticket) done = l->ticket;
    if (done > l->floor) l->floor = done;
    return l->floor;
}

/* By the parent's own books: whatever a worker writes, the parent finds its messages where it put them. */
uint64_t atomr_released(atomr_sender *s, unsigned lane) {
    atomr_send_lane *l = &s->lanes[lane];
    return l->released = *atomr_end_of(s, lane, atomr_completed(s, lane));
}

typedef struct {
    uint64_t mask, best[ATOMR_LANES];
    unsigned n; /* bits of the mask */
} deps;

static void depend(atomr_sender *s, deps *d, unsigned self, atomr_stamp stamp) {
    unsigned lane = atomr_stamp_lane(stamp);
    if (lane == self || atomr_stamp_ticket(stamp) == 0 || atomr_stamp_resolved(s, stamp)) return;
    uint64_t bit = UINT64_C(1) << lane;
    if (!(d->mask & bit)) {
        d->mask |= bit;
        d->n++;
        d->best[lane] = stamp;
    } else if (d->best[lane] < stamp) {
        d->best[lane] = stamp;
    }
}

/* Give the slots of a message their new stamps.  -1: no memory.  Some slots may then name the ticket, which
 * orders more than needed; so the ticket must be used up, or those who wait for it would never end. */
static int stamp_uses(atomr_sender *s, const atomr_use *uses, unsigned n, atomr_stamp stamp, uint64_t order) {
    for (unsigned i = 0; i < n; i++) {
        if (uses[i].access & ATOMR_WRITE) continue;
        atomr_stamps *others = &atomr_root(s, &s->slots[uses[i].slot])->others;
        /* Most are read by one lane only: then the stamp takes the place of that lane's last one. */
        if (others->n == 1 && !others->items && atomr_stamp_lane(others->few[0]) == atomr_stamp_lane(stamp))
            others->few[0] = stamp;
        else if (atomr_stamps_add(others, stamp) != 0)
            return -1;
    }
    for (unsigned i = 0; i < n; i++) {
        if (!(uses[i].access & ATOMR_WRITE)) continue;
        atomr_slot *slot = atomr_root(s, &s->slots[uses[i].slot]);
        slot->writer = stamp;
        slot->writer_order = order;
        atomr_stamps_clear(&slot->others);
        if (uses[i].whole && (uses[i].access & ATOMR_OVERWRITE)) slot->torn = slot->back = 0;
    }
    return 0;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && sizeof(atomr_operand) == 24, "words of an operand");

static void write_message(atomr_sender *s, unsigned lane, uint32_t plan, const atomr_use *uses, unsigned n_uses,
                          const uint64_t *scalars, unsigned n_scalars, const deps *d, unsigned n_cells, int flags) {
    atomr_send_lane *l = &s->lanes[lane];
    atomr_cell *ring = atomr_ring_at(s->p, lane);
    uint32_t mask = s->cells - 1;
    uint64_t at = l->tail * ATOMR_CELL_WORDS, wrap = (uint64_t)s->cells * ATOMR_CELL_WORDS - 1;
    uint64_t *words = ring[0].words;
    atomr_head *head = &ring[l->tail & mask].head;
    *head = (atomr_head){.ticket = l->ticket,
                         .plan = plan,
                         .epoch = atomr_sender_epoch(s),
                         .n_cells = (uint16_t)n_cells,
                         .n_operands = (uint16_t)n_uses,
                         .n_deps = (uint8_t)d->n,
                         .n_scalars = (uint8_t)n_scalars,
                         .flags = (uint8_t)flags,
                         .order = s->order};
    at += ATOMR_HEAD_WORDS;
    for (uint64_t m = d->mask; m; m &= m - 1) words[at++ & wrap] = d->best[__builtin_ctzll(m)];
    for (unsigned i = 0; i < n_uses; i++) {
        const atomr_slot *slot = &s->slots[uses[i].slot];
        uint32_t access = uses[i].access, name = uses[i].slot, generation = uses[i].generation;
        int whole = uses[i].whole != ATOMR_PART;
        if (slot->domain) {
            name = slot->domain;
            generation = s->slots[name].generation;
            whole &= slot->covers || uses[i].whole == ATOMR_DECLARED;
        }
        if (!whole) access &= ~(uint32_t)ATOMR_OVERWRITE; /* part of it: poison stays */
        /* An atomr_operand, put together in registers: words that were stored in halves could not be read at once. */
        words[at++ & wrap] = slot->block.segment | (uint64_t)access << 32;
        words[at++ & wrap] = slot->block.offset + uses[i].offset;
        words[at++ & wrap] = name | (uint64_t)generation << 32;
    }
    for (unsigned i = 0; i < n_scalars; i++) words[at++ & wrap] = scalars[i];
}

/* Make room for one more pending commit.  0 when there is. */
static int expect_commit(atomr_sender *s, uint32_t group) {
    atomr_group *g = atomr_find_group(s, group);
    if (!g) return ATOMR_REFUSED;
    atomr_settle_group(s, g);
    if (g->n_pending < g->cap_pending) return ATOMR_DONE;
    uint32_t cap = g->cap_pending ? 2 * g->cap_pending : 8;
    atomr_commit *grown = realloc(g->pending, cap * sizeof *grown);
    if (!grown) return ATOMR_EXHAUSTED;
    g->pending = grown;
    g->cap_pending = cap;
    return ATOMR_DONE;
}

/* Let the worker see the message that was written; nonzero when it must be woken. */
static int publish(atomr_sender *s, unsigned lane, unsigned n_cells) {
    atomr_send_lane *l = &s->lanes[lane];
    atomr_plane *p = atomr_plane_at(s->p, lane);
    l->tail += n_cells;
    *atomr_end_of(s, lane, l->ticket) = l->tail;
    atomic_store(&p->tail, l->tail);
    if (!s->region || !atomic_load(&atomr_wlane_at(s->region->w, lane)->parked)) return 0;
    atomic_fetch_add(&p->doorbell, 1);
    return 1;
}

/* Fetch a line of a ring that will be written: its lane's thread, on another processor, was the last to read it. */
static inline void fetch_to_write(const void *line) {
#if defined(__x86_64__) /* the builtin would only fetch it to be read, and has to be told that the processor can more */
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)line));
#else
    __builtin_prefetch(line, 1);
#endif
}

/* Check the handles of a message, and find what it must wait for; the words of its operands are fetched meanwhile. */
static int check_uses(atomr_sender *s, unsigned lane, const atomr_use *uses, unsigned n, deps *d, unsigned *bad) {
    const uint64_t *words = atomr_ring_at(s->p, lane)->words;
    const uint64_t wrap = (uint64_t)s->cells * ATOMR_CELL_WORDS - 1;
    const uint64_t at = s->lanes[lane].tail * ATOMR_CELL_WORDS;
    fetch_to_write(&words[at & wrap]);
    for (unsigned i = 0; i < n; i++) {
        const atomr_use *u = &uses[i];
        fetch_to_write(&words[(at + ATOMR_HEAD_WORDS + 3 * (uint64_t)i + 2) & wrap]);
        atomr_slot *slot = atomr_live(s, u->slot, u->generation);
        if (!slot || ((slot->torn | slot->back) && (u->access & ATOMR_READ))) {
            *bad = i;
            return !slot ? ATOMR_STALE : slot->torn ? ATOMR_TORN : ATOMR_BACK;
        }
        slot = atomr_root(s, slot);
        depend(s, d, lane, slot->writer);
        if (!(u->access & ATOMR_WRITE)) continue;
        const atomr_stamp *others = atomr_stamps_data(&slot->others);
        for (uint32_t k = 0; k < slot->others.n; k++) depend(s, d, lane, others[k]);
    }
    return ATOMR_DONE;
}

/* A message that is about to be sent, and what was found out about it. */
typedef struct {
    atomr_sender *s;
    unsigned lane, n_uses, n_scalars, n_cells;
    uint32_t plan, group;
    const atomr_use *uses;
    const uint64_t *scalars;
    atomr_reply *reply;
    int flags;
    deps d;
} outgoing;

/* Whether a message can be sent; it changes nothing.  With the lock held, as what follows. */
static INLINED int admit(outgoing *m, uint32_t epoch, unsigned *bad) {
    atomr_sender *s = m->s;
    atomr_send_lane *l = &s->lanes[m->lane];
    m->d.mask = m->d.n = 0;
    if (!l->open || s->state == ATOMR_LOST || s->state == ATOMR_CLOSED) return ATOMR_REFUSED;
    if (epoch && epoch != atomr_sender_epoch(s)) return ATOMR_MOVED;
    const int result = check_uses(s, m->lane, m->uses, m->n_uses, &m->d, bad);
    if (result != ATOMR_DONE) return result;
    unsigned words = ATOMR_HEAD_WORDS + m->d.n + 3 * m->n_uses + m->n_scalars;
    m->n_cells = (words + ATOMR_CELL_WORDS - 1) / ATOMR_CELL_WORDS;
    if (l->tail + m->n_cells - l->released > s->cells &&
        l->tail + m->n_cells - atomr_released(s, m->lane) > s->cells)
        return m->n_cells > s->cells ? ATOMR_TOO_LARGE : ATOMR_FULL;
    return m->group ? expect_commit(s, m->group) : ATOMR_DONE;
}

/* Send a message that was admitted; `*bell` when its lane must be woken. */
static INLINED int commit(outgoing *m, uint64_t *ticket, int *bell) {
    atomr_sender *s = m->s;
    atomr_send_lane *l = &s->lanes[m->lane];
    const uint64_t order = ++s->order;
    const atomr_stamp stamp = atomr_stamp_make(m->lane, ++l->ticket);
    if (stamp_uses(s, m->uses, m->n_uses, stamp, order) != 0) {
        /* Use up the ticket with a message that only fails.  It keeps its key, so that others learn of it. */
        const unsigned n = m->flags & ATOMR_KEYED ? m->n_scalars : 0;
        const unsigned n_cells = n ? m->n_cells : 1;
        if (n && m->reply) { /* it has other ranks, which are about to be sent: its failure is a reply */
            m->reply->ticket = l->ticket;
            m->reply->lane = m->lane;
            atomr_link_reply(l, m->reply);
        }
        write_message(s, m->lane, m->plan, NULL, 0, m->scalars, n, &(deps){.n = 0}, n_cells, m->flags);
        atomr_head_at(s, m->lane, l->tail)->refusal = ATOMR_OUT_OF_MEMORY;
        *ticket = l->ticket;
        *bell = publish(s, m->lane, n_cells);
        return ATOMR_EXHAUSTED;
    }
    if (m->group) {
        atomr_group *g = atomr_find_group(s, m->group);
        g->pending[g->n_pending++] = (atomr_commit){stamp, order};
    }
    write_message(s, m->lane, m->plan, m->uses, m->n_uses, m->scalars, m->n_scalars, &m->d, m->n_cells, m->flags);
    if (m->reply) {
        m->reply->ticket = l->ticket;
        m->reply->lane = m->lane;
        atomr_link_reply(l, m->reply);
    }
    *ticket = l->ticket;
    *bell = publish(s, m->lane, m->n_cells);
    return ATOMR_DONE;
}

int atomr_send_in(atomr_sender *s, uint32_t epoch, unsigned lane, uint32_t plan, const atomr_use *uses,
                  unsigned n_uses, const uint64_t *scalars, unsigned n_scalars, uint32_t group, atomr_reply *reply,
                  uint64_t *ticket, unsigned *bad) {
    if (n_uses > ATOMR_MESSAGE_OPERANDS || n_scalars > ATOMR_MAX_SCALARS) return ATOMR_TOO_LARGE;
    if (lane >= ATOMR_LANES) return ATOMR_REFUSED;
    outgoing m; /* field by field: clearing its dependencies costs as much as a send */
    m.s = s;
    m.lane = lane;
    m.plan = plan;
    m.group = group;
    m.uses = uses;
    m.n_uses = n_uses;
    m.scalars = scalars;
    m.n_scalars = n_scalars;
    m.reply = reply;
    m.flags = reply ? ATOMR_ASKED : 0;
    int ring_bell = 0;
    uint64_t sent;
    atomr_lock(s);
    int result = admit(&m, epoch, bad);
    if (result == ATOMR_DONE && (result = commit(&m, &sent, &ring_bell)) == ATOMR_DONE) *ticket = sent;
    atomr_unlock(s);
    if (ring_bell) atomr_futex_wake(&atomr_plane_at(s->p, lane)->doorbell);
    return result;
}

int atomr_send_ranks(atomr_rank_send *ranks, unsigned n, uint64_t *sequence, unsigned *which) {
    outgoing out[ATOMR_RANKS];
    atomr_sender *locked[ATOMR_RANKS];
    int bells[ATOMR_RANKS] = {0};
    *which = 0;
    if (n > ATOMR_RANKS) return ATOMR_TOO_LARGE;
    for (unsigned i = 0; i < n; i++) {
        const atomr_rank_send *r = &ranks[i];
        *which = i;
        if (r->n_uses > ATOMR_MESSAGE_OPERANDS || r->n_scalars > ATOMR_MAX_SCALARS || r->n_scalars < ATOMR_KEY_WORDS)
            return ATOMR_TOO_LARGE;
        if (r->lane >= ATOMR_LANES) return ATOMR_REFUSED;
        out[i].s = r->sender;
        out[i].lane = r->lane;
        out[i].plan = r->plan;
        out[i].group = 0;
        out[i].uses = r->uses;
        out[i].n_uses = r->n_uses;
        out[i].scalars = r->scalars;
        out[i].n_scalars = r->n_scalars;
        out[i].reply = r->reply;
        out[i].flags = ATOMR_KEYED | (r->reply ? ATOMR_ASKED : 0);
        unsigned at = i; /* one order of locks for all communicators: by address */
        for (; at > 0 && (uintptr_t)locked[at - 1] > (uintptr_t)r->sender; at--) locked[at] = locked[at - 1];
        locked[at] = r->sender;
    }
    for (unsigned i = 0; i < n; i++) atomr_lock(locked[i]);
    int result = ATOMR_DONE;
    for (unsigned i = 0; i < n && result == ATOMR_DONE; i++) {
        result = admit(&out[i], ranks[i].epoch, &ranks[i].bad);
        *which = i;
    }
    if (result == ATOMR_DONE) {
        const uint64_t number = ++*sequence;
        for (unsigned i = 0; i < n; i++) {
            ranks[i].scalars[ATOMR_KEY_SEQUENCE] = number;
            commit(&out[i], &ranks[i].ticket, &bells[i]); /* one that only fails makes all ranks fail */
        }
    }
    for (unsigned i = n; i-- > 0;) atomr_unlock(locked[i]);
    for (unsigned i = 0; i < n; i++)
        if (bells[i]) atomr_futex_wake(&atomr_plane_at(out[i].s->p, out[i].lane)->doorbell);
    return result;
}

int atomr_send(atomr_sender *s, unsigned lane, uint32_t plan, const atomr_use *uses, unsigned n_uses,
               const uint64_t *scalars, unsigned n_scalars, uint32_t group, atomr_reply *reply, uint64_t *ticket,
               unsigned *bad) {
    return atomr_send_in(s, 0, lane, plan, uses, n_uses, scalars, n_scalars, group, reply, ticket, bad);
}

uint64_t atomr_room_ticket(atomr_sender *s, unsigned lane, unsigned cells) {
    if (lane >= ATOMR_LANES) return 0;
    atomr_lock(s);
    atomr_send_lane *l = &s->lanes[lane];
    uint64_t done = atomr_completed(s, lane), wanted = 0;
    if (l->open && l->tail - *atomr_end_of(s, lane, done) + cells > s->cells && done < l->ticket)
        wanted = done + (l->ticket - done + 1) / 2;
    atomr_unlock(s);
    return wanted;
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
