/* Collectives of NCCL, as plans that the lanes of collectives run without the GIL. */
#ifndef ATOMR_NCCL_RUN_H
#define ATOMR_NCCL_RUN_H

#include "libraries/nccl/connection.h"

#define ATOMR_NCCL_KINDS(C)                                                                                           \
    C(ATOMR_NCCL_ALL_REDUCE, 0)                                                                                       \
    C(ATOMR_NCCL_REDUCE, 1)                                                                                           \
    C(ATOMR_NCCL_BROADCAST, 2)                                                                                        \
    C(ATOMR_NCCL_ALL_GATHER, 3)                                                                                       \
    C(ATOMR_NCCL_REDUCE_SCATTER, 4)                                                                                   \
    C(ATOMR_NCCL_SEND, 5)                                                                                             \
    C(ATOMR_NCCL_RECEIVE, 6)                                                                                          \
    C(ATOMR_NCCL_ALL_TO_ALL, 7)                                                                                       \
    C(ATOMR_NCCL_OPEN_WINDOW, 8)                                                                                      \
    C(ATOMR_NCCL_CLOSE_WINDOW, 9)

enum { ATOMR_NCCL_KINDS(ATOMR_ENUMERATOR) };

extern const atomr_constant atomr_nccl_constants[];

/* A call.  Operands by place; -1: none. */
#define ATOMR_NCCL_CALL_FIELDS(F, A)                                                                                  \
    F(kind) F(dtype) F(op)    /* ATOMR_NCCL_*, ncclDataType_t, ncclRedOp_t */                                         \
    F(count)                  /* elements, as the library counts them; bytes of a window */                                              \
    F(peer)                   /* the root, or the other end of a send */                                              \
    F(x) F(x_offset)          /* operand, bytes */                                                                    \
    F(out) F(out_offset)      /* operand, bytes */                                                                    \
    F(factor)                 /* operand with the factor of a sum */                                                  \
    F(number)                 /* scalar with it */

typedef struct {
    ATOMR_NCCL_CALL_FIELDS(ATOMR_MEMBER, ATOMR_ARRAY)
} atomr_nccl_call;
extern const atomr_field atomr_nccl_call_fields[];

/* The message of a rank. */
typedef struct {
    atomr_nccl_connection *connection;
    unsigned n_calls, n_operands, n_scalars;
    atomr_nccl_call *calls; /* the same in number and order on all ranks, but for sends and receives */
    int connects;           /* whether it needs a connection; without one, windows have ended */
} atomr_nccl_message;

/* Check the places in its calls.  Returns an atomr_code. */
int atomr_nccl_check(const atomr_nccl_message *, atomr_failure *);
/* An atomr_run; context: atomr_nccl_message. */
int atomr_nccl_run(void *context, const atomr_call *, atomr_failure *);
/* A number as an element of a type, rounded to nearest, ties to even; float8 saturates. */
void atomr_nccl_element(ncclDataType_t, double, void *element);

#endif
