/* The CUDA driver's C interface, declared without its headers and bound at run time.
 *
 * Names and types are those of cuda.h; names with a version are bound as exported, so that one build serves CUDA 12
 * and 13.  The table is complete or loading fails once.  tests/abi compares this file with the real header.
 */
#ifndef ATOMR_DRIVER_H
#define ATOMR_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult; /* enums in cuda.h: int sized */
typedef int CUdevice_attribute;
typedef int CUfunction_attribute;
typedef int CUpointer_attribute;
typedef int CUmemAllocationHandleType;
typedef int CUmemAllocationGranularity_flags;
typedef int CUtensorMapDataType;
typedef int CUtensorMapInterleave;
typedef int CUtensorMapSwizzle;
typedef int CUtensorMapL2promotion;
typedef int CUtensorMapFloatOOBfill;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct { char bytes[16]; } CUuuid;
typedef struct { char reserved[64]; } CUipcMemHandle;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_UNKNOWN = 999,
    CU_STREAM_NON_BLOCKING = 1,
    CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1,
    CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
    CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 10,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_MEM_ALLOCATION_TYPE_PINNED = 1,
    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1,
    CU_MEM_LOCATION_TYPE_DEVICE = 1,
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
    CU_MEM_ALLOC_GRANULARITY_RECOMMENDED = 1,
    CU_MEMHOSTREGISTER_PORTABLE = 1,
    CU_MEMHOSTREGISTER_DEVICEMAP = 2,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
    CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS = 122
};

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

enum {
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6
};

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

