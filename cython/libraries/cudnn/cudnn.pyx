# cython: language_level=3, boundscheck=False, wraparound=False
"""Operation graphs of cuDNN, prepared for lanes.

Contract.  A thin owner of plan.h.  Building a plan asks cuDNN's heuristics, may compile, and takes up to a second: the
GIL is released.  Errors of the library come back as LibraryError("cudnn", ...) or OutOfMemory; a missing library, and a
graph for which there is no engine, as Unsupported.  What lanes do is in C and takes no GIL.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from .backend cimport atomr_cuda
from .cuda cimport NO_RECORDS, CudaBackend, NativeRun
from .lanes cimport ATOMR_OK, atomr_failure, atomr_run
from .native cimport constants_of, fill, load_library, raise_failure

cimport cython

# Numbers of cudnn_graph.h, by name.
CONSTANTS = constants_of(atomr_cudnn_constants)


def load(str path=""):
    """Load cuDNN from `path` (empty: by its soname), once in a process; the version of the library.

    Raises `Unsupported` if it is missing or incomplete.
    """
    return load_library(&atomr_cudnn_library, path)


cdef int build(atomr_cuda *cuda, const char *profile, description, bytes saved, int64_t engine, atomr_cudnn_plan **made,
               atomr_failure *failure) except -1:
    """Build the plan of a description, or take a saved one; returns an atomr_code."""
    cdef atomr_cudnn_saved before
    before.text, before.n, before.engine = saved, len(saved), engine
    cdef atomr_cudnn_words words
    cdef atomr_cudnn_choice choice
    cdef size_t i, n_tensors = len(description.tensors)
    cdef int64_t n_operands = description.n_operands
    cdef int code
    cdef bytes constant
    choice.banned = description.banned
    choice.workspace = description.workspace_limit
    choice.only = description.only
    words.n = len(description.words)
    cdef int64_t *numbers = <int64_t *>malloc((words.n + 1) * sizeof(int64_t))
    cdef atomr_cudnn_tensor *tensors = <atomr_cudnn_tensor *>malloc((n_tensors + 1) * sizeof(atomr_cudnn_tensor))
    try:
        if numbers == NULL or tensors == NULL:
            raise MemoryError
        for i in range(words.n):
            numbers[i] = description.words[i]
        words.words = numbers
        for i in range(n_tensors):
            uid, operand, alignment, value = description.tensors[i]
            tensors[i].uid, tensors[i].operand, tensors[i].alignment = uid, operand, alignment
            constant = bytes(value).ljust(8, b"\0")
            memcpy(&tensors[i].constant, <const char *>constant, 8)
        with nogil:
            code = atomr_cudnn_new(cuda, profile, &words, &choice, &before, tensors, n_tensors, n_operands, made,
                                   failure)
    finally:
        free(numbers)
        free(tensors)
    return code


cdef bytes text_of(const atomr_cudnn_plan *plan):
    """The text of a plan; empty if cuDNN has none."""
    cdef size_t n
    cdef char *into = NULL
    try:
        with nogil:
            n = atomr_cudnn_save(plan, NULL, 0)
            into = <char *>malloc(n + 1)
            n = atomr_cudnn_save(plan, into, n) if n != 0 and into != NULL else 0
        return into[:n] if n != 0 else b""
    finally:
        free(into)


def plan_for(str profile not None, description, bytes saved not None=b"", engine=-1):
    """Build a plan for a device that is not here, described by JSON; its engine, its workspace in bytes, and its text.

    `saved` and `engine`, and errors, as for `GraphPlan`.
    """
    cdef atomr_failure failure
    cdef atomr_cudnn_plan *made = NULL
    cdef bytes text = profile.encode()
    memset(&failure, 0, sizeof(failure))
    cdef int code = build(NULL, text, description, saved, engine, &made, &failure)
    if code != ATOMR_OK:
        raise_failure(code, &failure, "building a graph of cuDNN")
    try:
        return atomr_cudnn_engine(made), atomr_cudnn_workspace(made), text_of(made)
    finally:
        atomr_cudnn_delete(made)


@cython.no_gc_clear
cdef class GraphPlan(NativeRun):
    """A plan of an operation graph.

    Parameters
    ----------
    backend : CudaBackend
    description : GraphDescription
    saved : bytes
        What `save` returned for a plan of the same description, library and kind of device; empty: build a new plan.
    engine : int
        Of the saved plan.

    Attributes
    ----------
    engine : int
        Number of the engine that computes it, among those of such graphs.

    Raises
    ------
    Unsupported
        If the library is missing, has no engine for the graph, or refuses the saved plan; with rule
        ``cudnn.candidates``, if the heuristics name fewer engines than the description's `only` asks for.
    OutOfMemory
        If the device has no memory for it.
    LibraryError
        If the library fails.
    InvalidRequest
        If the description is malformed.
    """

    cdef atomr_cudnn_plan *native

    def __cinit__(self, CudaBackend backend not None, description, bytes saved not None=b"", engine=-1):
        cdef atomr_failure failure
        cdef int code
        memset(&failure, 0, sizeof(failure))
        backend.enter()
        code = build(backend.cuda, NULL, description, saved, engine, &self.native, &failure)
        if code != ATOMR_OK:
            backend.check_fault("building a graph of cuDNN")
            raise_failure(code, &failure, "building a graph of cuDNN")
        self.backend = backend
        self.function = <atomr_run>atomr_cudnn_run
        self.context = self.native
        self.workspace = atomr_cudnn_workspace(self.native)

    @property
    def engine(self):
        return atomr_cudnn_engine(self.native)

    def save(self):
        """The plan with its machine code as text, for `saved`; empty if cuDNN has none."""
        return text_of(self.native)

    def __dealloc__(self):
        if self.native != NULL:
            with nogil:
                atomr_cudnn_delete(self.native)


#: Operations that are calls of cuDNN, by their names in graphs.
CALLS = {
    "softmax_forward": ATOMR_CUDNN_SOFTMAX_FORWARD,
    "softmax_backward": ATOMR_CUDNN_SOFTMAX_BACKWARD,
    "lrn_forward": ATOMR_CUDNN_LRN_FORWARD,
    "lrn_backward": ATOMR_CUDNN_LRN_BACKWARD,
}


@cython.no_gc_clear
cdef class CallPlan(NativeRun):
    """A call of cuDNN that is no operation graph.

    Parameters
    ----------
    backend : CudaBackend
    kind : str
        A key of `CALLS`, whose operands are those of call.h.
    dtype : int
        Of all operands, a number of cuDNN's.
    shape : (int, int, int)
        Of all operands, which are dense; the second axis is that of the operation.
    log : bool
    size, scale, power, k
        Of norms.

    Raises
    ------
    LibraryError
        If the library refuses.
    """

    cdef atomr_cudnn_call *native

    def __cinit__(self, CudaBackend backend not None, str kind not None, int dtype, shape, bint log=False, unsigned size=1,
                  double scale=1, double power=1, double k=1):
        cdef atomr_failure failure
        cdef atomr_cudnn_call_info info
        cdef int code
        memset(&failure, 0, sizeof(failure))
        info.kind, info.dtype, info.log = CALLS[kind], dtype, log
        info.shape[0], info.shape[1], info.shape[2] = shape
        info.size, info.scale, info.power, info.k = size, scale, power, k
        backend.enter()
        code = atomr_cudnn_call_new(backend.cuda, &info, &self.native, &failure)
        if code != ATOMR_OK:
            raise_failure(code, &failure, "preparing a call of cuDNN")
        self.backend = backend
        self.function = <atomr_run>atomr_cudnn_call_run
        self.context = self.native

    def __dealloc__(self):
        atomr_cudnn_call_delete(self.native)


@cython.no_gc_clear
cdef class RecurrentPlan(NativeRun):
    """A recurrent network of cuDNN, or its gradient.

    Parameters
    ----------
    backend : CudaBackend
    call : RecurrentCall

    Attributes
    ----------
    reserve : int
        Bytes that training keeps for the gradient.

    Raises
    ------
    Unsupported
        If cuDNN refuses the network, or has its weights in another order.
    LibraryError
        If the library fails.
    InvalidRequest
        If the call has a member too few, or one that `atomr_cudnn_rnn_spec` does not have.
    """

    cdef atomr_cudnn_rnn native

    def __cinit__(self, CudaBackend backend not None, call):
        cdef atomr_failure failure
        cdef int code
        memset(&failure, 0, sizeof(failure))
        fill("a recurrent network", atomr_cudnn_rnn_fields, &self.native.spec, call.fields())
        self.backend = backend
        self.native.cuda = backend.cuda
        backend.enter()
        with nogil:
            code = atomr_cudnn_rnn_prepare(&self.native, &failure)
        if code != ATOMR_OK:
            backend.check_fault("preparing a recurrent network")
            raise_failure(code, &failure, "preparing a recurrent network")
        if not call.is_repeatable:
            self.gain = NO_RECORDS  # lengths and seeds are copied from the call's own memory
        self.function = <atomr_run>atomr_cudnn_rnn_run
        self.context = &self.native
        self.workspace = atomr_cudnn_rnn_workspace(&self.native)

    @property
    def reserve(self):
        return self.native.reserve
