/* Factorisations and solves of cuSOLVER, and the batched ones of cuBLAS: as plans that lanes run without the GIL.
 * Column-major, as the libraries have it; the Python builder turns NumPy's layouts into it. */
#ifndef ATOMR_CUSOLVER_CALL_H
#define ATOMR_CUSOLVER_CALL_H

#include "cuda/cuda_backend.h"
#include "libraries/cusolver/table.h"

#define ATOMR_SOLVER_CONSTANTS(C)                                                                                     \
    /* routines */                                                                                                    \
    C(ATOMR_SOLVER_POTRF, 0)                                                                                          \
    C(ATOMR_SOLVER_POTRS, 1)                                                                                          \
    C(ATOMR_SOLVER_GETRF, 2)                                                                                          \
    C(ATOMR_SOLVER_GETRS, 3)                                                                                          \
    C(ATOMR_SOLVER_SYTRF, 4) /* pivots are int32 */                                                                   \
    /* types of elements */                                                                                           \
    C(ATOMR_SOLVER_FLOAT, 0)                                                                                          \
    C(ATOMR_SOLVER_DOUBLE, 1)                                                                                         \
    C(ATOMR_SOLVER_COMPLEX, 2)                                                                                        \
    C(ATOMR_SOLVER_DOUBLE_COMPLEX, 3)                                                                                 \
    /* verdicts: what an info number means */                                                                         \
    C(ATOMR_SOLVER_ANY, 0)      /* nothing: every matrix is fine */                                                   \
    C(ATOMR_SOLVER_SINGULAR, 1) /* the matrix is singular */                                                          \
    C(ATOMR_SOLVER_INDEFINITE, 2) /* the matrix is not positive definite */                                           \
    C(ATOMR_SOLVER_UNCONVERGED, 3) /* an iteration did not converge */

enum { ATOMR_SOLVER_CONSTANTS(ATOMR_ENUMERATOR) };

/* These, and those of the libraries, by name. */
extern const atomr_constant atomr_solver_constants[];

/* A call, or one for each matrix of a batch.  Operands: addresses; -1: none. */
#define ATOMR_SOLVER_FIELDS(F, A)                                                                                     \
    F(routine) F(type)     /* ATOMR_SOLVER_* */                                                                       \
    F(uplo) F(trans)       /* of the libraries */                                                                     \
    F(m) F(n) F(k)         /* rows and columns of A, columns of B */                                                  \
    F(a) F(b) F(pivots) F(info) F(scratch) /* operands; pivots are int64, or int32 for arrays of addresses */         \
    A(step, 2)             /* leading dimensions of A and B, in elements */                                           \
    F(batch) A(jump, 2)    /* how many matrices, and bytes from each A and B to the next */                           \
    F(pointers)            /* operand with the addresses of all A, then of all B, in runs of */                       \
                           /* ATOMR_POINTER_RUN(batch) bytes: one call for all */                                     \
    F(n_operands)

typedef struct {
    ATOMR_SOLVER_FIELDS(ATOMR_MEMBER, ATOMR_ARRAY)
} atomr_solver_spec;
extern const atomr_field atomr_solver_fields[];

/* Host memory of the library's, which must live until the device is done.  A lane has at most ATOMR_INFOS open outcomes,
 * and each message with such memory has one: so as many parts are used in turn, with `step` bytes for each call. */
typedef struct {
    uint64_t step, part;
    unsigned turn;
    char *at;
} atomr_host_memory;

/* Make pinned memory of so many bytes for each of a message's calls; none of 0 bytes.  Returns an atomr_code. */
int atomr_host_memory_make(atomr_host_memory *, atomr_cuda *, uint64_t bytes, int64_t calls, atomr_failure *);
/* A message's part; NULL if there is none. */
char *atomr_host_memory_next(atomr_host_memory *);
void atomr_host_memory_release(atomr_host_memory *, atomr_cuda *);

/* A prepared call.  It runs on the handle of whichever lane runs it. */
typedef struct {
    atomr_cuda *cuda;
    atomr_solver_spec spec;
    uint64_t scratch_bytes; /* of device memory at operand `scratch` */
    atomr_host_memory memory;
} atomr_solver_call;

/* Check a call, and ask the library for the sizes of its memory; makes a handle for that, once for the device.  Returns
 * an atomr_code. */
int atomr_solver_prepare(atomr_solver_call *, atomr_failure *);
void atomr_solver_release(atomr_solver_call *);
/* An atomr_run; context: atomr_solver_call. */
int atomr_solver_run(void *context, const atomr_call *call, atomr_failure *);

/* What is made of the info numbers of a message's matrices, once its work is done. */
/* What the words say: whether any matrix failed, the first, its info and how many; or the info of the first that failed,
 * its number counted down from the largest of 32 bits, and how many. */
#define ATOMR_VERDICT_CONSTANTS(C)                                                                                    \
    C(ATOMR_VERDICT_SUMMARY, 0)                                                                                       \
    C(ATOMR_VERDICT_RECORD, 1)

enum { ATOMR_VERDICT_CONSTANTS(ATOMR_ENUMERATOR) };

#define ATOMR_VERDICT_FIELDS(F, A)                                                                                    \
    F(kind)              /* ATOMR_SOLVER_ANY, ... */                                                                  \
    F(axes) A(extents, 8) /* of the batch; what has more axes counts as one */                                         \
    F(form)               /* ATOMR_VERDICT_* */

typedef struct {
    ATOMR_VERDICT_FIELDS(ATOMR_MEMBER, ATOMR_ARRAY)
} atomr_verdict_spec;
extern const atomr_field atomr_verdict_fields[];

typedef struct {
    atomr_cuda *cuda;
    atomr_verdict_spec spec;
    char operation[64];
} atomr_verdict;

int atomr_verdict_check(const atomr_verdict_spec *, atomr_failure *);
/* An atomr_run without operands: the kernels before it have written the message's info words.  The message fails
 * late by them, as library "solver"; its text is read by `plans/failures.py`. */
int atomr_verdict_run(void *context, const atomr_call *call, atomr_failure *);

#endif
