/* cuSOLVER's C interface, declared without its headers and bound at run time. */
#ifndef ATOMR_CUSOLVER_TABLE_H
#define ATOMR_CUSOLVER_TABLE_H

#include "libraries/cublas/table.h"
#include "libraries/cusolver/names.h"

ATOMR_CUSOLVER_STRUCTS(ATOMR_STRUCT_SIZE)

typedef struct {
#define F(result, name, arguments) result(*name) arguments;
    ATOMR_CUSOLVER_FUNCTIONS(F)
#undef F
} atomr_cusolver_table;

/* Its version is 120004 for 12.0.4, and 110705 for 11.7.5. */
extern atomr_library atomr_cusolver_library;

/* As `atomr_library_open`; the environment's ATOMR_NATIVE_CUSOLVER, else `path`, else libcusolver.so.12, then .11. */
const atomr_cusolver_table *atomr_cusolver_load(const char *path, char *why, size_t size);

#endif
