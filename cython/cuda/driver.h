/* The CUDA driver's C interface, declared without its headers and bound at run time.
 *
 * Names with a version are bound as exported, so that one build serves CUDA 12 and 13.  The table is complete, but
 * for optional functions, or loading fails once.  Structs have the members that are used; tests/runtime/test_driver_headers.py compares them with cuda.h.
 */
#ifndef ATOMR_DRIVER_H
#define ATOMR_DRIVER_H

#include "cuda/driver_names.h"

typedef struct { char bytes[16]; } CUuuid;
typedef struct { char reserved[64]; } CUipcMemHandle;

typedef struct {
    int type;
    int id;
} CUmemLocation;

typedef struct {
    int type;
    int requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType;
        unsigned char gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} CUmemAllocationProp;

typedef struct {
    CUmemLocation location;
    int flags;
} CUmemAccessDesc;

typedef union {
    char pad[64];
    int cooperative;
    int programmaticStreamSerializationAllowed;
    struct {
        unsigned int x, y, z;
    } clusterDim;
} CUlaunchAttributeValue;

typedef struct {
    int id;
    char pad[4];
    CUlaunchAttributeValue value;
} CUlaunchAttribute;

typedef struct {
    unsigned int gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned int numAttrs;
} CUlaunchConfig;

typedef struct {
    _Alignas(64) cuuint64_t opaque[16];
} CUtensorMap;

typedef struct {
    int result;
    void *errorNode;
    void *errorFromNode;
} CUgraphExecUpdateResultInfo;

typedef struct {
    unsigned char from_port, to_port, type, reserved[5];
} CUgraphEdgeData;

typedef struct {
    cuuint64_t handle;
    int type;
    unsigned int size;
    CUgraph *phGraph_out;
    CUcontext ctx;
} CUDA_CONDITIONAL_NODE_PARAMS;

typedef struct {
    int type;
    int reserved0[3];
    union {
        long long reserved1[29];
        CUDA_CONDITIONAL_NODE_PARAMS conditional;
    };
    long long reserved2;
} CUgraphNodeParams;

typedef struct {
    CUfunction func;
    unsigned int gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    void **kernelParams, **extra;
    void *kern;
    CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;

ATOMR_DRIVER_STRUCTS(ATOMR_STRUCT_SIZE)

typedef struct {
#define F(result, name, arguments) result(*name) arguments;
    ATOMR_DRIVER_FUNCTIONS(F)
    ATOMR_DRIVER_OPTIONAL(F) /* NULL where the driver has them not */
#undef F
} atomr_driver;

/* The table, bound at the first call; NULL, with a reason in `why`, if it cannot be. */
const atomr_driver *atomr_driver_load(char *why, size_t size);

#endif
