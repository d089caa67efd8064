# cython: language_level=3, boundscheck=False, wraparound=False
"""The program's own use of a GPU, for arrays of other libraries.

Contract.  A thin owner of cuda_parent.h, used only when somebody exports device memory to, or imports it from, other
code of this process.  The thread's current context is as before when a call returns.  Whatever reaches the driver
releases the GIL; `synchronize` and `copy_out` wait for the GPU.  Errors of the driver come back as
LibraryError("cuda", ...), a missing driver or GPU as Unsupported.
"""

from libc.stdint cimport uint64_t, uintptr_t

from .driver cimport CUDA_SUCCESS, CUdeviceptr, CUresult, atomr_driver

from ..errors import LibraryError, Unsupported


cdef extern from "cuda/cuda_parent.h" nogil:
    ctypedef struct atomr_parent:
        pass
    ctypedef struct atomr_pointer:
        int ordinal
        int managed
        int shareable
    int atomr_parent_find(const char *uuid, char *why, size_t size)
    atomr_parent *atomr_parent_open(int ordinal, char *why, size_t size)
    void atomr_parent_close(atomr_parent *)
    const atomr_driver *atomr_parent_driver(const atomr_parent *)
    CUresult atomr_parent_enter(atomr_parent *)
    CUresult atomr_parent_leave(atomr_parent *)
    void *atomr_parent_stream(const atomr_parent *)
    CUresult atomr_parent_map(atomr_parent *, int fd, uint64_t nbytes, CUdeviceptr *base)
    CUresult atomr_parent_unmap(atomr_parent *, CUdeviceptr base, uint64_t nbytes)
    CUresult atomr_parent_synchronize(atomr_parent *, int whole, uint64_t stream)
    CUresult atomr_parent_copy_out(atomr_parent *, void *to, CUdeviceptr source, uint64_t nbytes)
    CUresult atomr_parent_locate(CUdeviceptr address, atomr_pointer *, char *why, size_t size)
    CUresult atomr_parent_range(atomr_parent *, CUdeviceptr address, CUdeviceptr *base, uint64_t *nbytes)
    CUresult atomr_parent_share(atomr_parent *, CUdeviceptr base, char *handle)


def find(bytes uuid not None):
    """The number that this process has for the GPU with a UUID of 16 bytes.  Makes no context.

    Raises
    ------
    Unsupported
        If this process does not see it.
    """
    cdef char why[2048]
    cdef const char *wanted = uuid
    cdef int ordinal = -1
    if len(uuid) == 16:
        with nogil:
            ordinal = atomr_parent_find(wanted, why, sizeof(why))
        if ordinal >= 0:
            return ordinal
        raise Unsupported((<bytes>why).decode(errors="replace"))
    raise Unsupported(f"a UUID of {len(uuid)} bytes names no GPU; it has 16")


def locate(uint64_t address):
    """(number of the GPU, managed, shareable) of an address of CUDA memory.

    `managed` is memory that moves between GPUs and host; `shareable` is what `ParentContext.share` takes.

    Raises
    ------
    Unsupported
        If CUDA does not know the address.
    """
    cdef char why[2048]
    cdef atomr_pointer found
    cdef CUresult r
    with nogil:
        r = atomr_parent_locate(address, &found, why, sizeof(why))
    if r != CUDA_SUCCESS:
        raise Unsupported(f"address {address:#x} is no memory of a GPU of this process: "
                          f"{(<bytes>why).decode(errors='replace')}")
    return found.ordinal, bool(found.managed), bool(found.shareable)


cdef class ParentContext:
    """The primary context of a GPU in this process, which other libraries use too.

    Subclasses add weak references, since those that Cython adds live longer than the object.

    Parameters
    ----------
    ordinal : int
        The GPU, as this process numbers them.

    Raises
    ------
    Unsupported
        If it cannot be used here.
    """

    cdef atomr_parent *native
    cdef readonly int ordinal

    def __cinit__(self, int ordinal):
        cdef char why[2048]
        with nogil:
            self.native = atomr_parent_open(ordinal, why, sizeof(why))
        if self.native == NULL:
            raise Unsupported((<bytes>why).decode(errors="replace"))
        self.ordinal = ordinal

    def __dealloc__(self):
        if self.native != NULL:
            with nogil:
                atomr_parent_close(self.native)

    cdef int check(self, CUresult result, str what) except -1:
        cdef const char *name = NULL
        cdef const char *text = NULL
        if result == CUDA_SUCCESS:
            return 0
        atomr_parent_driver(self.native).cuGetErrorName(result, &name)
        atomr_parent_driver(self.native).cuGetErrorString(result, &text)
        raise LibraryError("cuda", result, name.decode() if name != NULL else "unknown error", what,
                           text.decode() if text != NULL else "")

    @property
    def stream(self):
        """Handle of a stream of ours, for producers to order their work before."""
        return <uintptr_t>atomr_parent_stream(self.native)

    def __enter__(self):
        """Make the context current, for libraries that look at it to choose their device."""
        cdef CUresult r
        with nogil:
            r = atomr_parent_enter(self.native)
        self.check(r, "entering the context")
        return self

    def __exit__(self, *_):
        with nogil:
            atomr_parent_leave(self.native)

    def map(self, int fd, uint64_t nbytes):
        """Map a segment by its descriptor, for reading and writing; its address."""
        cdef CUdeviceptr base = 0
        cdef CUresult r
        with nogil:
            r = atomr_parent_map(self.native, fd, nbytes, &base)
        self.check(r, "mapping a segment in this process")
        return base

    def unmap(self, uint64_t base, uint64_t nbytes):
        """Undo `map`."""
        cdef CUresult r
        with nogil:
            r = atomr_parent_unmap(self.native, base, nbytes)
        self.check(r, "unmapping a segment in this process")

    def synchronize(self, stream=None):
        """Wait for a stream (a handle, or 1 and 2 for the default ones), or for all work of this process on the GPU."""
        cdef CUresult r
        cdef int whole = stream is None
        cdef uint64_t which = 0 if whole else stream
        with nogil:
            r = atomr_parent_synchronize(self.native, whole, which)
        self.check(r, "waiting for other work of this process")

    def copy_out(self, uint64_t target, uint64_t source, uint64_t nbytes):
        """Copy from the GPU to host memory, and wait."""
        cdef CUresult r
        with nogil:
            r = atomr_parent_copy_out(self.native, <void *><uintptr_t>target, source, nbytes)
        self.check(r, "copying to the host")

    def range(self, uint64_t address):
        """(first address, bytes) of the allocation around an address."""
        cdef CUdeviceptr base = 0
        cdef uint64_t nbytes = 0
        cdef CUresult r
        with nogil:
            r = atomr_parent_range(self.native, address, &base, &nbytes)
        self.check(r, "finding an allocation")
        return base, nbytes

    def share(self, uint64_t base):
        """A handle of 64 bytes by which another process can map the allocation that begins there."""
        cdef char handle[64]
        cdef CUresult r
        with nogil:
            r = atomr_parent_share(self.native, base, handle)
        self.check(r, "exporting an allocation")
        return <bytes>handle[:64]
