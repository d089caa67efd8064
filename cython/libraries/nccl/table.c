#include "libraries/nccl/table.h"

static size_t version(const void *table) {
    const atomr_nccl_table *t = table;
    int found = 0;
    return t->ncclGetVersion && t->ncclGetVersion(&found) == ncclSuccess && found > 0 ? (size_t)found : 0;
}

#define F(result, name, arguments) #name,
static const char *const functions[] = {ATOMR_NCCL_FUNCTIONS(F) "ncclCommInitRankConfig", "ncclCommSplit",
                                        ATOMR_NCCL_LATER(F)};
static const char *const later[] = {ATOMR_NCCL_LATER(F)};
#undef F
static const char *const sonames[] = {"libnccl.so.2", NULL};
static const atomr_library_info info = {
    .title = "NCCL",
    .environment = "ATOMR_NATIVE_NCCL",
    .help = "pip install nvidia-nccl-cu13 (CUDA 13) or nvidia-nccl-cu12 (CUDA 12), 2.18 or newer",
    .sonames = sonames,
    .functions = functions,
    .n_needed = (sizeof functions - sizeof later) / sizeof *functions,
    .n_optional = sizeof later / sizeof *later,
    .version = version,
};
static atomr_nccl_table table;
atomr_library atomr_nccl_library = ATOMR_LIBRARY(info, table);

_Static_assert(sizeof table == sizeof functions, "a table of function pointers");
_Static_assert(offsetof(atomr_nccl_config, trafficClass) + sizeof(int) == ATOMR_NCCL_CONFIG_BYTES, "ncclConfig_t of 2.18");
_Static_assert(sizeof(atomr_nccl_config) == 72, "ncclConfig_t of 2.27");

const atomr_nccl_table *atomr_nccl_load(const char *path, char *why, size_t size) {
    return atomr_library_open(&atomr_nccl_library, path, why, size);
}
