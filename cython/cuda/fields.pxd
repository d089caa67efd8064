# cython: language_level=3
"""Structs and constants that Python knows by name, as declared in fields.h."""

from libc.stdint cimport int64_t


cdef extern from "cuda/fields.h" nogil:
    ctypedef struct atomr_field:
        const char *name
        unsigned count
    ctypedef struct atomr_constant:
        const char *name
        int64_t value
