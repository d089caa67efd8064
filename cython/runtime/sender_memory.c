/* Slots, allocation, groups. */
#include "runtime/sender_private.h"

#include <stdlib.h>

enum { SEGMENT_RESERVED = 255 /* numbered, and not yet made */ };
enum { KEEP_FREE = 64 /* freed slots that rest before the oldest is used again */ };

static void dissolve(atomr_sender *s, uint32_t group);

static void publish_generation(atomr_sender *s, uint32_t slot) {
    atomic_store_explicit(&atomr_generations(s->p)[slot], s->slots[slot].generation, memory_order_release);
}

/* First in, first out, so that a stale handle meets its own slot again as late as possible. */
uint32_t atomr_take_slot(atomr_sender *s) {
    if (s->n_free > KEEP_FREE || s->fresh == s->n_slots) {
        uint32_t slot = s->free_first;
        if (slot == 0) return 0;
        s->free_first = s->slots[slot].next_free;
        if (s->free_first == 0) s->free_last = 0;
        s->n_free--;
        return slot;
    }
    uint32_t slot = s->fresh++;
    s->slots[slot].generation = 1;
    publish_generation(s, slot);
    return slot;
}

static void queue_slot(atomr_sender *s, uint32_t slot) {
    s->slots[slot].state = SLOT_FREE;
    if (s->slots[slot].generation == UINT32_MAX) return; /* exhausted: never used again */
    s->slots[slot].next_free = 0;
    if (s->free_last) s->slots[s->free_last].next_free = slot;
    else s->free_first = slot;
    s->free_last = slot;
    s->n_free++;
}

/* Hand the memory back; everything that was sent before may still use it. */
static void give_back(atomr_sender *s, uint32_t slot) {
    atomr_slot *a = &s->slots[slot];
    if (a->pool == ATOMR_FOREIGN) { /* not ours to hand out */
        atomr_stamps_release(&a->others);
        queue_slot(s, slot);
        return;
    }
    if (atomr_stamp_ticket(a->writer) && !atomr_stamp_resolved(s, a->writer)) {
        if (atomr_stamps_add(&a->others, a->writer) != 0) {
            /* No memory to remember who uses the range: keep it out of use for good rather than lend it. */
            queue_slot(s, slot);
            return;
        }
    }
    atomr_pool_free(s->pools[a->pool], &a->block, &a->others);
    queue_slot(s, slot);
}

void atomr_retire(atomr_sender *s, atomr_slot *a) {
    uint32_t slot = (uint32_t)(a - s->slots);
    if (a->domain) atomr_leave_domain(s, a);
    a->generation++;
    a->group = 0;
    a->torn = a->back = a->internal = a->kept = 0;
    publish_generation(s, slot);
    if (a->leases) a->state = SLOT_LEASED;
    else give_back(s, slot);
}

/* Whether this allocation has brought its pool low; then it asks, once, until `atomr_sender_arm_pool`. */
static int runs_low(atomr_sender *s, int pool, uint64_t nbytes) {
    atomr_low_water *w = &s->low[pool];
    if (w->asked || !w->mark || nbytes > w->most) return 0;
    const atomr_pool_stats *figures = atomr_pool_figures(s->pools[pool]);
    const uint64_t left = figures->free + figures->deferred;
    if (left >= w->mark && left >= nbytes) return 0;
    if (figures->in_use <= w->peak) return 0;
    w->peak = figures->in_use;
    w->asked = 1;
    return 1;
}

static void tell_low(atomr_sender *s) {
    atomic_fetch_add(&s->low_seq, 1);
    atomr_futex_wake(&s->low_seq);
}

void atomr_sender_arm_pool(atomr_sender *s, int pool, uint64_t mark, uint64_t most) {
    atomr_lock(s);
    s->low[pool].mark = mark;
    s->low[pool].most = most;
    s->low[pool].asked = 0;
    atomr_unlock(s);
}

