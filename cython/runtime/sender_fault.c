/* What the death of a worker means for messages and memory. */
#include <stdlib.h>
#include <string.h>

#include "runtime/meeting.h"
#include "runtime/sender_private.h"

/* Allocations whose handle is gone already, but that queued messages may still read: by slot and
 * generation, with open addressing.  Live ones have a flag in their slot instead. */
typedef struct {
    uint64_t *keys; /* 0: free */
    uint8_t *torn;
    uint32_t n, room;
} torn_set;

/* One fault in the making. */
typedef struct {
    atomr_sender *s;
    atomr_fault_report *out;
    torn_set gone;
    int all_gone_torn; /* the worker lost count: whatever is gone may be torn */
    int again;         /* all was judged before; only what is torn may have changed */
    uint8_t may_run[ATOMR_LANES]; /* what the first open message of the lane depends on was complete */
} fault;

static uint64_t key_of(uint32_t slot, uint32_t generation) { return (uint64_t)slot << 32 | generation; }

static uint32_t place_of(const torn_set *t, uint64_t key) {
    uint32_t at = (uint32_t)(key * 0x9e3779b97f4a7c15u >> 32) & (t->room - 1);
    while (t->keys[at] && t->keys[at] != key) at = (at + 1) & (t->room - 1);
    return at;
}

static void *must(void *memory) {
    if (!memory) abort(); /* half a fault report would be a silent wrong answer */
    return memory;
}

static void torn_add(torn_set *t, uint64_t key) {
    if (2 * t->n >= t->room) {
        const torn_set old = *t;
        t->room = old.room ? 2 * old.room : 64;
        t->keys = must(calloc(t->room, sizeof *t->keys));
        t->torn = must(calloc(t->room, 1));
        for (uint32_t i = 0; i < old.room; i++) {
            if (!old.keys[i]) continue;
            const uint32_t at = place_of(t, old.keys[i]);
            t->keys[at] = old.keys[i];
            t->torn[at] = old.torn[i];
        }
        free(old.keys);
        free(old.torn);
    }
    const uint32_t at = place_of(t, key);
    t->n += t->keys[at] == 0;
    t->keys[at] = key;
    t->torn[at] = 1;
}

static void *grow(void *items, uint32_t n, size_t size) {
    if (n & (n - 1)) return items; /* room doubles at powers of two */
    return must(realloc(items, (n ? 2 * (size_t)n : 1) * size));
}

/* Three words of the ring, and an operand. */
typedef union {
    atomr_operand operand;
    uint64_t words[3];
} operand_words;

/* Where the first operand of the message at `cell` lies, in words of the ring, not wrapped. */
static uint64_t operands_at(atomr_sender *s, unsigned lane, uint64_t cell) {
    return cell * ATOMR_CELL_WORDS + ATOMR_HEAD_WORDS + atomr_head_at(s, lane, cell)->n_deps;
}

static unsigned read_operands(atomr_sender *s, unsigned lane, uint64_t cell, atomr_operand *out) {
    const uint64_t *words = atomr_ring_at(s->p, lane)[0].words;
    const uint64_t wrap = (uint64_t)s->cells * ATOMR_CELL_WORDS - 1;
    const unsigned n = atomr_head_at(s, lane, cell)->n_operands;
    uint64_t at = operands_at(s, lane, cell);
    for (unsigned i = 0; i < n; i++) {
        operand_words u;
        for (int k = 0; k < 3; k++) u.words[k] = words[at++ & wrap];
        out[i] = u.operand;
    }
    return n;
}

/* Changes a queued message, while no worker runs. */
static void write_operand(atomr_sender *s, unsigned lane, uint64_t cell, unsigned i, const atomr_operand *operand) {
    uint64_t *words = atomr_ring_at(s->p, lane)[0].words;
    const uint64_t wrap = (uint64_t)s->cells * ATOMR_CELL_WORDS - 1;
    const uint64_t at = operands_at(s, lane, cell) + 3 * i;
    const operand_words u = {.operand = *operand};
    for (int k = 0; k < 3; k++) words[(at + k) & wrap] = u.words[k];
}

