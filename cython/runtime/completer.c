/* Work that completes by itself: what an asynchronous backend adds to a lane, and the completer thread. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "runtime/lane_private.h"

enum { SIGNAL_EVERY = 16, CHECK_EVERY_NS = 900000, LONG_WAIT_NS = 1000000, SHORT_WAIT_NS = 50000, TIMER_SLACK_NS = 1000,
       OPEN_NAP_US = 10 };

void atomr_depend(atomr_lane *l, atomr_stamp stamp) {
    const atomr_backend *b = &l->worker->backend;
    const unsigned other = atomr_stamp_lane(stamp);
    /* What an earlier worker was given is over, and this device has never heard of it. */
    if (atomr_stamp_ticket(stamp) <= atomr_plane_at(l->worker->p, other)->base_ticket) return;
    if (atomr_faulted(l->worker)) return;
    /* Should the device refuse any of these, then its order or its completions are lost, and only a new worker can go
     * on; the parent resolves what was running. */
    if (b->depend(b->self, l->index, other, atomr_stamp_ticket(stamp))) atomr_worker_fault(l->worker, "ordering lanes");
}

void atomr_mark_launch(atomr_lane *l) {
    const atomr_backend *b = &l->worker->backend;
    if (atomr_faulted(l->worker)) return;
    if (b->launched(b->self, l->index, l->ticket)) atomr_worker_fault(l->worker, "marking a launch");
}

int atomr_run_met_fault(atomr_lane *l) {
    atomr_worker *k = l->worker;
    if (!k->backend.asynchronous) return 0;
    if (!atomr_faulted(k) && k->backend.check(k->backend.self)) atomr_worker_fault(k, "running a message");
    return atomr_faulted(k);
}

void atomr_signal_now(atomr_lane *l) {
    atomr_worker *k = l->worker;
    const uint64_t ticket = l->ticket;
    if (!k->backend.asynchronous || ticket == l->signalled || atomr_faulted(k)) return;
    /* By a detour while an outcome is open, and until all that took it is published: nothing must overtake that. */
    const int detour = atomic_load_explicit(&l->n_suspended, memory_order_acquire) > 0 ||
                       atomic_load(&l->w->completed) < l->detoured;
    if (detour) l->detoured = ticket;
    if (k->backend.signal(k->backend.self, l->index, ticket, detour ? &l->w->arrived : &l->w->completed)) {
        atomr_worker_fault(k, "signalling a completion");
        return;
    }
    l->signalled = ticket;
    atomic_store(&l->inflight, ticket);
    if (atomic_load(&k->completer_parked)) atomr_open_gate(k);
}

/* Whether somebody waits for work whose value was put off; a value at or below `signalled` is on its way. */
static int is_wanted(const atomr_lane *l) {
    const uint64_t wake_at = atomic_load(&l->p->wake_at);
    return wake_at <= l->ticket && wake_at > l->signalled;
}

/* A completion value is sent when somebody waits, when the device may have nothing else to do, after long work, for a
 * watchdog, or at every sixteenth message, since each such write keeps the stream for 2 us.  Who begins to wait after a
 * value was put off is served all the same: a lane that has messages either takes the next, and comes here again, or
 * blocks, and then sends the value first; a drained one looks at `atomr_may_hold_value` all the time. */
void atomr_signal_later(atomr_lane *l) {
    const int drained = atomic_load(&l->p->tail) == l->head;
    const int due = drained && ((((const atomr_head *)l->message)->flags & ATOMR_ASKED) || !atomr_may_hold_value(l));
    const atomr_pheader *header = l->worker->p;
    const int watched = atomic_load_explicit(&header->watched, memory_order_relaxed) != 0;
    if (due || watched || l->prompt || l->ticket - l->signalled >= SIGNAL_EVERY || is_wanted(l)) atomr_signal_now(l);
}

int atomr_may_hold_value(const atomr_lane *l) {
    return atomic_load(&l->w->completed) < l->signalled && !is_wanted(l);
}

typedef struct {
    atomr_lane *lane;   /* with work in flight; one that somebody waits for, if there is any */
    unsigned n_wanted;
    int progress;
    int is_full;        /* failures that have arrived find no room in an error ring */
} survey;