#define ATOMR_DRIVER_FUNCTIONS(F)                                                                                     \
    F(cuInit, (unsigned int Flags))                                                                                   \
    F(cuDriverGetVersion, (int *driverVersion))                                                                       \
    F(cuGetErrorName, (CUresult error, const char **pStr))                                                            \
    F(cuGetErrorString, (CUresult error, const char **pStr))                                                          \
    F(cuDeviceGet, (CUdevice *device, int ordinal))                                                                   \
    F(cuDeviceGetCount, (int *count))                                                                                 \
    F(cuDeviceGetName, (char *name, int len, CUdevice dev))                                                           \
    F(cuDeviceGetUuid_v2, (CUuuid *uuid, CUdevice dev))                                                               \
    F(cuDeviceGetAttribute, (int *pi, CUdevice_attribute attrib, CUdevice dev))                                       \
    F(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice dev))                                                             \
    F(cuMemGetInfo_v2, (size_t *free, size_t *total))                                                                 \
    F(cuDevicePrimaryCtxRetain, (CUcontext *pctx, CUdevice dev))                                                      \
    F(cuDevicePrimaryCtxRelease_v2, (CUdevice dev))                                                                   \
    F(cuDevicePrimaryCtxGetState, (CUdevice dev, unsigned int *flags, int *active))                                   \
    F(cuDeviceCanAccessPeer, (int *canAccessPeer, CUdevice dev, CUdevice peerDev))                                    \
    F(cuCtxSetCurrent, (CUcontext ctx))                                                                               \
    F(cuCtxPushCurrent_v2, (CUcontext ctx))                                                                           \
    F(cuCtxPopCurrent_v2, (CUcontext * pctx))                                                                         \
    F(cuCtxSynchronize, (void))                                                                                       \
    F(cuStreamCreate, (CUstream *phStream, unsigned int Flags))                                                       \
    F(cuStreamDestroy_v2, (CUstream hStream))                                                                         \
    F(cuStreamQuery, (CUstream hStream))                                                                              \
    F(cuStreamSynchronize, (CUstream hStream))                                                                        \
    F(cuStreamWaitEvent, (CUstream hStream, CUevent hEvent, unsigned int Flags))                                      \
    F(cuStreamWriteValue32_v2, (CUstream stream, CUdeviceptr addr, uint32_t value, unsigned int flags))               \
    F(cuStreamWriteValue64_v2, (CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags))             \
    F(cuEventCreate, (CUevent *phEvent, unsigned int Flags))                                                          \
    F(cuEventDestroy_v2, (CUevent hEvent))                                                                            \
    F(cuEventRecord, (CUevent hEvent, CUstream hStream))                                                              \
    F(cuEventElapsedTime, (float *pMilliseconds, CUevent hStart, CUevent hEnd))                                       \
    F(cuEventSynchronize, (CUevent hEvent))                                                                           \
    F(cuMemCreate, (CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,               \
                    unsigned long long flags))                                                                        \
    F(cuMemRelease, (CUmemGenericAllocationHandle handle))                                                            \
    F(cuMemAddressReserve, (CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,                        \
                            unsigned long long flags))                                                                \
    F(cuMemAddressFree, (CUdeviceptr ptr, size_t size))                                                               \
    F(cuMemMap, (CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,                    \
                 unsigned long long flags))                                                                           \
    F(cuMemUnmap, (CUdeviceptr ptr, size_t size))                                                                     \
    F(cuMemSetAccess, (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count))                      \
    F(cuMemExportToShareableHandle, (void *shareableHandle, CUmemGenericAllocationHandle handle,                      \
                                     CUmemAllocationHandleType handleType, unsigned long long flags))                 \
    F(cuMemImportFromShareableHandle, (CUmemGenericAllocationHandle * handle, void *osHandle,                         \
                                       CUmemAllocationHandleType shHandleType))                                       \
    F(cuMemGetAllocationGranularity, (size_t *granularity, const CUmemAllocationProp *prop,                           \
                                      CUmemAllocationGranularity_flags option))                                       \
    F(cuMemGetAddressRange_v2, (CUdeviceptr * pbase, size_t *psize, CUdeviceptr dptr))                                \
    F(cuPointerGetAttribute, (void *data, CUpointer_attribute attribute, CUdeviceptr ptr))                            \
    F(cuIpcGetMemHandle, (CUipcMemHandle * pHandle, CUdeviceptr dptr))                                                \
    F(cuIpcOpenMemHandle_v2, (CUdeviceptr * pdptr, CUipcMemHandle handle, unsigned int Flags))                        \
    F(cuIpcCloseMemHandle, (CUdeviceptr dptr))                                                                        \
    F(cuMemHostRegister_v2, (void *p, size_t bytesize, unsigned int Flags))                                           \
    F(cuMemHostUnregister, (void *p))                                                                                 \
    F(cuMemHostGetDevicePointer_v2, (CUdeviceptr *pdptr, void *p, unsigned int Flags))                                \
    F(cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream))                          \
    F(cuMemsetD8Async, (CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream))                         \
    F(cuModuleLoadData, (CUmodule *module, const void *image))                                                        \
    F(cuModuleUnload, (CUmodule hmod))                                                                                \
    F(cuModuleGetFunction, (CUfunction *hfunc, CUmodule hmod, const char *name))                                      \
    F(cuFuncSetAttribute, (CUfunction hfunc, CUfunction_attribute attrib, int value))                                 \
    F(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *numBlocks, CUfunction func, int blockSize,                   \
                                                    size_t dynamicSMemSize))                                          \
    F(cuTensorMapEncodeTiled, (CUtensorMap * tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,    \
                               void *globalAddress, const cuuint64_t *globalDim, const cuuint64_t *globalStrides,     \
                               const cuuint32_t *boxDim, const cuuint32_t *elementStrides,                            \
                               CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,                          \
                               CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill))                  \
    F(cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra))              \
    F(cuLaunchKernel, (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,             \
                       unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,                        \
                       unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra))

typedef struct {
#define F(name, arguments) CUresult(*name) arguments;
    ATOMR_DRIVER_FUNCTIONS(F)
#undef F
} atomr_driver;

/* The table, bound at the first call; NULL, with a reason in `why`, if it cannot be. */
const atomr_driver *atomr_driver_load(char *why, size_t size);

#endif
