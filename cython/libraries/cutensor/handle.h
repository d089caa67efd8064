/* What all calls of cuTENSOR share: the handle of a device, failures by their names, and factors. */
#ifndef ATOMR_CUTENSOR_HANDLE_H
#define ATOMR_CUTENSOR_HANDLE_H

#include "cuda/cuda_backend.h"
#include "libraries/cutensor/table.h"

typedef struct {
    const atomr_cutensor_table *t;
    cutensorHandle_t handle;
} atomr_tensor_owner;

/* A factor in the type that cuTENSOR wants. */
typedef union {
    double z[2];
    float c[2];
} atomr_tensor_factor;

/* The handle of the device, which all lanes use at once; an atomr_code.  It lives as long as the device. */
int atomr_tensor_handle(atomr_cuda *, const atomr_tensor_owner **, atomr_failure *);
const char *atomr_tensor_status(cutensorStatus_t); /* its name */
/* The failure of a call that `what` names, as an atomr_code. */
int atomr_tensor_fail(cutensorStatus_t, const char *what, atomr_failure *);
/* A factor in a scalar type, which is float32 for tensors of narrow floats. */
atomr_tensor_factor atomr_tensor_scaled(cudaDataType_t, double real, double imag);

#endif
