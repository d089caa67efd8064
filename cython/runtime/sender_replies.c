/* What came of messages: replies, the errors that lanes report, and orphans. */
#include <stdlib.h>
#include <string.h>

#include "runtime/sender_private.h"

void atomr_link_reply(atomr_send_lane *l, atomr_reply *r) {
    r->prev = l->last;
    r->next = NULL;
    r->linked = 1;
    if (l->last) l->last->next = r;
    else l->first = r;
    l->last = r;
}

static void unlink_reply(atomr_send_lane *l, atomr_reply *r) {
    if (!r->linked) return;
    if (r->prev) r->prev->next = r->next;
    else l->first = r->next;
    if (r->next) r->next->prev = r->prev;
    else l->last = r->prev;
    r->linked = 0;
}

void atomr_verdict_unref(atomr_verdict *v) {
    if (v && --v->refs == 0) free(v);
}

atomr_verdict *atomr_verdict_new(int code, uint32_t fault, const char *text) {
    atomr_verdict *v = calloc(1, sizeof *v);
    if (!v) abort(); /* a failure that nobody can be told of would be a silent wrong answer */
    v->refs = 1;
    v->fault = fault;
    v->error.code = (uint32_t)code;
    if (text) strncpy(v->error.text, text, sizeof v->error.text - 1);
    return v;
}

static void add_orphan(atomr_sender *s, atomr_verdict *v) {
    if (s->n_orphans == s->cap_orphans && s->first_orphan > s->n_orphans / 2) {
        s->n_orphans -= s->first_orphan;
        memmove(s->orphans, s->orphans + s->first_orphan, s->n_orphans * sizeof *s->orphans);
        s->first_orphan = 0;
    }
    if (s->n_orphans == s->cap_orphans) {
        uint32_t cap = s->cap_orphans ? 2 * s->cap_orphans : 64;
        atomr_verdict **grown = realloc(s->orphans, cap * sizeof *grown);
        if (!grown) abort();
        s->orphans = grown;
        s->cap_orphans = cap;
    }
    v->refs++;
    s->orphans[s->n_orphans++] = v;
}

void atomr_settle_range(atomr_sender *s, unsigned lane, uint64_t upto) {
    atomr_send_lane *l = &s->lanes[lane];
    while (l->first && l->first->ticket <= upto) {
        l->first->settled = 1;
        unlink_reply(l, l->first);
    }
}

void atomr_settle_failure(atomr_sender *s, unsigned lane, uint64_t ticket, atomr_verdict *v) {
    atomr_send_lane *l = &s->lanes[lane];
    atomr_reply *r = l->first;
    if (!r || r->ticket != ticket) {
        add_orphan(s, v);
        return;
    }
    unlink_reply(l, r);
    r->settled = 1;
    r->verdict = v;
    v->refs++;
}

/* Copy an entry, and make sense of whatever a worker may have written. */
static atomr_verdict *copy_error(const atomr_error *entry, unsigned lane) {
    atomr_verdict *v = atomr_verdict_new(0, 0, NULL);
    atomr_error *e = &v->error;
    v->lane = lane;
    *e = *entry;
    e->lib[sizeof e->lib - 1] = e->name[sizeof e->name - 1] = e->text[sizeof e->text - 1] = 0;
    /* What only the parent can find out is not believed. */
    if (e->code == ATOMR_OK || e->code >= ATOMR_CODES || e->code == ATOMR_DEPENDENCY_FAILED ||
        e->code == ATOMR_DEVICE_FAULT || e->code == ATOMR_DEVICE_LOST)
        e->code = ATOMR_LIBRARY_ERROR;
    e->inherited = e->inherited != 0;
    if (e->cause_lane >= ATOMR_LANES) e->cause_lane = lane;
    return v;
}

static void keep_failed(atomr_send_lane *l, atomr_verdict *v) {
    if (l->n_failed == l->cap_failed) {
        uint32_t cap = l->cap_failed ? 2 * l->cap_failed : ATOMR_ERRORS;
        atomr_verdict **grown = realloc(l->failed, cap * sizeof *grown);
        if (!grown) abort();
        l->failed = grown;
        l->cap_failed = cap;
    }
    l->failed[l->n_failed++] = v;
}