/* A slot's bytes are not what any message has left there.  Volatile ones are stale anyway. */
static void tear(fault *f, uint32_t slot, uint32_t generation) {
    atomr_slot *a = atomr_live(f->s, slot, generation);
    if (!a) {
        if (slot) torn_add(&f->gone, key_of(slot, generation));
        return;
    }
    if (a->pool != ATOMR_DURABLE || a->internal || a->torn) return;
    if (a->group && atomr_find_group(f->s, a->group)->committed) return; /* goes back to its commit */
    a->torn = 1;
    f->out->n_torn++;
}

/* A queued message that will run writes all of it. */
static void mend(fault *f, uint32_t slot, uint32_t generation) {
    atomr_slot *a = atomr_live(f->s, slot, generation);
    if (a) {
        f->out->n_torn -= a->torn;
        a->torn = 0;
    } else if (f->gone.room || f->all_gone_torn) {
        torn_add(&f->gone, key_of(slot, generation));
        f->gone.torn[place_of(&f->gone, key_of(slot, generation))] = 0;
    }
}

static int is_torn(const fault *f, uint32_t slot, uint32_t generation) {
    const atomr_slot *a = atomr_live(f->s, slot, generation);
    if (a) return a->torn;
    if (f->gone.room) {
        const uint32_t at = place_of(&f->gone, key_of(slot, generation));
        if (f->gone.keys[at]) return f->gone.torn[at];
    }
    return f->all_gone_torn;
}

/* A message of several ranks fails: the others must know. */
static void note_key(fault *f, unsigned lane, uint64_t cell) {
    atomr_sender *s = f->s;
    const atomr_head *h = atomr_head_at(s, lane, cell);
    if (!(h->flags & ATOMR_KEYED)) return;
    const uint64_t *words = atomr_ring_at(s->p, lane)[0].words;
    const uint64_t wrap = (uint64_t)s->cells * ATOMR_CELL_WORDS - 1;
    const uint64_t at = cell * ATOMR_CELL_WORDS + ATOMR_HEAD_WORDS + h->n_deps + 3u * h->n_operands;
    f->out->keys = grow(f->out->keys, f->out->n_keys, sizeof *f->out->keys);
    f->out->keys[f->out->n_keys++] =
        (atomr_key){words[(at + ATOMR_KEY_MEETING) & wrap], words[(at + ATOMR_KEY_SEQUENCE) & wrap]};
}

/* Resolve the tickets after `from`, up to `upto`, as failed: with the error that the lane had reported, or
 * with `v`.  With `f`, those messages are suspects, and what they wrote is torn. */
static void fail_range(atomr_sender *s, unsigned lane, uint64_t from, uint64_t upto, const atomr_verdict *v, fault *f) {
    atomr_operand ops[ATOMR_MESSAGE_OPERANDS];
    atomr_send_lane *l = &s->lanes[lane];
    atomr_settle_range(s, lane, from);
    for (uint64_t ticket = from + 1; ticket <= upto; ticket++) {
        const uint64_t cell = *atomr_end_of(s, lane, ticket - 1);
        if (f) {
            f->out->suspects = grow(f->out->suspects, f->out->n_suspects, sizeof *f->out->suspects);
            f->out->suspects[f->out->n_suspects++] = (atomr_suspect){
                lane, atomr_head_at(s, lane, cell)->plan, ticket, ticket == from + 1 && f->may_run[lane]};
            note_key(f, lane, cell);
            const unsigned n = read_operands(s, lane, cell, ops);
            for (unsigned i = 0; i < n; i++)
                if (ops[i].access & ATOMR_WRITE) tear(f, ops[i].slot, ops[i].generation);
        }
        atomr_forget_commit(s, lane, ticket);
        atomr_verdict *own = atomr_take_failed(l, ticket);
        if (!own) {
            own = atomr_verdict_new((int)v->error.code, v->fault, v->error.text);
            own->lane = own->error.cause_lane = lane;
            own->error.ticket = own->error.cause_ticket = ticket;
            own->error.plan = own->error.cause_plan = atomr_head_at(s, lane, cell)->plan;
        }
        atomr_settle_failure(s, lane, ticket, own);
        atomr_verdict_unref(own);
    }
    while (l->n_failed) atomr_verdict_unref(l->failed[--l->n_failed]); /* of messages that nobody claimed */
    if (upto > l->floor) l->floor = upto;
    l->settled = l->floor;
    l->released = *atomr_end_of(s, lane, l->floor);
}

