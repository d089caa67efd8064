/* cuBLAS, level 1 to 3, for what cuBLASLt lacks: declared without its headers, bound at run time, as plans that lanes
 * run without the GIL.  Column-major, as the library has it; the Python builder turns NumPy's layouts into it. */
#ifndef ATOMR_CUBLAS_H
#define ATOMR_CUBLAS_H

#include "cuda_backend.h"

typedef int cublasStatus_t; /* enums in the headers: int sized */
typedef int cublasOperation_t;
typedef int cublasSideMode_t;
typedef int cublasFillMode_t;
typedef int cublasDiagType_t;
typedef int cublasPointerMode_t;
typedef int cublasComputeType_t;
typedef int cudaDataType_t;
typedef struct cublasContext *cublasHandle_t;
typedef struct CUstream_st *cudaStream_t; /* a CUstream */
typedef struct {
    float x, y;
} cuComplex;
typedef struct {
    double x, y;
} cuDoubleComplex;

#include "cublas_functions.h"

enum {
    CUBLAS_SIDE_LEFT = 0,
    CUBLAS_SIDE_RIGHT = 1,
    CUBLAS_FILL_MODE_LOWER = 0,
    CUBLAS_FILL_MODE_UPPER = 1,
    CUBLAS_DIAG_NON_UNIT = 0,
    CUBLAS_DIAG_UNIT = 1,
    CUBLAS_POINTER_MODE_HOST = 0,
    CUBLAS_POINTER_MODE_DEVICE = 1
};

typedef struct {
#define F(name, arguments) cublasStatus_t(*name) arguments;
    ATOMR_CUBLAS_FUNCTIONS(F)
    ATOMR_CUBLAS_OPTIONAL(F) /* NULL where the library has them not */
#undef F
} atomr_cublas_table;

/* Which routine; the order is the builder's. */
enum {
    ATOMR_BLAS_AXPY,
    ATOMR_BLAS_SCAL,
    ATOMR_BLAS_DOT,
    ATOMR_BLAS_NRM2,
    ATOMR_BLAS_GEMV,
    ATOMR_BLAS_GER,
    ATOMR_BLAS_SYMM,
    ATOMR_BLAS_SYRK,
    ATOMR_BLAS_TRMM,
    ATOMR_BLAS_TRSM,
    ATOMR_BLAS_GEAM,
    ATOMR_BLAS_GEMM
};

/* A call, flat: members of one type and size, so that the builder's tuple is copied in order. */
typedef struct {
    int64_t routine, type;      /* type: 0 float, 1 double, 2 cuComplex, 3 cuDoubleComplex */
    int64_t conjugated;         /* of dot and ger: their second vector (dot: first) */
    int64_t side, uplo, trans_a, trans_b, diag;
    int64_t m, n, k;
    int64_t step[3];            /* leading dimensions or increments of the arrays below, in elements */
    int64_t operand[3];         /* arrays in the order of the routine's arguments; -1: none */
    int64_t alpha, beta, alpha_imag, beta_imag; /* scalars of a message, float64; -1: none */
    int64_t batch, jump[3];     /* how often, and bytes from each array to that of the next time */
    int64_t pointers;           /* of a batched trsm: the operand that has the addresses of all A, then of all B, in
                                 * runs of ATOMR_POINTER_RUN(batch) bytes; -1: none */
    int64_t n_operands, n_scalars;
} atomr_blas_spec;

typedef struct atomr_blas atomr_blas;

/* Open the library and make a handle in the current context.  The environment's ATOMR_NATIVE_CUBLAS, else `path`, else
 * libcublas.so.13, then .12.  Takes tens of milliseconds.  Returns an atomr_code. */
int atomr_blas_open(atomr_cuda *cuda, const char *path, atomr_blas **made, atomr_failure *failure);
int atomr_blas_version(const atomr_blas *);
/* Whether the library multiplies groups: cublasGemmGroupedBatchedEx. */
int atomr_blas_groups(const atomr_blas *);
/* Lend scratch memory for the handle's life, aligned to 256 bytes. */
void atomr_blas_set_workspace(atomr_blas *, uint64_t address, uint64_t nbytes);

/* One prepared call; plans of one handle belong to one lane. */
typedef struct {
    atomr_blas *owner;
    atomr_blas_spec spec;
} atomr_blas_call;
int atomr_blas_check(const atomr_blas_spec *, atomr_failure *failure); /* an atomr_code */
/* An atomr_run; context: atomr_blas_call. */
int atomr_blas_run(void *context, const atomr_call *call, atomr_failure *failure);

#endif
