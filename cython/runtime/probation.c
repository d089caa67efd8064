/* Probation: the first message of a suspect plan runs while nothing else of the device does.
 *
 * A death with several suspects convicts nobody.  The next worker is told of them before it goes, and is cautious: its
 * runs and builds take turns.  All others share a turn; a suspect has its own, which begins when all that was launched
 * has completed, and ends when its message has.  So a second death has one suspect, and a completed message clears its
 * plan.  A message is claimed in its turn, so one that waits for its turn is no suspect.
 *
 * A message may need another one to end, so a suspect does not wait, or hold others up, for more than `patience_ns`.
 * After that it runs like others, and stays a suspect for the parent. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/lane_private.h"

enum { NAP_US = 100 };

void atomr_worker_be_cautious(atomr_worker *k, int cautious) { atomic_store(&k->cautious, cautious); }

int atomr_worker_suspect(atomr_worker *k, uint32_t plan) {
    pthread_mutex_lock(&k->turns);
    uint32_t *more = realloc(k->suspects, (k->n_suspects + 1) * sizeof *more);
    if (more) {
        k->suspects = more;
        k->suspects[k->n_suspects++] = plan;
    }
    pthread_mutex_unlock(&k->turns);
    return more ? 0 : -1;
}

static int is_suspect(const atomr_worker *k, uint32_t plan) {
    for (unsigned i = 0; i < k->n_suspects; i++)
        if (k->suspects[i] == plan) return 1;
    return 0;
}

static void drop(atomr_worker *k, uint32_t plan) {
    for (unsigned i = 0; i < k->n_suspects; i++)
        if (k->suspects[i] == plan) k->suspects[i--] = k->suspects[--k->n_suspects];
}

void atomr_drop_suspect(atomr_worker *k, uint32_t plan) {
    pthread_mutex_lock(&k->turns);
    drop(k, plan);
    pthread_mutex_unlock(&k->turns);
}

/* All that was launched is complete.  A lane that has nothing to do, or waits for its turn, signals what it launched. */
static int is_drained(atomr_worker *k) {
    for (unsigned i = 0; i < ATOMR_LANES; i++) {
        const atomr_lane *l = atomr_lane_at(k, i);
        if (l && atomic_load(&l->w->completed) < atomic_load(&l->launched)) return 0;
    }
    return 1;
}

/* With the lock, which is released meanwhile.  0: the worker stops. */
static int nap(atomr_worker *k, atomr_lane *l) {
    pthread_mutex_unlock(&k->turns);
    if (l) atomr_signal_now(l); /* others may wait for what it has launched */
    usleep(NAP_US);
    pthread_mutex_lock(&k->turns);
    return !atomic_load(&k->stopping);
}

/* With the lock. */
static atomr_turn take(atomr_worker *k, atomr_lane *l, int suspect, uint32_t plan) {
    while (k->alone)
        if (!nap(k, l)) return ATOMR_NO_TURN;
    if (suspect || (l && is_suspect(k, plan))) {
        const uint64_t end = atomr_now_ns() + (uint64_t)k->patience_ns;
        k->alone = 1; /* nobody else begins anything */
        while (k->sharing || !is_drained(k)) {
            const int stays = nap(k, l), late = atomr_now_ns() >= end;
            if (stays && !late) continue;
            k->alone = 0;
            if (!stays) return ATOMR_NO_TURN;
            break;
        }
        if (k->alone) return ATOMR_ALONE;
        drop(k, plan);
    }
    k->sharing++;
    return ATOMR_SHARED;
}

static void end(atomr_worker *k, atomr_turn turn) {
    if (turn == ATOMR_ALONE) k->alone = 0;
    if (turn == ATOMR_SHARED) k->sharing--;
}

int atomr_take_turn(atomr_lane *l, uint32_t plan) {
    atomr_worker *k = l->worker;
    pthread_mutex_lock(&k->turns);
    l->turn = take(k, l, 0, plan);
    pthread_mutex_unlock(&k->turns);
    return l->turn != ATOMR_NO_TURN;
}

void atomr_end_turn(atomr_lane *l) {
    atomr_worker *k = l->worker;
    const atomr_head *h = (const atomr_head *)l->message;
    const uint64_t until = atomr_now_ns() + (uint64_t)k->patience_ns;
    pthread_mutex_lock(&k->turns);
    if (l->turn == ATOMR_ALONE) {
        atomr_wheader *w = k->w;
        int complete;
        while (!(complete = atomic_load(&l->w->completed) >= h->ticket) && nap(k, l) && atomr_now_ns() < until) continue;
        if (l->ran || !complete) drop(k, h->plan);
        const uint32_t n = atomic_load_explicit(&w->n_acquitted, memory_order_relaxed);
        if (l->ran && complete && n < ATOMR_ACQUITTED) {
            atomic_store_explicit(&w->acquitted[n], h->plan, memory_order_relaxed);
            atomic_store(&w->n_acquitted, n + 1);
        }
    }
    end(k, l->turn);
    l->turn = ATOMR_NO_TURN;
    pthread_mutex_unlock(&k->turns);
}

atomr_turn atomr_worker_begin_build(atomr_worker *k, int suspect) {
    if (!atomic_load(&k->cautious)) return ATOMR_NO_TURN;
    pthread_mutex_lock(&k->turns);
    const atomr_turn turn = take(k, NULL, suspect, UINT32_MAX);
    pthread_mutex_unlock(&k->turns);
    return turn;
}

void atomr_worker_end_build(atomr_worker *k, atomr_turn turn) {
    pthread_mutex_lock(&k->turns);
    end(k, turn);
    pthread_mutex_unlock(&k->turns);
}
