/* cuDNN's C interface, declared without its headers and bound at run time. */
#ifndef ATOMR_CUDNN_TABLE_H
#define ATOMR_CUDNN_TABLE_H

#include "cuda/library.h"
#include "libraries/cudnn/names.h"

typedef struct {
#define F(result, name, arguments) result(*name) arguments;
    ATOMR_CUDNN_FUNCTIONS(F)
#undef F
} atomr_cudnn_table;

/* Its version is 91900 for 9.19.0. */
extern atomr_library atomr_cudnn_library;

/* As `atomr_library_open`; the environment's ATOMR_NATIVE_CUDNN, else `path`, else libcudnn.so.9. */
const atomr_cudnn_table *atomr_cudnn_load(const char *path, char *why, size_t size);

#endif
