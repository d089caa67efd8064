#include "libraries/cusparse/table.h"

static size_t version(const void *table) {
    const atomr_cusparse_table *t = table;
    int part[3] = {0, 0, 0};
    for (int i = MAJOR_VERSION; t->cusparseGetProperty && i <= PATCH_LEVEL; i++)
        if (t->cusparseGetProperty(i, &part[i]) != 0) return 0;
    return (size_t)(part[MAJOR_VERSION] * 10000 + part[MINOR_VERSION] * 100 + part[PATCH_LEVEL]);
}

#define F(result, name, arguments) #name,
static const char *const functions[] = {ATOMR_CUSPARSE_FUNCTIONS(F)};
#undef F
static const char *const sonames[] = {"libcusparse.so.12", NULL};
static const atomr_library_info info = {
    .title = "cuSPARSE",
    .environment = "ATOMR_NATIVE_CUSPARSE",
    .help = "pip install nvidia-cusparse (CUDA 13) or nvidia-cusparse-cu12 (CUDA 12)",
    .sonames = sonames,
    .functions = functions,
    .n_needed = sizeof functions / sizeof *functions,
    .version = version,
};
static atomr_cusparse_table table;
atomr_library atomr_cusparse_library = ATOMR_LIBRARY(info, table);

_Static_assert(sizeof table == sizeof functions, "a table of function pointers");

const atomr_cusparse_table *atomr_cusparse_load(const char *path, char *why, size_t size) {
    return atomr_library_open(&atomr_cusparse_library, path, why, size);
}
