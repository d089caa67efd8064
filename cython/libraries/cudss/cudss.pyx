# cython: language_level=3, boundscheck=False, wraparound=False
"""Direct solvers by cuDSS, for lanes.

Contract.  A thin owner of direct.h.  A solver and its phases make nothing of the library's: the first message does, in its
lane's thread, and takes no GIL.  Errors of the library come back as LibraryError("cudss", ...), OutOfMemory, or an error of
a factorization; a missing library as Unsupported.
"""

from libc.string cimport memset

from .cuda cimport NO_RECORDS, CudaBackend, NativeRun
from .lanes cimport ATOMR_OK, atomr_failure, atomr_run
from .native cimport constants_of, fill, load_library, raise_failure

cimport cython

# Numbers of cuDSS's headers, and of our own phases, by name.
CONSTANTS = constants_of(atomr_direct_constants)


def load(str path=""):
    """Load cuDSS from `path` (empty: by its soname), once in a process; the version of the library.

    Raises `Unsupported` if it is missing or incomplete.
    """
    return load_library(&atomr_cudss_library, path)


@cython.no_gc_clear
cdef class DirectSolver:
    """What cuDSS keeps for a pattern; phases keep it alive.

    Parameters
    ----------
    backend : CudaBackend
    pattern : PatternCall

    Raises
    ------
    Unsupported
        If the library is missing.
    InvalidRequest
        If the pattern has a member too few, one that `atomr_pattern_spec` does not have, or one out of range.
    """

    cdef CudaBackend backend  # its context is there until the end
    cdef atomr_direct *native
    cdef object __weakref__

    def __cinit__(self, CudaBackend backend not None, pattern):
        cdef atomr_failure failure
        cdef atomr_pattern_spec spec
        memset(&failure, 0, sizeof(failure))
        fill("a direct solver", atomr_pattern_fields, &spec, pattern.fields())
        self.backend = backend
        code = atomr_direct_new(backend.cuda, &spec, &self.native, &failure)
        if code != ATOMR_OK:
            raise_failure(code, &failure, "planning a direct solver")

    def __dealloc__(self):
        if self.native != NULL:
            with nogil:
                atomr_direct_delete(self.native)


@cython.no_gc_clear
cdef class DirectPhase(NativeRun):
    """A phase of a solver: analysis, factorization or solve.

    Parameters
    ----------
    backend : CudaBackend
    solver : DirectSolver
    phase : PhaseCall

    Attributes
    ----------
    captures : bool
        Whether a CUDA graph may have it: never, since the library keeps state on the host, and a factorization that was
        captured left the old factors in place (cuDSS 1.0 on an H200).

    Raises
    ------
    InvalidRequest
        If the phase has a member too few, one that `atomr_phase_spec` does not have, or one out of range.
    """

    cdef DirectSolver solver
    cdef atomr_direct_call native
    captures = False

    def __cinit__(self, CudaBackend backend not None, DirectSolver solver not None, phase):
        cdef atomr_failure failure
        memset(&failure, 0, sizeof(failure))
        fill("a phase of a direct solver", atomr_phase_fields, &self.native.spec, phase.fields())
        self.backend = backend
        self.solver = solver
        self.native.solver = solver.native
        code = atomr_direct_check(&self.native, &failure)
        if code != ATOMR_OK:
            raise_failure(code, &failure, "planning a phase of a direct solver")
        self.gain = NO_RECORDS  # the library keeps state on the host
        self.function = <atomr_run>atomr_direct_run
        self.context = &self.native
