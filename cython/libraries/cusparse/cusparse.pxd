# cython: language_level=3
"""cuSPARSE and its plans, as declared in table.h and call.h."""

from libc.stdint cimport int64_t, uint64_t

from .backend cimport atomr_cuda
from .fields cimport atomr_constant, atomr_field
from .lanes cimport atomr_failure
from .native cimport atomr_library


cdef extern from "libraries/cusparse/table.h" nogil:
    atomr_library atomr_cusparse_library


cdef extern from "libraries/cusparse/call.h" nogil:
    ctypedef struct atomr_sparse_spec:
        int64_t scratch
    ctypedef struct atomr_sparse_call:
        atomr_cuda *cuda
        atomr_sparse_spec spec
        uint64_t buffer
    const atomr_constant *atomr_sparse_constants
    const atomr_field *atomr_sparse_fields
    int atomr_sparse_prepare(atomr_sparse_call *, atomr_failure *)
    int atomr_sparse_run(void *, const void *, void *) noexcept
