/* cuBLAS, level 1 to 3, for what cuBLASLt lacks: as plans that lanes run without the GIL.  Column-major, as the library
 * has it; the Python builder turns NumPy's layouts into it. */
#ifndef ATOMR_CUBLAS_CALL_H
#define ATOMR_CUBLAS_CALL_H

#include "cuda/cuda_backend.h"
#include "libraries/cublas/table.h"

#define ATOMR_BLAS_CONSTANTS(C)                                                                                       \
    /* routines */                                                                                                    \
    C(ATOMR_BLAS_AXPY, 0)                                                                                             \
    C(ATOMR_BLAS_SCAL, 1)                                                                                             \
    C(ATOMR_BLAS_DOT, 2)                                                                                              \
    C(ATOMR_BLAS_NRM2, 3)                                                                                             \
    C(ATOMR_BLAS_GEMV, 4)                                                                                             \
    C(ATOMR_BLAS_GER, 5)                                                                                              \
    C(ATOMR_BLAS_SYMM, 6)                                                                                             \
    C(ATOMR_BLAS_SYRK, 7)                                                                                             \
    C(ATOMR_BLAS_TRMM, 8)                                                                                             \
    C(ATOMR_BLAS_TRSM, 9)                                                                                             \
    C(ATOMR_BLAS_GEAM, 10)                                                                                            \
    C(ATOMR_BLAS_GEMM, 11)                                                                                            \
    /* types of elements */                                                                                           \
    C(ATOMR_BLAS_FLOAT, 0)                                                                                            \
    C(ATOMR_BLAS_DOUBLE, 1)                                                                                           \
    C(ATOMR_BLAS_COMPLEX, 2)                                                                                          \
    C(ATOMR_BLAS_DOUBLE_COMPLEX, 3)

enum { ATOMR_BLAS_CONSTANTS(ATOMR_ENUMERATOR) };

/* These, cuBLAS's and the shared ones, by name. */
extern const atomr_constant atomr_blas_constants[];

/* A call. */
#define ATOMR_BLAS_FIELDS(F, A)                                                                                       \
    F(routine) F(type) /* ATOMR_BLAS_* */                                                                             \
    F(conjugated)      /* of dot and ger: their second vector (dot: first) */                                         \
    F(side) F(uplo) F(trans_a) F(trans_b) F(diag)                                                                     \
    F(m) F(n) F(k)                                                                                                    \
    A(step, 3)    /* leading dimensions or increments of the arrays below, in elements */                             \
    A(operand, 3) /* arrays in the order of the routine's arguments; -1: none */                                      \
    F(alpha) F(beta) F(alpha_imag) F(beta_imag) /* scalars of a message, float64; -1: none */                         \
    F(batch) A(jump, 3) /* how often, and bytes from each array to that of the next time */                           \
    F(pointers) /* of a batched trsm: the operand that has the addresses of all A, then of all B, in */               \
                /* runs of ATOMR_POINTER_RUN(batch) bytes; -1: none */                                                \
    F(scratch) F(scratch_bytes) /* of the lane's workspace, for the library; 0 bytes: it uses its own */              \
    F(n_operands) F(n_scalars)

typedef struct {
    ATOMR_BLAS_FIELDS(ATOMR_MEMBER, ATOMR_ARRAY)
} atomr_blas_spec;
extern const atomr_field atomr_blas_fields[];

/* One prepared call.  It runs on the handle of whichever lane runs it. */
typedef struct {
    atomr_cuda *cuda;
    atomr_blas_spec spec;
} atomr_blas_call;
int atomr_blas_check(const atomr_blas_spec *, atomr_failure *failure); /* an atomr_code */
/* An atomr_run; context: atomr_blas_call. */
int atomr_blas_run(void *context, const atomr_call *call, atomr_failure *failure);

#endif
