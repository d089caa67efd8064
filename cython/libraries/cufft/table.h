/* cuFFT's C interface, declared without its headers and bound at run time. */
#ifndef ATOMR_CUFFT_TABLE_H
#define ATOMR_CUFFT_TABLE_H

#include "cuda/library.h"
#include "libraries/cufft/names.h"

typedef struct {
#define F(result, name, arguments) result(*name) arguments;
    ATOMR_CUFFT_FUNCTIONS(F)
    ATOMR_CUFFT_OPTIONAL(F) /* NULL where the library has them not */
#undef F
} atomr_cufft_table;

/* Its version is 12000 for 12.0. */
extern atomr_library atomr_cufft_library;

/* As `atomr_library_open`; the environment's ATOMR_NATIVE_CUFFT, else `path`, else libcufft.so.12, then .11. */
const atomr_cufft_table *atomr_cufft_load(const char *path, char *why, size_t size);

/* `cufftXtSetJITCallback`, which cuFFT of CUDA 12.6 to 12.9 exports by another name; NULL where the library has it not. */
typedef cufftResult (*atomr_fft_setter)(cufftHandle, const char *, const void *, size_t, cufftXtCallbackType, void **);
atomr_fft_setter atomr_cufft_setter(void);

#endif
