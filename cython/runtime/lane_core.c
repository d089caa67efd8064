/* What the thread of a lane does with its messages. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/lane_private.h"

static void bump_and_wake(_Atomic uint32_t *word) {
    atomic_fetch_add(word, 1);
    atomr_futex_wake(word);
}

/* Wake whoever waits for `completed`: parked threads, and the eventfds of event loops.
 *
 * `wake_at` is the lowest open ticket that anybody waits for.  It stays as it is until a woken thread
 * gets to run, so each value is notified once; `rewake` says that the parent raised `wake_at` past
 * somebody whose ticket had just completed, which may have been before this function looked.  It may even know of
 * later completions than `completed`: event loops that wait for those are found by `sub_next`, whatever `wake_at` says. */
static void notify_if_wanted(atomr_lane *l, uint64_t completed) {
    const uint64_t wake_at = atomic_load(&l->p->wake_at);
    const uint64_t rewake = atomic_load(&l->p->rewake); /* after wake_at: the parent writes it before */
    if (rewake == l->last_rewake && l->sub_next > completed && (wake_at > completed || wake_at == l->last_notified))
        return;
    const int wakes_threads = rewake != l->last_rewake || wake_at != l->last_notified;
    l->last_rewake = rewake;
    if (wake_at <= completed) l->last_notified = wake_at;
    l->sub_next = UINT64_MAX;
    if (wakes_threads) bump_and_wake(&l->w->wake_seq); /* each then looks anew, and lowers `wake_at` again */
    for (unsigned i = 0; i < ATOMR_SUBSCRIBERS; i++) {
        const uint64_t wanted = atomic_load(&l->p->sub_wanted[i]);
        if (wanted > completed) {
            if (wanted < l->sub_next) l->sub_next = wanted; /* it sleeps on: nobody lowers `wake_at` to it */
        } else if (l->last_wanted[i] != wanted) {
            l->last_wanted[i] = wanted;
            atomr_ring_eventfd(l->worker, i);
        }
    }
}

void atomr_published(atomr_lane *l, uint64_t completed) {
    const uint64_t failed = atomic_load_explicit(&l->failed, memory_order_acquire);
    if (failed != l->failures_told && completed > l->failures_told) {
        /* Only now may the parent take the entries.  Those of later tickets are told of again. */
        atomr_ring_eventfd(l->worker, 0);
        l->failures_told = completed < failed ? completed : failed;
    }
    notify_if_wanted(l, completed);
}

void atomr_set_launched(atomr_lane *l, uint64_t ticket) {
    uint64_t before = atomic_load_explicit(&l->launched, memory_order_relaxed);
    while (before < ticket && !atomic_compare_exchange_weak(&l->launched, &before, ticket)) {}
    if (atomic_load(&l->launch_waiters)) bump_and_wake(&l->launch_seq);
}

