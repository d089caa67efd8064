/* Direct solvers by cuDSS, which lanes run without the GIL.
 *
 * A solver is what the library keeps for one pattern: a handle, its analysis and its factors.  Its device memory lies in
 * two arrays of the message, of which `region.c` deals parts out; the library allocates none by itself.  Several plans,
 * one for each phase and number of right sides, share a solver; lanes take turns at it.
 *
 * A message finds what it needs missing in a worker that has just started, or when its arrays lie elsewhere than before.
 * Then it repeats the phases before its own, from the arrays that every message has. */
#ifndef ATOMR_DIRECT_H
#define ATOMR_DIRECT_H

#include "cuda/cuda_backend.h"
#include "libraries/cudss/region.h"
#include "libraries/cudss/table.h"

#define ATOMR_DIRECT_CONSTANTS(C)                                                                                     \
    C(ATOMR_DIRECT_ANALYSE, 0)                                                                                        \
    C(ATOMR_DIRECT_FACTOR, 1)                                                                                         \
    C(ATOMR_DIRECT_REFACTOR, 2)                                                                                       \
    C(ATOMR_DIRECT_SOLVE, 3)

enum { ATOMR_DIRECT_CONSTANTS(ATOMR_ENUMERATOR) };

/* These, and those of the library, by name. */
extern const atomr_constant atomr_direct_constants[];

#define ATOMR_SOLVER_OF_PATTERN_FIELDS(F, A)                                                                          \
    F(n) F(nnz) F(batch)           /* rows, stored elements of a matrix, matrices */                                  \
    F(value_type) F(index_type)    /* cudaDataType */                                                                 \
    F(kind) F(view)                /* cudssMatrixType_t, cudssMatrixViewType_t */                                     \
    F(deterministic)                                                                                                  \
    F(columns)                     /* right sides that the analysis makes room for */

typedef struct {
    ATOMR_SOLVER_OF_PATTERN_FIELDS(ATOMR_MEMBER, ATOMR_ARRAY)
} atomr_pattern_spec;
extern const atomr_field atomr_pattern_fields[];

/* A message.  Operands: offsets, indices, values, memory for analyses, memory for factors (all phases but the analysis);
 * then of an analysis four int64 that it writes (direct.c), and of a solve B and X, whose columns follow each other. */
#define ATOMR_PHASE_FIELDS(F, A)                                                                                      \
    F(phase)     /* ATOMR_DIRECT_* */                                                                                 \
    F(columns)   /* right sides of a solve */                                                                         \
    F(check)     /* whether a factorization waits for its outcome */                                                  \
    F(bytes) F(more) /* of the arrays for analyses, and for factors */

typedef struct {
    ATOMR_PHASE_FIELDS(ATOMR_MEMBER, ATOMR_ARRAY)
} atomr_phase_spec;
extern const atomr_field atomr_phase_fields[];

typedef struct atomr_direct atomr_direct;

/* A solver that has nothing yet.  Returns an atomr_code. */
int atomr_direct_new(atomr_cuda *, const atomr_pattern_spec *, atomr_direct **made, atomr_failure *);
void atomr_direct_delete(atomr_direct *); /* while no lane runs it; NULL passes */

typedef struct {
    atomr_direct *solver;
    atomr_phase_spec spec;
} atomr_direct_call;

int atomr_direct_check(const atomr_direct_call *, atomr_failure *); /* returns an atomr_code */
/* An atomr_run; context: atomr_direct_call.  Analyses and checked factorizations wait for the device.  An analysis that finds
 * no room in its memory writes how much it wants, and is no failure. */
int atomr_direct_run(void *context, const atomr_call *call, atomr_failure *failure);

#endif