static int in_report(const atomr_fault_report *r, uint32_t group) {
    for (uint32_t i = 0; i < r->n_groups; i++)
        if (r->groups[i] == group) return 1;
    return 0;
}

/* The operand belongs to a group that goes back to its last commit. */
static int is_back(const fault *f, const atomr_operand *o) {
    const atomr_slot *a = atomr_live(f->s, o->slot, o->generation);
    return a && a->group && in_report(f->out, a->group);
}

/* Groups with a write after their last commit go back to it. */
static void find_dirty_groups(atomr_sender *s, atomr_fault_report *out) {
    for (uint32_t i = 0; i < s->n_groups; i++) {
        atomr_group *g = &s->groups[i];
        if (!g->committed) continue;
        int dirty = 0;
        for (uint32_t k = 1; k < s->fresh && !dirty; k++) {
            const atomr_slot *a = &s->slots[k];
            dirty = a->state == SLOT_LIVE && a->group == g->id && !a->internal && a->writer_order > g->committed;
        }
        if (!dirty) continue;
        g->n_pending = 0; /* queued commits are refused with all else that names a member */
        g->back = s->order;
        out->groups = grow(out->groups, out->n_groups, sizeof *out->groups);
        out->groups[out->n_groups++] = g->id;
    }
}

/* May the next worker run this message?  ATOMR_OK, or why not. */
static int judge(const fault *f, const atomr_operand *ops, unsigned n) {
    int void_memory = 0, rolled_back = 0, torn = 0;
    for (unsigned i = 0; i < n; i++) {
        const uint32_t segment = ops[i].segment;
        const int pool = segment < ATOMR_MAX_SEGMENTS ? f->s->segment_pool[segment] - 1 : ATOMR_VOLATILE;
        void_memory |= pool == ATOMR_VOLATILE || pool == ATOMR_FOREIGN;
        rolled_back |= is_back(f, &ops[i]);
        torn |= (ops[i].access & ATOMR_READ) && is_torn(f, ops[i].slot, ops[i].generation);
    }
    if (f->again) return torn ? ATOMR_STALE_TORN : ATOMR_OK;
    if (rolled_back) return ATOMR_STALE_ROLLED_BACK;
    if (void_memory) return ATOMR_STALE_RESTARTED;
    return torn ? ATOMR_STALE_TORN : ATOMR_OK;
}

static void judge_message(fault *f, unsigned lane, uint64_t cell, uint32_t epoch) {
    atomr_operand ops[ATOMR_MESSAGE_OPERANDS];
    atomr_head *h = atomr_head_at(f->s, lane, cell);
    const unsigned n = read_operands(f->s, lane, cell, ops);
    if (!h->refusal) h->refusal = (uint8_t)judge(f, ops, n);
    h->epoch = epoch;
    if (h->refusal) {
        f->out->n_refused++;
        /* What a refused message would have written is poisoned, but a group that is whole again stays so. */
        for (unsigned i = 0; i < n; i++) {
            if (!is_back(f, &ops[i])) continue;
            ops[i].access = ATOMR_READ;
            write_operand(f->s, lane, cell, i, &ops[i]);
        }
        return;
    }
    for (unsigned i = 0; i < n; i++)
        if (ops[i].access & ATOMR_OVERWRITE) mend(f, ops[i].slot, ops[i].generation);
    f->out->plans = grow(f->out->plans, f->out->n_plans, sizeof *f->out->plans);
    f->out->plans[f->out->n_plans++] = h->plan;
}

