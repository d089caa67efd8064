/* Messages whose outcome arrives with their completion.
 *
 * A run may declare info words (`atomr_call.late`), by which a factorisation reports that a matrix is singular, for
 * example.  The device writes them before the completion value, and no lane waits for either.  Until then the
 * message is suspended.  So is each message that reads its output, and, since failures are reported in the order of
 * tickets, each message of the lane that fails meanwhile.  While a lane has suspended messages, the device writes its
 * completion values to `arrived`.  The completer judges the messages that have arrived, poisons the outputs of those
 * that failed, and only then publishes `completed`: nobody sees a completion before its outcome is known.
 *
 * A message that reads an open outcome runs, unless it is sure to fail.  Should its operand turn out to be poisoned, it
 * fails as if it had not run, and its outputs are poisoned.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/lane_private.h"

int atomr_await_room(atomr_lane *l) {
    if (atomic_load_explicit(&l->n_suspended, memory_order_acquire) < ATOMR_INFOS) return 1;
    enum { SPINS = 2000 }; /* the oldest ends soon: a nap would take longer than a small message */
    atomr_signal_now(l);
    for (unsigned i = 0; atomic_load_explicit(&l->n_suspended, memory_order_acquire) >= ATOMR_INFOS; i++) {
        if (atomic_load(&l->worker->stopping) || atomr_faulted(l->worker)) return 0;
        if (i >= SPINS) usleep(20);
        else if (i % 16 == 15) sched_yield(); /* the completer may need this very processor */
        else atomr_pause();
    }
    return 1;
}

atomr_suspended *atomr_suspended_new(atomr_lane *l, const atomr_head *h, const atomr_operand *ops, int reads_open) {
    const size_t n = h->n_operands;
    atomr_suspended *m = calloc(1, sizeof *m + n * (sizeof *m->histories + sizeof *m->operands));
    if (!m) abort(); /* without it, its failure would be a silent wrong answer */
    m->ticket = h->ticket;
    m->plan = h->plan;
    m->histories = (atomr_history **)(m + 1);
    m->operands = (atomr_operand *)(m->histories + n);
    m->n_operands = h->n_operands;
    memcpy(m->operands, ops, n * sizeof *ops);
    if (reads_open)
        m->n_histories = atomr_poison_collect(&l->worker->poison, ops, h->n_operands, m->histories, &m->certain);
    return m;
}

void atomr_suspended_free(atomr_lane *l, atomr_suspended *m) {
    if (!m) return;
    atomr_poison_forget(&l->worker->poison, m->histories, m->n_histories, m->outcome);
    free(m);
}

/* Who decides about its outcome, beside what it has read. */
static uint32_t decider_of(const atomr_lane *l, const atomr_suspended *m, const atomr_late *late) {
    if (m->failed || m->certain || (late->judge && !late->meeting)) return 0;
    const uint32_t read = atomr_poison_decider(&l->worker->poison, m->histories, m->n_histories);
    if (!late->judge) return read;
    return !m->n_histories || read == late->meeting ? late->meeting : 0;
}

void atomr_suspend(atomr_lane *l, atomr_suspended *m, const atomr_error *error, const atomr_late *late) {
    atomr_poison *poison = &l->worker->poison;
    if (error) {
        m->failed = 1;
        m->error = *error;
        m->error.ticket = m->ticket;
        m->error.plan = m->plan;
        if (!error->inherited) {
            m->error.cause_plan = m->plan;
            m->error.cause_lane = l->index;
            m->error.cause_ticket = m->ticket;
        }
    }
    if (error && !m->n_histories) {
        atomr_poison_add(poison, m->operands, m->n_operands, &m->error);
    } else {
        m->outcome = atomr_outcome_new(m->failed || m->certain, decider_of(l, m, late));
        atomr_poison_suspend(poison, m->operands, m->n_operands, m->outcome);
    }
    m->late = *late;
    m->info = l->w->infos[l->infos++ % ATOMR_INFOS];
    /* Others may wait for its outcome without waiting for this lane.  Messages of several ranks come in queues, whose lane
     * sends the value before it blocks. */
    if (!(((const atomr_head *)l->message)->flags & ATOMR_KEYED)) l->prompt = 1;
    pthread_mutex_lock(&l->suspended_lock);
    if (l->last_suspended) l->last_suspended->next = m;
    else l->first_suspended = m;
    l->last_suspended = m;
    pthread_mutex_unlock(&l->suspended_lock);
    atomic_fetch_add_explicit(&l->n_suspended, 1, memory_order_release);
}