unsigned atomr_sender_low_pools(atomr_sender *s) {
    unsigned asked = 0;
    atomr_lock(s);
    for (unsigned i = 0; i < ATOMR_POOLS; i++) asked |= s->low[i].asked ? 1u << i : 0;
    atomr_unlock(s);
    return asked;
}

int atomr_sender_wait_low(atomr_sender *s) {
    for (;;) {
        const uint32_t seq = atomic_load(&s->low_seq);
        atomr_lock(s);
        const int stop = s->low_stop;
        atomr_unlock(s);
        if (stop) return 0;
        if (atomr_sender_low_pools(s)) return 1;
        atomr_futex_wait(&s->low_seq, seq, -1);
    }
}

void atomr_sender_stop_low(atomr_sender *s) {
    atomr_lock(s);
    s->low_stop = 1;
    atomr_unlock(s);
    tell_low(s);
}

int atomr_alloc(atomr_sender *s, int pool, uint64_t nbytes, uint32_t *slot, uint32_t *generation, atomr_block *out) {
    atomr_lock(s);
    int result = ATOMR_DONE, low = 0;
    if (s->state == ATOMR_LOST || s->state == ATOMR_CLOSED) {
        result = ATOMR_REFUSED;
        goto out;
    }
    uint32_t index = atomr_take_slot(s);
    if (index == 0) {
        result = ATOMR_EXHAUSTED;
        goto out;
    }
    atomr_slot *a = &s->slots[index];
    atomr_stamps_clear(&a->others);
    int r = atomr_pool_alloc(s->pools[pool], nbytes, &a->block, &a->others);
    if (r != 0) {
        queue_slot(s, index);
        result = r == ATOMR_NO_ROOM ? ATOMR_EMPTY : ATOMR_EXHAUSTED;
        goto out;
    }
    a->state = SLOT_LIVE;
    a->pool = (uint8_t)pool;
    a->group = a->leases = 0;
    a->torn = a->back = a->internal = a->kept = 0;
    a->writer = 0;
    a->writer_order = 0;
    *slot = index;
    *generation = a->generation;
    *out = a->block;
    low = runs_low(s, pool, a->block.nbytes);
out:
    atomr_unlock(s);
    if (low) tell_low(s);
    return result;
}

int atomr_free(atomr_sender *s, uint32_t slot, uint32_t generation) {
    atomr_lock(s);
    atomr_slot *a = atomr_live(s, slot, generation);
    if (a && a->group) dissolve(s, a->group); /* without a member it can neither be committed nor go back */
    if (a) atomr_retire(s, a);
    atomr_unlock(s);
    return a ? ATOMR_DONE : ATOMR_STALE;
}

int atomr_keep(atomr_sender *s, uint32_t slot, uint32_t generation) {
    atomr_lock(s);
    atomr_slot *a = atomr_live(s, slot, generation);
    if (a) a->kept = 1;
    atomr_unlock(s);
    return a ? ATOMR_DONE : ATOMR_STALE;
}

int atomr_lease(atomr_sender *s, uint32_t slot, uint32_t generation) {
    atomr_lock(s);
    atomr_slot *a = atomr_live(s, slot, generation);
    if (a) a->leases++;
    atomr_unlock(s);
    return a ? ATOMR_DONE : ATOMR_STALE;
}

void atomr_unlease(atomr_sender *s, uint32_t slot) {
    atomr_lock(s);
    atomr_slot *a = &s->slots[slot];
    if (--a->leases == 0 && a->state == SLOT_LEASED) give_back(s, slot);
    atomr_unlock(s);
}

int atomr_check(atomr_sender *s, uint32_t slot, uint32_t generation) {
    atomr_lock(s);
    const atomr_slot *a = atomr_live(s, slot, generation);
    int result = !a ? ATOMR_STALE : a->torn ? ATOMR_TORN : a->back ? ATOMR_BACK : ATOMR_DONE;
    atomr_unlock(s);
    return result;
}

int atomr_untear(atomr_sender *s, uint32_t slot, uint32_t generation) {
    atomr_lock(s);
    atomr_slot *a = atomr_live(s, slot, generation);
    if (a) a->torn = a->back = 0;
    atomr_unlock(s);
    return a ? ATOMR_DONE : ATOMR_STALE;
}

