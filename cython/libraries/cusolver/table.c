#include "libraries/cusolver/table.h"

static size_t version(const void *table) {
    const atomr_cusolver_table *t = table;
    int part[3] = {0, 0, 0};
    for (int i = MAJOR_VERSION; t->cusolverGetProperty && i <= PATCH_LEVEL; i++)
        if (t->cusolverGetProperty(i, &part[i]) != 0) return 0;
    return (size_t)(part[MAJOR_VERSION] * 10000 + part[MINOR_VERSION] * 100 + part[PATCH_LEVEL]);
}

#define F(result, name, arguments) #name,
static const char *const functions[] = {ATOMR_CUSOLVER_FUNCTIONS(F)};
#undef F
static const char *const sonames[] = {"libcusolver.so.12", "libcusolver.so.11", NULL};
static const atomr_library_info info = {
    .title = "cuSOLVER",
    .environment = "ATOMR_NATIVE_CUSOLVER",
    .help = "pip install nvidia-cusolver (CUDA 13) or nvidia-cusolver-cu12 (CUDA 12)",
    .sonames = sonames,
    .functions = functions,
    .n_needed = sizeof functions / sizeof *functions,
    .version = version,
};
static atomr_cusolver_table table;
atomr_library atomr_cusolver_library = ATOMR_LIBRARY(info, table);

_Static_assert(sizeof table == sizeof functions, "a table of function pointers");

const atomr_cusolver_table *atomr_cusolver_load(const char *path, char *why, size_t size) {
    return atomr_library_open(&atomr_cusolver_library, path, why, size);
}
