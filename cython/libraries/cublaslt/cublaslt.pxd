# cython: language_level=3
"""cuBLASLt and its matmul plans, as declared in table.h, plan.h and tune.h."""

from libc.stdint cimport uint64_t

from .backend cimport atomr_handle_kind
from .fields cimport atomr_constant, atomr_field
from .lanes cimport atomr_failure
from .native cimport atomr_library


cdef extern from "libraries/cublaslt/table.h" nogil:
    atomr_library atomr_cublaslt_library
    const atomr_constant *atomr_cublaslt_constants


cdef extern from "libraries/cublaslt/plan.h" nogil:
    ctypedef struct atomr_blas_lt:
        pass
    ctypedef struct atomr_matmul:
        pass
    ctypedef struct atomr_matmul_spec:
        pass
    const atomr_field *atomr_matmul_fields
    const atomr_handle_kind atomr_blas_lt_kind
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


cdef extern from "libraries/cublaslt/tune.h" nogil:
    ctypedef struct atomr_timing:
        const uint64_t *addresses
        unsigned sets
        unsigned launches
        uint64_t workspace
        uint64_t workspace_bytes
    int atomr_matmul_config(const atomr_matmul *, const cublasLtMatmulAlgo_t *, int values[5])
    int atomr_matmul_time(atomr_matmul *, const cublasLtMatmulAlgo_t *, const atomr_timing *, float *microseconds,
                          atomr_failure *)
