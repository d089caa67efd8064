/* The parts of cudss.h that names.toml lists; written by `make tables`. */
#ifndef ATOMR_LIBRARIES_CUDSS_NAMES_H
#define ATOMR_LIBRARIES_CUDSS_NAMES_H

#include "cuda/fields.h"

typedef int libraryPropertyType;
typedef int cudssStatus_t;
typedef struct cudssContext *cudssHandle_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct cudssConfig *cudssConfig_t;
typedef int cudssConfigParam_t;
typedef struct cudssData *cudssData_t;
typedef int cudssDataParam_t;
typedef struct cudssMatrix *cudssMatrix_t;
typedef int cudaDataType_t;
typedef int cudssMatrixType_t;
typedef int cudssMatrixViewType_t;
typedef int cudssIndexBase_t;
typedef int cudssLayout_t;
typedef void (*cudssLoggerCallback_t)(int logLevel, const char *functionName, const char *message);

#define ATOMR_CUDSS_CONSTANTS(C)                                                                                      \
    C(CUDSS_STATUS_SUCCESS, 0)                                                                                        \
    C(CUDSS_STATUS_NOT_INITIALIZED, 1)                                                                                \
    C(CUDSS_STATUS_ALLOC_FAILED, 2)                                                                                   \
    C(CUDSS_STATUS_INVALID_VALUE, 3)                                                                                  \
    C(CUDSS_STATUS_NOT_SUPPORTED, 4)                                                                                  \
    C(CUDSS_STATUS_EXECUTION_FAILED, 5)                                                                               \
    C(CUDSS_STATUS_INTERNAL_ERROR, 6)                                                                                 \
    C(CUDSS_PHASE_ANALYSIS, 3)                                                                                        \
    C(CUDSS_PHASE_FACTORIZATION, 4)                                                                                   \
    C(CUDSS_PHASE_REFACTORIZATION, 8)                                                                                 \
    C(CUDSS_PHASE_SOLVE, 1008)                                                                                        \
    C(CUDSS_MTYPE_GENERAL, 0)                                                                                         \
    C(CUDSS_MTYPE_SYMMETRIC, 1)                                                                                       \
    C(CUDSS_MTYPE_HERMITIAN, 2)                                                                                       \
    C(CUDSS_MTYPE_SPD, 3)                                                                                             \
    C(CUDSS_MTYPE_HPD, 4)                                                                                             \
    C(CUDSS_MVIEW_FULL, 0)                                                                                            \
    C(CUDSS_MVIEW_LOWER, 1)                                                                                           \
    C(CUDSS_MVIEW_UPPER, 2)                                                                                           \
    C(CUDSS_BASE_ZERO, 0)                                                                                             \
    C(CUDSS_LAYOUT_COL_MAJOR, 0)                                                                                      \
    C(CUDSS_CONFIG_UBATCH_SIZE, 18)                                                                                   \
    C(CUDSS_CONFIG_DETERMINISTIC_MODE, 24)                                                                            \
    C(CUDSS_DATA_INFO, 0)                                                                                             \
    C(CUDSS_DATA_MEMORY_ESTIMATES, 13)                                                                                \
    C(CUDSS_ALLOCATOR_NAME_LEN, 64)                                                                                   \
    C(CUDA_R_32F, 0)                                                                                                  \
    C(CUDA_R_64F, 1)                                                                                                  \
    C(CUDA_C_32F, 4)                                                                                                  \
    C(CUDA_C_64F, 5)                                                                                                  \
    C(CUDA_R_32I, 10)                                                                                                 \
    C(CUDA_R_64I, 24)                                                                                                 \
    C(MAJOR_VERSION, 0)                                                                                               \
    C(MINOR_VERSION, 1)                                                                                               \
    C(PATCH_LEVEL, 2)

enum { ATOMR_CUDSS_CONSTANTS(ATOMR_ENUMERATOR) };

#define ATOMR_CUDSS_STRUCTS(S)                                                                                        \
    S(cudssDeviceMemHandler_t, 88)

#define ATOMR_CUDSS_FUNCTIONS(F)                                                                                      \
    F(cudssStatus_t, cudssGetProperty, (libraryPropertyType propertyType, int *value))                                \
    F(cudssStatus_t, cudssCreate, (cudssHandle_t *handle))                                                            \
    F(cudssStatus_t, cudssDestroy, (cudssHandle_t handle))                                                            \
    F(cudssStatus_t, cudssSetStream, (cudssHandle_t handle, cudaStream_t stream))                                     \
    F(cudssStatus_t, cudssSetDeviceMemHandler, (cudssHandle_t handle, const cudssDeviceMemHandler_t *handler))        \
    F(cudssStatus_t, cudssConfigCreate, (cudssConfig_t *config))                                                      \
    F(cudssStatus_t, cudssConfigDestroy, (cudssConfig_t config))                                                      \
    F(cudssStatus_t, cudssConfigSet,                                                                                  \
      (cudssConfig_t config, cudssConfigParam_t param, const void *value, size_t sizeInBytes))                        \
    F(cudssStatus_t, cudssDataCreate, (const cudssHandle_t handle, cudssData_t *data))                                \
    F(cudssStatus_t, cudssDataDestroy, (cudssHandle_t handle, cudssData_t data))                                      \
    F(cudssStatus_t, cudssDataGet,                                                                                    \
      (const cudssHandle_t handle, const cudssData_t data, cudssDataParam_t param, void *value, size_t sizeInBytes,   \
       size_t *sizeWritten))                                                                                          \
    F(cudssStatus_t, cudssDataSet,                                                                                    \
      (const cudssHandle_t handle, cudssData_t data, cudssDataParam_t param, const void *value, size_t sizeInBytes))  \
    F(cudssStatus_t, cudssMatrixCreateCsr,                                                                            \
      (cudssMatrix_t *matrix, int64_t nrows, int64_t ncols, int64_t nnz, const void *rowStart, const void *rowEnd,    \
       const void *colIndices, const void *values, cudaDataType_t offsetType, cudaDataType_t indexType,               \
       cudaDataType_t valueType, cudssMatrixType_t mtype, cudssMatrixViewType_t mview, cudssIndexBase_t indexBase))   \
    F(cudssStatus_t, cudssMatrixCreateDn,                                                                             \
      (cudssMatrix_t *matrix, int64_t nrows, int64_t ncols, int64_t ld, const void *values, cudaDataType_t valueType, \
       cudssLayout_t layout))                                                                                         \
    F(cudssStatus_t, cudssMatrixDestroy, (cudssMatrix_t matrix))                                                      \
    F(cudssStatus_t, cudssExecute,                                                                                    \
      (cudssHandle_t handle, int phase, const cudssConfig_t config, cudssData_t data,                                 \
       const cudssMatrix_t inputMatrix, cudssMatrix_t solution, const cudssMatrix_t rhs))                             \
    F(cudssStatus_t, cudssLoggerSetCallback, (cudssLoggerCallback_t callback))                                        \
    F(cudssStatus_t, cudssLoggerSetLevel, (int level))                                                                \
    F(cudssStatus_t, cudssLoggerOpenFile, (const char *logFile))

#endif
