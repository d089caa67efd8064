/* cuRAND's C interface, declared without its headers and bound at run time. */
#ifndef ATOMR_CURAND_TABLE_H
#define ATOMR_CURAND_TABLE_H

#include "cuda/library.h"
#include "libraries/curand/names.h"

typedef struct {
#define F(result, name, arguments) result(*name) arguments;
    ATOMR_CURAND_FUNCTIONS(F)
#undef F
} atomr_curand_table;

/* Its version is 100400 for 10.4.0. */
extern atomr_library atomr_curand_library;

/* As `atomr_library_open`; the environment's ATOMR_NATIVE_CURAND, else `path`, else libcurand.so.10. */
const atomr_curand_table *atomr_curand_load(const char *path, char *why, size_t size);

#endif
