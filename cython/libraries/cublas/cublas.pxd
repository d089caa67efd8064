# cython: language_level=3
"""cuBLAS and its plans, as declared in table.h, call.h and grouped.h."""

from libc.stdint cimport int64_t

from .backend cimport atomr_cuda
from .fields cimport atomr_constant, atomr_field
from .lanes cimport atomr_failure
from .native cimport atomr_library


cdef extern from "libraries/cublas/table.h" nogil:
    atomr_library atomr_cublas_library


cdef extern from "libraries/cublas/call.h" nogil:
    ctypedef struct atomr_blas_spec:
        int64_t scratch
        int64_t scratch_bytes
    ctypedef struct atomr_blas_call:
        atomr_cuda *cuda
        atomr_blas_spec spec
    const atomr_constant *atomr_blas_constants
    const atomr_field *atomr_blas_fields
    int atomr_blas_check(const atomr_blas_spec *, atomr_failure *)
    int atomr_blas_run(void *, const void *, void *) noexcept


cdef extern from "libraries/cublas/grouped.h" nogil:
    ctypedef struct atomr_grouped_spec:
        int64_t n_groups
    ctypedef struct atomr_group:
        pass
    ctypedef struct atomr_grouped:
        pass
    const atomr_field *atomr_grouped_fields
    const atomr_field *atomr_group_fields
    int atomr_grouped_new(atomr_cuda *, const atomr_grouped_spec *, const atomr_group *, atomr_grouped **, atomr_failure *)
    void atomr_grouped_delete(atomr_grouped *)
    int atomr_grouped_run(void *, const void *, void *) noexcept
