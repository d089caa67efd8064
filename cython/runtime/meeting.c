#include "runtime/meeting.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

enum { MAGIC = 0x474d5241, SPIN_NS = 20000, SLICE_NS = 100000000 };

static uint64_t staging_at(void) { return (sizeof(atomr_page) + 4095u) & ~(uint64_t)4095u; }

uint64_t atomr_page_bytes(unsigned n_ranks) { return staging_at() + 2 * ATOMR_PIECE * n_ranks; }

void atomr_page_init(atomr_page *p, unsigned n_ranks) {
    p->magic = MAGIC;
    p->abi = ATOMR_ABI;
    p->nbytes = atomr_page_bytes(n_ranks);
    p->n_ranks = n_ranks;
    p->staging_at = staging_at();
}

int atomr_page_fits(const atomr_page *p, uint64_t nbytes) {
    return nbytes >= sizeof *p && p->magic == MAGIC && p->abi == ATOMR_ABI && p->nbytes == nbytes && p->n_ranks >= 1 &&
           p->n_ranks <= ATOMR_RANKS && p->staging_at == staging_at() && atomr_page_bytes(p->n_ranks) == nbytes;
}

void *atomr_page_stage(atomr_page *p, unsigned rank, unsigned parity) {
    return (char *)p + staging_at() + ATOMR_PIECE * (2 * (uint64_t)rank + (parity & 1));
}

/* After a change.  Who sleeps has counted itself before it looked for the change for the last time. */
static void ring(atomr_page *p) {
    if (!atomic_load(&p->sleepers)) return;
    atomic_fetch_add(&p->bell, 1);
    atomr_futex_wake(&p->bell);
}

void atomr_page_lose(atomr_page *p, unsigned rank, uint64_t sequence, uint32_t code, uint32_t fault) {
    atomr_seat *seat = &p->seats[rank];
    if (atomic_load(&seat->lost) >= sequence) return;
    seat->code = code;
    seat->fault = fault;
    atomic_store(&seat->lost, sequence);
    ring(p);
}

void atomr_page_bury(atomr_page *p, unsigned rank, uint32_t code, uint32_t fault) {
    atomr_seat *seat = &p->seats[rank];
    seat->code = code;
    seat->fault = fault;
    atomic_fetch_add(&seat->deaths, 1);
    ring(p);
}

void atomr_page_begin(atomr_page *p, unsigned rank) { atomic_store(&p->ranks[rank].connection, 0); }

/* What a rank that could take part fails with, because another one cannot: for `MessageErrors` of the parent. */
static void tell(atomr_error *why, const atomr_seat *seat, uint32_t code, int32_t status, const char *lib,
                 const char *name, const char *text) {
    memset(why, 0, sizeof *why);
    why->code = ATOMR_LIBRARY_ERROR;
    why->status = status;
    snprintf(why->lib, sizeof why->lib, "rank");
    snprintf(why->name, sizeof why->name, "%.15s\n%u\n%.12s\n%.30s", seat->device, code, lib, name);
    snprintf(why->text, sizeof why->text, "%.400s", text);
}

static void tell_loss(atomr_error *why, const atomr_seat *seat) {
    tell(why, seat, seat->code, (int32_t)seat->fault, "", "", "");
}

static void tell_vote(atomr_error *why, const atomr_seat *seat, const atomr_vote *vote) {
    /* A worker wrote it: its texts may not end. */
    char lib[16], name[64], text[400];
    snprintf(lib, sizeof lib, "%.*s", (int)sizeof vote->lib - 1, vote->lib);
    snprintf(name, sizeof name, "%.*s", (int)sizeof vote->name - 1, vote->name);
    snprintf(text, sizeof text, "%.*s", (int)sizeof vote->text - 1, vote->text);
    tell(why, seat, atomic_load(&vote->code), vote->status, lib, name, text);
}

static int has_voted(const atomr_page *p, unsigned rank, uint64_t sequence) {
    return atomic_load(&p->ranks[rank].votes[sequence & 1].sequence) == sequence;
}

