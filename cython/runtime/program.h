/* A message of several steps: the runs of other plans, one after the other, on operands of the message.
 *
 * What a recording becomes.  A step's operands lie somewhere in the message's: an array that it was given, one that is
 * bound, or the block of the recording's temporaries. */
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

typedef struct {
    atomr_run run;
    void *context;
    const char *name; /* in failures */
    unsigned n_operands, n_scalars;
    atomr_place *operands;
    atomr_word *scalars;
} atomr_program_step;

typedef struct {
    unsigned n_steps;
    atomr_program_step *steps;
} atomr_program;

/* An atomr_run; context: atomr_program.  The first step that fails ends it, and is named in the failure. */
int atomr_program_run(void *context, const atomr_call *, atomr_failure *);

#endif