/* Free the entries of the error ring at once, so that the lane goes on; what they say of tickets that are
 * still open (on an asynchronous backend a message may fail before its forerunners are done) is kept. */
static void take_errors(atomr_sender *s, unsigned lane) {
    atomr_send_lane *l = &s->lanes[lane];
    const atomr_wlane *w = atomr_wlane_at(s->region->w, lane);
    atomr_plane *p = atomr_plane_at(s->p, lane);
    uint32_t taken = atomic_load_explicit(&p->errors_taken, memory_order_relaxed);
    uint32_t n = atomic_load(&w->errors);
    if (n == taken || n - taken > ATOMR_ERRORS) return; /* more than there is room for: nonsense */
    for (; taken != n; taken++) {
        atomr_verdict *v = copy_error(&w->ring[taken % ATOMR_ERRORS], lane);
        if (v->error.ticket <= l->last_failed || v->error.ticket > l->ticket) {
            atomr_verdict_unref(v); /* nonsense too: a lane fails in order, and only what was sent */
            continue;
        }
        l->last_failed = v->error.ticket;
        atomr_forget_commit(s, lane, v->error.ticket);
        keep_failed(l, v);
    }
    atomic_store(&p->errors_taken, n);
}

atomr_verdict *atomr_take_failed(atomr_send_lane *l, uint64_t ticket) {
    atomr_verdict *found = NULL;
    uint32_t gone = 0;
    while (gone < l->n_failed && l->failed[gone]->error.ticket <= ticket) {
        atomr_verdict_unref(found);
        found = l->failed[gone++];
    }
    l->n_failed -= gone;
    if (gone) memmove(l->failed, l->failed + gone, l->n_failed * sizeof *l->failed);
    if (found && found->error.ticket == ticket) return found;
    atomr_verdict_unref(found);
    return NULL;
}

void atomr_drain(atomr_sender *s, unsigned lane) {
    atomr_send_lane *l = &s->lanes[lane];
    const uint64_t done = atomr_completed(s, lane); /* before the errors are read: theirs come first */
    if (s->region) take_errors(s, lane);
    uint32_t gone = 0;
    for (; gone < l->n_failed && l->failed[gone]->error.ticket <= done; gone++) {
        atomr_verdict *v = l->failed[gone];
        atomr_settle_range(s, lane, v->error.ticket - 1);
        atomr_settle_failure(s, lane, v->error.ticket, v);
        atomr_verdict_unref(v);
    }
    l->n_failed -= gone;
    if (gone) memmove(l->failed, l->failed + gone, l->n_failed * sizeof *l->failed);
    atomr_settle_range(s, lane, done);
    l->settled = done;
}

void atomr_drain_all(atomr_sender *s) {
    for (unsigned i = 0; s->region && i < s->n_lanes; i++) {
        const atomr_wlane *w = atomr_wlane_at(s->region->w, i);
        const atomr_plane *p = atomr_plane_at(s->p, i);
        if (atomic_load(&w->errors) != atomic_load_explicit(&p->errors_taken, memory_order_relaxed) ||
            s->lanes[i].n_failed)
            atomr_drain(s, i);
    }
}

int atomr_reply_settle(atomr_sender *s, atomr_reply *r) {
    atomr_lock(s);
    if (r->linked && r->ticket <= atomr_completed(s, r->lane)) atomr_drain(s, r->lane);
    int settled = r->settled;
    atomr_unlock(s);
    return settled;
}

void atomr_reply_drop(atomr_sender *s, atomr_reply *r) {
    atomr_lock(s);
    unlink_reply(&s->lanes[r->lane], r);
    atomr_verdict_unref(r->verdict);
    r->verdict = NULL;
    atomr_unlock(s);
}

atomr_verdict *atomr_next_orphan(atomr_sender *s) {
    atomr_lock(s);
    atomr_drain_all(s);
    atomr_verdict *v = NULL;
    if (s->first_orphan < s->n_orphans) {
        v = s->orphans[s->first_orphan++];
        if (s->first_orphan == s->n_orphans) s->first_orphan = s->n_orphans = 0;
    }
    atomr_unlock(s);
    return v;
}

void atomr_verdict_release(atomr_sender *s, atomr_verdict *v) {
    atomr_lock(s);
    atomr_verdict_unref(v);
    atomr_unlock(s);
}
