/* Recurrent networks of cuDNN: its older interface, since graphs have none. */
#ifndef ATOMR_CUDNN_RNN_H
#define ATOMR_CUDNN_RNN_H

#include "cuda/cuda_backend.h"
#include "cuda/fields.h"
#include "libraries/cudnn/table.h"

/* Numbers are those of cuDNN, unless they say otherwise.  Operands: -1: there is none. */
#define ATOMR_CUDNN_RNN_FIELDS(F, A)                                                                                  \
    F(backward) F(training)                                                                                           \
    F(cell) F(dtype) F(compute) F(math)                                                                               \
    F(steps) F(batch) F(inputs) F(hidden) F(layers) F(directions) F(biased) F(layout)                                 \
    F(dropout)                    /* the bits of a double */                                                          \
    F(length_bits)                /* of each sequence's length in scalars; 0: all have `steps` */                     \
    F(n_weights)                  /* elements */                                                                      \
    F(x) F(weights) F(hx) F(cx)   /* operands of both */                                                              \
    F(y) F(hy) F(cy) F(reserve)   /* of the gradient: y and the reserve */                                            \
    F(dy) F(dhy) F(dcy) F(dx) F(dhx) F(dcx) F(dweights)                                                               \
    F(n_operands)

typedef struct {
    ATOMR_CUDNN_RNN_FIELDS(ATOMR_MEMBER, ATOMR_ARRAY)
} atomr_cudnn_rnn_spec;
extern const atomr_field atomr_cudnn_rnn_fields[];

/* A prepared call.  Scalars of a message: with dropout and without `backward` the seed and the offset; then the lengths,
 * as many as fit into a word one after the other.  It runs on the handle of whichever lane runs it. */
typedef struct {
    atomr_cuda *cuda;
    atomr_cudnn_rnn_spec spec;
    uint64_t temporary, states; /* bytes of workspace: cuDNN's, and behind it those of its generator */
    uint64_t reserve;           /* bytes that training keeps for the gradient */
} atomr_cudnn_rnn;

/* Ask the library for the sizes of its memory, and whether weights lie as this project has them.  cuDNN must be open, and
 * the device's context current in this thread.  Returns an atomr_code. */
int atomr_cudnn_rnn_prepare(atomr_cudnn_rnn *, atomr_failure *);
uint64_t atomr_cudnn_rnn_workspace(const atomr_cudnn_rnn *); /* bytes */
/* An atomr_run; context: atomr_cudnn_rnn.  Enqueues on the lane's stream. */
int atomr_cudnn_rnn_run(void *context, const atomr_call *call, atomr_failure *failure);

#endif
