/* Orthogonal decompositions of cuSOLVER: QR, singular values, Hermitian eigenvalues; as plans that lanes run without the
 * GIL.  Column-major, as the library has it; the Python builder turns NumPy's layouts into it. */
#ifndef ATOMR_CUSOLVER_DECOMPOSE_H
#define ATOMR_CUSOLVER_DECOMPOSE_H

#include "libraries/cusolver/call.h"

#define ATOMR_DECOMPOSITION_CONSTANTS(C)                                                                              \
    C(ATOMR_DECOMPOSE_GEQRF, 0)       /* A becomes R and reflectors; values: their factors */                         \
    C(ATOMR_DECOMPOSE_ORGQR, 1)       /* reflectors in A become n columns of Q */                                     \
    C(ATOMR_DECOMPOSE_ORMQR, 2)       /* B becomes op(Q) B, or with `side` B op(Q); A has k reflectors */             \
    C(ATOMR_DECOMPOSE_GESVD, 3)       /* A = B diag(values) C, m >= n; A is destroyed */                              \
    C(ATOMR_DECOMPOSE_SYEVD, 4)       /* A becomes its eigenvectors, values: eigenvalues */                           \
    C(ATOMR_DECOMPOSE_SYEV_BATCHED, 5) /* the same, of `group` matrices in a call */                                  \
    C(ATOMR_DECOMPOSE_GESVDJ, 6)      /* as GESVD by Jacobi's rotations, but C is the adjoint of Vh: V; */             \
    C(ATOMR_DECOMPOSE_GESVDP, 7)      /* by a polar decomposition, the same; it waits */                              \
    C(ATOMR_DECOMPOSE_GESVDA, 8)      /* approximately, of tall matrices, all of a batch in a call */                 \
    C(ATOMR_DECOMPOSE_SYEVJ, 9)       /* as SYEVD by Jacobi's rotations */                                            \
    C(ATOMR_DECOMPOSE_GEEV, 10)       /* complex values; B becomes right vectors, of a real A in LAPACK's form */     \
    C(ATOMR_DECOMPOSE_SYEVDX, 11)     /* as SYEVD, of a range; `found` says how many there are; it waits */             \
    C(ATOMR_DECOMPOSE_NOTHING, 78)    /* jobs of gesvd: no vectors, */                                                \
    C(ATOMR_DECOMPOSE_REDUCED, 83)    /* as many as singular values, */                                               \
    C(ATOMR_DECOMPOSE_ALL, 65)        /* all */

enum { ATOMR_DECOMPOSITION_CONSTANTS(ATOMR_ENUMERATOR) };

/* These by name. */
extern const atomr_constant atomr_decomposition_constants[];

/* A call, or one for each matrix or group of a batch.  Operands: addresses; -1: none. */
#define ATOMR_DECOMPOSITION_FIELDS(F, A)                                                                              \
    F(routine) F(type)                          /* ATOMR_DECOMPOSE_*, ATOMR_SOLVER_FLOAT, ... */                      \
    F(job)                                      /* of GESVD; of others 1: vectors, too */                             \
    F(uplo) F(side) F(trans)                    /* of the libraries */                                                \
    F(m) F(n) F(k)                              /* rows and columns of A, of B for ormqr; reflectors */               \
    F(a) F(values) F(b) F(c) F(info) F(scratch) /* operands */                                                        \
    A(step, 3)                                  /* leading dimensions of A, B and C, in elements */                   \
    F(batch) A(jump, 4)                         /* how many matrices; bytes to the next A, values, B and C */         \
    F(group)                                    /* matrices in a call; 1, but for SYEV_BATCHED and GESVDA */          \
    F(range) F(first) F(last)                   /* of SYEVDX: of the library; from 1 */                               \
    F(above) F(up_to)                           /* the bits of float64 */                                             \
    F(found)                                    /* operand: int32 for each matrix */                                  \
    F(n_operands)

typedef struct {
    ATOMR_DECOMPOSITION_FIELDS(ATOMR_MEMBER, ATOMR_ARRAY)
} atomr_decomposition_spec;
extern const atomr_field atomr_decomposition_fields[];

/* A prepared call.  It runs on the handle of whichever lane runs it. */
typedef struct {
    atomr_cuda *cuda;
    atomr_decomposition_spec spec;
    uint64_t scratch_bytes;   /* of device memory at operand `scratch` */
    atomr_host_memory memory; /* for the library */
} atomr_decomposition;

/* Check a call, and ask the library for the sizes of its memory; makes a handle for that, once for the device.  Returns
 * an atomr_code. */
int atomr_decomposition_prepare(atomr_decomposition *, atomr_failure *);
void atomr_decomposition_release(atomr_decomposition *);
/* An atomr_run; context: atomr_decomposition. */
int atomr_decomposition_run(void *context, const atomr_call *call, atomr_failure *);

#endif