static survey look(atomr_worker *k) {
    survey s = {NULL, 0, 0, 0};
    for (unsigned i = 0; i < ATOMR_LANES; i++) {
        atomr_lane *l = atomr_lane_at(k, i);
        if (!l) continue;
        s.is_full = atomr_judge_arrived(l) || s.is_full;
        const uint64_t done = atomic_load(&l->w->completed);
        if (done != l->seen) {
            l->seen = done;
            s.progress = 1;
        }
        if (atomic_load(&l->held)) atomr_set_launched(l, done);
        atomr_published(l, done);
        const uint64_t inflight = atomic_load(&l->inflight);
        if (inflight <= done) continue;
        const uint64_t wake_at = atomic_load(&l->p->wake_at);
        const int wanted = wake_at <= inflight;
        /* `wait` is for the last of a lane: an earlier one is one more thing to look for meanwhile. */
        s.n_wanted += (unsigned)wanted + (wake_at < inflight);
        if (!s.lane || wanted) s.lane = l;
    }
    return s;
}

/* Compared with what was published, not with what is complete: the last value may have come meanwhile. */
static int is_idle(atomr_worker *k) {
    for (unsigned i = 0; i < ATOMR_LANES; i++) {
        const atomr_lane *l = atomr_lane_at(k, i);
        if (l && atomic_load(&l->inflight) != l->seen) return 0;
    }
    return 1;
}

/* All that was launched is done, whether it is published or not. */
static int has_arrived(atomr_worker *k) {
    for (unsigned i = 0; i < ATOMR_LANES; i++) {
        const atomr_lane *l = atomr_lane_at(k, i);
        if (!l) continue;
        const uint64_t inflight = atomic_load(&l->inflight);
        if (atomic_load(&l->w->completed) < inflight && atomic_load(&l->w->arrived) < inflight) return 0;
    }
    return 1;
}

/* Sleep until a lane has signalled something (1), or it is time to look after the idle device (0). */
static int park(atomr_worker *k) {
    const uint32_t gate = atomic_load(&k->gate);
    atomic_store(&k->completer_parked, 1);
    if (is_idle(k) && !atomic_load(&k->lanes_ended) && !atomr_faulted(k))
        atomr_futex_wait(&k->gate, gate, k->probe_ns);
    atomic_store(&k->completer_parked, 0);
    return atomic_load(&k->gate) != gate;
}

/* Watches what the device completes: wakes waiters, and asks for errors at least every millisecond while
 * work is in flight, and ten times a second while there is none.  Ends when the lanes have ended and all that they
 * launched is complete, or when the device has faulted. */
void *atomr_completer_main(void *argument) {
    atomr_worker *k = argument;
    pthread_setname_np(pthread_self(), "atomr-completer");
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS); /* else the system lets its short naps take 50 us more */
    uint64_t idle_since = atomr_now_ns(), checked = 0, probed = idle_since, spin = k->spin_ns;
    while (!atomr_faulted(k)) {
        const int ending = atomic_load(&k->lanes_ended);
        const survey s = look(k);
        const uint64_t now = atomr_now_ns();
        if (now - checked >= CHECK_EVERY_NS) {
            checked = now;
            if (k->backend.check(k->backend.self)) {
                atomr_worker_fault(k, "asking for errors");
                break;
            }
        }
        if (ending && is_idle(k)) return NULL;
        if (ending && s.is_full && !s.progress && has_arrived(k)) return NULL; /* nobody takes what failed any more */
        if (s.progress) { /* the next may take as long */
            atomr_spin_ended(&k->longer, spin, k->spin_ns);
            spin = atomr_spin_begins(&k->longer, atomr_spin_for(now - idle_since, k->spin_ns), k->spin_ns);
            idle_since = now;
        }
        if (now - idle_since < spin) {
            atomr_pause();
            continue;
        }
        atomr_spin_ended(&k->longer, spin, k->spin_ns);
        spin = k->spin_ns;
        if (s.lane) {
            /* Its work is done, but what it has read, or another rank, is not yet. */
            if (atomic_load(&s.lane->w->arrived) >= atomic_load(&s.lane->inflight)) {
                usleep(OPEN_NAP_US);
                continue;
            }
            /* Other lanes that are waited for finish in their own order: then look around more often. */
            k->backend.wait(k->backend.self, s.lane->index, atomic_load(&s.lane->inflight),
                            s.n_wanted > 1 ? SHORT_WAIT_NS : LONG_WAIT_NS);
        } else {
            if (k->backend.probe && now - probed >= (uint64_t)k->probe_ns && !ending) {
                probed = now;
                if (k->backend.probe(k->backend.self)) {
                    atomr_worker_fault(k, "looking after an idle device");
                    break;
                }
            }
            if (park(k)) idle_since = atomr_now_ns();
        }
    }
    return NULL;
}

int atomr_run_noop(void *context, const atomr_call *call, atomr_failure *failure) {
    (void)context, (void)call, (void)failure;
    return ATOMR_OK;
}

int atomr_run_copy(void *context, const atomr_call *call, atomr_failure *failure) {
    (void)context, (void)failure;
    memmove(call->pointers[1], call->pointers[0], call->scalars[0]);
    return ATOMR_OK;
}
