/* Contractions of tensors of blocks in the fake cuTENSOR. */
#ifndef FAKE_BLOCKS_H
#define FAKE_BLOCKS_H

#include <complex.h>

#include "libraries/cutensor/table.h"

/* A contraction, shared by its operation and its plans. */
typedef struct fake_blocks fake_blocks;
fake_blocks *fake_blocks_share(fake_blocks *); /* NULL passes */
void fake_blocks_drop(fake_blocks *);
uint64_t fake_blocks_workspace(const fake_blocks *); /* bytes */

/* Elements of tensors, and the operation and the plan of a contraction, which tensor.c has. */
double complex fake_tensor_get(cudaDataType_t, const void *, int64_t);
void fake_tensor_put(cudaDataType_t, void *, int64_t, double complex);
cutensorStatus_t fake_blocks_operation(cutensorOperationDescriptor_t *, fake_blocks *, cudaDataType_t scalar);
fake_blocks *fake_plan_blocks(cutensorPlan_t);
int fake_plan_repeats(cutensorPlan_t); /* whether it was asked for the same bits in each run */

#endif
