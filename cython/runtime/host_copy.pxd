# cython: language_level=3
"""Copies in host memory by several threads, as declared in host_copy.h."""

from libc.stdint cimport uint64_t


cdef extern from "runtime/host_copy.h" nogil:
    enum:
        ATOMR_COPY
        ATOMR_COPY_FRESH
        ATOMR_COPY_ZERO
        ATOMR_COPY_TOUCH
        ATOMR_COPY_MAX_HELPERS
    ctypedef struct atomr_copy:
        pass
    void atomr_copy_start(atomr_copy *, int kind, void *dst, const void *src, uint64_t nbytes)
    int atomr_copy_done(const atomr_copy *)
    int atomr_copy_finish(atomr_copy *)
    int atomr_copy_helpers()
    void atomr_copy_set_helpers(int n)
