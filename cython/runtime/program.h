/* A message of several steps: the runs of other plans, one after the other, on operands of the message.
 *
 * What a recording becomes.  A step's operands lie somewhere in the message's: an array that it was given, one that is
 * bound, or the block of the recording's temporaries.  A step of control flow decides by its operand, an integer in
 * memory, which of the steps behind it run. */
#ifndef ATOMR_PROGRAM_H
#define ATOMR_PROGRAM_H

#include "runtime/lane_core.h"

typedef struct {
    uint32_t operand; /* of the message */
    int64_t offset;   /* bytes from its address */
} atomr_place;

typedef struct {
    int given;      /* whether `value` is the number of one of the message's scalars, or the word itself */
    uint64_t value;
} atomr_word;

typedef enum {
    ATOMR_RUNS = 0,    /* a message of a plan */
    ATOMR_IF = 1,      /* body 0 if the flag is not zero, else body 1 if there is one */
    ATOMR_WHILE = 2,   /* body 0 as long as the flag is not zero, at most `limit` times */
    ATOMR_SWITCH = 3   /* the body with the number that the operand has; none if there is no such body */
} atomr_step_kind;

typedef struct {
    atomr_step_kind kind;
    atomr_run run;    /* of ATOMR_RUNS */
    void *context;
    const char *name; /* in failures */
    unsigned n_operands, n_scalars;
    atomr_place *operands;
    atomr_word *scalars;
    unsigned late;      /* from 1: its place among the steps that may fail when their work is done; 0: it is none */
    uint64_t workspace; /* from which byte of the lane's on it may use it */
    unsigned n_after;   /* steps of the same body that it depends on, as graphs have it */
    unsigned *after;
    /* Of control flow: how many steps each body has, which follow in order, and all bodies together. */
    unsigned n_bodies, inside;
    unsigned *bodies;
    unsigned width;   /* bytes of the integer that decides */
    int is_signed;
    uint64_t limit;
} atomr_program_step;

/* How such a step is judged: the same for all messages, and known once it has run. */
typedef struct {
    atomr_late late;
    _Atomic int known;
} atomr_program_late;

/* Bring the `width` bytes that decide about a step to the host, after the steps before it.  Returns an atomr_code. */
typedef int (*atomr_fetch)(void *self, const atomr_call *, const void *from, void *to, unsigned width, atomr_failure *);

typedef struct {
    unsigned n_steps;
    atomr_program_step *steps;
    atomr_fetch fetch; /* NULL: they are there */
    void *self;
    unsigned n_late;   /* at most ATOMR_INFO_STEPS */
    atomr_program_late *late;
} atomr_program;

/* An atomr_run; context: atomr_program.  The first step that fails ends it, and is named in the failure. */
int atomr_program_run(void *context, const atomr_call *, atomr_failure *);
/* What a step's run gets; `pointers` and `scalars` are of ATOMR_MESSAGE_OPERANDS and ATOMR_MAX_SCALARS. */
atomr_call atomr_program_part(const atomr_program_step *, const atomr_call *, void **pointers, uint64_t *scalars);
/* Run a step that is not control flow. */
int atomr_program_step_run(const atomr_program *, unsigned step, const atomr_call *, atomr_failure *);
/* Fail since a loop has reached its limit. */
int atomr_program_limit(const atomr_program *, unsigned step, atomr_failure *);

#endif
