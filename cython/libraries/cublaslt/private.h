/* What the files of a matmul plan share: making it, describing it to cuBLASLt, running it. */
#ifndef ATOMR_MATMUL_PRIVATE_H
#define ATOMR_MATMUL_PRIVATE_H

#include "libraries/cublaslt/plan.h"
#include "runtime/failure.h"

/* Messages may bring views that start anywhere, and an algorithm is chosen for a least alignment of its operands: so a
 * plan has one for each of these, best first.  The last one is the size of an element. */
enum { ALIGNMENTS = 3, POINTERS = 6 };

/* The stream and events of measurements: made by who measures, kept with the library's handle. */
typedef struct {
    CUstream stream;
    CUevent start, end;
} meter;

struct atomr_blas_lt {
    const atomr_cublaslt *lt;
    atomr_cuda *cuda;
    cublasLtHandle_t handle;
    meter meter;
};

typedef struct {
    uint64_t alignment;
    int found;
    size_t workspace;
    cublasLtMatmulAlgo_t algo;
} choice;

/* A pointer of the descriptor: which attribute, whose address, and what is there now. */
typedef struct {
    int attribute;
    int aligned; /* whether its address counts for the choice of the algorithm */
    int blocks;  /* whether scales of blocks are there, which are read 16 bytes at a time, whatever algorithm */
    int64_t operand;
    const void *set;
} pointer;

struct atomr_matmul {
    atomr_blas_lt *owner;
    atomr_matmul_spec spec;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c, d;
    choice choices[ALIGNMENTS];
    size_t workspace; /* that the choices need */
    int64_t vector;   /* the operand behind the bias pointer: bias or bias gradient; -1: none */
    unsigned n_pointers;
    pointer pointers[POINTERS];
};

/* Bytes of an element of a cudaDataType; 0: none of those that plans take. */
static inline size_t element_size(int64_t type) {
    switch (type) {
    case CUDA_C_64F: return 16;
    case CUDA_C_32F:
    case CUDA_R_64F: return 8;
    case CUDA_R_32I:
    case CUDA_R_32F: return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF: return 2;
    case CUDA_R_8I:
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2: return 1;
    default: return 0;
    }
}

static inline cublasStatus_t set_attribute(const atomr_matmul *p, int attribute, const void *value, size_t size) {
    return p->owner->lt->cublasLtMatmulDescSetAttribute(p->desc, attribute, value, size);
}

/* Point the descriptor's pointer somewhere; nothing is called where it points there already. */
static inline cublasStatus_t point(atomr_matmul *p, pointer *at, const void *address) {
    if (address == at->set) return CUBLAS_STATUS_SUCCESS;
    const cublasStatus_t r = set_attribute(p, at->attribute, &address, sizeof address);
    at->set = r == CUBLAS_STATUS_SUCCESS ? address : NULL;
    return r;
}

/* Write down an error of the library, with the matmul, since a bare NOT_SUPPORTED leaves its reader guessing;
 * returns its atomr_code. */
int atomr_matmul_fail(const atomr_matmul *, cublasStatus_t status, const char *what, atomr_failure *failure);

/* Refuse a specification that is malformed; returns an atomr_code. */
int atomr_matmul_check(const atomr_matmul_spec *, atomr_failure *failure);
/* Make the descriptor and the layouts of a plan.  It owns what there is of them even after a failure. */
cublasStatus_t atomr_matmul_describe(atomr_matmul *);
/* Enqueue with an algorithm and a workspace; alpha and beta as the descriptor wants them.  Returns an atomr_code. */
int atomr_matmul_launch(atomr_matmul *, const cublasLtMatmulAlgo_t *algo, void *workspace, size_t nbytes,
                        void *const *pointers, const void *alpha, const void *beta, CUstream stream,
                        atomr_failure *failure);

#endif
