/* What the fake cuBLASLt makes of its descriptors, and who computes it. */
#ifndef FAKE_CUBLASLT_H
#define FAKE_CUBLASLT_H

#include "libraries/cublaslt/table.h"

typedef struct {
    int64_t type, rows, columns, ld, order, count, step, mode; /* mode: addresses are read from arrays */
} layout;
typedef struct {
    int64_t compute, scale, trans_a, trans_b, epilogue, bias_step, aux_ld, aux_step;
    uint64_t bias, aux;
    int64_t bias_type, aux_type, fast, mode_a, mode_b, on_device;
    uint64_t a_scale, b_scale, d_scale, amax;
} desc;
typedef struct {
    uint64_t workspace, alignment[4];
    uint32_t reductions; /* schemes that are allowed; 7: all */
} preference;
typedef struct {
    layout a, b, c, d;
    desc op;
    uint64_t A, B, C, D, workspace, workspace_bytes, algo, stream;
    uint64_t alpha_at, beta_at; /* where the factors are, if on the device */
    double factors[4];          /* alpha, beta, and their imaginary parts */
} record;
typedef int (*fake_matmul_function)(const record *);

/* Compute a record, a matmul on a stream. */
void fake_matmul_run(void *record_argument);
/* Read factors of a type. */
void fake_factors(int64_t type, const void *alpha, const void *beta, double factors[4]);
/* Called for each matmul; returns a cublasStatus_t. */
extern fake_matmul_function fake_matmul;
extern uint64_t fake_workspace; /* bytes that each algorithm wants */

#endif
