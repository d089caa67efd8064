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
 *
 * Ranks on devices whose work is asynchronous have a connection besides, by which their devices meet.  It has the number
 * of the message that made it.  A vote names the rank's connection, so all ranks know from the votes whether they have
 * the same one, or have to make another.  A connection is broken when a rank has died since, or failed with it.
 */
#ifndef ATOMR_MEETING_H
#define ATOMR_MEETING_H

#include "runtime/shm.h"

#define ATOMR_RANKS 64u
#define ATOMR_MEETINGS 1024u           /* communicators that a worker may know */
#define ATOMR_STEP_BITS 24u            /* of a word `step`, for the step; the others are the sequence number */
#define ATOMR_STEP_BEGUN UINT64_C(1)   /* all ranks are ready; those of `atomr_page_meet` are greater */
#define ATOMR_STEP_FAILED ((UINT64_C(1) << ATOMR_STEP_BITS) - 1)
#define ATOMR_ID_BYTES 128u
#define ATOMR_FAILURES (2 * ATOMR_INFOS) /* of a rank that are known still: more than messages whose outcome is open */
#define ATOMR_PIECE (UINT64_C(1) << 19) /* bytes of a staging area; each rank has two */

/* The scalars with which a collective message begins. */
enum { ATOMR_KEY_MEETING = 0, ATOMR_KEY_SEQUENCE = 1, ATOMR_KEY_WORDS = 2 };

/* What a rank says to one message, and why it cannot take part. */
typedef struct {
    _Atomic uint64_t sequence; /* the last one that it voted on in this entry */
    _Atomic uint32_t code;     /* ATOMR_OK: it is ready */
    int32_t status;
    _Atomic uint64_t connection; /* of the rank, when it voted; 0: it has none */
    char lib[16], name[64], text[400];
} atomr_vote;

/* A rank's own words. */
typedef struct {
    _Alignas(64) _Atomic uint64_t step; /* sequence << ATOMR_STEP_BITS | step */
    _Atomic uint64_t connection;        /* the number of the message that made it; 0: the rank has none, or a broken one */
    _Atomic uint64_t copied;            /* it reads no memory of others any more for messages up to this one */
    char id[ATOMR_ID_BYTES];            /* rank 0's: by which the others find it when they connect */
    atomr_vote votes[2];                /* by parity; one is written again before all have read it only if a rank is lost */
} atomr_rank;

/* The parent's words about a rank. */
typedef struct {
    _Alignas(64) _Atomic uint64_t lost; /* it takes part in no message up to here; UINT64_MAX: in none any more */
    _Atomic uint32_t code, fault;       /* why: an atomr_code, and the number of the fault in its device */
    _Atomic uint32_t deaths;            /* of its worker; written after the two */
    char device[16];
} atomr_seat;

typedef struct {
    uint32_t magic, abi;
    uint64_t nbytes;
    uint32_t n_ranks;
    uint32_t restarts; /* when a rank has died, workers that are connected to it end, instead of aborting */
    uint32_t engines;  /* connections move symmetric arrays by copy engines, where the library can */
    uint64_t staging_at;
    /* Futex, bumped with each change that somebody may wait for.  A counter: any rank may bump it. */
    _Alignas(64) _Atomic uint32_t bell;
    _Atomic uint32_t sleepers;
    atomr_seat seats[ATOMR_RANKS];
    atomr_rank ranks[ATOMR_RANKS];
    /* What the rank failed with in the middle of a message, by the message's number: votes are overwritten by the next but
     * one, and a message may be judged after that.  Apart from words that others poll. */
    atomr_vote failures[ATOMR_RANKS][ATOMR_FAILURES];
} atomr_page;

