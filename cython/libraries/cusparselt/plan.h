/* Calls of cuSPARSELt, prepared once and run without the GIL: D = act(alpha A B + beta D + bias), where A has two numbers
 * in each four along its rows and is compressed, and the compression of such an A.
 *
 * A device has one handle, which all lanes use at once.  The address of a bias is part of the library's descriptor, so a
 * message with another one has the library's plan made anew; lanes take turns at such a plan. */
#ifndef ATOMR_STRUCTURED_PLAN_H
#define ATOMR_STRUCTURED_PLAN_H

#include "cuda/cuda_backend.h"
#include "libraries/cusparselt/table.h"

#define ATOMR_STRUCTURED_CONSTANTS(C)                                                                                 \
    C(ATOMR_STRUCTURED_MATMUL, 0)                                                                                     \
    C(ATOMR_STRUCTURED_COMPRESS, 1)

enum { ATOMR_STRUCTURED_CONSTANTS(ATOMR_ENUMERATOR) };

/* These, and those of the library, by name. */
extern const atomr_constant atomr_structured_constants[];

/* A call.  Operands: numbers in the message; -1: none.  `step`: elements from one row or column to the next. */
#define ATOMR_STRUCTURED_FIELDS(F, A)                                                                                 \
    F(routine)                             /* ATOMR_STRUCTURED_* */                                                   \
    F(m) F(n) F(k)                         /* D is m x n, A is m x k */                                               \
    F(step_a)                              /* of the dense A; its rows are dense */                                   \
    F(step_b) F(turned_b)                  /* B lies by rows; turned: as its transpose */                             \
    F(step_d) F(order_d)                   /* cusparseOrder_t */                                                      \
    F(type) F(type_d) F(compute)           /* cudaDataType of A and B, of D; cusparseComputeType */                   \
    F(a) F(b) F(d) F(bias)                 /* operands; a compression has A in `b` and writes `a` */                  \
    F(alpha_at) F(beta_at)                 /* operands: float32 for each row of D */                                  \
    F(alpha) F(beta)                       /* scalars, where there are no such operands; -1: 1 and 0 */               \
    F(relu)                                                                                                           \
    F(nowhere)                             /* an address of the device's: the bias before the first message */        \
    F(configuration)                       /* number of an algorithm; -1: the library's choice */                     \
    F(compressed_bytes)                    /* of the compressed A */                                                  \
    F(scratch) F(workspace_bytes)          /* where the call's part of the lane's workspace is; the most it may take */ \
    F(n_operands) F(n_scalars)

typedef struct {
    ATOMR_STRUCTURED_FIELDS(ATOMR_MEMBER, ATOMR_ARRAY)
} atomr_structured_spec;
extern const atomr_field atomr_structured_fields[];

typedef struct atomr_structured atomr_structured;

/* Make a plan; the library must be open, and the device's context current in this thread.  Returns an atomr_code. */
int atomr_structured_new(atomr_cuda *, const atomr_structured_spec *, atomr_structured **made, atomr_failure *);
uint64_t atomr_structured_workspace(const atomr_structured *); /* bytes */
void atomr_structured_delete(atomr_structured *);              /* while no lane runs it; NULL passes */
/* An atomr_run; context: atomr_structured.  Enqueues on the lane's stream. */
int atomr_structured_run(void *context, const atomr_call *call, atomr_failure *failure);
/* How many algorithms there are for a matmul: numbers from 0 on. */
int64_t atomr_structured_configurations(const atomr_structured *);

typedef struct {
    const uint64_t *addresses; /* of the operands of each set, set after set */
    unsigned sets, launches;   /* launches take the sets in turn */
    uint64_t workspace;
} atomr_structured_timing;

/* Microseconds of one of `launches` launches back to back, on a stream of its own, for the builder thread, which waits
 * for the device.  Returns an atomr_code. */
int atomr_structured_time(atomr_structured *, const atomr_structured_timing *, float *microseconds, atomr_failure *);

#endif
