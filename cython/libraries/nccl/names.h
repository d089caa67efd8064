/* The parts of nccl.h that names.toml lists; written by `make tables`. */
#ifndef ATOMR_LIBRARIES_NCCL_NAMES_H
#define ATOMR_LIBRARIES_NCCL_NAMES_H

#include "cuda/fields.h"

typedef int ncclResult_t;
typedef struct ncclComm *ncclComm_t;
typedef int ncclRedOp_t;
typedef int ncclDataType_t;
typedef int ncclScalarResidence_t;
typedef struct CUstream_st *cudaStream_t;

#define ATOMR_NCCL_CONSTANTS(C)                                                                                       \
    C(ncclSuccess, 0)                                                                                                 \
    C(ncclUnhandledCudaError, 1)                                                                                      \
    C(ncclSystemError, 2)                                                                                             \
    C(ncclInternalError, 3)                                                                                           \
    C(ncclInvalidArgument, 4)                                                                                         \
    C(ncclInvalidUsage, 5)                                                                                            \
    C(ncclRemoteError, 6)                                                                                             \
    C(ncclInProgress, 7)                                                                                              \
    C(ncclSum, 0)                                                                                                     \
    C(ncclProd, 1)                                                                                                    \
    C(ncclMax, 2)                                                                                                     \
    C(ncclMin, 3)                                                                                                     \
    C(ncclAvg, 4)                                                                                                     \
    C(ncclInt8, 0)                                                                                                    \
    C(ncclUint8, 1)                                                                                                   \
    C(ncclInt32, 2)                                                                                                   \
    C(ncclUint32, 3)                                                                                                  \
    C(ncclInt64, 4)                                                                                                   \
    C(ncclUint64, 5)                                                                                                  \
    C(ncclFloat16, 6)                                                                                                 \
    C(ncclFloat32, 7)                                                                                                 \
    C(ncclFloat64, 8)                                                                                                 \
    C(ncclBfloat16, 9)                                                                                                \
    C(ncclFloat8e4m3, 10)                                                                                             \
    C(ncclFloat8e5m2, 11)                                                                                             \
    C(ncclScalarDevice, 0)                                                                                            \
    C(ncclScalarHostImmediate, 1)                                                                                     \
    C(NCCL_CONFIG_UNDEF_INT, -2147483648)                                                                             \
    C(NCCL_UNIQUE_ID_BYTES, 128)

enum { ATOMR_NCCL_CONSTANTS(ATOMR_ENUMERATOR) };

#define ATOMR_NCCL_STRUCTS(S)                                                                                         \
    S(ncclUniqueId, 128)

#define ATOMR_NCCL_FUNCTIONS(F)                                                                                       \
    F(ncclResult_t, ncclGetVersion, (int *version))                                                                   \
    F(ncclResult_t, ncclGetUniqueId, (ncclUniqueId *uniqueId))                                                        \
    F(const char *, ncclGetErrorString, (ncclResult_t result))                                                        \
    F(const char *, ncclGetLastError, (ncclComm_t comm))                                                              \
    F(ncclResult_t, ncclCommAbort, (ncclComm_t comm))                                                                 \
    F(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *asyncError))                               \
    F(ncclResult_t, ncclRedOpCreatePreMulSum,                                                                         \
      (ncclRedOp_t *op, void *scalar, ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm))     \
    F(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm))                                              \
    F(ncclResult_t, ncclAllReduce,                                                                                    \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,  \
       cudaStream_t stream))                                                                                          \
    F(ncclResult_t, ncclReduce,                                                                                       \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root,         \
       ncclComm_t comm, cudaStream_t stream))                                                                         \
    F(ncclResult_t, ncclBroadcast,                                                                                    \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,        \
       cudaStream_t stream))                                                                                          \
    F(ncclResult_t, ncclAllGather,                                                                                    \
      (const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm,              \
       cudaStream_t stream))                                                                                          \
    F(ncclResult_t, ncclReduceScatter,                                                                                \
      (const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op,               \
       ncclComm_t comm, cudaStream_t stream))                                                                         \
    F(ncclResult_t, ncclSend,                                                                                         \
      (const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream))  \
    F(ncclResult_t, ncclRecv,                                                                                         \
      (void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream))        \
    F(ncclResult_t, ncclGroupStart, ())                                                                               \
    F(ncclResult_t, ncclGroupEnd, ())

#endif