static int has_stepped(const atomr_page *p, unsigned rank, uint64_t target) {
    return atomic_load(&p->ranks[rank].step) >= target;
}

/* Whether a rank is past the vote on a message on which another one still counts: then all were ready. */
static int has_begun(const atomr_page *p, uint64_t sequence) {
    for (unsigned i = 0; i < p->n_ranks; i++)
        if (has_stepped(p, i, sequence << ATOMR_STEP_BITS | ATOMR_STEP_BEGUN)) return 1;
    return 0;
}

/* Where a rank is lost, others do not wait for each other, and may have voted twice since: a vote may be overwritten.  One
 * that is only not here yet is waited for: pages of other processes have the words of one rank after those of another. */
static int has_voted_or_begun(const atomr_page *p, unsigned rank, uint64_t sequence) {
    const uint64_t last = atomic_load(&p->ranks[rank].votes[sequence & 1].sequence);
    return last == sequence || (last > sequence && has_begun(p, sequence));
}

/* A rank that is lost and has not come to `step` of a message, so that no rank can pass it; ATOMR_RANKS: none.  What a
 * rank wrote before it died is there once it is seen to be lost. */
static unsigned find_lost(atomr_page *p, uint64_t sequence, uint64_t step) {
    for (unsigned i = 0; i < p->n_ranks; i++)
        if (atomic_load(&p->seats[i].lost) >= sequence && !has_stepped(p, i, sequence << ATOMR_STEP_BITS | step))
            return i;
    return ATOMR_RANKS;
}

/* Wait until a rank has voted, or stepped, or some rank is lost before `step`. */
static int await(atomr_page *p, unsigned rank, int (*done)(const atomr_page *, unsigned, uint64_t), uint64_t target,
                 uint64_t sequence, uint64_t step, const _Atomic int *stopping, atomr_error *why) {
    uint64_t end = 0;
    for (unsigned i = 0;; i++) {
        if (done(p, rank, target)) return ATOMR_MET;
        const unsigned lost = find_lost(p, sequence, step);
        if (lost != ATOMR_RANKS) {
            tell_loss(why, &p->seats[lost]);
            return ATOMR_NOT_MET;
        }
        if (atomic_load(stopping)) return ATOMR_LEFT;
        const uint64_t now = atomr_now_ns();
        if (!end) end = now + SPIN_NS;
        if (now < end) {
            atomr_pause();
            if (i % 8 == 7) sched_yield(); /* it may need this very processor */
            continue;
        }
        atomic_fetch_add(&p->sleepers, 1);
        const uint32_t bell = atomic_load(&p->bell);
        if (!done(p, rank, target) && find_lost(p, sequence, step) == ATOMR_RANKS)
            atomr_futex_wait(&p->bell, bell, SLICE_NS);
        atomic_fetch_sub(&p->sleepers, 1);
    }
}

void atomr_page_cast(atomr_page *p, unsigned rank, uint64_t sequence, const atomr_error *refusal) {
    atomr_vote *mine = &p->ranks[rank].votes[sequence & 1];
    atomic_store(&mine->sequence, 0); /* who reads the vote that was here finds out that it may be another one */
    atomic_store(&mine->code, refusal ? refusal->code : ATOMR_OK);
    if (refusal) {
        mine->status = refusal->status;
        memcpy(mine->lib, refusal->lib, sizeof mine->lib);
        memcpy(mine->name, refusal->name, sizeof mine->name);
        memcpy(mine->text, refusal->text, sizeof mine->text - 1);
        mine->text[sizeof mine->text - 1] = 0;
    }
    atomic_store(&mine->connection, atomic_load(&p->ranks[rank].connection));
    atomic_store(&mine->sequence, sequence);
    ring(p);
}

int atomr_page_is_full(const atomr_page *p, uint64_t sequence) {
    for (unsigned i = 0; i < p->n_ranks; i++)
        if (!has_voted(p, i, sequence)) return 0;
    return 1;
}

