# cython: language_level=3, boundscheck=False, wraparound=False
"""Calls of cuSOLVER and of cuBLAS's batched LU, prepared for lanes, and what their info numbers mean.

Contract.  A thin owner of call.h.  Making a plan of one factorisation asks the library for the size of its memory, for
which the device has a handle of its own; a lane's handle is made by its first message.  Errors of the library come back
as LibraryError("cusolver", ...), a missing or old library as Unsupported.  What lanes do is in C and takes no GIL.
"""

from libc.string cimport memset, strncpy

from .cuda cimport NO_RECORDS, CudaBackend, NativeRun
from .lanes cimport ATOMR_OK, atomr_failure, atomr_run
from .native cimport constants_of, fill, load_library, raise_failure

cimport cython

# Numbers of the libraries' headers, and of our own routines, types and verdicts, by name.
CONSTANTS = constants_of(atomr_solver_constants) | constants_of(atomr_decomposition_constants)


def load(str path=""):
    """Load cuSOLVER from `path` (empty: by its soname), once in a process; the version of the library.

    Raises `Unsupported` if it is missing or incomplete.
    """
    return load_library(&atomr_cusolver_library, path)


@cython.no_gc_clear
cdef class Solver(NativeRun):
    """A prepared call of a solver.

    Parameters
    ----------
    backend : CudaBackend
    call : SolverCall

    Attributes
    ----------
    scratch_bytes : int
        Bytes of device memory that the operand `scratch` must have.

    Raises
    ------
    InvalidRequest
        If the call has a member too few, one that `atomr_solver_spec` does not have, or one out of range.
    LibraryError
        If the library does not say how much memory it needs.
    """

    cdef atomr_solver_call native

    def __cinit__(self, CudaBackend backend not None, call):
        cdef atomr_failure failure
        cdef int code
        memset(&failure, 0, sizeof(failure))
        fill("a call of cuSOLVER", atomr_solver_fields, &self.native.spec, call.fields())
        self.backend = backend
        self.native.cuda = backend.cuda
        with nogil:
            code = atomr_solver_prepare(&self.native, &failure)
        if code != ATOMR_OK:
            raise_failure(code, &failure, "planning a call of cuSOLVER")
        self.gain = NO_RECORDS  # cuSOLVER does part of some routines on the host
        self.function = <atomr_run>atomr_solver_run
        self.context = &self.native

    @property
    def scratch_bytes(self):
        return self.native.scratch_bytes

    def __dealloc__(self):
        atomr_solver_release(&self.native)


@cython.no_gc_clear
cdef class Decomposition(NativeRun):
    """A prepared decomposition.

    Parameters
    ----------
    backend : CudaBackend
    call : DecompositionCall

    Attributes
    ----------
    scratch_bytes : int
        Bytes of device memory that the operand `scratch` must have.

    Raises
    ------
    InvalidRequest
        If the call has a member too few, one that `atomr_decomposition_spec` does not have, or one out of range.
    LibraryError
        If the library does not say how much memory it needs.
    """

    cdef atomr_decomposition native

    def __cinit__(self, CudaBackend backend not None, call):
        cdef atomr_failure failure
        cdef int code
        memset(&failure, 0, sizeof(failure))
        fill("a decomposition of cuSOLVER", atomr_decomposition_fields, &self.native.spec, call.fields())
        self.backend = backend
        self.native.cuda = backend.cuda
        with nogil:
            code = atomr_decomposition_prepare(&self.native, &failure)
        if code != ATOMR_OK:
            raise_failure(code, &failure, "planning a decomposition of cuSOLVER")
        self.gain = NO_RECORDS  # as a Solver's
        self.function = <atomr_run>atomr_decomposition_run
        self.context = &self.native

    @property
    def scratch_bytes(self):
        return self.native.scratch_bytes

    def __dealloc__(self):
        atomr_decomposition_release(&self.native)


@cython.no_gc_clear
cdef class Refinement(NativeRun):
    """A prepared solve by factors of less precision.

    Parameters
    ----------
    backend : CudaBackend
    call : RefinementCall

    Attributes
    ----------
    scratch_bytes : int
        Bytes of device memory that the operand `scratch` must have.

    Raises
    ------
    InvalidRequest
        If the call has a member too few, one that `atomr_refinement_spec` does not have, or one out of range.
    LibraryError
        If the library does not say how much memory it needs.
    """

    cdef atomr_refinement native

    def __cinit__(self, CudaBackend backend not None, call):
        cdef atomr_failure failure
        cdef int code
        memset(&failure, 0, sizeof(failure))
        fill("a refined solve of cuSOLVER", atomr_refinement_fields, &self.native.spec, call.fields())
        self.backend = backend
        self.native.cuda = backend.cuda
        with nogil:
            code = atomr_refinement_prepare(&self.native, &failure)
        if code != ATOMR_OK:
            raise_failure(code, &failure, "planning a refined solve of cuSOLVER")
        self.gain = NO_RECORDS  # it waits for the device
        self.function = <atomr_run>atomr_refinement_run
        self.context = &self.native

    @property
    def scratch_bytes(self):
        return self.native.scratch_bytes

    def __dealloc__(self):
        atomr_refinement_release(&self.native)


@cython.no_gc_clear
cdef class Verdict(NativeRun):
    """The last step of a factorisation: the message fails late if an info number says so.

    Parameters
    ----------
    backend : CudaBackend
    verdict : SolverVerdict
        Its operation is the operation's name.
    """

    cdef atomr_verdict native

    def __cinit__(self, CudaBackend backend not None, verdict):
        cdef atomr_failure failure
        cdef int code
        cdef bytes name = verdict.operation.encode()
        memset(&failure, 0, sizeof(failure))
        fill("a verdict", atomr_verdict_fields, &self.native.spec, verdict.fields())
        strncpy(self.native.operation, name, sizeof(self.native.operation) - 1)
        self.native.cuda = backend.cuda
        code = atomr_verdict_check(&self.native.spec, &failure)
        if code != ATOMR_OK:
            raise_failure(code, &failure, "planning a verdict")
        self.gain = NO_RECORDS
        self.function = <atomr_run>atomr_verdict_run
        self.context = &self.native

    @property
    def late_failures(self):
        """Info words by which the message fails after its work is done."""
        return 1
