# cython: language_level=3
"""cuDSS and its solvers, as declared in table.h and direct.h."""

from libc.stdint cimport int64_t

from .backend cimport atomr_cuda
from .fields cimport atomr_constant, atomr_field
from .lanes cimport atomr_failure
from .native cimport atomr_library


cdef extern from "libraries/cudss/table.h" nogil:
    atomr_library atomr_cudss_library


cdef extern from "libraries/cudss/direct.h" nogil:
    ctypedef struct atomr_pattern_spec:
        int64_t n
    ctypedef struct atomr_phase_spec:
        int64_t phase
    ctypedef struct atomr_direct:
        pass
    ctypedef struct atomr_direct_call:
        atomr_direct *solver
        atomr_phase_spec spec
    const atomr_constant *atomr_direct_constants
    const atomr_field *atomr_pattern_fields
    const atomr_field *atomr_phase_fields
    int atomr_direct_new(atomr_cuda *, const atomr_pattern_spec *, atomr_direct **, atomr_failure *)
    void atomr_direct_delete(atomr_direct *)
    int atomr_direct_check(const atomr_direct_call *, atomr_failure *)
    int atomr_direct_run(void *, const void *, void *) noexcept
