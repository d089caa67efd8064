#include "libraries/cudnn/table.h"

static size_t version(const void *table) {
    const atomr_cudnn_table *t = table;
    return t->cudnnGetVersion ? t->cudnnGetVersion() : 0;
}

#define F(result, name, arguments) #name,
static const char *const functions[] = {ATOMR_CUDNN_FUNCTIONS(F)};
#undef F
static const char *const sonames[] = {"libcudnn.so.9", NULL};
static const atomr_library_info info = {
    .title = "cuDNN",
    .environment = "ATOMR_NATIVE_CUDNN",
    .help = "pip install nvidia-cudnn-cu13 (CUDA 13) or nvidia-cudnn-cu12 (CUDA 12)",
    .sonames = sonames,
    .functions = functions,
    .n_needed = sizeof functions / sizeof *functions,
    .version = version,
};
static atomr_cudnn_table table;
atomr_library atomr_cudnn_library = ATOMR_LIBRARY(info, table);

_Static_assert(sizeof table == sizeof functions, "a table of function pointers");

const atomr_cudnn_table *atomr_cudnn_load(const char *path, char *why, size_t size) {
    return atomr_library_open(&atomr_cudnn_library, path, why, size);
}
