#include "libraries/cudss/table.h"

static size_t version(const void *table) {
    const atomr_cudss_table *t = table;
    int part[3] = {0, 0, 0};
    for (int i = MAJOR_VERSION; t->cudssGetProperty && i <= PATCH_LEVEL; i++)
        if (t->cudssGetProperty(i, &part[i]) != 0) return 0;
    return (size_t)(part[MAJOR_VERSION] * 10000 + part[MINOR_VERSION] * 100 + part[PATCH_LEVEL]);
}

#define F(result, name, arguments) #name,
static const char *const functions[] = {ATOMR_CUDSS_FUNCTIONS(F)};
#undef F
static const char *const sonames[] = {"libcudss.so.1", NULL};
static const atomr_library_info info = {
    .title = "cuDSS",
    .environment = "ATOMR_NATIVE_CUDSS",
    .help = "pip install '.[cudss-cu13]' (CUDA 13) or '.[cudss-cu12]' (CUDA 12) in a clone of atomr_native",
    .sonames = sonames,
    .functions = functions,
    .n_needed = sizeof functions / sizeof *functions,
    .version = version,
};
static atomr_cudss_table table;
atomr_library atomr_cudss_library = ATOMR_LIBRARY(info, table);

_Static_assert(sizeof table == sizeof functions, "a table of function pointers");

const atomr_cudss_table *atomr_cudss_load(const char *path, char *why, size_t size) {
    return atomr_library_open(&atomr_cudss_library, path, why, size);
}
