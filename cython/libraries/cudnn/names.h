/* The parts of cudnn.h that names.toml lists; written by `make tables`. */
#ifndef ATOMR_LIBRARIES_CUDNN_NAMES_H
#define ATOMR_LIBRARIES_CUDNN_NAMES_H

#include "cuda/fields.h"

typedef struct cudnnContext *cudnnHandle_t;
typedef int cudnnStatus_t;
typedef struct CUstream_st *cudaStream_t;
typedef int cudnnBackendDescriptorType_t;
typedef void *cudnnBackendDescriptor_t;
typedef int cudnnBackendAttributeName_t;
typedef int cudnnBackendAttributeType_t;
typedef struct cudnnTensorStruct *cudnnTensorDescriptor_t;
typedef int cudnnDataType_t;
typedef int cudnnSoftmaxAlgorithm_t;
typedef int cudnnSoftmaxMode_t;
typedef struct cudnnLRNStruct *cudnnLRNDescriptor_t;
typedef int cudnnLRNMode_t;
typedef struct cudnnDropoutStruct *cudnnDropoutDescriptor_t;
typedef struct cudnnRNNStruct *cudnnRNNDescriptor_t;
typedef int cudnnRNNAlgo_t;
typedef int cudnnRNNMode_t;
typedef int cudnnRNNBiasMode_t;
typedef int cudnnDirectionMode_t;
typedef int cudnnRNNInputMode_t;
typedef int cudnnMathType_t;
typedef struct cudnnRNNDataStruct *cudnnRNNDataDescriptor_t;
typedef int cudnnRNNDataLayout_t;
typedef int cudnnForwardMode_t;
typedef int cudnnWgradMode_t;

