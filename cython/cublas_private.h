/* What the files of cuBLAS share: the library's handle, and how errors are written down. */
#ifndef ATOMR_CUBLAS_PRIVATE_H
#define ATOMR_CUBLAS_PRIVATE_H

#include <pthread.h>

#include "cublas.h"

struct atomr_blas {
    atomr_cuda *cuda;
    cublasHandle_t handle;
    CUstream stream; /* that the handle has now */
    int version;
    uint64_t workspace, workspace_bytes;
    pthread_mutex_t busy; /* of a handle that several lanes use */
    atomr_cublas_table t;
};

/* Write down what is wrong, where that is no error of the library's; returns the code. */
int atomr_blas_refuse(int code, const char *text, atomr_failure *failure);
/* Write down an error of the library's; returns its atomr_code. */
int atomr_blas_fail(cublasStatus_t status, const char *what, atomr_failure *failure);
/* A scalar of a message, a float64; -1: 0. */
double atomr_blas_scalar(const atomr_call *call, int64_t index);

#endif
