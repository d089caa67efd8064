# cython: language_level=3, boundscheck=False, wraparound=False
"""A CUDA device for the lanes of a worker.

Contract.  A thin owner of cuda_backend.h and cuda_runs.h.  Opening a device, making and mapping memory and loading
kernels may take milliseconds: the GIL is released.  Errors of the driver come back as LibraryError("cuda", ...), a
missing or old driver as Unsupported.  What lanes do is in C and takes no GIL.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from .backend cimport (
    ATOMR_HANDLES, atomr_cuda_backend, atomr_cuda_beat, atomr_cuda_close, atomr_cuda_close_own, atomr_cuda_close_shared, atomr_cuda_control,
    atomr_cuda_copy_now, atomr_cuda_create, atomr_cuda_describe, atomr_cuda_driver, atomr_cuda_enter, atomr_cuda_error,
    atomr_cuda_examine, atomr_cuda_facts, atomr_cuda_find, atomr_cuda_handles, atomr_cuda_is_sticky, atomr_cuda_map, atomr_cuda_memory,
    atomr_cuda_open, atomr_cuda_open_lane, atomr_cuda_open_own, atomr_cuda_open_shared, atomr_cuda_pin, atomr_cuda_reaches,
    atomr_cuda_register, atomr_cuda_stream, atomr_cuda_unmap, atomr_cuda_unpin, atomr_cuda_unregister,
    atomr_handle_count, atomr_record_counts, atomr_recorded_end, atomr_recorded_new, atomr_recorded_run,
    atomr_records_count, atomr_records_end, atomr_records_forget, atomr_records_new)
from .driver cimport (
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
    CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_NO_DEVICE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdeviceptr, CUgraphNode, CUstream,
    atomr_driver, atomr_driver_load)
from .host_copy cimport ATOMR_COPY_TOUCH, atomr_copy, atomr_copy_finish, atomr_copy_start
from .lanes cimport ATOMR_OK, Steps, atomr_call, atomr_failure, atomr_fetch, atomr_run_noop, atomr_worker_fault
from .native cimport raise_failure
from .runs cimport (
    ATOMR_ALWAYS, ATOMR_IF_ZERO, ATOMR_UNLESS_ZERO,
    ATOMR_ARG_BYTES, ATOMR_ARG_CONSTANT, ATOMR_ARG_FILLED, ATOMR_ARG_FLOAT16, ATOMR_ARG_FLOAT32, ATOMR_ARG_NARROW,
    ATOMR_ARG_OPERAND,
    ATOMR_ARG_SCALARS, ATOMR_ARG_TENSOR_MAP, ATOMR_ARG_WORD, ATOMR_ARG_WORKSPACE, ATOMR_INFO_IN_WORKSPACE,
    ATOMR_MAX_ARGUMENTS, ATOMR_MAX_STRUCT, ATOMR_MAX_TENSOR_MAPS, ATOMR_FROM_INFO, ATOMR_FROM_LANE,
    ATOMR_FROM_MESSAGE, ATOMR_FROM_PLAN, ATOMR_FROM_WORKSPACE, ATOMR_GRAPH_CAPTURED, ATOMR_GRAPH_LAUNCHED, ATOMR_GRAPH_MADE, ATOMR_GRAPH_PATCHED,
    ATOMR_GRAPH_STEPWISE,
    ATOMR_NO_INFO, ATOMR_STEP_OPERANDS, ATOMR_STEP_SCALARS, atomr_argument, atomr_cuda_launch,
    atomr_cuda_measure, atomr_measured,
    atomr_cuda_run_copy, atomr_cuda_run_kernels, atomr_cuda_run_transfer, atomr_graph_end, atomr_graph_fetch,
    atomr_graph_run,
    atomr_origin, atomr_sequence_run,
    atomr_filled_place, atomr_filled_struct, atomr_source, atomr_step, atomr_tensor_map, atomr_when)

cimport cython

import os
from array import array
from uuid import UUID

from ..errors import DeviceLost, InvalidRequest, LibraryError, OutOfMemory, Unsupported

cdef enum:
    STAGING = 2
    GRANULARITY = 2 << 20
    BLOCK = 256  # bytes of `take_block`


def warm_up_driver():
    """Load the driver and initialise it.  Makes no context.  May take a tenth of a second."""
    cdef char why[2048]
    cdef CUresult r
    cdef const atomr_driver *driver
    with nogil:
        driver = atomr_driver_load(why, sizeof(why))
    if driver == NULL:
        raise Unsupported((<bytes>why).decode(errors="replace"))
    with nogil:
        r = driver.cuInit(0)
    if r != CUDA_SUCCESS:
        raise LibraryError("cuda", r, "error", "initialising the driver")


@cython.no_gc_clear
cdef class CudaBackend(Backend):
    """One CUDA device, in its primary context.

    Parameters
    ----------
    ordinal : int
        Which device, as the driver numbers those that CUDA_VISIBLE_DEVICES leaves.
    uuid : str
        Which device for sure, as `facts` had it: it is found by that, whatever its number is now.

    Raises
    ------
    Unsupported
        If there is no driver, or it is too old, or there is no such device, or it lacks something.
    LibraryError
        If the driver cannot open the device: the context of this very process has faulted before, say.
    OutOfMemory
        If the GPU has no room for a context.
    DeviceLost
        If the device with that UUID is gone.
    """

    def __cinit__(self, int ordinal, str uuid=""):
        cdef char why[2048]
        cdef bytes raw
        cdef const char *wanted
        cdef int found
        cdef CUresult result = CUDA_SUCCESS
        self.marks = {}
        self.own = {}
        self.scratch = {}
        self.blocks = []
        if uuid:
            raw = bytes.fromhex(uuid.partition("-")[2].replace("-", ""))
            if len(raw) != 16:
                raise InvalidRequest(f"UUID {uuid!r}; it must look like GPU-01234567-89ab-cdef-0123-456789abcdef")
            wanted = raw
            with nogil:
                found = atomr_cuda_find(wanted, &ordinal, &result, why, sizeof(why))
            if found == 0:
                raise DeviceLost(f"{uuid} is gone: {(<bytes>why).decode(errors='replace')}")
            if found < 0:
                self.refuse_device(result, (<bytes>why).decode(errors="replace"))
        with nogil:
            self.cuda = atomr_cuda_open(ordinal, &result, why, sizeof(why))
        if self.cuda == NULL:
            self.refuse_device(result, (<bytes>why).decode(errors="replace"))
        self.ordinal = ordinal
        self.made = atomr_cuda_backend(self.cuda)
        self.least_gain = RECORDS_GAIN
        self.records = atomr_records_new(self.cuda)
        if self.records == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.cuda == NULL:
            return
        if atomr_cuda_enter(self.cuda) == CUDA_SUCCESS:
            for address, nbytes in self.scratch.items():
                atomr_cuda_unmap(self.cuda, address, nbytes)
        with nogil:
            atomr_records_end(self.records)
            atomr_cuda_close(self.cuda)

    cdef int refuse_device(self, CUresult result, str text) except -1:
        cdef char why[2048]
        cdef const char *name = NULL
        cdef const atomr_driver *driver
        if result in (CUDA_SUCCESS, CUDA_ERROR_NO_DEVICE, CUDA_ERROR_INVALID_DEVICE):
            raise Unsupported(text)
        if result == CUDA_ERROR_OUT_OF_MEMORY:
            raise OutOfMemory(text)
        driver = atomr_driver_load(why, sizeof(why))  # it is loaded: the result is the driver's
        if driver != NULL:
            driver.cuGetErrorName(result, &name)
        if atomr_cuda_is_sticky(result):
            text += ("; the device has faulted in this process before, and no library can use it here again: restart "
                     "the program, or use System(isolation='process')")
        raise LibraryError("cuda", result, name.decode() if name != NULL else "unknown error", "opening the device",
                           text)

    cdef const atomr_backend *table(self) noexcept:
        return &self.made

    cdef int check_fault(self, str what) except -1:
        """After an error: should the device have faulted, do about it what this worker does; then go on."""
        cdef bytes raw
        cdef const char *doing
        cdef CUresult found
        with nogil:
            found = atomr_cuda_examine(self.cuda)
        if found != CUDA_SUCCESS and self.worker != NULL:
            raw = what.encode()
            doing = raw
            with nogil:
                atomr_worker_fault(self.worker, doing)
        return 0

    cdef int check(self, CUresult result, str what) except -1:
        cdef const char *name = NULL
        cdef const char *text = NULL
        if result == CUDA_SUCCESS:
            return 0
        self.check_fault(what)
        atomr_cuda_driver(self.cuda).cuGetErrorName(result, &name)
        atomr_cuda_driver(self.cuda).cuGetErrorString(result, &text)
        if result == CUDA_ERROR_OUT_OF_MEMORY:
            raise OutOfMemory(f"{what}: the GPU has no memory left for it")
        raise LibraryError("cuda", result, name.decode() if name != NULL else "unknown error", what,
                           text.decode() if text != NULL else "")

    cdef int attach(self, void *w, uint64_t nbytes) except -1:
        cdef char why[1024]
        cdef CUresult r = atomr_cuda_register(self.cuda, w, nbytes, why, sizeof(why))
        if r != CUDA_SUCCESS:
            self.check(r, "registering the worker's memory, which the GPU writes to")
        return 0

    cdef bint detach(self) noexcept:
        cdef int rests
        with nogil:
            rests = atomr_cuda_unregister(self.cuda)
        return rests

    cdef int open_lane(self, unsigned lane) except -1:
        cdef CUresult r
        with nogil:
            r = atomr_cuda_open_lane(self.cuda, lane)
        self.check(r, f"making the stream of lane {lane}")
        return 0

    cdef int create(self, uint64_t nbytes, int pool) except -1:
        cdef int fd = -1
        cdef CUresult r
        if pool == STAGING:
            return Backend.create(self, nbytes, pool)
        with nogil:
            r = atomr_cuda_create(self.cuda, nbytes, &fd)
        if r == CUDA_ERROR_OUT_OF_MEMORY:
            raise OutOfMemory(f"the GPU has no {nbytes} bytes left for a segment", requested=nbytes)
        self.check(r, "making a segment of device memory")
        return fd

    cdef void *map(self, int fd, uint64_t nbytes, int pool) except NULL:
        cdef CUdeviceptr base = 0
        cdef CUresult r
        cdef void *host
        cdef atomr_copy touch
        if pool == STAGING:
            host = Backend.map(self, fd, nbytes, pool)
            with nogil:
                # Pinning makes the pages one after the other, unless they are there.
                atomr_copy_start(&touch, ATOMR_COPY_TOUCH, host, NULL, nbytes)
                atomr_copy_finish(&touch)
                r = atomr_cuda_pin(self.cuda, host, nbytes, &base)
            if r == CUDA_SUCCESS and base == <CUdeviceptr>host:
                return host
            Backend.unmap(self, host, nbytes, pool)
            if r == CUDA_ERROR_OUT_OF_MEMORY:
                raise OutOfMemory(f"the GPU cannot pin {nbytes} bytes of host memory", requested=nbytes)
            self.check(r, "pinning host memory")
            raise Unsupported("this device needs other addresses for pinned host memory than the host's")
        with nogil:
            r = atomr_cuda_map(self.cuda, fd, nbytes, &base)
        if r == CUDA_ERROR_OUT_OF_MEMORY:
            raise OutOfMemory(f"the GPU has no memory left to map a segment of {nbytes} bytes", requested=nbytes)
        self.check(r, "mapping a segment of device memory")
        return <void *>base

    cdef int unmap(self, void *base, uint64_t nbytes, int pool) except -1:
        cdef CUresult r
        with nogil:
            atomr_records_forget(self.records, base, nbytes)
        if pool == STAGING:
            with nogil:
                r = atomr_cuda_unpin(self.cuda, base)
            Backend.unmap(self, base, nbytes, pool)
        else:
            with nogil:
                r = atomr_cuda_unmap(self.cuda, <CUdeviceptr>base, nbytes)
        if atomr_cuda_error(self.cuda) == CUDA_SUCCESS:  # else the driver has let go of everything, or will at the end
            self.check(r, "unmapping a segment")
        return 0

    cdef void *open_shared(self, bytes handle) except NULL:
        cdef CUdeviceptr base = 0
        cdef CUresult r
        cdef const char *raw = handle
        if len(handle) != 64:
            raise InvalidRequest(f"a handle of {len(handle)} bytes; those of the driver have 64")
        with nogil:
            r = atomr_cuda_open_shared(self.cuda, raw, &base)
        self.check(r, "mapping an allocation of another process")
        return <void *>base

    cdef int close_shared(self, void *base) except -1:
        cdef CUresult r
        with nogil:
            r = atomr_cuda_close_shared(self.cuda, <CUdeviceptr>base)
        self.check(r, "unmapping an allocation of another process")
        return 0

    cdef int reach(self, bytes uuid) except -2:
        """Whether this GPU reads the memory of the one with a UUID; -1: the driver does not know that one."""
        cdef const char *raw = uuid
        cdef int reached
        if len(uuid) != 16:
            raise InvalidRequest(f"a UUID of {len(uuid)} bytes; it has 16")
        with nogil:
            reached = atomr_cuda_reaches(self.cuda, raw)
        return reached

    cdef void *open_peer(self, int fd, uint64_t nbytes, bytes uuid) except NULL:
        cdef CUdeviceptr base = 0
        cdef CUresult r
        cdef int reached = self.reach(uuid)
        if reached <= 0:
            raise Unsupported("this GPU cannot read the memory of that one: the driver allows no peer access between "
                              "them" if reached == 0 else "the driver shows no such GPU to this worker")
        with nogil:
            r = atomr_cuda_map(self.cuda, fd, nbytes, &base)
        self.check(r, "mapping a segment of another GPU")
        return <void *>base

    cdef void *open_own(self, uint64_t nbytes) except NULL:
        cdef CUdeviceptr base = 0
        cdef unsigned long long handle = 0
        cdef CUresult r
        with nogil:
            r = atomr_cuda_open_own(self.cuda, nbytes, &base, &handle)
        if r == CUDA_ERROR_OUT_OF_MEMORY:
            raise OutOfMemory(f"the GPU has no {nbytes} bytes left for symmetric arrays", requested=nbytes)
        self.check(r, "making memory of symmetric arrays")
        self.own[<uint64_t>base] = handle
        return <void *>base

    cdef int close_own(self, void *base, uint64_t nbytes) except -1:
        cdef unsigned long long handle = self.own.pop(<uint64_t>base)
        cdef CUresult r
        with nogil:
            atomr_records_forget(self.records, base, nbytes)
            r = atomr_cuda_close_own(self.cuda, <CUdeviceptr>base, nbytes, handle)
        if atomr_cuda_error(self.cuda) == CUDA_SUCCESS:
            self.check(r, "unmapping memory of symmetric arrays")
        return 0

    cdef NativeRun prepared(self, object run):
        """What lanes run for a program of the builders, or for the name of a routine."""
        if isinstance(run, NativeRun):
            return run
        if isinstance(run, str):
            if run not in ROUTINES:
                raise InvalidRequest(f"unknown native routine {run!r}; there are {', '.join(ROUTINES)}")
            return ROUTINES[run](self)
        return PROGRAMS[run.kind](self, run)

    cdef object native(self, object run, atomr_run *function, void **context):
        cdef NativeRun made = self.prepared(run)
        function[0] = made.function
        context[0] = made.context
        return made

    cdef object recorded(self, object holder, unsigned n_operands, unsigned n_scalars, atomr_run *function, void **context):
        if (<NativeRun?>holder).gain < self.least_gain:
            return holder
        made = Recorded(holder, n_operands, n_scalars)
        function[0] = <atomr_run>atomr_recorded_run
        context[0] = made.native
        return made

    cdef dict record_counts(self):
        cdef atomr_record_counts c = atomr_records_count(self.records)
        return {"kept": c.kept, "nodes": c.nodes, "captures": c.captures, "refused": c.refused, "replays": c.replays}

    def make_records(self, str which):
        """Choose the plans that get launch records, before any is added: ``"auto"``, ``"all"`` or ``"off"``."""
        self.least_gain = {"auto": RECORDS_GAIN, "all": RECORDS_POSSIBLE, "off": RECORDS_GAIN + 1}[which]

    cdef dict native_handles(self):
        cdef atomr_handle_count[ATOMR_HANDLES] counts
        cdef unsigned n = atomr_cuda_handles(self.cuda, counts)
        return {counts[i].library.decode(): counts[i].count for i in range(n)}

    cdef uint32_t *mark(self, str name) except NULL:
        """The word of a mark, as long as the device lives."""
        return <uint32_t *>PyByteArray_AS_STRING(self.marks.setdefault(name, bytearray(sizeof(uint32_t))))

    def set_mark(self, str name):
        """Set a mark that kernels need, before the lanes run."""
        self.mark(name)[0] = 1

    def enter(self):
        """Make the device's context current in the calling thread."""
        self.check(atomr_cuda_enter(self.cuda), "entering the context")

    def allocate(self, uint64_t nbytes):
        """Make and map scratch memory of the worker; its address, for `free` with the same size."""
        cdef int fd
        nbytes = -(-nbytes // GRANULARITY) * GRANULARITY
        fd = self.create(nbytes, 0)
        try:
            address = <uint64_t>self.map(fd, nbytes, 0)
        finally:
            os.close(fd)
        self.scratch[address] = nbytes
        return address

    def free(self, uint64_t address, uint64_t nbytes):
        """Free memory that `allocate` has made."""
        self.scratch.pop(address, None)
        self.unmap(<void *>address, -(-nbytes // GRANULARITY) * GRANULARITY, 0)

    def take_block(self):
        """The address of 256 bytes of device memory, for `give_block`."""
        if not self.blocks:
            address = self.allocate(GRANULARITY)
            self.blocks += range(address, address + GRANULARITY, BLOCK)
        return self.blocks.pop()

    def give_block(self, uint64_t address):
        """Give memory back that `take_block` has returned, once no work uses it."""
        self.blocks.append(address)

    def zeros(self):
        """The address of 16 zero bytes of device memory."""
        cdef double[2] nothing
        if self.zero == 0:
            nothing[0] = nothing[1] = 0
            address = self.allocate(GRANULARITY)
            self.copy_now(address, <uint64_t>&nothing[0], sizeof(nothing))
            self.zero = address
        return self.zero

    def load(self, program):
        """Load the kernels of a program, for `start` and `run`."""
        return Kernels(self, program)

    def start(self, Kernels kernels not None, *words):
        """Launch kernels outside of any message, through what lanes launch them with.  Does not wait.

        Parameters
        ----------
        kernels : Kernels
            Of `load`; must be kept until they are done.
        words : int
            What the operands stand for: addresses, or other 64-bit numbers.
        """
        cdef atomr_failure failure
        cdef atomr_call call
        cdef void *pointers[8]
        cdef int code
        if len(words) > 8:
            raise InvalidRequest(f"{len(words)} operands; at most 8")
        for i, word in enumerate(words):
            pointers[i] = <void *><uint64_t>word
        memset(&failure, 0, sizeof(failure))
        memset(&call, 0, sizeof(call))
        call.n_operands = len(words)
        call.pointers = pointers
        self.enter()
        with nogil:
            code = atomr_cuda_launch(&kernels.native, atomr_cuda_control(self.cuda), &call, &failure)
        if code != ATOMR_OK:
            self.check_fault("launching a kernel")
            raise_failure(code, &failure, "launching a kernel")

    def run(self, Kernels kernels not None, *words):
        """As `start`, and wait until they are done."""
        cdef CUresult r
        self.start(kernels, *words)
        with nogil:
            r = atomr_cuda_driver(self.cuda).cuStreamSynchronize(atomr_cuda_control(self.cuda))
        self.check(r, "waiting for a kernel")

    def prepare(self, program):
        """What lanes run for a program of the builders."""
        return self.prepared(program)

    def measure(self, NativeRun run not None, list addresses, unsigned sets, unsigned launches, uint64_t workspace, uint64_t nbytes):
        """Microseconds of one launch of what lanes run, over `launches` of them, back to back on a stream of its own.

        Parameters
        ----------
        run : NativeRun
            Of `prepare`, without scalars.
        addresses : list of int
            Those of all operands, set after set, which the launches take in turn.
        sets, launches : int
        workspace, nbytes : int
            Its address, and its bytes.

        Waits for the device.
        """
        cdef atomr_failure failure
        cdef atomr_measured m
        cdef float microseconds = 0
        cdef int code
        if sets == 0 or launches == 0 or len(addresses) % sets or len(addresses) // sets > ATOMR_STEP_OPERANDS:
            raise InvalidRequest(f"{len(addresses)} addresses in {sets} sets, and {launches} launches; allowed: sets of "
                                 f"equal length, and a launch at least")
        at = array("Q", addresses)
        cdef const uint64_t[:] view = at if addresses else array("Q", [0])
        memset(&failure, 0, sizeof(failure))
        m.addresses = &view[0]
        m.n_operands = len(addresses) // sets
        m.sets = sets
        m.launches = launches
        m.workspace = workspace
        m.workspace_bytes = nbytes
        self.enter()
        with nogil:
            code = atomr_cuda_measure(self.cuda, run.function, run.context, &m, &microseconds, &failure)
        if code != ATOMR_OK:
            self.check_fault("measuring a plan")
            raise_failure(code, &failure, "measuring a plan")
        return microseconds

    def beat(self):
        """Have the device write a sign of life into the worker's memory, as it writes completions, and wait for it."""
        cdef CUresult r
        with nogil:
            r = atomr_cuda_beat(self.cuda)
        self.check(r, "writing to the worker's memory")

    def facts(self):
        """What the device is: name, UUID, compute capability, multiprocessors, memory (bytes), driver version."""
        cdef atomr_cuda_facts f
        self.check(atomr_cuda_describe(self.cuda, &f), "asking for the device's attributes")
        name = (<bytes>f.name).decode(errors="replace")
        # A part of a GPU has a UUID of its own, and only its name tells.
        kind = "MIG" if " MIG " in name else "GPU"
        return {"name": name, "uuid": f"{kind}-{UUID(bytes=<bytes>f.uuid[:16])}",
                "compute_capability": (f.major, f.minor), "multiprocessors": f.multiprocessors,
                "driver_version": f.driver_version, "total_memory": f.total_memory}

    def memory(self):
        """(free, total) bytes of the device, as the driver counts them."""
        cdef uint64_t available = 0, total = 0
        self.check(atomr_cuda_memory(self.cuda, &available, &total), "asking for free memory")
        return available, total

    def copy_in_lane(self, unsigned lane, uint64_t target, uint64_t source, uint64_t nbytes):
        """Copy between any addresses that the device can reach, in the order of a lane's stream, and wait.

        For operations of tests, which run as Python in the lane's thread.
        """
        cdef CUresult r
        cdef CUstream stream
        with nogil:
            stream = atomr_cuda_stream(self.cuda, lane)
            r = atomr_cuda_driver(self.cuda).cuMemcpyAsync(target, source, nbytes, stream)
            if r == CUDA_SUCCESS:
                r = atomr_cuda_driver(self.cuda).cuStreamSynchronize(stream)
        self.check(r, "copying in the order of a lane")

    def copy_now(self, uint64_t target, uint64_t source, uint64_t nbytes):
        """Copy between any addresses that the device can reach, and wait."""
        cdef CUresult r
        with nogil:
            r = atomr_cuda_copy_now(self.cuda, target, source, nbytes)
        self.check(r, "copying")


include "cuda_plain.pxi"
include "cuda_kernels.pxi"
include "cuda_sequence.pxi"
include "cuda_graph.pxi"

# What builders may name instead of a NativeRun, and what prepares a program of each kind.
ROUTINES = {"noop": Noop, "copy": Copy, "transfer": Transfer}
PROGRAMS = {"kernels": Kernels, "sequence": Sequence, "program": Graph}
