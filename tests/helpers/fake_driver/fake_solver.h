/* What the files of the fake cuSOLVER share. */
#ifndef FAKE_SOLVER_H
#define FAKE_SOLVER_H

#include <complex.h>

#include "libraries/cusolver/call.h"
#include "fake_driver.h"

struct cusolverDnContext {
    CUstream stream;
};

typedef double complex number;

/* Bytes of host memory that calls demand. */
enum { HOST_BYTES = 72 };

static inline size_t size_of(cudaDataType type) { return type == CUDA_R_32F ? 4 : type == CUDA_C_64F ? 16 : 8; }

static inline number element(cudaDataType type, const void *p, int64_t i) {
    switch (type) {
    case CUDA_R_32F: return ((const float *)p)[i];
    case CUDA_R_64F: return ((const double *)p)[i];
    case CUDA_C_32F: return CMPLX(((const float *)p)[2 * i], ((const float *)p)[2 * i + 1]);
    default: return CMPLX(((const double *)p)[2 * i], ((const double *)p)[2 * i + 1]);
    }
}

static inline void set_element(cudaDataType type, void *p, int64_t i, number x) {
    switch (type) {
    case CUDA_R_32F: ((float *)p)[i] = (float)creal(x); break;
    case CUDA_R_64F: ((double *)p)[i] = creal(x); break;
    case CUDA_C_32F:
        ((float *)p)[2 * i] = (float)creal(x);
        ((float *)p)[2 * i + 1] = (float)cimag(x);
        break;
    default:
        ((double *)p)[2 * i] = creal(x);
        ((double *)p)[2 * i + 1] = cimag(x);
    }
}

#endif
