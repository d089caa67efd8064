# cython: language_level=3
"""What the modules of all libraries share: see native.pyx."""

from .fields cimport atomr_constant, atomr_field
from .lanes cimport atomr_failure


cdef extern from "cuda/library.h" nogil:
    ctypedef struct atomr_library:
        size_t version
    const void *atomr_library_open(atomr_library *, const char *path, char *why, size_t size)


# Load a library from `path` (empty: by its soname), once in a process; return its version.
cdef size_t load_library(atomr_library *library, str path) except? 0
# Raise the error that a C function reports.
cdef int raise_failure(int code, atomr_failure *failure, str what) except -1
# Fill a struct of 64-bit integers by the names of its members; a missing or unknown name is an InvalidRequest.
cdef int fill(str title, const atomr_field *fields, void *struct, dict values) except -1
# Constants by name.
cdef dict constants_of(const atomr_constant *constants)
