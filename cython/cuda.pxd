# cython: language_level=3
"""The C half of a CUDA device, as declared in driver.h, cuda_backend.h and cuda_runs.h."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from .lanes cimport Backend, atomr_backend, atomr_call, atomr_failure, atomr_run


cdef extern from "driver.h" nogil:
    ctypedef int CUresult
    ctypedef unsigned long long CUdeviceptr
    ctypedef struct CUmod_st:
        pass
    ctypedef struct CUfunc_st:
        pass
    ctypedef struct CUstream_st:
        pass
    ctypedef CUmod_st *CUmodule
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


cdef extern from "cuda_backend.h" nogil:
    ctypedef struct atomr_cuda:
        pass
    ctypedef struct atomr_cuda_facts:
        char name[256]
        char uuid[16]
        int major
        int minor
        int multiprocessors
        int driver_version
        uint64_t total_memory
    int atomr_cuda_find(const char *uuid, int *ordinal, CUresult *result, char *why, size_t size)
    atomr_cuda *atomr_cuda_open(int ordinal, CUresult *result, char *why, size_t size)
    void atomr_cuda_close(atomr_cuda *)
    int atomr_cuda_unregister(atomr_cuda *)
    CUresult atomr_cuda_open_lane(atomr_cuda *, unsigned lane)
    CUstream atomr_cuda_control(atomr_cuda *)
    CUresult atomr_cuda_error(atomr_cuda *)
    CUresult atomr_cuda_examine(atomr_cuda *)
    CUresult atomr_cuda_beat(atomr_cuda *)
    const atomr_driver *atomr_cuda_driver(const atomr_cuda *)
    CUresult atomr_cuda_enter(atomr_cuda *)
    CUstream atomr_cuda_stream(atomr_cuda *, unsigned lane)
    atomr_backend atomr_cuda_backend(atomr_cuda *)
    int atomr_cuda_register(atomr_cuda *, void *w, uint64_t nbytes, char *why, size_t size)
    int atomr_cuda_describe(atomr_cuda *, atomr_cuda_facts *)
    CUresult atomr_cuda_create(atomr_cuda *, uint64_t nbytes, int *fd)
    CUresult atomr_cuda_map(atomr_cuda *, int fd, uint64_t nbytes, CUdeviceptr *base)
    CUresult atomr_cuda_unmap(atomr_cuda *, CUdeviceptr base, uint64_t nbytes)
    CUresult atomr_cuda_pin(atomr_cuda *, void *base, uint64_t nbytes, CUdeviceptr *device)
    CUresult atomr_cuda_unpin(atomr_cuda *, void *base)
    CUresult atomr_cuda_copy_now(atomr_cuda *, CUdeviceptr to, CUdeviceptr source, uint64_t nbytes)
    CUresult atomr_cuda_memory(atomr_cuda *, uint64_t *free, uint64_t *total)


cdef extern from "cuda_foreign.h" nogil:
    CUresult atomr_cuda_open_shared(atomr_cuda *, const char *handle, CUdeviceptr *base)
    CUresult atomr_cuda_close_shared(atomr_cuda *, CUdeviceptr base)
    int atomr_cuda_reaches(atomr_cuda *, const char *uuid)


cdef extern from "cuda_runs.h" nogil:
    ctypedef struct atomr_argument:
        uint32_t kind
        uint32_t index
        uint64_t value
        int64_t least
    ctypedef struct atomr_launch:
        CUfunction function
        unsigned grid[3]
        unsigned block[3]
        unsigned shared
        unsigned n_arguments
        unsigned cluster[3]
        int cooperative
        int overlaps
        atomr_argument *arguments
    ctypedef struct atomr_kernels:
        atomr_cuda *cuda
        CUmodule module
        unsigned n_launches
        unsigned n_alignments
        atomr_launch *launches
        uint32_t *alignments
        int report
        unsigned n_sites
        const char **sites
        uint32_t *sets
        const uint32_t *needs
        const char *lacking
        uint64_t workspace
    enum:
        ATOMR_ARG_OPERAND
        ATOMR_ARG_WORD
        ATOMR_ARG_FLOAT32
        ATOMR_ARG_FLOAT16
        ATOMR_ARG_CONSTANT
        ATOMR_ARG_BYTES
        ATOMR_ARG_NARROW
        ATOMR_ARG_WORKSPACE
        ATOMR_ARG_TENSOR_MAP
        ATOMR_ARG_SCALARS
        ATOMR_MAX_ARGUMENTS
        ATOMR_MAX_TENSOR_MAPS
    ctypedef struct atomr_tensor_map:
        int type
        int interleave
        int swizzle
        int promotion
        int fill
        uint32_t axes
        uint64_t extents[5]
        uint64_t strides[5]
        uint32_t box[5]
        uint32_t steps[5]
    int atomr_cuda_launch(const atomr_kernels *, CUstream, const atomr_call *, atomr_failure *)
    int atomr_cuda_run_kernels(void *, const void *, void *) noexcept
    int atomr_cuda_run_copy(void *, const void *, void *)
    int atomr_cuda_run_transfer(void *, const void *, void *)


cdef extern from "matmul_plan.h" nogil:
    ctypedef struct atomr_blas_lt:
        pass
    ctypedef struct atomr_matmul:
        pass
    ctypedef struct atomr_cublaslt:
        size_t version
        const char *file
    ctypedef struct atomr_matmul_spec:
        pass
    const atomr_cublaslt *atomr_cublaslt_load(const char *path, char *why, size_t size)
    int atomr_blas_lt_open(atomr_cuda *, const char *path, atomr_blas_lt **, atomr_failure *)
    const atomr_cublaslt *atomr_blas_lt_library(const atomr_blas_lt *)
    void atomr_blas_lt_close(atomr_blas_lt *)
    int atomr_matmul_new(atomr_blas_lt *, const atomr_matmul_spec *, atomr_matmul **, atomr_failure *)
    uint64_t atomr_matmul_workspace(const atomr_matmul *)
    ctypedef struct cublasLtMatmulAlgo_t:
        uint64_t data[8]
    ctypedef struct cublasLtMatmulHeuristicResult_t:
        cublasLtMatmulAlgo_t algo
        size_t workspaceSize
        float wavesCount
    int atomr_matmul_candidates(atomr_matmul *, uint64_t limit, cublasLtMatmulHeuristicResult_t *, int most)
    void atomr_matmul_delete(atomr_matmul *)
    int atomr_matmul_run(void *, const void *, void *) noexcept


cdef extern from "matmul_tune.h" nogil:
    ctypedef struct atomr_timing:
        const uint64_t *addresses
        unsigned sets
        unsigned launches
        uint64_t workspace
        uint64_t workspace_bytes
    int atomr_matmul_config(const atomr_matmul *, const cublasLtMatmulAlgo_t *, int values[5])
    int atomr_matmul_time(atomr_matmul *, const cublasLtMatmulAlgo_t *, const atomr_timing *, float *microseconds,
                          atomr_failure *)


cdef extern from "cublas.h" nogil:
    ctypedef struct atomr_blas:
        pass
    ctypedef struct atomr_blas_spec:
        pass
    ctypedef struct atomr_blas_call:
        atomr_blas *owner
        atomr_blas_spec spec
    int atomr_blas_open(atomr_cuda *, const char *path, atomr_blas **, atomr_failure *)
    int atomr_blas_version(const atomr_blas *)
    void atomr_blas_set_workspace(atomr_blas *, uint64_t address, uint64_t nbytes)
    int atomr_blas_groups(const atomr_blas *)
    int atomr_blas_check(const atomr_blas_spec *, atomr_failure *)
    int atomr_blas_run(void *, const void *, void *) noexcept


cdef extern from "cublas_grouped.h" nogil:
    ctypedef struct atomr_grouped_spec:
        int64_t n_groups
    ctypedef struct atomr_grouped:
        atomr_blas *owner
        atomr_grouped_spec spec
        int *numbers
        double *factors
        uint64_t workspace_bytes
    enum:
        ATOMR_GROUP_NUMBERS
    int atomr_grouped_check(const atomr_grouped *, atomr_failure *)
    int atomr_grouped_run(void *, const void *, void *) noexcept


cdef extern from "sequence.h" nogil:
    ctypedef struct atomr_source:
        uint64_t value
        uint32_t own
    ctypedef struct atomr_step:
        atomr_run run
        void *context
        unsigned n_operands
        unsigned n_scalars
        atomr_source *operands
        atomr_source *scalars
    ctypedef struct atomr_sequence:
        uint64_t workspace_bytes
        unsigned n_steps
        atomr_step *steps
    enum:
        ATOMR_STEP_OPERANDS
        ATOMR_STEP_SCALARS
    int atomr_sequence_run(void *, const void *, void *) noexcept


cdef class CudaBackend(Backend):
    cdef atomr_cuda *cuda
    cdef atomr_backend made
    cdef readonly int ordinal
    cdef atomr_blas_lt *blas_lt
    cdef dict marks
    cdef dict borrowed
    cdef uint64_t zero
    cdef atomr_blas *blas
    cdef atomr_blas *groups
    cdef int look(self, str what) except -1
    cdef atomr_blas *new_blas(self, str path) except NULL
    cdef int refuse_device(self, CUresult result, str text) except -1
    cdef int check(self, CUresult result, str what) except -1
    cdef uint32_t *mark(self, str name) except NULL


cdef class Kernels:
    cdef CudaBackend backend
    cdef atomr_kernels native
    cdef list sites
    cdef bytes lacking
    cdef list structs
    cdef int check_residence(self, atomr_launch *launch, str name) except -1


cdef class Matmul:
    cdef CudaBackend backend
    cdef atomr_matmul *native


cdef class Sequence:
    cdef CudaBackend backend
    cdef atomr_sequence native
    cdef list kept


cdef class Blas:
    cdef CudaBackend backend
    cdef atomr_blas_call native


cdef class Grouped:
    cdef CudaBackend backend
    cdef atomr_grouped native
