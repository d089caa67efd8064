/* Matmul plans of a CUDA device: cuBLASLt descriptors and algorithms, prepared once, run without the GIL.
 *
 * Everything here is column-major and counted in elements, as cuBLASLt has it; the Python builder turns NumPy's
 * layouts into it.  A plan belongs to one lane, so its descriptor changes under no lock.
 */
#ifndef ATOMR_MATMUL_PLAN_H
#define ATOMR_MATMUL_PLAN_H

#include "cublaslt.h"
#include "cuda_backend.h"

/* A matmul, flat: D (m by n) = epilogue(alpha * op(A) (m by k) * op(B) (k by n) + beta * C).
 *
 * All members are of one type and size, so that the builder's tuple of numbers is copied in order; a test compares
 * the names.  Operands and scalars are indices into a message; -1: none. */
typedef struct {
    int64_t m, n, k, batch;              /* m, n or batch 0: a run does nothing */
    int64_t type_a, type_b, type_c, type_d; /* cudaDataType */
    int64_t type_bias, type_aux;         /* of bias or bias gradient, and of GELU's aux; -1: D's */
    int64_t compute, scale;              /* cublasComputeType_t; cudaDataType of alpha and beta */
    int64_t trans_a, trans_b;            /* cublasOperation_t */
    int64_t order_a, order_b;            /* cublasLtOrder_t; C and D are column-major */
    int64_t ld_a, ld_b, ld_c, ld_d;      /* leading dimensions */
    int64_t step_a, step_b, step_c, step_d; /* from one matrix of the batch to the next; 0: the same one */
    int64_t epilogue;                    /* cublasLtEpilogue_t */
    int64_t step_bias;                   /* of bias or bias gradient */
    int64_t ld_aux, step_aux;            /* of a ReLU mask in bits, else in elements of D's type */
    int64_t clear_aux;                   /* bytes of aux to zero first: cuBLASLt need not write the mask's padding */
    int64_t fast_accum;                  /* whether float8 sums may stay in the tensor core's accumulator */
    int64_t mode_a, mode_b;              /* cublasLtMatmulMatrixScale_t */
    int64_t a, b, c, d, bias, aux, bias_grad; /* operands; c may be d; -1: C is not read */
    int64_t a_scale, b_scale, d_scale, amax; /* operands, float32 */
    int64_t alpha_at, beta_at;           /* operands: factors in device memory; then there are no scalars */
    int64_t alpha, beta;                 /* scalars, float64 */
    int64_t alpha_imag, beta_imag;       /* scalars, of complex factors; -1: none */
    int64_t n_operands, n_scalars;       /* of a message */
    int64_t pointers;                    /* -1: steps lead from matrix to matrix.  Else a to d are the first of `members`
                                          * operands each, and this is one of ATOMR_POINTER_RUN(batch) bytes for each of
                                          * A, B, C and D, in that order, which hold their addresses by then */
    int64_t members;                     /* of pointers: `batch`; or 1 where all matrices of an operand lie in it, and */
    int64_t apart;                       /* then bytes from one to another, ORed over all steps of all operands */
    int64_t zero;                        /* address of 16 zero bytes of device memory, for alpha_at without beta_at */
    int64_t workspace_bytes;             /* the most of the lane's workspace that an algorithm may want */
    int64_t has_algo;                    /* nonzero: `algo` is what tuning chose, for aligned operands */
    int64_t algo[8];                     /* a cublasLtMatmulAlgo_t */
} atomr_matmul_spec;

/* The library and its handle on one device. */
typedef struct atomr_blas_lt atomr_blas_lt;
/* One prepared matmul. */
typedef struct atomr_matmul atomr_matmul;

/* Open the library (`path` as for `atomr_cublaslt_load`) on the device whose context is current in this thread.
 * Takes tens of milliseconds.  Returns an atomr_code; `*made` is set on ATOMR_OK.  The handle may be used by all
 * lanes at once. */
int atomr_blas_lt_open(atomr_cuda *cuda, const char *path, atomr_blas_lt **made, atomr_failure *failure);
const atomr_cublaslt *atomr_blas_lt_library(const atomr_blas_lt *);
void atomr_blas_lt_close(atomr_blas_lt *); /* after its plans; waits for the device */

/* Make descriptors and ask the heuristic, once for each alignment that operands may have.  The context must be
 * current in this thread.  Returns an atomr_code: ATOMR_UNSUPPORTED where the library has no algorithm. */
int atomr_matmul_new(atomr_blas_lt *, const atomr_matmul_spec *, atomr_matmul **made, atomr_failure *failure);
/* Bytes of workspace that runs need: at most the specification's `workspace_bytes`. */
uint64_t atomr_matmul_workspace(const atomr_matmul *);
/* For tuning: up to `most` algorithms for aligned operands that need at most `limit` bytes of workspace, best guess
 * first; returns how many. */
int atomr_matmul_candidates(atomr_matmul *, uint64_t limit, cublasLtMatmulHeuristicResult_t *out, int most);
void atomr_matmul_delete(atomr_matmul *); /* while no lane runs it; NULL passes */

/* An atomr_run; context: atomr_matmul.  Enqueues on the lane's stream. */
int atomr_matmul_run(void *context, const atomr_call *call, atomr_failure *failure);

#endif