/* Find out what became of a message whose work is done; 0: something that it read is still open, or so is its own end. */
static int judge(atomr_lane *l, atomr_suspended *m) {
    atomr_poison *poison = &l->worker->poison;
    atomr_error cause;
    const atomr_content read = atomr_poison_judge(poison, m->histories, m->n_histories, &cause);
    if (read == ATOMR_OPEN_OUTCOME) return 0;
    if (read == ATOMR_POISONED) {
        m->failed = 1;
        m->error = cause;
        m->error.ticket = m->ticket;
        m->error.plan = m->plan;
        m->error.inherited = 1;
    } else if (m->certain) {
        abort(); /* it has not run, and nothing that it read has failed: its success would be a silent wrong answer */
    } else if (!m->failed && m->late.judge) {
        atomr_failure failure;
        memset(&failure, 0, sizeof failure);
        const int code = m->late.judge(m->late.context, m->info, &failure);
        if (code == ATOMR_UNDECIDED) return 0;
        m->failed = code != ATOMR_OK;
        if (m->failed) {
            atomr_error_of(&m->error, code, &failure);
            m->error.ticket = m->error.cause_ticket = m->ticket;
            m->error.plan = m->error.cause_plan = m->plan;
            m->error.cause_lane = l->index;
        }
    }
    if (m->outcome)
        atomr_poison_resolve(poison, m->operands, m->n_operands, m->outcome, m->failed ? &m->error : NULL);
    m->judged = 1;
    return 1;
}

static atomr_suspended *first_of(atomr_lane *l) {
    pthread_mutex_lock(&l->suspended_lock);
    atomr_suspended *m = l->first_suspended;
    pthread_mutex_unlock(&l->suspended_lock);
    return m;
}

static void take_first(atomr_lane *l) {
    pthread_mutex_lock(&l->suspended_lock);
    atomr_suspended *m = l->first_suspended;
    l->first_suspended = m->next;
    if (!m->next) l->last_suspended = NULL;
    pthread_mutex_unlock(&l->suspended_lock);
    atomr_suspended_free(l, m);
    atomic_fetch_sub_explicit(&l->n_suspended, 1, memory_order_release);
}

int atomr_judge_arrived(atomr_lane *l) {
    const uint64_t arrived = atomic_load_explicit(&l->w->arrived, memory_order_acquire);
    if (arrived <= atomic_load_explicit(&l->w->completed, memory_order_relaxed)) return 0;
    uint64_t upto = arrived;
    int is_full = 0;
    for (atomr_suspended *m; (m = first_of(l)) != NULL && m->ticket <= arrived; take_first(l)) {
        int resolved = m->judged || judge(l, m);
        if (resolved && m->failed && !atomr_try_report(l, &m->error)) {
            atomr_call_for_room(l);
            is_full = 1;
            resolved = 0;
        }
        if (!resolved) {
            upto = m->ticket - 1;
            break;
        }
        if (m->failed) atomr_prune_poison(l->worker);
    }
    if (upto > atomic_load_explicit(&l->w->completed, memory_order_relaxed)) atomic_store(&l->w->completed, upto);
    return is_full;
}

void atomr_forget_suspended(atomr_lane *l) {
    while (l->first_suspended) take_first(l);
    pthread_mutex_destroy(&l->suspended_lock);
}
