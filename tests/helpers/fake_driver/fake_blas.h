/* What the fakes of cuBLAS and cuSOLVER share. */
#ifndef FAKE_BLAS_H
#define FAKE_BLAS_H

#include "libraries/cublas/table.h"
#include "cuda/driver.h"

/* The stream of a handle. */
CUstream fake_blas_stream(cublasHandle_t);

#endif
