/* Plans of cuTENSOR, prepared once and run without the GIL.
 *
 * A device has one handle, which all lanes use at once; a plan keeps no state, so any lane runs it.  A plan is made
 * for each of three alignments of its operands' addresses: multiples of 256 bytes, of 16, and any others.  Where less
 * aligned operands do not have the kernel that is named, the library chooses another for them. */
#ifndef ATOMR_CUTENSOR_PLAN_H
#define ATOMR_CUTENSOR_PLAN_H

#include "cuda/cuda_backend.h"
#include "libraries/cutensor/table.h"

enum { ATOMR_TENSOR_MODES = 64, ATOMR_TENSORS = 5 };

#define ATOMR_TENSOR_CONSTANTS(C)                                                                                     \
    /* operations */                                                                                                  \
    C(ATOMR_TENSOR_CONTRACT, 0)                                                                                       \
    C(ATOMR_TENSOR_CONTRACT_TRINARY, 1)                                                                               \
    C(ATOMR_TENSOR_REDUCE, 2)                                                                                         \
    C(ATOMR_TENSOR_PERMUTE, 3)                                                                                        \
    C(ATOMR_TENSOR_BINARY, 4)                                                                                         \
    C(ATOMR_TENSOR_TRINARY, 5)                                                                                        \
    /* compute types */                                                                                               \
    C(ATOMR_TENSOR_16F, 0)                                                                                            \
    C(ATOMR_TENSOR_16BF, 1)                                                                                           \
    C(ATOMR_TENSOR_TF32, 2)                                                                                           \
    C(ATOMR_TENSOR_3XTF32, 3)                                                                                         \
    C(ATOMR_TENSOR_32F, 4)                                                                                            \
    C(ATOMR_TENSOR_64F, 5)                                                                                            \
    C(ATOMR_TENSOR_9X16BF, 6)                                                                                         \
    C(ATOMR_TENSOR_8XINT8, 7)                                                                                         \
    C(ATOMR_TENSOR_4X16F, 8)

enum { ATOMR_TENSOR_CONSTANTS(ATOMR_ENUMERATOR) };

/* These, and those of the library, by name. */
extern const atomr_constant atomr_tensor_constants[];

/* A call.  Its tensors are the inputs in cuTENSOR's order, then the result; of contractions and reductions the last input
 * is the tensor that beta scales, which has the result's descriptor, and is the result where nothing is added.  So has
 * the last input of elementwise operations. */
#define ATOMR_TENSOR_FIELDS(F, A)                                                                                     \
    F(operation) F(compute)             /* ATOMR_TENSOR_* */                                                          \
    F(n_modes) A(extent, 64)            /* modes are 0, 1, ... */                                                     \
    A(type, 5)                          /* cudaDataType */                                                            \
    A(count, 5)                         /* modes of each tensor */                                                    \
    A(mode, 320) A(stride, 320)         /* of tensor t from 64 t on; strides in elements */                           \
    A(itemsize, 5)                      /* bytes */                                                                   \
    A(offset, 5)                        /* bytes from an operand's address to its first element */                    \
    A(operand, 5)                       /* of a message */                                                            \
    A(unary, 4)                         /* cutensorOperator_t of the inputs */                                        \
    A(binary, 2)                        /* of A and B, and that with C; of a reduction the first */                   \
    A(factor, 6)                        /* scalars: alpha, beta, gamma, and their imaginary parts; -1: as in */       \
    A(number, 3)                        /* these */                                                                   \
    F(algo) F(rank)                     /* cutensorAlgo_t, and its kernel by the library's model: 0 is the best; -1: unset */ \
    F(jit)                              /* whether a kernel may be compiled for aligned operands: takes seconds */    \
    F(workspace_bytes)                  /* the most of the lane's workspace that a plan may want */                   \
    F(asked_bytes)                      /* what its kernel is chosen with, unless that wants more than a plan may */  \
    F(n_operands) F(n_scalars)

typedef struct {
    ATOMR_TENSOR_FIELDS(ATOMR_MEMBER, ATOMR_ARRAY)
} atomr_tensor_spec;
extern const atomr_field atomr_tensor_fields[];

typedef struct atomr_tensor_plan atomr_tensor_plan;

/* Make a plan; the library must be open, and the device's context current in this thread.  It takes the workspace that
 * its kernel needs, within what it may have.  Returns an atomr_code. */
int atomr_tensor_new(atomr_cuda *, const atomr_tensor_spec *, atomr_tensor_plan **made, atomr_failure *);
uint64_t atomr_tensor_workspace(const atomr_tensor_plan *); /* bytes */
/* Read the kernels that were compiled in other processes from a file, or write those of this one; ATOMR_UNSUPPORTED, of
 * the rule "tensor.kernels": the file is of another version or GPU, or damaged.  As for `atomr_tensor_new`. */
int atomr_tensor_kernels(atomr_cuda *, const char *path, int write, atomr_failure *);
void atomr_tensor_delete(atomr_tensor_plan *);              /* while no lane runs it; NULL passes */
/* An atomr_run; context: atomr_tensor_plan.  Enqueues on the lane's stream. */
int atomr_tensor_run(void *context, const atomr_call *call, atomr_failure *failure);

#endif
