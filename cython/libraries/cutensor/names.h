/* The parts of cutensor.h that names.toml lists; written by `make tables`. */
#ifndef ATOMR_LIBRARIES_CUTENSOR_NAMES_H
#define ATOMR_LIBRARIES_CUTENSOR_NAMES_H

#include "cuda/fields.h"

typedef struct cutensorHandle *cutensorHandle_t;
typedef int cutensorStatus_t;
typedef struct cutensorTensorDescriptor *cutensorTensorDescriptor_t;
typedef int cudaDataType_t;
typedef struct cutensorOperationDescriptor *cutensorOperationDescriptor_t;
typedef int cutensorOperator_t;
typedef struct cutensorComputeDescriptor *cutensorComputeDescriptor_t;
typedef int cutensorOperationDescriptorAttribute_t;
typedef struct cutensorPlanPreference *cutensorPlanPreference_t;
typedef int cutensorWorksizePreference_t;
typedef int cutensorAlgo_t;
typedef int cutensorJitMode_t;
typedef int cutensorPlanPreferenceAttribute_t;
typedef struct cutensorPlan *cutensorPlan_t;
typedef int cutensorPlanAttribute_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct cutensorBlockSparseTensorDescriptor *cutensorBlockSparseTensorDescriptor_t;

#define ATOMR_CUTENSOR_CONSTANTS(C)                                                                                   \
    C(CUTENSOR_STATUS_SUCCESS, 0)                                                                                     \
    C(CUTENSOR_STATUS_NOT_INITIALIZED, 1)                                                                             \
    C(CUTENSOR_STATUS_ALLOC_FAILED, 3)                                                                                \
    C(CUTENSOR_STATUS_INVALID_VALUE, 7)                                                                               \
    C(CUTENSOR_STATUS_ARCH_MISMATCH, 8)                                                                               \
    C(CUTENSOR_STATUS_MAPPING_ERROR, 11)                                                                              \
    C(CUTENSOR_STATUS_EXECUTION_FAILED, 13)                                                                           \
    C(CUTENSOR_STATUS_INTERNAL_ERROR, 14)                                                                             \
    C(CUTENSOR_STATUS_NOT_SUPPORTED, 15)                                                                              \
    C(CUTENSOR_STATUS_LICENSE_ERROR, 16)                                                                              \
    C(CUTENSOR_STATUS_CUBLAS_ERROR, 17)                                                                               \
    C(CUTENSOR_STATUS_CUDA_ERROR, 18)                                                                                 \
    C(CUTENSOR_STATUS_INSUFFICIENT_WORKSPACE, 19)                                                                     \
    C(CUTENSOR_STATUS_INSUFFICIENT_DRIVER, 20)                                                                        \
    C(CUTENSOR_STATUS_IO_ERROR, 21)                                                                                   \
    C(CUTENSOR_OP_IDENTITY, 1)                                                                                        \
    C(CUTENSOR_OP_SQRT, 2)                                                                                            \
    C(CUTENSOR_OP_RELU, 8)                                                                                            \
    C(CUTENSOR_OP_CONJ, 9)                                                                                            \
    C(CUTENSOR_OP_RCP, 10)                                                                                            \
    C(CUTENSOR_OP_SIGMOID, 11)                                                                                        \
    C(CUTENSOR_OP_TANH, 12)                                                                                           \
    C(CUTENSOR_OP_EXP, 22)                                                                                            \
    C(CUTENSOR_OP_LOG, 23)                                                                                            \
    C(CUTENSOR_OP_ABS, 24)                                                                                            \
    C(CUTENSOR_OP_NEG, 25)                                                                                            \
    C(CUTENSOR_OP_SIN, 26)                                                                                            \
    C(CUTENSOR_OP_COS, 27)                                                                                            \
    C(CUTENSOR_OP_TAN, 28)                                                                                            \
    C(CUTENSOR_OP_SINH, 29)                                                                                           \
    C(CUTENSOR_OP_COSH, 30)                                                                                           \
    C(CUTENSOR_OP_ASIN, 31)                                                                                           \
    C(CUTENSOR_OP_ACOS, 32)                                                                                           \
    C(CUTENSOR_OP_ATAN, 33)                                                                                           \
    C(CUTENSOR_OP_ASINH, 34)                                                                                          \
    C(CUTENSOR_OP_ACOSH, 35)                                                                                          \
    C(CUTENSOR_OP_ATANH, 36)                                                                                          \
    C(CUTENSOR_OP_CEIL, 37)                                                                                           \
    C(CUTENSOR_OP_FLOOR, 38)                                                                                          \
    C(CUTENSOR_OP_MISH, 39)                                                                                           \
    C(CUTENSOR_OP_SWISH, 40)                                                                                          \
    C(CUTENSOR_OP_SOFT_PLUS, 41)                                                                                      \
    C(CUTENSOR_OP_SOFT_SIGN, 42)                                                                                      \
    C(CUTENSOR_OP_ADD, 3)                                                                                             \
    C(CUTENSOR_OP_MUL, 5)                                                                                             \
    C(CUTENSOR_OP_MAX, 6)                                                                                             \
    C(CUTENSOR_OP_MIN, 7)                                                                                             \
    C(CUTENSOR_ALGO_DEFAULT, -1)                                                                                      \
    C(CUTENSOR_ALGO_DEFAULT_PATIENT, -6)                                                                              \
    C(CUTENSOR_ALGO_GETT, -4)                                                                                         \
    C(CUTENSOR_ALGO_TGETT, -3)                                                                                        \
    C(CUTENSOR_ALGO_TTGT, -2)                                                                                         \
    C(CUTENSOR_PLAN_PREFERENCE_KERNEL_RANK, 4)                                                                        \
    C(CUTENSOR_JIT_MODE_NONE, 0)                                                                                      \
    C(CUTENSOR_JIT_MODE_DEFAULT, 1)                                                                                   \
    C(CUTENSOR_OPERATION_DESCRIPTOR_SCALAR_TYPE, 1)                                                                   \
    C(CUTENSOR_OPERATION_DESCRIPTOR_BLOCKSPARSE_REPRODUCIBLE, 14)                                                     \
    C(CUTENSOR_WORKSPACE_DEFAULT, 2)                                                                                  \
    C(CUTENSOR_PLAN_REQUIRED_WORKSPACE, 0)                                                                            \
    C(CUDA_R_16F, 2)                                                                                                  \
    C(CUDA_R_16BF, 14)                                                                                                \
    C(CUDA_R_32F, 0)                                                                                                  \
    C(CUDA_R_64F, 1)                                                                                                  \
    C(CUDA_C_32F, 4)                                                                                                  \
    C(CUDA_C_64F, 5)

