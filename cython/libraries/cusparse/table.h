/* cuSPARSE's C interface, declared without its headers and bound at run time. */
#ifndef ATOMR_CUSPARSE_TABLE_H
#define ATOMR_CUSPARSE_TABLE_H

#include "cuda/library.h"
#include "libraries/cusparse/names.h"

typedef struct {
#define F(result, name, arguments) result(*name) arguments;
    ATOMR_CUSPARSE_FUNCTIONS(F)
#undef F
} atomr_cusparse_table;

/* Its version is 120603 for 12.6.3. */
extern atomr_library atomr_cusparse_library;

/* As `atomr_library_open`; the environment's ATOMR_NATIVE_CUSPARSE, else `path`, else libcusparse.so.12. */
const atomr_cusparse_table *atomr_cusparse_load(const char *path, char *why, size_t size);

#endif
