# cython: language_level=3, boundscheck=False, wraparound=False
"""Copies between devices, as a GPU's rank takes part in them.

Contract.  A thin owner of device_copy.h.  Making one calls nothing of the driver; `reaches` asks it, without the GIL.
"""

from libc.stdint cimport uint64_t

from .backend cimport atomr_cuda
from .cuda cimport NO_RECORDS, CudaBackend, NativeRun
from .lanes cimport atomr_run
from .seats cimport Seat, atomr_page, atomr_worker_stopping

cimport cython

from ..errors import InvalidRequest

cdef extern from "cuda/device_copy.h" nogil:
    ctypedef struct atomr_between:
        atomr_cuda *cuda
        atomr_page *page
        const int *stopping
        unsigned rank
        unsigned source
        unsigned target
        uint64_t nbytes
        int direct
    int atomr_between_run(void *, const void *, void *) noexcept


def reaches(CudaBackend backend not None, bytes uuid not None):
    """Whether a GPU reaches the memory of the one with this UUID, directly; None: the driver does not know that one."""
    cdef int found = backend.reach(uuid)
    return None if found < 0 else found > 0


@cython.no_gc_clear
cdef class Between(NativeRun):
    """A rank's part of a copy between two devices.

    Parameters
    ----------
    backend : CudaBackend
    seat : Seat
    source, target : int
        Ranks.
    nbytes : int
    direct : bool
        Whether the target's first operand is the source's memory.
    """

    captures = False  # the lane waits for the other rank

    cdef atomr_between native
    cdef Seat seat

    def __cinit__(self, CudaBackend backend not None, Seat seat not None, unsigned source, unsigned target,
                  uint64_t nbytes, bint direct):
        if source >= seat.size or target >= seat.size or source == target or seat.rank not in (source, target):
            raise InvalidRequest(f"a copy from rank {source} to {target} of {seat.size}, on rank {seat.rank}")
        self.seat = seat
        self.backend = backend
        self.native.cuda = backend.cuda
        self.native.page = seat.page
        self.native.stopping = atomr_worker_stopping(seat.worker)
        self.native.rank = seat.rank
        self.native.source = source
        self.native.target = target
        self.native.nbytes = nbytes
        self.native.direct = direct
        self.gain = NO_RECORDS
        self.function = <atomr_run>atomr_between_run
        self.context = &self.native