enum { ATOMR_CUTENSOR_CONSTANTS(ATOMR_ENUMERATOR) };

#define ATOMR_CUTENSOR_FUNCTIONS(F)                                                                                   \
    F(size_t, cutensorGetVersion, ())                                                                                 \
    F(size_t, cutensorGetCudartVersion, ())                                                                           \
    F(cutensorStatus_t, cutensorCreate, (cutensorHandle_t *handle))                                                   \
    F(cutensorStatus_t, cutensorDestroy, (cutensorHandle_t handle))                                                   \
    F(cutensorStatus_t, cutensorCreateTensorDescriptor,                                                               \
      (const cutensorHandle_t handle, cutensorTensorDescriptor_t *desc, const uint32_t numModes,                      \
       const int64_t extent[], const int64_t stride[], cudaDataType_t dataType, uint32_t alignmentRequirement))       \
    F(cutensorStatus_t, cutensorDestroyTensorDescriptor, (cutensorTensorDescriptor_t desc))                           \
    F(cutensorStatus_t, cutensorCreateContraction,                                                                    \
      (const cutensorHandle_t handle, cutensorOperationDescriptor_t *desc, const cutensorTensorDescriptor_t descA,    \
       const int32_t modeA[], cutensorOperator_t opA, const cutensorTensorDescriptor_t descB, const int32_t modeB[],  \
       cutensorOperator_t opB, const cutensorTensorDescriptor_t descC, const int32_t modeC[], cutensorOperator_t opC, \
       const cutensorTensorDescriptor_t descD, const int32_t modeD[], const cutensorComputeDescriptor_t descCompute)) \
    F(cutensorStatus_t, cutensorCreateContractionTrinary,                                                             \
      (const cutensorHandle_t handle, cutensorOperationDescriptor_t *desc, const cutensorTensorDescriptor_t descA,    \
       const int32_t modeA[], cutensorOperator_t opA, const cutensorTensorDescriptor_t descB, const int32_t modeB[],  \
       cutensorOperator_t opB, const cutensorTensorDescriptor_t descC, const int32_t modeC[], cutensorOperator_t opC, \
       const cutensorTensorDescriptor_t descD, const int32_t modeD[], cutensorOperator_t opD,                         \
       const cutensorTensorDescriptor_t descE, const int32_t modeE[], const cutensorComputeDescriptor_t descCompute)) \
    F(cutensorStatus_t, cutensorCreateReduction,                                                                      \
      (const cutensorHandle_t handle, cutensorOperationDescriptor_t *desc, const cutensorTensorDescriptor_t descA,    \
       const int32_t modeA[], cutensorOperator_t opA, const cutensorTensorDescriptor_t descC, const int32_t modeC[],  \
       cutensorOperator_t opC, const cutensorTensorDescriptor_t descD, const int32_t modeD[],                         \
       cutensorOperator_t opReduce, const cutensorComputeDescriptor_t descCompute))                                   \
    F(cutensorStatus_t, cutensorCreatePermutation,                                                                    \
      (const cutensorHandle_t handle, cutensorOperationDescriptor_t *desc, const cutensorTensorDescriptor_t descA,    \
       const int32_t modeA[], cutensorOperator_t opA, const cutensorTensorDescriptor_t descB, const int32_t modeB[],  \
       const cutensorComputeDescriptor_t descCompute))                                                                \
    F(cutensorStatus_t, cutensorCreateElementwiseBinary,                                                              \
      (const cutensorHandle_t handle, cutensorOperationDescriptor_t *desc, const cutensorTensorDescriptor_t descA,    \
       const int32_t modeA[], cutensorOperator_t opA, const cutensorTensorDescriptor_t descC, const int32_t modeC[],  \
       cutensorOperator_t opC, const cutensorTensorDescriptor_t descD, const int32_t modeD[],                         \
       cutensorOperator_t opAC, const cutensorComputeDescriptor_t descCompute))                                       \
    F(cutensorStatus_t, cutensorCreateElementwiseTrinary,                                                             \
      (const cutensorHandle_t handle, cutensorOperationDescriptor_t *desc, const cutensorTensorDescriptor_t descA,    \
       const int32_t modeA[], cutensorOperator_t opA, const cutensorTensorDescriptor_t descB, const int32_t modeB[],  \
       cutensorOperator_t opB, const cutensorTensorDescriptor_t descC, const int32_t modeC[], cutensorOperator_t opC, \
       const cutensorTensorDescriptor_t descD, const int32_t modeD[], cutensorOperator_t opAB,                        \
       cutensorOperator_t opABC, const cutensorComputeDescriptor_t descCompute))                                      \
    F(cutensorStatus_t, cutensorDestroyOperationDescriptor, (cutensorOperationDescriptor_t desc))                     \
    F(cutensorStatus_t, cutensorOperationDescriptorGetAttribute,                                                      \
      (const cutensorHandle_t handle, cutensorOperationDescriptor_t desc,                                             \
       cutensorOperationDescriptorAttribute_t attr, void *buf, size_t sizeInBytes))                                   \
    F(cutensorStatus_t, cutensorOperationDescriptorSetAttribute,                                                      \
      (const cutensorHandle_t handle, cutensorOperationDescriptor_t desc,                                             \
       cutensorOperationDescriptorAttribute_t attr, const void *buf, size_t sizeInBytes))                             \
    F(cutensorStatus_t, cutensorEstimateWorkspaceSize,                                                                \
      (const cutensorHandle_t handle, const cutensorOperationDescriptor_t desc,                                       \
       const cutensorPlanPreference_t planPref, const cutensorWorksizePreference_t workspacePref,                     \
       uint64_t *workspaceSizeEstimate))                                                                              \
    F(cutensorStatus_t, cutensorCreatePlanPreference,                                                                 \
      (const cutensorHandle_t handle, cutensorPlanPreference_t *pref, cutensorAlgo_t algo,                            \
       cutensorJitMode_t jitMode))                                                                                    \
    F(cutensorStatus_t, cutensorDestroyPlanPreference, (cutensorPlanPreference_t pref))                               \
    F(cutensorStatus_t, cutensorPlanPreferenceSetAttribute,                                                           \
      (const cutensorHandle_t handle, cutensorPlanPreference_t pref, cutensorPlanPreferenceAttribute_t attr,          \
       const void *buf, size_t sizeInBytes))                                                                          \
    F(cutensorStatus_t, cutensorCreatePlan,                                                                           \
      (const cutensorHandle_t handle, cutensorPlan_t *plan, const cutensorOperationDescriptor_t desc,                 \
       const cutensorPlanPreference_t pref, uint64_t workspaceSizeLimit))                                             \
    F(cutensorStatus_t, cutensorDestroyPlan, (cutensorPlan_t plan))                                                   \
    F(cutensorStatus_t, cutensorPlanGetAttribute,                                                                     \
      (const cutensorHandle_t handle, const cutensorPlan_t plan, cutensorPlanAttribute_t attr, void *buf,             \
       size_t sizeInBytes))                                                                                           \
    F(cutensorStatus_t, cutensorWriteKernelCacheToFile, (const cutensorHandle_t handle, const char filename[]))       \
    F(cutensorStatus_t, cutensorReadKernelCacheFromFile, (cutensorHandle_t handle, const char filename[]))            \
    F(cutensorStatus_t, cutensorContract,                                                                             \
      (const cutensorHandle_t handle, const cutensorPlan_t plan, const void *alpha, const void *A, const void *B,     \
       const void *beta, const void *C, void *D, void *workspace, uint64_t workspaceSize, cudaStream_t stream))       \
    F(cutensorStatus_t, cutensorContractTrinary,                                                                      \
      (const cutensorHandle_t handle, const cutensorPlan_t plan, const void *alpha, const void *A, const void *B,     \
       const void *C, const void *beta, const void *D, void *E, void *workspace, uint64_t workspaceSize,              \
       cudaStream_t stream))                                                                                          \
    F(cutensorStatus_t, cutensorReduce,                                                                               \
      (const cutensorHandle_t handle, const cutensorPlan_t plan, const void *alpha, const void *A, const void *beta,  \
       const void *C, void *D, void *workspace, uint64_t workspaceSize, cudaStream_t stream))                         \
    F(cutensorStatus_t, cutensorPermute,                                                                              \
      (const cutensorHandle_t handle, const cutensorPlan_t plan, const void *alpha, const void *A, void *B,           \
       const cudaStream_t stream))                                                                                    \
    F(cutensorStatus_t, cutensorElementwiseBinaryExecute,                                                             \
      (const cutensorHandle_t handle, const cutensorPlan_t plan, const void *alpha, const void *A, const void *gamma, \
       const void *C, void *D, cudaStream_t stream))                                                                  \
    F(cutensorStatus_t, cutensorElementwiseTrinaryExecute,                                                            \
      (const cutensorHandle_t handle, const cutensorPlan_t plan, const void *alpha, const void *A, const void *beta,  \
       const void *B, const void *gamma, const void *C, void *D, cudaStream_t stream))

