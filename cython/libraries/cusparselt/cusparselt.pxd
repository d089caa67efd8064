# cython: language_level=3
"""cuSPARSELt and its plans, as declared in table.h and plan.h."""

from libc.stdint cimport int64_t, uint64_t

from .backend cimport atomr_cuda
from .fields cimport atomr_constant, atomr_field
from .lanes cimport atomr_failure
from .native cimport atomr_library


cdef extern from "libraries/cusparselt/table.h" nogil:
    atomr_library atomr_cusparselt_library


cdef extern from "libraries/cusparselt/plan.h" nogil:
    ctypedef struct atomr_structured_spec:
        int64_t routine
        int64_t n_operands
    ctypedef struct atomr_structured_timing:
        const uint64_t *addresses
        unsigned sets
        unsigned launches
        uint64_t workspace
    ctypedef struct atomr_structured:
        pass
    const atomr_constant *atomr_structured_constants
    const atomr_field *atomr_structured_fields
    int atomr_structured_new(atomr_cuda *, const atomr_structured_spec *, atomr_structured **, atomr_failure *)
    uint64_t atomr_structured_workspace(const atomr_structured *)
    int64_t atomr_structured_configurations(const atomr_structured *)
    int atomr_structured_time(atomr_structured *, const atomr_structured_timing *, float *, atomr_failure *)
    void atomr_structured_delete(atomr_structured *)
    int atomr_structured_run(void *, const void *, void *) noexcept
