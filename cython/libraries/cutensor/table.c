#include "libraries/cutensor/table.h"

#include <dlfcn.h>
#include <string.h>

static size_t version(const void *table) {
    const atomr_cutensor_table *t = table;
    return t->cutensorGetVersion ? t->cutensorGetVersion() : 0;
}

#define F(result, name, arguments) #name,
static const char *const functions[] = {ATOMR_CUTENSOR_FUNCTIONS(F) ATOMR_CUTENSOR_OPTIONAL(F)};
static const char *const optional[] = {ATOMR_CUTENSOR_OPTIONAL(F)};
#undef F
static const char *const sonames[] = {"libcutensor.so.2", NULL};
static const atomr_library_info info = {
    .title = "cuTENSOR",
    .environment = "ATOMR_NATIVE_CUTENSOR",
    .help = "pip install cutensor-cu13 (CUDA 13) or cutensor-cu12 (CUDA 12)",
    .sonames = sonames,
    .functions = functions,
    .n_needed = (sizeof functions - sizeof optional) / sizeof *functions,
    .n_optional = sizeof optional / sizeof *optional,
    .version = version,
};
static atomr_cutensor_table table;
atomr_library atomr_cutensor_library = ATOMR_LIBRARY(info, table);

_Static_assert(sizeof table == sizeof functions, "a table of function pointers");

const atomr_cutensor_table *atomr_cutensor_load(const char *path, char *why, size_t size) {
    return atomr_library_open(&atomr_cutensor_library, path, why, size);
}

cutensorComputeDescriptor_t atomr_cutensor_compute(const char *name) {
    cutensorComputeDescriptor_t found = NULL;
    const void *at = dlsym(atomr_cutensor_library.handle, name); /* of a constant, which holds the descriptor */
    if (at) memcpy(&found, at, sizeof found);
    return found;
}