int atomr_page_count(atomr_page *p, unsigned rank, uint64_t sequence, const _Atomic int *stopping, atomr_error *why) {
    int result = ATOMR_MET;
    for (unsigned i = 0; i < p->n_ranks; i++) {
        if (i == rank) continue;
        atomr_error first;
        const int met = await(p, i, has_voted_or_begun, sequence, sequence, ATOMR_STEP_BEGUN, stopping, &first);
        if (met == ATOMR_LEFT) return met;
        if (met == ATOMR_MET) {
            const atomr_vote *theirs = &p->ranks[i].votes[sequence & 1];
            if (atomic_load(&theirs->code) == ATOMR_OK || !has_voted(p, i, sequence)) continue;
            tell_vote(&first, &p->seats[i], theirs);
        }
        if (result == ATOMR_MET) *why = first; /* the first one, by rank; and wait for the others all the same */
        result = ATOMR_NOT_MET;
    }
    if (result == ATOMR_MET) atomic_store(&p->ranks[rank].step, sequence << ATOMR_STEP_BITS | ATOMR_STEP_BEGUN);
    return result;
}

int atomr_page_meet(atomr_page *p, unsigned rank, uint64_t sequence, uint64_t step, const _Atomic int *stopping,
                    atomr_error *why) {
    const uint64_t target = sequence << ATOMR_STEP_BITS | step;
    atomic_store(&p->ranks[rank].step, target);
    ring(p);
    for (unsigned i = 0; i < p->n_ranks; i++) {
        if (i == rank) continue;
        const int met = await(p, i, has_stepped, target, sequence, step, stopping, why);
        if (met != ATOMR_MET) return met;
        if (atomic_load(&p->ranks[i].step) == (sequence << ATOMR_STEP_BITS | ATOMR_STEP_FAILED)) {
            tell_vote(why, &p->seats[i], &p->ranks[i].votes[sequence & 1]);
            return ATOMR_NOT_MET;
        }
    }
    return ATOMR_MET;
}

int atomr_page_follow(atomr_page *p, unsigned other, uint64_t sequence, uint64_t step, const _Atomic int *stopping,
                      atomr_error *why) {
    const uint64_t target = sequence << ATOMR_STEP_BITS | step;
    const int met = await(p, other, has_stepped, target, sequence, step, stopping, why);
    if (met != ATOMR_MET || !atomr_page_has_failed(p, other, sequence)) return met;
    tell_vote(why, &p->seats[other], &p->ranks[other].votes[sequence & 1]);
    return ATOMR_NOT_MET;
}

int atomr_page_conclude(atomr_page *p, unsigned rank, unsigned other, uint64_t sequence, uint64_t step,
                        atomr_error *why) {
    if (atomic_load(&p->seats[other].lost) >= sequence) {
        tell_loss(why, &p->seats[other]);
        return ATOMR_NOT_MET;
    }
    atomic_store(&p->ranks[rank].step, sequence << ATOMR_STEP_BITS | step);
    ring(p);
    return ATOMR_MET;
}

int atomr_page_note_copied(atomr_page *p, unsigned rank, unsigned other, uint64_t sequence, atomr_error *why) {
    _Atomic uint64_t *copied = &p->ranks[rank].copied;
    uint64_t before = atomic_load(copied);
    const int lost = atomic_load(&p->seats[other].lost) >= sequence;
    while (before < sequence && !atomic_compare_exchange_weak(copied, &before, sequence)) {}
    if (lost) tell_loss(why, &p->seats[other]);
    return lost ? ATOMR_NOT_MET : ATOMR_MET;
}

