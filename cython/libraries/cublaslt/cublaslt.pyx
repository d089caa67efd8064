# cython: language_level=3, boundscheck=False, wraparound=False
"""Matmuls of cuBLASLt, prepared for lanes.

Contract.  A thin owner of plan.h and tune.h.  Making a plan asks the library's heuristic, which may take milliseconds:
the GIL is released.  Errors of the library come back as LibraryError("cublaslt", ...), a missing or old library as
Unsupported.  What lanes do is in C and takes no GIL.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from .backend cimport atomr_device_handle
from .cuda cimport CudaBackend, NativeRun
from .lanes cimport ATOMR_OK, atomr_failure, atomr_run
from .native cimport constants_of, fill, load_library, raise_failure

cimport cython

# Numbers of cublasLt.h, and of those headers of cuBLAS that it includes, by name.
CONSTANTS = constants_of(atomr_cublaslt_constants)


def load(str path=""):
    """Load cuBLASLt from `path` (empty: by its soname), once in a process; the version of the library.

    Raises `Unsupported` if it is missing or incomplete.
    """
    return load_library(&atomr_cublaslt_library, path)


@cython.no_gc_clear
cdef class Matmul(NativeRun):
    """A prepared matmul of cuBLASLt.

    Parameters
    ----------
    backend : CudaBackend
    description : MatmulDescription

    Raises
    ------
    Unsupported
        If the library is missing, or has no algorithm for it.
    InvalidRequest
        If the description has a member too few, or one that `atomr_matmul_spec` does not have.
    """

    stays_apart = True  # it has no memory but its operands and its workspace
    cdef atomr_matmul *native

    def __cinit__(self, CudaBackend backend not None, description):
        cdef atomr_failure failure
        cdef atomr_matmul_spec spec
        cdef void *owner = NULL
        cdef int code
        memset(&failure, 0, sizeof(failure))
        fill("a matmul", atomr_matmul_fields, &spec, description.fields())
        with nogil:
            code = atomr_device_handle(backend.cuda, &atomr_blas_lt_kind, &owner, &failure)
            if code == ATOMR_OK:
                code = atomr_matmul_new(<atomr_blas_lt *>owner, &spec, &self.native, &failure)
        if code != ATOMR_OK:
            backend.check_fault("planning a matmul")
            raise_failure(code, &failure, "planning a matmul")
        self.function = <atomr_run>atomr_matmul_run
        self.context = self.native
        self.workspace = atomr_matmul_workspace(self.native)

    def candidates(self, uint64_t limit, int most):
        """Algorithms that need at most `limit` bytes: (algorithm, workspace in bytes, what it is)."""
        cdef cublasLtMatmulHeuristicResult_t *found
        cdef int[5] config
        cdef int n
        self.backend.enter()
        found = <cublasLtMatmulHeuristicResult_t *>calloc(most, sizeof(cublasLtMatmulHeuristicResult_t))
        if found == NULL:
            raise MemoryError
        try:
            with nogil:
                n = atomr_matmul_candidates(self.native, limit, found, most)
            result = []
            for i in range(n):
                atomr_matmul_config(self.native, &found[i].algo, config)
                names = ("id", "tile", "split_k", "stages", "cluster")
                result.append((tuple([found[i].algo.data[j] for j in range(8)]), found[i].workspaceSize,
                               dict(zip(names, [config[j] for j in range(5)]))))
            return result
        finally:
            free(found)

    def time(self, tuple algo, addresses, unsigned sets, unsigned launches, uint64_t workspace, uint64_t nbytes):
        """Microseconds of one launch with an algorithm, over `launches` of them, back to back on a stream of its own.

        Several are captured and launched as one CUDA graph, so that the time is the device's, and not the host's.

        `addresses` are those of all operands, set after set, which the launches take in turn.  Waits for the device.
        """
        cdef atomr_failure failure
        cdef cublasLtMatmulAlgo_t chosen
        cdef atomr_timing timing
        cdef float microseconds = 0
        cdef int code
        cdef uint64_t *at = <uint64_t *>calloc(len(addresses) + 1, sizeof(uint64_t))
        if at == NULL:
            raise MemoryError
        memset(&failure, 0, sizeof(failure))
        try:
            for i, address in enumerate(addresses):
                at[i] = address
            for i in range(8):
                chosen.data[i] = algo[i]
            timing.addresses = at
            timing.sets = sets
            timing.launches = launches
            timing.workspace = workspace
            timing.workspace_bytes = nbytes
            self.backend.enter()
            with nogil:
                code = atomr_matmul_time(self.native, &chosen, &timing, &microseconds, &failure)
            if code != ATOMR_OK:
                self.backend.check_fault("measuring a matmul")
                raise_failure(code, &failure, "measuring a matmul")
            return microseconds
        finally:
            free(at)

    def __dealloc__(self):
        if self.native != NULL:
            with nogil:
                atomr_matmul_delete(self.native)
