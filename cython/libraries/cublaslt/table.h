/* cuBLASLt's C interface, declared without its headers and bound at run time.
 *
 * One table serves CUDA 12 and 13.  Descriptors are made by their Create functions and never lie in our memory: their
 * size differs between versions.  The table is complete or loading fails.
 */
#ifndef ATOMR_CUBLASLT_H
#define ATOMR_CUBLASLT_H

#include "cuda/library.h"
#include "libraries/cublas_constants.h"
#include "libraries/cublaslt/names.h"

/* These and the shared ones, by name. */
extern const atomr_constant atomr_cublaslt_constants[];

typedef struct {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;

typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;

ATOMR_CUBLASLT_STRUCTS(ATOMR_STRUCT_SIZE)

typedef struct {
#define F(result, name, arguments) result(*name) arguments;
    ATOMR_CUBLASLT_FUNCTIONS(F)
#undef F
} atomr_cublaslt;

/* Its version is 130102 for 13.1.2, and 120900 for 12.9.0. */
extern atomr_library atomr_cublaslt_library;

/* As `atomr_library_open`; the environment's ATOMR_NATIVE_CUBLASLT, else `path`, else libcublasLt.so.13, then .12. */
const atomr_cublaslt *atomr_cublaslt_load(const char *path, char *why, size_t size);

#endif