#define ATOMR_CUDNN_CONSTANTS(C)                                                                                      \
    C(CUDNN_STATUS_SUCCESS, 0)                                                                                        \
    C(CUDNN_STATUS_NOT_INITIALIZED, 1001)                                                                             \
    C(CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH, 1002)                                                                 \
    C(CUDNN_STATUS_BAD_PARAM, 2000)                                                                                   \
    C(CUDNN_STATUS_NOT_SUPPORTED, 3000)                                                                               \
    C(CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH, 3007)                                                                 \
    C(CUDNN_STATUS_INTERNAL_ERROR, 4000)                                                                              \
    C(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, 4004)                                                     \
    C(CUDNN_STATUS_EXECUTION_FAILED, 5000)                                                                            \
    C(CUDNN_TYPE_HANDLE, 0)                                                                                           \
    C(CUDNN_TYPE_DATA_TYPE, 1)                                                                                        \
    C(CUDNN_TYPE_BOOLEAN, 2)                                                                                          \
    C(CUDNN_TYPE_INT64, 3)                                                                                            \
    C(CUDNN_TYPE_FLOAT, 4)                                                                                            \
    C(CUDNN_TYPE_DOUBLE, 5)                                                                                           \
    C(CUDNN_TYPE_VOID_PTR, 6)                                                                                         \
    C(CUDNN_TYPE_CONVOLUTION_MODE, 7)                                                                                 \
    C(CUDNN_TYPE_HEUR_MODE, 8)                                                                                        \
    C(CUDNN_TYPE_NAN_PROPOGATION, 10)                                                                                 \
    C(CUDNN_TYPE_NUMERICAL_NOTE, 11)                                                                                  \
    C(CUDNN_TYPE_POINTWISE_MODE, 14)                                                                                  \
    C(CUDNN_TYPE_BACKEND_DESCRIPTOR, 15)                                                                              \
    C(CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 18)                                                                         \
    C(CUDNN_TYPE_RESAMPLE_MODE, 21)                                                                                   \
    C(CUDNN_TYPE_PADDING_MODE, 22)                                                                                    \
    C(CUDNN_TYPE_INT32, 23)                                                                                           \
    C(CUDNN_TYPE_CHAR, 24)                                                                                            \
    C(CUDNN_TYPE_FRACTION, 26)                                                                                        \
    C(CUDNN_TYPE_NORM_MODE, 27)                                                                                       \
    C(CUDNN_TYPE_NORM_FWD_PHASE, 28)                                                                                  \
    C(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 0)                                                                          \
    C(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, 1)                                                                        \
    C(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3)                                                                          \
    C(CUDNN_BACKEND_ENGINE_DESCRIPTOR, 2)                                                                             \
    C(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4)                                                                         \
    C(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)                                                                     \
    C(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)                                                                    \
    C(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16)                                                                      \
    C(CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17)                                                                            \
    C(CUDNN_BACKEND_MATMUL_DESCRIPTOR, 18)                                                                            \
    C(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, 21)                                                                         \
    C(CUDNN_BACKEND_RESAMPLE_DESCRIPTOR, 24)                                                                          \
    C(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, 38)                                                                        \
    C(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 10)                                                     \
    C(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, 11)                                             \
    C(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, 12)                                               \
    C(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)                                                               \
    C(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, 19)                                                                  \
    C(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 22)                                                               \
    C(CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR, 25)                                                            \
    C(CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR, 26)                                                            \
    C(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR, 29)                                                            \
    C(CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR, 30)                                                           \
    C(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 31)                                                                 \
    C(CUDNN_ATTR_POINTWISE_MODE, 0)                                                                                   \
    C(CUDNN_ATTR_POINTWISE_MATH_PREC, 1)                                                                              \
    C(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, 2)                                                                        \
    C(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, 3)                                                                        \
    C(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, 4)                                                                        \
    C(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, 5)                                                                  \
    C(CUDNN_ATTR_POINTWISE_ELU_ALPHA, 6)                                                                              \
    C(CUDNN_ATTR_POINTWISE_SOFTPLUS_BETA, 7)                                                                          \
    C(CUDNN_ATTR_POINTWISE_SWISH_BETA, 8)                                                                             \
    C(CUDNN_ATTR_POINTWISE_AXIS, 9)                                                                                   \
    C(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, 100)                                                                          \
    C(CUDNN_ATTR_CONVOLUTION_CONV_MODE, 101)                                                                          \
    C(CUDNN_ATTR_CONVOLUTION_DILATIONS, 102)                                                                          \
    C(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 103)                                                                     \
    C(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 104)                                                                      \
    C(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 105)                                                                       \
    C(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 106)                                                                       \
    C(CUDNN_ATTR_ENGINEHEUR_MODE, 200)                                                                                \
    C(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)                                                                     \
    C(CUDNN_ATTR_ENGINEHEUR_RESULTS, 202)                                                                             \
    C(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, 204)                                                                          \
    C(CUDNN_ATTR_ENGINECFG_ENGINE, 300)                                                                               \
    C(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1301)                                                                           \
    C(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, 1303)                                                                         \
    C(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 400)                                                                          \
    C(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)                                                                   \
    C(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)                                                                  \
    C(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, 405)                                                             \
    C(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, 407)                                                                      \
    C(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 700)                                                            \
    C(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 701)                                                             \
    C(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, 702)                                                        \
    C(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, 703)                                                                \
    C(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, 704)                                                                \
    C(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, 705)                                                                \
    C(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 706)                                                           \
    C(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 707)                                                            \
    C(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, 708)                                                       \
    C(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, 709)                                                               \
    C(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, 710)                                                              \
    C(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, 711)                                                              \
    C(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 712)                                                         \
    C(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 713)                                                          \
    C(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, 714)                                                     \
    C(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, 715)                                                            \
    C(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, 716)                                                             \
    C(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, 717)                                                            \
    C(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750)                                                              \
    C(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 751)                                                                      \
    C(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 752)                                                                      \
    C(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 753)                                                                      \
    C(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, 758)                                                                      \
    C(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, 756)                                                                     \
    C(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, 757)                                                                     \
    C(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, 800)                                                                          \
    C(CUDNN_ATTR_OPERATIONGRAPH_OPS, 801)                                                                             \
    C(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900)                                                                          \
    C(CUDNN_ATTR_TENSOR_DATA_TYPE, 901)                                                                               \
    C(CUDNN_ATTR_TENSOR_DIMENSIONS, 902)                                                                              \
    C(CUDNN_ATTR_TENSOR_STRIDES, 903)                                                                                 \
    C(CUDNN_ATTR_TENSOR_UNIQUE_ID, 906)                                                                               \
    C(CUDNN_ATTR_TENSOR_IS_VIRTUAL, 907)                                                                              \
    C(CUDNN_ATTR_TENSOR_IS_BY_VALUE, 908)                                                                             \
    C(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)                                                                       \
    C(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1001)                                                                    \
    C(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003)                                                                        \
    C(CUDNN_ATTR_MATMUL_COMP_TYPE, 1500)                                                                              \
    C(CUDNN_ATTR_OPERATION_MATMUL_ADESC, 1520)                                                                        \
    C(CUDNN_ATTR_OPERATION_MATMUL_BDESC, 1521)                                                                        \
    C(CUDNN_ATTR_OPERATION_MATMUL_CDESC, 1522)                                                                        \
    C(CUDNN_ATTR_OPERATION_MATMUL_DESC, 1523)                                                                         \
    C(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, 1525)                                                         \
    C(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, 1526)                                                         \
    C(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, 1527)                                                         \
    C(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, 913)                                                                      \
    C(CUDNN_BACKEND_OPERATION_PAGED_CACHE_LOAD_DESCRIPTOR, 35)                                                        \
    C(CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_CONTAINER_DESC, 1950)                                                     \
    C(CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_YDESC, 1951)                                                              \
    C(CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_SEQUENCE_DESC, 1952)                                                      \
    C(CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_PAGE_TABLE_DESC, 1953)                                                    \
    C(CUDNN_ATTR_REDUCTION_OPERATOR, 1600)                                                                            \
    C(CUDNN_ATTR_REDUCTION_COMP_TYPE, 1601)                                                                           \
    C(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 1610)                                                                     \
    C(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, 1611)                                                                     \
    C(CUDNN_ATTR_OPERATION_REDUCTION_DESC, 1612)                                                                      \
    C(CUDNN_ATTR_RESAMPLE_MODE, 1700)                                                                                 \
    C(CUDNN_ATTR_RESAMPLE_COMP_TYPE, 1701)                                                                            \
    C(CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, 1702)                                                                         \
    C(CUDNN_ATTR_RESAMPLE_POST_PADDINGS, 1703)                                                                        \
    C(CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, 1704)                                                                         \
    C(CUDNN_ATTR_RESAMPLE_STRIDES, 1705)                                                                              \
    C(CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, 1706)                                                                          \
    C(CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION, 1707)                                                                      \
    C(CUDNN_ATTR_RESAMPLE_PADDING_MODE, 1708)                                                                         \
    C(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, 1710)                                                                  \
    C(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, 1711)                                                                  \
    C(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC, 1712)                                                                \
    C(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, 1716)                                                                   \
    C(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC, 1720)                                                                 \
    C(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC, 1721)                                                                 \
    C(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC, 1722)                                                                \
    C(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC, 1725)                                                                   \
    C(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_XDESC, 1726)                                                                  \
    C(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_YDESC, 1727)                                                                  \
    C(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, 2000)                                                                       \
    C(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, 2001)                                                                      \
    C(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, 2002)                                                                      \
    C(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, 2003)                                                                  \
    C(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, 2004)                                                          \
    C(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, 2005)                                                                 \
    C(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, 2006)                                                                  \
    C(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, 2007)                                                               \
    C(CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, 2008)                                                        \
    C(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, 2009)                                                    \
    C(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC, 2010)                                                     \
    C(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, 2011)                                                   \
    C(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC, 2012)                                                    \
    C(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, 2013)                                                                      \
    C(CUDNN_ATTR_OPERATION_NORM_BWD_MODE, 2100)                                                                       \
    C(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, 2101)                                                                      \
    C(CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, 2102)                                                                  \
    C(CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, 2103)                                                          \
    C(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, 2104)                                                                     \
    C(CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, 2105)                                                                 \
    C(CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, 2107)                                                                \
    C(CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, 2108)                                                                 \
    C(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, 2109)                                                                     \
    C(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, 2200)                                                                       \
    C(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, 2201)                                                                       \
    C(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, 2702)                                                                \
    C(CUDNN_DATA_FLOAT, 0)                                                                                            \
    C(CUDNN_DATA_DOUBLE, 1)                                                                                           \
    C(CUDNN_DATA_HALF, 2)                                                                                             \
    C(CUDNN_DATA_INT8, 3)                                                                                             \
    C(CUDNN_DATA_INT32, 4)                                                                                            \
    C(CUDNN_DATA_UINT8, 6)                                                                                            \
    C(CUDNN_DATA_BFLOAT16, 9)                                                                                         \
    C(CUDNN_DATA_INT64, 10)                                                                                           \
    C(CUDNN_DATA_BOOLEAN, 11)                                                                                         \
    C(CUDNN_DATA_FP8_E4M3, 12)                                                                                        \
    C(CUDNN_DATA_FP8_E5M2, 13)                                                                                        \
    C(CUDNN_CROSS_CORRELATION, 1)                                                                                     \
    C(CUDNN_HEUR_MODE_A, 3)                                                                                           \
    C(CUDNN_HEUR_MODE_FALLBACK, 2)                                                                                    \
    C(CUDNN_NOT_PROPAGATE_NAN, 0)                                                                                     \
    C(CUDNN_PROPAGATE_NAN, 1)                                                                                         \
    C(CUDNN_ZERO_PAD, 0)                                                                                              \
    C(CUDNN_NEG_INF_PAD, 1)                                                                                           \
    C(CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING, 2)                                                                      \
    C(CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING, 4)                                                                      \
    C(CUDNN_RESAMPLE_MAXPOOL, 3)                                                                                      \
    C(CUDNN_REDUCE_TENSOR_ADD, 0)                                                                                     \
    C(CUDNN_REDUCE_TENSOR_MUL, 1)                                                                                     \
    C(CUDNN_REDUCE_TENSOR_MIN, 2)                                                                                     \
    C(CUDNN_REDUCE_TENSOR_MAX, 3)                                                                                     \
    C(CUDNN_REDUCE_TENSOR_AMAX, 4)                                                                                    \
    C(CUDNN_REDUCE_TENSOR_AVG, 5)                                                                                     \
    C(CUDNN_REDUCE_TENSOR_NORM1, 6)                                                                                   \
    C(CUDNN_REDUCE_TENSOR_NORM2, 7)                                                                                   \
    C(CUDNN_POINTWISE_ADD, 0)                                                                                         \
    C(CUDNN_POINTWISE_ADD_SQUARE, 5)                                                                                  \
    C(CUDNN_POINTWISE_DIV, 6)                                                                                         \
    C(CUDNN_POINTWISE_MAX, 3)                                                                                         \
    C(CUDNN_POINTWISE_MIN, 2)                                                                                         \
    C(CUDNN_POINTWISE_MUL, 1)                                                                                         \
    C(CUDNN_POINTWISE_POW, 8)                                                                                         \
    C(CUDNN_POINTWISE_SUB, 9)                                                                                         \
    C(CUDNN_POINTWISE_ABS, 10)                                                                                        \
    C(CUDNN_POINTWISE_CEIL, 11)                                                                                       \
    C(CUDNN_POINTWISE_COS, 12)                                                                                        \
    C(CUDNN_POINTWISE_EXP, 13)                                                                                        \
    C(CUDNN_POINTWISE_FLOOR, 14)                                                                                      \
    C(CUDNN_POINTWISE_LOG, 15)                                                                                        \
    C(CUDNN_POINTWISE_NEG, 16)                                                                                        \
    C(CUDNN_POINTWISE_RSQRT, 17)                                                                                      \
    C(CUDNN_POINTWISE_SIN, 18)                                                                                        \
    C(CUDNN_POINTWISE_SQRT, 4)                                                                                        \
    C(CUDNN_POINTWISE_TAN, 19)                                                                                        \
    C(CUDNN_POINTWISE_ERF, 20)                                                                                        \
    C(CUDNN_POINTWISE_IDENTITY, 21)                                                                                   \
    C(CUDNN_POINTWISE_RECIPROCAL, 22)                                                                                 \
    C(CUDNN_POINTWISE_RELU_FWD, 100)                                                                                  \
    C(CUDNN_POINTWISE_RELU_BWD, 200)                                                                                  \
    C(CUDNN_POINTWISE_TANH_FWD, 101)                                                                                  \
    C(CUDNN_POINTWISE_TANH_BWD, 201)                                                                                  \
    C(CUDNN_POINTWISE_SIGMOID_FWD, 102)                                                                               \
    C(CUDNN_POINTWISE_SIGMOID_BWD, 202)                                                                               \
    C(CUDNN_POINTWISE_ELU_FWD, 103)                                                                                   \
    C(CUDNN_POINTWISE_ELU_BWD, 203)                                                                                   \
    C(CUDNN_POINTWISE_GELU_FWD, 104)                                                                                  \
    C(CUDNN_POINTWISE_GELU_BWD, 204)                                                                                  \
    C(CUDNN_POINTWISE_SOFTPLUS_FWD, 105)                                                                              \
    C(CUDNN_POINTWISE_SOFTPLUS_BWD, 205)                                                                              \
    C(CUDNN_POINTWISE_SWISH_FWD, 106)                                                                                 \
    C(CUDNN_POINTWISE_SWISH_BWD, 206)                                                                                 \
    C(CUDNN_POINTWISE_GELU_APPROX_TANH_FWD, 107)                                                                      \
    C(CUDNN_POINTWISE_GELU_APPROX_TANH_BWD, 207)                                                                      \
    C(CUDNN_POINTWISE_CMP_EQ, 300)                                                                                    \
    C(CUDNN_POINTWISE_CMP_NEQ, 301)                                                                                   \
    C(CUDNN_POINTWISE_CMP_GT, 302)                                                                                    \
    C(CUDNN_POINTWISE_CMP_GE, 303)                                                                                    \
    C(CUDNN_POINTWISE_CMP_LT, 304)                                                                                    \
    C(CUDNN_POINTWISE_CMP_LE, 305)                                                                                    \
    C(CUDNN_POINTWISE_LOGICAL_AND, 400)                                                                               \
    C(CUDNN_POINTWISE_LOGICAL_OR, 401)                                                                                \
    C(CUDNN_POINTWISE_LOGICAL_NOT, 402)                                                                               \
    C(CUDNN_POINTWISE_GEN_INDEX, 501)                                                                                 \
    C(CUDNN_POINTWISE_BINARY_SELECT, 601)                                                                             \
    C(CUDNN_LAYER_NORM, 0)                                                                                            \
    C(CUDNN_INSTANCE_NORM, 1)                                                                                         \
    C(CUDNN_BATCH_NORM, 2)                                                                                            \
    C(CUDNN_RMS_NORM, 4)                                                                                              \
    C(CUDNN_NORM_FWD_INFERENCE, 0)                                                                                    \
    C(CUDNN_NORM_FWD_TRAINING, 1)                                                                                     \
    C(CUDNN_SOFTMAX_ACCURATE, 1)                                                                                      \
    C(CUDNN_SOFTMAX_LOG, 2)                                                                                           \
    C(CUDNN_SOFTMAX_MODE_INSTANCE, 0)                                                                                 \
    C(CUDNN_SOFTMAX_MODE_CHANNEL, 1)                                                                                  \
    C(CUDNN_LRN_CROSS_CHANNEL_DIM1, 0)                                                                                \
    C(CUDNN_TYPE_RNG_DISTRIBUTION, 29)                                                                                \
    C(CUDNN_BACKEND_RNG_DESCRIPTOR, 32)                                                                               \
    C(CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR, 33)                                                                     \
    C(CUDNN_ATTR_RNG_DISTRIBUTION, 2300)                                                                              \
    C(CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY, 2305)                                                                \
    C(CUDNN_ATTR_OPERATION_RNG_YDESC, 2310)                                                                           \
    C(CUDNN_ATTR_OPERATION_RNG_SEED, 2311)                                                                            \
    C(CUDNN_ATTR_OPERATION_RNG_DESC, 2312)                                                                            \
    C(CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC, 2313)                                                                     \
    C(CUDNN_RNG_DISTRIBUTION_BERNOULLI, 0)                                                                            \
    C(CUDNN_RNN_RELU, 0)                                                                                              \
    C(CUDNN_RNN_TANH, 1)                                                                                              \
    C(CUDNN_LSTM, 2)                                                                                                  \
    C(CUDNN_GRU, 3)                                                                                                   \
    C(CUDNN_RNN_ALGO_STANDARD, 0)                                                                                     \
    C(CUDNN_RNN_NO_BIAS, 0)                                                                                           \
    C(CUDNN_RNN_DOUBLE_BIAS, 2)                                                                                       \
    C(CUDNN_UNIDIRECTIONAL, 0)                                                                                        \
    C(CUDNN_BIDIRECTIONAL, 1)                                                                                         \
    C(CUDNN_LINEAR_INPUT, 0)                                                                                          \
    C(CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, 0)                                                                    \
    C(CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED, 1)                                                                      \
    C(CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED, 2)                                                                  \
    C(CUDNN_RNN_PADDED_IO_DISABLED, 0)                                                                                \
    C(CUDNN_RNN_PADDED_IO_ENABLED, 1)                                                                                 \
    C(CUDNN_FWD_MODE_INFERENCE, 0)                                                                                    \
    C(CUDNN_FWD_MODE_TRAINING, 1)                                                                                     \
    C(CUDNN_WGRAD_MODE_ADD, 0)                                                                                        \
    C(CUDNN_DEFAULT_MATH, 0)                                                                                          \
    C(CUDNN_TENSOR_OP_MATH, 1)                                                                                        \
    C(CUDNN_FMA_MATH, 3)                                                                                              \
    C(CUDNN_NUMERICAL_NOTE_TENSOR_CORE, 0)                                                                            \
    C(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, 1)                                                                    \
    C(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, 2)                                                            \
    C(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, 4)

