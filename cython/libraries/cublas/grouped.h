/* Products of different shapes in one call: cublasGemmGroupedBatchedEx, as a plan that lanes run without the GIL. */
#ifndef ATOMR_CUBLAS_GROUPED_H
#define ATOMR_CUBLAS_GROUPED_H

#include "libraries/cublas/call.h"

/* Column-major, as the library has it: C[i] = alpha op(A[i]) op(B[i]) + beta C[i]. */
#define ATOMR_GROUPED_FIELDS(F, A)                                                                                    \
    F(type) F(compute)         /* cudaDataType of A, B and C; cublasComputeType_t */                                  \
    F(n_members) F(n_groups)   /* members of a group are alike, and follow each other */                              \
    F(alpha) F(beta)           /* scalars of a message, float64 */                                                    \
    F(n_operands) F(n_scalars)                                                                                        \
    F(workspace_bytes)         /* of scratch memory, an operand */

typedef struct {
    ATOMR_GROUPED_FIELDS(ATOMR_MEMBER, ATOMR_ARRAY)
} atomr_grouped_spec;
extern const atomr_field atomr_grouped_fields[];

/* A group: products with the same numbers. */
#define ATOMR_GROUP_FIELDS(F, A)                                                                                      \
    F(trans_a) F(trans_b) F(m) F(n) F(k) F(ld_a) F(ld_b) F(ld_c)                                                      \
    F(members) /* how many of these numbers there are */

typedef struct {
    ATOMR_GROUP_FIELDS(ATOMR_MEMBER, ATOMR_ARRAY)
} atomr_group;
extern const atomr_field atomr_group_fields[];

/* A prepared call.  Operands: all A, all B, all C; then arrays of their addresses in runs of
 * ATOMR_POINTER_RUN(n_members) bytes; then scratch memory of `workspace_bytes`, aligned to 256. */
typedef struct atomr_grouped atomr_grouped;

/* Prepare a call with `n_groups` groups.  Returns an atomr_code: ATOMR_UNSUPPORTED where the library, which is open, is
 * too old. */
int atomr_grouped_new(atomr_cuda *, const atomr_grouped_spec *, const atomr_group *groups, atomr_grouped **made,
                      atomr_failure *failure);
void atomr_grouped_delete(atomr_grouped *); /* while no lane runs it; NULL passes */
/* An atomr_run; context: atomr_grouped.  On the handle of the lane; a plan belongs to one lane. */
int atomr_grouped_run(void *context, const atomr_call *call, atomr_failure *failure);

#endif
