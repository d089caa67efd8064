/* cuTENSOR's C interface, declared without its headers and bound at run time. */
#ifndef ATOMR_CUTENSOR_TABLE_H
#define ATOMR_CUTENSOR_TABLE_H

#include "cuda/library.h"
#include "libraries/cutensor/names.h"

typedef struct {
#define F(result, name, arguments) result(*name) arguments;
    ATOMR_CUTENSOR_FUNCTIONS(F)
    ATOMR_CUTENSOR_OPTIONAL(F) /* NULL where the library has them not */
#undef F
} atomr_cutensor_table;

/* Its version is 20801 for 2.8.1. */
extern atomr_library atomr_cutensor_library;

/* As `atomr_library_open`; the environment's ATOMR_NATIVE_CUTENSOR, else `path`, else libcutensor.so.2. */
const atomr_cutensor_table *atomr_cutensor_load(const char *path, char *why, size_t size);
/* The compute type that the open library exports under this name; NULL: it has none. */
cutensorComputeDescriptor_t atomr_cutensor_compute(const char *name);

#endif