enum { ATOMR_CUDNN_CONSTANTS(ATOMR_ENUMERATOR) };

#define ATOMR_CUDNN_FUNCTIONS(F)                                                                                      \
    F(cudnnStatus_t, cudnnCreate, (cudnnHandle_t *handle))                                                            \
    F(cudnnStatus_t, cudnnDestroy, (cudnnHandle_t handle))                                                            \
    F(cudnnStatus_t, cudnnSetStream, (cudnnHandle_t handle, cudaStream_t streamId))                                   \
    F(size_t, cudnnGetVersion, (void))                                                                                \
    F(const char *, cudnnGetErrorString, (cudnnStatus_t status))                                                      \
    F(void, cudnnGetLastErrorString, (char *message, size_t max_size))                                                \
    F(cudnnStatus_t, cudnnBackendCreateDescriptor,                                                                    \
      (cudnnBackendDescriptorType_t descriptorType, cudnnBackendDescriptor_t *descriptor))                            \
    F(cudnnStatus_t, cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t descriptor))                            \
    F(cudnnStatus_t, cudnnBackendFinalize, (cudnnBackendDescriptor_t descriptor))                                     \
    F(cudnnStatus_t, cudnnBackendSetAttribute,                                                                        \
      (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t attributeName,                                \
       cudnnBackendAttributeType_t attributeType, int64_t elementCount, const void *arrayOfElements))                 \
    F(cudnnStatus_t, cudnnBackendGetAttribute,                                                                        \
      (const cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t attributeName,                          \
       cudnnBackendAttributeType_t attributeType, int64_t requestedElementCount, int64_t *elementCount,               \
       void *arrayOfElements))                                                                                        \
    F(cudnnStatus_t, cudnnBackendExecute,                                                                             \
      (cudnnHandle_t handle, cudnnBackendDescriptor_t executionPlan, cudnnBackendDescriptor_t variantPack))           \
    F(cudnnStatus_t, cudnnCreateTensorDescriptor, (cudnnTensorDescriptor_t *tensorDesc))                              \
    F(cudnnStatus_t, cudnnSetTensorNdDescriptor,                                                                      \
      (cudnnTensorDescriptor_t tensorDesc, cudnnDataType_t dataType, int nbDims, const int dimA[],                    \
       const int strideA[]))                                                                                          \
    F(cudnnStatus_t, cudnnDestroyTensorDescriptor, (cudnnTensorDescriptor_t tensorDesc))                              \
    F(cudnnStatus_t, cudnnSoftmaxForward,                                                                             \
      (cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algo, cudnnSoftmaxMode_t mode, const void *alpha,                \
       const cudnnTensorDescriptor_t xDesc, const void *x, const void *beta, const cudnnTensorDescriptor_t yDesc,     \
       void *y))                                                                                                      \
    F(cudnnStatus_t, cudnnSoftmaxBackward,                                                                            \
      (cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algo, cudnnSoftmaxMode_t mode, const void *alpha,                \
       const cudnnTensorDescriptor_t yDesc, const void *y, const cudnnTensorDescriptor_t dyDesc, const void *dy,      \
       const void *beta, const cudnnTensorDescriptor_t dxDesc, void *dx))                                             \
    F(cudnnStatus_t, cudnnCreateLRNDescriptor, (cudnnLRNDescriptor_t *normDesc))                                      \
    F(cudnnStatus_t, cudnnSetLRNDescriptor,                                                                           \
      (cudnnLRNDescriptor_t normDesc, unsigned lrnN, double lrnAlpha, double lrnBeta, double lrnK))                   \
    F(cudnnStatus_t, cudnnDestroyLRNDescriptor, (cudnnLRNDescriptor_t lrnDesc))                                       \
    F(cudnnStatus_t, cudnnLRNCrossChannelForward,                                                                     \
      (cudnnHandle_t handle, cudnnLRNDescriptor_t normDesc, cudnnLRNMode_t lrnMode, const void *alpha,                \
       const cudnnTensorDescriptor_t xDesc, const void *x, const void *beta, const cudnnTensorDescriptor_t yDesc,     \
       void *y))                                                                                                      \
    F(cudnnStatus_t, cudnnLRNCrossChannelBackward,                                                                    \
      (cudnnHandle_t handle, cudnnLRNDescriptor_t normDesc, cudnnLRNMode_t lrnMode, const void *alpha,                \
       const cudnnTensorDescriptor_t yDesc, const void *y, const cudnnTensorDescriptor_t dyDesc, const void *dy,      \
       const cudnnTensorDescriptor_t xDesc, const void *x, const void *beta, const cudnnTensorDescriptor_t dxDesc,    \
       void *dx))                                                                                                     \
    F(cudnnStatus_t, cudnnCreateDropoutDescriptor, (cudnnDropoutDescriptor_t *dropoutDesc))                           \
    F(cudnnStatus_t, cudnnDestroyDropoutDescriptor, (cudnnDropoutDescriptor_t dropoutDesc))                           \
    F(cudnnStatus_t, cudnnDropoutGetStatesSize, (cudnnHandle_t handle, size_t *sizeInBytes))                          \
    F(cudnnStatus_t, cudnnSetDropoutDescriptor,                                                                       \
      (cudnnDropoutDescriptor_t dropoutDesc, cudnnHandle_t handle, float dropout, void *states,                       \
       size_t stateSizeInBytes, unsigned long long seed))                                                             \
    F(cudnnStatus_t, cudnnRestoreDropoutDescriptor,                                                                   \
      (cudnnDropoutDescriptor_t dropoutDesc, cudnnHandle_t handle, float dropout, void *states,                       \
       size_t stateSizeInBytes, unsigned long long seed))                                                             \
    F(cudnnStatus_t, cudnnCreateRNNDescriptor, (cudnnRNNDescriptor_t *rnnDesc))                                       \
    F(cudnnStatus_t, cudnnDestroyRNNDescriptor, (cudnnRNNDescriptor_t rnnDesc))                                       \
    F(cudnnStatus_t, cudnnSetRNNDescriptor_v8,                                                                        \
      (cudnnRNNDescriptor_t rnnDesc, cudnnRNNAlgo_t algo, cudnnRNNMode_t cellMode, cudnnRNNBiasMode_t biasMode,       \
       cudnnDirectionMode_t dirMode, cudnnRNNInputMode_t inputMode, cudnnDataType_t dataType,                         \
       cudnnDataType_t mathPrec, cudnnMathType_t mathType, int32_t inputSize, int32_t hiddenSize, int32_t projSize,   \
       int32_t numLayers, cudnnDropoutDescriptor_t dropoutDesc, uint32_t auxFlags))                                   \
    F(cudnnStatus_t, cudnnCreateRNNDataDescriptor, (cudnnRNNDataDescriptor_t *rnnDataDesc))                           \
    F(cudnnStatus_t, cudnnDestroyRNNDataDescriptor, (cudnnRNNDataDescriptor_t rnnDataDesc))                           \
    F(cudnnStatus_t, cudnnSetRNNDataDescriptor,                                                                       \
      (cudnnRNNDataDescriptor_t rnnDataDesc, cudnnDataType_t dataType, cudnnRNNDataLayout_t layout, int maxSeqLength, \
       int batchSize, int vectorSize, const int seqLengthArray[], void *paddingFill))                                 \
    F(cudnnStatus_t, cudnnGetRNNTempSpaceSizes,                                                                       \
      (cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc, cudnnForwardMode_t fwdMode,                                \
       cudnnRNNDataDescriptor_t xDesc, size_t *workSpaceSize, size_t *reserveSpaceSize))                              \
    F(cudnnStatus_t, cudnnGetRNNWeightSpaceSize,                                                                      \
      (cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc, size_t *weightSpaceSize))                                  \
    F(cudnnStatus_t, cudnnGetRNNWeightParams,                                                                         \
      (cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc, int32_t pseudoLayer, size_t weightSpaceSize,               \
       const void *weightSpace, int32_t linLayerID, cudnnTensorDescriptor_t mDesc, void **mAddr,                      \
       cudnnTensorDescriptor_t bDesc, void **bAddr))                                                                  \
    F(cudnnStatus_t, cudnnRNNForward,                                                                                 \
      (cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc, cudnnForwardMode_t fwdMode, const int32_t devSeqLengths[], \
       cudnnRNNDataDescriptor_t xDesc, const void *x, cudnnRNNDataDescriptor_t yDesc, void *y,                        \
       cudnnTensorDescriptor_t hDesc, const void *hx, void *hy, cudnnTensorDescriptor_t cDesc, const void *cx,        \
       void *cy, size_t weightSpaceSize, const void *weightSpace, size_t workSpaceSize, void *workSpace,              \
       size_t reserveSpaceSize, void *reserveSpace))                                                                  \
    F(cudnnStatus_t, cudnnRNNBackwardData_v8,                                                                         \
      (cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc, const int32_t devSeqLengths[],                             \
       cudnnRNNDataDescriptor_t yDesc, const void *y, const void *dy, cudnnRNNDataDescriptor_t xDesc, void *dx,       \
       cudnnTensorDescriptor_t hDesc, const void *hx, const void *dhy, void *dhx, cudnnTensorDescriptor_t cDesc,      \
       const void *cx, const void *dcy, void *dcx, size_t weightSpaceSize, const void *weightSpace,                   \
       size_t workSpaceSize, void *workSpace, size_t reserveSpaceSize, void *reserveSpace))                           \
    F(cudnnStatus_t, cudnnRNNBackwardWeights_v8,                                                                      \
      (cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc, cudnnWgradMode_t addGrad, const int32_t devSeqLengths[],   \
       cudnnRNNDataDescriptor_t xDesc, const void *x, cudnnTensorDescriptor_t hDesc, const void *hx,                  \
       cudnnRNNDataDescriptor_t yDesc, const void *y, size_t weightSpaceSize, void *dweightSpace,                     \
       size_t workSpaceSize, void *workSpace, size_t reserveSpaceSize, void *reserveSpace))

#endif
