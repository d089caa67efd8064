/* Matmul plans of a CUDA device: cuBLASLt descriptors and algorithms, prepared once, run without the GIL.
 *
 * Everything here is column-major and counted in elements, as cuBLASLt has it; the Python builder turns NumPy's
 * layouts into it.  A plan belongs to one lane, so its descriptor changes under no lock.
 */
#ifndef ATOMR_MATMUL_PLAN_H
#define ATOMR_MATMUL_PLAN_H

#include "libraries/cublaslt/table.h"
#include "cuda/cuda_backend.h"

/* A matmul, flat: D (m by n) = epilogue(alpha * op(A) (m by k) * op(B) (k by n) + beta * C).
 *
 * Operands and scalars are indices into a message; -1: none. */
#define ATOMR_MATMUL_FIELDS(F, A)                                                                                     \
    F(m) F(n) F(k) F(batch)             /* m, n or batch 0: a run does nothing */                                     \
    F(type_a) F(type_b) F(type_c) F(type_d)/* cudaDataType */                                                         \
    F(type_bias) F(type_aux)            /* of bias or bias gradient, and of GELU's aux; -1: D's */                    \
    F(compute) F(scale)                 /* cublasComputeType_t; cudaDataType of alpha and beta */                     \
    F(trans_a) F(trans_b)               /* cublasOperation_t */                                                       \
    F(order_a) F(order_b)               /* cublasLtOrder_t; C and D are column-major */                               \
    F(ld_a) F(ld_b) F(ld_c) F(ld_d)     /* leading dimensions */                                                      \
    F(step_a) F(step_b) F(step_c) F(step_d)/* from one matrix of the batch to the next; 0: the same one */            \
    F(epilogue)                         /* cublasLtEpilogue_t */                                                      \
    F(step_bias)                        /* of bias or bias gradient */                                                \
    F(ld_aux) F(step_aux)               /* of a ReLU mask in bits, else in elements of D's type */                    \
    F(clear_aux)                        /* bytes of aux to zero first: cuBLASLt need not write the mask's padding */  \
    F(fast_accum)                       /* whether float8 sums may stay in the tensor core's accumulator */           \
    F(reduced_precision)                /* whether parts of a sum over K may be added up in D's type */               \
    F(mode_a) F(mode_b)                 /* cublasLtMatmulMatrixScale_t */                                             \
    F(a) F(b) F(c) F(d) F(bias) F(aux) F(bias_grad)/* operands; c may be d; -1: C is not read */                      \
    F(a_scale) F(b_scale) F(d_scale) F(amax)/* operands, float32 */                                                   \
    F(alpha_at) F(beta_at)              /* operands: factors in device memory; then there are no scalars */           \
    F(alpha) F(beta)                    /* scalars, float64 */                                                        \
    F(alpha_imag) F(beta_imag)          /* scalars, of complex factors; -1: none */                                   \
    F(n_operands) F(n_scalars)          /* of a message */                                                            \
    F(pointers)                         /* -1: steps lead from matrix to matrix.  Else a to d are the first of */     \
                                        /* `members` operands each, and this has ATOMR_POINTER_RUN(batch) bytes for */ \
                                        /* each of A, B, C and D, in that order, which hold their addresses by then */ \
    F(members)                          /* of pointers: `batch`; or 1 where all matrices of an operand lie in it, */  \
    F(apart)                            /* and then bytes from one to another, ORed over all steps of all operands */ \
    F(zero)                             /* address of 16 zero bytes of device memory, for alpha_at without beta_at */ \
    F(workspace_bytes)                  /* the most of the lane's workspace that an algorithm may want */             \
    F(has_algo)                         /* nonzero: `algo` is what tuning chose, for aligned operands */              \
    A(algo, 8)                          /* a cublasLtMatmulAlgo_t */

typedef struct {
    ATOMR_MATMUL_FIELDS(ATOMR_MEMBER, ATOMR_ARRAY)
} atomr_matmul_spec;
extern const atomr_field atomr_matmul_fields[];

/* The library and its handle on one device. */
typedef struct atomr_blas_lt atomr_blas_lt;
/* One prepared matmul. */
typedef struct atomr_matmul atomr_matmul;

/* The kind of handle that atomr_blas_lt is: one for a device, which all lanes use at once.  Making one takes tens of
 * milliseconds; the library is opened, unless it is open. */
extern const atomr_handle_kind atomr_blas_lt_kind;
int atomr_blas_lt_open(atomr_cuda *cuda, atomr_blas_lt **made, atomr_failure *failure);
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
