#include "libraries/cufft/table.h"

#include <dlfcn.h>

static size_t version(const void *table) {
    const atomr_cufft_table *t = table;
    int found = 0;
    return t->cufftGetVersion && t->cufftGetVersion(&found) == 0 && found > 0 ? (size_t)found : 0;
}

#define F(result, name, arguments) #name,
static const char *const functions[] = {ATOMR_CUFFT_FUNCTIONS(F) ATOMR_CUFFT_OPTIONAL(F)};
static const char *const optional[] = {ATOMR_CUFFT_OPTIONAL(F)};
#undef F
static const char *const sonames[] = {"libcufft.so.12", "libcufft.so.11", NULL};
static const atomr_library_info info = {
    .title = "cuFFT",
    .environment = "ATOMR_NATIVE_CUFFT",
    .help = "pip install nvidia-cufft (CUDA 13) or nvidia-cufft-cu12 (CUDA 12)",
    .sonames = sonames,
    .functions = functions,
    .n_needed = (sizeof functions - sizeof optional) / sizeof *functions,
    .n_optional = sizeof optional / sizeof *optional,
    .version = version,
};
static atomr_cufft_table table;
atomr_library atomr_cufft_library = ATOMR_LIBRARY(info, table);

_Static_assert(sizeof table == sizeof functions, "a table of function pointers");

const atomr_cufft_table *atomr_cufft_load(const char *path, char *why, size_t size) {
    return atomr_library_open(&atomr_cufft_library, path, why, size);
}

atomr_fft_setter atomr_cufft_setter(void) {
    const atomr_cufft_table *const t = &table;
    void *const handle = atomr_cufft_library.handle;
    if (t->cufftXtSetJITCallback || !handle) return t->cufftXtSetJITCallback;
    return (atomr_fft_setter)dlsym(handle, "__cufftXtSetJITCallback_12_7");
}