int atomr_last_write(atomr_sender *s, uint32_t slot, uint32_t generation, uint32_t *lane, uint64_t *ticket) {
    atomr_lock(s);
    atomr_slot *a = atomr_live(s, slot, generation);
    if (a) {
        const atomr_slot *root = atomr_root(s, a);
        *lane = atomr_stamp_lane(root->writer);
        *ticket = atomr_stamp_ticket(root->writer);
    }
    atomr_unlock(s);
    return a ? ATOMR_DONE : ATOMR_STALE;
}

int atomr_open_uses(atomr_sender *s, uint32_t slot, uint32_t generation, atomr_stamp *out) {
    atomr_lock(s);
    atomr_slot *a = atomr_live(s, slot, generation);
    int n = 0;
    if (a) {
        a = atomr_root(s, a);
        const atomr_stamp *others = atomr_stamps_data(&a->others);
        for (uint32_t i = 0; i < a->others.n; i++)
            if (!atomr_stamp_resolved(s, others[i])) out[n++] = others[i];
        if (atomr_stamp_ticket(a->writer) && !atomr_stamp_resolved(s, a->writer) && n < ATOMR_LANES)
            out[n++] = a->writer;
    }
    atomr_unlock(s);
    return n;
}

int atomr_sender_reserve_segment(atomr_sender *s, uint32_t *segment) {
    atomr_lock(s);
    uint32_t index = 0;
    for (uint32_t i = 0; i < ATOMR_MAX_SEGMENTS - 1 && !index; i++) {
        uint32_t candidate = 1 + (s->next_segment - 1 + i) % (ATOMR_MAX_SEGMENTS - 1);
        if (!s->segment_pool[candidate]) index = candidate;
    }
    if (index) {
        s->next_segment = index + 1;
        s->segment_pool[index] = SEGMENT_RESERVED;
    }
    *segment = index;
    atomr_unlock(s);
    return index ? ATOMR_DONE : ATOMR_EXHAUSTED;
}

int atomr_sender_add_segment(atomr_sender *s, uint32_t segment, int pool, uint64_t nbytes) {
    int result = ATOMR_DONE;
    atomr_lock(s);
    if (segment >= ATOMR_MAX_SEGMENTS || s->segment_pool[segment] != SEGMENT_RESERVED) result = ATOMR_STALE;
    else if (pool < 0) s->segment_pool[segment] = 0; /* it could not be made */
    else if (pool == ATOMR_FOREIGN) s->segment_pool[segment] = ATOMR_FOREIGN + 1;
    else if (atomr_pool_add_segment(s->pools[pool], segment, nbytes) != 0) result = ATOMR_EXHAUSTED;
    else s->segment_pool[segment] = (uint8_t)(pool + 1);
    atomr_unlock(s);
    return result;
}

int atomr_block_of(atomr_sender *s, uint32_t slot, uint32_t generation, atomr_block *block, int *pool) {
    atomr_lock(s);
    const atomr_slot *a = atomr_live(s, slot, generation);
    if (a) {
        *block = a->block;
        *pool = a->pool;
    }
    atomr_unlock(s);
    return a ? ATOMR_DONE : ATOMR_STALE;
}

uint32_t atomr_sender_remove_segment(atomr_sender *s, int pool) {
    atomr_lock(s);
    uint32_t segment = atomr_pool_find_empty(s->pools[pool]);
    if (segment && atomr_pool_remove_segment(s->pools[pool], segment) == 0) s->segment_pool[segment] = 0;
    else segment = 0;
    atomr_unlock(s);
    return segment;
}

void atomr_sender_pool_stats(atomr_sender *s, int pool, atomr_pool_stats *out) {
    atomr_lock(s);
    atomr_pool_get_stats(s->pools[pool], out);
    atomr_unlock(s);
}

atomr_group *atomr_find_group(const atomr_sender *s, uint32_t id) {
    for (uint32_t i = 0; i < s->n_groups; i++)
        if (s->groups[i].id == id) return &s->groups[i];
    return NULL;
}

