#include "libraries/cublaslt/table.h"

static size_t version(const void *table) {
    const atomr_cublaslt *lt = table;
    return lt->cublasLtGetVersion ? lt->cublasLtGetVersion() : 0;
}

const atomr_constant atomr_cublaslt_constants[] = {
    ATOMR_CUBLAS_SHARED_CONSTANTS(ATOMR_CONSTANT) ATOMR_CUBLASLT_CONSTANTS(ATOMR_CONSTANT) ATOMR_LAST_CONSTANT};

#define F(result, name, arguments) #name,
static const char *const functions[] = {ATOMR_CUBLASLT_FUNCTIONS(F)};
#undef F
static const char *const sonames[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};
static const atomr_library_info info = {
    .title = "cuBLASLt",
    .environment = "ATOMR_NATIVE_CUBLASLT",
    .help = "pip install nvidia-cublas (CUDA 13) or nvidia-cublas-cu12 (CUDA 12)",
    .sonames = sonames,
    .functions = functions,
    .n_needed = sizeof functions / sizeof *functions,
    .version = version,
};
static atomr_cublaslt table;
atomr_library atomr_cublaslt_library = ATOMR_LIBRARY(info, table);

_Static_assert(sizeof table == sizeof functions, "a table of function pointers");

const atomr_cublaslt *atomr_cublaslt_load(const char *path, char *why, size_t size) {
    return atomr_library_open(&atomr_cublaslt_library, path, why, size);
}
