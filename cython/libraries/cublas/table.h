/* cuBLAS's C interface, declared without its headers and bound at run time. */
#ifndef ATOMR_CUBLAS_TABLE_H
#define ATOMR_CUBLAS_TABLE_H

#include "cuda/library.h"
#include "libraries/cublas/names.h"
#include "libraries/cublas_constants.h"

typedef struct {
    float x, y;
} cuComplex;
typedef struct {
    double x, y;
} cuDoubleComplex;

ATOMR_CUBLAS_STRUCTS(ATOMR_STRUCT_SIZE)

typedef struct {
#define F(result, name, arguments) result(*name) arguments;
    ATOMR_CUBLAS_FUNCTIONS(F)
    ATOMR_CUBLAS_OPTIONAL(F) /* NULL where the library has them not */
#undef F
} atomr_cublas_table;

/* Its version is 130102 for 13.1.2, and 120900 for 12.9.0. */
extern atomr_library atomr_cublas_library;

/* As `atomr_library_open`; the environment's ATOMR_NATIVE_CUBLAS, else `path`, else libcublas.so.13, then .12. */
const atomr_cublas_table *atomr_cublas_load(const char *path, char *why, size_t size);

#endif
