/* Slots over memory that others own: adopted range by range, and ordered as one where ranges share bytes. */
#include "runtime/sender_private.h"

static int resolved(void *ctx, atomr_stamp stamp) { return atomr_stamp_resolved(ctx, stamp); }

static int is_open(atomr_sender *s, atomr_stamp stamp) {
    return atomr_stamp_ticket(stamp) != 0 && !atomr_stamp_resolved(s, stamp);
}

int atomr_adopt(atomr_sender *s, uint32_t epoch, uint32_t segment, uint64_t offset, uint64_t nbytes, uint32_t *slot,
                uint32_t *generation) {
    int result = ATOMR_DONE;
    atomr_lock(s);
    if (s->state == ATOMR_LOST || s->state == ATOMR_CLOSED) result = ATOMR_REFUSED;
    else if (epoch != atomr_sender_epoch(s)) result = ATOMR_MOVED;
    else if (segment >= ATOMR_MAX_SEGMENTS || s->segment_pool[segment] != ATOMR_FOREIGN + 1) result = ATOMR_STALE;
    const uint32_t index = result == ATOMR_DONE ? atomr_take_slot(s) : 0;
    if (index) {
        atomr_slot *a = &s->slots[index];
        atomr_stamps_clear(&a->others);
        a->state = SLOT_LIVE;
        a->pool = ATOMR_FOREIGN;
        a->group = 0;
        a->leases = 1;
        a->torn = a->back = a->internal = 0;
        a->writer = 0;
        a->writer_order = 0;
        a->block = (atomr_block){.segment = segment, .offset = offset, .nbytes = nbytes};
        *slot = index;
        *generation = a->generation;
    } else if (result == ATOMR_DONE) {
        result = ATOMR_EXHAUSTED;
    }
    atomr_unlock(s);
    return result;
}

/* One stamp for each lane: the later of its last read and the last write. */
static int open_uses(atomr_sender *s, atomr_slot *a, atomr_stamp *out) {
    int n = 0, written = is_open(s, a->writer);
    atomr_stamps_prune(&a->others, resolved, s);
    const atomr_stamp *others = atomr_stamps_data(&a->others);
    for (uint32_t i = 0; i < a->others.n; i++) {
        out[n] = others[i];
        if (written && atomr_stamp_lane(others[i]) == atomr_stamp_lane(a->writer)) {
            if (a->writer > out[n]) out[n] = a->writer;
            written = 0;
        }
        n++;
    }
    if (written) out[n++] = a->writer;
    return n;
}

int atomr_adopted_uses(atomr_sender *s, uint32_t slot, atomr_stamp *out) {
    atomr_lock(s);
    const int n = open_uses(s, atomr_root(s, &s->slots[slot]), out);
    atomr_unlock(s);
    return n;
}

int atomr_let_go(atomr_sender *s, uint32_t slot, uint32_t generation, int named, atomr_stamp *out) {
    int n = -1;
    atomr_lock(s);
    atomr_slot *a = &s->slots[slot];
    const int live = atomr_live(s, slot, generation) != NULL;
    if (a->leases == 1 && !(live && named)) {
        /* In a domain others go on using its bytes, and what comes later is not to be waited for. */
        if (a->domain) atomr_retire(s, a);
        n = open_uses(s, a, out);
        if (n == 0 && a->state == SLOT_LIVE) atomr_retire(s, a);
    }
    atomr_unlock(s);
    return n;
}

void atomr_disown(atomr_sender *s, uint32_t slot) {
    atomr_lock(s);
    atomr_slot *a = &s->slots[slot];
    if (a->state == SLOT_LIVE) atomr_retire(s, a);
    atomr_unlock(s);
    atomr_unlease(s, slot);
}

void atomr_sender_drop_foreign(atomr_sender *s, uint32_t segment) {
    atomr_lock(s);
    if (segment < ATOMR_MAX_SEGMENTS && s->segment_pool[segment] == ATOMR_FOREIGN + 1) s->segment_pool[segment] = 0;
    atomr_unlock(s);
}

