# cython: language_level=3
"""cuDNN and its plans, as declared in table.h and plan.h."""

from libc.stdint cimport int64_t, uint64_t

from .backend cimport atomr_cuda
from .fields cimport atomr_constant, atomr_field
from .lanes cimport atomr_failure
from .native cimport atomr_library


cdef extern from "libraries/cudnn/table.h" nogil:
    atomr_library atomr_cudnn_library


cdef extern from "libraries/cudnn/plan.h" nogil:
    ctypedef struct atomr_cudnn_words:
        const int64_t *words
        size_t n
    ctypedef struct atomr_cudnn_tensor:
        int64_t uid
        int64_t operand
        int64_t alignment
        uint64_t constant
    ctypedef struct atomr_cudnn_choice:
        uint64_t banned
        uint64_t workspace
        int64_t only
    ctypedef struct atomr_cudnn_saved:
        const char *text
        size_t n
        int64_t engine
    ctypedef struct atomr_cudnn_plan:
        pass
    const atomr_constant *atomr_cudnn_constants
    int atomr_cudnn_new(atomr_cuda *, const char *, const atomr_cudnn_words *, const atomr_cudnn_choice *,
                        const atomr_cudnn_saved *, const atomr_cudnn_tensor *, size_t, int64_t, atomr_cudnn_plan **,
                        atomr_failure *)
    uint64_t atomr_cudnn_workspace(const atomr_cudnn_plan *)
    int64_t atomr_cudnn_engine(const atomr_cudnn_plan *)
    size_t atomr_cudnn_save(const atomr_cudnn_plan *, char *, size_t)
    void atomr_cudnn_delete(atomr_cudnn_plan *)
    int atomr_cudnn_run(void *, const void *, void *) noexcept


cdef extern from "libraries/cudnn/call.h" nogil:
    ctypedef struct atomr_cudnn_call_info:
        int kind, dtype
        int shape[3]
        int log
        unsigned size
        double scale, power, k
    ctypedef struct atomr_cudnn_call:
        pass
    int atomr_cudnn_call_new(atomr_cuda *, const atomr_cudnn_call_info *, atomr_cudnn_call **, atomr_failure *)
    void atomr_cudnn_call_delete(atomr_cudnn_call *)
    int atomr_cudnn_call_run(void *, const void *, void *) noexcept
    enum:
        ATOMR_CUDNN_SOFTMAX_FORWARD
        ATOMR_CUDNN_SOFTMAX_BACKWARD
        ATOMR_CUDNN_LRN_FORWARD
        ATOMR_CUDNN_LRN_BACKWARD


cdef extern from "libraries/cudnn/rnn.h" nogil:
    ctypedef struct atomr_cudnn_rnn_spec:
        pass
    ctypedef struct atomr_cudnn_rnn:
        atomr_cuda *cuda
        atomr_cudnn_rnn_spec spec
        uint64_t reserve
    const atomr_field *atomr_cudnn_rnn_fields
    int atomr_cudnn_rnn_prepare(atomr_cudnn_rnn *, atomr_failure *)
    uint64_t atomr_cudnn_rnn_workspace(const atomr_cudnn_rnn *)
    int atomr_cudnn_rnn_run(void *, const void *, void *) noexcept