uint64_t atomr_page_bytes(unsigned n_ranks);
void atomr_page_init(atomr_page *, unsigned n_ranks);
/* Whether a page that was mapped is one of this version. */
int atomr_page_fits(const atomr_page *, uint64_t nbytes);
/* A rank's staging area of a parity. */
void *atomr_page_stage(atomr_page *, unsigned rank, unsigned parity);
/* By the parent. */
void atomr_page_lose(atomr_page *, unsigned rank, uint64_t sequence, uint32_t code, uint32_t fault);
/* By the parent, after the loss of its messages: the rank's worker is gone, and its connection with it. */
void atomr_page_bury(atomr_page *, unsigned rank, uint32_t code, uint32_t fault);
/* By a worker that begins: it has no connection. */
void atomr_page_begin(atomr_page *, unsigned rank);

enum { ATOMR_MET = 0, ATOMR_NOT_MET = 1, ATOMR_LEFT = 2 /* the worker stops */, ATOMR_PENDING = 3 };

/* Vote as `rank`, with `refusal` or (NULL) ready; and wait for the votes of all.  NOT_MET: `why` says what a rank that is
 * ready fails with. */
void atomr_page_cast(atomr_page *, unsigned rank, uint64_t sequence, const atomr_error *refusal);
int atomr_page_count(atomr_page *, unsigned rank, uint64_t sequence, const _Atomic int *stopping, atomr_error *why);
/* Whether all have voted, without waiting. */
int atomr_page_is_full(const atomr_page *, uint64_t sequence);
/* Note a step, and wait until every rank has noted it. */
int atomr_page_meet(atomr_page *, unsigned rank, uint64_t sequence, uint64_t step, const _Atomic int *stopping,
                    atomr_error *why);
/* Wait until another rank has noted a step, without noting it. */
int atomr_page_follow(atomr_page *, unsigned other, uint64_t sequence, uint64_t step, const _Atomic int *stopping,
                      atomr_error *why);
/* Note, when this rank's copies up to a message are done, that it reads no memory of another one for them any more.
 * NOT_MET: that one is lost, and what was read is not to be relied on. */
int atomr_page_note_copied(atomr_page *, unsigned rank, unsigned other, uint64_t sequence, atomr_error *why);
/* Whether another rank has noted that.  PENDING: not yet; NOT_MET: it never will, or has failed in the message. */
int atomr_page_has_copied(const atomr_page *, unsigned other, uint64_t sequence, atomr_error *why);
/* Note a step, which another rank follows, without waiting for it; NOT_MET: that one is lost, and so is the message. */
int atomr_page_conclude(atomr_page *, unsigned rank, unsigned other, uint64_t sequence, uint64_t step, atomr_error *why);
/* Tell the others that this rank failed in the middle of a message. */
void atomr_page_fail(atomr_page *, unsigned rank, uint64_t sequence, const char *lib, int status, const char *name,
                     const char *text);
/* Whether a rank has told the others so. */
int atomr_page_has_failed(const atomr_page *, unsigned rank, uint64_t sequence);
/* The connection that every rank named when it voted on a message; 0: not all have the same, or one has gone on, since
 * another is lost.  Until the next vote. */
uint64_t atomr_page_connection(const atomr_page *, uint64_t sequence);
/* The connection that every rank has now; 0: not all have the same.  For the parent. */
uint64_t atomr_page_connected(const atomr_page *);
/* Whether every rank has this connection still. */
int atomr_page_all_have(const atomr_page *, uint64_t connection);
/* How often the workers of all ranks have died, by rank. */
void atomr_page_count_deaths(const atomr_page *, _Atomic uint32_t *deaths);
/* What broke a connection of `rank` that was made when the workers had died so often; ATOMR_UP: nothing.  RANK_DEAD and
 * RANK_FAILED, of another rank: `why` says what a message fails with. */
enum { ATOMR_UP = 0, ATOMR_RANK_DEAD = 1, ATOMR_RANK_FAILED = 2 };
int atomr_page_examine(const atomr_page *, unsigned rank, uint64_t connection, const _Atomic uint32_t *deaths,
                       atomr_error *why);

#endif
