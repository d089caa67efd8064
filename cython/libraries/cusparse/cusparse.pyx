# cython: language_level=3, boundscheck=False, wraparound=False
"""Products of cuSPARSE, prepared for lanes.

Contract.  A thin owner of call.h.  Making a plan asks the library for the size of its buffer, for which the device has a
handle of its own; a lane's handle is made by its first message.  Errors of the library come back as
LibraryError("cusparse", ...), a missing or old library as Unsupported.  What lanes do is in C and takes no GIL.
"""

from libc.stdint cimport uint64_t
from libc.string cimport memset

from .cuda cimport NO_RECORDS, CudaBackend, NativeRun
from .lanes cimport ATOMR_OK, atomr_failure, atomr_run
from .native cimport constants_of, fill, load_library, raise_failure

cimport cython

# Numbers of cusparse.h and library_types.h, and of our own routines and formats, by name.
CONSTANTS = constants_of(atomr_sparse_constants)


def load(str path=""):
    """Load cuSPARSE from `path` (empty: by its soname), once in a process; the version of the library.

    Raises `Unsupported` if it is missing or incomplete.
    """
    return load_library(&atomr_cusparse_library, path)


@cython.no_gc_clear
cdef class SparseProduct(NativeRun):
    """A prepared product of cuSPARSE.

    Parameters
    ----------
    backend : CudaBackend
    call : SparseCall

    Raises
    ------
    Unsupported
        If the library is missing, or refuses the types.
    InvalidRequest
        If the call has a member too few, one that `atomr_sparse_spec` does not have, or one out of range.
    LibraryError
        If the library does not say how much memory it needs.
    """

    cdef atomr_sparse_call native

    def __cinit__(self, CudaBackend backend not None, call):
        cdef atomr_failure failure
        cdef int code
        memset(&failure, 0, sizeof(failure))
        fill("a sparse product", atomr_sparse_fields, &self.native.spec, call.fields())
        self.backend = backend
        self.native.cuda = backend.cuda
        backend.enter()
        with nogil:
            code = atomr_sparse_prepare(&self.native, &failure)
        if code != ATOMR_OK:
            raise_failure(code, &failure, "planning a sparse product")
        self.gain = NO_RECORDS  # the handle's pointer mode changes with calls
        self.function = <atomr_run>atomr_sparse_run
        self.context = &self.native
        if self.native.buffer:
            self.workspace = <uint64_t>self.native.spec.scratch + self.native.buffer
