# cython: language_level=3, boundscheck=False, wraparound=False
"""Calls of cuSPARSELt, prepared for lanes.

Contract.  A thin owner of plan.h.  Making a plan asks the library's heuristic: the GIL is released.  Errors of the library
come back as LibraryError("cusparselt", ...) or OutOfMemory; a missing or old library, and what it does not compute, as
Unsupported.  What lanes do is in C and takes no GIL.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from .cuda cimport NO_RECORDS, CudaBackend, NativeRun
from .lanes cimport ATOMR_OK, atomr_failure, atomr_run
from .native cimport constants_of, fill, load_library, raise_failure

cimport cython

# Numbers of cuSPARSELt's headers, and of our own routines, by name.
CONSTANTS = constants_of(atomr_structured_constants)


def load(str path=""):
    """Load cuSPARSELt from `path` (empty: by its soname), once in a process; the version of the library.

    Raises `Unsupported` if it is missing or incomplete.
    """
    return load_library(&atomr_cusparselt_library, path)


@cython.no_gc_clear
cdef class StructuredProduct(NativeRun):
    """A prepared product with a compressed matrix, or a prepared compression.

    Parameters
    ----------
    backend : CudaBackend
    call : StructuredCall

    Raises
    ------
    Unsupported
        If the library is missing, or does not compute this, on this device, in the workspace that it may have.
    InvalidRequest
        If the call has a member too few, one that `atomr_structured_spec` does not have, or one out of range.
    LibraryError, OutOfMemory
        If the library fails.
    """

    cdef atomr_structured *native

    def __cinit__(self, CudaBackend backend not None, call):
        cdef atomr_failure failure
        cdef atomr_structured_spec spec
        cdef int code
        memset(&failure, 0, sizeof(failure))
        fill("a call of cuSPARSELt", atomr_structured_fields, &spec, call.fields())
        backend.enter()
        with nogil:
            code = atomr_structured_new(backend.cuda, &spec, &self.native, &failure)
        if code != ATOMR_OK:
            backend.check_fault("planning a call of cuSPARSELt")
            raise_failure(code, &failure, "planning a call of cuSPARSELt")
        self.backend = backend
        self.gain = NO_RECORDS  # another bias changes the library's descriptor
        self.function = <atomr_run>atomr_structured_run
        self.context = self.native
        self.workspace = atomr_structured_workspace(self.native)

    def __dealloc__(self):
        if self.native != NULL:
            with nogil:
                atomr_structured_delete(self.native)

    @property
    def configurations(self):
        """How many algorithms the library has for this product: numbers from 0 on, of this version of the library."""
        return atomr_structured_configurations(self.native)

    def time(self, addresses, unsigned sets, unsigned launches, uint64_t workspace):
        """Microseconds of one launch, over `launches` of them, back to back on a stream of its own.

        `addresses` are those of all operands, set after set, which the launches take in turn.  Waits for the device.
        """
        cdef atomr_failure failure
        cdef atomr_structured_timing timing
        cdef float microseconds = 0
        cdef int code
        cdef uint64_t *at = <uint64_t *>calloc(len(addresses) + 1, sizeof(uint64_t))
        if at == NULL:
            raise MemoryError
        memset(&failure, 0, sizeof(failure))
        try:
            for i, address in enumerate(addresses):
                at[i] = address
            timing.addresses = at
            timing.sets = sets
            timing.launches = launches
            timing.workspace = workspace
            self.backend.enter()
            with nogil:
                code = atomr_structured_time(self.native, &timing, &microseconds, &failure)
            if code != ATOMR_OK:
                self.backend.check_fault("measuring a product of a structured matrix")
                raise_failure(code, &failure, "measuring a product of a structured matrix")
            return microseconds
        finally:
            free(at)
