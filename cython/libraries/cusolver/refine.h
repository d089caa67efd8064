/* Solves by factors of less precision, refined: cusolverDnIRSXgesv as plans that lanes run without the GIL.  The library
 * waits for the device in between, and so does the lane that runs such a plan; others go on. */
#ifndef ATOMR_CUSOLVER_REFINE_H
#define ATOMR_CUSOLVER_REFINE_H

#include "libraries/cusolver/call.h"

/* A call for each matrix of a batch.  Operands: addresses. */
#define ATOMR_REFINEMENT_FIELDS(F, A)                                                                                 \
    F(main) F(lowest)      /* CUSOLVER_R_64F, ...: the precisions of the matrices and of the factors */               \
    F(solver)              /* CUSOLVER_IRS_REFINE_* */                                                                \
    F(most)                /* iterations */                                                                           \
    F(n) F(k)              /* rows of A, columns of B */                                                              \
    F(a) F(b) F(x)         /* operands; A is destroyed */                                                             \
    F(iterations) F(info)  /* int32, one for each matrix; iterations are negative if the library fell back */         \
    F(scratch)                                                                                                        \
    A(step, 3)             /* leading dimensions of A, B and X, in elements */                                        \
    F(batch) A(jump, 3)    /* how many matrices, and bytes to the next A, B and X */                                  \
    F(n_operands)

typedef struct {
    ATOMR_REFINEMENT_FIELDS(ATOMR_MEMBER, ATOMR_ARRAY)
} atomr_refinement_spec;
extern const atomr_field atomr_refinement_fields[];

/* A prepared call.  It runs on the handle of whichever lane runs it. */
typedef struct {
    atomr_cuda *cuda;
    atomr_refinement_spec spec;
    uint64_t scratch_bytes;   /* of device memory at operand `scratch` */
    atomr_host_memory memory; /* for the numbers of iterations, on their way to the device */
} atomr_refinement;

/* As those of call.h. */
int atomr_refinement_prepare(atomr_refinement *, atomr_failure *);
void atomr_refinement_release(atomr_refinement *);
int atomr_refinement_run(void *context, const atomr_call *call, atomr_failure *);

#endif