/* A statistic with one writer: no locked instruction needed. */
static void count(_Atomic uint64_t *counter, uint64_t n) {
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

/* Spin for `wanted_ns`, and until `awake_until` has passed, unless enough threads spin already; 1 as soon as `word`
 * reaches `target`.  When it does not, then nothing that the lane has launched waits for its completion value. */
static int spin_until(atomr_lane *l, const _Atomic uint64_t *word, uint64_t target, uint64_t wanted_ns,
                      const _Atomic uint64_t *awake_until) {
    atomr_worker *k = l->worker;
    if (atomic_load_explicit(word, memory_order_acquire) >= target) return 1;
    int32_t others = atomic_fetch_add(&k->spinners, 1);
    const int many = others >= k->max_spinners;
    const uint64_t spin = many ? k->spin_ns / 16 : atomr_spin_begins(&k->longer, wanted_ns, k->spin_ns);
    const uint64_t end = atomr_now_ns() + spin;
    int reached = 0, holds = k->backend.asynchronous && l->signalled != l->ticket;
    for (unsigned i = 1; !reached; i++) {
        if (holds && !atomr_may_hold_value(l)) {
            atomr_signal_now(l);
            holds = 0;
        }
        atomr_pause();
        reached = atomic_load_explicit(word, memory_order_acquire) >= target;
        if (i % 64) continue;
        const uint64_t now = atomr_now_ns();
        if (now >= end && (many || now >= atomic_load_explicit(awake_until, memory_order_relaxed))) break;
        if (atomic_load_explicit(&k->stopping, memory_order_relaxed)) break;
        sched_yield(); /* what it waits for may be done by a thread of this very processor */
    }
    atomr_spin_ended(&k->longer, spin, k->spin_ns);
    atomic_fetch_sub(&k->spinners, 1);
    if (holds && !reached) atomr_signal_now(l);
    return reached;
}

/* Wait until `lane` has published more than `head` cells; 0 when the worker stops. */
static int wait_for_message(atomr_lane *l) {
    atomr_worker *k = l->worker;
    if (atomic_load_explicit(&l->p->tail, memory_order_acquire) > l->head) return !atomic_load(&k->stopping);
    l->clock = 0;
    const uint64_t began = atomr_now_ns();
    for (uint64_t spin = atomr_spin_for(l->idle_ns, k->spin_ns);; spin = k->spin_ns) {
        if (atomic_load(&k->stopping)) return 0;
        if (spin_until(l, &l->p->tail, l->head + 1, spin, &l->p->awake_until)) {
            l->idle_ns = atomr_now_ns() - began;
            return 1;
        }
        uint32_t bell = atomic_load(&l->p->doorbell);
        atomic_store(&l->w->parked, 1);
        if (atomic_load(&l->p->tail) <= l->head && !atomic_load(&k->stopping)) {
            count(&l->w->parks, 1);
            atomr_futex_wait(&l->p->doorbell, bell, k->nap_ns);
        }
        atomic_store(&l->w->parked, 0);
    }
}

/* Wait until `stamp` has been launched; 0 when the worker stops. */
static int wait_for_launch(atomr_lane *l, atomr_stamp stamp) {
    atomr_worker *k = l->worker;
    const unsigned index = atomr_stamp_lane(stamp);
    const uint64_t ticket = atomr_stamp_ticket(stamp);
    atomr_lane *other;
    while (!(other = atomr_lane_at(k, index))) {
        /* It was opened after messages had been sent to it, and they are ahead of this one. */
        if (atomr_plane_at(k->p, index)->base_ticket >= ticket) return 1;
        if (atomic_load(&k->stopping)) return 0;
        atomr_signal_now(l);
        usleep(200);
    }
    if (atomic_load_explicit(&other->launched, memory_order_acquire) >= ticket) return 1;
    atomr_signal_now(l); /* this lane may block, and somebody may wait for what it has launched */
    static const _Atomic uint64_t no_longer;
    while (!spin_until(l, &other->launched, ticket, k->spin_ns, &no_longer)) {
        if (atomic_load(&k->stopping)) return 0;
        atomic_fetch_add(&other->launch_waiters, 1);
        uint32_t seq = atomic_load(&other->launch_seq);
        if (atomic_load(&other->launched) < ticket && !atomic_load(&k->stopping))
            atomr_futex_wait(&other->launch_seq, seq, k->nap_ns);
        atomic_fetch_sub(&other->launch_waiters, 1);
    }
    return 1;
}

int atomr_try_report(atomr_lane *l, const atomr_error *error) {
    const uint32_t n = atomic_load_explicit(&l->w->errors, memory_order_relaxed);
    if (n - atomic_load(&l->p->errors_taken) >= ATOMR_ERRORS) return 0;
    l->w->ring[n % ATOMR_ERRORS] = *error;
    atomic_store(&l->w->errors, n + 1);
    atomic_store_explicit(&l->failed, error->ticket, memory_order_release);
    count(&l->w->failed, 1);
    return 1;
}

/* Whoever waits takes entries: subscriber 0 alone may be in a callback that waits, too. */
void atomr_call_for_room(atomr_lane *l) {
    for (unsigned s = 0; s < ATOMR_SUBSCRIBERS; s++) atomr_ring_eventfd(l->worker, s);
    bump_and_wake(&l->w->wake_seq);
}

/* Report a failure; waits while the parent has not taken the oldest one.  0 when the worker stops first: then the
 * message must not complete, since that would look like success. */
static int report(atomr_lane *l, const atomr_error *error) {
    if (atomr_try_report(l, error)) return 1;
    atomr_signal_now(l);
    for (unsigned i = 0; !atomr_try_report(l, error); i++) {
        if (atomic_load(&l->worker->stopping)) return 0;
        if (i % 64 == 0) atomr_call_for_room(l);
        usleep(100);
    }
    return 1;
}

static void published_cells(void *self, uint64_t *cells) {
    atomr_worker *k = self;
    for (unsigned i = 0; i < ATOMR_LANES; i++) cells[i] = atomic_load(&atomr_plane_at(k->p, i)->tail);
}

static void processed_cells(void *self, uint64_t *cells) {
    atomr_worker *k = self;
    for (unsigned i = 0; i < ATOMR_LANES; i++) {
        const atomr_lane *l = atomr_lane_at(k, i);
        cells[i] = l ? atomic_load_explicit(&l->processed, memory_order_acquire)
                     : atomr_plane_at(k->p, i)->base_cell; /* not opened yet: all of its messages are ahead */
    }
}

void atomr_prune_poison(atomr_worker *k) {
    if (atomr_poison_is_large(&k->poison))
        atomr_poison_prune(&k->poison, atomr_generations(k->p),
                           &(atomr_progress){published_cells, processed_cells, k});
}

/* Resolve a message as failed: poison what it would have written, then report it. */
static int fail(atomr_lane *l, const atomr_head *h, const atomr_operand *ops, atomr_error *error) {
    atomr_worker *k = l->worker;
    error->ticket = h->ticket;
    error->plan = h->plan;
    if (!error->inherited) {
        error->cause_plan = h->plan;
        error->cause_lane = l->index;
        error->cause_ticket = h->ticket;
    }
    atomr_poison_add(&k->poison, ops, h->n_operands, error);
    atomr_prune_poison(k);
    return report(l, error);
}

/* Copy the next message out of the ring; 0 if its header makes no sense. */
static int take(atomr_lane *l) {
    const atomr_cell *ring = atomr_ring_at(l->worker->p, l->index);
    uint32_t mask = l->worker->cells - 1;
    const atomr_cell *first = &ring[l->head & mask];
    unsigned n = first->head.n_cells;
    if (n == 0 || n > ATOMR_MAX_CELLS || n > atomic_load(&l->p->tail) - l->head) return 0;
    for (unsigned i = 0; i < n; i++)
        memcpy(&l->message[i * ATOMR_CELL_WORDS], &ring[(l->head + i) & mask], sizeof(atomr_cell));
    /* The next message, which the sender's processor has in its cache, travels while this one runs. */
    const char *next = (const char *)&ring[(l->head + n) & mask];
    for (unsigned i = 0; i < sizeof(atomr_cell); i += 64) __builtin_prefetch(next + i);
    const atomr_head *h = (const atomr_head *)l->message;
    unsigned words = ATOMR_HEAD_WORDS + h->n_deps + 3u * h->n_operands + h->n_scalars;
    if (h->n_cells != n || h->ticket != l->ticket + 1 || words > n * ATOMR_CELL_WORDS ||
        h->n_operands > ATOMR_MESSAGE_OPERANDS || h->n_scalars > ATOMR_MAX_SCALARS || h->n_deps > ATOMR_LANES)
        return 0;
    for (unsigned i = 0; i < h->n_deps; i++)
        if (atomr_stamp_lane(l->message[ATOMR_HEAD_WORDS + i]) >= ATOMR_LANES) return 0;
    return 1;
}

void atomr_fill_error(atomr_error *error, int code, const char *text) {
    memset(error, 0, sizeof *error);
    error->code = (uint32_t)code;
    snprintf(error->lib, sizeof error->lib, "atomr");
    snprintf(error->text, sizeof error->text, "%s", text);
}

void atomr_error_of(atomr_error *error, int code, const atomr_failure *failure) {
    atomr_fill_error(error, code > 0 && code < ATOMR_CODES ? code : ATOMR_LIBRARY_ERROR, "");
    error->status = failure->status;
    memccpy(error->lib, failure->lib, 0, sizeof error->lib - 1);
    memccpy(error->name, failure->name, 0, sizeof error->name - 1);
    memccpy(error->text, failure->text, 0, sizeof error->text - 1);
}

/* Why a message must not run, into `error`; 0 and its plan when nothing speaks against it.  `*open`: it reads what a
 * message has written whose outcome is open. */
static int find_refusal(atomr_lane *l, const atomr_head *h, const atomr_operand *ops, const atomr_plan **plan,
                        atomr_error *error, int *open) {
    atomr_worker *k = l->worker;
    if (h->refusal) {
        atomr_fill_error(error, h->refusal, "");
        return 1;
    }
    if (h->epoch != atomic_load_explicit(&((const atomr_pheader *)k->p)->epoch, memory_order_acquire)) {
        atomr_fill_error(error, ATOMR_STALE_RESTARTED, "");
        return 1;
    }
    const atomr_content read = atomr_poison_find(&k->poison, ops, h->n_operands, error);
    if (read == ATOMR_POISONED) {
        error->inherited = 1;
        return 1;
    }
    *open = read == ATOMR_OPEN_OUTCOME;
    const atomr_plan *found = atomr_plan_at(k, h->plan);
    if (!found || found->n_operands != h->n_operands || found->n_scalars != h->n_scalars) {
        atomr_fill_error(error, ATOMR_INVALID_REQUEST, "the plan of this message is not loaded in the worker");
        return 1;
    }
    for (unsigned i = 0; i < h->n_operands; i++) {
        l->pointers[i] = atomr_worker_address(k, ops[i].segment, ops[i].offset, 0);
        if (l->pointers[i]) continue;
        atomr_fill_error(error, ATOMR_INVALID_REQUEST, "an operand lies in a segment that the worker has not mapped");
        return 1;
    }
    *plan = found;
    return 0;
}

/* For a trace.  The fields are released one by one: a reader that sees one of them sees that the entry before is out. */
static void note_span(atomr_lane *l, uint64_t ticket, uint64_t began) {
    const uint64_t n = atomic_load_explicit(&l->w->n_spans, memory_order_relaxed);
    atomr_span *span = &l->w->spans[n % ATOMR_SPANS];
    atomic_store_explicit(&span->ticket, ticket, memory_order_release);
    atomic_store_explicit(&span->began_ns, began, memory_order_release);
    atomic_store_explicit(&span->ended_ns, l->clock, memory_order_release);
    atomic_store_explicit(&l->w->n_spans, n + 1, memory_order_release);
}

/* On a cautious worker, wait until it is this message's turn to run; 0 when the worker stops. */
static int take_turn(atomr_lane *l, const atomr_head *h) {
    if (!atomic_load_explicit(&l->worker->cautious, memory_order_relaxed)) return 1;
    if (!atomr_take_turn(l, h->plan)) return 0;
    l->clock = 0;
    return 1;
}

/* Wait until messages that hold are complete, unless this one is of the same plan; 0: the worker stops. */
static int await_held(atomr_lane *l, const atomr_head *h) {
    enum { SPINS = 2000 };
    const uint64_t held = atomic_load_explicit(&l->held, memory_order_relaxed);
    if (!held || h->plan == l->holding) return 1;
    atomr_signal_now(l);
    for (unsigned i = 0; atomic_load(&l->w->completed) < held; i++) {
        if (atomic_load(&l->worker->stopping) || atomr_faulted(l->worker)) return 0;
        if (i >= SPINS) usleep(20);
        else if (i % 16 == 15) sched_yield(); /* the completer may need this very processor */
        else atomr_pause();
    }
    atomic_store(&l->held, 0);
    atomr_set_launched(l, l->ticket);
    l->clock = 0;
    return 1;
}

/* Run one message; 0 when the worker stops before the message could be resolved. */
static int process(atomr_lane *l) {
    atomr_worker *k = l->worker;
    const atomr_head *h = (const atomr_head *)l->message;
    l->holds = 0;
    if (!await_held(l, h)) return 0;
    const uint64_t *deps = l->message + ATOMR_HEAD_WORDS;
    const atomr_operand *ops = (const atomr_operand *)(deps + h->n_deps);
    const uint64_t *scalars = (const uint64_t *)(ops + h->n_operands);
    /* Also for a message that will not run: what is ordered after it is, through it, after these. */
    for (unsigned i = 0; i < h->n_deps; i++) {
        if (!wait_for_launch(l, deps[i])) return 0;
        if (k->backend.asynchronous) atomr_depend(l, deps[i]);
    }
    if (h->n_deps) l->clock = 0; /* the end of the message before may lie before the ends of these */
    if (atomr_faulted(k)) return 0; /* its order is lost */
    atomr_error error;
    const atomr_plan *plan = NULL;
    if (!atomr_await_room(l)) return 0;
    int open = 0, failed = find_refusal(l, h, ops, &plan, &error, &open);
    /* A message of several ranks is claimed before it votes, since the others count on it, and takes its turn after. */
    const int keyed = (h->flags & ATOMR_KEYED) != 0;
    atomr_suspended *suspended = open ? atomr_suspended_new(l, h, ops, 1) : NULL;
    if (keyed && suspended && !(h->n_scalars >= ATOMR_KEY_WORDS && atomr_is_tied(l, suspended, scalars))) {
        atomr_suspended_free(l, suspended);
        suspended = NULL;
        const int known = atomr_await_outcomes(l, h, ops, &error);
        if (!known) return 0;
        failed = known < 0;
        l->clock = 0;
    }
    atomr_late late = {NULL, NULL, 0};
    l->prompt = 0;
    int runs = !failed && !(suspended && suspended->certain);
    if (runs && !keyed && !take_turn(l, h)) {
        atomr_suspended_free(l, suspended);
        return 0;
    }
    uint64_t began = l->clock ? l->clock : atomr_now_ns();
    atomic_store_explicit(&l->w->started_ns, began, memory_order_relaxed);
    atomic_store_explicit(&l->w->claimed, h->ticket, memory_order_release);
    if (keyed) {
        const int ready = atomr_vote_on(l, h, scalars, failed, &error);
        failed = ready < 0;
        runs = ready > 0 && !(suspended && suspended->certain);
        if (!ready || (runs && !take_turn(l, h))) {
            atomr_suspended_free(l, suspended);
            return 0;
        }
        began = atomr_now_ns();
        atomic_store_explicit(&l->w->started_ns, began, memory_order_relaxed);
    }
    if (runs) {
        const atomr_call call = {l->index, h->n_operands, h->n_scalars, h->ticket, l->pointers, scalars,
                                 atomic_load_explicit(&l->workspace, memory_order_relaxed),
                                 atomic_load_explicit(&l->workspace_bytes, memory_order_relaxed), &l->prompt,
                                 &late, l->w->infos[l->infos % ATOMR_INFOS], &l->after, &l->holds};
        atomr_failure failure;
        failure.status = 0;
        failure.lib[0] = failure.name[0] = failure.text[0] = 0; /* clearing all of it costs as much as a no-op */
        int code = plan->run(plan->context, &call, &failure);
        if (code == ATOMR_OK && late.judge && !k->backend.asynchronous) {
            code = late.judge(late.context, call.info, &failure); /* which decides: it has finished */
            late.judge = NULL;
        }
        if (code != ATOMR_OK) {
            if (atomr_run_met_fault(l)) { /* which some message caused; this one is only a suspect */
                atomr_suspended_free(l, suspended);
                return 0;
            }
            failed = 1; /* and if `late` is set, the device may write the info words all the same: they stay its own */
            atomr_error_of(&error, code, &failure);
            if (keyed) atomr_tell_ranks(k, scalars, &error);
        }
    }
    if (suspended || late.judge || (failed && atomic_load_explicit(&l->n_suspended, memory_order_acquire))) {
        if (!suspended) suspended = atomr_suspended_new(l, h, ops, 0);
        atomr_suspend(l, suspended, failed ? &error : NULL, &late);
    } else if (!failed) {
        atomr_poison_lift(&k->poison, ops, h->n_operands);
    } else if (!fail(l, h, ops, &error)) {
        return 0;
    }
    l->ran = !failed;
    count(&l->w->messages, 1);
    l->clock = atomr_now_ns();
    count(&l->w->busy_ns, l->clock - began);
    /* Beside `epoch`, which was just read: it costs nothing but the comparison. */
    if (atomic_load_explicit(&((const atomr_pheader *)k->p)->traced, memory_order_relaxed))
        note_span(l, h->ticket, began);
    return 1;
}

/* The message is launched, and on a synchronous backend it is complete. */
static void finish(atomr_lane *l) {
    const atomr_head *h = (const atomr_head *)l->message;
    l->ticket++;
    l->head += h->n_cells;
    atomic_store_explicit(&l->processed, l->head, memory_order_release);
    if (l->worker->backend.asynchronous) {
        atomr_mark_launch(l);
        if (l->holds) l->holding = h->plan;
        if (l->holds || atomic_load_explicit(&l->held, memory_order_relaxed)) atomic_store(&l->held, l->ticket);
        else atomr_set_launched(l, l->ticket);
        atomr_signal_later(l);
    } else {
        atomic_store(&l->w->completed, l->ticket);
        atomr_set_launched(l, l->ticket);
        atomr_published(l, l->ticket);
    }
}

static void do_after(atomr_lane *l) {
    const atomr_after after = l->after;
    l->after.run = NULL;
    after.run(after.context);
    l->clock = 0;
}

void *atomr_lane_main(void *argument) {
    atomr_lane *l = argument;
    atomr_worker *k = l->worker;
    char name[16];
    snprintf(name, sizeof name, "atomr-lane-%u", l->index);
    pthread_setname_np(pthread_self(), name);
    while (!atomic_load(&k->going) && !atomic_load(&k->stopping)) {
        uint32_t gate = atomic_load(&k->gate);
        if (!atomic_load(&k->going) && !atomic_load(&k->stopping)) atomr_futex_wait(&k->gate, gate, k->nap_ns);
    }
    atomic_store(&l->w->state, 1);
    while (wait_for_message(l)) {
        if (!take(l)) {
            fprintf(stderr, "atomr: lane %u: message %llu is malformed; the lane stops\n", l->index,
                    (unsigned long long)(l->ticket + 1));
            abort(); /* the mailbox is the parent's: if it is broken, nothing here can be trusted */
        }
        if (!process(l)) break;
        finish(l);
        if (l->after.run) do_after(l);
        if (l->turn != ATOMR_NO_TURN) atomr_end_turn(l);
    }
    atomr_signal_now(l);
    atomic_store(&l->w->state, 2);
    if (k->lane_ends) k->lane_ends();
    return NULL;
}
