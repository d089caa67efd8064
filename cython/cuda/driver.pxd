# cython: language_level=3
"""The CUDA driver's C interface, as declared in driver.h."""


cdef extern from "cuda/driver.h" nogil:
    ctypedef int CUresult
    ctypedef unsigned long long CUdeviceptr
    ctypedef struct CUmod_st:
        pass
    ctypedef struct CUfunc_st:
        pass
    ctypedef struct CUstream_st:
        pass
    ctypedef struct CUgraphNode_st:
        pass
    ctypedef CUmod_st *CUmodule
    ctypedef CUgraphNode_st *CUgraphNode
    ctypedef CUstream_st *CUstream
    ctypedef CUfunc_st *CUfunction
    enum:
        CUDA_SUCCESS
        CUDA_ERROR_OUT_OF_MEMORY
        CUDA_ERROR_NO_DEVICE
        CUDA_ERROR_INVALID_DEVICE
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
    ctypedef struct atomr_driver:
        CUresult (*cuInit)(unsigned) noexcept nogil
        CUresult (*cuMemcpyAsync)(CUdeviceptr, CUdeviceptr, size_t, CUstream) noexcept nogil
        CUresult (*cuStreamSynchronize)(CUstream) noexcept nogil
        CUresult (*cuModuleLoadData)(CUmodule *, const void *) noexcept nogil
        CUresult (*cuModuleUnload)(CUmodule) noexcept nogil
        CUresult (*cuModuleGetFunction)(CUfunction *, CUmodule, const char *) noexcept nogil
        CUresult (*cuFuncSetAttribute)(CUfunction, int attribute, int value) noexcept nogil
        CUresult (*cuOccupancyMaxActiveBlocksPerMultiprocessor)(int *, CUfunction, int block, size_t) noexcept nogil
        CUresult (*cuGetErrorName)(CUresult, const char **) noexcept nogil
        CUresult (*cuGetErrorString)(CUresult, const char **) noexcept nogil
    const atomr_driver *atomr_driver_load(char *why, size_t size)