/* All queued messages in the order in which they were sent, since a whole overwrite makes torn memory good
 * for those after it. */
static void judge_queued(fault *f, uint32_t epoch) {
    atomr_sender *s = f->s;
    uint64_t next[ATOMR_LANES];
    for (unsigned i = 0; i < s->n_lanes; i++) next[i] = s->lanes[i].floor + 1;
    for (;;) {
        unsigned first = ATOMR_LANES;
        uint64_t cell = 0, order = UINT64_MAX;
        for (unsigned i = 0; i < s->n_lanes; i++) {
            if (next[i] > s->lanes[i].ticket) continue;
            const uint64_t at = *atomr_end_of(s, i, next[i] - 1);
            if (atomr_head_at(s, i, at)->order >= order) continue;
            order = atomr_head_at(s, i, at)->order;
            first = i;
            cell = at;
        }
        if (first == ATOMR_LANES) return;
        judge_message(f, first, cell, epoch);
        next[first]++;
    }
}

/* What the worker knew to be poisoned: no worker remembers that any more. */
static void tear_poisoned(fault *f) {
    atomr_sender *s = f->s;
    atomr_wheader *w = s->region->w;
    for (uint32_t i = 0; i < ATOMR_POISON_MIRROR; i++) {
        const uint64_t key = atomic_load(&w->poisoned[i]);
        if (key) tear(f, (uint32_t)(key >> 32), (uint32_t)key);
    }
    if (!atomic_load(&w->poison_overflow)) return;
    f->all_gone_torn = 1;
    for (uint32_t i = 1; i < s->fresh; i++)
        if (atomr_stamp_ticket(s->slots[i].writer)) tear(f, i, s->slots[i].generation);
}

/* The worker wrote it, and may have written anything. */
static void take_cause(atomr_sender *s, atomr_last_words *out) {
    const atomr_fault_note *note = &((atomr_wheader *)s->region->w)->fault;
    out->told = atomic_load(&note->state) == ATOMR_NOTE_WHOLE;
    if (!out->told) return;
    out->code = note->code;
    memcpy(out->lib, note->lib, sizeof out->lib - 1);
    memcpy(out->name, note->name, sizeof out->name - 1);
    memcpy(out->text, note->text, sizeof out->text - 1);
}

/* Of each lane's first open message: was it free to run?  While all lanes still show what was complete. */
static void find_runnable(fault *f) {
    atomr_sender *s = f->s;
    for (unsigned i = 0; i < s->n_lanes; i++) {
        const atomr_send_lane *l = &s->lanes[i];
        if (l->settled >= l->ticket) continue;
        const uint64_t cell = *atomr_end_of(s, i, l->settled);
        const uint64_t *words = atomr_ring_at(s->p, i)[0].words;
        const uint64_t wrap = (uint64_t)s->cells * ATOMR_CELL_WORDS - 1;
        const unsigned n = atomr_head_at(s, i, cell)->n_deps;
        f->may_run[i] = 1;
        for (unsigned k = 0; k < n && f->may_run[i]; k++) {
            const atomr_stamp stamp = words[(cell * ATOMR_CELL_WORDS + ATOMR_HEAD_WORDS + k) & wrap];
            f->may_run[i] = atomr_stamp_ticket(stamp) <= s->lanes[atomr_stamp_lane(stamp)].settled;
        }
    }
}

static void put_likely_first(atomr_fault_report *out) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < out->n_suspects; i++) {
        const atomr_suspect found = out->suspects[i];
        if (!found.likely) continue;
        memmove(out->suspects + n + 1, out->suspects + n, (i - n) * sizeof found);
        out->suspects[n++] = found;
    }
}

