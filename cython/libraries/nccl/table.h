/* NCCL's C interface, declared without its header and bound at run time. */
#ifndef ATOMR_NCCL_TABLE_H
#define ATOMR_NCCL_TABLE_H

#include "cuda/library.h"
#include "libraries/nccl/names.h"

typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;
ATOMR_NCCL_STRUCTS(ATOMR_STRUCT_SIZE)

/* ncclConfig_t of 2.18, and after `splitShare` that of 2.27.  The struct grows at its end; a library takes what `size`
 * says, and its defaults for the rest. */
typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
    int splitShare, trafficClass;
    const char *commName;
    int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs;
} atomr_nccl_config;

enum {
    ATOMR_NCCL_MAGIC = (int)0xcafebeef,
    ATOMR_NCCL_VERSION = 21800,
    ATOMR_NCCL_FLOAT8 = 22400,
    ATOMR_NCCL_WINDOWS = 22703,    /* ncclCommWindowRegister */
    ATOMR_NCCL_POLICIES = 22700,   /* the longer config */
    ATOMR_NCCL_ENGINES = 22803,    /* copy engines, ncclAlltoAll */
    ATOMR_NCCL_CONFIG_BYTES = 48,  /* of 2.18 */
    NCCL_WIN_COLL_SYMMETRIC = 1,   /* these are not in the header of 2.18 */
    NCCL_CTA_POLICY_ZERO = 2,
};

/* Functions that came later than 2.18: NULL where the library lacks them. */
typedef struct ncclWindow_vidmem *ncclWindow_t;
#define ATOMR_NCCL_LATER(F)                                                                                           \
    F(ncclResult_t, ncclCommWindowRegister, (ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags)) \
    F(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t win))                                    \
    F(ncclResult_t, ncclAlltoAll,                                                                                     \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream))

#define ATOMR_NCCL_INIT                                                                                               \
    (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank, atomr_nccl_config *config)
#define ATOMR_NCCL_SPLIT (ncclComm_t comm, int color, int key, ncclComm_t *newcomm, atomr_nccl_config *config)

typedef struct {
#define F(result, name, arguments) result(*name) arguments;
    ATOMR_NCCL_FUNCTIONS(F)
    F(ncclResult_t, ncclCommInitRankConfig, ATOMR_NCCL_INIT)
    F(ncclResult_t, ncclCommSplit, ATOMR_NCCL_SPLIT)
    ATOMR_NCCL_LATER(F)
#undef F
} atomr_nccl_table;

/* Its version is 22809 for 2.28.9. */
extern atomr_library atomr_nccl_library;

/* As `atomr_library_open`; the environment's ATOMR_NATIVE_NCCL, else `path`, else libnccl.so.2. */
const atomr_nccl_table *atomr_nccl_load(const char *path, char *why, size_t size);

#endif
