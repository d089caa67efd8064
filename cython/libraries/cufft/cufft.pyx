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

from ..errors import InvalidRequest

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
    callbacks : sequence of (int, bytes, bytes), optional
        Functions of elements: the library's number of the kind, the symbol, and LTO-IR.  With any, `parameters` is the
        address of 256 bytes of device memory, which they get and which live as long as the plan.

    Raises
    ------
    Unsupported
        If the library is missing, or refuses the sizes or the functions.
    OutOfMemory
        If the device has no memory for the plan's tables.
    InvalidRequest
        If the description has a member too few, one that `atomr_fft_spec` does not have, or one out of range.
    """

    cdef atomr_fft *native
    cdef readonly uint64_t parameters

    def __cinit__(self, CudaBackend backend not None, description, callbacks=()):
        cdef atomr_failure failure
        cdef atomr_fft_spec spec
        cdef atomr_fft_callback[2] functions
        cdef unsigned n = len(callbacks)
        cdef bytes name, data
        cdef unsigned i
        cdef int code
        memset(&failure, 0, sizeof(failure))
        fill("a transform", atomr_fft_fields, &spec, description.fields())
        if n > 2:
            raise InvalidRequest(f"{n} functions of elements; allowed: one on load and one on store")
        self.backend = backend
        backend.enter()
        if n:
            self.parameters = backend.take_block()
        for i in range(n):  # whose bytes the caller keeps meanwhile
            kind, name, data = callbacks[i]
            functions[i].type = kind
            functions[i].symbol = name
            functions[i].code = <const char *>data
            functions[i].nbytes = len(data)
            functions[i].info = <void *>self.parameters
        with nogil:
            code = atomr_fft_new(backend.cuda, &spec, functions, n, &self.native, &failure)
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
        if self.parameters:
            self.backend.give_block(self.parameters)
