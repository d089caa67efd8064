# cython: language_level=3
"""A CUDA device and its native runs, for the modules of libraries: see cuda.pyx."""

from libc.stdint cimport uint32_t, uint64_t

from .backend cimport atomr_cuda, atomr_recorded, atomr_records
from .driver cimport CUresult
from .lanes cimport Backend, Steps, atomr_backend, atomr_run
from .runs cimport atomr_graph, atomr_kernels, atomr_launch, atomr_sequence


cdef enum:
    NO_RECORDS        # its work waits, fails late, or differs with each launch
    RECORDS_POSSIBLE  # a launch from a record costs as much
    RECORDS_GAIN      # a launch from a record costs less


cdef class CudaBackend(Backend):
    cdef atomr_cuda *cuda
    cdef atomr_records *records
    cdef int least_gain
    cdef atomr_backend made
    cdef readonly int ordinal
    cdef dict marks
    cdef dict own  # handles of memory, by its address
    cdef dict scratch
    cdef list blocks
    cdef uint64_t zero
    cdef int check_fault(self, str what) except -1
    cdef int refuse_device(self, CUresult result, str text) except -1
    cdef int check(self, CUresult result, str what) except -1
    cdef int reach(self, bytes uuid) except -2
    cdef uint32_t *mark(self, str name) except NULL
    cdef NativeRun prepared(self, object run)


cdef class NativeRun:
    """What a lane runs: a C function and its context, which live as long as this object."""
    cdef CudaBackend backend  # what its end needs is alive until then
    cdef atomr_run function
    cdef void *context
    cdef readonly uint64_t workspace
    cdef readonly int gain


cdef class Noop(NativeRun):
    pass


cdef class Copy(NativeRun):
    pass


cdef class Transfer(NativeRun):
    pass


cdef class Kernels(NativeRun):
    cdef atomr_kernels native
    cdef list sites
    cdef bytes lacking
    cdef list structs
    cdef int check_residence(self, atomr_launch *launch, str name) except -1


cdef class Sequence(NativeRun):
    cdef atomr_sequence native
    cdef list kept


cdef class Graph(NativeRun):
    cdef atomr_graph native
    cdef Steps steps
    cdef object conditions


cdef class Recorded:
    cdef NativeRun run
    cdef atomr_recorded *native
