#include "cuda/driver.h"

#include "cuda/library.h"

static size_t version(const void *table) {
    const atomr_driver *d = table;
    int number = 0;
    return d->cuDriverGetVersion && d->cuDriverGetVersion(&number) == CUDA_SUCCESS ? (size_t)number : 0;
}

#define F(result, name, arguments) #name,
static const char *const functions[] = {ATOMR_DRIVER_FUNCTIONS(F) ATOMR_DRIVER_OPTIONAL(F)};
static const char *const optional[] = {ATOMR_DRIVER_OPTIONAL(F)};
#undef F
static const char *const sonames[] = {"libcuda.so.1", NULL};
static const atomr_library_info info = {
    .title = "the CUDA driver",
    .environment = "ATOMR_NATIVE_CUDA",
    .help = "install NVIDIA's driver for CUDA 12 or 13",
    .sonames = sonames,
    .functions = functions,
    .n_needed = (sizeof functions - sizeof optional) / sizeof *functions,
    .n_optional = sizeof optional / sizeof *optional,
    .version = version,
};
static atomr_driver table;
static atomr_library library = ATOMR_LIBRARY(info, table);

_Static_assert(sizeof table == sizeof functions, "a table of function pointers");

const atomr_driver *atomr_driver_load(char *why, size_t size) { return atomr_library_open(&library, NULL, why, size); }
