#include "libraries/curand/table.h"

static size_t version(const void *table) {
    const atomr_curand_table *t = table;
    int part[3] = {0, 0, 0};
    for (int i = MAJOR_VERSION; t->curandGetProperty && i <= PATCH_LEVEL; i++)
        if (t->curandGetProperty(i, &part[i]) != 0) return 0;
    return (size_t)(part[MAJOR_VERSION] * 10000 + part[MINOR_VERSION] * 100 + part[PATCH_LEVEL]);
}

#define F(result, name, arguments) #name,
static const char *const functions[] = {ATOMR_CURAND_FUNCTIONS(F)};
#undef F
static const char *const sonames[] = {"libcurand.so.10", NULL};
static const atomr_library_info info = {
    .title = "cuRAND",
    .environment = "ATOMR_NATIVE_CURAND",
    .help = "pip install nvidia-curand (CUDA 13) or nvidia-curand-cu12 (CUDA 12)",
    .sonames = sonames,
    .functions = functions,
    .n_needed = sizeof functions / sizeof *functions,
    .version = version,
};
static atomr_curand_table table;
atomr_library atomr_curand_library = ATOMR_LIBRARY(info, table);

_Static_assert(sizeof table == sizeof functions, "a table of function pointers");

const atomr_curand_table *atomr_curand_load(const char *path, char *why, size_t size) {
    return atomr_library_open(&atomr_curand_library, path, why, size);
}
