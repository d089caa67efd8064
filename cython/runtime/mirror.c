#include "runtime/mirror.h"

#include <string.h>

/* Copy what its writer may be writing: what is torn is copied again, once it is announced. */
__attribute__((no_sanitize_thread)) static void copy(void *to, const void *from, size_t size) {
    const volatile char *x = from;
    for (char *y = to; size; size--) *y++ = *x++;
}

static void read_vote(const atomr_vote *vote, atomr_vote_words *w) {
    w->sequence = atomic_load(&vote->sequence);
    w->code = atomic_load(&vote->code);
    copy(&w->status, &vote->status, sizeof w->status);
    w->connection = atomic_load(&vote->connection);
    copy(w->lib, vote->lib, sizeof w->lib);
    copy(w->name, vote->name, sizeof w->name);
    copy(w->text, vote->text, sizeof w->text);
}

static void write_vote(atomr_vote *vote, const atomr_vote_words *w) {
    const int same = atomic_load(&vote->sequence) == w->sequence; /* the rank has failed since, or votes again soon */
    if (same && atomic_load(&vote->code) == w->code) return;
    if (!same) atomic_store(&vote->sequence, 0);
    vote->status = w->status;
    if (!same) atomic_store(&vote->connection, w->connection);
    memcpy(vote->lib, w->lib, sizeof w->lib);
    memcpy(vote->name, w->name, sizeof w->name);
    memcpy(vote->text, w->text, sizeof w->text);
    atomic_store(&vote->code, w->code);
    atomic_store(&vote->sequence, w->sequence);
}

void atomr_mirror_read(const atomr_page *p, unsigned rank, atomr_rank_words *w) {
    const atomr_rank *r = &p->ranks[rank];
    const atomr_seat *seat = &p->seats[rank];
    memset(w, 0, sizeof *w);
    w->deaths = atomic_load(&seat->deaths);
    w->lost = atomic_load(&seat->lost);
    copy(&w->code, &seat->code, sizeof w->code);
    copy(&w->fault, &seat->fault, sizeof w->fault);
    w->step = atomic_load(&r->step);
    w->connection = atomic_load(&r->connection);
    copy(w->id, r->id, sizeof w->id);
    for (unsigned i = 0; i < 2; i++) read_vote(&r->votes[i], &w->votes[i]);
}

void atomr_mirror_write(atomr_page *p, unsigned rank, const atomr_rank_words *w) {
    atomr_rank *r = &p->ranks[rank];
    atomr_seat *seat = &p->seats[rank];
    for (unsigned i = 0; i < 2; i++) write_vote(&r->votes[i], &w->votes[i]);
    memcpy(r->id, w->id, sizeof w->id);
    atomic_store(&r->connection, w->connection);
    atomic_store(&r->step, w->step);
    seat->code = w->code;
    seat->fault = w->fault;
    atomic_store(&seat->lost, w->lost);
    atomic_store(&seat->deaths, w->deaths);
    atomic_fetch_add(&p->bell, 1);
    if (atomic_load(&p->sleepers)) atomr_futex_wake(&p->bell);
}

uint32_t atomr_mirror_bell(const atomr_page *p) { return atomic_load(&p->bell); }

void atomr_mirror_follow(atomr_page *p) { atomic_fetch_add(&p->sleepers, 1); }
void atomr_mirror_leave(atomr_page *p) { atomic_fetch_sub(&p->sleepers, 1); }

void atomr_mirror_await(const atomr_page *p, uint32_t bell, uint64_t ns) {
    if (atomic_load(&p->bell) == bell) atomr_futex_wait(&p->bell, bell, (int64_t)ns);
}
