/* Products with sparse matrices by cuSPARSE's generic interface, as plans that lanes run without the GIL.
 *
 * Nothing of a pattern is kept: descriptors are made for each call, and the library gets no analysis.  So a message that
 * writes index arrays needs to tell nobody. */
#ifndef ATOMR_CUSPARSE_CALL_H
#define ATOMR_CUSPARSE_CALL_H

#include "cuda/cuda_backend.h"
#include "libraries/cusparse/table.h"

#define ATOMR_SPARSE_CONSTANTS(C)                                                                                     \
    /* routines */                                                                                                    \
    C(ATOMR_SPARSE_SPMV, 0)                                                                                           \
    C(ATOMR_SPARSE_SDDMM, 1)                                                                                          \
    /* formats */                                                                                                     \
    C(ATOMR_SPARSE_CSR, 0)                                                                                            \
    C(ATOMR_SPARSE_COO, 1)

enum { ATOMR_SPARSE_CONSTANTS(ATOMR_ENUMERATOR) };

/* These, and those of the library, by name. */
extern const atomr_constant atomr_sparse_constants[];

/* A call.  Operands: addresses; -1: none.  Dense matrices are those of the library: X is the first of a sampled product,
 * Z the second, Y the result of the others. */
#define ATOMR_SPARSE_FIELDS(F, A)                                                                                     \
    F(routine) F(format)                        /* ATOMR_SPARSE_* */                                                  \
    F(rows) F(columns) F(nnz)                   /* of the sparse matrix */                                            \
    F(index_type) F(value_type)                 /* cusparseIndexType_t, cudaDataType */                               \
    F(dense_type) F(out_type) F(compute_type)   /* cudaDataType */                                                    \
    F(op_a) F(op_b) F(algorithm)                                                                                      \
    F(values) F(offsets) F(indices)             /* operands; `offsets` of COO are rows */                             \
    F(x) F(y) F(z)                              /* operands */                                                        \
    A(extent, 6) A(step, 3) A(order, 3)         /* rows and columns, leading dimension and order of X, Y, Z */        \
    A(factor, 4)                                /* scalars: alpha, beta, and their imaginary parts */                 \
    A(factor_at, 2)                             /* operands: alpha and beta on the device, both or none */            \
    F(scratch)                                  /* where the buffer is in the lane's workspace, bytes */              \
    F(n_operands) F(n_scalars)

typedef struct {
    ATOMR_SPARSE_FIELDS(ATOMR_MEMBER, ATOMR_ARRAY)
} atomr_sparse_spec;
extern const atomr_field atomr_sparse_fields[];

/* A prepared call.  It runs on the handle of whichever lane runs it. */
typedef struct {
    atomr_cuda *cuda;
    atomr_sparse_spec spec;
    uint64_t buffer; /* bytes */
} atomr_sparse_call;

/* Check a call, and ask the library for the size of its buffer; makes a handle for that, once for the device.  Returns
 * an atomr_code. */
int atomr_sparse_prepare(atomr_sparse_call *, atomr_failure *);
/* An atomr_run; context: atomr_sparse_call. */
int atomr_sparse_run(void *context, const atomr_call *call, atomr_failure *);

#endif
