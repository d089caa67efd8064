/* Generators of cuRAND: of a CUDA device, prepared once and run by a lane without the GIL, or of the host.
 *
 * A generator of cuRAND is a state that each call changes, so each of ours has its own, and belongs to one lane, or to
 * whoever locks it.  A draw sets seed and offset first: what it gives depends on nothing that was drawn before.  The
 * library allocates memory of its own for the states. */
#ifndef ATOMR_CURAND_GENERATOR_H
#define ATOMR_CURAND_GENERATOR_H

#include "cuda/cuda_backend.h"
#include "libraries/curand/table.h"

#define ATOMR_DRAW_CONSTANTS(C)                                                                                       \
    C(ATOMR_DRAW_WORDS, 0)                                                                                            \
    C(ATOMR_DRAW_UNIFORM, 1)                                                                                          \
    C(ATOMR_DRAW_NORMAL, 2)                                                                                           \
    C(ATOMR_DRAW_LOGNORMAL, 3)                                                                                        \
    C(ATOMR_DRAW_POISSON, 4)

enum { ATOMR_DRAW_CONSTANTS(ATOMR_ENUMERATOR) };

/* These, and those of the library, by name. */
extern const atomr_constant atomr_draw_constants[];

/* What is drawn, by which generator.  Scalars of a message: the distribution's parameters, as float64; then seed and
 * offset.  Its operand is the array that is filled. */
#define ATOMR_DRAW_FIELDS(F, A)                                                                                       \
    F(kind)              /* curandRngType_t */                                                                        \
    F(ordering)          /* curandOrdering_t; 0: the generator's own */                                               \
    F(dimensions)        /* of a quasi-random generator; 0 of others */                                               \
    F(routine) F(wide)   /* ATOMR_DRAW_*; whether elements have 64 bits */                                            \
    F(count)             /* elements */                                                                               \
    F(step)              /* positions that a draw is long; 0: it does not end at a position */                        \
    F(n_parameters)

typedef struct {
    ATOMR_DRAW_FIELDS(ATOMR_MEMBER, ATOMR_ARRAY)
} atomr_draw_spec;
extern const atomr_field atomr_draw_fields[];

typedef struct atomr_generator atomr_generator;

/* Make a generator of cuRAND, which must be open: of a device, whose context must be current in this thread, or without
 * `cuda` of the host.  Returns an atomr_code. */
int atomr_generator_new(atomr_cuda *cuda, const atomr_draw_spec *, atomr_generator **made, atomr_failure *);
void atomr_generator_delete(atomr_generator *); /* while nobody draws from it; NULL passes */
/* Fill `out` by a generator of the same kind, ordering and dimensions.  Returns an atomr_code. */
int atomr_generator_draw(atomr_generator *, const atomr_draw_spec *, void *out, const uint64_t *scalars, atomr_failure *);
/* An atomr_run; context: atomr_generator.  Enqueues on the lane's stream what the generator was made for. */
int atomr_generator_run(void *context, const atomr_call *call, atomr_failure *);

#endif
