# cython: language_level=3
"""NCCL, connections of ranks and their messages, as declared in table.h, connection.h and run.h."""

from libc.stdint cimport int64_t

from .backend cimport atomr_cuda
from .fields cimport atomr_constant, atomr_field
from .lanes cimport atomr_failure, atomr_worker
from .native cimport atomr_library
from .seats cimport atomr_page


cdef extern from "libraries/nccl/table.h" nogil:
    atomr_library atomr_nccl_library
    enum:
        ATOMR_NCCL_VERSION
        ATOMR_NCCL_FLOAT8
        ATOMR_NCCL_WINDOWS
        ATOMR_NCCL_ENGINES


cdef extern from "libraries/nccl/connection.h" nogil:
    ctypedef struct atomr_nccl_connection:
        pass
    atomr_nccl_connection *atomr_nccl_connection_new(atomr_cuda *, atomr_worker *, atomr_page *, unsigned rank,
                                                     int *code, atomr_failure *)
    void atomr_nccl_connection_end(atomr_nccl_connection *)
    void atomr_nccl_connection_delete(atomr_nccl_connection *)


cdef extern from "libraries/nccl/run.h" nogil:
    ctypedef struct atomr_nccl_call:
        int64_t kind
    ctypedef struct atomr_nccl_message:
        atomr_nccl_connection *connection
        unsigned n_calls
        unsigned n_operands
        unsigned n_scalars
        atomr_nccl_call *calls
        int connects
    const atomr_constant *atomr_nccl_constants
    const atomr_field *atomr_nccl_call_fields
    int atomr_nccl_check(const atomr_nccl_message *, atomr_failure *)
    int atomr_nccl_run(void *, const void *, void *) noexcept
    void atomr_nccl_element(int, double, void *)
