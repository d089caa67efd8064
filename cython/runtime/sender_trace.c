/* What traces and watchdogs read of messages: what they wait for, and when their lanes worked at them. */
#define _GNU_SOURCE
#include "runtime/sender_private.h"

void atomr_sender_trace(atomr_sender *s, int more) {
    _Atomic uint32_t *traced = &((atomr_pheader *)s->p)->traced;
    if (more)
        atomic_fetch_add(traced, 1);
    else
        atomic_fetch_sub(traced, 1);
}

void atomr_sender_watch(atomr_sender *s) { atomic_store(&((atomr_pheader *)s->p)->watched, 1); }

int atomr_sent_deps(atomr_sender *s, unsigned lane, uint64_t ticket, atomr_stamp *out) {
    if (lane >= ATOMR_LANES) return -1;
    int n = -1;
    atomr_lock(s);
    const atomr_send_lane *l = &s->lanes[lane];
    /* `ends` is known for twice as many tickets as there are cells, and a message has at least one. */
    if (l->open && ticket && ticket <= l->ticket && l->ticket - ticket < s->cells) {
        const uint64_t at = ticket == 1 ? 0 : *atomr_end_of(s, lane, ticket - 1);
        const atomr_head *head = atomr_head_at(s, lane, at);
        if (l->tail - at <= s->cells && head->ticket == ticket) {
            const uint64_t *words = atomr_ring_at(s->p, lane)[0].words;
            const uint64_t mask = (uint64_t)s->cells * ATOMR_CELL_WORDS - 1;
            n = head->n_deps;
            for (int i = 0; i < n; i++) out[i] = words[(at * ATOMR_CELL_WORDS + ATOMR_HEAD_WORDS + (unsigned)i) & mask];
        }
    }
    atomr_unlock(s);
    return n;
}

unsigned atomr_read_spans(atomr_sender *s, unsigned lane, atomr_span_place *place, atomr_span_copy *out, unsigned most) {
    if (lane >= ATOMR_LANES) return 0;
    atomr_lock(s);
    atomr_region *r = s->region;
    const uint64_t sent = s->lanes[lane].ticket;
    if (r) r->refs++;
    atomr_unlock(s);
    if (!r) return 0;
    if (place->region != r->number) { /* another worker, which counts anew */
        place->region = r->number;
        place->next = 0;
    }
    atomr_wlane *w = atomr_wlane_at(r->w, lane);
    uint64_t end = atomic_load_explicit(&w->n_spans, memory_order_acquire);
    unsigned n = 0;
    if (end > sent) end = sent; /* a worker may write anything */
    if (end > place->next + ATOMR_SPANS) {
        place->lost += end - ATOMR_SPANS - place->next;
        place->next = end - ATOMR_SPANS;
    }
    for (; place->next < end && n < most; place->next++) {
        atomr_span *span = &w->spans[place->next % ATOMR_SPANS];
        const atomr_span_copy copy = {atomic_load_explicit(&span->ticket, memory_order_acquire),
                                      atomic_load_explicit(&span->began_ns, memory_order_acquire),
                                      atomic_load_explicit(&span->ended_ns, memory_order_acquire)};
        /* It is overwritten by the entry that is as many further, from when that is the next. */
        if (atomic_load_explicit(&w->n_spans, memory_order_acquire) >= place->next + ATOMR_SPANS)
            place->lost++;
        else if (copy.ticket && copy.ticket <= sent && copy.began_ns <= copy.ended_ns)
            out[n++] = copy;
    }
    atomr_lock(s);
    atomr_unref_region(r);
    atomr_unlock(s);
    return n;
}
