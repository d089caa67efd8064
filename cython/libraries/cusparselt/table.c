#include "libraries/cusparselt/table.h"

static size_t version(const void *table) {
    const atomr_cusparselt_table *t = table;
    int part[3] = {0, 0, 0};
    for (int i = MAJOR_VERSION; t->cusparseLtGetProperty && i <= PATCH_LEVEL; i++)
        if (t->cusparseLtGetProperty(i, &part[i]) != 0) return 0;
    return (size_t)(part[MAJOR_VERSION] * 10000 + part[MINOR_VERSION] * 100 + part[PATCH_LEVEL]);
}

#define F(result, name, arguments) #name,
static const char *const functions[] = {ATOMR_CUSPARSELT_FUNCTIONS(F)};
#undef F
static const char *const sonames[] = {"libcusparseLt.so.0", NULL};
static const atomr_library_info info = {
    .title = "cuSPARSELt",
    .environment = "ATOMR_NATIVE_CUSPARSELT",
    .help = "pip install nvidia-cusparselt-cu13 (CUDA 13) or nvidia-cusparselt-cu12 (CUDA 12)",
    .sonames = sonames,
    .functions = functions,
    .n_needed = sizeof functions / sizeof *functions,
    .version = version,
};
static atomr_cusparselt_table table;
atomr_library atomr_cusparselt_library = ATOMR_LIBRARY(info, table);

_Static_assert(sizeof table == sizeof functions, "a table of function pointers");

const atomr_cusparselt_table *atomr_cusparselt_load(const char *path, char *why, size_t size) {
    return atomr_library_open(&atomr_cusparselt_library, path, why, size);
}
