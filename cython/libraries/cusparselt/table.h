/* cuSPARSELt's C interface, declared without its headers and bound at run time.
 *
 * Its objects are structs of 512 bytes that lie in our memory, and that it refers to by address: they never move. */
#ifndef ATOMR_CUSPARSELT_TABLE_H
#define ATOMR_CUSPARSELT_TABLE_H

#include "cuda/library.h"
#include "libraries/cusparselt/names.h"

#define OPAQUE(name)                                                                                                  \
    typedef struct {                                                                                                  \
        _Alignas(16) uint8_t data[512];                                                                               \
    } name;
OPAQUE(cusparseLtHandle_t)
OPAQUE(cusparseLtMatDescriptor_t)
OPAQUE(cusparseLtMatmulDescriptor_t)
OPAQUE(cusparseLtMatmulAlgSelection_t)
OPAQUE(cusparseLtMatmulPlan_t)
#undef OPAQUE

ATOMR_CUSPARSELT_STRUCTS(ATOMR_STRUCT_SIZE)

typedef struct {
#define F(result, name, arguments) result(*name) arguments;
    ATOMR_CUSPARSELT_FUNCTIONS(F)
#undef F
} atomr_cusparselt_table;

/* Its version is 801 for 0.8.1, and 1000 for 0.10.0. */
extern atomr_library atomr_cusparselt_library;

/* As `atomr_library_open`; the environment's ATOMR_NATIVE_CUSPARSELT, else `path`, else libcusparseLt.so.0. */
const atomr_cusparselt_table *atomr_cusparselt_load(const char *path, char *why, size_t size);

#endif
