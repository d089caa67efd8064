/* Contractions of tensors of blocks by cuTENSOR, prepared once and run without the GIL: one call for all blocks.
 *
 * A plan keeps no state, so any lane runs it.  Its results have the same bits in each run: the library is asked for that,
 * and a version that does not know the question is refused. */
#ifndef ATOMR_CUTENSOR_BLOCKS_H
#define ATOMR_CUTENSOR_BLOCKS_H

#include "cuda/cuda_backend.h"
#include "libraries/cutensor/table.h"

enum { ATOMR_BLOCK_MODES = 32 }; /* of a tensor, in the library */

#define ATOMR_BLOCKS_FIELDS(F, A)                                                                                     \
    F(type)                             /* cudaDataType, of all tensors and factors */                                \
    F(compute)                          /* ATOMR_TENSOR_32F or _64F */                                                \
    A(operand, 4)                       /* of a message: A, B, the tensor that beta scales, and the result */         \
    A(factor, 4)                        /* scalars: alpha, beta, and their imaginary parts; -1: as in */              \
    A(number, 2)                        /* these */                                                                   \
    F(workspace_bytes)                  /* the most of the lane's workspace that a plan may want */                   \
    F(n_operands) F(n_scalars)

typedef struct {
    ATOMR_BLOCKS_FIELDS(ATOMR_MEMBER, ATOMR_ARRAY)
} atomr_blocks_spec;
extern const atomr_field atomr_blocks_fields[];

typedef struct atomr_blocks_plan atomr_blocks_plan;

/* Make a plan; the library must be open, and the device's context current in this thread.  `words` are the structures of
 * A, B and the result, one after the other: how many modes and blocks; the modes, 0, 1, ...; how many sections each has;
 * their extents, those of the first mode first; then for each block its section along each mode, for each block its
 * strides in elements, and for each block the bytes from an operand's address to its first element.  The tensor that beta
 * scales has the result's structure.  Returns an atomr_code. */
int atomr_blocks_new(atomr_cuda *, const atomr_blocks_spec *, const int64_t *words, int64_t count, atomr_blocks_plan **made,
                     atomr_failure *);
uint64_t atomr_blocks_workspace(const atomr_blocks_plan *); /* bytes */
void atomr_blocks_delete(atomr_blocks_plan *);              /* while no lane runs it; NULL passes */
/* An atomr_run; context: atomr_blocks_plan.  Enqueues on the lane's stream. */
int atomr_blocks_run(void *context, const atomr_call *call, atomr_failure *failure);

#endif
