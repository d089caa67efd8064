/* Products of different shapes in one call: cublasGemmGroupedBatchedEx, as a plan that lanes run without the GIL. */
#ifndef ATOMR_CUBLAS_GROUPED_H
#define ATOMR_CUBLAS_GROUPED_H

#include "cublas.h"

/* Column-major, as the library has it: C[i] = alpha op(A[i]) op(B[i]) + beta C[i].  Flat: members of one type and size,
 * so that the builder's tuple is copied in order. */
typedef struct {
    int64_t type, compute;      /* cudaDataType of A, B and C; cublasComputeType_t */
    int64_t n_members, n_groups; /* members of a group are alike, and follow each other */
    int64_t alpha, beta;        /* scalars of a message, float64 */
    int64_t n_operands, n_scalars;
} atomr_grouped_spec;

/* Numbers of a group. */
enum {
    ATOMR_GROUP_TRANS_A,
    ATOMR_GROUP_TRANS_B,
    ATOMR_GROUP_M,
    ATOMR_GROUP_N,
    ATOMR_GROUP_K,
    ATOMR_GROUP_LD_A,
    ATOMR_GROUP_LD_B,
    ATOMR_GROUP_LD_C,
    ATOMR_GROUP_SIZE,
    ATOMR_GROUP_NUMBERS
};

/* Operands: all A, all B, all C; then arrays of their addresses in runs of ATOMR_POINTER_RUN(n_members) bytes; then
 * scratch memory of `workspace_bytes`, aligned to 256. */
typedef struct {
    atomr_blas *owner;
    atomr_grouped_spec spec;
    int *numbers;               /* ATOMR_GROUP_NUMBERS arrays of n_groups */
    double *factors;            /* 2 n_groups, for a run */
    uint64_t workspace_bytes;
} atomr_grouped;

/* Refuse what is malformed; returns an atomr_code. */
int atomr_grouped_check(const atomr_grouped *, atomr_failure *failure);
/* An atomr_run; context: atomr_grouped.  Lanes take turns with the handle. */
int atomr_grouped_run(void *context, const atomr_call *call, atomr_failure *failure);

#endif
