# cython: language_level=3, boundscheck=False, wraparound=False
"""Ranks' connections by NCCL, and the messages that lanes of collectives run.

Contract.  Thin owners of connection.h and run.h.  Making them calls nothing of NCCL but its version; ranks connect in
their lanes.  Errors of the library come back with messages, as LibraryError("nccl", ...); a missing or old library is
Unsupported here.
"""

from libc.stdlib cimport calloc, free
from libc.string cimport memset

from .cuda cimport NO_RECORDS, CudaBackend, NativeRun
from .lanes cimport ATOMR_OK, atomr_failure, atomr_run
from .native cimport constants_of, fill, load_library, raise_failure
from .seats cimport Seat

cimport cython

from ..errors import Unsupported

# Numbers of nccl.h and of our own kinds of calls, by name.
CONSTANTS = constants_of(atomr_nccl_constants)
FLOAT8_VERSION = ATOMR_NCCL_FLOAT8  # which brings its types
WINDOWS_VERSION = ATOMR_NCCL_WINDOWS  # which brings windows
ENGINES_VERSION = ATOMR_NCCL_ENGINES  # which brings collectives by copy engines, and all-to-all


def load(str path=""):
    """Load NCCL from `path` (empty: by its soname), once in a process; the version of the library, 22809 for 2.28.9.

    Raises `Unsupported` if it is missing, incomplete, or older than 2.18.
    """
    cdef size_t version = load_library(&atomr_nccl_library, path)
    if version < ATOMR_NCCL_VERSION:
        raise Unsupported(f"NCCL {version_text(version)} is older than 2.18, which communicators need; pip install "
                          f"nvidia-nccl-cu13 (CUDA 13) or nvidia-nccl-cu12 (CUDA 12)", rule="nccl.version",
                          lifted_by=("library",))
    return version


def version_text(size_t version):
    """Return a version as people write it."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def element(int dtype, double number):
    """Return the 8 bytes that begin with a number as an element of a type of NCCL; for tests."""
    cdef char room[8]
    memset(room, 0, 8)
    atomr_nccl_element(dtype, number, room)
    return room[:8]


@cython.no_gc_clear
cdef class NcclConnection:
    """A rank's connection to the others.

    Parameters
    ----------
    backend : CudaBackend
    seat : Seat
    """

    cdef CudaBackend backend
    cdef Seat seat
    cdef atomr_nccl_connection *native

    def __cinit__(self, CudaBackend backend not None, Seat seat not None):
        cdef atomr_failure failure
        cdef int code
        memset(&failure, 0, sizeof(failure))
        self.backend = backend
        self.seat = seat
        self.native = atomr_nccl_connection_new(backend.cuda, seat.worker, seat.page, seat.rank, &code, &failure)
        if self.native == NULL:
            raise_failure(code, &failure, "making a connection of NCCL")

    def end(self):
        """Abort what is connected; waits for that, up to 5 seconds."""
        with nogil:
            atomr_nccl_connection_end(self.native)

    def __dealloc__(self):
        with nogil:
            atomr_nccl_connection_delete(self.native)


@cython.no_gc_clear
cdef class NcclMessage(NativeRun):
    """A rank's message.

    Parameters
    ----------
    backend : CudaBackend
    connection : NcclConnection
    calls : list of NcclCall
    n_operands, n_scalars : int
        Of the message.
    connects : bool
        Whether the ranks connect; without a connection the calls are left out.

    Raises
    ------
    InvalidRequest
        If a call has a member too few, one that `atomr_nccl_call` does not have, or one out of range.
    """

    captures = False  # a captured collective would have to be replayed by all ranks
    late_failures = 1
    judged_together = True  # with the other collectives of a program: by the connection

    cdef atomr_nccl_message native
    cdef NcclConnection connection

    def __cinit__(self, CudaBackend backend not None, NcclConnection connection not None, list calls not None, unsigned n_operands,
                  unsigned n_scalars, bint connects):
        cdef atomr_failure failure
        cdef unsigned i
        memset(&failure, 0, sizeof(failure))
        self.connection = connection
        self.backend = backend
        self.native.calls = <atomr_nccl_call *>calloc(len(calls) + 1, sizeof(atomr_nccl_call))
        if self.native.calls == NULL:
            raise MemoryError
        for i in range(len(calls)):
            fill("a collective", atomr_nccl_call_fields, &self.native.calls[i], calls[i].fields())
        self.native.connection = connection.native
        self.native.n_calls = len(calls)
        self.native.n_operands = n_operands
        self.native.n_scalars = n_scalars
        self.native.connects = connects
        code = atomr_nccl_check(&self.native, &failure)
        if code != ATOMR_OK:
            raise_failure(code, &failure, "planning a collective")
        self.gain = NO_RECORDS
        self.function = <atomr_run>atomr_nccl_run
        self.context = &self.native

    def __dealloc__(self):
        free(self.native.calls)
