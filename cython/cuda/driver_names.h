/* The parts of cuda.h that driver_names.toml lists; written by `make tables`. */
#ifndef ATOMR_CUDA_DRIVER_NAMES_H
#define ATOMR_CUDA_DRIVER_NAMES_H

#include "cuda/fields.h"

typedef int CUresult;
typedef int CUdevice;
typedef int CUdevice_attribute;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef int CUstreamCaptureMode;
typedef struct CUgraph_st *CUgraph;
typedef unsigned long long CUdeviceptr;
typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef int CUmemAllocationHandleType;
typedef int CUmemAllocationGranularity_flags;
typedef int CUpointer_attribute;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef int CUfunction_attribute;
typedef int CUtensorMapDataType;
typedef int CUtensorMapInterleave;
typedef int CUtensorMapSwizzle;
typedef int CUtensorMapL2promotion;
typedef int CUtensorMapFloatOOBfill;
typedef struct CUgraphNode_st *CUgraphNode;
typedef int CUgraphNodeType;
typedef struct CUgraphExec_st *CUgraphExec;
typedef int CUstreamCaptureStatus;
typedef uint64_t CUgraphConditionalHandle;

#define ATOMR_DRIVER_CONSTANTS(C)                                                                                     \
    C(CUDA_SUCCESS, 0)                                                                                                \
    C(CUDA_ERROR_OUT_OF_MEMORY, 2)                                                                                    \
    C(CUDA_ERROR_NOT_INITIALIZED, 3)                                                                                  \
    C(CUDA_ERROR_NO_DEVICE, 100)                                                                                      \
    C(CUDA_ERROR_INVALID_DEVICE, 101)                                                                                 \
    C(CUDA_ERROR_INVALID_CONTEXT, 201)                                                                                \
    C(CUDA_ERROR_NOT_READY, 600)                                                                                      \
    C(CUDA_ERROR_NOT_PERMITTED, 800)                                                                                  \
    C(CUDA_ERROR_NOT_SUPPORTED, 801)                                                                                  \
    C(CUDA_ERROR_UNKNOWN, 999)                                                                                        \
    C(CU_STREAM_NON_BLOCKING, 1)                                                                                      \
    C(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1)                                                                         \
    C(CU_GRAPH_NODE_TYPE_CONDITIONAL, 13)                                                                             \
    C(CU_GRAPH_COND_TYPE_IF, 0)                                                                                       \
    C(CU_GRAPH_COND_TYPE_WHILE, 1)                                                                                    \
    C(CU_GRAPH_COND_ASSIGN_DEFAULT, 1)                                                                                \
    C(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, 1)                                                                          \
    C(CU_POINTER_ATTRIBUTE_IS_MANAGED, 8)                                                                             \
    C(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)                                                                         \
    C(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 10)                                                            \
    C(CU_EVENT_DISABLE_TIMING, 2)                                                                                     \
    C(CU_MEM_ALLOCATION_TYPE_PINNED, 1)                                                                               \
    C(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1)                                                                    \
    C(CU_MEM_HANDLE_TYPE_FABRIC, 8)                                                                                   \
    C(CU_MEM_LOCATION_TYPE_DEVICE, 1)                                                                                 \
    C(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)                                                                          \
    C(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, 1)                                                                        \
    C(CU_MEMHOSTREGISTER_PORTABLE, 1)                                                                                 \
    C(CU_MEMHOSTREGISTER_DEVICEMAP, 2)                                                                                \
    C(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)                                                             \
    C(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 14)                                                        \
    C(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                                                                   \
    C(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                                               \
    C(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                                                               \
    C(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102)                                                   \
    C(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103)                                           \
    C(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 128)                                                          \
    C(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 110)                                               \
    C(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 122)                                                         \
    C(CU_GRAPH_NODE_TYPE_KERNEL, 0)                                                                                   \
    C(CU_GRAPH_NODE_TYPE_MEMSET, 2)                                                                                   \
    C(CU_GRAPH_NODE_TYPE_EMPTY, 5)                                                                                    \
    C(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 2)                                                                             \
    C(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, 4)                                                                       \
    C(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, 6)

enum { ATOMR_DRIVER_CONSTANTS(ATOMR_ENUMERATOR) };

#define ATOMR_DRIVER_STRUCTS(S)                                                                                       \
    S(CUuuid, 16)                                                                                                     \
    S(CUipcMemHandle, 64)                                                                                             \
    S(CUmemAllocationProp, 32)                                                                                        \
    S(CUmemAccessDesc, 12)                                                                                            \
    S(CUtensorMap, 128)                                                                                               \
    S(CUlaunchConfig, 56)                                                                                             \
    S(CUgraphExecUpdateResultInfo, 24)                                                                                \
    S(CUgraphEdgeData, 8)                                                                                             \
    S(CUDA_CONDITIONAL_NODE_PARAMS, 32)                                                                               \
    S(CUgraphNodeParams, 256)                                                                                         \
    S(CUDA_KERNEL_NODE_PARAMS, 72)

#define ATOMR_DRIVER_FUNCTIONS(F)                                                                                     \
    F(CUresult, cuInit, (unsigned int Flags))                                                                         \
    F(CUresult, cuDriverGetVersion, (int *driverVersion))                                                             \
    F(CUresult, cuGetErrorName, (CUresult error, const char **pStr))                                                  \
    F(CUresult, cuGetErrorString, (CUresult error, const char **pStr))                                                \
    F(CUresult, cuDeviceGet, (CUdevice *device, int ordinal))                                                         \
    F(CUresult, cuDeviceGetCount, (int *count))                                                                       \
    F(CUresult, cuDeviceGetName, (char *name, int len, CUdevice dev))                                                 \
    F(CUresult, cuDeviceGetUuid_v2, (CUuuid *uuid, CUdevice dev))                                                     \
    F(CUresult, cuDeviceGetAttribute, (int *pi, CUdevice_attribute attrib, CUdevice dev))                             \
    F(CUresult, cuDeviceTotalMem_v2, (size_t *bytes, CUdevice dev))                                                   \
    F(CUresult, cuMemGetInfo_v2, (size_t *free, size_t *total))                                                       \
    F(CUresult, cuDevicePrimaryCtxRetain, (CUcontext *pctx, CUdevice dev))                                            \
    F(CUresult, cuDevicePrimaryCtxRelease_v2, (CUdevice dev))                                                         \
    F(CUresult, cuDevicePrimaryCtxGetState, (CUdevice dev, unsigned int *flags, int *active))                         \
    F(CUresult, cuDeviceCanAccessPeer, (int *canAccessPeer, CUdevice dev, CUdevice peerDev))                          \
    F(CUresult, cuCtxSetCurrent, (CUcontext ctx))                                                                     \
    F(CUresult, cuCtxPushCurrent_v2, (CUcontext ctx))                                                                 \
    F(CUresult, cuCtxPopCurrent_v2, (CUcontext *pctx))                                                                \
    F(CUresult, cuCtxSynchronize, (void))                                                                             \
    F(CUresult, cuStreamCreate, (CUstream *phStream, unsigned int Flags))                                             \
    F(CUresult, cuStreamDestroy_v2, (CUstream hStream))                                                               \
    F(CUresult, cuStreamQuery, (CUstream hStream))                                                                    \
    F(CUresult, cuStreamSynchronize, (CUstream hStream))                                                              \
    F(CUresult, cuStreamWaitEvent, (CUstream hStream, CUevent hEvent, unsigned int Flags))                            \
    F(CUresult, cuStreamBeginCapture_v2, (CUstream hStream, CUstreamCaptureMode mode))                                \
    F(CUresult, cuStreamEndCapture, (CUstream hStream, CUgraph *phGraph))                                             \
    F(CUresult, cuStreamWriteValue32_v2, (CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags))   \
    F(CUresult, cuStreamWriteValue64_v2, (CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags))   \
    F(CUresult, cuEventCreate, (CUevent *phEvent, unsigned int Flags))                                                \
    F(CUresult, cuEventDestroy_v2, (CUevent hEvent))                                                                  \
    F(CUresult, cuEventRecord, (CUevent hEvent, CUstream hStream))                                                    \
    F(CUresult, cuEventElapsedTime, (float *pMilliseconds, CUevent hStart, CUevent hEnd))                             \
    F(CUresult, cuEventSynchronize, (CUevent hEvent))                                                                 \
    F(CUresult, cuMemCreate,                                                                                          \
      (CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags)) \
    F(CUresult, cuMemRelease, (CUmemGenericAllocationHandle handle))                                                  \
    F(CUresult, cuMemAddressReserve,                                                                                  \
      (CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags))                  \
    F(CUresult, cuMemAddressFree, (CUdeviceptr ptr, size_t size))                                                     \
    F(CUresult, cuMemMap,                                                                                             \
      (CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags))   \
    F(CUresult, cuMemUnmap, (CUdeviceptr ptr, size_t size))                                                           \
    F(CUresult, cuMemSetAccess, (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count))            \
    F(CUresult, cuMemExportToShareableHandle,                                                                         \
      (void *shareableHandle, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType handleType,              \
       unsigned long long flags))                                                                                     \
    F(CUresult, cuMemImportFromShareableHandle,                                                                       \
      (CUmemGenericAllocationHandle *handle, void *osHandle, CUmemAllocationHandleType shHandleType))                 \
    F(CUresult, cuMemGetAllocationGranularity,                                                                        \
      (size_t *granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option))                \
    F(CUresult, cuMemGetAddressRange_v2, (CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr))                       \
    F(CUresult, cuPointerGetAttribute, (void *data, CUpointer_attribute attribute, CUdeviceptr ptr))                  \
    F(CUresult, cuIpcGetMemHandle, (CUipcMemHandle *pHandle, CUdeviceptr dptr))                                       \
    F(CUresult, cuIpcOpenMemHandle_v2, (CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags))               \
    F(CUresult, cuIpcCloseMemHandle, (CUdeviceptr dptr))                                                              \
    F(CUresult, cuMemHostRegister_v2, (void *p, size_t bytesize, unsigned int Flags))                                 \
    F(CUresult, cuMemHostUnregister, (void *p))                                                                       \
    F(CUresult, cuMemHostGetDevicePointer_v2, (CUdeviceptr *pdptr, void *p, unsigned int Flags))                      \
    F(CUresult, cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream))                \
    F(CUresult, cuMemsetD8Async, (CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream))               \
    F(CUresult, cuModuleLoadData, (CUmodule *module, const void *image))                                              \
    F(CUresult, cuModuleUnload, (CUmodule hmod))                                                                      \
    F(CUresult, cuModuleGetFunction, (CUfunction *hfunc, CUmodule hmod, const char *name))                            \
    F(CUresult, cuFuncSetAttribute, (CUfunction hfunc, CUfunction_attribute attrib, int value))                       \
    F(CUresult, cuOccupancyMaxActiveBlocksPerMultiprocessor,                                                          \
      (int *numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize))                                       \
    F(CUresult, cuTensorMapEncodeTiled,                                                                               \
      (CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank, void *globalAddress,        \
       const cuuint64_t *globalDim, const cuuint64_t *globalStrides, const cuuint32_t *boxDim,                        \
       const cuuint32_t *elementStrides, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,                \
       CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill))                                          \
    F(CUresult, cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra))    \
    F(CUresult, cuLaunchKernel,                                                                                       \
      (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX,     \
       unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,                 \
       void **kernelParams, void **extra))                                                                            \
    F(CUresult, cuGraphGetNodes, (CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes))                              \
    F(CUresult, cuGraphNodeGetType, (CUgraphNode hNode, CUgraphNodeType *type))                                       \
    F(CUresult, cuGraphCreate, (CUgraph *phGraph, unsigned int flags))                                                \
    F(CUresult, cuGraphInstantiateWithFlags, (CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags))    \
    F(CUresult, cuGraphExecUpdate_v2,                                                                                 \
      (CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo))                              \
    F(CUresult, cuGraphLaunch, (CUgraphExec hGraph, CUstream hStream))                                                \
    F(CUresult, cuGraphExecDestroy, (CUgraphExec hGraphExec))                                                         \
    F(CUresult, cuGraphDestroy, (CUgraph hGraph))

#define ATOMR_DRIVER_OPTIONAL(F)                                                                                      \
    F(CUresult, cuStreamBeginCaptureToGraph,                                                                          \
      (CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,      \
       size_t numDependencies, CUstreamCaptureMode mode))                                                             \
    F(CUresult, cuStreamGetCaptureInfo_v3,                                                                            \
      (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out, CUgraph *graph_out,            \
       const CUgraphNode **dependencies_out, const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out))      \
    F(CUresult, cuGraphAddNode_v2,                                                                                    \
      (CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,                                     \
       const CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams))                 \
    F(CUresult, cuGraphConditionalHandleCreate,                                                                       \
      (CUgraphConditionalHandle *pHandle_out, CUgraph hGraph, CUcontext ctx, unsigned int defaultLaunchValue,         \
       unsigned int flags))                                                                                           \
    F(CUresult, cuGraphExecKernelNodeSetParams_v2,                                                                    \
      (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams))

#endif
