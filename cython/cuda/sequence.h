/* A plan of several steps: native runs one after the other, on operands of the message and on parts of a workspace.
 *
 * What a library does not do in one call is done so: a matmul into the workspace, then a kernel, in one message, on one
 * lane, in order. */
#ifndef ATOMR_SEQUENCE_H
#define ATOMR_SEQUENCE_H

#include "cuda/cuda_backend.h"

enum { ATOMR_STEP_OPERANDS = ATOMR_MAX_OPERANDS + 16, ATOMR_STEP_SCALARS = ATOMR_MAX_SCALARS };

/* Where an operand or a scalar of a step comes from. */
typedef enum {
    ATOMR_FROM_MESSAGE,   /* the message's operand or scalar of that number */
    ATOMR_FROM_WORKSPACE, /* operands: the address of that byte of the lane's workspace */
    ATOMR_FROM_PLAN,      /* that word: a scalar, or an address in device memory that lives as long as the plan */
    ATOMR_FROM_INFO,      /* operands: where the device writes the message's info words, that byte of them */
    ATOMR_FROM_LANE,      /* scalars: the number of the message's lane */
} atomr_origin;

typedef struct {
    uint64_t value;
    uint64_t offset; /* operands: bytes behind that address */
    atomr_origin origin;
} atomr_source;

/* Which messages run a step: those of which a factor is zero, or those of which none is. */
typedef enum { ATOMR_ALWAYS, ATOMR_IF_ZERO, ATOMR_UNLESS_ZERO } atomr_when;

typedef struct {
    atomr_run run;
    void *context;
    uint64_t alignment; /* 0, or a power of two: only messages run it whose operands all start at its multiples */
    int apart;          /* and then whether it is only the other messages instead */
    unsigned n_operands, n_scalars;
    atomr_source *operands, *scalars;
    atomr_when when;
    unsigned n_factors;
    int (*factors)[2]; /* scalars of the message, float64: real and imaginary part, or -1 for the latter */
} atomr_step;

typedef struct {
    uint64_t workspace_bytes; /* of the lane's workspace that the steps use */
    unsigned n_steps;
    atomr_step *steps;
    const atomr_cuda *cuda; /* for info words */
} atomr_sequence;

/* An atomr_run; context: atomr_sequence.  The first step that fails ends it. */
int atomr_sequence_run(void *context, const atomr_call *call, atomr_failure *failure);

#endif