void atomr_leave_domain(atomr_sender *s, atomr_slot *a) {
    atomr_slot *d = &s->slots[a->domain];
    const uint32_t index = (uint32_t)(a - s->slots);
    uint32_t *at = &d->next_member;
    while (*at != index) at = &s->slots[*at].next_member;
    *at = a->next_member;
    a->domain = a->next_member = 0;
    a->covers = 0;
    a->writer = d->writer;
    atomr_stamps_prune(&d->others, resolved, s);
    /* Without memory to remember who uses it, it is lent for good. */
    if (atomr_stamps_merge(&a->others, &d->others) != 0) a->leases++;
    if (d->next_member == 0) atomr_retire(s, d);
}

static void join(atomr_sender *s, uint32_t domain, uint32_t member) {
    atomr_slot *a = &s->slots[member];
    a->domain = domain;
    a->covers = 0;
    a->next_member = s->slots[domain].next_member;
    s->slots[domain].next_member = member;
    a->writer = 0;
    atomr_stamps_release(&a->others);
}

/* All members of one domain become those of another. */
static void join_all(atomr_sender *s, uint32_t domain, uint32_t from) {
    for (uint32_t member = s->slots[from].next_member; member;) {
        const uint32_t next = s->slots[member].next_member;
        join(s, domain, member);
        member = next;
    }
    s->slots[from].next_member = 0;
    atomr_retire(s, &s->slots[from]);
}

/* The uses that are open, of all of them together; -1: no memory. */
static int gather(atomr_sender *s, const atomr_member *m, unsigned n, atomr_stamps *all) {
    for (unsigned i = 0; i < n; i++) {
        atomr_slot *root = atomr_root(s, &s->slots[m[i].slot]);
        atomr_stamps_prune(&root->others, resolved, s);
        if (atomr_stamps_merge(all, &root->others) == 0) continue;
        atomr_stamps_release(all);
        return -1;
    }
    return 0;
}

/* What a failed message has poisoned is known by the name of its slot, and the name changes here: hence the rule that
 * the last writes have succeeded. */
static int check_members(atomr_sender *s, const atomr_member *m, unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        atomr_slot *a = atomr_live(s, m[i].slot, m[i].generation);
        if (!a || a->pool != ATOMR_FOREIGN || a->internal) return ATOMR_STALE;
        const atomr_slot *root = atomr_root(s, a);
        if (root->writer != m[i].writer || is_open(s, root->writer)) return ATOMR_MOVED;
    }
    return ATOMR_DONE;
}

int atomr_unite(atomr_sender *s, const atomr_member *m, unsigned n, int covers) {
    atomr_stamps all;
    atomr_stamps_init(&all);
    atomr_lock(s);
    int result = check_members(s, m, n);
    if (result == ATOMR_DONE && gather(s, m, n, &all) != 0) result = ATOMR_EXHAUSTED;
    if (result != ATOMR_DONE) goto out;
    uint32_t domain = 0;
    for (unsigned i = 1; i < n && !domain; i++) domain = s->slots[m[i].slot].domain;
    if (!domain) {
        domain = atomr_take_slot(s);
        if (!domain) {
            atomr_stamps_release(&all);
            result = ATOMR_EXHAUSTED;
            goto out;
        }
        atomr_slot *d = &s->slots[domain];
        d->state = SLOT_LIVE;
        d->pool = ATOMR_FOREIGN;
        d->internal = 1;
        d->group = d->leases = d->next_member = 0;
        d->torn = d->back = 0;
        d->writer = 0;
        d->writer_order = 0;
        d->block = (atomr_block){0};
    }
    for (unsigned i = 0; i < n; i++) {
        const uint32_t theirs = s->slots[m[i].slot].domain;
        if (theirs == domain) continue;
        if (theirs) join_all(s, domain, theirs);
        else join(s, domain, m[i].slot);
    }
    for (uint32_t member = s->slots[domain].next_member; member; member = s->slots[member].next_member)
        s->slots[member].covers = 0;
    s->slots[m[0].slot].covers = covers != 0;
    atomr_stamps_move(&s->slots[domain].others, &all);
out:
    atomr_unlock(s);
    return result;
}
