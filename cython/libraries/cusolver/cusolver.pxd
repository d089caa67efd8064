# cython: language_level=3
"""cuSOLVER and its plans, as declared in table.h and call.h."""

from libc.stdint cimport int64_t, uint64_t

from .backend cimport atomr_cuda
from .fields cimport atomr_constant, atomr_field
from .lanes cimport atomr_failure
from .native cimport atomr_library


cdef extern from "libraries/cusolver/table.h" nogil:
    atomr_library atomr_cusolver_library


cdef extern from "libraries/cusolver/call.h" nogil:
    ctypedef struct atomr_solver_spec:
        pass
    ctypedef struct atomr_solver_call:
        atomr_cuda *cuda
        atomr_solver_spec spec
        uint64_t scratch_bytes
    ctypedef struct atomr_verdict_spec:
        pass
    ctypedef struct atomr_verdict:
        atomr_cuda *cuda
        atomr_verdict_spec spec
        char operation[64]
    const atomr_constant *atomr_solver_constants
    const atomr_field *atomr_solver_fields
    const atomr_field *atomr_verdict_fields
    int atomr_solver_prepare(atomr_solver_call *, atomr_failure *)
    void atomr_solver_release(atomr_solver_call *)
    int atomr_solver_run(void *, const void *, void *) noexcept
    int atomr_verdict_check(const atomr_verdict_spec *, atomr_failure *)
    int atomr_verdict_run(void *, const void *, void *) noexcept


cdef extern from "libraries/cusolver/decompose.h" nogil:
    ctypedef struct atomr_decomposition_spec:
        pass
    ctypedef struct atomr_decomposition:
        atomr_cuda *cuda
        atomr_decomposition_spec spec
        uint64_t scratch_bytes
    const atomr_constant *atomr_decomposition_constants
    const atomr_field *atomr_decomposition_fields
    int atomr_decomposition_prepare(atomr_decomposition *, atomr_failure *)
    void atomr_decomposition_release(atomr_decomposition *)
    int atomr_decomposition_run(void *, const void *, void *) noexcept


cdef extern from "libraries/cusolver/refine.h" nogil:
    ctypedef struct atomr_refinement_spec:
        pass
    ctypedef struct atomr_refinement:
        atomr_cuda *cuda
        atomr_refinement_spec spec
        uint64_t scratch_bytes
    const atomr_field *atomr_refinement_fields
    int atomr_refinement_prepare(atomr_refinement *, atomr_failure *)
    void atomr_refinement_release(atomr_refinement *)
    int atomr_refinement_run(void *, const void *, void *) noexcept
