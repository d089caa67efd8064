# Runs without kernels of their own, and launch records around any run: a part of cuda.pyx, whose CudaBackend makes them.

@cython.no_gc_clear
cdef class NativeRun:
    def __cinit__(self, CudaBackend backend not None, *_):
        self.backend = backend
        self.gain = RECORDS_GAIN  # calls of libraries, unless a kind says otherwise


@cython.no_gc_clear
cdef class Noop(NativeRun):
    """Nothing, in order."""

    def __cinit__(self, CudaBackend backend not None):
        self.function = <atomr_run>atomr_run_noop
        self.gain = NO_RECORDS


@cython.no_gc_clear
cdef class Copy(NativeRun):
    """A copy from operand 0 to operand 1; scalar: bytes."""

    def __cinit__(self, CudaBackend backend not None):
        self.function = <atomr_run>atomr_cuda_run_copy
        self.context = backend.cuda
        self.gain = NO_RECORDS


@cython.no_gc_clear
cdef class Transfer(NativeRun):
    """The same from or to memory of the host, where somebody waits for the end of each long piece."""

    def __cinit__(self, CudaBackend backend not None):
        self.function = <atomr_run>atomr_cuda_run_transfer
        self.context = backend.cuda
        self.gain = NO_RECORDS


@cython.no_gc_clear
cdef class Recorded:
    """A plan with its launch records; the context of its native entry.

    Parameters
    ----------
    run : NativeRun
    n_operands, n_scalars : int
        Of its messages.
    """

    def __cinit__(self, NativeRun run not None, unsigned n_operands, unsigned n_scalars):
        self.run = run
        self.native = atomr_recorded_new(run.backend.records, run.function, run.context, n_operands, n_scalars)
        if self.native == NULL:
            raise MemoryError

    def __dealloc__(self):
        with nogil:
            atomr_recorded_end(self.native)
