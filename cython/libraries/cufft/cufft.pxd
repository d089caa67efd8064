# cython: language_level=3
"""cuFFT and its plans, as declared in table.h and plan.h."""

from libc.stdint cimport int64_t, uint64_t

from .backend cimport atomr_cuda
from .fields cimport atomr_constant, atomr_field
from .lanes cimport atomr_failure
from .native cimport atomr_library


cdef extern from "libraries/cufft/table.h" nogil:
    atomr_library atomr_cufft_library


cdef extern from "libraries/cufft/plan.h" nogil:
    ctypedef struct atomr_fft:
        pass
    ctypedef struct atomr_fft_spec:
        int64_t scratch
    const atomr_constant *atomr_fft_constants
    const atomr_field *atomr_fft_fields
    ctypedef struct atomr_fft_callback:
        int type
        const char *symbol
        const void *code
        size_t nbytes
        void *info
    int atomr_fft_new(atomr_cuda *, const atomr_fft_spec *, const atomr_fft_callback *, unsigned, atomr_fft **,
                      atomr_failure *)
    uint64_t atomr_fft_work(const atomr_fft *)
    void atomr_fft_delete(atomr_fft *)
    int atomr_fft_run(void *, const void *, void *) noexcept
