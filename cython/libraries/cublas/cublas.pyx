# cython: language_level=3, boundscheck=False, wraparound=False
"""Calls of cuBLAS, prepared for lanes.

Contract.  A thin owner of call.h and grouped.h.  Making a plan calls nothing of the library but the loader: a handle is
made by the first message of a lane.  Errors of the library come back as LibraryError("cublas", ...), a missing or old
library as Unsupported.  What lanes do is in C and takes no GIL.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from .cuda cimport CudaBackend, NativeRun
from .lanes cimport ATOMR_OK, atomr_failure, atomr_run
from .native cimport constants_of, fill, load_library, raise_failure

cimport cython

from ..errors import InvalidRequest

# Numbers of cublas_api.h and library_types.h, and of our own routines and types, by name.
CONSTANTS = constants_of(atomr_blas_constants)


def load(str path=""):
    """Load cuBLAS from `path` (empty: by its soname), once in a process; the version of the library.

    Raises `Unsupported` if it is missing or incomplete.
    """
    return load_library(&atomr_cublas_library, path)


@cython.no_gc_clear
cdef class Blas(NativeRun):
    """A prepared call of cuBLAS.

    Parameters
    ----------
    backend : CudaBackend
    call : BlasCall

    Raises
    ------
    InvalidRequest
        If the call has a member too few, one that `atomr_blas_spec` does not have, or one out of range.
    """

    cdef atomr_blas_call native

    def __cinit__(self, CudaBackend backend not None, call):
        cdef atomr_failure failure
        cdef int code
        memset(&failure, 0, sizeof(failure))
        fill("a call of cuBLAS", atomr_blas_fields, &self.native.spec, call.fields())
        self.native.cuda = backend.cuda
        code = atomr_blas_check(&self.native.spec, &failure)
        if code != ATOMR_OK:
            raise_failure(code, &failure, "planning a call of cuBLAS")
        self.function = <atomr_run>atomr_blas_run
        self.context = &self.native
        if self.native.spec.scratch_bytes:
            self.workspace = <uint64_t>(self.native.spec.scratch + self.native.spec.scratch_bytes)


@cython.no_gc_clear
cdef class Grouped(NativeRun):
    """A prepared call of cublasGemmGroupedBatchedEx.

    Parameters
    ----------
    backend : CudaBackend
    description : GroupDescription

    Raises
    ------
    Unsupported
        If the library is missing, or has no such function.
    InvalidRequest
        If the description, or one of its groups, has a member too few or too many, or one out of range.
    """

    cdef atomr_grouped *native

    def __cinit__(self, CudaBackend backend not None, description):
        cdef atomr_failure failure
        cdef atomr_grouped_spec spec
        cdef atomr_group *groups
        cdef int code
        memset(&failure, 0, sizeof(failure))
        fill("products in groups", atomr_grouped_fields, &spec, description.fields())
        if len(description.groups) != spec.n_groups:
            raise InvalidRequest(f"{len(description.groups)} groups instead of {spec.n_groups}")
        groups = <atomr_group *>calloc(spec.n_groups + 1, sizeof(atomr_group))
        if groups == NULL:
            raise MemoryError
        try:
            for i, group in enumerate(description.groups):
                fill("a group of products", atomr_group_fields, &groups[i], group.fields())
            code = atomr_grouped_new(backend.cuda, &spec, groups, &self.native, &failure)
        finally:
            free(groups)
        if code != ATOMR_OK:
            raise_failure(code, &failure, "planning products in groups")
        self.function = <atomr_run>atomr_grouped_run
        self.context = self.native

    def __dealloc__(self):
        atomr_grouped_delete(self.native)