#define ATOMR_CUTENSOR_OPTIONAL(F)                                                                                    \
    F(cutensorStatus_t, cutensorCreateBlockSparseTensorDescriptor,                                                    \
      (cutensorHandle_t handle, cutensorBlockSparseTensorDescriptor_t *desc, const uint32_t numModes,                 \
       const uint64_t numNonZeroBlocks, const uint32_t numSectionsPerMode[], const int64_t extent[],                  \
       const int32_t nonZeroCoordinates[], const int64_t stride[], cudaDataType_t dataType))                          \
    F(cutensorStatus_t, cutensorDestroyBlockSparseTensorDescriptor, (cutensorBlockSparseTensorDescriptor_t desc))     \
    F(cutensorStatus_t, cutensorCreateBlockSparseContraction,                                                         \
      (const cutensorHandle_t handle, cutensorOperationDescriptor_t *desc,                                            \
       const cutensorBlockSparseTensorDescriptor_t descA, const int32_t modeA[], cutensorOperator_t opA,              \
       const cutensorBlockSparseTensorDescriptor_t descB, const int32_t modeB[], cutensorOperator_t opB,              \
       const cutensorBlockSparseTensorDescriptor_t descC, const int32_t modeC[], cutensorOperator_t opC,              \
       const cutensorBlockSparseTensorDescriptor_t descD, const int32_t modeD[],                                      \
       const cutensorComputeDescriptor_t descCompute))                                                                \
    F(cutensorStatus_t, cutensorBlockSparseContract,                                                                  \
      (const cutensorHandle_t handle, const cutensorPlan_t plan, const void *alpha, const void *const A[],            \
       const void *const B[], const void *beta, const void *const C[], void *const D[], void *workspace,              \
       uint64_t workspaceSize, cudaStream_t stream))

#endif
