/* What a lane does with messages that several ranks run together: see meeting.h. */
#define _GNU_SOURCE
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "runtime/lane_private.h"

int atomr_is_tied(atomr_lane *l, const atomr_suspended *m, const uint64_t *scalars) {
    return !m->certain && atomr_poison_decider(&l->worker->poison, m->histories, m->n_histories) ==
                              (uint32_t)scalars[ATOMR_KEY_MEETING] + 1;
}

int atomr_await_outcomes(atomr_lane *l, const atomr_head *h, const atomr_operand *ops, atomr_error *error) {
    enum { SPINS = 2000 }; /* a small collective ends within microseconds, and a nap takes longer */
    atomr_signal_now(l);
    for (unsigned i = 0;; i++) {
        const atomr_content read = atomr_poison_find(&l->worker->poison, ops, h->n_operands, error);
        if (read == ATOMR_CLEAN) return 1;
        if (read == ATOMR_POISONED) {
            error->inherited = 1;
            return -1;
        }
        if (atomic_load(&l->worker->stopping) || atomr_faulted(l->worker)) return 0;
        if (i >= SPINS) usleep(20);
        else if (i % 16 == 15) sched_yield(); /* the completer may need this very processor */
        else atomr_pause();
    }
}

int atomr_vote_on(atomr_lane *l, const atomr_head *h, const uint64_t *scalars, int refused, atomr_error *error) {
    atomr_worker *k = l->worker;
    const uint64_t number = h->n_scalars >= ATOMR_KEY_WORDS ? scalars[ATOMR_KEY_MEETING] : ATOMR_MEETINGS;
    atomr_page *page = number < ATOMR_MEETINGS
                           ? atomic_load_explicit(&k->meetings[number].page, memory_order_acquire) : NULL;
    if (!page) { /* the parent makes them known before it sends */
        atomr_fill_error(error, ATOMR_INVALID_REQUEST, "the communicator of this message is not known to the worker");
        return -1;
    }
    atomr_error why;
    atomic_store_explicit(&l->w->started_ns, 0, memory_order_relaxed); /* it waits; the watchdog does not count that */
    const unsigned rank = k->meetings[number].rank;
    const uint64_t sequence = scalars[ATOMR_KEY_SEQUENCE];
    atomr_page_cast(page, rank, sequence, refused ? error : NULL);
    /* In a queue of such messages the others are as far.  Where they are not, or connect, this lane is about to block. */
    enum { SPINS = 100 };
    for (unsigned i = 0; i < SPINS && !atomr_page_is_full(page, sequence); i++) atomr_pause();
    if (!atomr_page_is_full(page, sequence)) atomr_signal_now(l);
    const int met = atomr_page_count(page, rank, sequence, &k->stopping, &why);
    if (met == ATOMR_LEFT) return 0;
    if (met == ATOMR_MET && !atomr_page_connection(page, sequence)) atomr_signal_now(l);
    if (refused) return -1;
    if (met == ATOMR_MET) return 1;
    *error = why;
    return -1;
}

void atomr_tell_ranks(atomr_worker *k, const uint64_t *scalars, const atomr_error *error) {
    atomr_page *page = atomic_load_explicit(&k->meetings[scalars[ATOMR_KEY_MEETING]].page, memory_order_acquire);
    const unsigned rank = k->meetings[scalars[ATOMR_KEY_MEETING]].rank;
    if (!page || strcmp(error->lib, "rank") == 0 || atomr_page_has_failed(page, rank, scalars[ATOMR_KEY_SEQUENCE])) return;
    atomr_page_fail(page, rank, scalars[ATOMR_KEY_SEQUENCE], error->lib, error->status, error->name, error->text);
}
