#include "libraries/cublas/table.h"

static size_t version(const void *table) {
    const atomr_cublas_table *t = table;
    int part[3] = {0, 0, 0};
    for (int i = MAJOR_VERSION; t->cublasGetProperty && i <= PATCH_LEVEL; i++)
        if (t->cublasGetProperty(i, &part[i]) != 0) return 0;
    return (size_t)(part[MAJOR_VERSION] * 10000 + part[MINOR_VERSION] * 100 + part[PATCH_LEVEL]);
}

#define F(result, name, arguments) #name,
static const char *const functions[] = {ATOMR_CUBLAS_FUNCTIONS(F) ATOMR_CUBLAS_OPTIONAL(F)};
static const char *const optional[] = {ATOMR_CUBLAS_OPTIONAL(F)};
#undef F
static const char *const sonames[] = {"libcublas.so.13", "libcublas.so.12", NULL};
static const atomr_library_info info = {
    .title = "cuBLAS",
    .environment = "ATOMR_NATIVE_CUBLAS",
    .help = "pip install nvidia-cublas (CUDA 13) or nvidia-cublas-cu12 (CUDA 12)",
    .sonames = sonames,
    .functions = functions,
    .n_needed = (sizeof functions - sizeof optional) / sizeof *functions,
    .n_optional = sizeof optional / sizeof *optional,
    .version = version,
};
static atomr_cublas_table table;
atomr_library atomr_cublas_library = ATOMR_LIBRARY(info, table);

_Static_assert(sizeof table == sizeof functions, "a table of function pointers");

const atomr_cublas_table *atomr_cublas_load(const char *path, char *why, size_t size) {
    return atomr_library_open(&atomr_cublas_library, path, why, size);
}