int atomr_page_has_copied(const atomr_page *p, unsigned other, uint64_t sequence, atomr_error *why) {
    const atomr_vote *failure = &p->failures[other][sequence % ATOMR_FAILURES];
    const int lost = atomic_load(&p->seats[other].lost) >= sequence; /* first: what it noted before that counts */
    const int noted = atomic_load(&p->ranks[other].copied) >= sequence;
    if (atomic_load(&failure->sequence) == sequence) { /* its step and its vote may be of later messages already */
        tell_vote(why, &p->seats[other], failure);
        return ATOMR_NOT_MET;
    }
    if (noted) return ATOMR_MET;
    if (lost) tell_loss(why, &p->seats[other]);
    return lost ? ATOMR_NOT_MET : ATOMR_PENDING;
}

static void explain(atomr_vote *vote, const char *lib, int status, const char *name, const char *text) {
    vote->status = status;
    snprintf(vote->lib, sizeof vote->lib, "%s", lib);
    snprintf(vote->name, sizeof vote->name, "%s", name);
    snprintf(vote->text, sizeof vote->text, "%s", text);
    atomic_store(&vote->code, ATOMR_LIBRARY_ERROR);
}

void atomr_page_fail(atomr_page *p, unsigned rank, uint64_t sequence, const char *lib, int status, const char *name,
                     const char *text) {
    atomr_vote *failure = &p->failures[rank][sequence % ATOMR_FAILURES];
    atomic_store(&failure->sequence, 0);
    explain(failure, lib, status, name, text);
    atomic_store(&failure->sequence, sequence);
    explain(&p->ranks[rank].votes[sequence & 1], lib, status, name, text);
    atomic_store(&p->ranks[rank].step, sequence << ATOMR_STEP_BITS | ATOMR_STEP_FAILED);
    ring(p);
}

int atomr_page_has_failed(const atomr_page *p, unsigned rank, uint64_t sequence) {
    return atomic_load(&p->ranks[rank].step) == (sequence << ATOMR_STEP_BITS | ATOMR_STEP_FAILED);
}

uint64_t atomr_page_connection(const atomr_page *p, uint64_t sequence) {
    const uint64_t first = atomic_load(&p->ranks[0].votes[sequence & 1].connection);
    for (unsigned i = 1; i < p->n_ranks; i++)
        if (atomic_load(&p->ranks[i].votes[sequence & 1].connection) != first) return 0;
    return atomr_page_is_full(p, sequence) ? first : 0; /* else they are of other votes */
}

int atomr_page_all_have(const atomr_page *p, uint64_t connection) {
    for (unsigned i = 0; i < p->n_ranks; i++)
        if (atomic_load(&p->ranks[i].connection) != connection) return 0;
    return 1;
}

void atomr_page_count_deaths(const atomr_page *p, _Atomic uint32_t *deaths) {
    for (unsigned i = 0; i < p->n_ranks; i++) atomic_store(&deaths[i], atomic_load(&p->seats[i].deaths));
}

uint64_t atomr_page_connected(const atomr_page *p) {
    const uint64_t first = atomic_load(&p->ranks[0].connection);
    for (unsigned i = 1; i < p->n_ranks; i++)
        if (atomic_load(&p->ranks[i].connection) != first) return 0;
    return first;
}

int atomr_page_examine(const atomr_page *p, unsigned rank, uint64_t connection, const _Atomic uint32_t *deaths,
                       atomr_error *why) {
    /* Deaths first: a rank fails because another has died, when that is known. */
    for (unsigned i = 0; i < p->n_ranks; i++) {
        if (i == rank || atomic_load(&p->seats[i].deaths) == atomic_load(&deaths[i])) continue;
        tell_loss(why, &p->seats[i]);
        return ATOMR_RANK_DEAD;
    }
    for (unsigned i = 0; i < p->n_ranks; i++) {
        const uint64_t step = atomic_load(&p->ranks[i].step), sequence = step >> ATOMR_STEP_BITS;
        if (i == rank || sequence < connection || (step & ATOMR_STEP_FAILED) != ATOMR_STEP_FAILED) continue;
        tell_vote(why, &p->seats[i], &p->ranks[i].votes[sequence & 1]);
        return ATOMR_RANK_FAILED;
    }
    return ATOMR_UP;
}
