/* What the files of cuSOLVER share: a lane's handle, and how errors are written down. */
#ifndef ATOMR_CUSOLVER_PRIVATE_H
#define ATOMR_CUSOLVER_PRIVATE_H

#include "libraries/cusolver/call.h"
#include "runtime/failure.h"

typedef struct {
    const atomr_cusolver_table *t;
    cusolverDnHandle_t handle;
    cusolverDnParams_t params;
    gesvdjInfo_t jacobi;       /* tolerance and sweeps are the library's own: those of the dtype's precision */
    syevjInfo_t jacobi_eigen;
} atomr_solver;

/* The lane's handle.  Returns an atomr_code. */
int atomr_solver_take(atomr_cuda *, unsigned lane, atomr_solver **, atomr_failure *);
/* A handle without a stream, for questions about sizes: the device's own.  Any thread, one at a time. */
int atomr_solver_ask(atomr_cuda *, atomr_solver **, atomr_failure *);
/* Write down an error of the library's; returns its atomr_code. */
int atomr_solver_fail(cusolverStatus_t status, const char *what, atomr_failure *);

#endif