int atomr_sender_fault(atomr_sender *s, int code, uint32_t number, const char *text, atomr_fault_report *out) {
    memset(out, 0, sizeof *out);
    fault f = {.s = s, .out = out};
    atomr_lock(s);
    atomr_pheader *h = s->p;
    const uint32_t epoch = atomic_load(&h->epoch) + 1;
    atomic_store(&h->epoch, epoch);
    s->state = ATOMR_RESTARTING;
    for (unsigned i = 0; i < s->n_lanes; i++) atomr_drain(s, i);
    for (uint32_t i = 0; i < s->n_groups; i++) atomr_settle_group(s, &s->groups[i]);
    if (s->region) tear_poisoned(&f);
    if (s->region) take_cause(s, &out->cause);
    find_runnable(&f);
    atomr_verdict *v = atomr_verdict_new(code, number, text);
    for (unsigned i = 0; i < s->n_lanes; i++) {
        const atomr_send_lane *l = &s->lanes[i];
        const uint64_t done = l->settled;
        uint64_t claimed = done;
        if (s->region) claimed = atomic_load(&atomr_wlane_at(s->region->w, i)->claimed);
        if (claimed < done) claimed = done;
        if (claimed > l->ticket) claimed = l->ticket;
        fail_range(s, i, done, claimed, v, &f);
        atomr_plane *p = atomr_plane_at(s->p, i);
        p->base_cell = l->released;
        p->base_ticket = l->floor;
    }
    put_likely_first(out);
    atomr_drop_region(s);
    find_dirty_groups(s, out);
    judge_queued(&f, epoch);
    for (uint32_t i = 1; i < s->fresh; i++) {
        atomr_slot *a = &s->slots[i];
        if (a->state != SLOT_LIVE || atomr_is_domain(a)) continue; /* a domain goes with its last member */
        if ((a->pool == ATOMR_VOLATILE && !a->kept) || a->pool == ATOMR_FOREIGN) {
            atomr_retire(s, a);
            out->n_stale++;
        } else if (a->group && !a->internal && in_report(out, a->group)) {
            a->back = 1;
        }
    }
    for (unsigned i = 0; i < s->n_lanes; i++) atomr_update_wake(s, i);
    atomr_verdict_unref(v);
    free(f.gone.keys);
    free(f.gone.torn);
    atomr_unlock(s);
    return 0;
}

void atomr_sender_judge_again(atomr_sender *s) {
    atomr_fault_report report;
    memset(&report, 0, sizeof report);
    fault f = {.s = s, .out = &report, .again = 1};
    atomr_lock(s);
    judge_queued(&f, atomr_sender_epoch(s));
    atomr_unlock(s);
    free(f.gone.keys);
    free(f.gone.torn);
    atomr_fault_report_release(&report);
}

void atomr_sender_end(atomr_sender *s, int state, int code, uint32_t number, const char *text) {
    atomr_lock(s);
    s->state = state;
    atomr_verdict *v = atomr_verdict_new(code, number, text);
    for (unsigned i = 0; i < s->n_lanes; i++) {
        atomr_drain(s, i);
        fail_range(s, i, s->lanes[i].settled, s->lanes[i].ticket, v, NULL);
    }
    atomr_drop_region(s);
    for (uint32_t i = 1; i < s->fresh; i++)
        if (s->slots[i].state == SLOT_LIVE && !atomr_is_domain(&s->slots[i])) atomr_retire(s, &s->slots[i]);
    for (unsigned i = 0; i < s->n_lanes; i++) atomr_update_wake(s, i);
    atomr_verdict_unref(v);
    atomr_unlock(s);
}

void atomr_fault_report_release(atomr_fault_report *r) {
    free(r->suspects);
    free(r->plans);
    free(r->groups);
    free(r->keys);
    memset(r, 0, sizeof *r);
}
