# cython: language_level=3, boundscheck=False, wraparound=False
"""Generators of cuRAND, prepared for lanes, and those of the host.

Contract.  A thin owner of generator.h.  Making a generator may allocate and wait in the library, and so may a draw on the
host: the GIL is released.  Errors of the library come back as LibraryError("curand", ...), OutOfMemory or Unsupported, a
missing or old library as Unsupported.  What lanes do is in C and takes no GIL.
"""

from libc.stdint cimport uint64_t
from libc.string cimport memcpy, memset

from .cuda cimport NO_RECORDS, CudaBackend, NativeRun
from .lanes cimport ATOMR_OK, atomr_failure, atomr_run
from .native cimport constants_of, fill, load_library, raise_failure

cimport cython

# Numbers of curand.h, and of our own routines, by name.
CONSTANTS = constants_of(atomr_draw_constants)


def load(str path=""):
    """Load cuRAND from `path` (empty: by its soname), once in a process; the version of the library.

    Raises `Unsupported` if it is missing or incomplete.
    """
    return load_library(&atomr_curand_library, path)


@cython.no_gc_clear
cdef class Draw(NativeRun):
    """Random numbers of a generator of a CUDA device.

    Parameters
    ----------
    backend : CudaBackend
    description : DrawDescription

    Attributes
    ----------
    captures : bool
        Whether a CUDA graph may have it: never, since the generator's state is the host's.

    Raises
    ------
    Unsupported
        If the library is missing, or refuses the generator.
    OutOfMemory
        If there is no memory for its states.
    InvalidRequest
        If the description has a member too few, one that `atomr_draw_spec` does not have, or one out of range.
    """

    cdef atomr_generator *native
    captures = False

    def __cinit__(self, CudaBackend backend not None, description):
        cdef atomr_failure failure
        cdef atomr_draw_spec spec
        cdef int code
        memset(&failure, 0, sizeof(failure))
        fill("random numbers", atomr_draw_fields, &spec, description.fields())
        self.backend = backend
        backend.enter()
        with nogil:
            code = atomr_generator_new(backend.cuda, &spec, &self.native, &failure)
        if code != ATOMR_OK:
            backend.check_fault("making a generator")
            raise_failure(code, &failure, "making a generator")
        self.gain = NO_RECORDS  # its state changes with each call
        self.function = <atomr_run>atomr_generator_run
        self.context = self.native

    def __dealloc__(self):
        if self.native != NULL:
            with nogil:
                atomr_generator_delete(self.native)


cdef class HostGenerator:
    """A generator of cuRAND on the host, which one thread draws from at a time.

    Parameters
    ----------
    description : DrawDescription
        Whose kind, ordering and dimensions are those of all draws.

    Raises
    ------
    Unsupported
        If the library is missing, or refuses the generator.
    """

    cdef atomr_generator *native

    def __cinit__(self, description):
        cdef atomr_failure failure
        cdef atomr_draw_spec spec
        cdef int code
        memset(&failure, 0, sizeof(failure))
        fill("random numbers", atomr_draw_fields, &spec, description.fields())
        with nogil:
            code = atomr_generator_new(NULL, &spec, &self.native, &failure)
        if code != ATOMR_OK:
            raise_failure(code, &failure, "making a generator")

    def draw(self, description, uint64_t address, tuple parameters, uint64_t seed, uint64_t offset):
        """Fill the contiguous array at `address`.

        Raises `LibraryError`, or `Unsupported` for what the library refuses.
        """
        cdef atomr_failure failure
        cdef atomr_draw_spec spec
        cdef uint64_t[4] words
        cdef double value
        cdef unsigned n = 0
        cdef int code
        memset(&failure, 0, sizeof(failure))
        fill("random numbers", atomr_draw_fields, &spec, description.fields())
        if len(parameters) != spec.n_parameters or len(parameters) > 2:
            raise ValueError(f"{len(parameters)} parameters instead of {spec.n_parameters}")
        for parameter in parameters:
            value = parameter
            memcpy(&words[n], &value, sizeof(value))
            n += 1
        words[n] = seed
        words[n + 1] = offset
        with nogil:
            code = atomr_generator_draw(self.native, &spec, <void *>address, words, &failure)
        if code != ATOMR_OK:
            raise_failure(code, &failure, "drawing random numbers")

    def __dealloc__(self):
        if self.native != NULL:
            with nogil:
                atomr_generator_delete(self.native)
