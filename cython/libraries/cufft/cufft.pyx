# cython: language_level=3, boundscheck=False, wraparound=False
"""Transforms of cuFFT, prepared for lanes.

Contract.  A thin owner of plan.h.  Making a plan compiles and allocates in the library, and waits for the device: the
GIL is released.  Errors of the library come back as LibraryError("cufft", ...) or OutOfMemory, a missing or old library
as Unsupported.  What lanes do is in C and takes no GIL.
"""

from libc.stdint cimport uint64_t
from libc.string cimport memset

from .cuda cimport CudaBackend, NativeRun
from .lanes cimport ATOMR_OK, atomr_failure, atomr_run
from .native cimport constants_of, fill, load_library, raise_failure

cimport cython

# Numbers of cufft.h and library_types.h, by name.
CONSTANTS = constants_of(atomr_fft_constants)


def load(str path=""):
    """Load cuFFT from `path` (empty: by its soname), once in a process; the version of the library.

    Raises `Unsupported` if it is missing or incomplete.
    """
    return load_library(&atomr_cufft_library, path)


@cython.no_gc_clear
cdef class Transform(NativeRun):
    """A prepared transform of cuFFT.

    Parameters
    ----------
    backend : CudaBackend
    description : TransformDescription

    Raises
    ------
    Unsupported
        If the library is missing, or refuses the sizes.
    OutOfMemory
        If the device has no memory for the plan's tables.
    InvalidRequest
        If the description has a member too few, one that `atomr_fft_spec` does not have, or one out of range.
    """

    cdef atomr_fft *native

    def __cinit__(self, CudaBackend backend not None, description):
        cdef atomr_failure failure
        cdef atomr_fft_spec spec
        cdef int code
        memset(&failure, 0, sizeof(failure))
        fill("a transform", atomr_fft_fields, &spec, description.fields())
        backend.enter()
        with nogil:
            code = atomr_fft_new(backend.cuda, &spec, &self.native, &failure)
        if code != ATOMR_OK:
            backend.check_fault("planning a transform")
            raise_failure(code, &failure, "planning a transform")
        self.function = <atomr_run>atomr_fft_run
        self.context = self.native
        self.workspace = atomr_fft_work(self.native)
        if self.workspace:
            self.workspace += <uint64_t>spec.scratch

    def __dealloc__(self):
        if self.native != NULL:
            with nogil:
                atomr_fft_delete(self.native)