/* A commit that is resolved has succeeded unless its lane reported an error, which may not be taken yet. */
void atomr_settle_group(atomr_sender *s, atomr_group *g) {
    uint64_t lanes = 0;
    for (uint32_t i = 0; i < g->n_pending; i++) {
        const unsigned lane = atomr_stamp_lane(g->pending[i].stamp);
        const uint64_t ticket = atomr_stamp_ticket(g->pending[i].stamp);
        if (ticket > s->lanes[lane].settled && ticket <= atomr_completed(s, lane)) lanes |= UINT64_C(1) << lane;
    }
    for (; lanes; lanes &= lanes - 1) atomr_drain(s, (unsigned)__builtin_ctzll(lanes));
    uint32_t kept = 0;
    for (uint32_t i = 0; i < g->n_pending; i++) {
        const atomr_commit *c = &g->pending[i];
        if (atomr_stamp_ticket(c->stamp) > s->lanes[atomr_stamp_lane(c->stamp)].settled) g->pending[kept++] = *c;
        else if (c->order > g->committed) g->committed = c->order;
    }
    g->n_pending = kept;
}

void atomr_forget_commit(atomr_sender *s, unsigned lane, uint64_t ticket) {
    const atomr_stamp stamp = atomr_stamp_make(lane, ticket);
    for (uint32_t i = 0; i < s->n_groups; i++) {
        atomr_group *g = &s->groups[i];
        uint32_t kept = 0;
        for (uint32_t k = 0; k < g->n_pending; k++) {
            if (g->pending[k].stamp != stamp) g->pending[kept++] = g->pending[k];
            else g->suspect = g->pending[k].order;
        }
        g->n_pending = kept;
    }
}

int atomr_group_add(atomr_sender *s, uint32_t group, uint32_t slot, uint32_t generation, int internal) {
    atomr_lock(s);
    int result = ATOMR_DONE;
    atomr_slot *a = atomr_live(s, slot, generation);
    if (!a || a->pool != ATOMR_DURABLE || a->group) {
        result = ATOMR_STALE;
        goto out;
    }
    if (!atomr_find_group(s, group)) {
        atomr_group *grown = realloc(s->groups, (s->n_groups + 1) * sizeof *grown);
        if (!grown) {
            result = ATOMR_EXHAUSTED;
            goto out;
        }
        s->groups = grown;
        s->groups[s->n_groups++] = (atomr_group){.id = group};
    }
    a->group = group;
    a->internal = (uint8_t)internal;
out:
    atomr_unlock(s);
    return result;
}

static void dissolve(atomr_sender *s, uint32_t group) {
    for (uint32_t i = 1; i < s->fresh; i++)
        if (s->slots[i].state == SLOT_LIVE && s->slots[i].group == group)
            s->slots[i].group = s->slots[i].internal = 0;
    atomr_group *g = atomr_find_group(s, group);
    if (g) {
        free(g->pending);
        *g = s->groups[--s->n_groups];
    }
}

void atomr_group_dissolve(atomr_sender *s, uint32_t group) {
    atomr_lock(s);
    dissolve(s, group);
    atomr_unlock(s);
}

void atomr_group_recovered(atomr_sender *s, uint32_t group) {
    atomr_lock(s);
    atomr_group *g = atomr_find_group(s, group);
    if (g) {
        /* Everything before the fault is void for a group that went back; a first commit that was
         * interrupted has happened after all. */
        const uint64_t order = g->back ? g->back : g->committed ? 0 : g->suspect;
        if (order > g->committed) g->committed = order;
        g->back = 0;
    }
    atomr_unlock(s);
}

int atomr_tear(atomr_sender *s, uint32_t slot, uint32_t generation) {
    atomr_lock(s);
    atomr_slot *a = atomr_live(s, slot, generation);
    if (a) a->torn = 1;
    atomr_unlock(s);
    return a ? ATOMR_DONE : ATOMR_STALE;
}
