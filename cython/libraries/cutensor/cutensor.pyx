# cython: language_level=3, boundscheck=False, wraparound=False
"""Operations of cuTENSOR, prepared for lanes.

Contract.  A thin owner of plan.h.  Making a plan asks the library's heuristic: the GIL is released.  Errors of the library
come back as LibraryError("cutensor", ...) or OutOfMemory; a missing or old library, and what it does not compute, as
Unsupported.  What lanes do is in C and takes no GIL.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from .cuda cimport NO_RECORDS, CudaBackend, NativeRun
from .lanes cimport ATOMR_OK, atomr_failure, atomr_run
from .native cimport constants_of, fill, load_library, raise_failure

cimport cython

# Numbers of cuTENSOR's headers, and of our own operations and compute types, by name.
CONSTANTS = constants_of(atomr_tensor_constants)


def load(str path=""):
    """Load cuTENSOR from `path` (empty: by its soname), once in a process; the version of the library.

    Raises `Unsupported` if it is missing or incomplete.
    """
    return load_library(&atomr_cutensor_library, path)


def cuda_version():
    """The CUDA runtime that the open library was built with: 13000 for 13.0; 0 where none is open."""
    cdef char why[256]
    cdef const atomr_cutensor_table *table = atomr_cutensor_load(NULL, why, sizeof(why))
    return 0 if table == NULL else table.cutensorGetCudartVersion()


def read_kernels(CudaBackend backend not None, str path):
    """Read the kernels of a file that `write_kernels` has made; `Unsupported` of the rule tensor.kernels: it is of another
    version or GPU, or damaged.
    """
    _move_kernels(backend, path, 0)


def write_kernels(CudaBackend backend not None, str path):
    """Write all kernels that were compiled, or read, in this process; there may be none, and no file."""
    _move_kernels(backend, path, 1)


cdef _move_kernels(CudaBackend backend, str path, int write):
    cdef atomr_failure failure
    cdef bytes name = path.encode()
    cdef const char *file = name
    cdef int code
    memset(&failure, 0, sizeof(failure))
    backend.enter()
    with nogil:
        code = atomr_tensor_kernels(backend.cuda, file, write, &failure)
    if code != ATOMR_OK:
        backend.check_fault("moving kernels of cuTENSOR")
        raise_failure(code, &failure, "moving kernels of cuTENSOR")


@cython.no_gc_clear
cdef class TensorOperation(NativeRun):
    """A prepared operation of cuTENSOR.

    Parameters
    ----------
    backend : CudaBackend
    call : TensorCall

    Raises
    ------
    Unsupported
        If the library is missing, or does not compute this, on this device, in the workspace that it may have.
    InvalidRequest
        If the call has a member too few, one that `atomr_tensor_spec` does not have, or one out of range.
    LibraryError, OutOfMemory
        If the library fails.
    """

    stays_apart = True  # it has no memory but its operands and its workspace
    cdef atomr_tensor_plan *native

    def __cinit__(self, CudaBackend backend not None, call):
        cdef atomr_failure failure
        cdef atomr_tensor_spec spec
        cdef int code
        memset(&failure, 0, sizeof(failure))
        fill("a call of cuTENSOR", atomr_tensor_fields, &spec, call.fields())
        backend.enter()
        with nogil:
            code = atomr_tensor_new(backend.cuda, &spec, &self.native, &failure)
        if code != ATOMR_OK:
            backend.check_fault("planning an operation of cuTENSOR")
            raise_failure(code, &failure, "planning an operation of cuTENSOR")
        self.backend = backend
        self.function = <atomr_run>atomr_tensor_run
        self.context = self.native
        self.workspace = atomr_tensor_workspace(self.native)

    def __dealloc__(self):
        if self.native != NULL:
            with nogil:
                atomr_tensor_delete(self.native)


@cython.no_gc_clear
cdef class TensorBlocks(NativeRun):
    """A prepared contraction of tensors of blocks.

    Parameters
    ----------
    backend : CudaBackend
    call : BlocksCall
    structures : tuple of int
        Of A, B and the result, as `blocks.h` has them.

    Attributes
    ----------
    captures : bool
        Whether a CUDA graph may have it: never, since the addresses of blocks lie on the host.

    Raises
    ------
    Unsupported, InvalidRequest, LibraryError, OutOfMemory
        As `TensorOperation`.
    """

    captures = False
    stays_apart = True  # it has no memory but its operands and its workspace
    cdef atomr_blocks_plan *native

    def __cinit__(self, CudaBackend backend not None, call, tuple structures not None):
        cdef atomr_failure failure
        cdef atomr_blocks_spec spec
        cdef int64_t count = len(structures)
        cdef int64_t i
        cdef int code
        cdef int64_t *words = <int64_t *>malloc(sizeof(int64_t) * max(count, 1))
        if words == NULL:
            raise MemoryError
        try:
            memset(&failure, 0, sizeof(failure))
            fill("a call of cuTENSOR for blocks", atomr_blocks_fields, &spec, call.fields())
            for i in range(count):
                words[i] = structures[i]
            backend.enter()
            with nogil:
                code = atomr_blocks_new(backend.cuda, &spec, words, count, &self.native, &failure)
        finally:
            free(words)
        if code != ATOMR_OK:
            backend.check_fault("planning a contraction of blocks")
            raise_failure(code, &failure, "planning a contraction of blocks")
        self.gain = NO_RECORDS  # the addresses of blocks are copied from the call's own memory
        self.backend = backend
        self.function = <atomr_run>atomr_blocks_run
        self.context = self.native
        self.workspace = atomr_blocks_workspace(self.native)

    def __dealloc__(self):
        if self.native != NULL:
            with nogil:
                atomr_blocks_delete(self.native)
