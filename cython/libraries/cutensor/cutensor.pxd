# cython: language_level=3
"""cuTENSOR and its plans, as declared in table.h and plan.h."""

from libc.stdint cimport int64_t, uint64_t

from .backend cimport atomr_cuda
from .fields cimport atomr_constant, atomr_field
from .lanes cimport atomr_failure
from .native cimport atomr_library


cdef extern from "libraries/cutensor/table.h" nogil:
    ctypedef struct atomr_cutensor_table:
        size_t (*cutensorGetCudartVersion)()
    atomr_library atomr_cutensor_library
    const atomr_cutensor_table *atomr_cutensor_load(const char *, char *, size_t)


cdef extern from "libraries/cutensor/plan.h" nogil:
    ctypedef struct atomr_tensor_spec:
        int64_t operation
    ctypedef struct atomr_tensor_plan:
        pass
    const atomr_constant *atomr_tensor_constants
    const atomr_field *atomr_tensor_fields
    int atomr_tensor_new(atomr_cuda *, const atomr_tensor_spec *, atomr_tensor_plan **, atomr_failure *)
    uint64_t atomr_tensor_workspace(const atomr_tensor_plan *)
    int atomr_tensor_kernels(atomr_cuda *, const char *, int, atomr_failure *)
    void atomr_tensor_delete(atomr_tensor_plan *)
    int atomr_tensor_run(void *, const void *, void *) noexcept


cdef extern from "libraries/cutensor/blocks.h" nogil:
    ctypedef struct atomr_blocks_spec:
        int64_t type
    ctypedef struct atomr_blocks_plan:
        pass
    const atomr_field *atomr_blocks_fields
    int atomr_blocks_new(atomr_cuda *, const atomr_blocks_spec *, const int64_t *, int64_t, atomr_blocks_plan **,
                         atomr_failure *)
    uint64_t atomr_blocks_workspace(const atomr_blocks_plan *)
    void atomr_blocks_delete(atomr_blocks_plan *)
    int atomr_blocks_run(void *, const void *, void *) noexcept
