/* Calls of cuDNN that its operation graphs do not have: softmax and local response norms, along axis 1. */
#ifndef ATOMR_CUDNN_CALL_H
#define ATOMR_CUDNN_CALL_H

#include "cuda/cuda_backend.h"
#include "libraries/cudnn/table.h"

/* The operands of each: x, y; y, dy, dx; x, y; x, y, dy, dx. */
enum {
    ATOMR_CUDNN_SOFTMAX_FORWARD,
    ATOMR_CUDNN_SOFTMAX_BACKWARD,
    ATOMR_CUDNN_LRN_FORWARD,
    ATOMR_CUDNN_LRN_BACKWARD,
};

/* What is called; all arrays are dense, of one dtype and of the shape (outer, channels, inner, 1). */
typedef struct {
    int kind, dtype;
    int shape[3];
    int log;                 /* of softmax: its logarithm */
    unsigned size;           /* of norms: channels around each */
    double scale, power, k;
} atomr_cudnn_call_info;

typedef struct atomr_cudnn_call atomr_cudnn_call;

/* Prepare a call.  cuDNN must be open, and the device's context current in this thread.  Returns an atomr_code. */
int atomr_cudnn_call_new(atomr_cuda *, const atomr_cudnn_call_info *, atomr_cudnn_call **made, atomr_failure *);
void atomr_cudnn_call_delete(atomr_cudnn_call *); /* while no lane runs it; NULL passes */
/* An atomr_run; context: atomr_cudnn_call.  Enqueues on the lane's stream. */
int atomr_cudnn_call_run(void *context, const atomr_call *call, atomr_failure *failure);

#endif
