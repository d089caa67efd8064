/* Mirrors: the ranks of a communicator are in several programs, each of which has a page of its own.
 *
 * A program copies the words of its own ranks to the others' pages, so that each page has the words of all ranks.  Its
 * own ranks' words are written as ever; those of other ranks are written by the program itself, and by nobody else.
 * Words are read in the opposite order of that in which they are written, so a copy shows no word before those that it
 * announces.
 */
#ifndef ATOMR_MIRROR_H
#define ATOMR_MIRROR_H

#include "runtime/meeting.h"

/* A vote, as bytes that travel. */
typedef struct {
    uint64_t sequence, connection;
    uint32_t code;
    int32_t status;
    char lib[16], name[64], text[400];
} atomr_vote_words;

/* What a page has of a rank. */
typedef struct {
    uint64_t step, connection, lost;
    uint32_t code, fault, deaths, unused;
    char id[ATOMR_ID_BYTES];
    atomr_vote_words votes[2];
} atomr_rank_words;

/* Both expect a rank of the page. */
void atomr_mirror_read(const atomr_page *, unsigned rank, atomr_rank_words *);
/* In the page of another program than the rank's; one thread at a time writes a rank. */
void atomr_mirror_write(atomr_page *, unsigned rank, const atomr_rank_words *);
/* From `follow` until `leave` each change of the page rings its bell.  The bell's value before words are read goes to
 * `atomr_mirror_await`, which returns when it has rung since, or after a time. */
void atomr_mirror_follow(atomr_page *);
void atomr_mirror_leave(atomr_page *);
uint32_t atomr_mirror_bell(const atomr_page *);
void atomr_mirror_await(const atomr_page *, uint32_t bell, uint64_t ns);

#endif
