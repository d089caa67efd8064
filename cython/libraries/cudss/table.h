/* cuDSS's C interface, declared without its headers and bound at run time. */
#ifndef ATOMR_CUDSS_TABLE_H
#define ATOMR_CUDSS_TABLE_H

#include "cuda/library.h"
#include "libraries/cudss/names.h"

/* The memory of the device as the library gets it. */
typedef struct {
    void *ctx;
    int (*device_alloc)(void *ctx, void **ptr, size_t size, cudaStream_t stream);
    int (*device_free)(void *ctx, void *ptr, size_t size, cudaStream_t stream);
    char name[CUDSS_ALLOCATOR_NAME_LEN];
} cudssDeviceMemHandler_t;

ATOMR_CUDSS_STRUCTS(ATOMR_STRUCT_SIZE)

typedef struct {
#define F(result, name, arguments) result(*name) arguments;
    ATOMR_CUDSS_FUNCTIONS(F)
#undef F
} atomr_cudss_table;

/* Its version is 10000 for 1.0.0. */
extern atomr_library atomr_cudss_library;

/* As `atomr_library_open`; the environment's ATOMR_NATIVE_CUDSS, else `path`, else libcudss.so.1.  It needs cuBLAS, which
 * is to be open. */
const atomr_cudss_table *atomr_cudss_load(const char *path, char *why, size_t size);

#endif
