/* Meetings: how the lanes of several workers take part in one collective message.
 *
 * A communicator has one page of shared memory (a memfd of the parent), mapped by the parent and by the worker of each
 * rank.  Every message has a sequence number in its communicator.  A lane first votes on it, and waits for the votes of
 * all ranks: ready, or refused and why.  Ranks that are ready then move data through their staging areas in rounds; in
 * each round a rank writes its own area, notes its step, waits for the steps of the others, and reads their areas.
 *
 * Each word has one writing process.  A wait ends when the parent notes that a rank is lost: the sequence number up to
 * which it takes part in no message any more.  A step that a rank noted before it died counts, so all ranks that live
 * come to the same result: none can pass a step that a lost rank has not noted.
 */
#ifndef ATOMR_MEETING_H
#define ATOMR_MEETING_H

#include "runtime/shm.h"

#define ATOMR_RANKS 64u
#define ATOMR_MEETINGS 1024u           /* communicators that a worker may know */
#define ATOMR_STEP_BITS 24u            /* of a word `step`, for the step; the others are the sequence number */
#define ATOMR_STEP_BEGUN UINT64_C(1)   /* all ranks are ready; those of `atomr_page_meet` are greater */
#define ATOMR_STEP_FAILED ((UINT64_C(1) << ATOMR_STEP_BITS) - 1)
#define ATOMR_PIECE (UINT64_C(1) << 19) /* bytes of a staging area; each rank has two */

/* The scalars with which a collective message begins. */
enum { ATOMR_KEY_MEETING = 0, ATOMR_KEY_SEQUENCE = 1, ATOMR_KEY_WORDS = 2 };

/* What a rank says to one message, and why it cannot take part. */
typedef struct {
    _Atomic uint64_t sequence; /* the last one that it voted on in this entry */
    _Atomic uint32_t code;     /* ATOMR_OK: it is ready */
    int32_t status;
    char lib[16], name[64], text[400];
} atomr_vote;

/* A rank's own words. */
typedef struct {
    _Alignas(64) _Atomic uint64_t step; /* sequence << ATOMR_STEP_BITS | step */
    atomr_vote votes[2];                /* by parity: all ranks read one before any can write it again */
} atomr_rank;

/* The parent's words about a rank. */
typedef struct {
    _Alignas(64) _Atomic uint64_t lost; /* it takes part in no message up to here; UINT64_MAX: in none any more */
    uint32_t code, fault;               /* why: an atomr_code, and the number of the fault in its device */
    char device[16];
} atomr_seat;

typedef struct {
    uint32_t magic, abi;
    uint64_t nbytes;
    uint32_t n_ranks, pad;
    uint64_t staging_at;
    /* Futex, bumped with each change that somebody may wait for.  A counter: any rank may bump it. */
    _Alignas(64) _Atomic uint32_t bell;
    _Atomic uint32_t sleepers;
    atomr_seat seats[ATOMR_RANKS];
    atomr_rank ranks[ATOMR_RANKS];
} atomr_page;

uint64_t atomr_page_bytes(unsigned n_ranks);
void atomr_page_init(atomr_page *, unsigned n_ranks);
/* Whether a page that was mapped is one of this version. */
int atomr_page_fits(const atomr_page *, uint64_t nbytes);
/* A rank's staging area of a parity. */
void *atomr_page_stage(atomr_page *, unsigned rank, unsigned parity);
/* By the parent. */
void atomr_page_lose(atomr_page *, unsigned rank, uint64_t sequence, uint32_t code, uint32_t fault);

enum { ATOMR_MET = 0, ATOMR_NOT_MET = 1, ATOMR_LEFT = 2 /* the worker stops */ };

/* Vote as `rank`, with `refusal` or (NULL) ready, and wait for all.  NOT_MET: `why` says what a rank that is ready fails
 * with. */
int atomr_page_vote(atomr_page *, unsigned rank, uint64_t sequence, const atomr_error *refusal,
                    const _Atomic int *stopping, atomr_error *why);
/* Note a step, and wait until every rank has noted it. */
int atomr_page_meet(atomr_page *, unsigned rank, uint64_t sequence, uint64_t step, const _Atomic int *stopping,
                    atomr_error *why);
/* Tell the others that this rank failed in the middle of a message. */
void atomr_page_fail(atomr_page *, unsigned rank, uint64_t sequence, const char *name, const char *text);

#endif
