/* What the files of cuBLAS share: a lane's handle, and how errors are written down. */
#ifndef ATOMR_CUBLAS_PRIVATE_H
#define ATOMR_CUBLAS_PRIVATE_H

#include "libraries/cublas/call.h"
#include "runtime/failure.h"

/* A handle of a lane, and what it is set to: the library's setters cost as much as a small launch. */
typedef struct {
    const atomr_cublas_table *t;
    cublasHandle_t handle;
    CUstream stream;
    void *workspace; /* NULL: the library's own */
    uint64_t workspace_bytes;
    cublasPointerMode_t mode;
} atomr_blas;

/* The lane's handle, with this workspace (NULL: the library's own) and pointer mode.  Returns an atomr_code. */
int atomr_blas_take(atomr_cuda *, unsigned lane, void *workspace, uint64_t nbytes, cublasPointerMode_t mode,
                    atomr_blas **, atomr_failure *failure);
/* Write down an error of the library's; returns its atomr_code. */
int atomr_blas_fail(cublasStatus_t status, const char *what, atomr_failure *failure);
/* A scalar of a message, a float64; -1: 0. */
double atomr_blas_scalar(const atomr_call *call, int64_t index);

#endif
