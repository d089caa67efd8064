/* NCCL's C interface, declared without its header and bound at run time. */
#ifndef ATOMR_NCCL_TABLE_H
#define ATOMR_NCCL_TABLE_H

#include "cuda/library.h"
#include "libraries/nccl/names.h"

typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;
ATOMR_NCCL_STRUCTS(ATOMR_STRUCT_SIZE)

/* ncclConfig_t of 2.18.  The struct grows at its end; a library takes what `size` says, and its defaults for the rest. */
typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
    int splitShare;
} atomr_nccl_config;

enum { ATOMR_NCCL_MAGIC = (int)0xcafebeef, ATOMR_NCCL_VERSION = 21800, ATOMR_NCCL_FLOAT8 = 22400 };

#define ATOMR_NCCL_INIT                                                                                               \
    (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank, atomr_nccl_config *config)
#define ATOMR_NCCL_SPLIT (ncclComm_t comm, int color, int key, ncclComm_t *newcomm, atomr_nccl_config *config)

typedef struct {
#define F(result, name, arguments) result(*name) arguments;
    ATOMR_NCCL_FUNCTIONS(F)
    F(ncclResult_t, ncclCommInitRankConfig, ATOMR_NCCL_INIT)
    F(ncclResult_t, ncclCommSplit, ATOMR_NCCL_SPLIT)
#undef F
} atomr_nccl_table;

/* Its version is 22809 for 2.28.9. */
extern atomr_library atomr_nccl_library;

/* As `atomr_library_open`; the environment's ATOMR_NATIVE_NCCL, else `path`, else libnccl.so.2. */
const atomr_nccl_table *atomr_nccl_load(const char *path, char *why, size_t size);

#endif
