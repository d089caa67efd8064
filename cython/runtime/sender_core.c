/* Sending. */
#define _GNU_SOURCE
#include "runtime/meeting.h"
#include "runtime/sender_private.h"

#include <stdlib.h>

#define INLINED inline __attribute__((always_inline)) /* each call costs a twentieth of a send */

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

/* Check the handles of a message, and find what it must wait for. */
static int check_uses(atomr_sender *s, unsigned lane, const atomr_use *uses, unsigned n, deps *d, unsigned *bad) {
    for (unsigned i = 0; i < n; i++) {
        const atomr_use *u = &uses[i];
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
